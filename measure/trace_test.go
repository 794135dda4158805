package measure_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"countersign/ledger"
	"countersign/measure"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// called is a context as the API makes it from an agent's traceparent.
func called(traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
}

// named finds the spans of one name.
func named(spans tracetest.SpanStubs, name string) (found tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// The agent's trace goes on from commit to dispatch, also when people agreed long
// after the agent's call had ended: nothing but the operation joins the two.
func TestTraces_DispatchAfterApproval(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("pay", tooltest.WithApproval(tooltest.Approve("finance", 1))))
	op := r.do(called(traceparent), "pay", "o1")
	require.Equal(t, ledger.AwaitingApproval, op.State)
	require.Equal(t, traceparent, op.Trace)
	require.Empty(t, named(r.flush(), "tool.dispatch"))

	r.pass(20 * time.Minute)
	r.decide(op, "approve", "")
	r.pass(time.Second)
	r.work()
	spans := r.flush()
	sent := named(spans, "tool.dispatch")
	require.Len(t, sent, 1)
	for _, s := range spans {
		require.Equal(t, traceID, s.SpanContext.TraceID().String(), s.Name)
	}
	require.Equal(t, trace.SpanKindClient, sent[0].SpanKind)
	got := attributesOf(sent[0])
	require.Equal(t, "succeeded", got["verdict"])
	require.Equal(t, "eff_1", got["effect_id"])
	require.Equal(t, "pending>running by dispatch", got["state_transition"])
	require.Equal(t, "run_7", got["run_id"])
	require.Equal(t, "req_commit", got["request_id"])
	require.Equal(t, codes.Unset, sent[0].Status.Code)
	var moves []string
	for _, s := range spans {
		if move, ok := attributesOf(s)["state_transition"]; ok && s.Name != "tool.dispatch" {
			moves = append(moves, move.(string))
		}
	}
	require.Equal(t, []string{
		"none>awaiting_approval by open", "awaiting_approval>pending by approve", "pending>running by dispatch", "running>succeeded by finish",
	}, moves)
}

// The span of a dispatch lasts from its mark to the tool's answer, and its lost
// reply is an error (R137).
func TestTraces_LostReplyOfTheTool(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	marked := r.Now()
	lost := tooltest.LoseReply()
	lost.Do = func() { r.pass(7 * time.Second) }
	r.fakes["hold"].Script(lost)
	op := r.do(called(traceparent), "hold", "o1")
	require.Equal(t, ledger.Unknown, op.State)
	sent := named(r.flush(), "tool.dispatch")
	require.Len(t, sent, 1)
	require.True(t, marked.Equal(sent[0].StartTime), "%v %v", marked, sent[0].StartTime)
	require.Equal(t, 7*time.Second, sent[0].EndTime.Sub(sent[0].StartTime))
	require.Equal(t, codes.Error, sent[0].Status.Code)
	got := attributesOf(sent[0])
	require.Equal(t, "unknown", got["verdict"])
	require.Equal(t, "none>running by open", got["state_transition"])
	require.Equal(t, "", got["effect_id"], "mandatory, also while nobody knows it (R134)")
	require.EqualValues(t, 1, got["attempt"])
}

// A lookup is a span in the operation's trace, with the names under which the
// upstream's own log has the question.
func TestTraces_Lookup(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	op, _ := move{ledger.VerbFinish, ledger.Running, ledger.Unknown}.made(r.Now())
	_, seen := r.traces.Asking(context.Background(), op)
	r.pass(time.Second)
	seen(tools.Answer{Kind: tools.LookupFailed, Because: "the upstream's own words", Seen: tools.Exchange{
		Status: 504, Headers: map[string]string{"X-Request-Id": "up_77", "Content-Type": "text/html"}, Excerpt: "the upstream's own words",
	}})
	asked := named(r.flush(), "tool.lookup")
	require.Len(t, asked, 1)
	require.Equal(t, traceID, asked[0].SpanContext.TraceID().String())
	require.Equal(t, codes.Error, asked[0].Status.Code)
	got := attributesOf(asked[0])
	require.Equal(t, "failed", got["answer"])
	require.Equal(t, "up_77", got["upstream.x-request-id"])
	require.EqualValues(t, 504, got["http.response.status_code"])
	require.NotContains(t, text(t, asked), "own words")
}

// A later request carries the operation's fields, its own request id, and a link
// to the trace in which the operation was opened.
func TestTraces_Note(t *testing.T) {
	r := newRig(t)
	op, _ := move{ledger.VerbFinish, ledger.Running, ledger.Succeeded}.made(r.Now())
	_, span := r.traces.Tracer().Start(context.Background(), "later")
	measure.Note(span, op)
	span.End()
	_, same := r.traces.Tracer().Start(called(traceparent), "same")
	measure.Note(same, op)
	same.End()
	spans := r.flush()
	later := named(spans, "later")[0]
	require.Equal(t, "hold/o1", attributesOf(later)["idempotency_key"])
	require.NotContains(t, attributesOf(later), "request_id")
	require.Len(t, later.Links, 1)
	require.Equal(t, traceID, later.Links[0].SpanContext.TraceID().String())
	require.Empty(t, named(spans, "same")[0].Links, "it is in that trace itself")
	measure.Note(trace.SpanFromContext(context.Background()), op) // nobody records: nothing happens
}

// Without an exporter there are no spans, and the agent's trace is kept all the
// same, for the log lines and for the day on which tracing is turned on.
func TestTraces_Off(t *testing.T) {
	off, err := measure.NewTraces(context.Background(), measure.TraceConfig{Now: time.Now})
	require.NoError(t, err)
	ctx, span := off.Tracer().Start(called(traceparent), "request")
	require.False(t, span.IsRecording())
	require.Equal(t, traceparent, measure.Traceparent(ctx))
	op, ev := move{ledger.VerbDispatch, ledger.Pending, ledger.Running}.made(time.Now())
	off.OnEvent(op, ev)
	ctx, seen := off.Dispatching(context.Background(), op)
	seen(tools.Outcome{})
	require.Equal(t, traceparent, measure.Traceparent(ctx))
	_, asked := off.Asking(context.Background(), op)
	asked(tools.Answer{})
	require.NoError(t, off.Flush(context.Background()))
	require.NoError(t, off.Close(context.Background()))
}

// What is no traceparent starts no trace; a context that is in a trace stays.
func TestContinue(t *testing.T) {
	for _, bad := range []string{"", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", traceparent + "\n"} {
		require.Empty(t, measure.Traceparent(measure.Continue(context.Background(), ledger.Operation{Trace: bad})), "%q", bad)
	}
	const own = "00-11111111111111111111111111111111-2222222222222222-01"
	require.Equal(t, own, measure.Traceparent(measure.Continue(called(own), ledger.Operation{Trace: traceparent})))
	require.Empty(t, measure.Traceparent(context.Background()))
}

// A log line of a request names its trace.
func TestLogHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(measure.LogHandler(slog.NewJSONHandler(&out, nil)))
	log.InfoContext(called(traceparent), "in a trace")
	require.Contains(t, out.String(), `"trace_id":"`+traceID+`","span_id":"00f067aa0ba902b7"`)
	out.Reset()
	log.With("a", 1).WithGroup("g").InfoContext(called(traceparent), "with more", "b", 2)
	require.Contains(t, out.String(), traceID)
	out.Reset()
	log.Info("in none")
	require.NotContains(t, out.String(), "trace_id")
}

func TestEndpoint(t *testing.T) {
	const base, exact = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for name, c := range map[string]struct {
		configured string
		env        map[string]string
		want       string
	}{
		"nothing":                         {},
		"configured":                      {configured: "http://c:4318", want: "http://c:4318/v1/traces"},
		"configured with a path":          {configured: "http://c:4318/otlp/", want: "http://c:4318/otlp/v1/traces"},
		"the standard variable":           {env: map[string]string{base: "http://e:4318"}, want: "http://e:4318/v1/traces"},
		"that of traces, as it is":        {env: map[string]string{base: "http://e:4318", exact: "http://t:1/x"}, want: "http://t:1/x"},
		"the configuration counts first":  {configured: "http://c:4318", env: map[string]string{base: "http://e:4318", exact: "http://t:1/x"}, want: "http://c:4318/v1/traces"},
		"turned off whatever is said":     {configured: "http://c:4318", env: map[string]string{"OTEL_SDK_DISABLED": "TRUE"}},
		"not turned off by another value": {configured: "http://c:4318", env: map[string]string{"OTEL_SDK_DISABLED": "no"}, want: "http://c:4318/v1/traces"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, measure.Endpoint(c.configured, func(name string) string { return c.env[name] }))
		})
	}
}

// Spans reach a collector over OTLP; one that refuses them is told of once, and
// once when it takes them again.
func TestOTLP(t *testing.T) {
	ctx := context.Background()
	var refuse atomic.Bool
	got := make(chan *collector.ExportTraceServiceRequest, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if refuse.Load() {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body, _ := io.ReadAll(q.Body)
		var sent collector.ExportTraceServiceRequest
		if q.URL.Path == "/v1/traces" && proto.Unmarshal(body, &sent) == nil {
			got <- &sent
		}
	}))
	defer srv.Close()
	var out bytes.Buffer
	exporter, err := measure.OTLP(ctx, measure.Endpoint(srv.URL, func(string) string { return "" }), slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, err)
	traces, err := measure.NewTraces(ctx, measure.TraceConfig{Exporter: exporter, Version: "v-test", Instance: "https://gate.example", Now: time.Now})
	require.NoError(t, err)
	send := func() {
		op, ev := move{ledger.VerbDispatch, ledger.Pending, ledger.Running}.made(time.Now())
		traces.OnEvent(op, ev)
		require.NoError(t, traces.Flush(ctx))
	}
	send()
	sent := <-got
	source := map[string]string{}
	for _, a := range sent.ResourceSpans[0].Resource.Attributes {
		source[a.Key] = a.Value.GetStringValue()
	}
	require.Equal(t, "countersign", source["service.name"])
	require.Equal(t, "v-test", source["service.version"])
	require.Equal(t, "https://gate.example", source["service.instance.id"])
	require.Equal(t, "operation.dispatch", sent.ResourceSpans[0].ScopeSpans[0].Spans[0].Name)
	require.Empty(t, out.String())

	refuse.Store(true)
	send()
	send()
	require.Equal(t, 1, strings.Count(out.String(), "can't be exported"), out.String())
	refuse.Store(false)
	send()
	send()
	require.Equal(t, 1, strings.Count(out.String(), "exported again"), out.String())
	require.NoError(t, traces.Close(ctx))
	for _, bad := range []string{"collector:4318", "ftp://collector", "http://", "::"} {
		_, err := measure.OTLP(ctx, bad, slog.New(slog.DiscardHandler))
		require.Error(t, err, bad)
	}
}

// hanging is an exporter that never ends.
type hanging struct{ sdktrace.SpanExporter }

func (hanging) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

// A collector that never answers holds up neither a transition nor, beyond its
// patience, the stop.
func TestTraces_CollectorHangs(t *testing.T) {
	traces, err := measure.NewTraces(context.Background(), measure.TraceConfig{Exporter: hanging{tracetest.NewInMemoryExporter()}, Now: time.Now})
	require.NoError(t, err)
	op, ev := move{ledger.VerbDispatch, ledger.Pending, ledger.Running}.made(time.Now())
	for range 5000 { // more than the queue holds
		traces.OnEvent(op, ev)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = traces.Close(ctx)
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
}
