package httptool_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

// FuzzReply: whatever bytes a peer answers with, one request is sent, and the
// outcome is success or a rejection only if another parser agrees that this was
// answered.
func FuzzReply(f *testing.F) {
	good := `{"id":"re_1"}`
	for _, h := range tooltest.HostileAnswers(200, []byte(good)) {
		if !h.Endless && !strings.HasPrefix(h.Name, "endless") && !strings.HasSuffix(h.Name, "flood") && h.Name != "gzip bomb" && !strings.HasPrefix(h.Name, "depth") {
			var b bytes.Buffer
			h.Answer(&b)
			f.Add(b.Bytes())
		}
	}
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + good,
		"HTTP/1.0 200 OK\n\n" + good,
		"HTTP/1.1 422 No\r\nContent-Length: 15\r\n\r\n{\"message\":\"x\"}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n" + good + "\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n" + good,
	} {
		f.Add([]byte(seed))
	}
	line := tooltest.NewLine(f, "http://127.0.0.1:1")
	client, err := httptool.Open(httptool.Upstream{Name: "shop", URL: line.URL, Allow: []httptool.Allowed{allow(f, line.Address())}})
	if err != nil {
		f.Fatal(err)
	}
	tool := compile(f, client, parse(f, keyed("post", false, "\n  json: {a: 1}")))
	plan := planOf(f, tool, "1")
	f.Fuzz(func(t *testing.T, answer []byte) {
		before := len(line.Received())
		line.Fail(tooltest.Fault{Answer: func(w io.Writer) { w.Write(answer) }})
		out := tool.Dispatch(context.Background(), plan, tools.Dispatch{Timeout: 10 * time.Second})
		if n := len(line.Received()) - before; n != 1 {
			t.Fatalf("%d requests", n)
		}
		switch out.Verdict {
		case tools.Unknown:
			if out.EffectID != "" || out.Because == "" {
				t.Fatalf("%+v", out)
			}
			return
		case tools.Succeeded, tools.NoEffect:
		default:
			t.Fatalf("%+v", out)
		}
		status, body := lastAnswer(t, answer)
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil {
			t.Fatalf("%q: %+v although the body is no JSON", answer, out)
		}
		if out.Verdict == tools.Succeeded && (status != 200 || out.EffectID == "") || out.Verdict == tools.NoEffect && status != 422 {
			t.Fatalf("%q: %+v", answer, out)
		}
	})
}

// lastAnswer reads the answer as another program would, past what is 1xx.
func lastAnswer(t *testing.T, raw []byte) (int, []byte) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(raw))
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			t.Fatalf("%q was taken for an answer: %v", raw, err)
		}
		if resp.StatusCode/100 == 1 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%q was taken for a whole answer: %v", raw, err)
		}
		return resp.StatusCode, body
	}
}

// BenchmarkDispatch is one write over loopback, with and without a connection of
// its own.
func BenchmarkDispatch(b *testing.B) {
	for name, honours := range map[string]bool{"fresh": false, "kept": true} {
		b.Run(name, func(b *testing.B) {
			client := upstream(b, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"id":"x"}`)
			})
			tool := compile(b, client, parse(b, keyed("post", honours, "\n  json: {a: 1}")))
			plan := planOf(b, tool, "1")
			for b.Loop() {
				if out := tool.Dispatch(context.Background(), plan, tools.Dispatch{}); out.Verdict != tools.Succeeded {
					b.Fatalf("%+v", out)
				}
			}
		})
	}
}
