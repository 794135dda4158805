package httptool_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

// S34: what goes over the wire is a function of the plan, byte for byte.
func TestDispatch_bytesOnTheWire(t *testing.T) {
	captured := make(chan string, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buffer := make([]byte, 64<<10)
		var got []byte
		for !bytes.Contains(got, []byte(`"amount":5`)) {
			n, err := conn.Read(buffer)
			if err != nil {
				break
			}
			got = append(got, buffer[:n]...)
		}
		captured <- string(got)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"id\":\"x\"}")
	}()
	client := open(t, httptool.Upstream{
		URL: "http://" + ln.Addr().String() + "/base", Allow: []httptool.Allowed{allow(t, ln.Addr().String())},
		Auth: &httptool.Credential{Bearer: secret("key-1")},
	})
	tool := compile(t, client, parse(t, keyed("post", true, `
  query: {q: "a b"}
  headers: {X-Note: "for ${args.id}"}
  json: {z: "${args.id}", amount: 5}`)))
	plan := planOf(t, tool, "7")
	require.Equal(t, "POST http://"+ln.Addr().String()+"/base/do?q=a+b", plan.Target)
	out := tool.Dispatch(context.Background(), plan, tools.Dispatch{})
	require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
	want := strings.ReplaceAll("POST /base/do?q=a+b HTTP/1.1\nHost: "+ln.Addr().String()+`
User-Agent: countersign
Content-Length: 20
Accept: application/json
Authorization: Bearer key-1
Content-Type: application/json
Idempotency-Key: up-7
X-Note: for 7

`, "\n", "\r\n") + `{"amount":5,"z":"7"}`
	got := <-captured
	require.Equal(t, want, got)
	require.Equal(t, int64(len(want)), out.Seen.SentBytes)
}

// Trap 1: net/http sends a request that carries an Idempotency-Key again when a
// kept connection dies after the request was taken. The first half shows that
// the trap is there, the second that we do not fall into it: with and without a
// body, with and without key support, with every method (matrix row 36).
func TestDispatch_idempotencyKeyTrap(t *testing.T) {
	t.Run("net/http falls into it", func(t *testing.T) {
		var n atomic.Int64
		server := cutsSecond(t, &n)
		for _, path := range []string{"/1", "/2"} {
			req, err := http.NewRequest(http.MethodPost, server+path, strings.NewReader("{}"))
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", "k")
			resp, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		require.Equal(t, int64(3), n.Load(), "the second request was sent twice, in silence")
	})
	for _, method := range []string{"post", "put", "patch", "delete"} {
		for _, honours := range []bool{true, false} {
			for _, body := range []string{"", "\n  json: {a: 1}", "\n  headers: {X-Idempotency-Key: k}", "\n  form: {a: b}\n  headers: {X-Idempotency-Key: k}"} {
				name := fmt.Sprintf("%s, honours %v,%s", method, honours, body)
				t.Run(name, func(t *testing.T) {
					var n atomic.Int64
					url := cutsSecond(t, &n)
					client := open(t, httptool.Upstream{URL: url, Allow: []httptool.Allowed{allow(t, strings.TrimPrefix(url, "http://"))}})
					tool := compile(t, client, parse(t, keyed(method, honours, body)))
					first := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
					require.Equal(t, tools.Succeeded, first.Verdict, "%+v", first)
					second := tool.Dispatch(context.Background(), planOf(t, tool, "2"), tools.Dispatch{})
					require.Equal(t, tools.Unknown, second.Verdict, "%+v", second)
					require.Equal(t, int64(2), n.Load(), "one request for each dispatch")
				})
			}
		}
	}
}

// cutsSecond is a server that answers the first request, keeps the connection,
// takes the second and closes without an answer; later ones are answered.
func cutsSecond(t *testing.T, n *atomic.Int64) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if n.Add(1) == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"x"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A tool without keys has a connection of its own for every request; one with
// keys and a body uses connections again.
func TestDispatch_connections(t *testing.T) {
	for _, tt := range []struct {
		honours bool
		body    string
		want    int
	}{{false, "\n  json: {a: 1}", 3}, {true, "\n  json: {a: 1}", 1}, {true, "", 3}} {
		var mu sync.Mutex
		remote := map[string]bool{}
		client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			remote[r.RemoteAddr] = true
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"id":"x"}`)
		})
		tool := compile(t, client, parse(t, keyed("post", tt.honours, tt.body)))
		for i := range 3 {
			require.Equal(t, tools.Succeeded, tool.Dispatch(context.Background(), planOf(t, tool, fmt.Sprint(i)), tools.Dispatch{}).Verdict)
		}
		require.Len(t, remote, tt.want, "%+v", tt)
	}
}

// Trap 2: a redirect is never followed, neither here nor to another host (matrix row
// 37).
func TestDispatch_redirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var n atomic.Int64
		client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			http.Redirect(w, r, other.URL, status)
		}, func(up *httptool.Upstream) {
			up.Allow = append(up.Allow, allow(t, other.Listener.Addr().String()))
			up.Auth = &httptool.Credential{Header: &httptool.SecretHeader{Name: "X-Api-Key", Value: secret("k-123456")}}
		})
		tool := compile(t, client, parse(t, keyed("post", true, "\n  json: {a: 1}")))
		out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
		require.Equal(t, tools.Unknown, out.Verdict)
		require.Equal(t, int64(1), n.Load())
	}
	require.Zero(t, elsewhere.Load())
}

// Late wakers: the clocks are read just before the first byte (matrix row 20).
func TestDispatch_deadline(t *testing.T) {
	start := time.Now()
	for name, tt := range map[string]struct {
		deadline time.Time
		// now is what the clock says at the n-th look.
		now  func(n int) time.Time
		sent bool
	}{
		"in time":             {start.Add(time.Minute), func(int) time.Time { return start }, true},
		"no deadline":         {time.Time{}, func(int) time.Time { return start }, true},
		"late from the start": {start.Add(-time.Nanosecond), func(int) time.Time { return start }, false},
		"woke late":           {start.Add(time.Minute), func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }, false},
		"wall clock from a store": {start.Add(time.Minute).Round(0), func(n int) time.Time {
			return start.Add(time.Duration(n) * time.Hour)
		}, false},
		"the machine slept: only the wall clock went on": {start.Add(time.Minute), func(n int) time.Time {
			return start.Round(0).Add(time.Duration(n) * time.Hour)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			client := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"id":"x"}`)
			})
			tool := compile(t, client, parse(t, keyed("post", false, "")))
			plan := planOf(t, tool, "1")
			var looks atomic.Int64
			slow := upstreamAt(t, client, func() time.Time { return tt.now(int(looks.Add(1) - 1)) })
			late := compile(t, slow, parse(t, keyed("post", false, "")))
			out := late.Dispatch(context.Background(), plan, tools.Dispatch{Deadline: tt.deadline, Timeout: 5 * time.Second})
			if tt.sent {
				require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
				return
			}
			require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
			require.Contains(t, out.Because, "deadline")
			require.Zero(t, out.Seen.SentBytes)
			require.Zero(t, requests.Load())
		})
	}
}

// upstreamAt is another client for the same upstream with another clock.
func upstreamAt(t *testing.T, c *httptool.Client, now func() time.Time) *httptool.Client {
	t.Helper()
	return open(t, httptool.Upstream{
		URL: c.URL(), Now: now,
		Allow: []httptool.Allowed{allow(t, strings.TrimPrefix(c.URL(), "http://"))},
	})
}

func TestDispatch_notThisPlan(t *testing.T) {
	client := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	tool := compile(t, client, parse(t, keyed("post", false, "")))
	good := planOf(t, tool, "1")
	for name, change := range map[string]func(*tools.Plan){
		"another host":   func(p *tools.Plan) { p.Wire = bytes.Replace(p.Wire, []byte("127.0.0.1"), []byte("127.0.0.2"), 1) },
		"another port":   func(p *tools.Plan) { p.Wire = bytes.Replace(p.Wire, []byte("/do"), []byte("0/do"), 1) },
		"user in front":  func(p *tools.Plan) { p.Wire = bytes.Replace(p.Wire, []byte("http://"), []byte("http://x@"), 1) },
		"not a wire":     func(p *tools.Plan) { p.Wire = []byte(`[]`) },
		"other encoding": func(p *tools.Plan) { p.Wire = bytes.Replace(p.Wire, []byte(`"encoding":1`), []byte(`"encoding":2`), 1) },
		"empty":          func(p *tools.Plan) { p.Wire = nil },
		"bad base64": func(p *tools.Plan) {
			p.Wire = bytes.Replace(p.Wire, []byte(`"encoding":1`), []byte(`"encoding":1,"body_base64":"!"`), 1)
		},
		"bad method": func(p *tools.Plan) { p.Wire = bytes.Replace(p.Wire, []byte(`"POST"`), []byte(`"PO ST"`), 1) },
	} {
		plan := good
		plan.Wire = append([]byte(nil), good.Wire...)
		change(&plan)
		require.NotEqual(t, string(good.Wire), string(plan.Wire), name)
		out := tool.Dispatch(context.Background(), plan, tools.Dispatch{})
		require.Equal(t, tools.NotSent, out.Verdict, name)
		require.NotEmpty(t, out.Because)
	}
}

// A peer that accepts and closes is not a refused connection: the request may
// have been read.
func TestDispatch_acceptedAndClosed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			io.ReadFull(conn, make([]byte, 1)) // one byte is enough to be in doubt
			conn.Close()
		}
	}()
	client := open(t, httptool.Upstream{URL: "http://" + ln.Addr().String(), Allow: []httptool.Allowed{allow(t, ln.Addr().String())}})
	tool := compile(t, client, parse(t, keyed("post", false, "\n  json: {a: 1}")))
	out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{Timeout: 5 * time.Second})
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Positive(t, out.Seen.SentBytes)
}

func TestDispatch_timeout(t *testing.T) {
	hold := make(chan struct{})
	var n atomic.Int64
	client := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		n.Add(1)
		<-hold
	})
	defer close(hold)
	tool := compile(t, client, parse(t, keyed("post", false, "\n  json: {a: 1}")))
	out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{Timeout: 300 * time.Millisecond})
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Contains(t, out.Because, "in time")
	require.LessOrEqual(t, n.Load(), int64(1))
}

// TLS: trust decides before anything of the request is written, and the bytes of
// a handshake are no bytes of the request.
func TestDispatch_TLS(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && n.Add(1) == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"x"}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	up := httptool.Upstream{URL: server.URL, Allow: []httptool.Allowed{allow(t, server.Listener.Addr().String())}}

	stranger := compile(t, open(t, up), parse(t, keyed("post", false, "")))
	out := stranger.Dispatch(context.Background(), planOf(t, stranger, "1"), tools.Dispatch{})
	require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
	require.Contains(t, out.Because, "not trusted")
	require.Zero(t, n.Load())

	up.RootCAs = pool
	tool := compile(t, open(t, up), parse(t, keyed("post", false, "\n  json: {a: 1}")))
	out = tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
	require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
	require.Less(t, out.Seen.SentBytes, int64(400), "the handshake is not counted")
	out = tool.Dispatch(context.Background(), planOf(t, tool, "2"), tools.Dispatch{})
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Equal(t, int64(2), n.Load())
}

// A client certificate is shown where the upstream asks for one.
func TestDispatch_clientCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"%d certificate"}`, len(r.TLS.PeerCertificates))
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	up := httptool.Upstream{URL: server.URL, RootCAs: pool, Allow: []httptool.Allowed{allow(t, server.Listener.Addr().String())}}
	up.Certificates = server.TLS.Certificates
	tool := compile(t, open(t, up), parse(t, keyed("post", false, "")))
	out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
	require.Equal(t, "1 certificate", out.EffectID, "%+v", out)
}

func TestDispatch_TLSTooOld(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("something was sent") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	client := open(t, httptool.Upstream{URL: server.URL, RootCAs: pool, Allow: []httptool.Allowed{allow(t, server.Listener.Addr().String())}})
	tool := compile(t, client, parse(t, keyed("post", false, "")))
	out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
	require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
}

// A peer that hangs up in the middle of the handshake got nothing of the request.
func TestDispatch_handshakeCut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 100))
			conn.Close()
		}
	}()
	client := open(t, httptool.Upstream{URL: "https://" + ln.Addr().String(), Allow: []httptool.Allowed{allow(t, ln.Addr().String())}})
	tool := compile(t, client, parse(t, keyed("post", false, "")))
	out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{Timeout: 5 * time.Second})
	require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
	require.Zero(t, out.Seen.SentBytes)
}

// Many dispatches of many plans at once: as many requests, no mix-up of answers.
func TestDispatch_parallel(t *testing.T) {
	for _, honours := range []bool{true, false} {
		var n atomic.Int64
		client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":%q}`, string(body))
		})
		tool := compile(t, client, parse(t, keyed("post", honours, `
  json: {a: "${args.id}"}`)))
		var wait sync.WaitGroup
		for i := range 40 {
			wait.Go(func() {
				id := fmt.Sprint(i)
				out := tool.Dispatch(context.Background(), planOf(t, tool, id), tools.Dispatch{Timeout: 20 * time.Second})
				if out.Verdict != tools.Succeeded || out.EffectID != `{"a":"`+id+`"}` {
					t.Errorf("%d: %+v", i, out)
				}
			})
		}
		wait.Wait()
		require.Equal(t, int64(40), n.Load())
	}
}

// A connection that idles until its peer has closed it: whatever is found out
// first, the request is sent at most once and never said to be unsent when it was.
func TestDispatch_idleConnectionDied(t *testing.T) {
	line := tooltest.NewLine(t, "http://127.0.0.1:1")
	client := open(t, httptool.Upstream{URL: line.URL, Allow: []httptool.Allowed{allow(t, line.Address())}})
	tool := compile(t, client, parse(t, keyed("post", true, "\n  json: {a: 1}")))
	answer := func(w io.Writer) {
		io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"id\":\"x\"}")
	}
	for i := range 20 {
		// The line answers and closes, although it did not say so.
		line.Fail(tooltest.Fault{Answer: answer})
		before := len(line.Received())
		out := tool.Dispatch(context.Background(), planOf(t, tool, fmt.Sprint(i)), tools.Dispatch{Timeout: 5 * time.Second})
		received := len(line.Received()) - before
		switch out.Verdict {
		case tools.Succeeded:
			require.Equal(t, 1, received)
		case tools.NotSent, tools.Unknown:
			require.LessOrEqual(t, received, 1)
			if received == 1 {
				require.Equal(t, tools.Unknown, out.Verdict)
			}
		default:
			t.Fatalf("%+v", out)
		}
	}
}
