package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// drifted opens an operation of the tool, approves it, and lets the world move.
func drifted(r *rig, fake *tooltest.Fake) ledger.Operation {
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	fake.SetWorld("refunded", 1)
	return op
}

// TestRevise_TargetMoved: the target is fixed at open (I13); a plan that would
// go elsewhere is another operation, and nobody is asked about it in vain.
func TestRevise_TargetMoved(t *testing.T) {
	tool := refund()
	fake := tooltest.FakeOf(tool)
	fake.SetWorld("refunded", 0)
	r := newRig(t, tool)
	op := drifted(r, fake)
	tool.Connector = hooked{Connector: fake, preview: func(p *tools.Plan) error {
		p.Target += "/elsewhere"
		return nil
	}}
	r.work()
	got := r.op(op.ID)
	require.Equal(t, ledger.Expired, got.State)
	require.Equal(t, 1, got.Round)
	require.Equal(t, "target_changed", got.Reason.Code)
	require.Empty(t, fake.Requests())
}

// TestRevise_WarningsStay: what the reader of the first round was warned of
// stands on the card of the second.
func TestRevise_WarningsStay(t *testing.T) {
	tool := refund()
	fake := tooltest.FakeOf(tool)
	fake.SetWorld("refunded", 0)
	check := tool.CheckArgs
	tool.CheckArgs = func(in map[string]any) (map[string]any, []tools.Warning, error) {
		out, _, err := check(in)
		return out, []tools.Warning{{Code: "invisible_text", Pointer: "/note", Text: "There is text that can't be seen."}}, err
	}
	r := newRig(t, tool)
	op := drifted(r, fake)
	r.work()
	card, err := r.approvals.Card(t.Context(), approvals.PersonOf(carl), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, 2, card.Operation.Round)
	require.Len(t, card.Plan.Warnings, 1)
	require.Equal(t, "invisible_text", card.Plan.Warnings[0].Code)
}

// TestRevise_PolicyInForceForTheNewPlan: a new round asks for what the policy
// in force wants for the new plan, not for the old one.
func TestRevise_PolicyInForceForTheNewPlan(t *testing.T) {
	amount := int64(10000)
	effects := tooltest.WithEffects(func(map[string]any) []tools.Effect {
		return []tools.Effect{{Verb: "refund", Target: "x", Count: 1, Money: &tools.Money{Amount: amount, Currency: "EUR"}}}
	})
	tool := refund(effects, tooltest.WithApproval(tooltest.Approve("support", 1)))
	fake := tooltest.FakeOf(tool)
	fake.SetWorld("refunded", 0)
	r := newRig(t, tool)
	op := drifted(r, fake)
	amount = 60000
	require.NoError(t, r.registry.Set([]*tools.Tool{refund(tooltest.Versioned(2))}))
	r.inForce()
	r.work()
	got := r.op(op.ID)
	require.Equal(t, ledger.AwaitingApproval, got.State)
	require.Equal(t, 2, got.Round)
	require.Equal(t, map[string]int{"finance": 2, "support": 1}, got.Requirement.Groups)
}

// TestRevise_AgeInForce: how old a yes may be is the stricter of pinned and in
// force.
func TestRevise_AgeInForce(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	strict := refund(tooltest.Versioned(2))
	strict.ApprovalMaxAge = time.Minute
	require.NoError(t, r.registry.Set([]*tools.Tool{strict}))
	r.inForce()
	r.clock.Add(2 * time.Minute)
	r.work()
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

// TestRevise_AgeAtTheMark: a gateway that sleeps between its last look at the yes
// and the mark does not send on a yes that grew old meanwhile, also where no guard
// bounds how old its look may be.
func TestRevise_AgeAtTheMark(t *testing.T) {
	tool := refund()
	tool.ApprovalMaxAge = time.Minute
	r := newRig(t, tool)
	store := &sleepy{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	r.clock.Add(50 * time.Second)
	store.beforeMark = func() { r.clock.Add(20 * time.Second) }
	r.work()
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	got := r.op(op.ID)
	require.Contains(t, []ledger.State{ledger.Pending, ledger.AwaitingApproval}, got.State)
	r.clock.Add(time.Minute) // its claim is over
	r.work()
	got = r.op(op.ID)
	require.Equal(t, ledger.AwaitingApproval, got.State)
	require.Equal(t, 2, got.Round)
	events, err := r.ledger.Events(context.Background(), got.Tenant, got.ID)
	require.NoError(t, err)
	require.Equal(t, "approval_old", events[len(events)-1].Reason.Code)
}

// sleepy is a store that is reached late, once, with a dispatch mark.
type sleepy struct {
	ledger.Store
	beforeMark func()
}

func (s *sleepy) Apply(ctx context.Context, t ledger.Transition) error {
	if s.beforeMark != nil && t.Event.Verb == ledger.VerbDispatch {
		s.beforeMark()
		s.beforeMark = nil
	}
	return s.Store.Apply(ctx, t)
}
