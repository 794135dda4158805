package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

var guardCases = []testCase{
	{"epoch 0 when it was never written", func(w *world) {
		g, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		w.same(ledger.Guard{Tenant: acme}, g)
	}},
	{"comes back as it was", func(w *world) {
		c := w.change(ledger.Guard{Tenant: acme, Generation: 3, Revoked: []string{"agent-9"}, Tools: map[string]string{"refund": "v1"}})
		_, err := w.Store.ChangeGuard(w.ctx, c)
		require.NoError(w, err)
		g, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		w.same(c.Guard, g)
		g, err = w.Store.Guard(w.ctx, other)
		require.NoError(w, err)
		require.Zero(w, g.Epoch)
	}},
	{"only from the expected epoch", func(w *world) {
		none := ledger.Guard{Tenant: acme}
		ahead := none
		ahead.Epoch = 1
		refuse := func(c ledger.GuardChange) {
			w.untouched(func() {
				_, err := w.Store.ChangeGuard(w.ctx, c)
				w.refused(ledger.EpochMoved, err)
			})
		}
		refuse(w.change(ahead))
		g := w.freeze(acme)
		refuse(w.change(none))
		w.freeze(acme)
		refuse(w.change(g))
	}},
	{"the same write id again is applied and changes nothing", func(w *world) {
		c := w.change(ledger.Guard{Tenant: acme})
		_, err := w.Store.ChangeGuard(w.ctx, c)
		require.NoError(w, err)
		op := w.open(acme, "k", ledger.Running)
		w.untouched(func() {
			running, err := w.Store.ChangeGuard(w.ctx, c)
			require.NoError(w, err)
			require.Equal(w, []string{op.ID}, ids(running), "what runs now")
		})
		w.freeze(acme)
		w.untouched(func() {
			_, err := w.Store.ChangeGuard(w.ctx, c)
			require.NoError(w, err)
		})
	}},
	{"gives what is running", func(w *world) {
		var want []string
		for _, s := range ledger.States {
			op := w.open(acme, string(s), s)
			if s == ledger.Running {
				want = append(want, op.ID)
			}
		}
		marked := w.apply(w.open(acme, "marked", ledger.Pending), ledger.VerbDispatch, to(ledger.Running))
		want = append(want, marked.ID)
		w.apply(w.open(acme, "done", ledger.Running), ledger.VerbFinish, to(ledger.Succeeded))
		w.open(other, "k", ledger.Running)
		running, err := w.Store.ChangeGuard(w.ctx, w.change(ledger.Guard{Tenant: acme}))
		require.NoError(w, err)
		require.ElementsMatch(w, want, ids(running))
		for _, op := range running {
			w.same(w.read(acme, op.ID), op)
		}
	}},
	{"every row there was is kept, oldest first, behind an epoch, up to a limit", func(w *world) {
		var all []ledger.Guard
		for i := range 6 {
			g, err := w.Store.Guard(w.ctx, acme)
			require.NoError(w, err)
			c := w.change(g)
			c.Guard.Change = ledger.Change{What: "freeze", Tool: "t <&>", By: ledger.Gateway("test"), Reason: "ünï\n", At: w.Clock.Now(), Open: i, Signature: "eyJ.s"}
			c.Guard.Prev, c.Guard.Hash = g.Hash, w.id("hash_")
			_, err = w.Store.ChangeGuard(w.ctx, c)
			require.NoError(w, err)
			all = append(all, c.Guard)
		}
		w.freeze(other)
		op := w.open(acme, "k", ledger.Failed)
		t := w.move(op, ledger.VerbContradict, to(ledger.Unknown))
		next := w.change(all[5]).Guard
		t.Guard = &next
		require.NoError(w, w.Store.Apply(w.ctx, t))
		all = append(all, next)
		for _, q := range []struct{ after, limit, from, to int }{{0, 99, 0, 7}, {0, 3, 0, 3}, {3, 3, 3, 6}, {6, 9, 6, 7}, {7, 9, 7, 7}, {0, 0, 0, 0}} {
			got, err := w.Store.GuardHistory(w.ctx, acme, int64(q.after), q.limit)
			require.NoError(w, err)
			w.same(all[q.from:q.to], got, q)
		}
		none, err := w.Store.GuardHistory(w.ctx, "third", 0, 9)
		require.NoError(w, err)
		require.Empty(w, none)
	}},
	{"a refused change leaves no row", func(w *world) {
		g := w.freeze(acme)
		c := w.change(g)
		c.Expect, c.Guard.Epoch = 0, 1
		w.untouched(func() {
			_, err := w.Store.ChangeGuard(w.ctx, c)
			w.refused(ledger.EpochMoved, err)
		})
		require.NotNil(w, g)
	}},
	{"the tenants that have a row, each once, in order", func(w *world) {
		tenants := func() []string {
			w.Helper()
			got, err := w.Store.Tenants(w.ctx)
			require.NoError(w, err)
			return got
		}
		require.Empty(w, tenants())
		w.open("has no row", "k", ledger.Running)
		for _, tenant := range []string{"b", "B", "a", "é", "b", "", "b ", "a"} {
			w.freeze(tenant)
		}
		require.Equal(w, []string{"", "B", "a", "b", "b ", "é"}, tenants())
	}},
	{"of racers on one epoch one wins", func(w *world) {
		changes := make([]ledger.GuardChange, 32)
		for i := range changes {
			changes[i] = w.change(ledger.Guard{Tenant: acme})
		}
		errs := together(len(changes), func(i int) error {
			_, err := w.Store.ChangeGuard(w.ctx, changes[i])
			return err
		})
		winner := winnerOf(w, errs, ledger.EpochMoved)
		g, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		w.same(changes[winner].Guard, g)
	}},
	// A row that is not there yet can't be locked; in some databases the first
	// freeze ever of a tenant excludes nobody.
	{"the first freeze ever excludes opens and marks", func(w *world) { excludes(w, ledger.Guard{Tenant: acme}) }},
	{"a later freeze excludes opens and marks", func(w *world) { excludes(w, w.freeze(acme)) }},
}

// winnerOf requires that exactly one racer won and the others were refused.
func winnerOf(w *world, errs []error, why ledger.Why) int {
	w.Helper()
	winner := -1
	for i, err := range errs {
		if err == nil {
			require.Equal(w, -1, winner, "two winners")
			winner = i
			continue
		}
		w.refused(why, err)
	}
	require.NotEqual(w, -1, winner, "no winner")
	return winner
}

// excludes lets callers open and mark under an epoch while the guard row
// changes. What is running when the change is acknowledged is all that ever
// runs, and the change knows all of it. The change comes through although the
// callers never pause.
func excludes(w *world, g ledger.Guard) {
	const callers = 16
	var pending [callers]ledger.Operation
	for i := range pending {
		pending[i] = w.open(acme, w.id("pending_"), ledger.Pending)
	}
	var mu sync.Mutex
	var marked []string
	var wg sync.WaitGroup
	var begun atomic.Int64
	under := make(chan struct{}) // closed when enough were marked to be a load
	once := sync.OnceFunc(func() { close(under) })
	failed := make(chan error, callers)
	for i := range callers {
		wg.Go(func() {
			epoch := g.Epoch
			mark := func(id string, write func() error) bool {
				err := write()
				var r *ledger.Refused
				if errors.As(err, &r) && r.Why == ledger.EpochMoved {
					return false
				}
				if err != nil {
					failed <- err
					return false
				}
				mu.Lock()
				marked = append(marked, id)
				mu.Unlock()
				if begun.Add(1) == 4*callers {
					once()
				}
				return true
			}
			for {
				p := w.preview(acme, w.id("key_"), 1)
				if err := w.Store.PutPreview(w.ctx, p); err != nil {
					failed <- err
					return
				}
				o := w.opening(p, ledger.Running)
				o.Epoch = epoch
				if !mark(o.New[0].Operation.ID, func() error { return w.Store.Open(w.ctx, o) }) {
					break
				}
			}
			t := w.move(pending[i], ledger.VerbDispatch, to(ledger.Running))
			t.Epoch = &epoch
			if mark(t.Operation.ID, func() error { return w.Store.Apply(w.ctx, t) }) {
				failed <- errors.New("a mark of an older epoch was made after the change")
			}
		})
	}
	// Marks of operations that were opened before race with the change too.
	var early [callers]ledger.Operation
	for i := range early {
		early[i] = w.open(acme, w.id("early_"), ledger.Pending)
	}
	for i := range early {
		wg.Go(func() {
			<-under
			t := w.move(early[i], ledger.VerbDispatch, to(ledger.Running))
			t.Epoch = &g.Epoch
			err := w.Store.Apply(w.ctx, t)
			var r *ledger.Refused
			switch {
			case err == nil:
				mu.Lock()
				marked = append(marked, t.Operation.ID)
				mu.Unlock()
			case !errors.As(err, &r) || r.Why != ledger.EpochMoved:
				failed <- err
			}
		})
	}
	<-under
	running, err := w.Store.ChangeGuard(w.ctx, w.change(g))
	require.NoError(w, err)
	at := ids(running)
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(w, err)
	}
	slices.Sort(at)
	slices.Sort(marked)
	require.Equal(w, marked, at, "the change must know exactly what was marked")
	require.ElementsMatch(w, at, ids(w.listAll(ledger.Filter{Tenant: acme, States: []ledger.State{ledger.Running}})))
}

var raceCases = []testCase{
	{"64 racers on one key: one winner, one event", func(w *world) {
		const racers = 64
		openings := make([]ledger.Opening, racers)
		for i := range openings {
			openings[i] = w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		}
		errs := together(racers, func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		winner := winnerOf(w, errs, ledger.HeadMoved)
		want := openings[winner].New[0].Operation
		require.Equal(w, []string{want.ID}, ids(w.listAll(ledger.Filter{Tenant: acme})))
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, racers)
		require.NoError(w, err)
		require.Len(w, evs, 1)
		require.Equal(w, want.ID, evs[0].Operation)
		for i, o := range openings {
			_, err := w.Store.ByWrite(w.ctx, o.WriteID)
			if i == winner {
				require.NoError(w, err)
			} else {
				require.ErrorIs(w, err, ledger.ErrNotFound)
			}
		}
	}},
	{"64 racers on the next generation: one winner", func(w *world) {
		head := ledger.Head{Operation: w.open(acme, "k", ledger.Failed)}
		openings := make([]ledger.Opening, 64)
		for i := range openings {
			openings[i] = w.opening(w.put(w.preview(acme, "k", 2)), ledger.Running)
			openings[i].New[0].Head = head
		}
		errs := together(len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		winnerOf(w, errs, ledger.HeadMoved)
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 2)
	}},
	{"64 racers with one write id: all are told that it is applied", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		for _, err := range together(64, func(int) error { return w.Store.Open(w.ctx, o) }) {
			require.NoError(w, err)
		}
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 10)
		require.NoError(w, err)
		require.Len(w, evs, 1)
	}},
	{"64 racers on one transition: one winner, 63 lost to it", func(w *world) {
		const racers = 64
		op := w.open(acme, "k", ledger.Pending)
		moves := make([]ledger.Transition, racers)
		for i := range moves {
			moves[i] = w.move(op, ledger.VerbDispatch, func(op *ledger.Operation) { op.State, op.Fence = ledger.Running, 1 })
		}
		errs := together(racers, func(i int) error { return w.Store.Apply(w.ctx, moves[i]) })
		now := w.read(acme, op.ID)
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				w.same(moves[i].Operation, now)
				continue
			}
			w.same(now, w.lost(err))
		}
		require.Equal(w, 1, won)
		evs, err := w.Store.Events(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, evs, 2)
	}},
	{"a successor and a contradiction exclude each other", func(w *world) {
		// The open evaluated a void head; late evidence moves that very head.
		for range 20 {
			key := w.id("key_")
			failed := w.open(acme, key, ledger.Failed)
			o := w.opening(w.put(w.preview(acme, key, 2)), ledger.Running)
			o.New[0].Head = ledger.Head{Operation: failed}
			t := w.move(failed, ledger.VerbContradict, to(ledger.Unknown))
			errs := together(2, func(i int) error {
				if i == 0 {
					return w.Store.Open(w.ctx, o)
				}
				return w.Store.Apply(w.ctx, t)
			})
			require.NoError(w, errs[1], "nothing blocks late evidence")
			_, err := w.Store.Generation(w.ctx, acme, tool, ledger.KeyDigest(key), 2)
			if errs[0] == nil {
				require.NoError(w, err)
				continue
			}
			w.refused(ledger.HeadMoved, errs[0])
			require.ErrorIs(w, err, ledger.ErrNotFound)
		}
	}},
}
