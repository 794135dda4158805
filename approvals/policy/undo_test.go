package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
)

var (
	did   = ledger.Operation{Tool: "hold_order", Agent: tools.Agent{ID: "agt_1", Owner: "per_owner"}, Requirement: ledger.Requirement{Groups: map[string]int{"any": 1}}}
	clerk = identity.Agent{ID: "agt_1", Name: "clerk", Tenant: "t", Owner: "per_owner", Tools: []string{"*"}}
)

func asks(a identity.Agent) policy.Asker { return policy.Asker{Tenant: "t", Agent: &a} }

func TestAsker_MayUndo(t *testing.T) {
	mate, foreign, poor := clerk, clerk, clerk
	mate.ID, mate.Name = "agt_2", "mate"
	foreign.ID, foreign.Owner = "agt_3", "per_else"
	poor.ID, poor.Tools = "agt_4", []string{"release_hold"}
	operator := policy.Asker{Tenant: "t", By: ledger.Actor{Kind: "operator", ID: "per_ann"}}
	for name, c := range map[string]struct {
		who policy.Asker
		may bool
	}{
		"its own agent":                {asks(clerk), true},
		"another of the same owner":    {asks(mate), true},
		"another of another owner":     {asks(foreign), false},
		"without a grant for the tool": {asks(poor), false},
		"an operator":                  {operator, true},
	} {
		err := c.who.MayUndo(did)
		require.Equal(t, c.may, err == nil, "%s: %v", name, err)
		require.True(t, err == nil || fault.Is(err, fault.OperationNotFound), name)
	}
	require.Nil(t, asks(clerk).AskedBy(did))
	require.Equal(t, "agt_2", asks(mate).AskedBy(did).ID)
	require.Equal(t, "per_ann", operator.AskedBy(did).ID)
	require.NoError(t, asks(clerk).MayUndoRun("agt_1"))
	require.True(t, fault.Is(asks(mate).MayUndoRun("agt_1"), fault.RunNotFound))
	require.NoError(t, operator.MayUndoRun("agt_1"))
}

func TestAsker_Check(t *testing.T) {
	require.NoError(t, asks(clerk).Check())
	for _, bad := range []policy.Asker{
		{Tenant: "other", Agent: &clerk},
		{Tenant: "t"},
		{Tenant: "t", By: ledger.Actor{Kind: "operator"}},
		{Tenant: "t", By: ledger.Actor{Kind: "gateway", ID: "executor"}},
	} {
		require.True(t, fault.Is(bad.Check(), fault.NotAllowed), "%+v", bad)
	}
}

// TestEligible_WhoAsksDoesNotApprove: the operator who asked for an undo is as
// concerned as the agent's owner (S31).
func TestEligible_WhoAsksDoesNotApprove(t *testing.T) {
	op := did
	op.AskedBy = &ledger.Actor{Kind: "operator", ID: "per_ann"}
	for id, may := range map[string]bool{"per_ann": false, "per_owner": false, "per_bob": true} {
		ok, why := policy.Eligible(op, policy.Person{ID: id})
		require.Equal(t, may, ok, id)
		require.Equal(t, may, why == "", id)
	}
	ok, _ := policy.Eligible(did, policy.Person{ID: "per_ann"})
	require.True(t, ok)
}

func TestAskDuplicate(t *testing.T) {
	auto := ledger.Requirement{Outcome: tools.OutcomeAuto}
	strict := ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{"finance": 2}}
	warn, approve := &tools.Spec{Duplicates: tools.DuplicatesWarn}, &tools.Spec{Duplicates: tools.DuplicatesApprove}
	require.Equal(t, auto, policy.AskDuplicate(warn, auto, 3))
	require.Equal(t, auto, policy.AskDuplicate(approve, auto, 0))
	require.Equal(t, strict, policy.AskDuplicate(approve, strict, 1), "people are asked already")
	asked := policy.AskDuplicate(approve, auto, 1)
	require.True(t, asked.Asks())
	require.Equal(t, map[string]int{tools.AnyGroup: 1}, asked.Groups)
}
