package main_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outside is an upstream over TLS that keeps its own count of requests and
// effects and can be stopped at three points of one exchange.
type outside struct {
	server *httptest.Server
	mu     sync.Mutex
	// stall, when set, keeps new connections from finishing their handshake.
	stall bool
	// hold, when set, keeps the reply back after the effect.
	hold chan struct{}
	// cut closes the connection after the effect instead of answering.
	cut      bool
	requests int
	effects  int
	// done are the effects by the keys that came along.
	done map[string]int
	// reached is told of each point that an exchange came to.
	reached chan string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{reached: make(chan string, 100), done: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"id": r.PathValue("id"), "state": "open"})
	})
	mux.HandleFunc("POST /things/{id}", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.requests++
		n := o.done[r.Header.Get("Idempotency-Key")]
		if n == 0 { // a key that it knows changes nothing
			o.effects++
			n = o.effects
		}
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			o.done[key] = n
		}
		hold, cut := o.hold, o.cut
		o.mu.Unlock()
		o.reached <- "effect"
		if cut {
			panic(http.ErrAbortHandler) // closes the connection without a reply
		}
		if hold != nil {
			<-hold
		}
		reply(w, http.StatusCreated, map[string]any{"id": fmt.Sprintf("done_%d", n)})
		o.reached <- "reply"
	})
	o.server = httptest.NewUnstartedServer(mux)
	o.server.Listener = &stallingListener{Listener: o.server.Listener, o: o}
	o.server.StartTLS()
	t.Cleanup(o.server.Close)
	return o
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a peer that is gone is the point of these tests
}

// stallingListener accepts connections and, while told to, lets their first
// read wait, so that a TLS handshake never ends.
type stallingListener struct {
	net.Listener
	o *outside
}

func (l *stallingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallingConn{Conn: c, o: l.o}, nil
}

type stallingConn struct {
	net.Conn
	o    *outside
	once sync.Once
}

func (c *stallingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.once.Do(func() {
		c.o.mu.Lock()
		stall := c.o.stall
		c.o.mu.Unlock()
		if stall {
			c.o.reached <- "handshake"
			err = net.ErrClosed
			time.Sleep(time.Second) // the gateway is killed meanwhile
		}
	})
	return n, err
}

const touchManifest = `tool: touch_thing
headline: "Touch ${args.id}"
access: write
reversible: false
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
  post: "/things/${args.id}"
  json: {}
  succeeded: {status: [201], effect_id: "${body.id}"}
approval: [{auto: true}]
timeout: 2s
`

// deployment is a folder with a configuration for the upstream, and an agent.
type deployment struct {
	t     *testing.T
	dir   string
	agent agentClient
}

func deploy(t *testing.T, o *outside, manifest string) *deployment {
	t.Helper()
	d := &deployment{t: t, dir: t.TempDir()}
	port := freePort(t)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw})
	host := strings.TrimPrefix(o.server.URL, "https://")
	for name, text := range map[string]string{
		"ca.pem":           string(ca),
		"tools/touch.yaml": manifest,
		"countersign.yaml": fmt.Sprintf("listen: 127.0.0.1:%d\ntools: [tools]\nupstreams:\n  outside: {url: %q, ca: ca.pem, allow: [%q]}\n", port, "https://"+host, host),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(d.dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	}
	command(t, d.dir, "operator", "create", "ann", "--group", "support")
	var made struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(command(t, d.dir, "agent", "create", "bot", "--owner", "ann", "--tools", "*", "--output", "json")), &made))
	d.agent = agentClient{url: fmt.Sprintf("http://localhost:%d", port), key: made.Key}
	return d
}

func (d *deployment) serve() *process {
	d.t.Helper()
	p := start(d.t, d.dir, nil, "serve")
	p.ready(d.agent.url)
	return p
}

// settled waits until the operation that a commit names is no longer running.
func (d *deployment) settled(token string) map[string]any {
	d.t.Helper()
	var got answer
	require.Eventually(d.t, func() bool {
		got = d.agent.mustPost(d.t, "/v1/tools/touch_thing/commit?wait=0", map[string]any{"commit_token": token})
		return got.Body["state"] != "running" && got.Body["state"] != "pending"
	}, 60*time.Second, 100*time.Millisecond)
	require.Less(d.t, got.Status, 300, got.Body)
	require.Equal(d.t, true, got.Body["replayed"])
	return got.Body
}

// TestCrash_Kill9 kills the gateway at three points of one dispatch and starts
// it again: 0 or 1 effects, never 2, never "failed"; the repeat of the commit
// says what is known (R149, R150; matrix row 9).
func TestCrash_Kill9(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		point   string
		prepare func(*outside)
		effects int
		states  []string
	}{
		"before the send":  {point: "handshake", prepare: func(o *outside) { o.stall = true }, effects: 0, states: []string{"unknown"}},
		"after the effect": {point: "effect", prepare: func(o *outside) { o.hold = make(chan struct{}) }, effects: 1, states: []string{"unknown"}},
		"after the reply":  {point: "reply", prepare: func(*outside) {}, effects: 1, states: []string{"unknown", "succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutside(t)
			d := deploy(t, o, touchManifest)
			p := d.serve()
			token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
			// The next connection is the dispatch's: previews have theirs.
			o.mu.Lock()
			c.prepare(o)
			o.mu.Unlock()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() { // its answer is lost with the process
				_, _ = d.agent.post(ctx, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
			}()
			for point := range o.reached {
				if point == c.point {
					break
				}
			}
			p.kill()
			o.mu.Lock()
			o.stall = false
			if o.hold != nil {
				close(o.hold)
				o.hold = nil
			}
			o.mu.Unlock()

			d.serve()
			op := d.settled(token)
			require.Contains(t, c.states, op["state"])
			if op["state"] == "succeeded" {
				require.Equal(t, "done_1", op["effect_id"])
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			require.Equal(t, c.effects, o.effects)
			require.LessOrEqual(t, o.requests, 1)
		})
	}
}

// TestServe_GracefulStop: a stop brings what is sent to its end (matrix row 42).
func TestServe_GracefulStop(t *testing.T) {
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	p := d.serve()
	token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
	o.mu.Lock()
	o.hold = make(chan struct{})
	o.mu.Unlock()
	done := make(chan answer, 1)
	go func() {
		got, _ := d.agent.post(context.Background(), "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
		done <- got
	}()
	require.Equal(t, "effect", <-o.reached)
	go func() {
		time.Sleep(200 * time.Millisecond)
		close(o.hold)
	}()
	p.stop()
	<-done
	d.serve()
	require.Equal(t, "succeeded", d.settled(token)["state"])
	require.Equal(t, 1, o.effects)
}

// TestServe_TLS: the page and API over TLS, with the Secure cookie rules that
// go with it.
func TestServe_TLS(t *testing.T) {
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	cert, key := selfSigned(t)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "cert.pem"), cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "key.pem"), key, 0o600))
	text, err := os.ReadFile(filepath.Join(d.dir, "countersign.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "countersign.yaml"), append(text, []byte("tls: {cert: cert.pem, key: key.pem}\n")...), 0o600))
	start(t, d.dir, nil, "serve")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed, on loopback
	url := strings.Replace(d.agent.url, "http://", "https://", 1)
	require.Eventually(t, func() bool {
		resp, err := client.Get(url + "/healthz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond)
}

// TestCut_SentOnce: the upstream takes the request and cuts the connection, a
// fresh one and a kept-alive one: one request received, unknown, and nothing
// more is sent for twice lease plus poll, save one retry under the same key where
// the upstream honours keys (matrix rows 2 and 36; Go's transport would repeat a
// keyed request on a dead connection by itself).
func TestCut_SentOnce(t *testing.T) {
	t.Parallel()
	for name, manifest := range map[string]string{
		"fresh connection":      touchManifest,
		"kept-alive connection": strings.Replace(touchManifest, "  json: {}\n", "  json: {}\n  honours_key: {header: Idempotency-Key, retention: 24h}\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, name == "kept-alive connection", strings.Contains(manifest, "honours_key"))
			o := newOutside(t)
			d := deploy(t, o, manifest)
			d.serve()
			// The first one leaves a connection behind where they are kept.
			warm := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})})
			require.Equal(t, "succeeded", warm.Body["state"], warm.Body)
			token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a2"})
			o.mu.Lock()
			o.cut = true
			o.mu.Unlock()
			got := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
			require.Equal(t, http.StatusAccepted, got.Status)
			require.Equal(t, "unknown", got.Body["state"])
			// time-out 2 s + margin 5 s make the lease, a poll is 1 s.
			time.Sleep(2 * (7 + 1) * time.Second)
			require.Equal(t, "unknown", d.settled(token)["state"])
			o.mu.Lock()
			defer o.mu.Unlock()
			require.Equal(t, map[bool]int{false: 2, true: 3}[strings.Contains(manifest, "honours_key")], o.requests)
			require.Equal(t, 2, o.effects)
		})
	}
}

// TestServe_TwoDoors: with a door for people, the other one has no page and
// takes no session.
func TestServe_TwoDoors(t *testing.T) {
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	people := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	text, err := os.ReadFile(filepath.Join(d.dir, "countersign.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "countersign.yaml"), append(text, []byte("people_listen: "+people+"\n")...), 0o600))
	d.serve()
	status := func(base, path string) int {
		resp, err := http.Get(base + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, status("http://"+people, "/sign-in"))
	require.Equal(t, http.StatusNotFound, status(d.agent.url, "/sign-in"))
	require.Equal(t, http.StatusUnauthorized, status(d.agent.url, "/v1/approvals"))
	require.NotEmpty(t, d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"}))
}
