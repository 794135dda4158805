package measure_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"countersign/ledger"
	"countersign/measure"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// traceparent is an agent's, as it stands in the header.
const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// move is one transition that the table of states allows.
type move struct {
	verb     ledger.Verb
	from, to ledger.State
}

// moves are all of them.
func moves() (all []move) {
	for _, from := range append([]ledger.State{""}, ledger.States...) {
		for _, verb := range ledger.Verbs {
			seen := map[ledger.State]bool{}
			for _, history := range [][2]bool{{false, false}, {true, false}, {true, true}} {
				for _, to := range ledger.Allowed(from, verb, history[0], history[1]) {
					if !seen[to] {
						seen[to] = true
						all = append(all, move{verb, from, to})
					}
				}
			}
		}
	}
	return all
}

// made is an operation after the move, with its event.
func (m move) made(at time.Time) (ledger.Operation, ledger.Event) {
	op := ledger.Operation{
		ID: "op_1", Tenant: tenant, Tool: "hold", Key: "hold/o1", Generation: 2, State: m.to, RequestID: "req_1",
		Run: &ledger.Run{ID: "run_7", Step: "pay", Call: "call_9"}, EffectID: "eff_1", EvidenceBoundary: "drill",
		Attempts: []ledger.Attempt{{N: 1}, {N: 2}}, Trace: traceparent, CreatedAt: at.Add(-time.Minute), UpdatedAt: at,
	}
	return op, ledger.Event{
		Operation: op.ID, Tenant: tenant, Tool: op.Tool, At: at, Verb: m.verb, From: m.from, To: m.to,
		Actor: ledger.Actor{Kind: "operator", ID: "per_ann", Name: "ann"}, Reason: &ledger.Reason{Code: "no_proof", Text: "the upstream's own words"},
	}
}

// want are the fields of every line and span of that move (R133, R134).
func (m move) want() map[string]any {
	from := string(m.from)
	if from == "" {
		from = "none"
	}
	return map[string]any{
		"operation": "op_1", "tool": "hold", "request_id": "req_1", "run_id": "run_7", "tool_call_id": "call_9",
		"idempotency_key": "hold/o1", "generation": int64(2), "effect_id": "eff_1", "state": string(m.to),
		"state_transition": from + ">" + string(m.to) + " by " + string(m.verb), "attempt": int64(2), "retry_count": int64(1),
		"evidence_boundary": "drill", "actor": "operator per_ann", "reason": "no_proof",
	}
}

// Every transition of the table writes one line, and one span in the trace of
// the commit, with the fields of R133 and R134, and is counted once.
func TestTransition_EveryVerb(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	verbs := map[ledger.Verb]bool{}
	for _, m := range moves() {
		verbs[m.verb] = true
		r.pass(time.Minute)
		op, ev := m.made(r.Now())
		written, text := len(r.lines.records), r.lines.String()
		measure.Each(r.metrics.OnEvent, measure.Log(slog.New(r.lines)), r.traces.OnEvent)(op, ev)

		require.Len(t, r.lines.records, written+1, "%v", m)
		line := r.lines.last(t)
		require.Equal(t, traceID, line["trace_id"], "%v", m)
		delete(line, "trace_id")
		require.Equal(t, m.want(), line, "%v", m)
		require.NotContains(t, r.lines.String()[len(text):], "own words")

		spans := r.flush()
		require.Len(t, spans, 1, "%v", m)
		r.spans.Reset()
		require.Equal(t, "operation."+string(m.verb), spans[0].Name)
		require.Equal(t, traceID, spans[0].SpanContext.TraceID().String())
		require.Equal(t, "00f067aa0ba902b7", spans[0].Parent.SpanID().String())
		require.True(t, ev.At.Equal(spans[0].StartTime) && ev.At.Equal(spans[0].EndTime))
		got := attributesOf(spans[0])
		require.Equal(t, "hold", got["gen_ai.tool.name"])
		require.Equal(t, "call_9", got["gen_ai.tool.call.id"])
		delete(got, "gen_ai.tool.name")
		delete(got, "gen_ai.tool.call.id")
		require.Equal(t, m.want(), got, "%v", m)

		from := string(m.from)
		if from == "" {
			from = "none"
		}
		require.EqualValues(t, 1, r.value("transitions_total", "tool", "hold", "verb", string(m.verb), "from", from, "to", string(m.to)), "%v", m)
	}
	require.Len(t, verbs, len(ledger.Verbs), "every verb is in the table")
}

// What is mandatory stands there although it is empty: the key, the effect and
// the transition (R134), also for an operation without a run and without a trace.
func TestTransition_EmptyFieldsStand(t *testing.T) {
	l := &lines{}
	op := ledger.Operation{ID: "op_1", Tool: "hold", State: ledger.Pending}
	measure.Log(slog.New(l))(op, ledger.Event{Verb: ledger.VerbOpen, To: ledger.Pending})
	line := l.last(t)
	for _, field := range []string{"request_id", "run_id", "tool_call_id", "idempotency_key", "effect_id", "evidence_boundary"} {
		require.Contains(t, line, field)
		require.Empty(t, line[field])
	}
	require.Equal(t, "none>pending by open", line["state_transition"])
	require.NotContains(t, line, "trace_id")
}

// Texts that agents and upstreams choose are bounded, between two characters.
func TestFields_Bounded(t *testing.T) {
	long := ""
	for len(long) < 300 {
		long += "äöü"
	}
	for _, f := range measure.Fields(ledger.Operation{EffectID: long, Key: long, RequestID: long, Run: &ledger.Run{ID: long, Call: long}}) {
		if f.Value.Kind() == slog.KindString {
			require.LessOrEqual(t, len(f.Value.String()), 256+len("…"), f.Key)
			require.True(t, []rune(f.Value.String() + "x")[0] != '\uFFFD', f.Key)
			require.NotContains(t, f.Value.String(), "\uFFFD", f.Key)
		}
	}
}

// An undo names what it takes back.
func TestFields_Undo(t *testing.T) {
	fields := map[string]string{}
	for _, f := range measure.Standing(ledger.Operation{Parent: "op_parent"}) {
		fields[f.Key] = f.Value.String()
	}
	require.Equal(t, "op_parent", fields["undo_of"])
	require.NotContains(t, fields, "request_id", "a later request has its own")
}

// The wait of people is from the opening to the full quorum or the rejection; a
// yes that is not enough yet ends no wait.
func TestTransition_ApprovalWait(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("pay", tooltest.WithApproval(tooltest.Approve("finance", 1))), tooltest.FakeTool("hold"))
	yes, no := r.do(context.Background(), "pay", "o1"), r.do(context.Background(), "pay", "o2")
	r.pass(100 * time.Second)
	r.decide(no, "reject", "too much")
	r.pass(300 * time.Second)
	r.decide(yes, "approve", "")
	for outcome, want := range map[string]float64{"approved": 400, "rejected": 100} {
		s, ok := r.sampleOf("approval_wait_seconds", "tool", "pay", "outcome", outcome)
		require.True(t, ok, outcome)
		require.EqualValues(t, 1, s.metric.Histogram.GetSampleCount())
		require.InDelta(t, want, s.value(), 1e-9)
	}
	partial := move{ledger.VerbApprove, ledger.AwaitingApproval, ledger.AwaitingApproval}
	op, ev := partial.made(r.Now())
	r.metrics.OnEvent(op, ev)
	r.absent("approval_wait_seconds", "tool", "hold")
}

// An undo that gave up is a failure of its tool's undo.
func TestTransition_UndoFailure(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	op, ev := move{ledger.VerbGiveUp, ledger.Compensating, ledger.Succeeded}.made(r.Now())
	r.metrics.OnEvent(op, ev)
	require.EqualValues(t, 1, r.value("undo_failures_total", "tool", "hold"))
}

// attributesOf are a span's attributes by name.
func attributesOf(s tracetest.SpanStub) map[string]any {
	out := map[string]any{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.AsInterface()
	}
	return out
}

// What agents choose is no label: not a key, an id, a run, or a name that is no
// tool's. A tool that is not in force any more has one label with all of its
// kind.
func TestLabels_Bounded(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	op := r.do(context.Background(), "hold", "order-of-the-agent")
	gone := op
	gone.Tool = "no_longer_there"
	r.metrics.OnEvent(gone, ledger.Event{Verb: ledger.VerbExpire, From: ledger.Pending, To: ledger.Expired})
	r.metrics.Committed(gone, true)
	r.metrics.Previewed("what-an-agent-calls-it")
	r.metrics.Answered("", 404, "not_found", time.Millisecond)
	chosen := map[string]bool{
		op.ID: true, op.Key: true, op.UpstreamKey: true, op.EffectID: true, agent.ID: true, agent.Name: true, "run_7": true, "call_9": true,
		"no_longer_there": true, "what-an-agent-calls-it": true, "order-of-the-agent": true, "req_commit": true,
	}
	for name, samples := range r.gather() {
		for _, s := range samples {
			for label, value := range s.labels {
				require.False(t, chosen[value], "%s{%s=%q}", name, label, value)
			}
		}
	}
	require.EqualValues(t, 1, r.value("transitions_total", "tool", "withdrawn"))
	require.EqualValues(t, 1, r.value("previews_total", "tool", "withdrawn"))
}

// Calls of a connector pass through the stop-watch unchanged and are timed.
func TestConnector_Timed(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold", tooltest.WithLookup(tools.Strong)))
	fake := r.fakes["hold"]
	fake.Script(tooltest.LoseReply(), tooltest.Step{Do: func() { r.pass(3 * time.Second) }})
	doubt := r.do(ctx, "hold", "o1")
	require.Equal(t, ledger.DoubtReconciled, doubt.Doubt, "the reconciler asked once and found it")
	done := r.do(ctx, "hold", "o2")
	require.Equal(t, ledger.Succeeded, done.State)
	require.Equal(t, "eff_2", done.EffectID, "what the connector said")

	tool, _ := r.registry.Get("hold")
	plan, err := r.ledger.Plan(ctx, tenant, doubt.ID, 1)
	require.NoError(t, err)
	fake.Answers(tools.Answer{Kind: tools.LookupFailed}, tools.Answer{Kind: tools.LookupFailed})
	tool.Lookup(ctx, plan)
	tool.Lookup(ctx, plan)
	require.EqualValues(t, 1, r.value("lookups_total", "tool", "hold", "answer", "present"))
	require.EqualValues(t, 2, r.value("lookups_total", "tool", "hold", "answer", "failed"))
	require.Zero(t, r.value("lookups_total", "tool", "hold", "answer", "absent"))

	count := func(name string, labels ...string) uint64 {
		s, ok := r.sampleOf(name, labels...)
		require.True(t, ok, "%s %v", name, labels)
		return s.metric.Histogram.GetSampleCount()
	}
	require.EqualValues(t, 3, count("lookup_duration_seconds", "tool", "hold"))
	require.EqualValues(t, 1, count("dispatch_duration_seconds", "verdict", "unknown"))
	require.EqualValues(t, 1, count("dispatch_duration_seconds", "verdict", "succeeded"))
	require.InDelta(t, 3, r.value("dispatch_duration_seconds", "verdict", "succeeded"), 1e-9)
	require.EqualValues(t, 2, count("upstream_read_duration_seconds", "call", "preview", "result", "ok"))
	require.EqualValues(t, 2, count("upstream_read_duration_seconds", "call", "guard", "result", "ok"))
}
