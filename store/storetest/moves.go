package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// beside builds the move of another operation in a write.
func (w *world) beside(op ledger.Operation, writeID string, verb ledger.Verb, change func(*ledger.Operation)) ledger.Move {
	t := w.move(op, verb, change)
	t.Operation.WriteID, t.Event.WriteID = writeID, writeID
	return ledger.Move{Operation: t.Operation, Expect: t.Expect, Event: t.Event}
}

// ending builds the end of a child with its parent's move.
func (w *world) ending(child, parent ledger.Operation) ledger.Transition {
	t := w.move(child, ledger.VerbFinish, to(ledger.Succeeded))
	t.Also = []ledger.Move{w.beside(parent, t.WriteID, ledger.VerbCompensated, to(ledger.Compensated))}
	return t
}

// pair opens an operation and its undo.
func (w *world) pair(tenant string) (parent, child ledger.Operation) {
	w.Helper()
	o := w.undoing(w.open(tenant, w.id("key_"), ledger.Succeeded))
	g, err := w.Store.Guard(w.ctx, tenant)
	require.NoError(w, err)
	o.Epoch = g.Epoch
	require.NoError(w, w.Store.Open(w.ctx, o))
	return o.Moves[0].Operation, o.New[0].Operation
}

// moved requires that an operation stands as the move left it, with its event.
func (w *world) moved(m ledger.Move) {
	w.Helper()
	op := m.Operation
	w.same(op, w.read(op.Tenant, op.ID))
	evs, err := w.Store.Events(w.ctx, op.Tenant, op.ID)
	require.NoError(w, err)
	last := evs[len(evs)-1]
	require.Len(w, evs, int(op.Version))
	want := m.Event
	want.Seq = last.Seq
	w.same(want, last)
}

var moveCases = []testCase{
	{"an opening moves what is there already, each with its event", func(w *world) {
		o := w.undoing(w.open(acme, "a", ledger.Succeeded))
		second := w.undoing(w.open(acme, "b", ledger.Succeeded))
		o.New = append(o.New, second.New...)
		b := second.Moves[0]
		b.Operation.WriteID, b.Event.WriteID = o.WriteID, o.WriteID
		o.Moves = append(o.Moves, b)
		require.NoError(w, w.Store.Open(w.ctx, o))
		for _, m := range o.Moves {
			w.moved(m)
		}
		for _, n := range o.New {
			w.same(n.Operation, w.read(acme, n.Operation.ID))
		}
		found, err := w.Store.ByWrite(w.ctx, o.WriteID)
		require.NoError(w, err)
		w.same(o.New[0].Operation, found, "a write is found by its first operation")
		evs, err := w.Store.AllEventsAfter(w.ctx, 0, 100)
		require.NoError(w, err)
		require.Len(w, evs, 6)
	}},
	{"an opening's lost move undoes all of it, and says which row", func(w *world) {
		for _, bad := range []int{0, 1} {
			var o ledger.Opening
			var now ledger.Operation
			for i := range 2 {
				parent := w.open(acme, w.id("key_"), ledger.Succeeded)
				one := w.undoing(parent)
				if i == bad {
					now = w.apply(parent, ledger.VerbReopen, func(op *ledger.Operation) { op.Reopened = true })
				}
				o.WriteID = one.WriteID
				o.New, o.Moves = append(o.New, one.New...), append(o.Moves, one.Moves...)
			}
			w.untouched(func() { w.same(now, w.lost(w.Store.Open(w.ctx, o))) })
			_, err := w.Store.ByWrite(w.ctx, o.WriteID)
			require.ErrorIs(w, err, ledger.ErrNotFound)
		}
	}},
	{"an opening that is refused moves nothing", func(w *world) {
		parent := w.grow(acme, "agent-1", "r")
		for why, spoil := range map[ledger.Why]func(*ledger.Opening){
			ledger.EpochMoved:  func(o *ledger.Opening) { o.Epoch = 9 },
			ledger.PreviewGone: func(o *ledger.Opening) { o.New[0].Preview = "prv_none" },
			ledger.TooLate:     func(o *ledger.Opening) { o.New[0].NotAfter = w.Clock.Now().Add(-1) },
			ledger.RunMoved: func(o *ledger.Opening) {
				o.CloseRun = w.closing(ledger.RunHead{Tenant: acme, Agent: "agent-1", ID: "r"})
			},
		} {
			o := w.undoing(parent)
			spoil(&o)
			w.untouched(func() { w.refused(why, w.Store.Open(w.ctx, o)) })
		}
	}},
	{"an opening with a move, its write id again", func(w *world) {
		o := w.undoing(w.open(acme, "k", ledger.Succeeded))
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
		// Also when both have moved on since.
		require.NoError(w, w.Store.Apply(w.ctx, w.ending(o.New[0].Operation, o.Moves[0].Operation)))
		w.freeze(acme)
		w.Clock.Advance(time.Hour)
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
	}},
	{"a move of what is not there", func(w *world) {
		parent := w.open(acme, "k", ledger.Succeeded)
		for _, spoil := range []func(*ledger.Operation){
			func(op *ledger.Operation) { op.ID = "op_none" },
			func(op *ledger.Operation) { op.Tenant = other },
		} {
			o := w.undoing(parent)
			spoil(&o.Moves[0].Operation)
			w.untouched(func() { require.ErrorIs(w, w.Store.Open(w.ctx, o), ledger.ErrNotFound) })
			op := w.open(acme, w.id("key_"), ledger.Running)
			t := w.ending(op, parent)
			spoil(&t.Also[0].Operation)
			w.untouched(func() { require.ErrorIs(w, w.Store.Apply(w.ctx, t), ledger.ErrNotFound) })
		}
	}},
	{"64 racers undo one operation: one winner, 63 lost to it", func(w *world) {
		parent := w.open(acme, "k", ledger.Succeeded)
		openings := make([]ledger.Opening, 64)
		for i := range openings {
			openings[i] = w.undoing(parent)
			n := &openings[i].New[0].Operation // under as many keys: only the parent stands between them
			n.Key = w.id("undo_")
			n.KeyDigest = ledger.KeyDigest(n.Key)
		}
		errs := together(len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		won := 0
		now := w.read(acme, parent.ID)
		for i, err := range errs {
			if err == nil {
				won++
				w.moved(openings[i].Moves[0])
				continue
			}
			w.same(now, w.lost(err))
		}
		require.Equal(w, 1, won)
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme, Parent: parent.ID}), 1)
	}},
	{"a transition moves others beside it, each with its event", func(w *world) {
		parent, child := w.pair(acme)
		t := w.ending(child, parent)
		t.Evidence = evidence(child, "evd_1")
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.same(t.Operation, w.read(acme, child.ID))
		w.moved(t.Also[0])
		found, err := w.Store.ByWrite(w.ctx, t.WriteID)
		require.NoError(w, err)
		w.same(t.Operation, found, "a write is found by its own operation")
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t), "the same write id again") })
		w.apply(t.Also[0].Operation, ledger.VerbReopen, func(*ledger.Operation) {})
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t), "also when one has moved on since") })
	}},
	{"a transition's lost move undoes all of it, and says which row", func(w *world) {
		parent, child := w.pair(acme)
		now := w.apply(parent, ledger.VerbReopen, func(op *ledger.Operation) { op.Reopened = true })
		t := w.ending(child, parent)
		p, g := plan("second"), w.change(ledger.Guard{Tenant: acme}).Guard
		t.Operation.Round = 2
		t.Evidence, t.Decision, t.Plan, t.Guard = evidence(child, "evd_1"), decision(child, "ann", ledger.VerbApprove), &p, &g
		w.untouched(func() { w.same(now, w.lost(w.Store.Apply(w.ctx, t))) })
		_, err := w.Store.ByWrite(w.ctx, t.WriteID)
		require.ErrorIs(w, err, ledger.ErrNotFound)
		t.Also = []ledger.Move{w.beside(now, t.WriteID, ledger.VerbCompensated, to(ledger.Compensated))}
		require.NoError(w, w.Store.Apply(w.ctx, t), "beside the row as it stands now")
	}},
	{"a transition that lost is named before its moves", func(w *world) {
		parent, child := w.pair(acme)
		t := w.ending(child, parent)
		w.apply(parent, ledger.VerbReopen, func(*ledger.Operation) {})
		now := w.apply(child, ledger.VerbDispatch, to(ledger.Running))
		w.same(now, w.lost(w.Store.Apply(w.ctx, t)))
	}},
	{"a transition that is refused moves nothing", func(w *world) {
		parent, child := w.pair(acme)
		t := w.ending(child, parent)
		epoch := int64(3)
		t.Epoch = &epoch
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Apply(w.ctx, t)) })
		t.Epoch, t.NotAfter = nil, w.Clock.Now().Add(-1)
		w.untouched(func() { w.refused(ledger.TooLate, w.Store.Apply(w.ctx, t)) })
	}},
	{"two ends of one parent: one is first, and the other sees it", func(w *world) {
		for range 20 {
			parent, child := w.pair(acme)
			older := w.open(acme, w.id("key_"), ledger.Unknown)
			moves := []ledger.Transition{w.ending(child, parent), w.ending(older, parent)}
			errs := together(2, func(i int) error { return w.Store.Apply(w.ctx, moves[i]) })
			now := w.read(acme, parent.ID)
			require.Equal(w, parent.Version+1, now.Version)
			won := 0
			for i, err := range errs {
				if err == nil {
					won++
					w.moved(moves[i].Also[0])
					continue
				}
				w.same(now, w.lost(err))
				w.same(map[int]ledger.Operation{0: child, 1: older}[i], w.read(acme, moves[i].Operation.ID), "and nothing of its own")
			}
			require.Equal(w, 1, won)
		}
	}},
}
