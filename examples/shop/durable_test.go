package shop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// childDir, when set in the environment, makes this test binary a shop process
// of its own: it serves the folder and prints its address.
const childDir, childFileLimit = "SHOP_TEST_DIR", "SHOP_TEST_FILE_LIMIT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir, os.Getenv(childFileLimit)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir, fileLimit string) error {
	if fileLimit != "" {
		var limit uint64
		if _, err := fmt.Sscan(fileLimit, &limit); err != nil {
			return err
		}
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	s, err := shop.Open(shop.Config{Dir: dir})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + ln.Addr().String())
	return s.Serve(ln)
}

// startChild runs a shop process; kill ends it as kill -9 does.
func startChild(t *testing.T, dir string, env ...string) (s *running, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return &running{t: t, url: strings.TrimSpace(line)}, kill
}

func TestShop_EffectIsOnDiskBeforeTheReply(t *testing.T) {
	dir := t.TempDir()
	found := make(chan shop.Effect, 10)
	s := start(t, shop.Config{Dir: dir, OnEffect: func(e shop.Effect) {
		data, err := os.ReadFile(filepath.Join(dir, "effects.jsonl"))
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err == nil {
			found <- e
		}
	}})
	s.Set(shop.Switches{CutNext: 1})
	_, _, err := send(s.request("POST", "/orders/ord_1001/holds", ""))
	require.Error(t, err)
	require.Empty(t, cmp.Diff(s.Effects(), []shop.Effect{<-found}))
	require.Empty(t, found)
}

func TestShop_KillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s, kill := startChild(t, dir)
	var acked atomic.Int64
	var wg sync.WaitGroup
	enough := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				reply, _, err := send(s.request("POST", "/letters", `{"to":"adr_2001","subject":"a","body":"b"}`))
				if err != nil {
					return
				}
				if reply.StatusCode == http.StatusAccepted && acked.Add(1) == 40 {
					close(enough)
				}
			}
		})
	}
	<-enough
	kill()
	wg.Wait()
	back := start(t, shop.Config{Dir: dir})
	require.GreaterOrEqual(t, int64(back.EffectCount()), acked.Load())
	require.GreaterOrEqual(t, len(back.Requests()), back.EffectCount(), "no effect without its request")
	// A killed process may have done what it could not answer, at most one a caller.
	require.LessOrEqual(t, int64(back.EffectCount()), acked.Load()+4)
}

func TestShop_FullDiskDoesNothing(t *testing.T) {
	dir := t.TempDir()
	s, kill := startChild(t, dir, childFileLimit+"=2000")
	letter := `{"to":"adr_2001","subject":"a","body":"` + strings.Repeat("b", 300) + `"}`
	done := 0
	for {
		status, body := s.call("POST", "/letters", letter)
		if status != http.StatusAccepted {
			require.Equal(t, http.StatusInternalServerError, status)
			require.Equal(t, `{"message":"The shop can't write its log."}`, body)
			break
		}
		done++
	}
	require.Positive(t, done)
	require.Equal(t, done, lineCount(t, dir, "effects.jsonl"))
	info, err := os.Stat(filepath.Join(dir, "effects.jsonl"))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(2000), "the half line was taken back")
	status, _ := s.call("GET", "/orders", "")
	require.Equal(t, 200, status, "reads go on")
	kill()
	require.Equal(t, done, start(t, shop.Config{Dir: dir}).EffectCount())
}

func TestShop_RestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	var views []map[string]string
	for range 2 {
		func() {
			s, err := shop.Open(shop.Config{Dir: dir})
			require.NoError(t, err)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(ln) }()
			r := &running{Shop: s, t: t, url: "http://" + ln.Addr().String()}
			if len(views) == 0 {
				doOneOfEach(r)
			}
			view := map[string]string{}
			for _, path := range []string{
				"/orders", "/holds", "/payments", "/refunds", "/addresses", "/addresses/adr_2001/changes", "/letters", "/effects",
			} {
				_, view[path] = r.call("GET", path, "")
			}
			views = append(views, view)
			require.Len(t, s.Requests(), 8)
			require.NoError(t, s.Close())
			require.NoError(t, <-served)
		}()
	}
	require.Empty(t, cmp.Diff(views[0], views[1]))
	require.Contains(t, views[1]["/orders"], `"id":"ord_1003","customer":"Harbour Cycles","status":"open","total":130000`)

	// The ids go on where they were.
	s := start(t, shop.Config{Dir: dir})
	s.want(201, `{"id":"hold_90","order":"ord_1005","state":"held"}`, "POST", "/orders/ord_1005/holds", "")
}

// doOneOfEach makes every kind of effect and of change by hand: 8 requests.
func doOneOfEach(s *running) {
	for _, c := range [][3]string{
		{"POST", "/orders/ord_1001/holds", `{}`},
		{"POST", "/orders/ord_1002/holds", `{}`},
		{"POST", "/holds/hold_88/release", `{}`},
		{"POST", "/refunds", `{"payment":"pay_a1","amount":100}`},
		{"POST", "/refunds", `{"payment":"pay_a3","amount":200}`},
		{"POST", "/refunds/re_12/cancel", `{}`},
		{"POST", "/letters", `{"to":"adr_2001","subject":"a","body":"b"}`},
		{"PUT", "/addresses/adr_2001", `{"street":"a","city":"b","postcode":"c","country":"DE"}`},
		// By hand:
		{"POST", "/orders/ord_1003/change", ``},
		{"POST", "/orders/ord_1004/change", `{"status":"shipped"}`},
		{"POST", "/payments/pay_a3/change", ``},
		{"POST", "/addresses/adr_2001/change", ``},
		{"POST", "/refunds/re_13/settle", ``},
	} {
		status, body := s.call(c[0], c[1], c[2])
		require.Less(s.t, status, 300, "%v: %s", c, body)
	}
}

func TestShop_TornLastLineIsCutOff(t *testing.T) {
	for name, torn := range map[string]string{
		"half a line":             `{"number":2,"ti`,
		"no newline":              `{"number":2}`,
		"zeros after a power cut": "\x00\x00\x00\x00",
		"half a line that ends":   "\x00\x00\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			seed, err := shop.Open(shop.Config{Dir: dir})
			require.NoError(t, err)
			require.NoError(t, seed.Close())
			s := start(t, shop.Config{Dir: dir})
			s.call("POST", "/orders/ord_1001/holds", "")
			require.NoError(t, s.Close())
			for _, log := range []string{"effects.jsonl", "requests.jsonl", "changes.jsonl"} {
				path := filepath.Join(dir, log)
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, append(data, torn...), 0o600))
			}
			back := start(t, shop.Config{Dir: dir})
			require.Equal(t, 1, back.EffectCount())
			require.Len(t, back.Requests(), 1)
			// What is written next stands on a line of its own.
			back.want(201, `{"id":"hold_89","order":"ord_1002","state":"held"}`, "POST", "/orders/ord_1002/holds", "")
			require.NoError(t, back.Close())
			require.Equal(t, 2, start(t, shop.Config{Dir: dir}).EffectCount())
		})
	}
}

func TestShop_DamageInTheMiddleIsRefused(t *testing.T) {
	good := `{"number":1,"verb":"send","id":"let_5"}` + "\n"
	for name, c := range map[string][2]string{
		"not json":        {"garbage\n" + good, "line 1"},
		"a missing line":  {good + `{"number":3}` + "\n" + `{"number":4}` + "\n", "number 3 where 2 belongs"},
		"a repeated line": {good + good + good, "number 1 where 2 belongs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "effects.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(c[0]), 0o600))
			_, err := shop.Open(shop.Config{Dir: dir})
			require.ErrorContains(t, err, c[1])
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, c[0], string(data), "a damaged log is left as it is")
		})
	}
}

func TestShop_LostEffectsAreNoticed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "changes.jsonl"), []byte(`{"after":2,"rows":{}}`+"\n"), 0o600))
	_, err := shop.Open(shop.Config{Dir: dir})
	require.ErrorContains(t, err, "effects.jsonl is older than changes.jsonl")
}

func TestShop_Reset(t *testing.T) {
	dir := t.TempDir()
	s := start(t, shop.Config{Dir: dir})
	view := func() map[string]string {
		out := map[string]string{}
		for _, path := range []string{"/orders", "/holds", "/payments", "/refunds", "/addresses", "/letters", "/effects", "/switches"} {
			_, out[path] = s.call("GET", path, "")
		}
		return out
	}
	before := view()
	doOneOfEach(s)
	s.Set(shop.Switches{Refuse: true})
	require.NotEmpty(t, cmp.Diff(before, view()))
	require.NoError(t, s.Reset())
	require.Empty(t, cmp.Diff(before, view()))
	require.Empty(t, s.Requests())
	for _, log := range []string{"effects.jsonl", "requests.jsonl", "changes.jsonl"} {
		require.Zero(t, lineCount(t, dir, log), log)
	}
	s.want(201, `{"id":"hold_88","order":"ord_1001","state":"held"}`, "POST", "/orders/ord_1001/holds", "")
	require.Equal(t, 1, lineCount(t, dir, "effects.jsonl"))
}

func TestOpen_NeedsAFolder(t *testing.T) {
	_, err := shop.Open(shop.Config{})
	require.ErrorContains(t, err, "Config.Dir is empty")
}
