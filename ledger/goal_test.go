package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

var refundGoal = tools.Goal{Group: "invoice", Value: "4711"}

// aiming makes a request one with the goal, under a tool.
func aiming(tool string) func(*ledger.OpenRequest) {
	return func(q *ledger.OpenRequest) {
		goal := refundGoal
		q.Preview.Tool, q.Preview.Plan.Goal = tool, &goal
	}
}

// TestGoalFree_EveryState: void and compensated free a goal, everything else holds
// it, unknown above all; what a wanted repeat names is not in its way.
func TestGoalFree_EveryState(t *testing.T) {
	free := []ledger.State{ledger.Compensated, ledger.Failed, ledger.Rejected, ledger.Expired, ledger.Cancelled}
	require.NoError(t, ledger.GoalFree(ledger.Head{}, "agt_1", ""))
	for _, s := range ledger.States {
		h := ledger.Head{Operation: ledger.Operation{ID: "op_1", State: s, Agent: tools.Agent{ID: "agt_1"}}}
		err := ledger.GoalFree(h, "agt_1", "op_2")
		if slices.Contains(free, s) {
			require.NoError(t, err, s)
			continue
		}
		require.True(t, fault.Is(err, fault.GoalTaken), "%s: %v", s, err)
		require.Equal(t, "op_1", fault.Of(err).Operation)
		require.Empty(t, fault.Of(ledger.GoalFree(h, "agt_2", "")).Operation, "another agent's operation is not shown")
		require.NoError(t, ledger.GoalFree(h, "agt_1", "op_1"))
	}
}

// TestGoal_OneOfTwoTools: the write refuses the second, however it was evaluated.
func TestGoal_OneOfTwoTools(t *testing.T) {
	r := newRig(t)
	first, second := r.ask("a", aiming("refund_card")), r.ask("b", aiming("refund_voucher"))
	op := r.born(first)
	_, _, err := r.OpenOperation(r.ctx, second)
	require.ErrorIs(t, err, ledger.ErrMoved)
	h, err := r.Goal(r.ctx, tenant, refundGoal)
	require.NoError(t, err)
	require.Equal(t, op.ID, h.Operation.ID)
	require.True(t, fault.Is(ledger.GoalFree(h, "agt_1", ""), fault.GoalTaken))
}

// TestGoal_FreedByUndo: what was taken back leaves its goal to another; an undo
// carries none itself.
func TestGoal_FreedByUndo(t *testing.T) {
	r := newRig(t)
	op := r.concluded(r.born(r.ask("a", aiming("refund_card"))), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e"})
	child := r.born(r.undo(op, func(q *ledger.OpenRequest) { q.Preview.Plan.Goal = &refundGoal }))
	require.Nil(t, child.Goal)
	h, err := r.Goal(r.ctx, tenant, refundGoal)
	require.NoError(t, err)
	require.Error(t, ledger.GoalFree(h, "agt_1", ""), "while it is being taken back")
	r.concluded(child, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u"})
	h, err = r.Goal(r.ctx, tenant, refundGoal)
	require.NoError(t, err)
	require.NoError(t, ledger.GoalFree(h, "agt_1", ""))
	r.born(r.ask("b", aiming("refund_voucher")))
}

// TestGoal_ContradictedHolderStands: an older holder took effect after all. It
// holds the goal although the newest one is void.
func TestGoal_ContradictedHolderStands(t *testing.T) {
	r := newRig(t)
	refused := tools.Outcome{Verdict: tools.NoEffect}
	older := r.concluded(r.born(r.ask("a", aiming("refund_card"))), refused)
	r.concluded(r.born(r.ask("b", aiming("refund_voucher"))), refused)
	prepared := r.ask("c", aiming("refund_transfer")) // evaluated before anybody knew
	older = r.proven(older, 1, "e_late")
	require.Equal(t, ledger.Succeeded, older.State)
	_, _, err := r.OpenOperation(r.ctx, prepared)
	require.ErrorIs(t, err, ledger.ErrMoved)
	h, err := r.Goal(r.ctx, tenant, refundGoal)
	require.NoError(t, err)
	require.Equal(t, older.ID, h.Operation.ID)
	require.True(t, fault.Is(ledger.GoalFree(h, "agt_1", ""), fault.GoalTaken))
	again := r.ask("d", func(q *ledger.OpenRequest) { aiming("refund_transfer")(q); q.Preview.AgainOf = older.ID })
	r.born(again) // a wanted repeat of what stands
}

// TestGoal_ContradictedWhileAnotherWaits: under a tool that is not frozen, what
// waits for its dispatch is not sent beside an effect that came to light; also
// where the contradicted tool was frozen before.
func TestGoal_ContradictedWhileAnotherWaits(t *testing.T) {
	for _, frozenBefore := range []bool{false, true} {
		r := newRig(t)
		older := r.concluded(r.born(r.ask("a", aiming("refund_card"))), tools.Outcome{Verdict: tools.NoEffect})
		waits := r.concluded(r.born(r.ask("b", aiming("refund_voucher"))), tools.Outcome{Verdict: tools.NotSent})
		require.Equal(t, ledger.Pending, waits.State)
		if frozenBefore {
			_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: tenant, Tool: "refund_card"}, ledger.FreezeAll, person, "stop")
			require.NoError(t, err)
		}
		epoch := r.epoch()
		r.proven(older, 1, "e_late")
		require.Greater(t, r.epoch(), epoch, "what was evaluated before does not commit")
		_, err := r.Mark(r.ctx, waits, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
		require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
		require.Equal(t, waits, r.read(waits))
	}
}

// TestMark_GoalsRaceWithTheContradiction: the mark read that it stands alone, and
// then late evidence comes: the epoch that it names is the old one.
func TestMark_GoalsRaceWithTheContradiction(t *testing.T) {
	r := newRig(t)
	older := r.concluded(r.born(r.ask("a", aiming("refund_card"))), tools.Outcome{Verdict: tools.NoEffect})
	waits := r.concluded(r.born(r.ask("b", aiming("refund_voucher"))), tools.Outcome{Verdict: tools.NotSent})
	_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: tenant, Tool: "refund_card"}, ledger.FreezeAll, person, "stop")
	require.NoError(t, err)
	epoch := r.epoch()
	truly := r.store.Store
	r.store.Store = &before{Store: truly, apply: func() {
		r.store.Store = truly
		r.proven(older, 1, "e_late")
	}}
	_, err = r.Mark(r.ctx, waits, ledger.MarkRequest{Epoch: epoch, Timeout: time.Second})
	require.ErrorIs(t, err, ledger.ErrMoved)
	require.Equal(t, ledger.Pending, r.read(waits).State)
}
