package storetest

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// odd holds values that a careless store changes.
func odd() map[string]any {
	return map[string]any{
		"beyond 2^53":  json.Number("9007199254740993"),
		"int64":        json.Number("-9223372036854775808"),
		"long":         json.Number("12345678901234567890.1234567890"),
		"trailing":     json.Number("1.50"),
		"exponent":     json.Number("1E+2"),
		"tiny":         json.Number("1e-300"),
		"minus zero":   json.Number("-0"),
		"huge":         json.Number("1e400"),
		"markup":       "<b>&amp;</b> \u2028 \u202e",
		"controls":     "\x01\x1f\x7f\t\r\n",
		"astral":       "😀 e\u0301 \ufeff",
		"quotes":       `\"'` + "`",
		"empty":        "",
		"":             "an empty name",
		"null":         nil,
		"true":         true,
		"nested":       []any{map[string]any{"n": json.Number("0.1")}, []any{}, map[string]any{}, json.Number("3")},
		"sql":          "'; DROP TABLE operations; --",
		"looks a time": "2026-11-05T09:30:00Z",
	}
}

// unset fails for a field that the case forgot to fill: a new one must be shown to
// survive too.
func unset(w *world, v any) {
	w.Helper()
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		if name := s.Type().Field(i).Name; s.Field(i).IsZero() && name != "Result" && name != "Reversible" && name != "Fence" {
			w.Errorf("%s.%s is not filled", s.Type().Name(), name)
		}
	}
}

var exactCases = []testCase{
	{"numbers and text survive wherever values are free", func(w *world) {
		p := w.preview(acme, "k", 1)
		p.Plan.Args, p.Plan.Reads = odd(), odd()
		p.Plan.Effects = []tools.Effect{{Verb: "change", Target: "x", Before: odd(), After: odd(), Money: &tools.Money{Amount: 9007199254740993, Currency: "EUR"}, Count: 1}}
		p.Plan.Basis = []tools.BasisField{{Field: "a", Value: odd()}, {Field: "b", Value: json.Number("9007199254740993")}, {Field: "c"}}
		p.Plan.Warnings = []tools.Warning{{Code: "c", Pointer: "/a~1b", Text: "<&>"}}
		w.put(p)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		w.same(p, got, "Preview")

		o := w.opening(p, ledger.Running)
		n := &o.New[0]
		n.Operation.Result = odd()
		n.Evidence = evidence(n.Operation, "evd_1")
		n.Evidence.Result = odd()
		require.NoError(w, w.Store.Open(w.ctx, o))
		check := func(op ledger.Operation, evd []ledger.Evidence) {
			w.Helper()
			w.same(op, w.read(acme, op.ID), "Operation")
			pl, err := w.Store.Plan(w.ctx, acme, op.ID, op.Round)
			require.NoError(w, err)
			w.same(p.Plan, pl, "Plan")
			es, err := w.Store.Evidence(w.ctx, acme, op.ID)
			require.NoError(w, err)
			w.same(evd, es, "Evidence")
			for i := range es {
				w.same(evd[i].Digest(), es[i].Digest(), "its digest, which an event names")
			}
		}
		check(n.Operation, []ledger.Evidence{*n.Evidence})

		t := w.move(n.Operation, ledger.VerbFinish, func(op *ledger.Operation) { op.State, op.Round = ledger.Succeeded, 2 })
		t.Plan, t.Evidence = &p.Plan, evidence(n.Operation, "evd_2")
		t.Evidence.Result = odd()
		require.NoError(w, w.Store.Apply(w.ctx, t))
		third := evidence(n.Operation, "evd_3")
		third.Result = odd()
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *third))
		check(t.Operation, []ledger.Evidence{*n.Evidence, *t.Evidence, *third})

		// What was read may be written back without a change.
		again := w.move(w.read(acme, n.Operation.ID), ledger.VerbHandOver, func(*ledger.Operation) {})
		require.NoError(w, w.Store.Apply(w.ctx, again))
		w.same(odd(), w.read(acme, n.Operation.ID).Result)
	}},
	{"every field of an operation, through a birth, a transition and a move beside it", func(w *world) {
		p := w.preview(acme, "k", 1)
		p.Run, p.Parent, p.ParentVersion, p.Undoes, p.AgainOf = &ledger.Run{ID: "r", Step: "s", Call: "c"}, "op_parent", 7, []string{"prv_a", "prv_b"}, "op_again"
		w.put(p)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		w.same(p, got)
		o := w.opening(p, ledger.Unknown)
		op := &o.New[0].Operation
		at := w.Clock.Now
		op.Goal, op.Parent, op.After, op.Next, op.Child = &tools.Goal{Group: "<&>", Value: "ü"}, "op_p", "op_a", "op_n", "op_c"
		op.AskedBy = &ledger.Actor{Kind: "operator", ID: "per_1", Name: "Ann"}
		op.AskAt, op.FirstUnknownAt, op.UnknownSince, op.Doubt = at().Add(1), at().Add(2), at().Add(3), ledger.DoubtEntered
		op.RequestID = "req_1"
		op.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		op.Attempts = []ledger.Attempt{{N: 1, Fence: 1, MarkedAt: at(), Deadline: at(), Proof: tools.NotSent}, {N: 2, Fence: 2, Presumed: true}}
		op.Reason = &ledger.Reason{Code: "c", Text: "t"}
		op.Requirement = ledger.Requirement{Outcome: "approve", Groups: map[string]int{"any": 1}, Rule: "r", Digest: "d", Expiry: time.Hour, MaxAge: time.Minute}
		op.ExpiresAt, op.ApprovedAt, op.LeaseUntil, op.NotBefore, op.FinalAt = at(), at(), at(), at(), at()
		op.EffectID, op.Adopted, op.Reopened, op.Withdrawn, op.OnList, op.AgainOf, op.Chain = "e", true, true, true, true, "op_again", "chain"
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.same(*op, w.read(acme, op.ID))
		unset(w, *op)

		moved := w.apply(*op, ledger.VerbHandOver, func(op *ledger.Operation) { op.Doubt, op.Child = ledger.DoubtElsewhere, "op_c2" })
		w.same(moved, w.read(acme, op.ID))
		t := w.move(w.open(acme, "l", ledger.Running), ledger.VerbFinish, to(ledger.Succeeded))
		t.Also = []ledger.Move{w.beside(moved, t.WriteID, ledger.VerbCompensated, func(op *ledger.Operation) { op.Doubt, op.Next = ledger.DoubtReconciled, "op_n2" })}
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.moved(t.Also[0])

		e := evidence(*op, "evd_1")
		e.Covers, e.Answer, e.Kind = 2, tools.NotVisibleYet, "lookup"
		unset(w, *e)
		require.NoError(w, w.Store.AddEvidence(w.ctx, acme, *e))
		es, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		w.same([]ledger.Evidence{*e}, es)
	}},
	{"the wire survives byte for byte", func(w *world) {
		wire := json.RawMessage("{ \"b\":\t1.0,\n \"a\": \"<\u2028&>\\u0041\", \"a\": 1e400 }  ")
		p := w.preview(acme, "k", 1)
		p.Plan.Wire = wire
		w.put(p)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		require.Equal(w, string(wire), string(got.Plan.Wire))
		op := w.openAs(p, ledger.AwaitingApproval, ledger.Head{})
		pl, err := w.Store.Plan(w.ctx, acme, op.ID, 1)
		require.NoError(w, err)
		require.Equal(w, string(wire), string(pl.Wire))
		none := tools.Plan{}
		t := w.move(op, ledger.VerbRevise, func(op *ledger.Operation) { op.Round = 2 })
		t.Plan = &none
		require.NoError(w, w.Store.Apply(w.ctx, t))
		pl, err = w.Store.Plan(w.ctx, acme, op.ID, 2)
		require.NoError(w, err)
		require.Nil(w, pl.Wire)
	}},
	{"large documents", func(w *world) {
		p := w.preview(acme, "k", 1)
		p.Plan.Args = map[string]any{"text": strings.Repeat("ünï<&>\"\\ ", 20_000)}
		require.Greater(w, len(p.Plan.Args["text"].(string)), 200<<10)
		w.put(p)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		w.same(p, got)
		o := w.opening(p, ledger.Running)
		o.New[0].Operation.Result = p.Plan.Args
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.same(o.New[0].Operation, w.read(acme, o.New[0].Operation.ID))
		pl, err := w.Store.Plan(w.ctx, acme, o.New[0].Operation.ID, 1)
		require.NoError(w, err)
		w.same(p.Plan, pl)
	}},
	{"times to the nanosecond", func(w *world) {
		for i, at := range []time.Time{
			time.Date(2026, 1, 2, 3, 4, 5, 1, time.UTC),
			time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
			time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC),
			{},
		} {
			op := w.timed(w.id("k"), ledger.Pending, func(op *ledger.Operation) {
				op.CreatedAt, op.UpdatedAt, op.ExpiresAt, op.NotBefore, op.LeaseUntil, op.FinalAt = at, at, at, at, at, at
			})
			got := w.read(acme, op.ID)
			w.same(op, got, i)
			require.True(w, got.CreatedAt.Equal(at))
			require.Equal(w, at.IsZero(), got.ExpiresAt.IsZero())
		}
	}},
	{"keys are compared byte for byte", func(w *world) {
		keys := []string{"é", "e\u0301", "É", "a", "A", "a ", " a", "a\t", "", strings.Repeat("k", 512), strings.Repeat("k", 513), "%", "_", "'", "ß", "ss", "\u00a0"}
		for _, k := range keys {
			w.open(acme, k, ledger.Running)
		}
		for _, k := range keys {
			h, err := w.Store.Head(w.ctx, acme, tool, k)
			require.NoError(w, err)
			require.Equal(w, k, h.Operation.Key)
			if k != "" {
				require.Len(w, w.listAll(ledger.Filter{Tenant: acme, Key: k}), 1, "%q", k)
			}
		}
	}},
}
