package history_test

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/api"
	"countersign/approvals"
	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

const (
	tenant = "default"
	group  = "finance"
)

// subject is a tool under whose keys a history is made.
type subject struct {
	tool   *tools.Tool
	fake   *tooltest.Fake
	quorum int
	keyed  bool
}

// outside gives the effects that an operation has had, by the outside system's own
// log.
func (s *subject) outside(operation string) []string {
	var ids []string
	effects := s.fake.Effects()
	for _, r := range s.fake.Requests() {
		if r.Operation != operation {
			continue
		}
		for _, e := range effects {
			if e.Key == r.Key.Upstream {
				ids = append(ids, e.ID)
			}
		}
		break // every request of an operation has the same key
	}
	return ids
}

// world is one history's: the outside, a store, and two gateways over it.
type world struct {
	t        testing.TB
	dir      string
	clock    *clock
	subjects []*subject
	store    *sqlstore.DB
	faults   *faults
	holds    *holds
	keys     *tokens.KeySet
	identity *identity.Service
	agents   []asker
	people   []asker
	http     *http.Client
	// spoil plants a mistake between a gateway and its store; nil plants none.
	spoil func(ledger.Store) ledger.Store

	mu       sync.Mutex
	gateways []*gateway
	// ever are all that there were.
	ever []*gateway
}

// asker is an agent or a person, with what they prove it by.
type asker struct {
	id     string
	key    string       // an agent's
	cookie *http.Cookie // a person's
}

// clock is the time of everything in a history; clients make it jump.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// gateway is one process: it serves and its loops run until it is killed or
// stopped.
type gateway struct {
	n        int
	ledger   *ledger.Ledger
	executor *commit.Executor
	sessions *identity.Sessions
	server   *httptest.Server
	// dead: it reaches neither store nor tools any more.
	dead atomic.Bool
	stop func()
}

func newWorld(t testing.TB, seed uint64, spoil func(ledger.Store) ledger.Store) *world {
	t.Helper()
	w := &world{
		t: t, clock: &clock{}, faults: &faults{rng: rand.New(rand.NewPCG(seed, 100)), calm: true}, holds: &holds{}, spoil: spoil,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	}
	w.clock.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	rng := rand.New(rand.NewPCG(seed, 101))
	w.subject("plain", 0, false, rng)
	w.subject("asked", 0, false, rng, tooltest.WithLookup(tools.Strong))
	w.subject("keyed", 0, true, rng, tooltest.HonoursKey(48*time.Hour))
	w.subject("one", 1, false, rng, tooltest.WithLookup(tools.Strong))
	w.subject("two", 2, true, rng, tooltest.HonoursKey(48*time.Hour), tooltest.WithLookup(tools.Strong))

	var err error
	w.dir, err = os.MkdirTemp("", "countersign-history-")
	require.NoError(t, err)
	w.store, err = sqlstore.Open(t.Context(), sqlstore.Options{Path: filepath.Join(w.dir, "ledger.db"), Now: w.clock.now})
	require.NoError(t, err)
	w.keys, err = tokens.LoadOrCreate(filepath.Join(w.dir, "keys.json"), w.clock.now(), tokens.KeyOptions{})
	require.NoError(t, err)
	w.identity = identity.New(identity.Config{
		Store: w.store, Now: w.clock.now, Argon2idFunc: cheapHash,
		Revoke: func(context.Context, string, string) error { return errors.New("nobody is revoked here") },
	})
	w.principals()
	for n := range 2 {
		w.gateways = append(w.gateways, w.start(n))
	}
	_, _, err = w.gateways[0].ledger.ChangeGuard(t.Context(), tenant, ledger.Change{What: "tools"}, func(row *ledger.Guard) {
		row.Tools = w.tools(w.gateways[0]).Versions()
	})
	require.NoError(t, err)
	w.signIn()
	w.faults.begin()
	return w
}

// cheapHash stands for argon2id, whose price is not what is tested here.
func cheapHash(password, salt []byte, _, _ uint32, _ uint8, keyLen uint32) []byte {
	sum := sha512.Sum512(append(append([]byte(nil), salt...), password...))
	return sum[:keyLen]
}

// principals makes two agents of one owner and three people who may decide.
func (w *world) principals() {
	w.t.Helper()
	ctx := context.Background()
	operator := func(name string) identity.Operator {
		_, code, err := w.identity.CreateOperator(ctx, tenant, name, []string{group})
		require.NoError(w.t, err)
		o, err := w.identity.CompleteSetup(ctx, code, "a long pass phrase of "+name+" 1")
		require.NoError(w.t, err)
		return o
	}
	owner := operator("owner")
	for _, name := range []string{"ann", "bob", "carl"} {
		w.people = append(w.people, asker{id: operator(name).ID})
	}
	for _, name := range []string{"clerk", "helper"} {
		a, key, err := w.identity.CreateAgent(ctx, tenant, name, owner.ID, []string{"*"})
		require.NoError(w.t, err)
		w.agents = append(w.agents, asker{id: a.ID, key: key})
	}
}

// signIn signs everybody in. Sessions are in the store, so that they outlive a
// gateway.
func (w *world) signIn() {
	w.t.Helper()
	sessions := w.gateways[0].sessions
	for i := range w.people {
		signIn := sessions.LoadAndSave(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			o, err := w.store.Operator(q.Context(), tenant, w.people[i].id)
			require.NoError(w.t, err)
			require.NoError(w.t, sessions.SignIn(q.Context(), o))
		}))
		answer := httptest.NewRecorder()
		signIn.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
		require.Len(w.t, answer.Result().Cookies(), 1)
		w.people[i].cookie = answer.Result().Cookies()[0]
	}
}

// subject makes a tool whose outside world does what the seed says.
func (w *world) subject(name string, quorum int, keyed bool, rng *rand.Rand, more ...tooltest.Option) {
	options := append([]tooltest.Option{
		tooltest.WithClock(w.clock.now),
		func(t *tools.Tool, _ *tooltest.Fake) { t.ApprovalExpiry, t.ApprovalMaxAge = 48*time.Hour, 48*time.Hour },
	}, more...)
	if quorum > 0 {
		options = append(options, tooltest.WithApproval(tooltest.Approve(group, quorum)))
	}
	tool := tooltest.FakeTool(name, options...)
	s := &subject{tool: tool, fake: tooltest.FakeOf(tool), quorum: quorum, keyed: keyed}
	for range 200 {
		step := []tooltest.Step{
			tooltest.Succeed(), tooltest.Reject("no"), tooltest.Reject("no"), tooltest.Unsent(), tooltest.LoseReply(), tooltest.LoseRequest(), tooltest.LoseRequest(),
		}[rng.IntN(7)]
		if rng.IntN(3) == 0 {
			step = tooltest.Held(w.holds.add(), step)
		}
		s.fake.Script(step)
	}
	w.subjects = append(w.subjects, s)
}

// line is a gateway's way to a tool. Who is dead sends nothing.
type line struct {
	tools.Connector
	g *gateway
}

func (l line) Dispatch(ctx context.Context, plan tools.Plan, d tools.Dispatch) tools.Outcome {
	if l.g.dead.Load() {
		return tools.Outcome{Verdict: tools.Unknown, Because: "nobody is there to tell"}
	}
	return l.Connector.Dispatch(ctx, plan, d)
}

func (w *world) tools(g *gateway) *tools.Registry {
	registry := tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) {
		return nil, fmt.Errorf("fake tools are not compiled: %w", tools.ErrUpstreamGone)
	})
	var list []*tools.Tool
	for _, s := range w.subjects {
		t := *s.tool
		t.Connector = line{s.fake, g}
		list = append(list, &t)
	}
	require.NoError(w.t, registry.Set(list))
	return registry
}

// start starts the n-th gateway over the shared store.
func (w *world) start(n int) *gateway {
	t, ctx := w.t, context.Background()
	g := &gateway{n: n}
	var store ledger.Store = &shaky{Store: w.store, faults: w.faults, g: g}
	if w.spoil != nil {
		store = w.spoil(store)
	}
	var err error
	g.ledger, err = ledger.Open(ctx, ledger.Config{Store: store, Now: w.clock.now})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: g.ledger.ID(), Keys: w.keys, Now: w.clock.now})
	require.NoError(t, err)
	registry := w.tools(g)
	spool, err := commit.OpenSpool(filepath.Join(w.dir, fmt.Sprint("spool", n)), w.clock.now)
	require.NoError(t, err)
	person, owner := approvals.Directory(w.store), fmt.Sprint("gateway-", n)
	const poll = 10 * time.Millisecond
	g.executor = commit.NewExecutor(commit.ExecutorConfig{
		Ledger: g.ledger, Store: store, Registry: registry, Person: person, Owner: owner, Spool: spool, Poll: poll,
	})
	reconciler := reconcile.NewReconciler(reconcile.ReconcilerConfig{
		Ledger: g.ledger, Store: store, Registry: registry, Executor: g.executor, Owner: owner, Poll: poll,
	})
	sweeper := reconcile.New(reconcile.Config{Ledger: g.ledger, Store: store, Owner: owner, Poll: poll})
	g.sessions = identity.NewSessions(w.identity, identity.SessionsConfig{
		OnError: func(rw http.ResponseWriter, _ *http.Request, err error) {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		},
	})
	served, err := api.New(api.Config{
		ReferenceScript: "/none.js", Ledger: g.ledger, Registry: registry,
		Preview:   preview.New(preview.Config{Ledger: g.ledger, Store: store, Registry: registry, Signer: signer}),
		Commit:    commit.New(commit.Config{Ledger: g.ledger, Registry: registry, Signer: signer, Executor: g.executor}),
		Approvals: approvals.New(approvals.Config{Ledger: g.ledger, Person: person}),
		Identity:  w.identity, Sessions: g.sessions, Keys: w.keys, Ask: reconciler.AskNow,
		Receipt: func(context.Context, string, string) (string, json.RawMessage, error) {
			return "", nil, errors.New("nobody asks for receipts here")
		},
		Hosts: []string{"127.0.0.1"}, PublicURL: "http://127.0.0.1", RatePerMinute: 1_000_000, Burst: 1_000_000, Now: w.clock.now,
	})
	require.NoError(t, err)
	g.server = httptest.NewUnstartedServer(nil)
	g.server.Config = api.Hardened(served, slog.New(slog.DiscardHandler))
	g.server.Start()

	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{g.executor.Run, reconciler.Run, sweeper.Run} {
		wg.Go(func() { _ = run(running) })
	}
	g.stop = sync.OnceFunc(func() {
		g.server.CloseClientConnections()
		g.server.Close()
		cancel()
		wg.Wait()
	})
	w.ever = append(w.ever, g)
	return g
}

// gateway gives the n-th as it runs now.
func (w *world) gateway(n int) *gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gateways[n]
}

// restart kills a gateway and starts it again on the same store and spool. What it
// was doing is cut off: it reaches nothing any more, its callers' connections
// break, and its memory is gone.
func (w *world) restart(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.gateways[n]
	old.dead.Store(true)
	old.stop()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = old.executor.Drain(gone) // ends its patience with a store that it can't reach
	w.gateways[n] = w.start(n)
	w.faults.met("gateways restarted")
}

// settle lets the world come to rest: the store is well, no reply is kept back, and
// time passes, the faster the longer it takes, until nothing moves by itself any
// more.
func (w *world) settle() error {
	w.t.Helper()
	w.faults.stop()
	w.holds.end()
	defer w.signIn()
	for _, s := range w.subjects {
		_, err := w.gateways[0].ledger.Freeze(context.Background(), ledger.Scope{Tenant: tenant, Tool: s.tool.Name}, ledger.FreezeNew, ledger.Gateway("test"), "the end")
		if err != nil {
			return err
		}
	}
	limit := time.After(time.Minute)
	for step := 2 * time.Second; !w.rests(); step = min(step+step/50, time.Minute) {
		select {
		case <-limit:
			return errors.New("something moves for ever, or waits unseen (I21)")
		case <-time.After(2 * time.Millisecond):
			w.clock.advance(step)
		}
	}
	return nil
}

// rests reports that everything that is there waits for people, or has ended.
func (w *world) rests() bool {
	w.t.Helper()
	page, err := w.store.List(context.Background(), ledger.Filter{
		Tenant: tenant, States: []ledger.State{ledger.Running, ledger.Unknown}, Limit: 200,
	})
	require.NoError(w.t, err)
	for _, op := range page.Operations {
		if op.State == ledger.Running || !op.OnList {
			return false
		}
	}
	return true
}

// close stops everything and removes the files.
func (w *world) close() {
	w.faults.stop()
	w.holds.end()
	for _, g := range w.ever {
		g.stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		require.NoError(w.t, g.executor.Drain(ctx))
		cancel()
	}
	w.http.CloseIdleConnections()
	require.NoError(w.t, w.store.Close())
	require.NoError(w.t, os.RemoveAll(w.dir))
}
