package storetest

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

var writeCases = []testCase{
	{"ByWrite gives the operation as it stands now", func(w *world) {
		_, err := w.Store.ByWrite(w.ctx, "w_none")
		require.ErrorIs(w, err, ledger.ErrNotFound)
		_, err = w.Store.ByWrite(w.ctx, "")
		require.ErrorIs(w, err, ledger.ErrNotFound)
		op := w.open(acme, "k", ledger.Pending)
		found, err := w.Store.ByWrite(w.ctx, op.WriteID)
		require.NoError(w, err)
		w.same(op, found)
		moved := w.apply(op, ledger.VerbDispatch, to(ledger.Running))
		for _, id := range []string{op.WriteID, moved.WriteID} {
			found, err := w.Store.ByWrite(w.ctx, id)
			require.NoError(w, err)
			w.same(moved, found)
		}
	}},
	{"a context that has ended writes nothing", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		op := w.open(acme, "l", ledger.Pending)
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		o, t := w.opening(p, ledger.Running), w.move(op, ledger.VerbCancel, to(ledger.Cancelled))
		w.untouched(func() {
			_, guard := w.Store.ChangeGuard(ctx, w.change(ledger.Guard{Tenant: acme}))
			for _, err := range []error{
				w.Store.Open(ctx, o), w.Store.Apply(ctx, t), guard,
				w.Store.PutPreview(ctx, w.preview(acme, "m", 1)), w.Store.AddEvidence(ctx, acme, *evidence(op, "evd_1")),
			} {
				require.ErrorIs(w, err, context.Canceled)
				require.NotErrorAs(w, err, new(*ledger.Ambiguous))
			}
		})
	}},
	{"callers who leave hurt nobody", func(w *world) {
		// Half of the callers cancel at once; what they asked for happens or
		// does not, but whole, and the others are served.
		const callers = 64
		openings := make([]ledger.Opening, callers)
		for i := range openings {
			openings[i] = w.opening(w.put(w.preview(acme, w.id("k"), 1)), ledger.Running)
		}
		errs := together(callers, func(i int) error {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			if i%2 == 0 {
				go cancel()
			}
			return w.Store.Open(ctx, openings[i])
		})
		// Whoever left may still be under way; a write behind them all is not.
		w.open(acme, "last", ledger.Running)
		events := 0
		for i, err := range errs {
			op := openings[i].New[0].Operation
			_, found := w.Store.ByWrite(w.ctx, op.WriteID)
			evs, evErr := w.Store.Events(w.ctx, acme, op.ID)
			if found == nil {
				require.NoError(w, evErr)
				require.Len(w, evs, 1)
				events++
			} else {
				require.ErrorIs(w, found, ledger.ErrNotFound)
				require.ErrorIs(w, evErr, ledger.ErrNotFound)
			}
			var amb *ledger.Ambiguous
			switch {
			case err == nil:
				require.NoError(w, found, "acknowledged and not there")
			case errors.As(err, &amb):
			default:
				require.ErrorIs(w, err, context.Canceled)
				require.ErrorIs(w, found, ledger.ErrNotFound, "told that nothing was written, and it was")
			}
			require.True(w, i%2 == 0 || err == nil, "a caller who stayed was hurt: %v", err)
		}
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 10*callers)
		require.NoError(w, err)
		require.Len(w, evs, events+1)
	}},
}
