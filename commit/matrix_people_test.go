package commit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestMatrix_Row28_ApproveAndRejectAtOnce: one person's yes would be enough, and
// another says no at the same instant: one of the two holds, both are told how it is,
// and it is sent or not accordingly.
func TestMatrix_Row28_ApproveAndRejectAtOnce(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	ends := map[ledger.State]int{}
	for i := range 40 {
		op := r.do(agent, "refund_payment", args(fmt.Sprint("pay_", i), "amount", 100)).Operation
		card, err := r.approvals.Card(t.Context(), approvals.PersonOf(carl), tenant, op.ID)
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		start := make(chan struct{})
		for j, d := range []struct {
			who  identity.Operator
			word string
		}{{carl, "approve"}, {bob, "reject"}} {
			wg.Go(func() {
				<-start
				_, errs[j] = r.approvals.Decide(context.Background(), d.who, op.ID, approvals.Decision{Word: d.word, ShownDigest: card.ShownDigest, Reason: "no"})
			})
		}
		close(start)
		wg.Wait()
		r.work()
		got := r.op(op.ID)
		ends[got.State]++
		winner, loser := 0, 1
		if got.State == ledger.Rejected {
			winner, loser = 1, 0
		}
		require.NoError(t, errs[winner])
		require.Equal(t, op.ID, requireCode(t, errs[loser], fault.InvalidState).Operation, "the other is told of it")
		decisions, err := r.ledger.Decisions(t.Context(), tenant, op.ID)
		require.NoError(t, err)
		require.Len(t, decisions, 1)
		require.Contains(t, []ledger.State{ledger.Succeeded, ledger.Rejected}, got.State)
	}
	require.Len(t, tooltest.FakeOf(tool).Requests(), ends[ledger.Succeeded])
}

// TestMatrix_Row32_PolicyDeleted: the rules of a tool are gone, or say deny, when what
// was approved should be sent, and when it should be opened: no rule is a refusal
// (I20).
func TestMatrix_Row32_PolicyDeleted(t *testing.T) {
	for name, rules := range map[string][]tools.ApprovalRule{"deleted": nil, "deny": {tooltest.Deny("not any more")}} {
		t.Run(name, func(t *testing.T) {
			tool := refund()
			r := newRig(t, tool)
			token := r.preview(agent, "refund_payment", args("pay_2", "amount", 100)).Token
			op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
			waits := r.do(agent, "refund_payment", args("pay_3", "amount", 100)).Operation
			bare := *tool
			bare.Approval = rules
			require.NoError(t, r.registry.Set([]*tools.Tool{&bare}))
			r.work()
			require.Equal(t, ledger.Expired, r.op(op.ID).State)
			require.Equal(t, "policy_denied", r.op(op.ID).Reason.Code)
			_, err := r.commit(agent, "refund_payment", token)
			requireCode(t, err, fault.PolicyDenied)
			r.approve(carl, waits)
			r.work()
			require.Equal(t, ledger.Expired, r.op(waits.ID).State)
			require.Empty(t, tooltest.FakeOf(tool).Requests())
		})
	}
}

// TestMatrix_Row34_DescriptorChanged: a new version of the tool comes into force
// behind the yes: what was approved is sent, by the version that it was opened with,
// byte for byte; the new version's connector sees nothing of it. A new commit of an
// old token is refused, and a withdrawn tool sends nothing.
func TestMatrix_Row34_DescriptorChanged(t *testing.T) {
	first, second := refund(), refund(tooltest.Versioned(2))
	r := newRig(t, first)
	plan := r.preview(agent, "refund_payment", args("pay_1", "amount", 100)).Preview.Plan
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	withdrawn := r.approve(carl, r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation)
	token := r.preview(agent, "refund_payment", args("pay_3", "amount", 100)).Token
	tooltest.FakeOf(second).Now = r.clock.Now
	require.NoError(t, r.registry.Set([]*tools.Tool{second}))
	r.inForce()
	before := r.op(op.ID)
	require.NoError(t, r.executor.Dispatch(t.Context(), before))
	got := r.op(op.ID)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, before.ToolVersion, got.ToolVersion)
	require.Len(t, tooltest.FakeOf(first).Requests(), 1)
	require.Equal(t, plan.Wire, tooltest.FakeOf(first).Requests()[0].Wire)
	require.Empty(t, tooltest.FakeOf(second).Requests())
	_, err := r.commit(agent, "refund_payment", token)
	requireCode(t, err, fault.ToolChanged)

	require.NoError(t, r.registry.Set(nil))
	r.inForce()
	r.work()
	require.Equal(t, ledger.Expired, r.op(withdrawn.ID).State)
	require.Equal(t, "tool_withdrawn", r.op(withdrawn.ID).Reason.Code)
	require.Len(t, tooltest.FakeOf(first).Requests(), 1)
	require.Empty(t, tooltest.FakeOf(second).Requests())
}

// TestMatrix_Row46_WaitingIsBounded: as many operations of one agent wait for people
// as may; what needs nobody, and what another agent asks, is not held up. A decision
// makes room.
func TestMatrix_Row46_WaitingIsBounded(t *testing.T) {
	r := newRig(t, refund(), tooltest.FakeTool("hold_order"))
	r.previews = preview.New(preview.Config{Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: r.signer, Waiting: 2})
	ask := func(a identity.Agent, payment string) error {
		_, err := r.previews.Preview(t.Context(), preview.Request{Agent: a, Tool: "refund_payment", Args: args(payment, "amount", 100)})
		return err
	}
	first := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	r.do(agent, "refund_payment", args("pay_2", "amount", 100))
	require.Positive(t, requireCode(t, ask(agent, "pay_3"), fault.QuotaExhausted).RetryAfter)
	require.NoError(t, ask(other, "pay_3"))
	require.Equal(t, ledger.Succeeded, r.do(agent, "hold_order", args("ord_1")).Operation.State)
	require.NoError(t, ask(agent, "pay_1"), "what stands is answered")
	r.approve(carl, first)
	require.NoError(t, ask(agent, "pay_3"))
}
