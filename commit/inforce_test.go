package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestInForce_ReloadedWhileEvaluated: a stricter policy that is in force once
// it is acknowledged also holds for a dispatch whose evaluation began before
// (I5, S29): what was evaluated is compared with the guard row of the mark.
func TestInForce_ReloadedWhileEvaluated(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	store.plan = func() {
		strict := refund(tooltest.Versioned(2), tooltest.WithApproval(tooltest.Approve("support", 2)))
		require.NoError(t, r.registry.Set([]*tools.Tool{strict}))
		r.inForce()
	}
	r.work()
	require.Nil(t, store.plan, "the reload happened in the middle")
	require.Empty(t, tooltest.FakeOf(tool).Requests(), "one yes is not enough any more")
	r.work()
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Equal(t, map[string]int{"support": 2}, r.op(op.ID).Requirement.Groups)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

// TestInForce_LoadedElsewhere: a gateway that has not loaded what the guard row
// says is in force sends nothing.
func TestInForce_LoadedElsewhere(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	_, _, err := r.ledger.ChangeGuard(t.Context(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools["refund_payment"] = "sha256:newer" })
	require.NoError(t, err)
	r.work()
	require.Equal(t, ledger.Pending, r.op(op.ID).State)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	r.inForce()
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

// TestInForce_OpensNothingLoadedElsewhere: nor does it open anything by rules that
// are not in force any more.
func TestInForce_OpensNothingLoadedElsewhere(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	p := r.preview(agent, "hold_order", args("ord_1"))
	_, _, err := r.ledger.ChangeGuard(t.Context(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools["hold_order"] = "sha256:newer" })
	require.NoError(t, err)
	_, err = r.commit(agent, "hold_order", p.Token)
	requireCode(t, err, fault.ToolChanged)
	require.Zero(t, r.count())
	require.Empty(t, tooltest.FakeOf(hold).Requests())
}

// TestInForce_ApproverDisabledWhileEvaluated: once an operator's disabling is
// acknowledged, no dispatch that counted their yes before is marked (I12).
func TestInForce_ApproverDisabledWhileEvaluated(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	fake := tooltest.FakeOf(tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	tool.Connector = hooked{Connector: fake, guard: func(ctx context.Context, p tools.Plan) (tools.Guard, error) {
		r.set(policy.Person{ID: carl.ID, Name: "carl", Groups: carl.Groups, Disabled: true})
		require.NoError(t, r.ledger.PeopleChanged(ctx, tenant))
		return fake.Guard(ctx, p)
	}}
	r.work()
	require.Empty(t, fake.Requests())
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
}
