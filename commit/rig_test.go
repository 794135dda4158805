package commit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// rig is a gateway's services in one process: real SQLite, real tokens, fake
// tools.
type rig struct {
	t          testing.TB
	dir        string
	clock      *clock
	db         *sqlstore.DB
	ledger     *ledger.Ledger
	keys       *tokens.KeySet
	signer     *tokens.Signer
	registry   *tools.Registry
	executor   *commit.Executor
	previews   *preview.Service
	commits    *commit.Service
	approvals  *approvals.Service
	sweeper    *reconcile.Sweeper
	reconciler *reconcile.Reconciler
	// endReconciling stops the reconciler and waits for it.
	endReconciling func()

	// steady: at the next start everything goes by the store's clock, as in the
	// program.
	steady bool

	// between, when set, stands between the ledger and its store at the next
	// start.
	between func(ledger.Store) ledger.Store

	// log, when set, is the executor's at the next start.
	log *slog.Logger

	// fakes are the tools' fakes where a connector stands before them.
	fakes []*tooltest.Fake

	mu     sync.Mutex
	people map[string]policy.Person
}

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
	// runs: it is the wall's, for connectors that know no other.
	runs bool
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs {
		return time.Now()
	}
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const tenant = "default"

var (
	agent   = identity.Agent{ID: "agt_1", Tenant: tenant, Name: "clerk", Owner: "per_owner", Tools: []string{"*"}}
	other   = identity.Agent{ID: "agt_2", Tenant: tenant, Name: "helper", Owner: "per_owner", Tools: []string{"*"}}
	stray   = identity.Agent{ID: "agt_3", Tenant: tenant, Name: "stray", Owner: "per_owner", Tools: []string{"nothing_else"}}
	owner   = operator("per_owner", "finance", "support")
	ann     = operator("per_ann", "finance")
	bob     = operator("per_bob", "finance", "support")
	carl    = operator("per_carl", "support")
	outside = operator("per_outside")
)

func operator(id string, groups ...string) identity.Operator {
	return identity.Operator{ID: id, Tenant: tenant, Name: id[4:], Groups: groups}
}

// newRig starts a rig with the tools in force.
func newRig(t testing.TB, list ...*tools.Tool) *rig {
	t.Helper()
	fakes := make([]*tooltest.Fake, len(list))
	for i, tool := range list {
		fakes[i] = tooltest.FakeOf(tool)
	}
	return newRigOf(t, fakes, list...)
}

// newRigOf is newRig for tools whose connector is not their fake itself.
func newRigOf(t testing.TB, fakes []*tooltest.Fake, list ...*tools.Tool) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		people: map[string]policy.Person{},
	}
	for _, o := range []identity.Operator{owner, ann, bob, carl, outside} {
		r.people[o.ID] = approvals.PersonOf(o)
	}
	for _, fake := range fakes {
		fake.Now = r.clock.Now
	}
	r.registry = tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) {
		return nil, fmt.Errorf("fake tools are not compiled: %w", tools.ErrUpstreamGone)
	})
	require.NoError(t, r.registry.Set(list))
	r.start()
	t.Cleanup(func() {
		r.endReconciling()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.executor.Drain(ctx) // a test that leaves a reply held has said what it wanted
		require.NoError(t, r.db.Close())
	})
	return r
}

// start opens the ledger and everything over it; restart does it again on the
// same file.
func (r *rig) start() {
	t, ctx := r.t, context.Background()
	var err error
	r.db, err = sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(r.dir, "ledger.db"), Now: r.clock.Now})
	require.NoError(t, err)
	now := r.clock.Now
	if r.steady {
		now = r.db.Now
	}
	store := ledger.Store(r.db)
	if r.between != nil {
		store = r.between(store)
	}
	r.ledger, err = ledger.Open(ctx, ledger.Config{Store: store, Now: now})
	require.NoError(t, err)
	r.keys, err = tokens.LoadOrCreate(filepath.Join(r.dir, "keys.json"), now(), tokens.KeyOptions{})
	require.NoError(t, err)
	r.signer, err = tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: r.keys, Now: now})
	require.NoError(t, err)
	spool, err := commit.OpenSpool(r.spoolDir(), now)
	require.NoError(t, err)
	r.executor = commit.NewExecutor(commit.ExecutorConfig{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: r.person, Owner: "test", Spool: spool, Logger: r.log,
	})
	r.previews = preview.New(preview.Config{Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: r.signer})
	r.commits = commit.New(commit.Config{Ledger: r.ledger, Registry: r.registry, Signer: r.signer, Executor: r.executor})
	r.approvals = approvals.New(approvals.Config{Ledger: r.ledger, Person: r.person})
	r.reconciler = reconcile.NewReconciler(reconcile.ReconcilerConfig{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Executor: r.executor, Owner: "test", Rand: func() float64 { return 0 },
	})
	r.reconcileInBackground()
	r.sweeper = reconcile.New(reconcile.Config{Ledger: r.ledger, Store: r.db, Owner: "test"})
	r.inForce()
}

func (r *rig) spoolDir() string { return filepath.Join(r.dir, "spool") }

// reconcileInBackground looks at doubts as soon as there is one, as a gateway does.
func (r *rig) reconcileInBackground() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.reconciler.Run(ctx) // it ends with its context only
	}()
	r.endReconciling = sync.OnceFunc(func() { stop(); <-ended })
}

// restart closes the ledger and opens everything over it again.
func (r *rig) restart() {
	r.t.Helper()
	r.endReconciling()
	require.NoError(r.t, r.db.Close())
	r.start()
}

// inForce writes the tools' versions to the guard row, as loading them does.
func (r *rig) inForce() {
	_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools = r.registry.Versions() })
	require.NoError(r.t, err)
}

func (r *rig) person(_ context.Context, _, id string) (policy.Person, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.people[id]; ok {
		return p, nil
	}
	return policy.Person{ID: id, Disabled: true}, nil
}

func (r *rig) set(p policy.Person) { r.mu.Lock(); defer r.mu.Unlock(); r.people[p.ID] = p }

// args are a call's arguments as the decoder gives them.
func args(order string, more ...any) map[string]any {
	m := map[string]any{"order_id": order}
	for i := 0; i+1 < len(more); i += 2 {
		v := more[i+1]
		if n, ok := v.(int); ok {
			v = json.Number(fmt.Sprint(n))
		}
		m[more[i].(string)] = v
	}
	return m
}

// preview previews and wants a token.
func (r *rig) preview(a identity.Agent, tool string, in map[string]any) preview.Result {
	r.t.Helper()
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: a, Tool: tool, Args: in, RequestID: "req"})
	require.NoError(r.t, err)
	require.NotEmpty(r.t, res.Token)
	return res
}

// commit spends a token and waits for its outcome.
func (r *rig) commit(a identity.Agent, tool, token string) (commit.Result, error) {
	return r.commits.Commit(context.Background(), commit.Request{Agent: a, Tool: tool, Token: token, RequestID: "req", Wait: 10 * time.Second})
}

func (r *rig) mustCommit(a identity.Agent, tool, token string) commit.Result {
	r.t.Helper()
	res, err := r.commit(a, tool, token)
	require.NoError(r.t, err)
	return res
}

// do previews and commits.
func (r *rig) do(a identity.Agent, tool string, in map[string]any) commit.Result {
	r.t.Helper()
	return r.mustCommit(a, tool, r.preview(a, tool, in).Token)
}

// approve says yes to what the operation's card shows.
func (r *rig) decide(who identity.Operator, op ledger.Operation, word, reason string) (ledger.Operation, error) {
	card, err := r.approvals.Card(context.Background(), approvals.PersonOf(who), tenant, op.ID)
	require.NoError(r.t, err)
	return r.approvals.Decide(context.Background(), who, op.ID, approvals.Decision{Word: word, ShownDigest: card.ShownDigest, Reason: reason})
}

func (r *rig) approve(who identity.Operator, op ledger.Operation) ledger.Operation {
	r.t.Helper()
	op, err := r.decide(who, op, "approve", "")
	require.NoError(r.t, err)
	return op
}

// work lets the executor take up what is pending and waits for it.
func (r *rig) work() {
	r.t.Helper()
	if !r.clock.runs {
		r.clock.Add(11 * time.Second) // past soft claims and back-offs
	}
	_, err := r.executor.RunOnce(context.Background())
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
}

func (r *rig) op(id string) ledger.Operation {
	r.t.Helper()
	op, err := r.ledger.Operation(context.Background(), tenant, id)
	require.NoError(r.t, err)
	return op
}

// verbs are the operation's moves, oldest first; the chain must be whole.
func (r *rig) verbs(id string) []ledger.Verb {
	r.t.Helper()
	events, err := r.ledger.Events(context.Background(), tenant, id)
	require.NoError(r.t, err)
	var out []ledger.Verb
	prev := ""
	for i, e := range events {
		require.True(r.t, e.Intact(prev), "event %d is whole and follows the one before", i)
		require.EqualValues(r.t, i+1, e.Version, "one event for each version")
		prev = e.Hash
		out = append(out, e.Verb)
	}
	require.Equal(r.t, prev, r.op(id).Chain)
	return out
}

// requireCode wants a refusal with the code.
func requireCode(t testing.TB, err error, code fault.Code) *fault.Error {
	t.Helper()
	require.Error(t, err)
	var e *fault.Error
	require.True(t, errors.As(err, &e), "%T %v", err, err)
	require.Equal(t, code, e.Code, e.Error())
	return e
}

// count is how many operations there are.
func (r *rig) count() int {
	r.t.Helper()
	page, err := r.ledger.List(context.Background(), ledger.Filter{Tenant: tenant, Limit: 200})
	require.NoError(r.t, err)
	return len(page.Operations)
}

func previewRequest(tool, order string) preview.Request {
	return preview.Request{Agent: agent, Tool: tool, Args: args(order)}
}

// hooked is a tool's connector with a hand in its guard and its preview.
type hooked struct {
	tools.Connector
	guard   func(context.Context, tools.Plan) (tools.Guard, error)
	preview func(*tools.Plan) error
}

func (h hooked) Guard(ctx context.Context, p tools.Plan) (tools.Guard, error) {
	if h.guard == nil {
		return h.Connector.Guard(ctx, p)
	}
	return h.guard(ctx, p)
}

func (h hooked) Preview(ctx context.Context, c tools.Call) (tools.Plan, error) {
	p, err := h.Connector.Preview(ctx, c)
	if h.preview != nil && err == nil {
		err = h.preview(&p)
	}
	return p, err
}

// acting is a store that lets a test act at a place of its own choosing.
type acting struct {
	ledger.Store
	plan  func()
	open  func(context.Context, *ledger.Operation) error
	apply func(context.Context, ledger.Transition) error
}

func (a *acting) Plan(ctx context.Context, tenant, op string, round int) (tools.Plan, error) {
	if do := a.plan; do != nil {
		a.plan = nil
		do()
	}
	return a.Store.Plan(ctx, tenant, op, round)
}

func (a *acting) Open(ctx context.Context, o ledger.Opening) error {
	if do := a.open; do != nil {
		a.open = nil
		if err := do(ctx, &o.New[0].Operation); err != nil {
			return err
		}
	}
	return a.Store.Open(ctx, o)
}

func (a *acting) Apply(ctx context.Context, t ledger.Transition) error {
	if do := a.apply; do != nil {
		if err := do(ctx, t); err != nil {
			return err
		}
	}
	return a.Store.Apply(ctx, t)
}
