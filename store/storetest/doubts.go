package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

func askAt(at time.Time) func(*ledger.Operation) {
	return func(op *ledger.Operation) { op.AskAt = at }
}

// deferred moves the claim on an operation.
func (w *world) deferred(kind ledger.DueKind, op ledger.Operation, until time.Time) {
	w.Helper()
	require.NoError(w, w.Store.Defer(w.ctx, kind, op, until))
}

var doubtCases = []testCase{
	{"what is unknown is due when it is to be asked about, and nothing else is", func(w *world) {
		t := w.Clock.Now().Add(time.Second)
		var want string
		for _, s := range ledger.States {
			op := w.timed(string(s), s, askAt(t))
			if s == ledger.Unknown {
				want = op.ID
			}
		}
		w.Clock.Advance(time.Second - 1)
		require.Empty(w, w.due(ledger.DueDoubt, 100), "a nanosecond early")
		w.Clock.Advance(1)
		require.Equal(w, []string{want}, w.due(ledger.DueDoubt, 100))
	}},
	{"without a time it is due at once, on the people's list never", func(w *world) {
		op := w.timed("k", ledger.Unknown, func(*ledger.Operation) {})
		w.timed("l", ledger.Unknown, func(op *ledger.Operation) { op.OnList = true })
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDoubt, 9))
		w.Clock.Advance(1000 * time.Hour)
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDoubt, 9))
		w.apply(op, ledger.VerbHandOver, func(op *ledger.Operation) { op.OnList = true })
		w.Clock.Advance(1000 * time.Hour)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
	}},
	{"follows the operation", func(w *world) {
		op := w.open(acme, "k", ledger.Running)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		op = w.apply(op, ledger.VerbLoseLease, to(ledger.Unknown))
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDoubt, 9))
		op = w.apply(op, ledger.VerbRetry, to(ledger.Running))
		w.Clock.Advance(time.Hour)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		op = w.apply(op, ledger.VerbRelease, func(op *ledger.Operation) {
			op.State, op.AskAt = ledger.Unknown, w.Clock.Now().Add(time.Second)
		})
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		w.Clock.Advance(time.Second)
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDoubt, 9))
		w.apply(op, ledger.VerbResolve, to(ledger.Failed))
		w.Clock.Advance(time.Hour)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
	}},
	{"a claim may be moved, to earlier and to later", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		require.Len(w, w.due(ledger.DueDoubt, 9), 1)
		w.deferred(ledger.DueDoubt, op, w.Clock.Now().Add(time.Second))
		w.Clock.Advance(time.Second - 1)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		w.Clock.Advance(1)
		require.Len(w, w.due(ledger.DueDoubt, 9), 1)
		w.deferred(ledger.DueDoubt, op, w.Clock.Now().Add(time.Hour))
		w.Clock.Advance(time.Hour - 1)
		require.Empty(w, w.due(ledger.DueDoubt, 9))
		w.Clock.Advance(1)
		require.Len(w, w.due(ledger.DueDoubt, 9), 1)
	}},
	{"of each kind, and each kind alone", func(w *world) {
		for kind, state := range map[ledger.DueKind]ledger.State{
			ledger.DueDispatch: ledger.Pending, ledger.DueLease: ledger.Running, ledger.DueExpiry: ledger.AwaitingApproval, ledger.DueDoubt: ledger.Unknown,
		} {
			now := w.Clock.Now()
			op := w.timed(w.id("k"), state, func(op *ledger.Operation) {
				op.NotBefore, op.LeaseUntil, op.ExpiresAt, op.AskAt = now, now, now, now
			})
			for _, k := range []ledger.DueKind{ledger.DueDispatch, ledger.DueLease, ledger.DueExpiry, ledger.DueDoubt} {
				if k != kind {
					w.deferred(k, op, now.Add(-time.Hour)) // it is none of that kind
				}
			}
			require.Contains(w, w.due(kind, 9), op.ID, kind)
			w.deferred(kind, op, now.Add(-1))
			require.Contains(w, w.due(kind, 9), op.ID, kind)
		}
		require.Error(w, w.Store.Defer(w.ctx, "none", w.open(acme, "k", ledger.Unknown), w.Clock.Now()))
	}},
	{"a claim on another version, of another tenant or of nothing is left alone", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		now := w.apply(op, ledger.VerbHandOver, func(*ledger.Operation) {})
		require.Len(w, w.due(ledger.DueDoubt, 9), 1)
		foreign, none, ahead := now, now, now
		foreign.Tenant, none.ID, ahead.Version = other, "op_none", now.Version+1
		for _, o := range []ledger.Operation{op, foreign, none, ahead} {
			w.deferred(ledger.DueDoubt, o, w.Clock.Now().Add(-time.Hour))
		}
		require.Empty(w, w.due(ledger.DueDoubt, 9))
	}},
	{"what moved meanwhile is due by its own time again", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		w.deferred(ledger.DueDoubt, op, w.Clock.Now().Add(1000*time.Hour))
		w.apply(op, ledger.VerbHandOver, askAt(w.Clock.Now().Add(time.Second)))
		w.Clock.Advance(time.Second)
		require.Len(w, w.due(ledger.DueDoubt, 9), 1)
	}},
	{"moving a claim changes nothing that can be read", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		w.untouched(func() { w.deferred(ledger.DueDoubt, op, w.Clock.Now().Add(time.Hour)) })
	}},
	{"what can't be moved keeps nothing behind it", func(w *world) {
		var ops []string
		for range 5 {
			ops = append(ops, w.open(acme, w.id("k"), ledger.Unknown).ID)
		}
		for _, id := range ops {
			require.Equal(w, []string{id}, w.due(ledger.DueDoubt, 1))
		}
		require.Empty(w, w.due(ledger.DueDoubt, 1))
	}},
}
