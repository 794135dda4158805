package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// collected is an OpenTelemetry collector that keeps what it is sent.
type collected struct {
	server *httptest.Server
	mu     sync.Mutex
	all    []*spans.Span
	text   string
}

func newCollector(t *testing.T) *collected {
	c := &collected{}
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.text += prototext.Format(&sent)
		for _, source := range sent.ResourceSpans {
			for _, scope := range source.ScopeSpans {
				c.all = append(c.all, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.server.Close)
	return c
}

// of finds the spans of one trace by name.
func (c *collected) of(trace, name string) (found []*spans.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		if fmt.Sprintf("%x", s.TraceId) == trace && s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attribute(s *spans.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// traced sends a call as an agent that is traced.
func (a agentClient) traced(ctx context.Context, t *testing.T, trace, path string, body any) (answer, error) {
	t.Helper()
	b, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(b))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got := answer{Status: resp.StatusCode}
	return got, json.NewDecoder(resp.Body).Decode(&got.Body)
}

const noted = "\n  properties: {id: {type: string, pattern: \"^[a-z0-9]+$\"}, note: {type: string, x-sensitive: true}}\n"

// TestServe_Measures: metrics on a door of their own, spans at a collector, a
// line for each transition; a lost reply of the tool and a lost reply to the
// agent told apart (R137); and no secret in any of them.
func TestServe_Measures(t *testing.T) {
	t.Parallel()
	const (
		secret      = "planted-account-number"
		lostByTool  = "11111111111111111111111111111111"
		lostByAgent = "22222222222222222222222222222222"
	)
	o, c := newOutside(t), newCollector(t)
	manifest := strings.Replace(touchManifest, "\n  properties: {id: {type: string, pattern: \"^[a-z0-9]+$\"}}\n", noted, 1)
	require.Contains(t, manifest, "x-sensitive")
	manifest = strings.Replace(manifest, "timeout: 2s", "timeout: 60s", 1) // the test ends what it holds
	d := deploy(t, o, manifest)
	config := filepath.Join(d.dir, "countersign.yaml")
	file, err := os.ReadFile(config)
	require.NoError(t, err)
	metrics := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	file = append(file, fmt.Sprintf("metrics_listen: %s\ntelemetry: {otlp_endpoint: %q}\n", metrics, c.server.URL)...)
	require.NoError(t, os.WriteFile(config, file, 0o600))
	p := d.serve()

	preview := func(id string) string {
		return d.agent.preview(t, "touch_thing", map[string]any{"id": id, "note": secret})
	}
	first := preview("a1")
	o.mu.Lock()
	o.cut = true
	o.mu.Unlock()
	got, err := d.agent.traced(context.Background(), t, lostByTool, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": first})
	require.NoError(t, err)
	require.Equal(t, "unknown", got.Body["state"], got.Body)
	require.Equal(t, "effect", <-o.reached)

	second := preview("a2")
	o.mu.Lock()
	o.cut, o.hold = false, make(chan struct{})
	release := sync.OnceFunc(func() { close(o.hold) })
	t.Cleanup(release)
	o.mu.Unlock()
	ctx, hangUp := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := d.agent.traced(ctx, t, lostByAgent, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": second})
		gone <- err
	}()
	require.Equal(t, "effect", <-o.reached)
	hangUp()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.Eventually(t, func() bool { // it has seen that nobody is there to be answered
		return strings.Count(p.out.String(), `"route":"/v1/tools/{tool}/commit"`) == 2
	}, 30*time.Second, 10*time.Millisecond)
	release()
	require.Equal(t, "succeeded", d.settled(second)["state"])
	got = d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": "no.such." + secret})
	require.Equal(t, http.StatusUnauthorized, got.Status)

	page := func(url string) (int, string) {
		resp, err := http.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	status, series := page("http://" + metrics + "/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`countersign_operations{state="succeeded",tenant="default"} 1`, `countersign_operations{state="unknown",tenant="default"} 1`,
		`countersign_duplicate_effect_rate{tenant="default"} 0`, `countersign_confirmed_effect_keys{tenant="default"} 1`,
		`countersign_reconciliations_entered{tenant="default"} 1`, `countersign_unknown_state_age_seconds{tenant="default"} `,
		`countersign_transitions_total{from="none",to="running",tool="touch_thing",verb="open"} 2`,
		`countersign_token_refusals_total{code="token_invalid"} 1`, `countersign_problems_total{code="token_invalid",route="commitTool"} 1`,
		`countersign_previews_total{tool="touch_thing"} 2`, `countersign_dispatch_duration_seconds_count{tool="touch_thing",verdict="unknown"} 1`,
		"countersign_store_up 1",
	} {
		require.Contains(t, series, line)
	}
	status, _ = page(d.agent.url + "/metrics")
	require.NotEqual(t, http.StatusOK, status, "agents have no metrics")
	p.stop() // the last spans are sent

	one := func(trace, name string) *spans.Span {
		t.Helper()
		found := c.of(trace, name)
		require.Len(t, found, 1, "%s in %s\n%s", name, trace, p.out)
		return found[0]
	}
	const failed = spans.Status_STATUS_CODE_ERROR
	require.Equal(t, failed, one(lostByTool, "tool.dispatch").Status.GetCode())
	require.NotEqual(t, failed, one(lostByTool, "reply.returned").Status.GetCode())
	require.NotEqual(t, failed, one(lostByAgent, "tool.dispatch").Status.GetCode())
	require.Equal(t, failed, one(lostByAgent, "reply.returned").Status.GetCode())
	require.Equal(t, "done_2", attribute(one(lostByAgent, "tool.dispatch"), "effect_id"))
	for _, trace := range []string{lostByTool, lostByAgent} {
		request := one(trace, "POST /v1/tools/{tool}/commit")
		require.Equal(t, "00f067aa0ba902b7", fmt.Sprintf("%x", request.ParentSpanId))
		require.Equal(t, request.SpanId, one(trace, "reply.returned").ParentSpanId)
		require.Equal(t, request.SpanId, one(trace, "tool.dispatch").ParentSpanId)
		require.Equal(t, "none>running by open", attribute(one(trace, "operation.open"), "state_transition"))
	}
	require.Equal(t, "touch/a1", attribute(one(lostByTool, "operation.finish"), "idempotency_key"))

	lines := 0
	for line := range strings.Lines(p.out.String()) {
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) != nil || l["msg"] != "transition" {
			continue
		}
		lines++
		require.Contains(t, []any{lostByTool, lostByAgent}, l["trace_id"], line)
		for _, field := range []string{"idempotency_key", "effect_id", "state_transition", "request_id", "attempt", "evidence_boundary"} {
			require.Contains(t, l, field, line)
		}
	}
	require.GreaterOrEqual(t, lines, 4, p.out.String())
	for where, text := range map[string]string{"log": p.out.String(), "series": series, "spans": c.text} {
		for _, hidden := range []string{secret, first, second, d.agent.key} {
			require.NotContains(t, text, hidden, where)
		}
	}
}

// TestServe_MetricsTaken: a door that is taken is said before anything is
// answered.
func TestServe_MetricsTaken(t *testing.T) {
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	config := filepath.Join(d.dir, "countersign.yaml")
	file, err := os.ReadFile(config)
	require.NoError(t, err)
	taken := strings.TrimPrefix(o.server.URL, "https://")
	require.NoError(t, os.WriteFile(config, append(file, []byte("metrics_listen: "+taken+"\n")...), 0o600))
	p := start(t, d.dir, nil, "serve")
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("it runs:\n%s", p.out)
	}
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.out.String(), "metrics_listen: ")
	require.Contains(t, p.out.String(), "in use")
}
