package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// suspect is an operation that was sent once and answered, with what else is
// changed.
func suspect(change func(*ledger.Operation)) ledger.Operation {
	at := time.Date(2026, 11, 5, 9, 30, 0, 0, time.UTC)
	op := ledger.Operation{
		ID: "op_1", Tenant: tenant, Tool: "hold_order", Key: "k1", Generation: 1, UpstreamKey: "u1", State: ledger.Succeeded, RequestID: "req_1",
		Agent: tools.Agent{ID: "agt_1"}, Run: &ledger.Run{ID: "r", Step: "1", Call: "c1"}, ArgsDigest: "sha256:a", EffectID: "e1", CreatedAt: at,
		Attempts: []ledger.Attempt{{N: 1, MarkedAt: at.Add(time.Second), Proof: tools.Succeeded}},
	}
	if change != nil {
		change(&op)
	}
	return op
}

// equal is another operation with the same arguments, opened after the suspect was
// sent.
func equal(change func(*ledger.Operation)) ledger.Operation {
	return suspect(func(op *ledger.Operation) {
		op.ID, op.Key, op.RequestID, op.EffectID = "op_2", "k2", "req_2", "e2"
		op.CreatedAt = op.CreatedAt.Add(time.Minute)
		if change != nil {
			change(op)
		}
	})
}

func answered(attempt int, v tools.Verdict, effect string) ledger.Evidence {
	at := suspect(nil).CreatedAt
	return ledger.Evidence{
		ID: "evd_1", Kind: "response", Attempt: attempt, Verdict: v, EffectID: effect, At: at.Add(3 * time.Second),
		Seen: tools.Exchange{SentAt: at.Add(time.Second), AnsweredAt: at.Add(2 * time.Second), Status: 201},
	}
}

func unanswered(attempt int) ledger.Evidence {
	e := answered(attempt, tools.Unknown, "")
	e.Seen.AnsweredAt, e.Seen.Status, e.Seen.SentBytes = time.Time{}, 0, 212
	return e
}

// Each cause of a duplicate is told from the others by what the record holds (R138).
func TestForensics(t *testing.T) {
	const supported, excluded, open = ledger.HypothesisSupported, ledger.HypothesisExcluded, ledger.HypothesisOpen
	happened := []ledger.Evidence{answered(1, tools.Succeeded, "e1")}
	otherCall := equal(func(o *ledger.Operation) { o.Run.Call = "c2" })
	doubtful := suspect(func(o *ledger.Operation) { o.State, o.EffectID, o.Attempts[0].Proof = ledger.Unknown, "", "" })
	retried := suspect(func(o *ledger.Operation) {
		o.Attempts[0].Proof = ""
		o.Attempts = append(o.Attempts, ledger.Attempt{N: 2, MarkedAt: o.CreatedAt.Add(time.Hour), Proof: tools.Succeeded})
	})
	goal := &tools.Goal{Group: "g", Value: "v"}
	for name, c := range map[string]struct {
		op       ledger.Operation
		evidence []ledger.Evidence
		events   []ledger.Event
		others   []ledger.Operation
		want     [4]ledger.HypothesisVerdict // two plans, never ran, submitted twice, lost reply
		says     []string
	}{
		"nothing is wrong": {
			op: suspect(nil), evidence: happened, want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
			says: []string{"No other operation", "The effect e1 is shown by a response", "opened by request req_1", "answered at 2026-11-05T09:30:02.000Z with status 201"},
		},
		"itself is no other": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{suspect(nil)}, want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
		},
		"the agent planned two": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{otherCall}, want: [4]ledger.HypothesisVerdict{supported, excluded, excluded, open},
			says: []string{"op_2 asked for the same (run r, step 1, call c2), which is another tool call than this one's (run r, step 1, call c1); it is succeeded with the effect e2", "span of the reply"},
		},
		"the earlier of the two": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Run.Call, o.CreatedAt = "c0", o.CreatedAt.Add(-time.Hour) })},
			want: [4]ledger.HypothesisVerdict{supported, excluded, excluded, excluded},
		},
		"the same words of another agent": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Agent.ID = "agt_2" })},
			want: [4]ledger.HypothesisVerdict{supported, excluded, excluded, open},
		},
		"another that had no effect": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Run.Call, o.State = "c2", ledger.Rejected })},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded}, says: []string{"it is rejected and had no effect"},
		},
		"wanted once more": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Key, o.Generation, o.AgainOf = "k1", 2, "op_1" })},
			want: [4]ledger.HypothesisVerdict{supported, excluded, excluded, excluded}, says: []string{"on purpose (again_of)"},
		},
		"other arguments": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.ArgsDigest = "sha256:b" })},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
		},
		"another tool for the same goal": {
			op: suspect(func(o *ledger.Operation) { o.Goal = goal }), evidence: happened,
			others: []ledger.Operation{equal(func(o *ledger.Operation) {
				o.Tool, o.ArgsDigest, o.Goal, o.Run.Call = "stop_order", "sha256:b", &tools.Goal{Group: "g", Value: "v"}, "c2"
			})},
			want: [4]ledger.HypothesisVerdict{supported, excluded, excluded, open},
		},
		"the undo of another": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Parent = "op_9" })},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
		},
		"one call under two keys": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(nil)}, want: [4]ledger.HypothesisVerdict{excluded, excluded, supported, open},
			says: []string{"op_2 is the same tool call (run r, step 1, call c1) under another key, k2; it is succeeded with the effect e2", "which is no second plan"},
		},
		"one call under two keys, refused": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.State = ledger.Failed })},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
		},
		"no tool calls to tell them apart": {
			op: suspect(func(o *ledger.Operation) { o.Run = nil }), evidence: happened, others: []ledger.Operation{equal(nil)},
			want: [4]ledger.HypothesisVerdict{open, excluded, open, open}, says: []string{"by request req_2"},
		},
		"two generations took effect": {
			op: suspect(nil), evidence: happened, others: []ledger.Operation{equal(func(o *ledger.Operation) { o.Key, o.Generation = "k1", 2 })},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, supported, excluded}, says: []string{"generation 2 of the same key"},
		},
		"two effects under one key": {
			op: suspect(nil), evidence: append(happened[:1:1], answered(1, tools.Succeeded, "e7")), want: [4]ledger.HypothesisVerdict{excluded, excluded, open, excluded},
			says: []string{"2 effects for the one key that was sent, u1"},
		},
		"nothing was sent": {
			op:   suspect(func(o *ledger.Operation) { o.State, o.EffectID, o.Attempts = ledger.Rejected, "", nil }),
			want: [4]ledger.HypothesisVerdict{excluded, supported, excluded, excluded}, says: []string{"Nothing was ever sent; the operation is rejected"},
		},
		"unsent, then refused": {
			op: suspect(func(o *ledger.Operation) {
				o.State, o.EffectID, o.Attempts[0].Proof = ledger.Failed, "", tools.NotSent
				o.Attempts = append(o.Attempts, ledger.Attempt{N: 2, MarkedAt: o.CreatedAt.Add(time.Hour), Proof: tools.NoEffect})
			}),
			evidence: []ledger.Evidence{answered(2, tools.NoEffect, "")}, want: [4]ledger.HypothesisVerdict{excluded, supported, excluded, excluded},
			says: []string{"Attempt 1 is proven unsent.", "Attempt 2 is proven to have had no effect."},
		},
		"a person found nothing": {
			op: suspect(func(o *ledger.Operation) {
				o.State, o.EffectID, o.Attempts[0].Proof = ledger.Failed, "", tools.NoEffect
			}),
			want: [4]ledger.HypothesisVerdict{excluded, supported, excluded, open},
		},
		"no reply, nothing since": {
			op: doubtful, evidence: []ledger.Evidence{unanswered(1), {Kind: "lookup", Verdict: tools.Unknown, Answer: tools.Absent}},
			want: [4]ledger.HypothesisVerdict{excluded, open, excluded, open},
			says: []string{"no answer came; 212 bytes had been written", "Of attempt 1", ": absent.", "Nothing was sent again since."},
		},
		"no reply, and the gateway repeated": {
			op: retried, evidence: []ledger.Evidence{unanswered(1), answered(2, tools.Succeeded, "e1")},
			want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, supported}, says: []string{"Attempt 2 was marked at 2026-11-05T10:30:00.000Z, after that."},
		},
		"unsent, and the gateway repeated": {
			op: suspect(func(o *ledger.Operation) {
				*o = retried
				o.Attempts = append([]ledger.Attempt{{N: 1, Proof: tools.NotSent}}, retried.Attempts[1])
			}),
			evidence: []ledger.Evidence{answered(2, tools.Succeeded, "e1")}, want: [4]ledger.HypothesisVerdict{excluded, excluded, excluded, excluded},
		},
		"no reply, and the agent asked again": {
			op: doubtful, evidence: []ledger.Evidence{unanswered(1)}, others: []ledger.Operation{otherCall},
			want: [4]ledger.HypothesisVerdict{supported, open, excluded, supported}, says: []string{"After that, at 2026-11-05T09:31:00.000Z, op_2 asked for the same under the key k2."},
		},
		"the gateway died": {
			op: doubtful, events: []ledger.Event{{Verb: ledger.VerbLoseLease, Attempt: 1, At: doubtful.CreatedAt.Add(time.Hour)}},
			want: [4]ledger.HypothesisVerdict{excluded, open, excluded, open}, says: []string{"was not heard of again until 2026-11-05T10:30:00.000Z"},
		},
		"no word of it": {
			op: doubtful, want: [4]ledger.HypothesisVerdict{excluded, open, excluded, open}, says: []string{"the ledger has no answer to it"},
		},
		"on its way": {
			op:   suspect(func(o *ledger.Operation) { o.State, o.EffectID, o.Attempts[0].Proof = ledger.Running, "", "" }),
			want: [4]ledger.HypothesisVerdict{excluded, open, excluded, open}, says: []string{"is on its way"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got [4]ledger.HypothesisVerdict
			var text strings.Builder
			found := ledger.Forensics(c.op, c.evidence, c.events, c.others)
			require.Len(t, found, len(got))
			for i, h := range found {
				require.Equal(t, []ledger.HypothesisName{ledger.TwoPlans, ledger.NeverRan, ledger.SubmittedTwice, ledger.LostReply}[i], h.Name)
				require.NotEmpty(t, h.Evidence, h.Name)
				got[i] = h.Verdict
				text.WriteString(strings.Join(h.Evidence, "\n") + "\n")
			}
			require.Equal(t, c.want, got, text.String())
			for _, s := range c.says {
				require.Contains(t, text.String(), s)
			}
		})
	}
}

// The trace leads to the reply, which is not in the ledger.
func TestForensics_Trace(t *testing.T) {
	op := suspect(func(o *ledger.Operation) { o.Trace = "00-aa-bb-01" })
	h := ledger.Forensics(op, []ledger.Evidence{answered(1, tools.Succeeded, "e1")}, nil, []ledger.Operation{equal(nil)})[3]
	require.Contains(t, strings.Join(h.Evidence, "\n"), "in the trace 00-aa-bb-01")
}

// The reader finds the others by arguments, key and goal, of this tenant.
func TestForensics_Reads(t *testing.T) {
	r := newRig(t)
	call := func(id string) func(*ledger.OpenRequest) {
		return func(q *ledger.OpenRequest) { q.Preview.Run = &ledger.Run{ID: "r", Step: "1", Call: id} }
	}
	first := r.concluded(r.born(r.ask("k1", call("c1"))), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e1"})
	r.advance(time.Second)
	second := r.concluded(r.born(r.ask("k2", call("c2"))), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e2"})
	op, found, err := r.Forensics(r.ctx, tenant, first.ID)
	require.NoError(t, err)
	require.Equal(t, first.ID, op.ID)
	require.Equal(t, ledger.HypothesisSupported, found[0].Verdict)
	require.Contains(t, found[0].Evidence[0], second.ID)
	_, _, err = r.Forensics(r.ctx, "other", first.ID)
	require.Error(t, err)
}

// What a freeze changed is counted from the record (R130).
func TestFreezeMeasures(t *testing.T) {
	r := newRig(t)
	tool := func(name string) func(*ledger.OpenRequest) {
		return func(q *ledger.OpenRequest) { q.Preview.Tool = name }
	}
	running := r.born(r.ask("k1", nil))
	doubt := r.concluded(r.born(r.ask("k2", nil)), tools.Outcome{Verdict: tools.Unknown})
	r.concluded(r.born(r.ask("k3", nil)), tools.Outcome{Verdict: tools.Unknown})
	r.born(r.ask("o1", tool("other_tool")))
	r.advance(time.Second)
	_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: tenant, Tool: "hold_order"}, ledger.FreezeAll, person, "r")
	require.NoError(t, err)
	g, err := r.Guard(r.ctx, tenant)
	require.NoError(t, err)
	measure := func(f ledger.Freeze) ledger.FreezeMeasures {
		m, ok, err := r.FreezeMeasures(r.ctx, tenant, f)
		require.NoError(t, err)
		require.True(t, ok)
		return m
	}
	stood := ledger.ScopeCount{Running: 1, Unknown: 2}
	require.Equal(t, ledger.FreezeMeasures{Before: stood, Now: stood}, measure(g.Freezes[0]))

	r.advance(time.Second)
	r.concluded(running, tools.Outcome{Verdict: tools.Unknown})
	r.proven(doubt, 1, "e2")
	r.born(r.ask("o2", tool("other_tool")))
	require.Equal(t, ledger.FreezeMeasures{Before: stood, Now: ledger.ScopeCount{Unknown: 2}, Doubted: 1, Settled: 1}, measure(g.Freezes[0]))

	// Of the whole tenant the other tool counts too.
	whole := g.Freezes[0]
	whole.Tool = ""
	require.Equal(t, ledger.FreezeMeasures{
		Before: ledger.ScopeCount{Running: 2, Unknown: 2}, Now: ledger.ScopeCount{Running: 2, Unknown: 2}, Dispatched: 1, Doubted: 1, Settled: 1,
	}, measure(whole))

	// Whatever moment a freeze is of, the events until then are told from those since.
	events, err := r.EventsAfter(r.ctx, tenant, 0, 100)
	require.NoError(t, err)
	early := whole
	early.At = events[0].At.Add(-1)
	require.Equal(t, ledger.ScopeCount{}, measure(early).Before)
	late := whole
	late.At = r.Now()
	require.Equal(t, measure(late).Now, measure(late).Before)
	require.Zero(t, measure(late).Settled)
}
