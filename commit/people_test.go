package commit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// refund is irreversible: one of support, two of finance above 500.00 EUR.
func refund(opts ...tooltest.Option) *tools.Tool {
	return tooltest.FakeTool("refund_payment", append([]tooltest.Option{
		tooltest.Irreversible(),
		tooltest.WithApproval(tooltest.ApproveAbove(50000, "finance", 2), tooltest.Approve("support", 1)),
	}, opts...)...)
}

func TestApproval_TwoAboveTheLimit(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 60000)).Operation
	require.Equal(t, ledger.AwaitingApproval, op.State)
	require.Equal(t, map[string]int{"finance": 2}, op.Requirement.Groups)

	for who, code := range map[string]fault.Code{owner.ID: fault.SeparationOfDuties, carl.ID: fault.NotAllowed, outside.ID: fault.NotAllowed} {
		p := r.people[who]
		_, err := r.decide(operatorOf(p), op, "approve", "")
		requireCode(t, err, code)
	}
	one := r.approve(ann, op)
	require.Equal(t, ledger.AwaitingApproval, one.State, "one yes is not enough")
	_, err := r.decide(ann, op, "approve", "")
	requireCode(t, err, fault.AlreadyDecided)
	r.work()
	require.Empty(t, tooltest.FakeOf(tool).Requests())

	two := r.approve(bob, op)
	require.Equal(t, ledger.Pending, two.State)
	r.work() // nobody's request is open: the gateway itself dispatches
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Len(t, tooltest.FakeOf(tool).Requests(), 1)
	require.Equal(t, []ledger.Verb{"open", "approve", "approve", "dispatch", "finish"}, r.verbs(op.ID))
	_, err = r.decide(carl, op, "reject", "late")
	requireCode(t, err, fault.InvalidState)
}

func operatorOf(p policy.Person) identity.Operator {
	return identity.Operator{ID: p.ID, Tenant: tenant, Name: p.Name, Groups: p.Groups}
}

func TestApproval_Words(t *testing.T) {
	r := newRig(t, refund())
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	for _, word := range []string{"", "Approve", "yes", "true", "approve ", "APPROVE", "approved"} {
		_, err := r.decide(carl, op, word, "x")
		requireCode(t, err, fault.DecisionInvalid)
	}
	_, err := r.decide(carl, op, "reject", "")
	requireCode(t, err, fault.DecisionInvalid)
	_, err = r.approvals.Decide(context.Background(), carl, op.ID, approvals.Decision{Word: "approve", ShownDigest: "sha256:00"})
	requireCode(t, err, fault.ApprovalChanged)
	require.Equal(t, []ledger.Verb{"open"}, r.verbs(op.ID))
}

// TestApproval_RejectedAskStaysRejected until a person reopens it.
func TestApproval_RejectedAskStaysRejected(t *testing.T) {
	ctx := context.Background()
	tool := refund()
	r := newRig(t, tool)
	spare := r.preview(agent, "refund_payment", args("pay_1", "amount", 100))
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	rejected, err := r.decide(carl, op, "reject", "Wrong customer")
	require.NoError(t, err)
	require.Equal(t, ledger.Rejected, rejected.State)
	require.Equal(t, "Wrong customer", rejected.Reason.Text)

	ask := func() error {
		_, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: "refund_payment", Args: args("pay_1", "amount", 100)})
		return err
	}
	requireCode(t, ask(), fault.RejectedBefore)
	same := r.mustCommit(agent, "refund_payment", spare.Token)
	require.Equal(t, op.ID, same.Operation.ID, "another token of that generation gets that operation")
	// Other arguments are another ask, in the next generation.
	require.Equal(t, 2, r.preview(agent, "refund_payment", args("pay_1", "amount", 90)).Preview.Generation)

	_, err = r.approvals.Reopen(ctx, carl, op.ID, "")
	requireCode(t, err, fault.DecisionInvalid)
	_, err = r.approvals.Reopen(ctx, owner, op.ID, "please")
	requireCode(t, err, fault.SeparationOfDuties)
	_, err = r.approvals.Reopen(ctx, carl, op.ID, "The customer was right")
	require.NoError(t, err)
	require.NoError(t, ask())
	require.Equal(t, ledger.Rejected, r.op(op.ID).State)
}

func TestApproval_TwoCardsOneYes(t *testing.T) {
	tool := refund(tooltest.KeyFrom(tools.KeyFromCaller))
	r := newRig(t, tool)
	ask := func(key string) ledger.Operation {
		res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "refund_payment", Args: args("pay_1", "amount", 100), IdempotencyKey: key})
		require.NoError(t, err)
		return r.mustCommit(agent, "refund_payment", res.Token).Operation
	}
	one, two := ask("k1"), ask("k2")
	require.NotEqual(t, one.ID, two.ID)
	card, err := r.approvals.Card(context.Background(), approvals.PersonOf(carl), tenant, one.ID)
	require.NoError(t, err)
	require.Len(t, card.Duplicates, 1)
	require.Equal(t, two.ID, card.Duplicates[0].ID)
	other, err := r.approvals.Card(context.Background(), approvals.PersonOf(carl), tenant, two.ID)
	require.NoError(t, err)
	require.NotEqual(t, card.ShownDigest, other.ShownDigest, "a yes names one operation")
	r.approve(carl, one)
	r.work()
	require.Len(t, tooltest.FakeOf(tool).Effects(), 1)
	require.Equal(t, ledger.AwaitingApproval, r.op(two.ID).State)
}

func TestApproval_Expires(t *testing.T) {
	r := newRig(t, refund())
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	late := r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation
	r.clock.Add(time.Hour)
	_, err := r.decide(carl, late, "approve", "")
	requireCode(t, err, fault.InvalidState)
	require.Equal(t, ledger.Expired, r.op(late.ID).State)
	n, err := r.sweeper.RunOnce(context.Background())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, ledger.Expired, r.op(op.ID).State)
	require.Equal(t, "expired", r.op(op.ID).Reason.Code)
	// The key is free again.
	require.Equal(t, 2, r.preview(agent, "refund_payment", args("pay_1", "amount", 100)).Preview.Generation)
}

// TestApproval_Revised: what changes between the yes and the dispatch sends
// nothing and asks people again, at most three times (I12, matrix rows 31 to 33).
func TestApproval_Revised(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, tool *tools.Tool)
		reason string
	}{
		"drift": {func(_ *rig, tool *tools.Tool) { tooltest.FakeOf(tool).SetWorld("refunded", 1) }, "drift"},
		"approver left the group": {func(r *rig, _ *tools.Tool) {
			r.set(policy.Person{ID: carl.ID, Name: "carl", Groups: []string{"sales"}})
		}, "approvers_changed"},
		"approver disabled": {func(r *rig, _ *tools.Tool) {
			r.set(policy.Person{ID: carl.ID, Name: "carl", Groups: carl.Groups, Disabled: true})
		}, "approvers_changed"},
		"policy stricter": {func(r *rig, _ *tools.Tool) {
			strict := refund(tooltest.Versioned(2), tooltest.WithApproval(tooltest.Approve("support", 2)))
			require.NoError(r.t, r.registry.Set([]*tools.Tool{strict}))
			r.inForce()
		}, "policy_stricter"},
		"yes too old": {func(r *rig, _ *tools.Tool) { r.clock.Add(15 * time.Minute) }, "approval_old"},
	} {
		t.Run(name, func(t *testing.T) {
			tool := refund()
			tooltest.FakeOf(tool).SetWorld("refunded", 0)
			r := newRig(t, tool)
			op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
			r.approve(carl, op)
			c.change(r, tool)
			r.work()
			got := r.op(op.ID)
			require.Equal(t, ledger.AwaitingApproval, got.State)
			require.Equal(t, 2, got.Round)
			require.Empty(t, tooltest.FakeOf(tool).Requests())
			events, err := r.ledger.Events(context.Background(), tenant, op.ID)
			require.NoError(t, err)
			require.Equal(t, c.reason, events[len(events)-1].Reason.Code)
			card, err := r.approvals.Card(context.Background(), approvals.PersonOf(bob), tenant, op.ID)
			require.NoError(t, err)
			require.Empty(t, card.Standing, "the old round's yes no longer counts")
		})
	}
}

func TestApproval_ThreeRoundsThenExpired(t *testing.T) {
	tool := refund()
	tooltest.FakeOf(tool).SetWorld("refunded", 0)
	r := newRig(t, tool)
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	for i := range ledger.MaxRounds {
		require.Equal(t, i+1, r.op(op.ID).Round)
		r.approve(carl, op)
		tooltest.FakeOf(tool).SetWorld("refunded", i+1)
		r.work()
	}
	require.Equal(t, ledger.Expired, r.op(op.ID).State)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

func TestApproval_WithdrawnBeforeDispatch(t *testing.T) {
	ctx := context.Background()
	tool := refund()
	r := newRig(t, tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	_, err := r.ledger.Withdraw(ctx, op, ledger.Decision{Operation: op.ID, Round: 1, Person: carl.ID, Name: "carl", Verb: ledger.VerbWithdraw, At: r.clock.Now()})
	require.NoError(t, err)
	r.work()
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Equal(t, 2, r.op(op.ID).Round)
	events, err := r.ledger.Events(ctx, tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, "withdrawn", events[len(events)-1].Reason.Code, "people read why they are asked again")
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

func TestApproval_AgentRevokedOrToolWithdrawn(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"agent_revoked": func(r *rig) {
			_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Revoked = append(g.Revoked, agent.ID) })
			require.NoError(r.t, err)
		},
		"tool_withdrawn": func(r *rig) { require.NoError(r.t, r.registry.Set(nil)); r.inForce() },
	} {
		t.Run(name, func(t *testing.T) {
			tool := refund()
			r := newRig(t, tool)
			op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
			change(r)
			r.work()
			require.Equal(t, ledger.Expired, r.op(op.ID).State)
			require.Equal(t, name, r.op(op.ID).Reason.Code)
			require.Empty(t, tooltest.FakeOf(tool).Requests())
		})
	}
}

// TestApproval_FrozenWaits: a freeze holds what was approved; its clock does
// not stop.
func TestApproval_FrozenWaits(t *testing.T) {
	ctx := context.Background()
	tool := refund()
	r := newRig(t, tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: "refund_payment"}, ledger.FreezeAll, ledger.Gateway("test"), "stop")
	require.NoError(t, err)
	r.work()
	require.Equal(t, ledger.Pending, r.op(op.ID).State)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	require.NoError(t, r.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant, Tool: "refund_payment"}, By: ledger.Gateway("test")}))
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)

	slow := r.approve(carl, r.do(agent, "refund_payment", args("pay_2", "amount", 100)).Operation)
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: ""}, ledger.FreezeNew, ledger.Gateway("test"), "stop")
	require.NoError(t, err)
	r.clock.Add(time.Hour)
	_, err = r.sweeper.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, ledger.Expired, r.op(slow.ID).State)
}

// TestApproval_ManyAtOnce: yes and no at the same instant end one way, and a
// double click counts once (matrix rows 28, 29).
func TestApproval_ManyAtOnce(t *testing.T) {
	r := newRig(t, refund())
	for i := range 10 {
		op := r.do(agent, "refund_payment", args("pay_"+string(rune('a'+i)), "amount", 60000)).Operation
		card, err := r.approvals.Card(context.Background(), approvals.PersonOf(ann), tenant, op.ID)
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for j, d := range []struct {
			who  identity.Operator
			word string
		}{{ann, "approve"}, {ann, "approve"}, {ann, "approve"}, {bob, "reject"}, {bob, "approve"}, {bob, "reject"}} {
			wg.Go(func() {
				_, errs[j] = r.approvals.Decide(context.Background(), d.who, op.ID, approvals.Decision{Word: d.word, ShownDigest: card.ShownDigest, Reason: "r"})
			})
		}
		wg.Wait()
		decisions, err := r.ledger.Decisions(context.Background(), tenant, op.ID)
		require.NoError(t, err)
		by := map[string]int{}
		for _, d := range decisions {
			by[d.Person]++
		}
		for person, n := range by {
			require.Equal(t, 1, n, person)
		}
		ok := 0
		for _, err := range errs {
			if err == nil {
				ok++
			}
		}
		require.Equal(t, len(decisions), ok, "whoever was told yes is on record")
		r.verbs(op.ID)
	}
}

func TestCancel(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, refund(), tooltest.FakeTool("hold_order"))
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	by := ledger.Actor{Kind: "agent", ID: agent.ID}
	got, err := r.commits.Cancel(ctx, tenant, op.ID, by, "changed my mind")
	require.NoError(t, err)
	require.Equal(t, ledger.Cancelled, got.State)
	done := r.do(agent, "hold_order", args("ord_1")).Operation
	_, err = r.commits.Cancel(ctx, tenant, done.ID, by, "")
	require.Equal(t, done.ID, requireCode(t, err, fault.InvalidState).Operation)
	_, err = r.commits.Cancel(ctx, "other", op.ID, by, "")
	requireCode(t, err, fault.OperationNotFound)
}

// TestPeople_TextThatIsNone: what a person says must be text; a form of the page
// can send any bytes.
func TestPeople_TextThatIsNone(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, refund(), tooltest.FakeTool("hold_order"))
	for name, bad := range map[string]string{"not UTF-8": "no\xff", "a null": "no\x00"} {
		op := r.do(agent, "refund_payment", args("pay_"+name[:1], "amount", 100)).Operation
		_, err := r.decide(carl, op, "reject", bad)
		requireCode(t, err, fault.ForbiddenText)
		_, err = r.approvals.Cancel(ctx, carl, op.ID, bad)
		requireCode(t, err, fault.ForbiddenText)
		require.Equal(t, []ledger.Verb{"open"}, r.verbs(op.ID))
		op, err = r.decide(carl, op, "reject", "no")
		require.NoError(t, err)
		_, err = r.approvals.Reopen(ctx, carl, op.ID, bad)
		requireCode(t, err, fault.ForbiddenText)
	}
	tooltest.FakeOf(mustTool(r, "hold_order")).Script(tooltest.LoseReply())
	op := r.do(agent, "hold_order", args("ord_1")).Operation
	for _, st := range []ledger.Statement{{Reason: "x\xff"}, {Happened: true, Reason: "x", EffectID: "e\x00"}} {
		_, err := r.approvals.Resolve(ctx, carl, op.ID, st)
		requireCode(t, err, fault.ForbiddenText)
	}
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
}

func mustTool(r *rig, name string) *tools.Tool {
	t, ok := r.registry.Get(name)
	require.True(r.t, ok)
	return t
}
