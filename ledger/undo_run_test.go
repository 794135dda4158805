package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// inRun opens an operation of a run that succeeded.
func (r *rig) inRun(run, key string) ledger.Operation {
	r.t.Helper()
	return r.concluded(r.born(r.ask(key, func(q *ledger.OpenRequest) { q.Preview.Run = &ledger.Run{ID: run} })),
		tools.Outcome{Verdict: tools.Succeeded, EffectID: "e_" + key})
}

// runUndo asks for the undo of a run, newest effect first.
func (r *rig) runUndo(run string, effects ...ledger.Operation) ledger.RunUndo {
	r.t.Helper()
	head, err := r.RunHead(r.ctx, tenant, "agt_1", run)
	require.NoError(r.t, err)
	u := ledger.RunUndo{Run: head, Preview: ledger.NewID("prv_"), By: person, Epoch: r.epoch()}
	for _, op := range slices.Backward(effects) {
		u.Children = append(u.Children, r.undo(op, nil))
	}
	return u
}

// TestRunUndo_ChainedAndClosed: one write closes the run and opens the undos, the
// newest effect first, each behind the one before it.
func TestRunUndo_ChainedAndClosed(t *testing.T) {
	r := newRig(t)
	var effects []ledger.Operation
	for i := range 4 {
		effects = append(effects, r.inRun("run", fmt.Sprint("k", i)))
	}
	u := r.runUndo("run", effects...)
	asks(&u.Children[2])
	ops, err := r.OpenRunUndo(r.ctx, u)
	require.NoError(t, err)
	require.Len(t, ops, 4)
	for i, op := range ops {
		require.Equal(t, r.read(op), op)
		parent := effects[3-i]
		require.Equal(t, parent.ID, op.Parent)
		r.together(op, parent, ledger.VerbCompensate, ledger.Compensating)
		require.Equal(t, r.last(ops[0]).WriteID, r.last(op).WriteID, "all in one write")
		want := ledger.Pending
		if i == 2 {
			want = ledger.AwaitingApproval
		}
		require.Equal(t, want, op.State, "nobody begins before its turn")
		require.Empty(t, op.Attempts)
		require.False(t, op.ExpiresAt.IsZero(), "no undo waits for ever")
		after, next := "", ""
		if i > 0 {
			after = ops[i-1].ID
		}
		if i < 3 {
			next = ops[i+1].ID
		}
		require.Equal(t, [2]string{after, next}, [2]string{op.After, op.Next})
	}
	head, err := r.RunHead(r.ctx, tenant, "agt_1", "run")
	require.NoError(t, err)
	require.Equal(t, u.Preview, head.Closing)
	require.Equal(t, person, head.ClosedBy)
	require.Equal(t, 4, head.Operations)
	_, _, err = r.OpenOperation(r.ctx, r.ask("more", func(q *ledger.OpenRequest) { q.Preview.Run = &ledger.Run{ID: "run"} }))
	require.True(t, fault.Is(err, fault.RunClosed), "%v", err)
}

// TestRunUndo_EachAtItsTurn: no undo is marked before the one before it has
// succeeded, whatever else became of that.
func TestRunUndo_EachAtItsTurn(t *testing.T) {
	for outcome, sent := range map[tools.Verdict]bool{tools.Succeeded: true, tools.NoEffect: false, tools.Unknown: false, tools.NotSent: false, "": false} {
		t.Run(string(outcome), func(t *testing.T) {
			r := newRig(t)
			ops, err := r.OpenRunUndo(r.ctx, r.runUndo("run", r.inRun("run", "a"), r.inRun("run", "b")))
			require.NoError(t, err)
			mark := func(op ledger.Operation) (ledger.Operation, error) {
				return r.Mark(r.ctx, op, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
			}
			_, err = mark(ops[1])
			require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
			first, err := mark(ops[0])
			require.NoError(t, err)
			if outcome != "" {
				r.concluded(first, tools.Outcome{Verdict: outcome, EffectID: "u"})
			}
			_, err = mark(ops[1])
			if sent {
				require.NoError(t, err)
				return
			}
			require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
			r.advance(25 * time.Hour)
			second, err := r.ExpireOverdue(r.ctx, tenant, ops[1].ID)
			require.NoError(t, err)
			r.together(second, ledger.Operation{ID: second.Parent, Tenant: tenant}, ledger.VerbGiveUp, ledger.Succeeded)
		})
	}
}

// TestRunUndo_Refused: with nothing opened, moved or closed.
func TestRunUndo_Refused(t *testing.T) {
	r := newRig(t)
	a, b := r.inRun("run", "a"), r.inRun("run", "b")
	untouched := func(name string, u ledger.RunUndo, check func(error)) {
		t.Helper()
		_, err := r.OpenRunUndo(r.ctx, u)
		require.Error(t, err, name)
		check(err)
		require.Equal(t, a, r.read(a), name)
		require.Equal(t, b, r.read(b), name)
		head, err := r.RunHead(r.ctx, tenant, "agt_1", "run")
		require.NoError(t, err)
		require.False(t, head.Closed(), name)
		yes := true
		undos, err := r.List(r.ctx, ledger.Filter{Tenant: tenant, Undo: &yes})
		require.NoError(t, err)
		require.Empty(t, undos.Operations, name)
	}
	is := func(code fault.Code) func(error) {
		return func(err error) { require.True(t, fault.Is(err, code), "%v", err) }
	}
	moved := func(err error) { require.ErrorIs(t, err, ledger.ErrMoved) }

	untouched("nothing", ledger.RunUndo{Run: r.runUndo("run").Run}, is(fault.UndoImpossible))
	long := r.runUndo("run", a)
	for len(long.Children) <= ledger.MaxRunUndo {
		long.Children = append(long.Children, long.Children[0])
	}
	untouched("too many", long, is(fault.UndoImpossible))
	twice := r.runUndo("run", a, b)
	twice.Children[1] = r.undo(b, func(q *ledger.OpenRequest) { q.Preview.Tool = "cancel_order" })
	untouched("one effect twice", twice, moved)
	old := r.runUndo("run", a, b)
	old.Epoch++
	untouched("another epoch", old, moved)
	gone := r.runUndo("run", a, b)
	gone.Children[1].Preview.ID = "prv_none"
	untouched("a preview that is gone", gone, is(fault.TokenExpired))
	denied := r.runUndo("run", a, b)
	denied.Children[1].Requirement.Outcome = tools.OutcomeDeny
	untouched("a policy that denies one", denied, is(fault.PolicyDenied))
	unknown := r.runUndo("run", a, b)
	unknown.Children[0].Parent.State = ledger.Unknown
	untouched("a parent in doubt", unknown, is(fault.UndoImpossible))

	stale := r.runUndo("run", a, b)
	r.inRun("run", "c")
	untouched("a run that grew", stale, moved)
	head, err := r.RunHead(r.ctx, tenant, "agt_1", "run")
	require.NoError(t, err)
	require.Equal(t, 3, head.Operations)
}

// TestRunUndo_Again: the second commit of the same undo, and that of another one,
// are refused and find what stands by the run's head.
func TestRunUndo_Again(t *testing.T) {
	r := newRig(t)
	a, b := r.inRun("run", "a"), r.inRun("run", "b")
	u, other := r.runUndo("run", a, b), r.runUndo("run", b)
	ops, err := r.OpenRunUndo(r.ctx, u)
	require.NoError(t, err)
	for _, again := range []ledger.RunUndo{u, other} {
		_, err = r.OpenRunUndo(r.ctx, again)
		require.True(t, fault.Is(err, fault.RunClosed) || err == ledger.ErrMoved, "%v", err)
	}
	yes := true
	undos, err := r.List(r.ctx, ledger.Filter{Tenant: tenant, Run: "run", Undo: &yes, OldestFirst: true})
	require.NoError(t, err)
	require.Equal(t, ops, undos.Operations)
	head, err := r.RunHead(r.ctx, tenant, "agt_1", "run")
	require.NoError(t, err)
	require.Equal(t, u.Preview, head.Closing)
}
