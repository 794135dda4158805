package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tools/tooltest"
)

// binary builds the program with its crash points, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../.ci/tmp/test")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "countersign-chaos")
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-tags", "chaos", "-o", fresh, "./cmd/countersign")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
})

// kinds are the tools: what each can do decides what the oracles demand.
var kinds = []string{"keyed", "asked", "plain"}

const manifest = `tool: touch_%[1]s
headline: "Touch ${args.id}"
access: write
reversible: true
upstream: outside
key: "touch/${args.id}"
input:
  required: [id]
  properties: {id: {type: string, pattern: "^[a-z0-9]+$"}}
preview:
  reads: {thing: {get: "/things/${args.id}"}}
  effects:
    - {verb: touch, target: "thing/${args.id}", before: {state: "${reads.thing.body.state}"}, after: {state: done}}
commit:
  post: "/%[1]s/${args.id}"
  json: {reference: "${key.upstream}"}
%[2]s  succeeded: {status: [201], effect_id: "${body.id}"}
  rejected: {status: [422], because: "${body.message}"}
%[3]sundo: {tool: touch_%[1]s, args: {id: "${args.id}"}}
approval: [{auto: true}]
timeout: 2s
`

// gateway is the program in a folder of its own, as it lives and dies.
type gateway struct {
	t   *testing.T
	dir string
	url string
	key string
	out *lockedBuffer

	cmd *exec.Cmd // nil while it does not run
	// gone is closed when it has ended, with this status.
	gone   chan struct{}
	status error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *lockedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func newGateway(t *testing.T, o *outside) *gateway {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and kills the real program")
	}
	g := &gateway{t: t, dir: t.TempDir(), out: &lockedBuffer{}}
	port, err := tooltest.FreePort()
	require.NoError(t, err)
	address := fmt.Sprint("127.0.0.1:", port)
	g.url = "http://" + address
	host := strings.TrimPrefix(o.server.URL, "http://")
	lookup := "lookup:\n  get: /effects\n  query: {reference: \"${key.upstream}\"}\n  answers: [200]\n  found: \"body.items.map(e, e.id)\"\n  consistency: strong\n  max_in_flight: 1s\n"
	files := map[string]string{
		"tools/keyed.yaml": fmt.Sprintf(manifest, "keyed", "  honours_key: {header: Idempotency-Key, retention: 24h}\n", lookup),
		"tools/asked.yaml": fmt.Sprintf(manifest, "asked", "", lookup),
		"tools/plain.yaml": fmt.Sprintf(manifest, "plain", "", ""),
		"countersign.yaml": fmt.Sprintf("listen: %s\ntools: [tools]\nupstreams:\n  outside: {url: %q, allow: [%q]}\nlimits: {open_previews: 100000}\nreconcile: {max_backoff: 5s, repeats: 2}\nlog: {level: warn}\n", address, o.server.URL, host),
	}
	for name, text := range files {
		path := filepath.Join(g.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	g.command("operator", "create", "ann", "--group", "support")
	var made struct{ Key string }
	require.NoError(t, json.Unmarshal(g.command("agent", "create", "bot", "--owner", "ann", "--tools", "*", "--output", "json"), &made))
	g.key = made.Key
	t.Cleanup(g.kill)
	return g
}

// command runs the program to its end.
func (g *gateway) command(args ...string) []byte {
	g.t.Helper()
	bin, err := binary()
	require.NoError(g.t, err)
	cmd := exec.Command(bin, args...)
	cmd.Dir = g.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(g.t, err, "%v\n%s", args, stderr.String())
	return out
}

// launch starts it. env are crash points.
func (g *gateway) launch(env ...string) {
	g.t.Helper()
	bin, err := binary()
	require.NoError(g.t, err)
	cmd, gone := exec.Command(bin, "serve"), make(chan struct{})
	// A life is mostly a start, and a third of that would be garbage collection.
	cmd.Dir, cmd.Env = g.dir, append([]string{"PATH=" + os.Getenv("PATH"), "GOGC=400"}, env...)
	cmd.Stdout, cmd.Stderr = g.out, g.out
	require.NoError(g.t, cmd.Start())
	g.cmd, g.gone = cmd, gone
	go func() { g.status = cmd.Wait(); close(gone) }()
}

// start starts it and waits until it answers.
func (g *gateway) start(env ...string) {
	g.t.Helper()
	g.launch(env...)
	require.True(g.t, g.answers(), "the gateway ended by itself: %v\n%s", g.status, g.out)
}

// answers waits until it answers; false when it ended before.
func (g *gateway) answers() bool {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		resp, err := http.Get(g.url + "/healthz")
		if err == nil {
			_ = resp.Body.Close() // only that it answers counts
			return true
		}
		if g.endsWithin(3 * time.Millisecond) {
			return false
		}
	}
	g.t.Fatalf("the gateway does not answer:\n%s", g.out)
	return false
}

// endsWithin waits for its end, but not for longer.
func (g *gateway) endsWithin(d time.Duration) bool {
	select {
	case <-g.gone:
		return true
	case <-time.After(d):
		return false
	}
}

// signal sends it a signal; one that comes too late is no mistake.
func (g *gateway) signal(s syscall.Signal) { _ = g.cmd.Process.Signal(s) }

// kill ends it without a farewell, if it runs.
func (g *gateway) kill() {
	if g.cmd == nil {
		return
	}
	g.signal(syscall.SIGKILL)
	<-g.gone
	g.cmd = nil
}

// died waits until it came to its crash point.
func (g *gateway) died() {
	g.t.Helper()
	<-g.gone
	require.Error(g.t, g.status, "it ended by itself:\n%s", g.out)
	g.cmd = nil
}

// stop ends it as an operator would.
func (g *gateway) stop() {
	g.t.Helper()
	g.signal(syscall.SIGTERM)
	<-g.gone
	require.NoError(g.t, g.status, g.out.String())
	g.cmd = nil
}
