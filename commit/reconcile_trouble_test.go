package commit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/reconcile"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// reconcilerWith is one of the test's own beside the rig's.
func (r *rig) reconcilerWith(change func(*reconcile.ReconcilerConfig)) *reconcile.Reconciler {
	cfg := reconcile.ReconcilerConfig{
		Ledger: r.ledger, Store: r.db, Registry: r.registry, Executor: r.executor, Owner: "test", Rand: func() float64 { return 0 },
	}
	change(&cfg)
	return reconcile.NewReconciler(cfg)
}

// TestMatrix_Row04_LookupBlackHoled: a lookup that never comes back is given up
// after its time, is told to whoever raises alerts, and leaves the outcome
// unknown.
func TestMatrix_Row04_LookupBlackHoled(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	var log lines
	var told []tools.AnswerKind
	looker := r.reconcilerWith(func(c *reconcile.ReconcilerConfig) {
		c.AskFor = 5 * time.Millisecond
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.OnLookup = func(_ ledger.Operation, a tools.Answer, _ time.Duration) { told = append(told, a.Kind) }
	})
	fake.SwallowLookups(true)
	for range 3 {
		r.clock.Add(2 * time.Minute)
		_, err := looker.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	}
	require.Equal(t, []tools.AnswerKind{"failed", "failed", "failed"}, told)
	require.Equal(t, told, r.lookups(op.ID))
	require.Contains(t, log.String(), "a lookup failed")
	fake.SwallowLookups(false)
	r.clock.Add(10 * time.Minute)
	_, err := looker.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Len(t, fake.Requests(), 1)
}

// TestReconcile_SlowToolHoldsUpNobody: while one tool's lookups hang, more of its
// doubts than may be asked about at once, another tool's doubt is settled; and a
// stop ends the open questions without taking them for answers.
func TestReconcile_SlowToolHoldsUpNobody(t *testing.T) {
	slow := tooltest.FakeTool("slow_order", tooltest.WithLookup(tools.Eventual))
	quick := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, slow, quick)
	r.endReconciling()
	hanging := tooltest.FakeOf(slow)
	hanging.SwallowLookups(true)
	var doubts []ledger.Operation
	var op ledger.Operation
	for i := range 5 {
		hanging.Script(tooltest.LoseReply())
		doubts = append(doubts, r.inDoubtOf("slow_order", fmt.Sprintf("ord_%d", i)))
		if i == 0 { // the second claim brings two more of the slow one, which has room for one
			tooltest.FakeOf(quick).Script(tooltest.LoseReply())
			op = r.inDoubt("hold_order")
		}
	}

	looker := r.reconcilerWith(func(c *reconcile.ReconcilerConfig) { c.EachTool, c.AskFor = 2, time.Hour })
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = looker.Run(ctx) })
	require.Eventually(t, func() bool { return r.op(op.ID).State == ledger.Succeeded }, 10*time.Second, time.Millisecond)
	<-hanging.Asked()
	<-hanging.Asked()
	stop()
	ended.Wait()
	require.Equal(t, 2, hanging.Lookups(), "no more at once than allowed")
	for _, d := range doubts {
		require.Empty(t, r.lookups(d.ID), "a stop is no answer")
		require.Equal(t, ledger.Unknown, r.op(d.ID).State)
	}
}

// TestReconcile_ManyDoubtsOfOneTool: after an outage one tool has many more doubts
// than may be asked about at once. Each answer makes room for the next question:
// nobody waits for the next look, and hardly a claim is put off.
func TestReconcile_ManyDoubtsOfOneTool(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, hold)
	r.endReconciling()
	var doubts []ledger.Operation
	for i := range 40 {
		tooltest.FakeOf(hold).Script(tooltest.LoseReply())
		doubts = append(doubts, r.inDoubtOf("hold_order", fmt.Sprintf("ord_%d", i)))
	}
	counted := &deferrals{DoubtStore: r.db}
	looker := r.reconcilerWith(func(c *reconcile.ReconcilerConfig) { c.Store, c.EachTool, c.Poll = counted, 2, time.Hour })
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = looker.Run(ctx) })
	require.Eventually(t, func() bool {
		for _, d := range doubts {
			if r.op(d.ID).State != ledger.Succeeded {
				return false
			}
		}
		return true
	}, 30*time.Second, 5*time.Millisecond)
	stop()
	ended.Wait()
	require.Less(t, counted.n.Load(), int64(len(doubts)), "what there is no room for is not claimed")
}

// deferrals counts what was claimed in vain.
type deferrals struct {
	reconcile.DoubtStore
	n atomic.Int64
}

func (d *deferrals) Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error {
	d.n.Add(1)
	return d.DoubtStore.Defer(ctx, kind, op, until)
}

// TestReconcile_UpstreamGone: an operation whose upstream is no longer configured
// at its address is asked about nowhere else.
func TestReconcile_UpstreamGone(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	r.registry = tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) {
		return nil, fmt.Errorf("moved: %w", tools.ErrUpstreamGone)
	})
	looker := r.reconcilerWith(func(*reconcile.ReconcilerConfig) {})
	_, err := looker.RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, r.op(op.ID).OnList)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.Zero(t, tooltest.FakeOf(hold).Lookups())
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	_, err = looker.AskNow(t.Context(), tenant, op.ID)
	requireCode(t, err, fault.InvalidState)
}

// TestMatrix_Row38_KeyForgotten: an upstream that forgets keys makes a second
// effect out of the repeat. The question behind the repeat shows both: the tool is
// frozen, and the duplicate is counted.
func TestMatrix_Row38_KeyForgotten(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).ForgetKeysAfter(0).HideFromLookups(true)
	fake.Script(tooltest.LoseReply(), tooltest.Step{Do: func() { fake.HideFromLookups(false) }})
	op := r.inDoubt("hold_order")
	r.lookOften(2, 2*time.Second)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Len(t, fake.Effects(), 2, "the promise is broken")
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	g, err := r.ledger.Guard(t.Context(), tenant)
	require.NoError(t, err)
	f, frozen := g.Frozen("hold_order")
	require.True(t, frozen)
	require.Equal(t, ledger.FreezeAll, f.Level)
	tally, err := r.ledger.Tally(t.Context(), tenant)
	require.NoError(t, err)
	require.EqualValues(t, 1, tally.Duplicates)
}

// A tool that keeps its word is not frozen by that question, and nothing is
// written down for it.
func TestReconcile_RepeatIsVerified(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).HideFromLookups(true)
	fake.Script(tooltest.LoseReply(), tooltest.Step{Do: func() { fake.HideFromLookups(false) }})
	op := r.inDoubt("hold_order")
	r.lookOften(2, 2*time.Second)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(op.ID)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, ledger.DoubtReconciled, got.Doubt)
	require.Equal(t, []ledger.Verb{"open", "finish", "retry", "finish"}, r.verbs(op.ID))
	require.Equal(t, 2, fake.Lookups(), "once before the repeat, once behind it")
	require.Equal(t, []tools.AnswerKind{"absent"}, r.lookups(op.ID))
	require.Len(t, fake.Effects(), 1)
	g, err := r.ledger.Guard(t.Context(), tenant)
	require.NoError(t, err)
	require.Empty(t, g.Freezes)
}

// TestMatrix_Row39_AuthoritativeSourceLies: a source that was declared strong says
// "absent" often enough and behind the settle window, and it was a lie: the reply
// that comes after all reopens the operation and freezes the tool.
func TestMatrix_Row39_AuthoritativeSourceLies(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	r.endReconciling()
	release := make(chan struct{})
	fake := tooltest.FakeOf(hold).HideFromLookups(true)
	fake.Script(tooltest.Held(release, tooltest.Succeed()))
	res, err := r.commits.Commit(t.Context(), commitNow(r.preview(agent, "hold_order", args("ord_1")).Token))
	require.NoError(t, err)
	<-fake.Arrived()
	r.clock.Add(time.Minute)
	_, err = r.sweeper.RunOnce(t.Context())
	require.NoError(t, err)
	r.lookOften(2, time.Minute)
	require.Equal(t, ledger.Unknown, r.op(res.Operation.ID).State, "not before the settle window and the rounds")
	r.lookOften(4, 2*time.Minute)
	require.Equal(t, ledger.Failed, r.op(res.Operation.ID).State)

	close(release)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(res.Operation.ID)
	require.Contains(t, r.verbs(got.ID), ledger.VerbContradict)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, "eff_1", got.EffectID)
	g, err := r.ledger.Guard(t.Context(), tenant)
	require.NoError(t, err)
	_, frozen := g.Frozen("hold_order")
	require.True(t, frozen)
}

// TestMatrix_Row40_KeyForgottenDuringAnOutage: the gateway was away for longer than
// the tool remembers keys: the tool is asked first, and never sent the same again,
// for that would be a second effect.
func TestMatrix_Row40_KeyForgottenDuringAnOutage(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).HideFromLookups(true)
	fake.Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	r.clock.Add(25 * time.Hour)
	r.restart()
	r.endReconciling()
	r.lookOften(310, 5*time.Minute)
	require.Len(t, fake.Requests(), 1)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.True(t, r.op(op.ID).OnList)
	require.LessOrEqual(t, len(r.lookups(op.ID)), 300, "its evidence is bounded")

	// The lookup shows it again, and a person asks.
	fake.HideFromLookups(false)
	r.clock.Add(time.Minute)
	got, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, got.State)
	require.False(t, got.OnList)
	require.Len(t, fake.Effects(), 1)
}

// TestReconcile_AskNowIsBounded: whoever presses again and again asks once a
// second, and what can't be asked is refused.
func TestReconcile_AskNowIsBounded(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	letter := tooltest.FakeTool("send_letter")
	r := newRig(t, hold, letter)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).HideFromLookups(true)
	fake.Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	for range 5 {
		_, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
		require.NoError(t, err)
	}
	require.Equal(t, 1, fake.Lookups())
	r.clock.Add(time.Second)
	_, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, 2, fake.Lookups())
	require.Equal(t, []tools.AnswerKind{"absent", "absent"}, r.lookups(op.ID))

	tooltest.FakeOf(letter).Script(tooltest.LoseReply())
	unaskable := r.inDoubt("send_letter")
	_, err = r.reconciler.AskNow(t.Context(), tenant, unaskable.ID)
	requireCode(t, err, fault.InvalidState)
	_, err = r.reconciler.AskNow(t.Context(), tenant, "op_nobody")
	requireCode(t, err, fault.OperationNotFound)
	_, err = r.reconciler.AskNow(t.Context(), "another", op.ID)
	requireCode(t, err, fault.OperationNotFound)
}

// TestReconcile_FrozenIsStillAsked: while everything is frozen nothing is sent
// again, but the questions go on and settle it.
func TestReconcile_FrozenIsStillAsked(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).LagLookups(30*time.Second, tools.Absent)
	fake.Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	r.freeze("hold_order", ledger.FreezeAll)
	r.lookOften(3, 8*time.Second)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.False(t, r.op(op.ID).OnList)
	r.lookOften(2, 20*time.Second)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Len(t, fake.Requests(), 1)
}

// TestReconcile_FreezeRacesWithTheRepeat: a freeze between the look at the guard
// row and the mark of the repeat wins (I14).
func TestReconcile_FreezeRacesWithTheRepeat(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	store.plan = func() { r.freeze("hold_order", ledger.FreezeAll) } // read between guard and mark
	r.lookOften(3, 10*time.Second)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	require.True(t, r.op(op.ID).OnList)
	require.Contains(t, r.handedOver(op.ID), "frozen")
}

// handedOver is what the people's list says about an operation.
func (r *rig) handedOver(id string) string {
	events, err := r.ledger.Events(context.Background(), tenant, id)
	require.NoError(r.t, err)
	var b strings.Builder
	for _, e := range events {
		if e.Verb == ledger.VerbHandOver {
			b.WriteString(e.Reason.Text)
		}
	}
	return b.String()
}

// TestReconcile_TwoGateways: two processes that look at one doubt at the same time
// send one repeat.
func TestReconcile_TwoGateways(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseReply(), tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	r.clock.Add(2 * time.Second)
	both := bothClaim{r.db, op}
	var ended sync.WaitGroup
	for range 2 {
		looker := r.reconcilerWith(func(c *reconcile.ReconcilerConfig) { c.Store = both })
		ended.Go(func() { _, _ = looker.RunOnce(context.Background()) })
	}
	ended.Wait()
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Len(t, tooltest.FakeOf(hold).Requests(), 2, "the first request and one repeat")
	require.Len(t, r.op(op.ID).Attempts, 2)
}

// bothClaim is a store whose soft claims hold nobody off.
type bothClaim struct {
	reconcile.DoubtStore
	op ledger.Operation
}

func (b bothClaim) Due(context.Context, ledger.DueQuery) ([]ledger.Operation, error) {
	return []ledger.Operation{b.op}, nil
}
