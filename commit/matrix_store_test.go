package commit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// life is one intent from its preview to its end, for tools that can be asked: a
// person agrees, it is sent, its reply is lost, and the lookup finds it. Whoever
// meets an error tries again, as agents, people and loops do.
type life struct {
	*rig
	store *sited
	tool  *tools.Tool
	n     int
	op    string
	token string
}

func newLife(t *testing.T) *life {
	t.Helper()
	tool := refund(tooltest.WithLookup(tools.Strong))
	l := &life{rig: newRig(t, tool), store: &sited{}, tool: tool}
	l.between = func(s ledger.Store) ledger.Store { l.store.Store = s; return l.store }
	l.again()
	return l
}

// again starts the gateway anew; nothing runs beside the test.
func (l *life) again() {
	l.restart()
	l.endReconciling()
	// Loops take their work through the same door.
	l.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: l.ledger, Store: l.store, Registry: l.registry, Person: l.person, Owner: "test", Spool: l.spool()})
	l.commits = commit.New(commit.Config{Ledger: l.ledger, Registry: l.registry, Signer: l.signer, Executor: l.executor})
	l.previews = preview.New(preview.Config{Ledger: l.ledger, Store: l.store, Registry: l.registry, Signer: l.signer})
	l.reconciler = l.reconcilerWith(func(c *reconcile.ReconcilerConfig) { c.Store, c.Executor = l.store, l.executor })
	l.sweeper = reconcile.New(reconcile.Config{Ledger: l.ledger, Store: l.store, Owner: "test"})
}

func (l *life) spool() *commit.Spool {
	s, err := commit.OpenSpool(l.spoolDir(), l.clock.Now)
	require.NoError(l.t, err)
	return s
}

// begin starts the next intent.
func (l *life) begin() {
	l.n, l.op, l.token = l.n+1, "", ""
	tooltest.FakeOf(l.tool).Script(tooltest.LoseReply())
}

// step does what is next, once. It says what went wrong, if anything did.
func (l *life) step(ctx context.Context) error {
	waits, err := l.act(ctx)
	if err != nil || !waits {
		return err
	}
	return l.loops(ctx)
}

// act is what an agent or a person does next; waits says that it is the gateway's
// turn.
func (l *life) act(ctx context.Context) (waits bool, err error) {
	switch {
	case l.token == "":
		res, err := l.previews.Preview(ctx, preview.Request{Agent: agent, Tool: l.tool.Name, Args: args(fmt.Sprintf("pay_%d", l.n), "amount", 100), RequestID: "req"})
		if err == nil && res.Operation != nil {
			l.op, l.token = res.Operation.ID, "spent"
		} else if err == nil {
			l.token = res.Token
		}
		return false, err
	case l.op == "":
		res, err := l.commits.Commit(ctx, commit.Request{Agent: agent, Tool: l.tool.Name, Token: l.token, RequestID: "req"})
		if err == nil {
			l.op = res.Operation.ID
		}
		return false, err
	}
	op, err := l.ledger.Operation(ctx, tenant, l.op)
	if err != nil || op.State != ledger.AwaitingApproval {
		return true, err
	}
	card, err := l.approvals.Card(ctx, approvals.PersonOf(carl), tenant, l.op)
	if err != nil {
		return false, err
	}
	_, err = l.approvals.Decide(ctx, carl, l.op, approvals.Decision{Word: "approve", ShownDigest: card.ShownDigest})
	return false, err
}

// loops lets each of the gateway's loops look once.
func (l *life) loops(ctx context.Context) error {
	l.clock.Add(11 * time.Second)
	_, sent := l.executor.RunOnce(ctx)
	_, swept := l.sweeper.RunOnce(ctx)
	_, asked := l.reconciler.RunOnce(ctx)
	return errors.Join(sent, swept, asked)
}

// finish brings the intent to its end without any fault, and looks at everything.
func (l *life) finish(fault string) {
	l.t.Helper()
	for range 60 {
		_ = l.step(context.Background()) // what it says is looked at in the end
		require.NoError(l.t, l.executor.Drain(context.Background()))
		if l.op != "" && !l.now().State.Live() {
			break
		}
	}
	require.Equal(l.t, ledger.Succeeded, l.now().State, "%s: %v", fault, l.now().Reason)
	l.judge(fault)
}

func (l *life) now() ledger.Operation {
	op, err := l.db.Operation(context.Background(), tenant, l.op)
	require.NoError(l.t, err)
	return op
}

// judge compares what was sent with what was marked, and reads every event.
func (l *life) judge(fault string) {
	l.t.Helper()
	op := l.now()
	sent := 0
	for _, q := range tooltest.FakeOf(l.tool).Requests() {
		if q.Key.Upstream == op.UpstreamKey {
			sent++
		}
	}
	require.LessOrEqual(l.t, sent, 1, "%s: sent once", fault)
	require.LessOrEqual(l.t, sent, len(op.Attempts), "%s: nothing is sent without a mark", fault)
	state := ledger.State("")
	events, err := l.db.Events(context.Background(), tenant, op.ID)
	require.NoError(l.t, err)
	for _, e := range events {
		allowed := slices.Concat(ledger.Allowed(e.From, e.Verb, true, true), ledger.Allowed(e.From, e.Verb, true, false), ledger.Allowed(e.From, e.Verb, false, true), ledger.Allowed(e.From, e.Verb, false, false))
		require.Contains(l.t, allowed, e.To, "%s: %s from %s", fault, e.Verb, e.From)
		require.Equal(l.t, state, e.From, fault)
		state = e.To
	}
	require.Equal(l.t, op.State, state, fault)
	prev := ""
	for _, e := range events {
		require.True(l.t, e.Intact(prev), fault)
		prev = e.Hash
	}
	require.Equal(l.t, op.Chain, prev, fault)
}

// calls counts the store's calls of one whole life, and lets the test strike at one.
func (l *life) strikeAt(n int, strike func(call string) error) (struck *atomic.Value) {
	var mu sync.Mutex
	seen := 0
	struck = &atomic.Value{}
	l.store.set(func(call string) error {
		mu.Lock()
		seen++
		hit := seen
		mu.Unlock()
		if hit < n {
			return nil
		}
		if hit == n {
			struck.Store(fmt.Sprintf("call %d, %s", n, call))
		}
		if hit > n && strike("") == nil {
			return nil
		}
		return strike(call)
	})
	return struck
}

// TestMatrix_Row18_EachStoreCallFails: the n-th call of the store fails with an I/O
// error, once, or from then on for ever until the gateway is started anew; for every
// n of a whole life. Nothing is sent without a mark, nothing twice, no move is
// illegal, and it ends well once the store is there again.
func TestMatrix_Row18_EachStoreCallFails(t *testing.T) {
	broken := errors.New("disk I/O error")
	t.Run("once", func(t *testing.T) {
		l := newLife(t)
		for n := 1; ; n++ {
			l.begin()
			struck := l.strikeAt(n, func(call string) error {
				if call == "" { // only once
					return nil
				}
				return broken
			})
			for range 12 {
				_ = l.step(t.Context()) // whoever is told of it tries again
				require.NoError(t, l.executor.Drain(t.Context()))
			}
			l.store.set(nil)
			l.finish(fmt.Sprint("once at ", struck.Load()))
			if struck.Load() == nil {
				require.Greater(t, n, 40)
				return
			}
		}
	})
	t.Run("for ever", func(t *testing.T) {
		l := newLife(t)
		for n := 1; ; n += 2 { // each call or its neighbour
			l.begin()
			struck := l.strikeAt(n, func(string) error { return broken })
			for range 8 {
				_ = l.step(t.Context())
				short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				gone := l.executor.Drain(short) != nil
				if cancel(); gone {
					break // it holds an outcome that nobody takes
				}
			}
			if l.op != "" {
				l.judge(fmt.Sprint("while it is gone since ", struck.Load()))
			}
			l.store.set(nil)
			l.again()
			_, err := l.executor.Replay(t.Context())
			require.NoError(t, err)
			l.finish(fmt.Sprint("for ever since ", struck.Load()))
			if struck.Load() == nil {
				return
			}
		}
	})
}

// TestMatrix_Row50_PanicAtEachSite: the n-th call of the store breaks off with a
// panic, wherever it is made. Whoever asked is answered (api recovers handlers:
// TestDoors_Panic), every loop of the gateway lives on, and the operation comes to
// its end by its lease and the lookup; none is left running.
func TestMatrix_Row50_PanicAtEachSite(t *testing.T) {
	l := newLife(t)
	// What an agent or a person asks for runs in a handler.
	handled := func() (waits bool, err error) {
		defer func() {
			if p := recover(); p != nil {
				waits, err = true, fmt.Errorf("500: %v", p)
			}
		}()
		return l.act(t.Context())
	}
	for n := 1; ; n++ {
		l.begin()
		struck := l.strikeAt(n, func(call string) error {
			if call != "" {
				panic("wires crossed in " + call)
			}
			return nil
		})
		for range 12 {
			if waits, _ := handled(); waits {
				_ = l.loops(t.Context()) // nobody recovers for them here
			}
			require.NoError(t, l.executor.Drain(t.Context()))
		}
		l.store.set(nil)
		l.finish(fmt.Sprint("panic at ", struck.Load()))
		if struck.Load() == nil {
			require.Greater(t, n, 40)
			return
		}
	}
}

// TestMatrix_Row16_StoreAwayDuringTheMark: the store hangs while the dispatch mark is
// written, and is then gone; or it can't tell whether it wrote it. Nothing is sent.
// Later it is, once.
func TestMatrix_Row16_StoreAwayDuringTheMark(t *testing.T) {
	for name, gone := range map[string]error{
		"certainly not written": errors.New("connection refused"),
		"can't be told":         &ledger.Ambiguous{Err: errors.New("timed out")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.begin()
			for l.op == "" || l.now().State == ledger.AwaitingApproval {
				require.NoError(t, l.step(t.Context()))
			}
			hangs, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			l.store.set(func(call string) error {
				switch call {
				case "Apply.dispatch":
					once.Do(func() { close(hangs) })
					<-release
					return gone
				case "ByWrite": // gone as well
					return errors.New("connection refused")
				}
				return nil
			})
			l.clock.Add(11 * time.Second)
			_, err := l.executor.RunOnce(t.Context())
			require.NoError(t, err)
			<-hangs
			require.Empty(t, tooltest.FakeOf(l.tool).Requests(), "while the mark hangs")
			close(release)
			require.NoError(t, l.executor.Drain(t.Context()))
			require.Empty(t, tooltest.FakeOf(l.tool).Requests(), "nothing is sent without a mark")
			require.Equal(t, ledger.Pending, l.now().State)
			l.store.set(nil)
			l.finish(name)
			require.Len(t, tooltest.FakeOf(l.tool).Effects(), 1)
		})
	}
}

// TestMatrix_Row14_DelayedCopy: the first copy of each write gets stuck on its way;
// its repeat is applied, and then the copy arrives after all, at once and when
// everything is over. The version refuses it: it changes nothing.
func TestMatrix_Row14_DelayedCopy(t *testing.T) {
	for _, verb := range []ledger.Verb{ledger.VerbOpen, ledger.VerbApprove, ledger.VerbDispatch, ledger.VerbFinish, ledger.VerbResolve} {
		t.Run(string(verb), func(t *testing.T) {
			l := newLife(t)
			copies := &delayed{Store: l.store, verb: verb}
			l.between = func(s ledger.Store) ledger.Store { l.store.Store = s; return copies }
			l.again()
			l.begin()
			l.finish(string(verb))
			require.NotNil(t, copies.stuck, "a copy got stuck")
			op, chain := l.now(), l.verbs(l.op)
			err := copies.stuck(t.Context())
			var lost *ledger.Lost
			var refused *ledger.Refused
			if err != nil && !errors.As(err, &lost) && !errors.As(err, &refused) {
				require.NoError(t, err)
			}
			require.Equal(t, op, l.now())
			require.Equal(t, chain, l.verbs(l.op))
			require.Len(t, tooltest.FakeOf(l.tool).Requests(), 1)
		})
	}
}

// TestMatrix_Row13_AnswerLost: each write of a life is made, and the store's answer is
// lost. The writer looks for its write id and goes on: nothing is done twice. That
// nothing is sent on a mark that is not found is TestMatrix_Row16_StoreAwayDuringTheMark;
// an undo's writes are TestUndo_StoreAnswerLost.
func TestMatrix_Row13_AnswerLost(t *testing.T) {
	for _, verb := range []ledger.Verb{ledger.VerbOpen, ledger.VerbApprove, ledger.VerbDispatch, ledger.VerbFinish, ledger.VerbResolve} {
		t.Run(string(verb), func(t *testing.T) {
			l := newLife(t)
			lost := &delayed{Store: l.store, verb: verb, made: true}
			l.between = func(s ledger.Store) ledger.Store { l.store.Store = s; return lost }
			l.again()
			l.begin()
			l.finish(string(verb))
			require.NotNil(t, lost.stuck, "an answer was lost")
			require.Equal(t, []ledger.Verb{"open", "approve", "dispatch", "finish", "resolve"}, l.verbs(l.op))
			require.Len(t, tooltest.FakeOf(l.tool).Requests(), 1)
			decisions, err := l.db.Decisions(t.Context(), tenant, l.op)
			require.NoError(t, err)
			require.Len(t, decisions, 1)
		})
	}
}

// delayed is a store that can't tell what became of the first copy of a write: made,
// or kept back.
type delayed struct {
	ledger.Store
	verb  ledger.Verb
	made  bool
	stuck func(context.Context) error
}

func (d *delayed) first(ctx context.Context, do func(context.Context) error) error {
	d.stuck = do
	if d.made {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return &ledger.Ambiguous{Err: errors.New("no answer")}
}

func (d *delayed) Open(ctx context.Context, o ledger.Opening) error {
	if d.verb == ledger.VerbOpen && d.stuck == nil {
		return d.first(ctx, func(ctx context.Context) error { return d.Store.Open(ctx, o) })
	}
	return d.Store.Open(ctx, o)
}

func (d *delayed) Apply(ctx context.Context, t ledger.Transition) error {
	if t.Event.Verb == d.verb && d.stuck == nil {
		return d.first(ctx, func(ctx context.Context) error { return d.Store.Apply(ctx, t) })
	}
	return d.Store.Apply(ctx, t)
}

// TestMatrix_Row49_StateOfANewerProgram: a row stands in a state, or asks for people in
// a word, that only a newer program knows. This one shows it and moves it nowhere:
// nothing is guessed, nothing is sent.
func TestMatrix_Row49_StateOfANewerProgram(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	p := r.preview(agent, "refund_payment", args("pay_1", "amount", 100))
	op := r.approve(carl, r.mustCommit(agent, "refund_payment", p.Token).Operation)
	next := op
	next.State, next.Version, next.WriteID = "paused", op.Version+1, "w_newer"
	require.NoError(t, r.db.Apply(t.Context(), ledger.Transition{
		WriteID: "w_newer", Operation: next, Expect: op.Version,
		Event: ledger.Event{Operation: op.ID, Tenant: tenant, Verb: "pause", From: op.State, To: "paused", Version: next.Version, WriteID: "w_newer", At: r.clock.Now(), Prev: op.Chain},
	}))
	r.all(5, 5*time.Minute)
	require.NoError(t, r.executor.Dispatch(t.Context(), next))
	_, err := r.approvals.Decide(t.Context(), bob, op.ID, approvals.Decision{Word: "approve", ShownDigest: "x"})
	require.Error(t, err)
	_, err = r.commits.Cancel(t.Context(), tenant, op.ID, ledger.Gateway("test"), "")
	requireCode(t, err, fault.InvalidState)
	_, err = r.approvals.Resolve(t.Context(), carl, op.ID, ledger.Statement{Reason: "it looks unsent"})
	requireCode(t, err, fault.InvalidState)
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "refund_payment", Token: p.Token})
	require.NoError(t, err)
	require.EqualValues(t, "paused", res.Operation.State, "the repeat says how it stands")
	require.Equal(t, next, r.op(op.ID))
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	// Its key is not free.
	again, err := r.previews.Preview(t.Context(), preview.Request{Agent: agent, Tool: "refund_payment", Args: args("pay_1", "amount", 100)})
	require.NoError(t, err)
	require.Empty(t, again.Token)
	_, err = r.previews.Preview(t.Context(), preview.Request{Agent: agent, Tool: "refund_payment", Args: args("pay_1", "amount", 90)})
	requireCode(t, err, fault.IdempotencyKeyReused)
}
