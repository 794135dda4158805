package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

func (w *world) tally(tenant string) ledger.Tally {
	w.Helper()
	t, err := w.Store.Tally(w.ctx, tenant)
	require.NoError(w, err)
	return t
}

// effects requires how many operations have an effect, and more than one.
func (w *world) effects(confirmed, duplicates int64, words ...any) {
	w.Helper()
	t := w.tally(acme)
	require.Equal(w, [2]int64{confirmed, duplicates}, [2]int64{t.Effects, t.Duplicates}, words...)
}

// proof builds evidence of one effect.
func (w *world) proof(op ledger.Operation, kind, effect string, verdict tools.Verdict) *ledger.Evidence {
	e := evidence(op, w.id("evd_"))
	e.Kind, e.EffectID, e.Verdict = kind, effect, verdict
	return e
}

func (w *world) proven(op ledger.Operation, kind, effect string, verdict tools.Verdict) {
	w.Helper()
	require.NoError(w, w.Store.AddEvidence(w.ctx, op.Tenant, *w.proof(op, kind, effect, verdict)))
}

var tallyCases = []testCase{
	{"nothing", func(w *world) { w.same(ledger.Tally{}, w.tally(acme)) }},
	{"states and the people's list, as they stand now", func(w *world) {
		want := map[ledger.State]int64{}
		for i, s := range ledger.States {
			for range i%3 + 1 {
				w.open(acme, w.id("k"), s)
				want[s]++
			}
			w.open(other, w.id("k"), s)
		}
		w.same(want, w.tally(acme).States)
		require.Zero(w, w.tally(acme).OnList)
		op := w.open(acme, "k", ledger.Running)
		op = w.apply(op, ledger.VerbLoseLease, func(op *ledger.Operation) { op.State, op.OnList = ledger.Unknown, true })
		want[ledger.Unknown]++
		w.same(want, w.tally(acme).States)
		require.EqualValues(w, 1, w.tally(acme).OnList)
		w.apply(op, ledger.VerbResolve, func(op *ledger.Operation) { op.State, op.OnList = ledger.Failed, false })
		want[ledger.Unknown]--
		want[ledger.Failed]++
		w.same(want, w.tally(acme).States)
		require.Zero(w, w.tally(acme).OnList)
	}},
	{"an operation with an effect counts once, however often it is proven", func(w *world) {
		op := w.open(acme, "k", ledger.Running)
		w.effects(0, 0)
		t := w.move(op, ledger.VerbFinish, to(ledger.Succeeded))
		t.Evidence = w.proof(op, "response", "re_1", tools.Succeeded)
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.effects(1, 0)
		require.NoError(w, w.Store.Apply(w.ctx, t))
		for range 3 {
			w.proven(op, "lookup", "re_1", tools.Succeeded)
		}
		w.effects(1, 0, "the same effect again")
	}},
	{"what proves no effect does not count", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		for _, v := range []tools.Verdict{tools.Unknown, tools.NoEffect, tools.NotSent} {
			w.proven(op, "response", "re_1", v)
		}
		w.proven(op, "response", "", tools.Succeeded)
		w.effects(0, 0)
	}},
	{"another effect of the same operation is a duplicate, in whatever state and however it comes", func(w *world) {
		for i, s := range ledger.States {
			op := w.open(acme, w.id("k"), s)
			w.proven(op, "response", "re_1", tools.Succeeded)
			w.effects(int64(i+1), int64(i))
			w.proven(op, "lookup", "re_2", tools.Succeeded)
			w.effects(int64(i+1), int64(i+1), s)
			w.proven(op, "lookup", "re_3", tools.Succeeded)
			w.proven(op, "lookup", "re_1", tools.Succeeded)
			w.effects(int64(i+1), int64(i+1), "a third makes no more of it")
		}
	}},
	{"effects are told apart byte for byte, and by nothing else", func(w *world) {
		for i, pair := range [][2]string{{"re_1", "RE_1"}, {"re_1", "re_1 "}, {"é", "e\u0301"}, {"1", "01"}} {
			op := w.open(acme, w.id("k"), ledger.Succeeded)
			for _, id := range pair {
				w.proven(op, "lookup", id, tools.Succeeded)
			}
			w.effects(int64(i+1), int64(i+1), "%q", pair)
		}
	}},
	{"the same effect id of two operations is no duplicate of either", func(w *world) {
		for _, k := range []string{"a", "b"} {
			w.proven(w.open(acme, k, ledger.Succeeded), "lookup", "re_1", tools.Succeeded)
		}
		w.proven(w.open(other, "c", ledger.Succeeded), "lookup", "re_1", tools.Succeeded)
		w.effects(2, 0)
	}},
	{"an adoption and a person's word count like any proof", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Succeeded)
		o.New[0].Evidence = w.proof(o.New[0].Operation, "adoption", "re_1", tools.Succeeded)
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.effects(1, 0)
		w.proven(o.New[0].Operation, "statement", "re_2", tools.Succeeded)
		w.effects(1, 1)
	}},
	{"the same evidence twice, also with other contents, counts once", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		e := w.proof(op, "lookup", "re_1", tools.Succeeded)
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
		e.EffectID = "re_2"
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
		w.effects(1, 0)
		w.proven(op, "lookup", "re_2", tools.Succeeded)
		w.effects(1, 1, "and hides none that comes by itself")
	}},
	{"32 witnesses of two effects at once", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		errs := together(32, func(i int) error {
			return w.Store.AddEvidence(w.ctx, acme, *w.proof(op, "lookup", []string{"re_1", "re_2"}[i%2], tools.Succeeded))
		})
		for _, err := range errs {
			require.NoError(w, err)
		}
		w.effects(1, 1)
	}},
	{"each generation by itself", func(w *world) {
		first := w.open(acme, "k", ledger.Succeeded)
		w.proven(first, "lookup", "re_1", tools.Succeeded)
		second := w.openAs(w.put(w.preview(acme, "k", 2)), ledger.Succeeded, ledger.Head{Operation: first})
		w.proven(second, "lookup", "re_2", tools.Succeeded)
		w.effects(2, 0)
	}},
	{"doubts, those that the reconciler ended, and the oldest that is open", func(w *world) {
		start := w.Clock.Now()
		enter := func(op *ledger.Operation) {
			op.State, op.Doubt = ledger.Unknown, ledger.DoubtEntered
			if op.FirstUnknownAt.IsZero() {
				op.FirstUnknownAt = w.Clock.Now()
			}
			op.UnknownSince = w.Clock.Now()
		}
		var ops [3]ledger.Operation
		for i := range ops {
			ops[i] = w.apply(w.open(acme, w.id("k"), ledger.Running), ledger.VerbLoseLease, enter)
			w.Clock.Advance(time.Second)
		}
		w.open(other, "k", ledger.Unknown)
		check := func(doubts, reconciled int64, oldest time.Time) {
			w.Helper()
			got := w.tally(acme)
			require.Equal(w, [2]int64{doubts, reconciled}, [2]int64{got.Doubts, got.Reconciled})
			require.True(w, oldest.Equal(got.OldestUnknown), "%s", got.OldestUnknown)
		}
		check(3, 0, start)
		ops[0] = w.apply(ops[0], ledger.VerbResolve, func(op *ledger.Operation) { op.State, op.Doubt = ledger.Failed, ledger.DoubtReconciled })
		check(3, 1, start.Add(time.Second))
		w.apply(ops[1], ledger.VerbResolve, func(op *ledger.Operation) { op.State, op.Doubt = ledger.Succeeded, ledger.DoubtElsewhere })
		check(3, 1, start.Add(2*time.Second))
		w.apply(ops[2], ledger.VerbRetry, to(ledger.Running))
		check(3, 1, time.Time{})
		w.apply(ops[0], ledger.VerbContradict, enter)
		check(3, 0, start)
	}},
	{"a doubt whose beginning was not written down counts from this one", func(w *world) {
		at := w.Clock.Now()
		w.timed("k", ledger.Unknown, func(op *ledger.Operation) { op.UnknownSince = at })
		require.True(w, at.Equal(w.tally(acme).OldestUnknown))
		w.timed("l", ledger.Unknown, func(*ledger.Operation) {})
		require.True(w, at.Equal(w.tally(acme).OldestUnknown), "one without any time is not the oldest of all")
	}},
}
