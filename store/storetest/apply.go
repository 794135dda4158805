package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var applyCases = []testCase{
	{"the new row and exactly one event", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		w.Clock.Advance(time.Second)
		t := w.move(op, ledger.VerbDispatch, func(op *ledger.Operation) {
			op.State, op.Fence, op.LeaseUntil = ledger.Running, 1, w.Clock.Now().Add(time.Minute)
			op.Attempts = []ledger.Attempt{{N: 1, Fence: 1, MarkedAt: w.Clock.Now(), Deadline: w.Clock.Now().Add(time.Second)}}
		})
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.same(t.Operation, w.read(acme, op.ID))
		evs, err := w.Store.Events(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, evs, 2)
		want := t.Event
		want.Seq = evs[1].Seq
		w.same(want, evs[1])
	}},
	{"what is not there", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		foreign, unknown := op, op
		foreign.Tenant, unknown.ID = other, "op_none"
		w.untouched(func() {
			require.ErrorIs(w, w.Store.Apply(w.ctx, w.move(foreign, ledger.VerbCancel, to(ledger.Cancelled))), ledger.ErrNotFound)
			require.ErrorIs(w, w.Store.Apply(w.ctx, w.move(unknown, ledger.VerbCancel, to(ledger.Cancelled))), ledger.ErrNotFound)
		})
	}},
	{"lost, with what stands there now", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		now := w.apply(op, ledger.VerbDispatch, to(ledger.Running))
		w.untouched(func() {
			cur := w.lost(w.Store.Apply(w.ctx, w.move(op, ledger.VerbCancel, to(ledger.Cancelled))))
			w.same(now, cur)
		})
		ahead := now
		ahead.Version++
		w.untouched(func() {
			cur := w.lost(w.Store.Apply(w.ctx, w.move(ahead, ledger.VerbCancel, to(ledger.Cancelled))))
			w.same(now, cur)
		})
	}},
	{"the same write id again is applied and changes nothing", func(w *world) {
		op := w.open(acme, "k", ledger.AwaitingApproval)
		t := w.move(op, ledger.VerbApprove, to(ledger.Pending))
		t.Decision = decision(op, "ann", ledger.VerbApprove)
		t.Evidence = evidence(op, w.id("evd_"))
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t)) })
		w.apply(t.Operation, ledger.VerbDispatch, to(ledger.Running))
		w.freeze(acme)
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t)) })
	}},
	{"the guard row still has the epoch, when it is asked", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		epoch := func(e int64) ledger.Transition {
			t := w.move(op, ledger.VerbDispatch, to(ledger.Running))
			t.Epoch = &e
			return t
		}
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Apply(w.ctx, epoch(1))) })
		w.freeze(acme)
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Apply(w.ctx, epoch(0))) })
		op = w.apply(op, ledger.VerbWithdraw, func(*ledger.Operation) {}) // asks nothing
		require.NoError(w, w.Store.Apply(w.ctx, epoch(1)))
	}},
	{"not after its time", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		t := w.move(op, ledger.VerbDispatch, to(ledger.Running))
		t.NotAfter = w.Clock.Now().Add(-1)
		w.untouched(func() { w.refused(ledger.TooLate, w.Store.Apply(w.ctx, t)) })
		t.NotAfter = w.Clock.Now()
		require.NoError(w, w.Store.Apply(w.ctx, t))
	}},
	{"a lost race is named before what else is wrong", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		w.apply(op, ledger.VerbDispatch, to(ledger.Running))
		t := w.move(op, ledger.VerbDispatch, to(ledger.Running))
		e := int64(7)
		t.Epoch, t.NotAfter = &e, w.Clock.Now().Add(-time.Hour)
		w.lost(w.Store.Apply(w.ctx, t))
	}},
	{"a new round brings its plan, and the old one stays", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		second := plan("other effects")
		t := w.move(op, ledger.VerbRevise, func(op *ledger.Operation) { op.State, op.Round = ledger.AwaitingApproval, 2 })
		t.Plan = &second
		require.NoError(w, w.Store.Apply(w.ctx, t))
		for round, want := range map[int]tools.Plan{1: plan("k"), 2: second} {
			got, err := w.Store.Plan(w.ctx, acme, op.ID, round)
			require.NoError(w, err)
			w.same(want, got)
		}
		_, err := w.Store.Plan(w.ctx, acme, op.ID, 3)
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"evidence comes along", func(w *world) {
		op := w.open(acme, "k", ledger.Running)
		t := w.move(op, ledger.VerbFinish, to(ledger.Succeeded))
		t.Evidence = evidence(op, "evd_1")
		require.NoError(w, w.Store.Apply(w.ctx, t))
		got, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		w.same([]ledger.Evidence{*t.Evidence}, got)
	}},
	{"evidence that is there already is in nobody's way", func(w *world) {
		op := w.open(acme, "k", ledger.Running)
		e := evidence(op, "evd_1")
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
		t := w.move(op, ledger.VerbFinish, to(ledger.Succeeded))
		t.Evidence = e
		require.NoError(w, w.Store.Apply(w.ctx, t))
		got, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, got, 1)
	}},
	{"a freeze comes along, or nothing does", func(w *world) {
		op := w.open(acme, "k", ledger.Failed)
		contradict := func(g ledger.Guard) ledger.Transition {
			t := w.move(op, ledger.VerbContradict, to(ledger.Unknown))
			next := w.change(g).Guard
			t.Guard = &next
			t.Evidence = evidence(op, w.id("evd_"))
			return t
		}
		w.freeze(acme)
		w.untouched(func() {
			w.refused(ledger.EpochMoved, w.Store.Apply(w.ctx, contradict(ledger.Guard{Tenant: acme})))
		})
		g, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		t := contradict(g)
		require.NoError(w, w.Store.Apply(w.ctx, t))
		got, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		w.same(*t.Guard, got)
		w.untouched(func() { require.NoError(w, w.Store.Apply(w.ctx, t)) })

		o := w.opening(w.put(w.preview(acme, "l", 1)), ledger.Running)
		o.Epoch = g.Epoch
		w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, o))
	}},
	{"the first guard row of a tenant may come along", func(w *world) {
		op := w.open(acme, "k", ledger.Failed)
		t := w.move(op, ledger.VerbContradict, to(ledger.Unknown))
		next := w.change(ledger.Guard{Tenant: acme}).Guard
		t.Guard = &next
		require.NoError(w, w.Store.Apply(w.ctx, t))
		got, err := w.Store.Guard(w.ctx, acme)
		require.NoError(w, err)
		require.EqualValues(w, 1, got.Epoch)
	}},
}

// decision builds a person's word on the operation's round.
func decision(op ledger.Operation, person string, verb ledger.Verb) *ledger.Decision {
	return &ledger.Decision{
		Operation: op.ID, Round: op.Round, Person: person, Name: person, Verb: verb,
		Groups: []string{"support"}, Digest: "shown", Reason: "because", At: op.UpdatedAt,
	}
}

var decisionCases = []testCase{
	{"a person decides once a round", func(w *world) {
		op := w.open(acme, "k", ledger.AwaitingApproval)
		say := func(person string, verb ledger.Verb) error {
			t := w.move(op, verb, func(*ledger.Operation) {})
			t.Decision = decision(op, person, verb)
			err := w.Store.Apply(w.ctx, t)
			if err == nil {
				op = t.Operation
			}
			return err
		}
		require.NoError(w, say("ann", ledger.VerbApprove))
		w.untouched(func() {
			w.refused(ledger.AlreadyDecided, say("ann", ledger.VerbApprove))
			w.refused(ledger.AlreadyDecided, say("ann", ledger.VerbReject))
		})
		require.NoError(w, say("bob", ledger.VerbApprove))
		require.NoError(w, say("ann", ledger.VerbWithdraw), "taking a yes back is a second row")
		w.untouched(func() {
			w.refused(ledger.AlreadyDecided, say("ann", ledger.VerbWithdraw))
			w.refused(ledger.AlreadyDecided, say("ann", ledger.VerbApprove))
		})
		op.Round = 2
		require.NoError(w, say("ann", ledger.VerbReject), "a new round is a new word")

		ds, err := w.Store.Decisions(w.ctx, acme, op.ID)
		require.NoError(w, err)
		var words []string
		for _, d := range ds {
			words = append(words, fmt.Sprintf("%s %s %d", d.Person, d.Verb, d.Round))
		}
		require.Equal(w, []string{"ann approve 1", "bob approve 1", "ann withdraw 1", "ann reject 2"}, words)
		w.same(*decision(w.read(acme, op.ID), "bob", ledger.VerbApprove), withRound(ds[1], 2), "all of it is kept")
	}},
	{"a person decides on each operation", func(w *world) {
		for _, key := range []string{"a", "b"} {
			op := w.open(acme, key, ledger.AwaitingApproval)
			t := w.move(op, ledger.VerbApprove, to(ledger.Pending))
			t.Decision = decision(op, "ann", ledger.VerbApprove)
			require.NoError(w, w.Store.Apply(w.ctx, t))
		}
	}},
	{"refused with everything that came along", func(w *world) {
		op := w.open(acme, "k", ledger.AwaitingApproval)
		t := w.move(op, ledger.VerbApprove, func(*ledger.Operation) {})
		t.Decision = decision(op, "ann", ledger.VerbApprove)
		require.NoError(w, w.Store.Apply(w.ctx, t))
		op = t.Operation
		t = w.move(op, ledger.VerbRevise, func(op *ledger.Operation) { op.State = ledger.Pending })
		p, next := plan("second"), w.change(ledger.Guard{Tenant: acme}).Guard
		t.Decision, t.Plan, t.Evidence, t.Guard = decision(op, "ann", ledger.VerbReject), &p, evidence(op, "evd_1"), &next
		w.untouched(func() { w.refused(ledger.AlreadyDecided, w.Store.Apply(w.ctx, t)) })
	}},
	{"two clicks at once are one decision", func(w *world) {
		op := w.open(acme, "k", ledger.AwaitingApproval)
		errs := together(16, func(int) error {
			cur := op
			for {
				t := w.move(cur, ledger.VerbApprove, func(*ledger.Operation) {})
				t.Decision = decision(cur, "ann", ledger.VerbApprove)
				err := w.Store.Apply(w.ctx, t)
				lost, ok := err.(*ledger.Lost)
				if !ok {
					return err
				}
				cur = lost.Current
			}
		})
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			w.refused(ledger.AlreadyDecided, err)
		}
		require.Equal(w, 1, won)
		ds, err := w.Store.Decisions(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, ds, 1)
		require.EqualValues(w, 2, w.read(acme, op.ID).Version)
	}},
}

func withRound(d ledger.Decision, round int) ledger.Decision {
	d.Round = round
	return d
}
