package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"countersign/api"
	"countersign/examples/shop"
	"countersign/fault"
	"countersign/ledger"
)

const (
	agentTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	agentParent = "00-" + agentTrace + "-00f067aa0ba902b7-01"
)

// watched is a rig whose requests are watched.
type watched struct {
	*rig
	spans    *tracetest.InMemoryExporter
	answered chan api.Answered
}

func newWatched(t *testing.T) *watched {
	w := &watched{rig: newRig(t), spans: tracetest.NewInMemoryExporter(), answered: make(chan api.Answered, 100)}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.config.Watch = api.Watch{
		Tracer: provider.Tracer("test"),
		Note: func(span trace.Span, op ledger.Operation) {
			span.SetAttributes(attribute.String("noted", op.ID), attribute.String("state", string(op.State)))
		},
		Fields:   func(op ledger.Operation) []slog.Attr { return []slog.Attr{slog.String("operation", op.ID)} },
		OnAnswer: func(a api.Answered) { w.answered <- a },
	}
	server, err := api.New(w.config)
	require.NoError(t, err)
	*w.api = *server
	return w
}

// seen gives the spans of the request that was answered last, once it has ended:
// the request's and its reply's.
func (w *watched) seen() (request, reply tracetest.SpanStub, a api.Answered) {
	w.t.Helper()
	a = <-w.answered
	var spans tracetest.SpanStubs
	require.Eventually(w.t, func() bool { spans = w.spans.GetSpans(); return len(spans) >= 2 }, 10*time.Second, time.Millisecond)
	w.spans.Reset()
	require.Len(w.t, spans, 2)
	require.Equal(w.t, "reply.returned", spans[0].Name)
	require.Equal(w.t, spans[1].SpanContext.SpanID(), spans[0].Parent.SpanID(), "the reply is a part of the request")
	return spans[1], spans[0], a
}

func said(s tracetest.SpanStub) map[attribute.Key]string {
	out := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		out[a.Key] = a.Value.String()
	}
	return out
}

// A request continues the agent's trace; it and its reply name the request, the
// operation and what was answered.
func TestWatch_Commit(t *testing.T) {
	w := newWatched(t)
	token := w.preview("ord_1001").str("commit_token")
	w.seen()
	a := w.want(w.spend("hold_order", w.clerk, token).with("Traceparent", agentParent).with("Request-Id", "req-of-mine"), 200, "")
	request, reply, answered := w.seen()
	require.Equal(t, "POST /v1/tools/{tool}/commit", request.Name)
	require.Equal(t, trace.SpanKindServer, request.SpanKind)
	require.Equal(t, agentTrace, request.SpanContext.TraceID().String())
	require.Equal(t, "00f067aa0ba902b7", request.Parent.SpanID().String())
	for _, s := range []tracetest.SpanStub{request, reply} {
		require.Equal(t, "req-of-mine", said(s)["request_id"])
		require.Equal(t, a.str("id"), said(s)["noted"])
		require.Equal(t, "succeeded", said(s)["state"])
		require.Equal(t, "200", said(s)["http.response.status_code"])
		require.Equal(t, otelcodes.Unset, s.Status.Code)
	}
	require.Equal(t, "/v1/tools/{tool}/commit", said(request)["http.route"])
	require.Equal(t, api.Answered{Route: "commitTool", Status: 200}, answered)
	line := ""
	for l := range strings.Lines(w.log.String()) {
		if strings.Contains(l, "req-of-mine") && strings.Contains(l, `"msg":"request"`) {
			line = l
		}
	}
	require.Contains(t, line, `"operation":"`+a.str("id")+`"`)
	for _, s := range []tracetest.SpanStub{request, reply} {
		for _, text := range said(s) {
			require.NotContains(t, text, token)
			require.NotContains(t, text, w.clerk)
		}
	}
}

// A preview opens nothing, and its line and spans say all the same what was called:
// tool, run, tool call and key, also where it is refused (R133, R134, R138).
func TestWatch_Preview(t *testing.T) {
	w := newWatched(t)
	line := func(id string) (found map[string]any) {
		for l := range strings.Lines(w.log.String()) {
			if strings.Contains(l, id) && strings.Contains(l, `"msg":"request"`) {
				require.NoError(t, json.Unmarshal([]byte(l), &found))
			}
		}
		return found
	}
	for id, c := range map[string]struct {
		call   call
		status int
		code   string
		key    string
	}{
		"req-good":    {post("/v1/tools/hold_order/preview", w.clerk, `{"args":{"order_id":"ord_1001"},"run":{"id":"r-7","step":"1","call":"c-9"}}`), 200, "", "hold/ord_1001"},
		"req-refused": {post("/v1/tools/hold_order/preview", w.clerk, `{"args":{"order_id":"ord_9999"},"run":{"id":"r-7","step":"2","call":"c-9"}}`), 422, "tool_refused", ""},
		"req-own-key": {post("/v1/tools/caller_hold/preview", w.clerk, `{"args":{"order_id":7},"run":{"id":"r-7","step":"3","call":"c-9"}}`).with("Idempotency-Key", "mine"), 422, "schema_violation", "mine"},
	} {
		w.want(c.call.with("Request-Id", id), c.status, c.code)
		request, reply, _ := w.seen()
		says := line(id)
		for name, want := range map[string]string{"run_id": "r-7", "tool_call_id": "c-9", "idempotency_key": c.key} {
			require.Equal(t, want, says[name], "%s %s", id, name)
			require.Equal(t, want, said(request)[attribute.Key(name)], "%s %s", id, name)
			require.Equal(t, want, said(reply)[attribute.Key(name)], "%s %s", id, name)
		}
		require.Contains(t, says["tool"], "hold")
	}
	w.want(post("/v1/tools/no_such_tool/preview", w.clerk, `{"args":{}}`).with("Request-Id", "req-none"), 404, "tool_not_found")
	request, _, _ := w.seen()
	require.NotContains(t, said(request), attribute.Key("tool"), "a name that the caller made up")
	require.NotContains(t, line("req-none"), "tool")
}

// A problem names its code, on the span, in the log line and to who counts; only
// what is the gateway's own fault is an error of the span.
func TestWatch_Problem(t *testing.T) {
	w := newWatched(t)
	w.want(w.spend("hold_order", w.clerk, "no.such.token"), 401, "token_invalid")
	request, reply, answered := w.seen()
	require.Equal(t, api.Answered{Route: "commitTool", Status: 401, Code: fault.TokenInvalid}, answered)
	require.Equal(t, "token_invalid", said(request)["problem_code"])
	require.Equal(t, otelcodes.Unset, request.Status.Code)
	require.Equal(t, otelcodes.Unset, reply.Status.Code)
	require.Contains(t, w.log.String(), `"code":"token_invalid"`)

	w.want(get("/v1/nowhere", w.clerk), 404, "not_found")
	request, _, answered = w.seen()
	require.Equal(t, api.Answered{Status: 404, Code: fault.NotFound}, answered)
	require.Equal(t, "GET", strings.Fields(request.Name)[0])
	require.NotContains(t, request.Name, "nowhere", "an address that the caller chose")
}

// Two parents are none, and what is no traceparent is none either.
func TestWatch_Parents(t *testing.T) {
	w := newWatched(t)
	for _, given := range [][]string{{agentParent, agentParent}, {"00-zz-zz-01"}, nil} {
		w.do(get("/v1/tools", w.clerk).with("Traceparent", given...))
		request, _, _ := w.seen()
		require.False(t, request.Parent.IsValid(), "%q", given)
		require.NotEqual(t, agentTrace, request.SpanContext.TraceID().String(), "%q", given)
	}
}

// Health has no spans: it is asked every second and says nothing of an operation.
func TestWatch_Health(t *testing.T) {
	w := newWatched(t)
	w.want(get("/healthz", ""), 200, "")
	require.Equal(t, api.Answered{Status: 200}, <-w.answered)
	require.Empty(t, w.spans.GetSpans())
}

// A caller who is gone before the reply: the request went well, and the span of
// its reply says that nobody took it (R137).
func TestWatch_CallerGone(t *testing.T) {
	w := newWatched(t)
	token := w.preview("ord_1001").str("commit_token")
	w.seen()
	w.shop.Set(shop.Switches{HoldMS: 2000})
	ctx, hangUp := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.URL+"/v1/tools/hold_order/commit?wait=60", strings.NewReader(asJSON(map[string]any{"commit_token": token})))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.clerk)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
		}
		gone <- err
	}()
	require.Eventually(t, func() bool { return w.shop.RequestCount() == 1 }, 10*time.Second, time.Millisecond)
	hangUp()
	require.ErrorIs(t, <-gone, context.Canceled)
	request, reply, _ := w.seen()
	require.Equal(t, otelcodes.Error, reply.Status.Code)
	require.Equal(t, "the caller was gone before the reply", reply.Status.Description)
	require.NotEmpty(t, said(reply)["noted"], "it says whose reply was lost")
	require.Equal(t, otelcodes.Unset, request.Status.Code)
}

// deaf is a connection that takes no answer.
type deaf struct {
	*httptest.ResponseRecorder
	panics bool
}

func (d deaf) Write([]byte) (int, error) {
	if d.panics {
		panic(http.ErrAbortHandler)
	}
	return 0, errors.New("broken pipe")
}

// A reply that can't be written, and a request that breaks off, end their spans
// with an error.
func TestWatch_Cut(t *testing.T) {
	w := newWatched(t)
	req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/v1/tools", nil)
	req.Header.Set("Authorization", "Bearer "+w.clerk)
	w.api.ServeHTTP(deaf{ResponseRecorder: httptest.NewRecorder()}, req)
	_, reply, _ := w.seen()
	require.Equal(t, otelcodes.Error, reply.Status.Code)
	require.Equal(t, "the reply could not be written whole", reply.Status.Description)

	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() {
		w.api.ServeHTTP(deaf{ResponseRecorder: httptest.NewRecorder(), panics: true}, req.Clone(context.Background()))
	})
	require.Len(t, w.spans.GetSpans(), 2, "both have ended")
}
