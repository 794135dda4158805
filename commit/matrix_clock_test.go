package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// beside is a second gateway on the same store, whose clock is off. The store's own
// clock is right.
func (r *rig) beside(off time.Duration) *rig {
	r.t.Helper()
	now := func() time.Time { return r.clock.Now().Add(off) }
	b := &rig{t: r.t, dir: r.dir, clock: r.clock, db: r.db, registry: r.registry, keys: r.keys, people: r.people}
	var err error
	b.ledger, err = ledger.Open(context.Background(), ledger.Config{Store: r.db, Now: now})
	require.NoError(r.t, err)
	b.signer, err = tokens.New(tokens.Config{Issuer: b.ledger.ID(), Keys: r.keys, Now: now})
	require.NoError(r.t, err)
	b.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: b.ledger, Store: r.db, Registry: r.registry, Person: b.person, Owner: "beside"})
	b.previews = preview.New(preview.Config{Ledger: b.ledger, Store: r.db, Registry: r.registry, Signer: b.signer})
	b.commits = commit.New(commit.Config{Ledger: b.ledger, Registry: r.registry, Signer: b.signer, Executor: b.executor})
	b.approvals = approvals.New(approvals.Config{Ledger: b.ledger, Person: b.person})
	b.reconciler = b.reconcilerWith(func(c *reconcile.ReconcilerConfig) { c.Owner = "beside" })
	b.sweeper = reconcile.New(reconcile.Config{Ledger: b.ledger, Store: r.db, Owner: "beside"})
	return b
}

// steadily starts it anew by the store's clock, as the program does, connectors too.
func (r *rig) steadily(list ...*tools.Tool) {
	r.t.Helper()
	r.steady = true
	r.restart()
	r.endReconciling()
	for _, tool := range list {
		tooltest.FakeOf(tool).Now = r.db.Now
	}
}

// all lets every loop of a gateway look, again and again while time goes by.
func (r *rig) all(times int, pass time.Duration) {
	r.t.Helper()
	for range times {
		r.clock.Add(pass)
		for _, once := range []func(context.Context) (int, error){r.executor.RunOnce, r.sweeper.RunOnce, r.reconciler.RunOnce} {
			_, err := once(context.Background())
			require.NoError(r.t, err)
			require.NoError(r.t, r.executor.Drain(context.Background()))
		}
	}
}

// keyedFor is a tool that remembers keys for an hour and can't be asked.
func keyedFor() (name string, opts []tooltest.Option) {
	return "hold_order", []tooltest.Option{tooltest.HonoursKey(time.Hour)}
}

// TestMatrix_Row24_ClockOff: one gateway's clock is 10 minutes off. It may delay,
// expire or hand over; it revives nothing that is over, and nothing is sent twice
// (I19). That a start is refused above 60 s is TestMatrix_Row24_StartRefused in
// cmd/countersign.
func TestMatrix_Row24_ClockOff(t *testing.T) {
	const off = 10 * time.Minute
	t.Run("behind: an expired token opens nothing", func(t *testing.T) {
		r := newRig(t, tooltest.FakeTool("hold_order"))
		b := r.beside(-off)
		p := r.preview(agent, "hold_order", args("ord_1"))
		r.clock.Add(p.Preview.ExpiresAt.Sub(r.clock.Now()))
		_, err := b.commit(agent, "hold_order", p.Token)
		require.Error(t, err)
		require.Zero(t, r.count())
		// Nor one that its own clock finds fresh.
		q := b.preview(agent, "hold_order", args("ord_2"))
		_, err = b.commit(agent, "hold_order", q.Token)
		requireCode(t, err, fault.TokenExpired)
		require.Zero(t, r.count())
	})
	t.Run("behind: a round that is over is not decided, and not sent", func(t *testing.T) {
		tool := refund()
		r := newRig(t, tool)
		b := r.beside(-off)
		open := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
		yes := r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation
		r.clock.Add(59 * time.Minute)
		r.approve(carl, yes)
		r.clock.Add(2 * time.Minute) // both rounds are over; its clock says 51 minutes
		_, err := b.decide(carl, open, "approve", "")
		requireCode(t, err, fault.InvalidState)
		require.Equal(t, ledger.AwaitingApproval, r.op(open.ID).State)
		b.all(3, 11*time.Second)
		require.Empty(t, tooltest.FakeOf(tool).Requests())
		require.Equal(t, ledger.Pending, r.op(yes.ID).State, "it waits for who knows the time")
		_, err = r.sweeper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, ledger.Expired, r.op(open.ID).State)
		require.Equal(t, ledger.Expired, r.op(yes.ID).State)
	})
	t.Run("behind: a key that the tool has forgotten is not used again", func(t *testing.T) {
		name, opts := keyedFor()
		tool := tooltest.FakeTool(name, opts...)
		r := newRig(t, tool)
		r.endReconciling()
		b := r.beside(-off)
		tooltest.FakeOf(tool).Script(tooltest.LoseReply())
		op := r.inDoubt(name)
		r.clock.Add(time.Hour - 2*time.Minute) // past the margin; its clock says 48 minutes
		b.all(8, 11*time.Second)
		require.Len(t, tooltest.FakeOf(tool).Requests(), 1)
		r.all(3, 11*time.Second)
		require.Len(t, tooltest.FakeOf(tool).Requests(), 1)
		require.True(t, r.op(op.ID).OnList)
	})
	t.Run("ahead: a lease is lost early, and nothing is sent twice", func(t *testing.T) {
		for name, opts := range map[string][]tooltest.Option{"no keys": nil, "honours keys": {tooltest.HonoursKey(24 * time.Hour)}} {
			t.Run(name, func(t *testing.T) {
				tool := tooltest.FakeTool("hold_order", opts...)
				r := newRig(t, tool)
				r.endReconciling()
				b := r.beside(off)
				release := make(chan struct{})
				fake := tooltest.FakeOf(tool).Script(tooltest.Held(release, tooltest.Succeed()))
				res, err := r.commits.Commit(t.Context(), commitNow(r.preview(agent, "hold_order", args("ord_1")).Token))
				require.NoError(t, err)
				<-fake.Arrived()
				b.all(3, time.Second) // it takes the worker for dead
				require.Contains(t, r.verbs(res.Operation.ID), ledger.VerbLoseLease)
				close(release)
				require.NoError(t, r.executor.Drain(t.Context()))
				require.NoError(t, b.executor.Drain(t.Context()))
				require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State, "the late answer counts")
				require.Len(t, fake.Effects(), 1)
				if opts == nil {
					require.Len(t, fake.Requests(), 1)
				}
			})
		}
	})
	t.Run("ahead: what waits expires, and is not approved", func(t *testing.T) {
		tool := refund()
		r := newRig(t, tool)
		b := r.beside(off)
		op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
		r.clock.Add(51 * time.Minute)
		b.all(1, time.Second)
		require.Equal(t, ledger.Expired, r.op(op.ID).State)
		require.Empty(t, tooltest.FakeOf(tool).Requests())
	})
	t.Run("steps to and fro while it works", func(t *testing.T) {
		tool := tooltest.FakeTool("hold_order")
		r := newRig(t, tool)
		r.steadily(tool)
		for i, step := range []time.Duration{time.Second, -time.Second, off, -2 * off, off} { // leap seconds and worse
			r.clock.Add(step)
			op := r.do(agent, "hold_order", args("ord_"+string(rune('a'+i)))).Operation
			require.Equal(t, ledger.Succeeded, op.State, "%s", step)
		}
		require.Len(t, tooltest.FakeOf(tool).Requests(), 5)
	})
}

// TestMatrix_Row25_StoreClockGoesBack: the clock under the whole gateway goes back by
// an hour. What had expired stays so, also behind a restart: a token, a round that
// was waited for, a round that was approved, the memory of a tool for a key. What is
// new goes on at once. storetest has it for every store.
func TestMatrix_Row25_StoreClockGoesBack(t *testing.T) {
	name, opts := keyedFor()
	keyed, asked, free := tooltest.FakeTool(name, opts...), refund(), tooltest.FakeTool("free")
	r := newRig(t, keyed, asked, free)
	r.steadily(keyed, asked, free)
	tooltest.FakeOf(keyed).Script(tooltest.LoseReply())
	doubt := r.inDoubt(name)
	open := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	yes := r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation
	r.clock.Add(55 * time.Minute)
	r.approve(carl, yes)
	token := r.preview(agent, "free", args("ord_1")).Token
	r.clock.Add(10 * time.Minute)
	_, err := r.commit(agent, "free", token)
	requireCode(t, err, fault.TokenExpired)

	r.clock.Add(-time.Hour)
	for _, when := range []string{"at once", "behind a restart"} {
		_, err = r.commit(agent, "free", token)
		requireCode(t, err, fault.TokenExpired)
		_, err = r.decide(carl, open, "approve", "")
		requireCode(t, err, fault.InvalidState)
		r.all(4, time.Second)
		require.Equal(t, ledger.Expired, r.op(open.ID).State, when)
		require.Equal(t, ledger.Expired, r.op(yes.ID).State, when)
		require.Empty(t, tooltest.FakeOf(asked).Requests(), when)
		require.Len(t, tooltest.FakeOf(keyed).Requests(), 1, when)
		require.True(t, r.op(doubt.ID).OnList, when)
		fresh := r.do(agent, "free", args(map[string]string{"at once": "ord_2"}[when]+"ord_3")).Operation
		require.Equal(t, ledger.Succeeded, fresh.State, "what is new goes on, %s", when)
		r.steadily(keyed, asked, free)
	}
}
