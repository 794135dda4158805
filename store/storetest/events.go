package storetest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

var eventCases = []testCase{
	{"of one operation, oldest first", func(w *world) {
		op := w.open(acme, "k", ledger.AwaitingApproval)
		w.open(acme, "l", ledger.Pending)
		op = w.apply(op, ledger.VerbApprove, to(ledger.Pending))
		op = w.apply(op, ledger.VerbDispatch, to(ledger.Running))
		w.apply(op, ledger.VerbFinish, to(ledger.Succeeded))
		evs, err := w.Store.Events(w.ctx, acme, op.ID)
		require.NoError(w, err)
		var verbs []ledger.Verb
		for i, e := range evs {
			verbs = append(verbs, e.Verb)
			require.EqualValues(w, i+1, e.Version)
			require.Equal(w, op.ID, e.Operation)
		}
		require.Equal(w, []ledger.Verb{ledger.VerbOpen, ledger.VerbApprove, ledger.VerbDispatch, ledger.VerbFinish}, verbs)
		_, err = w.Store.Events(w.ctx, acme, "op_none")
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"of the tenant, from 1 without gaps, also over refused writes", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		op := w.openAs(p, ledger.Pending, ledger.Head{})
		for range 5 {
			w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, w.opening(p, ledger.Pending)))
			moved := w.apply(op, ledger.VerbWithdraw, func(*ledger.Operation) {})
			w.lost(w.Store.Apply(w.ctx, w.move(op, ledger.VerbCancel, to(ledger.Cancelled))))
			op = moved
		}
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 100)
		require.NoError(w, err)
		require.Len(w, evs, 6)
		for i, e := range evs {
			require.EqualValues(w, i+1, e.Seq)
		}
	}},
	{"behind a number, up to a limit", func(w *world) {
		for range 7 {
			w.open(acme, w.id("k"), ledger.Pending)
			w.open(other, w.id("k"), ledger.Pending)
		}
		all, err := w.Store.EventsAfter(w.ctx, acme, 0, 100)
		require.NoError(w, err)
		require.Len(w, all, 7)
		var paged []ledger.Event
		for after := int64(0); ; {
			page, err := w.Store.EventsAfter(w.ctx, acme, after, 3)
			require.NoError(w, err)
			require.LessOrEqual(w, len(page), 3)
			if len(page) == 0 {
				break
			}
			require.Greater(w, page[0].Seq, after, "an event that was read before")
			paged = append(paged, page...)
			after = page[len(page)-1].Seq
		}
		w.same(all, paged)
		for _, e := range all {
			require.Equal(w, acme, e.Tenant)
		}
		none, err := w.Store.EventsAfter(w.ctx, acme, 0, 0)
		require.NoError(w, err)
		require.Empty(w, none)
	}},
	{"of all tenants, in commit order without gaps, behind a number, up to a limit", func(w *world) {
		for range 5 {
			w.open(acme, w.id("k"), ledger.Pending)
			w.pair(other)
		}
		all, err := w.Store.AllEventsAfter(w.ctx, 0, 100)
		require.NoError(w, err)
		require.Len(w, all, 20)
		for i, e := range all {
			require.EqualValues(w, i+1, e.Seq)
		}
		for _, tenant := range []string{acme, other} {
			own, err := w.Store.EventsAfter(w.ctx, tenant, 0, 100)
			require.NoError(w, err)
			var want []ledger.Event
			for _, e := range all {
				if e.Tenant == tenant {
					want = append(want, e)
				}
			}
			w.same(want, own)
		}
		page, err := w.Store.AllEventsAfter(w.ctx, 7, 3)
		require.NoError(w, err)
		w.same(all[7:10], page)
		for _, q := range [][2]int{{20, 9}, {0, 0}} {
			none, err := w.Store.AllEventsAfter(w.ctx, int64(q[0]), q[1])
			require.NoError(w, err)
			require.Empty(w, none)
		}
	}},
	{"a follower misses nothing while many write", func(w *world) {
		const writers, each = 8, 25
		done := make(chan struct{})
		var wg sync.WaitGroup
		var followed []ledger.Event
		var followErr error
		wg.Go(func() {
			var last int64
			for {
				ended := false
				select {
				case <-done:
					ended = true
				default:
				}
				page, err := w.Store.EventsAfter(w.ctx, acme, last, 10)
				if err != nil {
					followErr = err
					return
				}
				followed = append(followed, page...)
				if len(page) > 0 {
					last = page[len(page)-1].Seq
				} else if ended {
					return
				}
			}
		})
		errs := together(writers, func(int) error {
			for range each {
				p := w.preview(acme, w.id("k"), 1)
				if err := w.Store.PutPreview(w.ctx, p); err != nil {
					return err
				}
				o := w.opening(p, ledger.Pending)
				if err := w.Store.Open(w.ctx, o); err != nil {
					return err
				}
				if err := w.Store.Apply(w.ctx, w.move(o.New[0].Operation, ledger.VerbCancel, to(ledger.Cancelled))); err != nil {
					return err
				}
			}
			return nil
		})
		close(done)
		wg.Wait()
		for _, err := range append(errs, followErr) {
			require.NoError(w, err)
		}
		all, err := w.Store.EventsAfter(w.ctx, acme, 0, 10*writers*each)
		require.NoError(w, err)
		require.Len(w, all, 2*writers*each)
		for i, e := range all {
			require.EqualValues(w, i+1, e.Seq)
		}
		w.same(all, followed, "an event appeared behind a reader")
		version := map[string]int64{}
		for _, e := range all {
			version[e.Operation]++
			require.Equal(w, version[e.Operation], e.Version, "the order of commits is the order of an operation's life")
		}
	}},
}
