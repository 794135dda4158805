package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestLiveness_ReleasedAndNeverSent: an operation that nobody was asked about,
// whose first try was not sent and whose guard does not answer any more, does
// not wait for ever (I21): it expires as a round does.
func TestLiveness_ReleasedAndNeverSent(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	tooltest.FakeOf(hold).Script(tooltest.Unsent())
	p := r.preview(agent, "hold_order", args("ord_1"))
	res, err := r.commits.Commit(t.Context(), commitNow(p.Token))
	require.NoError(t, err)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Equal(t, ledger.Pending, r.op(res.Operation.ID).State)
	tooltest.FakeOf(hold).FailGuard(fault.New(fault.UpstreamTimeout, "no answer"))
	for range 70 {
		r.clock.Add(time.Minute)
		r.work()
		_, err := r.sweeper.RunOnce(t.Context())
		require.NoError(t, err)
	}
	got := r.op(res.Operation.ID)
	require.Equal(t, ledger.Expired, got.State)
	require.NotContains(t, got.Reason.Text, "approved", "nobody was asked")
	require.Empty(t, tooltest.FakeOf(hold).Requests())
}

// TestLiveness_ConnectorPanicsInTheGuard: a connector that breaks off before
// the mark leaves the operation pending and the process alive (matrix row 50).
func TestLiveness_ConnectorPanicsInTheGuard(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	fake := tooltest.FakeOf(tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	tool.Connector = hooked{Connector: fake, guard: func(context.Context, tools.Plan) (tools.Guard, error) { panic("odd data") }}
	r.work()
	require.Equal(t, ledger.Pending, r.op(op.ID).State)
	tool.Connector = fake
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

// TestLiveness_NothingIsSentPastTheRound: an approved operation whose round is
// over is not sent, whoever looks first, the executor or the sweeper (I12).
func TestLiveness_NothingIsSentPastTheRound(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	slow := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	r.clock.Add(59 * time.Minute)
	r.approve(carl, slow)
	r.clock.Add(5 * time.Minute)
	r.work()
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	require.Equal(t, ledger.Expired, r.op(slow.ID).State)

	// Also when the time runs out between the last look and the mark.
	late := r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation
	r.clock.Add(59 * time.Minute)
	r.approve(carl, late)
	fake := tooltest.FakeOf(tool)
	tool.Connector = hooked{Connector: fake, guard: func(ctx context.Context, p tools.Plan) (tools.Guard, error) {
		g, err := fake.Guard(ctx, p)
		r.clock.Add(2 * time.Minute)
		g.ReadAt = r.clock.Now()
		return g, err
	}}
	r.work()
	require.Empty(t, fake.Requests())
	require.Equal(t, ledger.Expired, r.op(late.ID).State)
}

// TestLiveness_OldGuardsAreReadAgain: guards that were read too long before the
// mark don't count; nothing is sent on them.
func TestLiveness_OldGuardsAreReadAgain(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	fake := tooltest.FakeOf(tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	reads := 0
	tool.Connector = hooked{Connector: fake, guard: func(ctx context.Context, p tools.Plan) (tools.Guard, error) {
		g, err := fake.Guard(ctx, p)
		if reads++; reads < 3 {
			r.clock.Add(11 * time.Second)
		}
		return g, err
	}}
	r.work()
	require.Equal(t, 3, reads)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

// TestLiveness_RequirementThatCannotBeRead: an operation whose requirement this
// program does not know is not sent (I20).
func TestLiveness_RequirementThatCannotBeRead(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	store.open = func(_ context.Context, op *ledger.Operation) error {
		op.State, op.Requirement.Outcome = ledger.Pending, "approve_twice"
		return nil
	}
	p := r.preview(agent, "refund_payment", args("pay_1", "amount", 100))
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "refund_payment", Token: p.Token}) // it waits for nothing
	require.NoError(t, err)
	r.work()
	require.Equal(t, ledger.Expired, r.op(res.Operation.ID).State)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}
