package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var restartCases = []testCase{
	{"a store that was opened again holds everything", func(w *world) {
		w.populate()
		op := w.open(acme, "k", ledger.AwaitingApproval)
		t := w.move(op, ledger.VerbApprove, to(ledger.Pending))
		t.Decision, t.Evidence = decision(op, "ann", ledger.VerbApprove), evidence(op, "evd_1")
		require.NoError(w, w.Store.Apply(w.ctx, t))
		p := w.put(w.preview(acme, "another", 1))
		w.freeze(acme)
		w.freeze(other)
		parent, child := w.pair(acme)
		ends := w.ending(child, parent)
		ends.Evidence = w.proof(child, "response", "re_1", tools.Succeeded)
		require.NoError(w, w.Store.Apply(w.ctx, ends))
		w.proven(child, "lookup", "re_2", tools.Succeeded)
		sealed := w.seal()
		w.seal()
		before := w.dump()

		w.Store = w.Reopen()
		require.Equal(w, before, w.dump())
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		w.same(p, got)
		found, err := w.Store.ByWrite(w.ctx, t.WriteID)
		require.NoError(w, err)
		w.same(t.Operation, found)
		// And goes on where it was.
		require.NoError(w, w.Store.Apply(w.ctx, t), "the same write id again")
		require.NoError(w, w.Store.Apply(w.ctx, ends), "the same write id again")
		require.NoError(w, w.Store.Seal(w.ctx, sealed), "the same checkpoint again")
		w.seal()
		w.effects(2, 1)
		w.apply(t.Operation, ledger.VerbDispatch, to(ledger.Running))
		o := w.opening(p, ledger.Running)
		w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, o))
		o.Epoch = 1
		require.NoError(w, w.Store.Open(w.ctx, o))
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 1000)
		require.NoError(w, err)
		require.Equal(w, o.New[0].Operation.ID, evs[len(evs)-1].Operation)
	}},
	{"claims last no longer than they say", func(w *world) {
		w.open(acme, "k", ledger.Pending)
		require.Len(w, w.due(ledger.DueDispatch, 9), 1)
		w.Store = w.Reopen()
		w.Clock.Advance(time.Minute)
		require.Len(w, w.due(ledger.DueDispatch, 9), 1)
	}},
	{"a closed store writes nothing and says so", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		old := w.Store
		w.Store = w.Reopen()
		err := old.Open(w.ctx, o)
		require.Error(w, err)
		require.NotErrorAs(w, err, new(*ledger.Ambiguous))
		require.Error(w, old.Ping(w.ctx))
		require.NoError(w, w.Store.Ping(w.ctx))
		_, err = w.Store.ByWrite(w.ctx, o.WriteID)
		require.ErrorIs(w, err, ledger.ErrNotFound)
		require.NoError(w, old.Close(), "a second time")
	}},
}
