package pocketbase_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a real PocketBase with a data folder of its own and the collections
// of this example. Its methods are a person at the dashboard: they speak to
// PocketBase directly and know nothing of the gateway.
type server struct {
	t   *testing.T
	url string
	// tokenFile is the superuser's token, as start.sh left it.
	tokenFile string
}

// prepared is what start.sh makes, once: the program, the token, and a database
// with the collections. Every server runs on a copy of the database.
var prepared struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if prepared.dir != "" {
		os.RemoveAll(prepared.dir)
	}
	os.Exit(code)
}

// prepare runs start.sh until it is ready, as a person would, and stops it.
func prepare() (string, error) {
	dir, err := os.MkdirTemp("", "pocketbase")
	if err != nil {
		return "", err
	}
	_, stop, err := launch("Ready.", func(port string) *exec.Cmd {
		cmd := exec.Command("sh", "start.sh", port)
		cmd.Env = append(os.Environ(), "DATA="+dir)
		return cmd
	})
	if err != nil {
		return dir, fmt.Errorf("start.sh: %w", err)
	}
	return dir, stop()
}

// launch runs a server on a free port and waits for the line that says that it
// answers. A port can be taken by somebody else between finding and using it,
// so others are tried.
func launch(ready string, command func(port string) *exec.Cmd) (port string, stop func() error, err error) {
	for range 5 {
		if port, err = freePort(); err != nil {
			return "", nil, err
		}
		if stop, err = run(ready, command(port)); err == nil {
			return port, stop, nil
		}
	}
	return "", nil, err
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// run starts a command and reads what it says until a line holds ready. stop
// ends it and waits until it is gone.
func run(ready string, cmd *exec.Cmd) (stop func() error, err error) {
	said, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 10 * time.Second // for what it may have left behind
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		out.Close()
	}()
	var text strings.Builder
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		fmt.Fprintln(&text, lines.Text())
		if strings.Contains(lines.Text(), ready) {
			go io.Copy(io.Discard, said)
			return func() error {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					return err
				}
				<-ended // told to end, so that its exit code says nothing
				return nil
			}, nil
		}
	}
	return nil, fmt.Errorf("%w before it was ready, and said:\n%s", <-ended, text.String())
}

// start runs a PocketBase for one test.
func start(t *testing.T) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts PocketBase")
	}
	prepared.once.Do(func() { prepared.dir, prepared.err = prepare() })
	require.NoError(t, prepared.err)
	data := filepath.Join(t.TempDir(), "pb")
	require.NoError(t, os.CopyFS(data, os.DirFS(filepath.Join(prepared.dir, "pb"))))
	port, stop, err := launch("Server started", func(port string) *exec.Cmd {
		return exec.Command(filepath.Join(prepared.dir, "pocketbase"), "serve", "--dir", data, "--http", "127.0.0.1:"+port, "--dev=false")
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return &server{t: t, url: "http://127.0.0.1:" + port, tokenFile: filepath.Join(prepared.dir, "token")}
}

// call sends one request as the superuser and wants the status.
func (s *server) call(method, path string, body any, status int) map[string]any {
	s.t.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		require.NoError(s.t, err)
	}
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(text))
	require.NoError(s.t, err)
	token, err := os.ReadFile(s.tokenFile)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+string(token))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, status, res.StatusCode, "%s %s: %s", method, path, text)
	var answer map[string]any
	if len(text) > 0 {
		require.NoError(s.t, json.Unmarshal(text, &answer))
	}
	return answer
}

const customersPath = "/api/collections/customers/records"

// add creates a customer by hand and gives the record.
func (s *server) add(reference, name, plan string, seats int) map[string]any {
	s.t.Helper()
	return s.call("POST", customersPath, map[string]any{
		"reference": reference, "name": name, "email": strings.ToLower(name) + "@example.com", "plan": plan, "seats": seats,
	}, 200)
}

// change changes fields of a record by hand.
func (s *server) change(id string, fields map[string]any) map[string]any {
	s.t.Helper()
	return s.call("PATCH", customersPath+"/"+id, fields, 200)
}

// remove deletes a record by hand.
func (s *server) remove(id string) { s.t.Helper(); s.call("DELETE", customersPath+"/"+id, nil, 204) }

// record reads one customer.
func (s *server) record(id string) map[string]any {
	s.t.Helper()
	return s.call("GET", customersPath+"/"+id, nil, 200)
}

// customers are all customers, in the order of their references.
func (s *server) customers() []map[string]any { return s.list("customers", "reference") }

// requests are the rows that carry the gateway's keys, oldest first.
func (s *server) requests() []map[string]any { return s.list("gateway_requests", "created,id") }

func (s *server) list(collection, sort string) []map[string]any {
	s.t.Helper()
	query := url.Values{"perPage": {"500"}, "sort": {sort}}
	answer := s.call("GET", "/api/collections/"+collection+"/records?"+query.Encode(), nil, 200)
	out := []map[string]any{}
	for _, item := range answer["items"].([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

// values are the fields of a record that the tools are about.
func values(record map[string]any) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"reference", "name", "email", "plan", "seats"} {
		out[name] = record[name]
	}
	return out
}
