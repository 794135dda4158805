package httptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

func get(path string) tools.Request {
	return tools.Request{Method: "GET", Path: path, EffectFree: true}
}

// slept records the pauses between tries and moves the clock.
type slept struct {
	now    time.Time
	pauses []time.Duration
}

func (s *slept) set(up *httptool.Upstream) {
	s.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	up.Now = func() time.Time { return s.now }
	up.Rand = func() float64 { return 0.5 }
	up.Sleep = func(_ context.Context, d time.Duration) error {
		s.pauses = append(s.pauses, d)
		s.now = s.now.Add(d)
		return nil
	}
}

func TestRead_repeatsWhileBusy(t *testing.T) {
	for _, status := range []int{429, 502, 503, 504} {
		var n atomic.Int64
		var s slept
		client := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) < 5 {
				w.WriteHeader(status)
				return
			}
			io.WriteString(w, `{"n":1}`)
		}, s.set)
		reply, x, err := client.ReadRaw(context.Background(), get("/x"))
		require.NoError(t, err)
		require.Equal(t, 200, reply.Status)
		require.Equal(t, 200, x.Status)
		require.Equal(t, int64(5), n.Load())
		require.Equal(t, []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 4 * time.Second}, s.pauses, "1, 2, 4, 8 s with full jitter")
	}
}

func TestRead_givesUp(t *testing.T) {
	var n atomic.Int64
	var s slept
	client := upstream(t, func(w http.ResponseWriter, _ *http.Request) { n.Add(1); w.WriteHeader(503) }, s.set)
	reply, _, err := client.ReadRaw(context.Background(), get("/x"))
	require.NoError(t, err, "the answer is what it is")
	require.Equal(t, 503, reply.Status)
	require.Equal(t, int64(5), n.Load())
}

func TestRead_budget(t *testing.T) {
	var n atomic.Int64
	var s slept
	client := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", "45")
		w.WriteHeader(503)
	}, s.set)
	_, _, err := client.ReadRaw(context.Background(), get("/x"))
	require.NoError(t, err)
	require.Equal(t, []time.Duration{45 * time.Second}, s.pauses, "Retry-After is honoured inside the budget of a minute, and not beyond")
	require.Equal(t, int64(2), n.Load())
}

func TestRead_otherAnswersAreNotRepeated(t *testing.T) {
	for _, status := range []int{200, 201, 301, 302, 307, 308, 400, 404, 408, 409, 500, 501} {
		var n atomic.Int64
		client := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		})
		reply, _, err := client.ReadRaw(context.Background(), get("/x"))
		require.NoError(t, err)
		require.Equal(t, status, reply.Status)
		require.Equal(t, int64(1), n.Load(), "redirects are not followed")
	}
}

func TestRead_connectionErrors(t *testing.T) {
	var s slept
	line := tooltest.NewLine(t, "http://127.0.0.1:1")
	up := httptool.Upstream{URL: line.URL, Allow: []httptool.Allowed{allow(t, line.Address())}}
	s.set(&up)
	client := open(t, up)
	line.Refuse()
	_, x, err := client.ReadRaw(context.Background(), get("/x"))
	require.True(t, fault.Is(err, fault.UpstreamUnexpected), "%v", err)
	require.Len(t, s.pauses, 4)
	require.NotContains(t, fault.Of(err).Detail, "127.0.0.1")
	require.NotContains(t, x.Error, "127.0.0.1")
	line.Restore()

	line.FailReads(tooltest.Fault{}, tooltest.Fault{Answer: func(w io.Writer) { io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"n\":1}") }})
	reply, _, err := client.ReadRaw(context.Background(), get("/x"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"n": json.Number("1")}, reply.Body)
}

func TestRead_timeout(t *testing.T) {
	hold := make(chan struct{})
	var n atomic.Int64
	client := upstream(t, func(http.ResponseWriter, *http.Request) { n.Add(1); <-hold }, func(up *httptool.Upstream) {
		up.Limits.ReadTries = 1
	})
	defer close(hold)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, _, err := client.ReadRaw(ctx, get("/x"))
	require.True(t, fault.Is(err, fault.UpstreamTimeout), "%v", err)
}

// Answers of every hostile kind: a read fails or is unreadable, within limits.
func TestRead_hostileAnswers(t *testing.T) {
	line := tooltest.NewLine(t, "http://127.0.0.1:1")
	client := open(t, httptool.Upstream{URL: line.URL, Allow: []httptool.Allowed{allow(t, line.Address())}, Limits: httptool.Limits{ReadTries: 1}})
	m := parse(t, withRead)
	for _, h := range tooltest.HostileAnswers(200, []byte(`{"n":1,"id":"x"}`)) {
		t.Run(h.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if h.Endless {
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			line.FailReads(tooltest.Fault{Answer: h.Answer})
			reply, x, err := client.ReadRaw(ctx, get("/x"))
			if err == nil {
				err = m.AcceptRead("thing", reply)
			}
			if err == nil {
				// What can be read as JSON is caught by the expressions.
				call := tools.Call{Args: map[string]any{"id": "1"}}
				_, _, err = m.Plan(call, map[string]tools.Reply{"thing": reply})
			}
			require.True(t, fault.Is(err, fault.UpstreamUnexpected) || fault.Is(err, fault.UpstreamTimeout), "%v", err)
			require.LessOrEqual(t, len(x.Excerpt), 2<<10)
			require.LessOrEqual(t, x.BodyBytes, int64(1<<20))
		})
	}
}

func TestRead_bodies(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, body string
		want       any
		unreadable bool
	}{
		"JSON":               {"application/json", `{"a":[1.50,null]}`, map[string]any{"a": []any{json.Number("1.50"), nil}}, false},
		"JSON with charset":  {"application/json; charset=UTF-8", `5`, json.Number("5"), false},
		"problem":            {"application/problem+json", `{"a":1}`, map[string]any{"a": json.Number("1")}, false},
		"no type":            {"", `{"a":1}`, map[string]any{"a": json.Number("1")}, false},
		"text":               {"text/plain", "hello\n", "hello\n", false},
		"text, not UTF-8":    {"text/plain", "\xff", nil, true},
		"HTML":               {"text/html", "<html>", nil, true},
		"XML":                {"application/xml", "<a/>", nil, true},
		"latin":              {"application/json; charset=iso-8859-1", `{"a":1}`, nil, true},
		"duplicate":          {"application/json", `{"a":1,"a":2}`, nil, true},
		"duplicate, escaped": {"application/json", `{"a":1,"\u0061":2}`, nil, true},
		"deep":               {"application/json", strings.Repeat("[", 33) + strings.Repeat("]", 33), nil, true},
		"unsafe number":      {"application/json", `{"a":9007199254740993}`, nil, true},
		"lone surrogate":     {"application/json", `"\ud800"`, nil, true},
		"two values":         {"application/json", `{}{}`, nil, true},
		"empty":              {"application/json", ``, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if tt.kind != "" {
					w.Header().Set("Content-Type", tt.kind)
				}
				io.WriteString(w, tt.body)
			})
			reply, x, err := client.ReadRaw(context.Background(), get("/x"))
			require.NoError(t, err)
			require.Equal(t, tt.want, reply.Body)
			require.Equal(t, tt.unreadable, reply.Unreadable != "", reply.Unreadable)
			require.Equal(t, int64(len(tt.body)), x.BodyBytes)
		})
	}
}

// A body that ends with the connection is believed only where it shows its end.
func TestRead_bodyWithoutLength(t *testing.T) {
	line := tooltest.NewLine(t, "http://127.0.0.1:1")
	client := open(t, httptool.Upstream{URL: line.URL, Allow: []httptool.Allowed{allow(t, line.Address())}})
	for body, readable := range map[string]bool{
		"application/json\r\n\r\n{\"n\":1}": true, "application/json\r\n\r\n[1]": true, "application/json\r\n\r\n12": false, "text/plain\r\n\r\nhello": false,
	} {
		line.FailReads(tooltest.Fault{Answer: func(w io.Writer) { io.WriteString(w, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "+body) }})
		reply, _, err := client.ReadRaw(context.Background(), get("/x"))
		require.NoError(t, err)
		require.Equal(t, readable, reply.Unreadable == "", "%q: %s", body, reply.Unreadable)
	}
}

// What an upstream sets for itself is neither kept nor sent back.
func TestRead_noCookiesNoCompression(t *testing.T) {
	var seen []http.Header
	client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Clone())
		w.Header().Set("Set-Cookie", "session=abc")
		w.Header().Set("X-Request-Id", "req-7")
		io.WriteString(w, `{}`)
	})
	for range 2 {
		reply, x, err := client.ReadRaw(context.Background(), get("/x"))
		require.NoError(t, err)
		require.NotContains(t, reply.Headers, "set-cookie")
		require.NotContains(t, fmt.Sprint(x), "session=abc")
		require.Equal(t, "req-7", x.Headers["x-request-id"])
	}
	for _, h := range seen {
		require.Empty(t, h.Get("Cookie"))
		require.Empty(t, h.Get("Accept-Encoding"))
		require.Equal(t, "countersign", h.Get("User-Agent"))
		require.Equal(t, "application/json", h.Get("Accept"))
	}
}

func TestConnector_guard(t *testing.T) {
	var n, ids atomic.Value
	n.Store(`{"n":1}`)
	ids.Store(`{"ids":[]}`)
	client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/things/") {
			io.WriteString(w, n.Load().(string))
			return
		}
		io.WriteString(w, ids.Load().(string))
	}, func(up *httptool.Upstream) { up.Limits.ReadTries = 1 })
	tool := compile(t, client, parse(t, withRead))
	plan := planOf(t, tool, "7")

	g, err := tool.Guard(context.Background(), plan)
	require.NoError(t, err)
	require.Nil(t, g.Done)
	require.Empty(t, g.Drift)

	n.Store(`{"n":2}`)
	g, err = tool.Guard(context.Background(), plan)
	require.NoError(t, err)
	require.Equal(t, []tools.Drift{{Field: "reads.thing.body.n", Was: json.Number("1"), Now: json.Number("2")}}, g.Drift)

	ids.Store(`{"ids":["x7"]}`)
	g, err = tool.Guard(context.Background(), plan)
	require.NoError(t, err)
	require.Equal(t, "x7", g.Done.EffectID)
	require.Equal(t, 200, g.Done.Seen.Status)

	for _, unclear := range []string{`{"ids":["a","b"]}`, `{"ids":null}`, `{}`, `<html>`} {
		ids.Store(unclear)
		_, err = tool.Guard(context.Background(), plan)
		require.True(t, fault.Is(err, fault.UpstreamUnexpected), "%s: %v", unclear, err)
	}
	ids.Store(`{"ids":[]}`)
	n.Store(`{}`)
	_, err = tool.Guard(context.Background(), plan)
	require.True(t, fault.Is(err, fault.UpstreamUnexpected), "a basis that can't be read sends nothing")
}

func TestConnector_readTool(t *testing.T) {
	client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q}`, r.URL.RequestURI())
	})
	tool := compile(t, client, parse(t, `
tool: ask
access: read
upstream: shop
input: {required: [q], properties: {q: {type: string}}}
read: {get: "/find/${args.q}", query: {q: "${args.q}"}, result: "${body.path}"}
`))
	args, _, err := tool.CheckArgs(map[string]any{"q": "a/b&c"})
	require.NoError(t, err)
	got, err := tool.Read(context.Background(), tools.Call{Args: args})
	require.NoError(t, err)
	require.Equal(t, "/find/a%2Fb&c?q=a%2Fb%26c", got)
}

func TestCredentials(t *testing.T) {
	var seen []http.Header
	handler := func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Clone())
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"n":1,"id":"x","ids":[]}`)
	}
	password := "first"
	rotating := func() (string, error) { return password + "\n", nil }
	client := upstream(t, handler, func(up *httptool.Upstream) {
		up.Auth = &httptool.Credential{Basic: &httptool.Basic{User: "gateway", Password: rotating}}
		up.ReadAuth = &httptool.Credential{Header: &httptool.SecretHeader{Name: "X-Api-Key", Value: secret("read-only-key")}}
	})
	tool := compile(t, client, parse(t, withRead))
	plan := planOf(t, tool, "1")
	require.Equal(t, "read-only-key", seen[0].Get("X-Api-Key"))
	require.Empty(t, seen[0].Get("Authorization"), "the write credential stays out of previews")
	require.NotContains(t, string(plan.Wire), "read-only-key")

	for _, want := range []string{"Basic Z2F0ZXdheTpmaXJzdA==", "Basic Z2F0ZXdheTpzZWNvbmQ="} {
		out := tool.Dispatch(context.Background(), plan, tools.Dispatch{})
		require.Equal(t, tools.Succeeded, out.Verdict)
		last := seen[len(seen)-1]
		require.Equal(t, want, last.Get("Authorization"))
		require.Empty(t, last.Get("X-Api-Key"))
		password = "second" // the file was rotated
	}
}

// Before anything is opened, an object that is not there is the arguments' fault,
// of a preview and of a read; in a guard it is the outside system's.
func TestRead_noObject(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		accept string // what the manifest lists
		code   fault.Code
	}{
		"not found":           {status: 404, code: fault.ToolRefused},
		"gone":                {status: 410, code: fault.ToolRefused},
		"forbidden":           {status: 403, code: fault.UpstreamUnexpected},
		"broken":              {status: 500, code: fault.UpstreamUnexpected},
		"not found, accepted": {status: 404, accept: ", status: [200, 404]"},
	} {
		t.Run(name, func(t *testing.T) {
			status, reads := 200, 0
			client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == "/done" {
					io.WriteString(w, `{"ids":[]}`)
					return
				}
				reads++
				w.WriteHeader(status)
				io.WriteString(w, `{"n":1}`)
			})
			tool := compile(t, client, parse(t, strings.Replace(withRead, `"/things/${args.id}"`, `"/things/${args.id}"`+tt.accept, 1)))
			call := tools.Call{Args: map[string]any{"id": "ord 9\u202e" + strings.Repeat("x", 200)}, Key: tools.Key{Value: "k", Upstream: "u"}}
			plan, err := tool.Preview(context.Background(), call)
			require.NoError(t, err)

			status = tt.status
			_, err = tool.Preview(context.Background(), call)
			if tt.accept != "" {
				require.NoError(t, err, "expressions say what a listed status means")
				return
			}
			require.True(t, fault.Is(err, tt.code), "%v", err)
			if tt.code == fault.ToolRefused {
				detail := fault.Of(err).Detail
				require.Contains(t, detail, "The outside system has no such object: GET /things/ord%209%E2%80%AExxx")
				require.Contains(t, detail, fmt.Sprintf("… answered %d. Check the ids among the arguments.", status))
				require.NotContains(t, detail, "127.0.0.1")
				require.Less(t, len(detail), 300)
			}
			_, err = tool.Guard(context.Background(), plan)
			require.True(t, fault.Is(err, fault.UpstreamUnexpected), "%v", err)

			read := compile(t, client, parse(t, `
tool: look
access: read
upstream: shop
input: {required: [id], properties: {id: {type: string}}}
read: {get: "/things/${args.id}"}
`))
			_, err = read.Read(context.Background(), tools.Call{Args: map[string]any{"id": "9"}})
			require.True(t, fault.Is(err, tt.code), "%v", err)
			require.Equal(t, 4, reads, "asked once each")
		})
	}
}

// A credential that can't be read sends nothing, and an upstream that echoes one
// does not put it into the record.
func TestCredentials_neverStored(t *testing.T) {
	for name, broken := range map[string]httptool.Secret{
		"unreadable":  func() (string, error) { return "", errors.New("open /run/secret-path: no such file") },
		"empty":       secret(""),
		"two headers": secret("a\r\nX-Evil: 1"),
	} {
		client := upstream(t, func(w http.ResponseWriter, _ *http.Request) { t.Error("something was sent") }, func(up *httptool.Upstream) {
			up.Auth = &httptool.Credential{Bearer: broken}
		})
		tool := compile(t, client, parse(t, keyed("post", false, "")))
		out := tool.Dispatch(context.Background(), planOf(t, tool, "1"), tools.Dispatch{})
		require.Equal(t, tools.NotSent, out.Verdict, name)
		require.NotContains(t, fmt.Sprint(out), "secret-path")
		_, _, err := client.ReadRaw(context.Background(), get("/x"))
		require.True(t, fault.Is(err, fault.UpstreamUnexpected))
		require.Equal(t, "The gateway has no usable credential for the upstream shop; an operator must set it.", fault.Of(err).Detail)
		require.Equal(t, time.Minute, fault.Of(err).RetryAfter)
		require.ErrorContains(t, err, "the credential can't be used", "the log has the cause")
		require.NotContains(t, err.Error(), "X-Evil")
	}

	const token = "canary-token-0123456789"
	client := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(422)
		fmt.Fprintf(w, `{"message":%q}`, "bad token "+r.Header.Get("Authorization"))
	}, func(up *httptool.Upstream) { up.Auth = &httptool.Credential{Bearer: secret(token)} })
	tool := compile(t, client, parse(t, keyed("post", false, "")))
	plan := planOf(t, tool, "1")
	out := tool.Dispatch(context.Background(), plan, tools.Dispatch{})
	require.Equal(t, tools.NoEffect, out.Verdict)
	require.Contains(t, out.Because, "[secret]")
	require.NotContains(t, fmt.Sprint(out, plan), token)
}
