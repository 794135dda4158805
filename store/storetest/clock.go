package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// Matrix row 25: the clock that the store reads goes back by an hour. What the store
// has seen expire stays expired, also over a restart, and nothing that it allows
// only for a time is allowed again (I19).
var clockCases = []testCase{
	{"a clock that is set back revives nothing", func(w *world) {
		preview := w.opening(w.put(w.preview(acme, "preview", 1)), ledger.Pending)
		approved := w.open(acme, "approved", ledger.Pending)
		mark := w.move(approved, ledger.VerbDispatch, to(ledger.Running))
		mark.NotAfter = w.Clock.Now().Add(10 * time.Minute) // as the end of a round
		forgotten := w.open(acme, "forgotten", ledger.Unknown)
		retry := w.move(forgotten, ledger.VerbRetry, to(ledger.Running))
		retry.NotAfter = w.Clock.Now().Add(20 * time.Minute) // as the end of a tool's memory
		w.Clock.Advance(30 * time.Minute)
		dead := func() {
			w.Helper()
			w.untouched(func() {
				w.refused(ledger.PreviewExpired, w.Store.Open(w.ctx, preview))
				w.refused(ledger.TooLate, w.Store.Apply(w.ctx, mark))
				w.refused(ledger.TooLate, w.Store.Apply(w.ctx, retry))
			})
		}
		dead()
		w.Clock.Advance(-time.Hour)
		dead()          // set back
		w.freeze(other) // some write
		w.Store = w.Reopen()
		dead()
		w.Clock.Advance(59 * time.Minute)
		dead() // nearly caught up
	}},
	{"the time of the last write is known behind a restart", func(w *world) {
		preview := w.opening(w.put(w.preview(acme, "preview", 1)), ledger.Pending)
		w.Clock.Advance(6 * time.Minute)
		// What sweeps previews writes, also when it finds none.
		require.NoError(w, w.Store.SweepPreviews(w.ctx, w.Clock.Now().Add(-time.Hour)))
		w.Clock.Advance(-5 * time.Minute)
		w.Store = w.Reopen()
		w.untouched(func() { w.refused(ledger.PreviewExpired, w.Store.Open(w.ctx, preview)) })
	}},
	{"what is new lives its time while the clock catches up", func(w *world) {
		w.open(acme, "before", ledger.Pending)
		w.Clock.Advance(-time.Hour)
		p := w.preview(acme, "k", 1)
		p.ExpiresAt = p.ExpiresAt.Add(time.Hour) // by the store's time, which stays
		o := w.opening(w.put(p), ledger.Pending)
		w.Clock.Advance(4 * time.Minute)
		require.NoError(w, w.Store.Open(w.ctx, o))
		late := w.opening(w.put(w.preview(acme, "late", 1)), ledger.Pending)
		w.untouched(func() { w.refused(ledger.PreviewExpired, w.Store.Open(w.ctx, late)) })
	}},
}
