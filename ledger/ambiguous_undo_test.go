package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// TestAmbiguous_UndoOpens: child and parent, once, whatever became of the answer.
func TestAmbiguous_UndoOpens(t *testing.T) {
	for name, script := range lostAnswers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.done("k")
			q := r.undo(parent, nil)
			r.store.script = append([]bool(nil), script...)
			child, opened, err := r.OpenOperation(r.ctx, q)
			require.NoError(t, err)
			require.True(t, opened)
			require.Empty(t, r.store.script)
			r.together(child, parent, ledger.VerbCompensate, ledger.Compensating)
			require.EqualValues(t, parent.Version+1, r.read(parent).Version)
			again, opened, err := r.OpenOperation(r.ctx, q)
			require.NoError(t, err)
			require.False(t, opened)
			require.Equal(t, child, again)
		})
	}
	t.Run("can't be told", func(t *testing.T) {
		r := newRig(t)
		parent := r.done("k")
		q := r.undo(parent, nil)
		r.store.script = []bool{false, false, false, false}
		_, opened, err := r.OpenOperation(r.ctx, q)
		require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
		require.False(t, opened)
		require.Equal(t, parent, r.read(parent))
		r.born(q)
	})
}

// TestAmbiguous_UndoEnds: each of its ends, with the parent, once.
func TestAmbiguous_UndoEnds(t *testing.T) {
	for name, script := range lostAnswers {
		for verdict, verb := range map[tools.Verdict]ledger.Verb{tools.Succeeded: ledger.VerbCompensated, tools.NoEffect: ledger.VerbGiveUp} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				parent := r.done("k")
				child := r.born(r.undo(parent, nil))
				r.store.script = append([]bool(nil), script...)
				r.concluded(child, tools.Outcome{Verdict: verdict, EffectID: "u"})
				require.Empty(t, r.store.script)
				state := ledger.Compensated
				if verb == ledger.VerbGiveUp {
					state = ledger.Succeeded
				}
				r.together(child, parent, verb, state)
				require.EqualValues(t, child.Version+1, r.read(child).Version)
				require.EqualValues(t, parent.Version+2, r.read(parent).Version)
			})
		}
	}
	t.Run("can't be told", func(t *testing.T) {
		r := newRig(t)
		parent := r.done("k")
		child := r.born(r.undo(parent, nil))
		for _, applied := range []bool{false, true} {
			r.store.Store = &blind{Store: r.store.Store}
			r.store.script = []bool{applied, false, false, false}
			_, err := r.Conclude(r.ctx, child, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u"})
			require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
			r.store.Store = r.store.Store.(*blind).Store
			require.Equal(t, applied, r.read(child).State == ledger.Succeeded)
			require.Equal(t, applied, r.read(parent).State == ledger.Compensated, "both or neither")
		}
		r.concluded(child, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u"})
		require.EqualValues(t, child.Version+1, r.read(child).Version)
	})
}

// TestAmbiguous_RunUndo: all undos and the closed run, once.
func TestAmbiguous_RunUndo(t *testing.T) {
	for name, script := range lostAnswers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			u := r.runUndo("run", r.inRun("run", "a"), r.inRun("run", "b"))
			r.store.script = append([]bool(nil), script...)
			ops, err := r.OpenRunUndo(r.ctx, u)
			require.NoError(t, err)
			require.Empty(t, r.store.script)
			yes := true
			undos, err := r.List(r.ctx, ledger.Filter{Tenant: tenant, Undo: &yes, OldestFirst: true})
			require.NoError(t, err)
			require.Equal(t, ops, undos.Operations)
			head, err := r.RunHead(r.ctx, tenant, "agt_1", "run")
			require.NoError(t, err)
			require.Equal(t, u.Preview, head.Closing)
		})
	}
}

// TestAmbiguous_Retry: a mark that is not provably mine is none; nothing is sent on
// a guess.
func TestAmbiguous_Retry(t *testing.T) {
	for name, script := range lostAnswers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			op := r.doubtful("k")
			q := r.again()
			r.store.script = append([]bool(nil), script...)
			marked, err := r.Retry(r.ctx, op, q)
			require.NoError(t, err)
			require.Empty(t, r.store.script)
			require.Equal(t, marked, r.read(op))
			require.Len(t, marked.Attempts, 2)
			require.Equal(t, marked.WriteID, r.last(op).WriteID)
		})
	}
	t.Run("can't be told", func(t *testing.T) {
		r := newRig(t)
		op := r.doubtful("k")
		q := r.again()
		r.store.script = []bool{false, false, false, false}
		_, err := r.Retry(r.ctx, op, q)
		require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
		require.Equal(t, op, r.read(op))
	})
	t.Run("made, and nobody knows", func(t *testing.T) {
		r := newRig(t)
		op := r.doubtful("k")
		q := r.again()
		truly := r.store.Store
		r.store.Store = &blind{Store: truly}
		r.store.script = []bool{true, false, false, false}
		_, err := r.Retry(r.ctx, op, q)
		require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
		r.store.Store = truly
		require.Equal(t, ledger.Running, r.read(op).State, "its lease brings it back")
		r.advance(time.Hour)
		op, err = r.LoseLease(r.ctx, tenant, op.ID)
		require.NoError(t, err)
		require.Equal(t, ledger.Unknown, op.State)
	})
}

// TestAmbiguous_Restore: one presumed attempt, whatever became of the answer.
func TestAmbiguous_Restore(t *testing.T) {
	for name, script := range lostAnswers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			op := r.born(r.ask("k", asks))
			r.store.script = append([]bool(nil), script...)
			restored, err := r.Restore(r.ctx, tenant, op.ID)
			require.NoError(t, err)
			require.Empty(t, r.store.script)
			require.Equal(t, restored, r.read(op))
			require.Len(t, restored.Attempts, 1)
			require.EqualValues(t, op.Version+1, restored.Version)
		})
	}
}

// TestAmbiguous_Unfreeze: lifted once, with one row that says so.
func TestAmbiguous_Unfreeze(t *testing.T) {
	scope := ledger.Scope{Tenant: tenant, Tool: "hold_order"}
	for name, script := range withLostForGood() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.touch(tenant)
			_, err := r.Freeze(r.ctx, scope, ledger.FreezeAll, person, "stop")
			require.NoError(t, err)
			epoch := r.epoch()
			r.store.script = append([]bool(nil), script...)
			err = r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: scope, By: person})
			require.Empty(t, r.store.script)
			if name == "lost to the end" {
				require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
				require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: scope, By: person}), "once more, since nobody knows")
			} else {
				require.NoError(t, err)
			}
			require.False(t, r.stopped("hold_order"))
			rows := r.intact(tenant)
			require.Equal(t, epoch+1, rows[len(rows)-1].Epoch)
			require.Equal(t, "unfreeze", rows[len(rows)-1].Change.What)
		})
	}
}

// TestAmbiguous_PeopleChanged: what is not idempotent by itself is made once too.
func TestAmbiguous_PeopleChanged(t *testing.T) {
	r := newRig(t)
	r.touch(tenant)
	for _, script := range [][]bool{{true}, {false}, {false, true}} {
		was := r.guard(tenant).People
		r.store.script = script
		require.NoError(t, r.PeopleChanged(r.ctx, tenant))
		require.Equal(t, was+1, r.guard(tenant).People)
	}
}

// TestAmbiguous_ContradictionOfAnUndo: the doubt, the freeze and the parent's move
// are one write, found as one.
func TestAmbiguous_ContradictionOfAnUndo(t *testing.T) {
	for name, script := range lostAnswers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.done("k")
			child := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
			r.store.script = append([]bool(nil), script...)
			child = r.proven(child, 1, "u_late")
			require.Empty(t, r.store.script)
			require.Equal(t, ledger.Succeeded, child.State)
			r.together(child, parent, ledger.VerbCompensated, ledger.Compensated)
			require.True(t, r.stopped("release_order"))
			require.Len(t, r.intact(tenant), 1)
			evidence, err := r.Evidence(r.ctx, tenant, child.ID)
			require.NoError(t, err)
			require.Len(t, evidence, 2)
		})
	}
}
