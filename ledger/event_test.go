package ledger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// TestEvents_TextOfAnyBytes: a reason that is not UTF-8 does not break the
// chain when it is read back.
func TestEvents_TextOfAnyBytes(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	r := request(t, l, s, "k")
	r.Requirement = ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{"any": 1}, Expiry: 1 << 40}
	op, _, err := l.OpenOperation(ctx, r)
	require.NoError(t, err)
	_, err = l.Reject(ctx, op, ledger.Decision{Operation: op.ID, Round: 1, Person: "per_1", Name: "b\xffb", Verb: ledger.VerbReject, Reason: "no\xff\xfe", At: l.Now()})
	require.NoError(t, err)
	events, err := l.Events(ctx, "default", op.ID)
	require.NoError(t, err)
	prev := ""
	for _, e := range events {
		require.True(t, e.Intact(prev), "%+v", e)
		prev = e.Hash
	}
}

// TestEvidence_Digest: what evidence says has one digest, also behind the eyes of a
// store, and another one when anything that it says is changed.
func TestEvidence_Digest(t *testing.T) {
	ev := ledger.Evidence{
		ID: "evd_1", Operation: "op_1", Attempt: 2, Kind: "response", Verdict: tools.Succeeded, EffectID: "e\xff",
		Result:  map[string]any{"n": json.Number("12345678901234567890.10"), "f": 1e21, "i": 7, "deep": []any{nil, true, "<b>\xff"}},
		Because: "a\xffb", By: ledger.Actor{Kind: "person", ID: "per_1", Name: "\xff"},
		Seen: tools.Exchange{Status: 200, AnsweredAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), Headers: map[string]string{"date": "x"}},
		At:   time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	var stored bytes.Buffer
	e := json.NewEncoder(&stored)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(ev))
	var back ledger.Evidence
	d := json.NewDecoder(&stored)
	d.UseNumber()
	require.NoError(t, d.Decode(&back))
	require.Equal(t, ev.Digest(), back.Digest())

	for name, change := range map[string]func(*ledger.Evidence){
		"id":        func(e *ledger.Evidence) { e.ID = "evd_2" },
		"operation": func(e *ledger.Evidence) { e.Operation = "op_2" },
		"attempt":   func(e *ledger.Evidence) { e.Attempt = 1 },
		"kind":      func(e *ledger.Evidence) { e.Kind = "statement" },
		"verdict":   func(e *ledger.Evidence) { e.Verdict = tools.NoEffect },
		"answer":    func(e *ledger.Evidence) { e.Answer = tools.Absent },
		"effect":    func(e *ledger.Evidence) { e.EffectID = "e" },
		"result":    func(e *ledger.Evidence) { e.Result["n"] = json.Number("12345678901234567890.11") },
		"because":   func(e *ledger.Evidence) { e.Because = "" },
		"by":        func(e *ledger.Evidence) { e.By.ID = "per_2" },
		"seen":      func(e *ledger.Evidence) { e.Seen.Status = 201 },
	} {
		other := back
		other.Result = maps.Clone(back.Result)
		change(&other)
		require.NotEqual(t, back.Digest(), other.Digest(), name)
	}

	// Two who asked at the same time gave one answer.
	ask := ledger.Evidence{ID: "evd_3", Operation: "op_1", Kind: "lookup", Answer: tools.Absent, Because: "third time", At: ev.At}
	twin := ask
	twin.Because, twin.At, twin.By, twin.Covers = "in another's words", ev.At.Add(1), ledger.Reconciler, 2
	require.Equal(t, ask.Digest(), twin.Digest())
	twin.Answer = tools.Present
	require.NotEqual(t, ask.Digest(), twin.Digest())
}
