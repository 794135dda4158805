package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestUndo_ReplayNeedsRights: a token of an undo that somebody else opened answers
// with that one only as long as its asker may see it: another agent of the owner
// that has lost a grant, or was given to another owner, sees nothing of it.
func TestUndo_ReplayNeedsRights(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(other), parent.ID)
	require.NoError(t, err)
	child := r.undo(asAgent(agent), parent.ID).Operation

	res, err := r.commitUndo(asAgent(other), parent.ID, p.Token)
	require.NoError(t, err)
	require.Equal(t, child.ID, res.Operation.ID)
	for name, spoil := range map[string]func(*identity.Agent){
		"no grant for what was done": func(a *identity.Agent) { a.Tools = []string{"release_hold"} },
		"no grant for the undo":      func(a *identity.Agent) { a.Tools = []string{"hold_order"} },
		"another owner":              func(a *identity.Agent) { a.Owner = "per_ann" },
	} {
		who := other
		spoil(&who)
		res, err := r.commitUndo(asAgent(who), parent.ID, p.Token)
		require.Error(t, err, name)
		require.Contains(t, []fault.Code{fault.OperationNotFound, fault.ToolNotGranted}, fault.Of(err).Code, name)
		require.Empty(t, fault.Of(err).Operation, name)
		require.Empty(t, res.Operation.ID, name)
	}
	// Whose operation it is sees it without a grant, as any of its own.
	poor := agent
	poor.Tools = nil
	mine, err := r.previewUndo(asAgent(poor), parent.ID)
	require.NoError(t, err)
	require.Equal(t, child.ID, mine.Operation.ID)
	// So does who asked for it.
	second := r.do(agent, "hold_order", args("ord_2")).Operation
	q, err := r.previewUndo(asAgent(other), second.ID)
	require.NoError(t, err)
	asked, err := r.commitUndo(asAgent(other), second.ID, q.Token)
	require.NoError(t, err)
	poor = other
	poor.Tools = nil
	again, err := r.commitUndo(asAgent(poor), second.ID, q.Token)
	require.NoError(t, err)
	require.Equal(t, asked.Operation.ID, again.Operation.ID)
	// Nobody sees more by a preview.
	narrow := other
	narrow.Tools = []string{"hold_order"}
	_, err = r.previewUndo(asAgent(narrow), parent.ID)
	requireCode(t, err, fault.ToolNotGranted)
}

// TestUndo_OfAnOperatorIsNotTheAgentsToCancel: who asked for an undo, or a person,
// may take it back; the agent whose effect it takes back may not.
func TestUndo_OfAnOperatorIsNotTheAgentsToCancel(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	asAgents := func(a identity.Agent) ledger.Actor { return ledger.Actor{Kind: "agent", ID: a.ID, Name: a.Name} }

	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	child := r.undo(asOperator(ann), parent.ID).Operation
	_, err := r.commits.Cancel(ctx, tenant, child.ID, asAgents(agent), "I want to keep it")
	require.Equal(t, child.ID, requireCode(t, err, fault.NotAllowed).Operation)
	require.Equal(t, ledger.AwaitingApproval, r.op(child.ID).State)
	require.Equal(t, ledger.Compensating, r.op(parent.ID).State)
	_, err = r.approvals.Cancel(ctx, bob, child.ID, "not needed")
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)

	// Its own, and its own undo, it may cancel as before.
	second := r.do(agent, "hold_order", args("ord_2")).Operation
	child = r.undo(asAgent(agent), second.ID).Operation
	_, err = r.commits.Cancel(ctx, tenant, child.ID, asAgents(agent), "keep it")
	require.NoError(t, err)
	child = r.undo(asAgent(other), second.ID).Operation
	_, err = r.commits.Cancel(ctx, tenant, child.ID, asAgents(agent), "keep it")
	requireCode(t, err, fault.NotAllowed)
	_, err = r.commits.Cancel(ctx, tenant, child.ID, asAgents(other), "keep it")
	require.NoError(t, err)
}

// TestUndo_AlreadyDoneAsksNobody: what the undo would do is found done, and the
// policy would ask people. Nothing is sent, so nobody is asked: the undo is
// adopted, as any other operation that is found done.
func TestUndo_AlreadyDoneAsksNobody(t *testing.T) {
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	tooltest.FakeOf(release).SetDone(&tools.Done{EffectID: "by_hand"})
	res, err := r.commits.Undo(context.Background(), commit.UndoCommit{Tenant: tenant, Operation: parent.ID, Token: p.Token, Agent: &agent})
	require.NoError(t, err)
	r.work()
	child := r.op(res.Operation.ID)
	require.Equal(t, ledger.Succeeded, child.State)
	require.True(t, child.Adopted)
	require.Equal(t, []ledger.Verb{"open", "adopt"}, r.verbs(child.ID))
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	require.Empty(t, tooltest.FakeOf(release).Requests())
}

// TestUndo_AlreadyDoneAndUndoneAgain: it was found done at the open, and is not so
// any more when its turn comes: now people are asked, and nothing is sent without
// them.
func TestUndo_AlreadyDoneAndUndoneAgain(t *testing.T) {
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	tooltest.FakeOf(release).SetDone(&tools.Done{EffectID: "by_hand"})
	res, err := r.commits.Undo(context.Background(), commit.UndoCommit{Tenant: tenant, Operation: parent.ID, Token: p.Token, Agent: &agent})
	require.NoError(t, err)
	tooltest.FakeOf(release).SetDone(nil)
	r.work()
	child := r.op(res.Operation.ID)
	require.Equal(t, ledger.AwaitingApproval, child.State)
	require.Empty(t, tooltest.FakeOf(release).Requests())
	r.approve(ann, child)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(child.ID).State)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
}

// TestUndo_OfADisabledOperator: what a person asked for is not sent any more once
// their account is disabled, as it is not for a revoked agent; the effect stays,
// and somebody else may ask.
func TestUndo_OfADisabledOperator(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	child := r.undo(asOperator(carl), parent.ID).Operation
	r.approve(bob, child)
	gone := approvals.PersonOf(carl)
	gone.Disabled = true
	r.set(gone)
	require.NoError(t, r.ledger.PeopleChanged(ctx, tenant))
	r.work()
	require.Empty(t, tooltest.FakeOf(release).Requests())
	child = r.op(child.ID)
	require.Equal(t, ledger.Expired, child.State)
	require.Equal(t, "asker_disabled", child.Reason.Code)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	child = r.undo(asOperator(ann), parent.ID).Operation
	r.approve(bob, child)
	r.work()
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
}
