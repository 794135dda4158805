package storetest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// due asks for what is due of a kind, as a loop would.
func (w *world) due(kind ledger.DueKind, limit int) []string {
	w.Helper()
	now := w.Clock.Now()
	ops, err := w.Store.Due(w.ctx, ledger.DueQuery{Kind: kind, Now: now, Limit: limit, Owner: w.id("owner_"), Until: now.Add(time.Minute)})
	require.NoError(w, err)
	for _, op := range ops {
		w.same(w.read(op.Tenant, op.ID), op)
	}
	return ids(ops)
}

// timed opens an operation with times set.
func (w *world) timed(key string, state ledger.State, set func(*ledger.Operation)) ledger.Operation {
	w.Helper()
	o := w.opening(w.put(w.preview(acme, key, 1)), state)
	set(&o.New[0].Operation)
	require.NoError(w, w.Store.Open(w.ctx, o))
	return o.New[0].Operation
}

var dueCases = []testCase{
	{"each kind at its time, and no other", func(w *world) {
		t := w.Clock.Now().Add(time.Second)
		all := func(op *ledger.Operation) { op.NotBefore, op.LeaseUntil, op.ExpiresAt = t, t, t }
		by := map[ledger.State]string{}
		for _, s := range ledger.States {
			by[s] = w.timed(string(s), s, all).ID
		}
		want := map[ledger.DueKind][]string{
			ledger.DueDispatch: {by[ledger.Pending]},
			ledger.DueLease:    {by[ledger.Running]},
			ledger.DueExpiry:   {by[ledger.AwaitingApproval], by[ledger.Pending]},
		}
		w.Clock.Advance(time.Second - 1)
		for kind := range want {
			require.Empty(w, w.due(kind, 100), "%s a nanosecond early", kind)
		}
		w.Clock.Advance(1)
		for kind, ids := range want {
			require.ElementsMatch(w, ids, w.due(kind, 100), kind)
		}
	}},
	{"a pending operation without a time is due at once, a round without one never expires", func(w *world) {
		op := w.timed("k", ledger.Pending, func(*ledger.Operation) {})
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 1))
		w.Clock.Advance(1000 * time.Hour)
		require.Empty(w, w.due(ledger.DueExpiry, 1))
	}},
	{"follows the operation", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		op = w.apply(op, ledger.VerbDispatch, func(op *ledger.Operation) { op.State, op.LeaseUntil = ledger.Running, w.Clock.Now() })
		require.Empty(w, w.due(ledger.DueDispatch, 9))
		require.Len(w, w.due(ledger.DueLease, 9), 1)
		op = w.apply(op, ledger.VerbRelease, func(op *ledger.Operation) { op.State, op.NotBefore = ledger.Pending, w.Clock.Now().Add(time.Second) })
		require.Empty(w, w.due(ledger.DueLease, 9))
		require.Empty(w, w.due(ledger.DueDispatch, 9))
		w.Clock.Advance(time.Second)
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 9))
	}},
	{"the longest due come first, up to the limit", func(w *world) {
		var want []string
		for i := range 5 {
			at := w.Clock.Now().Add(-time.Duration(i) * time.Second)
			op := w.timed(w.id("k"), ledger.Running, func(op *ledger.Operation) { op.LeaseUntil = at })
			want = append([]string{op.ID}, want...)
		}
		require.Empty(w, w.due(ledger.DueLease, 0))
		require.Equal(w, want[:2], w.due(ledger.DueLease, 2))
		require.Equal(w, want[2:4], w.due(ledger.DueLease, 2))
		require.Equal(w, want[4:], w.due(ledger.DueLease, 2))
	}},
	{"what is claimed comes back after the claim", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 9))
		w.Clock.Advance(time.Minute - 1)
		require.Empty(w, w.due(ledger.DueDispatch, 9))
		w.Clock.Advance(1)
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 9))
		require.Empty(w, w.due(ledger.DueDispatch, 9))
	}},
	{"what was claimed before stands behind what was not, in the order of the claims' ends", func(w *world) {
		var ops []string
		for range 4 {
			ops = append(ops, w.open(acme, w.id("k"), ledger.Pending).ID)
		}
		require.Equal(w, ops[:2], w.due(ledger.DueDispatch, 2))
		w.Clock.Advance(time.Second)
		require.Equal(w, ops[2:3], w.due(ledger.DueDispatch, 1))
		w.Clock.Advance(time.Hour)
		fresh := w.open(acme, w.id("k"), ledger.Pending).ID
		require.Equal(w, []string{ops[3], fresh}, w.due(ledger.DueDispatch, 2), "what nobody looked at comes first")
		require.Equal(w, ops[:1], w.due(ledger.DueDispatch, 1))
		require.Equal(w, ops[1:3], w.due(ledger.DueDispatch, 2))
		require.Empty(w, w.due(ledger.DueDispatch, 1))
	}},
	{"an operation that moved may be claimed again at once", func(w *world) {
		op := w.open(acme, "k", ledger.Pending)
		require.Len(w, w.due(ledger.DueDispatch, 9), 1)
		w.apply(op, ledger.VerbWithdraw, func(op *ledger.Operation) { op.Withdrawn = true })
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 9))
	}},
	{"a claim of one kind hides no other", func(w *world) {
		op := w.timed("k", ledger.Pending, func(op *ledger.Operation) { op.ExpiresAt = w.Clock.Now() })
		require.Equal(w, []string{op.ID}, w.due(ledger.DueDispatch, 9))
		require.Equal(w, []string{op.ID}, w.due(ledger.DueExpiry, 9))
	}},
	{"a claim changes nothing that can be read", func(w *world) {
		w.open(acme, "k", ledger.Pending)
		w.untouched(func() { require.Len(w, w.due(ledger.DueDispatch, 9), 1) })
	}},
	{"but for the tools that are left out", func(w *world) {
		t := w.Clock.Now()
		of := func(tool string) string {
			return w.timed(w.id("k"), ledger.Running, func(op *ledger.Operation) { op.Tool, op.LeaseUntil = tool, t }).ID
		}
		a, b, c, again := of("a"), of("b"), of("c"), of("a")
		without := func(limit int, tools ...string) []string {
			ops, err := w.Store.Due(w.ctx, ledger.DueQuery{Kind: ledger.DueLease, Now: t, Limit: limit, Owner: "o", Until: t.Add(time.Minute), Except: tools})
			require.NoError(w, err)
			return ids(ops)
		}
		require.Empty(w, without(9, "a", "b", "c"))
		require.Equal(w, []string{b}, without(1, "a"))
		require.Equal(w, []string{c}, without(9, "a", "nobody's"), "what is left out takes none of the limit")
		require.Equal(w, []string{a, again}, without(9), "and was not claimed")
	}},
	{"every tenant's", func(w *world) {
		w.open(acme, "k", ledger.Pending)
		w.open(other, "k", ledger.Pending)
		require.Len(w, w.due(ledger.DueDispatch, 9), 2)
	}},
	{"claimers at once never share", func(w *world) {
		const n = 60
		for range n {
			w.open(acme, w.id("k"), ledger.Pending)
		}
		var mu sync.Mutex
		claimed := map[string]int{}
		now := w.Clock.Now()
		errs := together(8, func(int) error {
			owner := w.id("owner_")
			for {
				ops, err := w.Store.Due(w.ctx, ledger.DueQuery{Kind: ledger.DueDispatch, Now: now, Limit: 7, Owner: owner, Until: now.Add(time.Minute)})
				if err != nil || len(ops) == 0 {
					return err
				}
				mu.Lock()
				for _, op := range ops {
					claimed[op.ID]++
				}
				mu.Unlock()
			}
		})
		for _, err := range errs {
			require.NoError(w, err)
		}
		require.Len(w, claimed, n)
		for id, times := range claimed {
			require.Equal(w, 1, times, id)
		}
	}},
}
