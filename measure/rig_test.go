package measure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/measure"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

const tenant = "default"

var (
	agent = identity.Agent{ID: "agt_clerk", Tenant: tenant, Name: "clerk", Owner: "per_owner", Tools: []string{"*"}}
	ann   = identity.Operator{ID: "per_ann", Tenant: tenant, Name: "ann", Groups: []string{"finance"}}
)

// rig is a gateway's services over a real SQLite file with everything of this
// package around them, as the program wires it.
type rig struct {
	t         *testing.T
	db        *sqlstore.DB
	ledger    *ledger.Ledger
	registry  *tools.Registry
	executor  *commit.Executor
	previews  *preview.Service
	commits   *commit.Service
	approvals *approvals.Service
	fakes     map[string]*tooltest.Fake

	metrics *measure.Metrics
	traces  *measure.Traces
	spans   *tracetest.InMemoryExporter
	lines   *lines

	mu  sync.Mutex
	now time.Time
}

func (r *rig) Now() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }

func (r *rig) pass(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.now = r.now.Add(d) }

func newRig(t *testing.T, list ...*tools.Tool) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), fakes: map[string]*tooltest.Fake{},
		spans: tracetest.NewInMemoryExporter(), lines: &lines{},
	}
	r.registry = tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) { return nil, tools.ErrUpstreamGone })
	r.metrics = measure.New(measure.Config{Registry: r.registry, Version: "v-test", Now: r.Now})
	var err error
	r.traces, err = measure.NewTraces(ctx, measure.TraceConfig{Exporter: r.spans, Version: "v-test", Now: r.Now})
	require.NoError(t, err)
	for _, tool := range list {
		fake := tooltest.FakeOf(tool)
		fake.Now = r.Now
		r.fakes[tool.Name] = fake
		tool.Connector = r.metrics.Connector(tool.Name, fake)
	}
	require.NoError(t, r.registry.Set(list))

	dir := t.TempDir()
	r.db, err = sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(dir, "ledger.db"), Now: r.Now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.db.Close() }) // a test may have closed it already
	r.ledger, err = ledger.Open(ctx, ledger.Config{
		Store: r.db, Now: r.Now,
		OnEvent: measure.Each(r.metrics.OnEvent, r.traces.OnEvent, measure.Log(slog.New(r.lines)), nil),
	})
	require.NoError(t, err)
	r.metrics.Read(measure.Source{Reader: r.ledger.Reader, Tenants: []string{tenant}, Checkpoint: r.db.LastCheckpoint, KeepFor: -1})
	keys, err := tokens.LoadOrCreate(filepath.Join(dir, "keys.json"), r.Now(), tokens.KeyOptions{})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: keys, Now: r.Now})
	require.NoError(t, err)
	person := func(context.Context, string, string) (policy.Person, error) { return approvals.PersonOf(ann), nil }
	r.executor = commit.NewExecutor(commit.ExecutorConfig{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: person, Owner: "test", Dispatching: r.traces.Dispatching,
	})
	// Doubts are looked at at once, as in a gateway.
	reconciler := reconcile.NewReconciler(reconcile.ReconcilerConfig{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Executor: r.executor, Owner: "test", Asking: r.traces.Asking,
	})
	background, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = reconciler.Run(background) }() // it ends with its context only
	t.Cleanup(func() { end(); <-ended })
	r.previews = preview.New(preview.Config{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: signer,
		OnPreview: func(q preview.Request, _ preview.Result) { r.metrics.Previewed(q.Tool) },
	})
	r.commits = commit.New(commit.Config{
		Ledger: r.ledger, Registry: r.registry, Signer: signer, Executor: r.executor, Trace: measure.Traceparent,
		OnCommit:  func(_ commit.Request, res commit.Result) { r.metrics.Committed(res.Operation, res.Replayed) },
		OnRefusal: func(_ commit.Request, err error) { r.metrics.Refused(err) },
	})
	r.approvals = approvals.New(approvals.Config{Ledger: r.ledger, Person: person})
	_, _, err = r.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools = r.registry.Versions() })
	require.NoError(t, err)
	return r
}

// token previews a call.
func (r *rig) token(tool, order string, more map[string]any) string {
	r.t.Helper()
	args := map[string]any{"order_id": order}
	for k, v := range more {
		args[k] = v
	}
	res, err := r.previews.Preview(context.Background(), preview.Request{
		Agent: agent, Tool: tool, Args: args, RequestID: "req_preview", Run: &ledger.Run{ID: "run_7", Step: tool + "-" + order, Call: "call_9"},
	})
	require.NoError(r.t, err)
	require.NotEmpty(r.t, res.Token)
	return res.Token
}

// do previews and commits in ctx, and gives the operation once its dispatch, if
// there is one, was concluded.
func (r *rig) do(ctx context.Context, tool, order string) ledger.Operation {
	r.t.Helper()
	return r.commit(ctx, tool, r.token(tool, order, nil))
}

func (r *rig) commit(ctx context.Context, tool, token string) ledger.Operation {
	r.t.Helper()
	res, err := r.commits.Commit(ctx, commit.Request{Agent: agent, Tool: tool, Token: token, RequestID: "req_commit", Wait: 30 * time.Second})
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
	op, err := r.ledger.Operation(context.Background(), tenant, res.Operation.ID)
	require.NoError(r.t, err)
	return op
}

// work lets the executor take up what is pending.
func (r *rig) work() {
	r.t.Helper()
	_, err := r.executor.RunOnce(context.Background())
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
}

func (r *rig) decide(op ledger.Operation, word, reason string) ledger.Operation {
	r.t.Helper()
	card, err := r.approvals.Card(context.Background(), approvals.PersonOf(ann), tenant, op.ID)
	require.NoError(r.t, err)
	op, err = r.approvals.Decide(context.Background(), ann, op.ID, approvals.Decision{Word: word, ShownDigest: card.ShownDigest, Reason: reason})
	require.NoError(r.t, err)
	return op
}

// found gives evidence of a lookup to the ledger, as the reconciler does.
func (r *rig) found(op ledger.Operation, verdict tools.Verdict, effect string) ledger.Operation {
	r.t.Helper()
	op, err := r.ledger.AddEvidence(context.Background(), tenant, ledger.Evidence{
		ID: ledger.NewID("evd_"), Operation: op.ID, Attempt: 1, Kind: "lookup", Verdict: verdict, EffectID: effect,
		By: ledger.Reconciler, At: r.Now(),
	})
	require.NoError(r.t, err)
	return op
}

// flush exports the spans and gives those that were ended.
func (r *rig) flush() tracetest.SpanStubs {
	r.t.Helper()
	require.NoError(r.t, r.traces.Flush(context.Background()))
	return r.spans.GetSpans()
}

// sample is one value of a series.
type sample struct {
	labels map[string]string
	metric *dto.Metric
}

func (s sample) value() float64 {
	switch m := s.metric; {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Histogram.GetSampleSum()
	}
}

// gather reads every series as a scrape does.
func (r *rig) gather() map[string][]sample {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	out := map[string][]sample{}
	for _, f := range families {
		for _, m := range f.Metric {
			s := sample{labels: map[string]string{}, metric: m}
			for _, l := range m.Label {
				s.labels[l.GetName()] = l.GetValue()
			}
			out[f.GetName()] = append(out[f.GetName()], s)
		}
	}
	return out
}

// sampleOf finds the one sample of a series with the labels, given in pairs.
func (r *rig) sampleOf(name string, labels ...string) (sample, bool) {
	r.t.Helper()
	var found []sample
	for _, s := range r.gather()["countersign_"+name] {
		if !slices.ContainsFunc(pairs(labels), func(p [2]string) bool { return s.labels[p[0]] != p[1] }) {
			found = append(found, s)
		}
	}
	require.LessOrEqual(r.t, len(found), 1, "%s %v is one series", name, labels)
	if len(found) == 0 {
		return sample{}, false
	}
	return found[0], true
}

// value is the value of that sample, which must be there.
func (r *rig) value(name string, labels ...string) float64 {
	r.t.Helper()
	s, ok := r.sampleOf(name, labels...)
	require.True(r.t, ok, "%s %v is exported", name, labels)
	return s.value()
}

func (r *rig) absent(name string, labels ...string) {
	r.t.Helper()
	s, ok := r.sampleOf(name, labels...)
	require.False(r.t, ok, "%s %v is shown: %v", name, labels, s)
}

func pairs(flat []string) (out [][2]string) {
	for i := 0; i+1 < len(flat); i += 2 {
		out = append(out, [2]string{flat[i], flat[i+1]})
	}
	return out
}

// lines is a log handler that keeps records, and their text in JSON.
type lines struct {
	mu      sync.Mutex
	records []slog.Record
	text    strings.Builder
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r.Clone())
	var b bytes.Buffer
	defer func() { l.text.Write(b.Bytes()) }()
	return slog.NewJSONHandler(&b, nil).Handle(ctx, r)
}

func (l *lines) WithAttrs([]slog.Attr) slog.Handler { panic("not used: lines carry their own fields") }

func (l *lines) WithGroup(string) slog.Handler { panic("not used: lines carry their own fields") }

// fields are the last line's.
func (l *lines) last(t *testing.T) map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotEmpty(t, l.records)
	out := map[string]any{}
	l.records[len(l.records)-1].Attrs(func(a slog.Attr) bool { out[a.Key] = a.Value.Any(); return true })
	return out
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

// text is everything of spans in one text.
func text(t *testing.T, spans tracetest.SpanStubs) string {
	t.Helper()
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s %+v %+v %+v %+v %+v\n", s.Name, s.Attributes, s.Events, s.Links, s.Status, s.Resource)
	}
	return b.String()
}

// number is an argument as the decoder gives it.
func number(n int) json.Number { return json.Number(fmt.Sprint(n)) }
