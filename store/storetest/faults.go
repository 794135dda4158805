package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var errInjected = errors.New("injected: disk I/O error")

var faultCases = []testCase{
	{"a lost answer is ambiguous, and the write is found", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Pending)
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Open(w.ctx, o))
		found, err := w.Store.ByWrite(w.ctx, o.WriteID)
		require.NoError(w, err)
		w.same(o.New[0].Operation, found)
		require.NoError(w, w.Store.Open(w.ctx, o), "the identical write again")

		t := w.move(found, ledger.VerbDispatch, to(ledger.Running))
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Apply(w.ctx, t))
		found, err = w.Store.ByWrite(w.ctx, t.WriteID)
		require.NoError(w, err)
		w.same(t.Operation, found)
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t)) })

		c := w.change(ledger.Guard{Tenant: acme})
		w.Faults.LoseNextAnswer()
		_, err = w.Store.ChangeGuard(w.ctx, c)
		w.ambiguous(err)
		running, err := w.Store.ChangeGuard(w.ctx, c)
		require.NoError(w, err)
		require.Equal(w, []string{found.ID}, ids(running))
	}},
	{"a lost answer of what moves several: all of it is there, and the identical write changes nothing", func(w *world) {
		parent := w.grow(acme, "agent-1", "r")
		o := w.undoing(parent)
		o.CloseRun = w.closing(w.run(acme, "agent-1", "r"))
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Open(w.ctx, o))
		w.moved(o.Moves[0])
		require.True(w, w.run(acme, "agent-1", "r").Closed())
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })

		t := w.ending(o.New[0].Operation, o.Moves[0].Operation)
		t.Evidence = w.proof(o.New[0].Operation, "response", "re_1", tools.Succeeded)
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Apply(w.ctx, t))
		w.moved(t.Also[0])
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t)) })

		c := w.checkpoint(ledger.Checkpoint{})
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Seal(w.ctx, c))
		w.untouched(func() { require.NoError(w, w.Store.Seal(w.ctx, c)) })

		g, unknown := w.aiming(acme, theGoal, ledger.Running, ledger.Head{}), w.open(acme, "u", ledger.Unknown)
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Open(w.ctx, g))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, g)) })
		later := w.Clock.Now().Add(time.Hour)
		w.Faults.LoseNextAnswer()
		w.ambiguous(w.Store.Defer(w.ctx, ledger.DueDoubt, unknown, later))
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		w.deferred(ledger.DueDoubt, unknown, later)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
	}},
	{"a commit of what moves several that failed, or a statement in it: none of it is there", func(w *world) {
		parent := w.grow(acme, "agent-1", "r")
		head := w.run(acme, "agent-1", "r")
		for _, fail := range []func(writeID string) bool{
			func(string) bool { w.Faults.FailNextCommit(); return true },
			func(id string) bool { w.Faults.FailWrite(id, errInjected, false, -1); return false },
			func(id string) bool { w.Faults.FailWrite(id, errInjected, true, -1); return false },
		} {
			o := w.undoing(parent)
			o.CloseRun = w.closing(head)
			w.untouched(func() {
				unclear := fail(o.WriteID)
				err := w.Store.Open(w.ctx, o)
				require.Error(w, err)
				require.Equal(w, unclear, errors.As(err, new(*ledger.Ambiguous)))
			})
		}
		w.untouched(func() {
			w.Faults.FailNextCommit()
			w.ambiguous(w.Store.Seal(w.ctx, w.checkpoint(ledger.Checkpoint{})))
		})
		_, child := w.pair(acme)
		t := w.ending(child, w.read(acme, child.Parent))
		w.untouched(func() {
			w.Faults.FailNextCommit()
			w.ambiguous(w.Store.Apply(w.ctx, t))
		})
		require.NoError(w, w.Store.Apply(w.ctx, t), "the identical write again")
		w.moved(t.Also[0])
	}},
	{"a member whose parent moved hurts nobody else in its group", func(w *world) {
		openings := make([]ledger.Opening, 8)
		for i := range openings {
			parent := w.open(acme, w.id("key_"), ledger.Succeeded)
			openings[i] = w.undoing(parent)
			if i%2 == 0 {
				w.apply(parent, ledger.VerbReopen, func(*ledger.Operation) {})
			}
		}
		for i, err := range grouped(w, len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) }) {
			if i%2 == 0 {
				w.lost(err)
				_, err := w.Store.Operation(w.ctx, acme, openings[i].New[0].Operation.ID)
				require.ErrorIs(w, err, ledger.ErrNotFound)
				continue
			}
			require.NoError(w, err)
			w.moved(openings[i].Moves[0])
		}
	}},
	{"a commit that failed is ambiguous, and the write is not found", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Pending)
		w.untouched(func() {
			w.Faults.FailNextCommit()
			w.ambiguous(w.Store.Open(w.ctx, o))
			_, err := w.Store.ByWrite(w.ctx, o.WriteID)
			require.ErrorIs(w, err, ledger.ErrNotFound)
		})
		require.NoError(w, w.Store.Open(w.ctx, o), "the identical write again")
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 1)
	}},
	{"a statement that failed is a plain error, and nothing was written", func(w *world) {
		for _, ends := range []bool{false, true} {
			o := w.opening(w.put(w.preview(acme, w.id("k"), 1)), ledger.Pending)
			w.Faults.FailWrite(o.WriteID, errInjected, ends, -1)
			w.untouched(func() {
				err := w.Store.Open(w.ctx, o)
				require.ErrorIs(w, err, errInjected)
				require.NotErrorAs(w, err, new(*ledger.Ambiguous))
			})
		}
	}},
	{"a member that fails hurts nobody else in its group", func(w *world) {
		for _, f := range []struct{ ends, forever bool }{{false, true}, {true, true}, {false, false}, {true, false}} {
			for _, bad := range []int{0, 7, 15} {
				group(w, 16, func(i int, o ledger.Opening) {
					if i == bad {
						times := 1
						if f.forever {
							times = -1
						}
						w.Faults.FailWrite(o.WriteID, errInjected, f.ends, times)
					}
				}, func(i int, err error) bool {
					if i == bad && f.forever {
						require.ErrorIs(w, err, errInjected)
						return false
					}
					require.NoError(w, err, "member %d beside a failing %d", i, bad)
					return true
				})
			}
		}
	}},
	{"a refused member hurts nobody else in its group", func(w *world) {
		group(w, 16, func(i int, o ledger.Opening) {
			if i%3 == 0 {
				o.New[0].Preview = "prv_none"
			}
		}, func(i int, err error) bool {
			if i%3 == 0 {
				w.refused(ledger.PreviewGone, err)
				return false
			}
			require.NoError(w, err)
			return true
		})
	}},
	{"a member refused half way leaves nothing of itself in its group", func(w *world) {
		taken := w.open(acme, "taken", ledger.Running)
		openings := w.openings(6)
		for i := range openings {
			if i%2 == 0 { // the second of two can't be opened
				second := w.opening(w.put(w.preview(acme, taken.Key, 1)), ledger.Running)
				openings[i].New = append(openings[i].New, second.New...)
			}
		}
		answers := grouped(w, len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		for i, err := range answers {
			_, found := w.Store.Operation(w.ctx, acme, openings[i].New[0].Operation.ID)
			if i%2 == 0 {
				w.refused(ledger.HeadMoved, err)
				require.ErrorIs(w, found, ledger.ErrNotFound)
			} else {
				require.NoError(w, err)
				require.NoError(w, found)
			}
		}
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 100)
		require.NoError(w, err)
		require.Len(w, evs, 1+len(openings)/2)
		require.EqualValues(w, len(evs), evs[len(evs)-1].Seq)
	}},
	{"members see those before them", func(w *world) {
		op := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Pending)
		for _, err := range grouped(w, 16, func(int) error { return w.Store.Open(w.ctx, op) }) {
			require.NoError(w, err, "one write id")
		}
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 1)
	}},
	{"an ambiguous commit is ambiguous for the whole group", func(w *world) {
		for _, lose := range []bool{true, false} {
			openings := w.openings(8)
			taken := w.open(acme, w.id("taken_"), ledger.Running)
			refused := &openings[3].New[0].Operation
			refused.Key, refused.KeyDigest = taken.Key, taken.KeyDigest
			wait, release := w.Faults.Hold()
			done := make(chan []error)
			go func() {
				done <- together(len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
			}()
			wait(len(openings))
			if lose {
				w.Faults.LoseNextAnswer()
			} else {
				w.Faults.FailNextCommit()
			}
			release()
			for _, err := range <-done {
				w.ambiguous(err)
			}
			for i, o := range openings {
				_, err := w.Store.ByWrite(w.ctx, o.WriteID)
				if lose && i != 3 {
					require.NoError(w, err)
				} else {
					require.ErrorIs(w, err, ledger.ErrNotFound)
				}
			}
		}
	}},
	{"a caller who leaves a waiting group gets an ambiguous answer, and hurts nobody", func(w *world) {
		openings := w.openings(8)
		wait, release := w.Faults.Hold()
		ctx, leave := context.WithCancel(w.ctx)
		left := make(chan error)
		go func() { left <- w.Store.Open(ctx, openings[0]) }()
		wait(1)
		done := make(chan []error)
		go func() {
			done <- together(len(openings)-1, func(i int) error { return w.Store.Open(w.ctx, openings[i+1]) })
		}()
		wait(len(openings))
		leave()
		w.ambiguous(<-left)
		release()
		for _, err := range <-done {
			require.NoError(w, err)
		}
		// It was queued, so it ran to its end.
		_, err := w.Store.ByWrite(w.ctx, openings[0].WriteID)
		require.NoError(w, err)
		evs, err := w.Store.EventsAfter(w.ctx, acme, 0, 100)
		require.NoError(w, err)
		require.Len(w, evs, len(openings))
	}},
	{"a change of the guard row overtakes what waits", func(w *world) {
		const callers = 16
		openings := w.openings(callers + 1)
		wait, release := w.Faults.Hold()
		done := make(chan []error)
		go func() {
			done <- together(callers, func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
		}()
		wait(callers)
		changed := make(chan error)
		var running []ledger.Operation
		c := w.change(ledger.Guard{Tenant: acme})
		go func() {
			var err error
			running, err = w.Store.ChangeGuard(w.ctx, c)
			changed <- err
		}()
		wait(callers + 1)
		release()
		require.NoError(w, <-changed)
		opened := 0
		for _, err := range <-done {
			if err == nil {
				opened++
				continue
			}
			w.refused(ledger.EpochMoved, err)
		}
		// The writer held the first of the callers already.
		require.LessOrEqual(w, opened, 1)
		require.Len(w, running, opened)
	}},
	{"a store goes on after every fault", func(w *world) {
		for range 3 {
			for _, breakIt := range []func(ledger.Opening){
				func(ledger.Opening) { w.Faults.LoseNextAnswer() },
				func(ledger.Opening) { w.Faults.FailNextCommit() },
				func(o ledger.Opening) { w.Faults.FailWrite(o.WriteID, errInjected, false, 1) },
				func(o ledger.Opening) { w.Faults.FailWrite(o.WriteID, errInjected, true, 1) },
			} {
				o := w.openings(1)[0]
				breakIt(o)
				require.Error(w, w.Store.Open(w.ctx, o))
				require.NoError(w, w.Store.Open(w.ctx, o), "the identical write again")
			}
		}
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 12)
	}},
}

// openings builds n openings on stored previews.
func (w *world) openings(n int) []ledger.Opening {
	w.Helper()
	list := make([]ledger.Opening, n)
	for i := range list {
		list[i] = w.opening(w.put(w.preview(acme, w.id("key_"), 1)), ledger.Running)
	}
	return list
}

// grouped runs n writes as one group and gives their answers.
func grouped(w *world, n int, write func(i int) error) []error {
	w.Helper()
	wait, release := w.Faults.Hold()
	done := make(chan []error)
	go func() { done <- together(n, write) }()
	wait(n)
	release()
	return <-done
}

// group opens n operations in one group and checks each answer against the
// store: what was acknowledged is there, once; the rest left no trace.
func group(w *world, n int, prepare func(int, ledger.Opening), answered func(int, error) bool) {
	w.Helper()
	openings := w.openings(n)
	for i, o := range openings {
		prepare(i, o)
	}
	for i, err := range grouped(w, n, func(i int) error { return w.Store.Open(w.ctx, openings[i]) }) {
		op := openings[i].New[0].Operation
		applied := answered(i, err)
		evs, err := w.Store.Events(w.ctx, acme, op.ID)
		if !applied {
			require.ErrorIs(w, err, ledger.ErrNotFound)
			continue
		}
		require.NoError(w, err)
		require.Len(w, evs, 1)
		w.same(op, w.read(acme, op.ID))
		pl, err := w.Store.Plan(w.ctx, acme, op.ID, 1)
		require.NoError(w, err)
		require.Equal(w, fmt.Sprint("Refund for ", op.Key), pl.Headline)
	}
}
