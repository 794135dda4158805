package storetest

import (
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var theGoal = tools.Goal{Group: "invoice", Value: "4711"}

// aiming builds the birth of an operation with a goal, on a stored preview, beside
// the holder that was evaluated.
func (w *world) aiming(tenant string, goal tools.Goal, state ledger.State, holder ledger.Head) ledger.Opening {
	w.Helper()
	o := w.opening(w.put(w.preview(tenant, w.id("key_"), 1)), state)
	o.New[0].Operation.Goal, o.New[0].GoalHead = &goal, holder
	return o
}

// aim opens an operation with the goal beside the holder that stands.
func (w *world) aim(tenant string, goal tools.Goal, state ledger.State) ledger.Operation {
	w.Helper()
	o := w.aiming(tenant, goal, state, w.holder(tenant, goal))
	require.NoError(w, w.Store.Open(w.ctx, o))
	return o.New[0].Operation
}

func (w *world) holder(tenant string, goal tools.Goal) ledger.Head {
	w.Helper()
	h, err := w.Store.Goal(w.ctx, tenant, goal)
	require.NoError(w, err)
	return h
}

var goalCases = []testCase{
	{"none", func(w *world) {
		w.open(acme, "k", ledger.Pending)
		require.False(w, w.holder(acme, theGoal).Exists())
	}},
	{"the newest holder, as it stands now", func(w *world) {
		first := w.aim(acme, theGoal, ledger.Running)
		w.same(first, w.holder(acme, theGoal).Operation)
		first = w.apply(first, ledger.VerbFinish, to(ledger.Failed))
		w.same(first, w.holder(acme, theGoal).Operation)
		second := w.aim(acme, theGoal, ledger.Running)
		w.same(second, w.holder(acme, theGoal).Operation)
		w.apply(first, ledger.VerbContradict, to(ledger.Unknown))
		w.same(second, w.holder(acme, theGoal).Operation, "newest by birth, not by its last move")
	}},
	{"group and value are not glued together, and nothing is left out", func(w *world) {
		w.aim(acme, tools.Goal{Group: "ab", Value: "c"}, ledger.Running)
		for _, goal := range []tools.Goal{{Group: "a", Value: "bc"}, {Group: "ab", Value: "C"}, {Group: "AB", Value: "c"}, {Group: "ab"}, {Value: "c"}, {}} {
			require.False(w, w.holder(acme, goal).Exists(), "%+v", goal)
			w.aim(acme, goal, ledger.Running)
		}
		require.False(w, w.holder(other, tools.Goal{Group: "ab", Value: "c"}).Exists())
		w.aim(other, tools.Goal{Group: "ab", Value: "c"}, ledger.Running)
	}},
	{"the holder is the one that was evaluated", func(w *world) {
		was := w.aim(acme, theGoal, ledger.Running)
		now := w.apply(was, ledger.VerbFinish, to(ledger.Failed))
		elsewhere := w.apply(w.open(acme, "l", ledger.Running), ledger.VerbFinish, to(ledger.Failed))
		for name, holder := range map[string]ledger.Head{
			"none": {}, "an older version": {Operation: was}, "another operation": {Operation: elsewhere},
		} {
			o := w.aiming(acme, theGoal, ledger.Running, holder)
			w.untouched(func() {
				w.Log(name)
				w.refused(ledger.GoalMoved, w.Store.Open(w.ctx, o))
			})
		}
		require.NoError(w, w.Store.Open(w.ctx, w.aiming(acme, theGoal, ledger.Running, ledger.Head{Operation: now})))
	}},
	{"a holder where none is", func(w *world) {
		elsewhere := w.open(acme, "l", ledger.Failed)
		o := w.aiming(acme, theGoal, ledger.Running, ledger.Head{Operation: elsewhere})
		w.untouched(func() { w.refused(ledger.GoalMoved, w.Store.Open(w.ctx, o)) })
	}},
	{"who has no goal is not asked", func(w *world) {
		w.aim(acme, theGoal, ledger.Running)
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		o.New[0].GoalHead = ledger.Head{Operation: w.open(acme, "l", ledger.Failed)}
		require.NoError(w, w.Store.Open(w.ctx, o))
	}},
	{"the same write id again is applied, though it holds the goal itself", func(w *world) {
		o := w.aiming(acme, theGoal, ledger.Running, ledger.Head{})
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
	}},
	{"64 racers under 64 keys for one goal: one winner", func(w *world) {
		openings := make([]ledger.Opening, 64)
		for i := range openings {
			openings[i] = w.aiming(acme, theGoal, ledger.Running, ledger.Head{})
		}
		errs := together(len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		winner := winnerOf(w, errs, ledger.GoalMoved)
		w.same(openings[winner].New[0].Operation, w.holder(acme, theGoal).Operation)
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 1)
	}},
	{"a successor and a contradiction exclude each other", func(w *world) {
		for i := range 20 {
			goal := tools.Goal{Group: "g", Value: w.id("v")}
			failed := w.aim(acme, goal, ledger.Failed)
			o := w.aiming(acme, goal, ledger.Running, ledger.Head{Operation: failed})
			t := w.move(failed, ledger.VerbContradict, to(ledger.Unknown))
			errs := together(2, func(n int) error {
				if n == i%2 {
					return w.Store.Open(w.ctx, o)
				}
				return w.Store.Apply(w.ctx, t)
			})
			require.NoError(w, errs[1-i%2], "nothing blocks late evidence")
			if errs[i%2] != nil {
				w.refused(ledger.GoalMoved, errs[i%2])
			}
		}
	}},
	{"two in one opening refuse themselves", func(w *world) {
		a, b := w.aiming(acme, theGoal, ledger.Running, ledger.Head{}), w.aiming(acme, theGoal, ledger.Running, ledger.Head{})
		w.untouched(func() {
			w.refused(ledger.GoalMoved, w.Store.Open(w.ctx, ledger.Opening{WriteID: a.WriteID, New: append(a.New, b.New...)}))
		})
	}},
}
