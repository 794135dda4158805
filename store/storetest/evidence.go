package storetest

import (
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// evidence builds a piece of evidence about the operation.
func evidence(op ledger.Operation, id string) *ledger.Evidence {
	return &ledger.Evidence{
		ID: id, Operation: op.ID, Attempt: 1, Kind: "response", Verdict: tools.Succeeded, EffectID: "re_1",
		Result: map[string]any{"status": "done"}, Because: "the shop said so", By: ledger.Gateway("executor"),
		Seen: tools.Exchange{Target: op.Target, SentBytes: 120, Status: 201, Headers: map[string]string{"X-Request-Id": "r1"}, Excerpt: "{}"},
		At:   op.UpdatedAt,
	}
}

var evidenceCases = []testCase{
	{"is appended in any state", func(w *world) {
		for _, s := range ledger.States {
			op := w.open(acme, string(s), s)
			e := evidence(op, w.id("evd_"))
			require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
			got, err := w.Store.Evidence(w.ctx, acme, op.ID)
			require.NoError(w, err)
			w.same([]ledger.Evidence{*e}, got)
			w.same(op, w.read(acme, op.ID), "evidence moves nothing")
			evs, err := w.Store.Events(w.ctx, acme, op.ID)
			require.NoError(w, err)
			require.Len(w, evs, 1)
		}
	}},
	{"is appended once by its id", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		e := evidence(op, "evd_1")
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
		w.untouched(func() {
			changed := *e
			changed.Verdict = tools.NoEffect
			require.NoError(w, w.Store.AddEvidence(w.ctx, acme, changed))
		})
		errs := together(16, func(int) error { return w.Store.AddEvidence(w.ctx, acme, *evidence(op, "evd_2")) })
		for _, err := range errs {
			require.NoError(w, err)
		}
		got, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, got, 2)
	}},
	{"comes oldest first", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		want := []string{"evd_c", "evd_a", "evd_b"}
		for _, id := range want {
			require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *evidence(op, id)))
		}
		got, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		for i, e := range got {
			require.Equal(w, want[i], e.ID)
		}
	}},
	{"is not refused by a freeze or an expired preview", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		w.freeze(acme)
		w.Clock.Advance(1 << 50)
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *evidence(op, "evd_1")))
	}},
	{"needs its operation", func(w *world) {
		op := w.open(acme, "k", ledger.Unknown)
		nobody := op
		nobody.ID = "op_none"
		w.untouched(func() {
			require.ErrorIs(w, w.Store.AddEvidence(w.ctx, acme, *evidence(nobody, "evd_1")), ledger.ErrNotFound)
			require.ErrorIs(w, w.Store.AddEvidence(w.ctx, other, *evidence(op, "evd_1")), ledger.ErrNotFound)
		})
	}},
}
