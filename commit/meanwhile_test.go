package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// What is no longer so at the last moment counts: rights, versions, the world.

// TestMeanwhile_RightsGoneAtTheMark: a right that is taken away when the quorum has
// been counted already, and before the mark is written, still counts (I12).
func TestMeanwhile_RightsGoneAtTheMark(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	taken := false
	store.apply = func(ctx context.Context, tr ledger.Transition) error {
		if tr.Event.Verb == ledger.VerbDispatch && !taken {
			taken = true
			r.set(policy.Person{ID: carl.ID, Name: "carl", Groups: carl.Groups, Disabled: true})
			return r.ledger.PeopleChanged(ctx, tenant)
		}
		return nil
	}
	r.work()
	require.True(t, taken)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
}

// TestMeanwhile_DeniedByThePolicy: what the policy now denies is not sent, and
// nobody is asked about it (row 32).
func TestMeanwhile_DeniedByThePolicy(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	require.NoError(t, r.registry.Set([]*tools.Tool{refund(tooltest.Versioned(2), tooltest.WithApproval(tooltest.Deny("Not any more.")))}))
	r.inForce()
	r.work()
	got := r.op(op.ID)
	require.Equal(t, ledger.Expired, got.State)
	require.Equal(t, "policy_denied", got.Reason.Code)
	require.Equal(t, 1, got.Round)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

// TestMeanwhile_GuardUnreadAtCommit: where the world can't be read nothing is
// opened (I20).
func TestMeanwhile_GuardUnreadAtCommit(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	fake := tooltest.FakeOf(hold)
	r := newRig(t, hold)
	p := r.preview(agent, "hold_order", args("ord_1"))
	hold.Connector = hooked{Connector: fake, guard: func(context.Context, tools.Plan) (tools.Guard, error) {
		return tools.Guard{}, fault.New(fault.UpstreamTimeout, "The outside system did not answer in time.")
	}}
	_, err := r.commit(agent, "hold_order", p.Token)
	requireCode(t, err, fault.UpstreamTimeout)
	require.Zero(t, r.count())
	require.Empty(t, fake.Requests())
}

// TestMeanwhile_GrantGoneAtTheReplay: the result of another agent's operation is
// shown to who may use the tool now (S19).
func TestMeanwhile_GrantGoneAtTheReplay(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	p := r.preview(other, "hold_order", args("ord_1"))
	done := r.do(agent, "hold_order", args("ord_1")).Operation
	narrowed := other
	narrowed.Tools = []string{"nothing_else"}
	_, err := r.commit(narrowed, "hold_order", p.Token)
	require.Empty(t, requireCode(t, err, fault.IdempotencyKeyReused).Operation)
	require.Equal(t, done.ID, r.mustCommit(other, "hold_order", p.Token).Operation.ID)
}

// TestMeanwhile_RightsGoneAtTheUndo: who may no longer use what an operation was
// done with takes it back no more, and nobody does with another version of the tool
// than was previewed.
func TestMeanwhile_RightsGoneAtTheUndo(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(other), parent.ID)
	require.NoError(t, err)
	narrowed := other
	narrowed.Tools = []string{"release_hold"}
	_, err = r.commitUndo(asAgent(narrowed), parent.ID, p.Token)
	requireCode(t, err, fault.OperationNotFound)

	require.NoError(t, r.registry.Set([]*tools.Tool{hold, tooltest.FakeTool("release_hold", tooltest.Versioned(2))}))
	r.inForce()
	_, err = r.commitUndo(asAgent(other), parent.ID, p.Token)
	requireCode(t, err, fault.ToolChanged)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Empty(t, tooltest.FakeOf(release).Requests())
}

// TestMeanwhile_GrantGoneAtTheRunsUndo: the undo of a run needs the grant for the
// tools that do it, now.
func TestMeanwhile_GrantGoneAtTheRunsUndo(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	r.inRun(1, "hold_order", args("ord_1"))
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	narrowed := identity.Agent{ID: agent.ID, Tenant: tenant, Name: agent.Name, Owner: agent.Owner, Tools: []string{"hold_order"}}
	_, err = r.commitRun(asAgent(narrowed), plan.Token)
	requireCode(t, err, fault.ToolNotGranted)
	require.Empty(t, tooltest.FakeOf(release).Requests())
}

// TestMeanwhile_OutOfTurn: an undo of a run whose turn has not come asks nobody
// outside, and is left as it is, whatever the world looks like until then.
func TestMeanwhile_OutOfTurn(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	fake := tooltest.FakeOf(release)
	r.inRun(1, "hold_order", args("ord_1"))
	r.inRun(2, "hold_order", args("ord_2"))
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	res, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	require.Len(t, res.Operations, 2)
	release.Connector = hooked{Connector: fake, guard: func(context.Context, tools.Plan) (tools.Guard, error) {
		t.Error("its turn has not come")
		return tools.Guard{}, nil
	}}
	require.NoError(t, r.executor.Dispatch(t.Context(), res.Operations[1]))
	require.Equal(t, res.Operations[1], r.op(res.Operations[1].ID))
	require.Empty(t, fake.Requests())
}

// TestMeanwhile_NothingToAskAbout: only a doubt is asked about.
func TestMeanwhile_NothingToAskAbout(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	op := r.do(agent, "hold_order", args("ord_1")).Operation
	_, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	requireCode(t, err, fault.InvalidState)
	require.Empty(t, r.lookups(op.ID))
}
