package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"countersign/approvals"
	"countersign/examples/shop"
	"countersign/store/sqlstore"
	"countersign/tools/tooltest"
)

// The scripts run the real program, each command in a process of its own, in
// front of the real Acme shop. Beside what testscript has, they know:
//
//	status N PROGRAM ARGS...   run a program that must end with exactly this status
//	until FILE                 wait until a file is there and not empty
//	readenv VAR FILE           set a variable to a file's text
//	freeport VAR               set a variable to a port that is free now
//	readjson VAR FILE MEMBER   set a variable to a member of a JSON object
//	replace FILE OLD NEW       replace a text in a file
//	fill FILE...               replace $VARIABLES in files by their values
//	gateway CONFIG VAR         wait until the gateway serves, set VAR to its address
//	settles N PROGRAM ARGS...  run a program again until it ends with this status
//	shop PATH NAME=VALUE...    post a form to the shop at $SHOP: its switches, changes by hand
//	effects N                  the shop at $SHOP has this many effects
//	mode MODE FILE...          files have exactly these permissions
//
// TEST_CLOCK=1h moves the clock of the programs that are started then.
func TestScript(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			manifests := filepath.Join(env.WorkDir, "shop-tools")
			return os.CopyFS(manifests, shop.Manifests)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": scriptStatus, "settles": scriptSettles, "until": scriptUntil, "readenv": scriptReadenv, "gateway": scriptGateway,
			"freeport": scriptFreeport, "fill": scriptFill, "replace": scriptReplace, "readjson": scriptReadjson, "shop": scriptShop, "effects": scriptEffects, "mode": scriptMode,
		},
	})
}

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"countersign": func() { os.Exit(testProgram().run(testSignals(), os.Args[1:])) },
		"acme-shop":   func() { exitOn(acmeShop(testSignals(), os.Args[1:])) },
		"decide":      func() { exitOn(decide(os.Args[1:])) },
		"cutter":      func() { exitOn(cutter(testSignals(), os.Args[1], os.Args[2])) },
		"holdlock":    func() { exitOn(holdLock(testSignals(), os.Args[1], os.Args[2])) },
	})
}

// testProgram is the program as main makes it, with a clock that can be moved.
func testProgram() *program {
	shift, err := time.ParseDuration(os.Getenv("TEST_CLOCK"))
	if err != nil {
		shift = 0
	}
	return &program{
		getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		now: func() time.Time { return time.Now().Add(shift) },
	}
}

func testSignals() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	return ctx
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// acmeShop serves the shop and writes its address into a file; -at keeps an
// address over restarts.
func acmeShop(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("acme-shop", flag.ContinueOnError)
	dir := flags.String("dir", "shop", "the shop's logs")
	file := flags.String("address", "shop.url", "file for the address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := shop.Open(shop.Config{Dir: *dir, Key: os.Getenv("SHOP_KEY"), ReadKey: os.Getenv("SHOP_READ_KEY")})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(*file, []byte(ln.Addr().String()), 0o600); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // ends Serve
	return s.Serve(ln)
}

// decide lets an operator decide on what waits longest, while no gateway runs:
//
//	decide CONFIG OPERATOR approve|reject
func decide(args []string) error {
	p := testProgram()
	ctx := context.Background()
	cfg, err := loadConfig(args[0], p.getenv)
	if err != nil {
		return err
	}
	env := p.environment(cfg)
	env.log = slog.New(slog.DiscardHandler)
	g, err := openGateway(ctx, cfg, env)
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.loadTools(ctx); err != nil {
		return err
	}
	who, err := g.identity.OperatorNamed(ctx, tenant, args[1])
	if err != nil {
		return err
	}
	page, err := g.approvals.Queue(ctx, tenant, "", 1)
	if err != nil || len(page.Operations) == 0 {
		return errors.Join(err, errors.New("nothing waits for people"))
	}
	id := page.Operations[0].ID
	card, err := g.approvals.Card(ctx, approvals.PersonOf(who), tenant, id)
	if err != nil {
		return err
	}
	_, err = g.approvals.Decide(ctx, who, id, approvals.Decision{
		Word: args[2], ShownDigest: card.ShownDigest, Reason: "decided by a script",
	})
	return err
}

// statusOf runs a program and gives the status that it ends with.
func statusOf(ts *testscript.TestScript, args []string) (want, got int) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return want, exit.ExitCode()
	}
	ts.Check(err)
	return want, 0
}

// cutter passes requests on to a gateway and cuts the connection instead of
// passing the answers back. It writes its own address into a file.
func cutter(ctx context.Context, gateway, file string) error {
	target, err := url.Parse(gateway)
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		_, err := io.Copy(io.Discard, r.Body) // the gateway has done its part
		return errors.Join(err, errors.New("cut"))
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte("http://"+ln.Addr().String()), 0o600); err != nil {
		return err
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = srv.Close() }) // ends Serve
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// holdLock keeps a ledger open without answering anybody, and says so by a file.
func holdLock(ctx context.Context, ledger, told string) error {
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: ledger})
	if err != nil {
		return err
	}
	if err := os.WriteFile(told, []byte("held\n"), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return db.Close()
}

func scriptStatus(ts *testscript.TestScript, _ bool, args []string) {
	if want, got := statusOf(ts, args); got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func scriptSettles(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, "exit status "+args[0], func() bool {
		want, got := statusOf(ts, args)
		return got == want
	})
}

// patience is far beyond what any step needs, on a slow machine too.
const patience = 3 * time.Minute

// poll asks again until f is content.
func poll(ts *testscript.TestScript, what string, f func() bool) {
	for end := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%s did not come", what)
		}
	}
}

func scriptUntil(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	poll(ts, args[0], func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > 0
	})
}

func scriptReadenv(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

func scriptFreeport(ts *testscript.TestScript, _ bool, args []string) {
	port, err := tooltest.FreePort()
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(port))
}

func scriptReadjson(ts *testscript.TestScript, _ bool, args []string) {
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &object))
	ts.Setenv(args[0], fmt.Sprint(object[args[2]]))
}

func scriptReplace(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not hold %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, args[1], args[2])), 0o600))
}

func scriptFill(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

func scriptGateway(ts *testscript.TestScript, _ bool, args []string) {
	cfg, err := loadConfig(ts.MkAbs(args[0]), ts.Getenv)
	ts.Check(err)
	ctx := context.Background()
	poll(ts, "the gateway", func() bool {
		a, err := dialAdmin(ctx, cfg)
		if a == nil || err != nil {
			return false
		}
		defer a.close()
		var s status
		if a.call(ctx, http.MethodGet, "/status", nil, &s) != nil {
			return false
		}
		ts.Setenv(args[1], s.URL)
		return true
	})
}

func scriptShop(ts *testscript.TestScript, _ bool, args []string) {
	values := url.Values{}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		values.Set(name, value)
	}
	resp, err := http.PostForm("http://"+ts.Getenv("SHOP")+"/"+args[0], values)
	ts.Check(err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("the shop answered %s", resp.Status)
	}
}

func scriptEffects(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := http.Get("http://" + ts.Getenv("SHOP") + "/effects")
	ts.Check(err)
	defer resp.Body.Close()
	var counted struct{ Count int }
	ts.Check(json.NewDecoder(resp.Body).Decode(&counted))
	if strconv.Itoa(counted.Count) != args[0] {
		ts.Fatalf("the shop has %d effects, not %s", counted.Count, args[0])
	}
}

func scriptMode(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, not %s", name, got, args[0])
		}
	}
}
