package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// TestStand_ContradictedGenerationStands: a void head over a generation that took
// effect after all frees nothing; that generation is the answer.
func TestStand_ContradictedGenerationStands(t *testing.T) {
	r := newRig(t)
	refused := tools.Outcome{Verdict: tools.NoEffect}
	first := r.concluded(r.born(r.ask("k", nil)), refused)
	second := r.concluded(r.born(r.ask("k", nil)), refused)
	require.Equal(t, 2, second.Generation)
	prepared := r.ask("k", nil) // evaluated before anybody knew
	require.Equal(t, 3, prepared.Preview.Generation)
	first = r.proven(first, 1, "e_late")
	require.Equal(t, ledger.Succeeded, first.State)
	_, _, err := r.OpenOperation(r.ctx, prepared)
	require.ErrorIs(t, err, ledger.ErrMoved)

	h, err := r.Head(r.ctx, tenant, "hold_order", "k")
	require.NoError(t, err)
	require.Equal(t, first.ID, h.Operation.ID)
	require.Equal(t, second.ID, h.Newest.ID)
	s, err := ledger.Stand(h, "sha256:a", "")
	require.NoError(t, err)
	require.Equal(t, ledger.AdviceReplay, s.Advice)
	_, err = ledger.Stand(h, "sha256:b", "")
	require.True(t, fault.Is(err, fault.IdempotencyKeyReused), "%v", err)
	_, err = ledger.Stand(h, "sha256:a", second.ID)
	require.True(t, fault.Is(err, fault.AgainOfInvalid), "%v", err)
	s, err = ledger.Stand(h, "sha256:a", first.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Standing{Advice: ledger.AdviceOpen, Generation: 3, Asks: true}, s)
	third := r.born(r.ask("k", func(q *ledger.OpenRequest) { q.Preview.AgainOf, q.Preview.Generation = first.ID, 3 }))
	require.Equal(t, 3, third.Generation)
}

// TestStand_FailedRepeatLeavesTheFirst: a wanted repeat that failed does not open
// the key for a repeat that nobody approved (I1).
func TestStand_FailedRepeatLeavesTheFirst(t *testing.T) {
	r := newRig(t)
	first := r.done("k")
	r.concluded(r.born(r.ask("k", func(q *ledger.OpenRequest) { q.Preview.AgainOf = first.ID })), tools.Outcome{Verdict: tools.NoEffect})
	h, err := r.Head(r.ctx, tenant, "hold_order", "k")
	require.NoError(t, err)
	s, err := ledger.Stand(h, "sha256:a", "")
	require.NoError(t, err)
	require.Equal(t, ledger.AdviceReplay, s.Advice)
	require.Equal(t, first.ID, h.Operation.ID)
}

// TestMark_NeverBesideAContradictedGeneration: what waits behind a generation that
// took effect after all is not sent, also after the tool was unfrozen; a wanted
// repeat is.
func TestMark_NeverBesideAContradictedGeneration(t *testing.T) {
	r := newRig(t)
	first := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
	second := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NotSent})
	require.Equal(t, ledger.Pending, second.State)
	first = r.proven(first, 1, "e_late")
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant, Tool: "hold_order"}, By: person, Reason: "looked at"}))
	_, err := r.Mark(r.ctx, second, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
	require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
	_, err = r.Cancel(r.ctx, tenant, second.ID, person, "done already")
	require.NoError(t, err)

	third := r.born(r.ask("k", func(q *ledger.OpenRequest) { q.Preview.AgainOf = first.ID; asks(q) }))
	third, err = r.Approve(r.ctx, third, ledger.Decision{Operation: third.ID, Round: 1, Person: "per_1", Verb: ledger.VerbApprove, At: r.Now()}, true)
	require.NoError(t, err)
	_, err = r.Mark(r.ctx, third, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
	require.NoError(t, err)
}

// TestContradiction_OfWhatWaits: an attempt was proven unsent, and then its effect
// is seen while the operation waits for the next try or for people. It is not sent
// again; the tool, which lied, is frozen.
func TestContradiction_OfWhatWaits(t *testing.T) {
	for name, wait := range map[string]func(*rig, ledger.Operation) ledger.Operation{
		"for its next try": func(_ *rig, op ledger.Operation) ledger.Operation { return op },
		"for people": func(r *rig, op ledger.Operation) ledger.Operation {
			plan, err := r.Plan(r.ctx, tenant, op.ID, 1)
			require.NoError(r.t, err)
			op, err = r.Revise(r.ctx, op, plan, plan.Digest(), ledger.Requirement{Outcome: tools.OutcomeApprove, Expiry: time.Hour}, ledger.Reason{Code: "drift"})
			require.NoError(r.t, err)
			return op
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			op := wait(r, r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NotSent}))
			now := r.proven(op, 1, "e_late")
			require.Equal(t, ledger.Succeeded, now.State)
			require.Equal(t, "e_late", now.EffectID)
			require.True(t, r.stopped("hold_order"))
			events, err := r.Events(r.ctx, tenant, op.ID)
			require.NoError(t, err)
			require.Equal(t, ledger.VerbContradict, events[len(events)-2].Verb)
			_, err = r.Mark(r.ctx, op, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
			require.Error(t, err)
			r.intact(tenant)
		})
	}
}

// TestFinding_BehindAPersonsFreeze: what evidence finds out about a tool stands by
// itself, also where a person froze the tool before: whoever lifts that freeze
// sees why there is more to it.
func TestFinding_BehindAPersonsFreeze(t *testing.T) {
	for name, find := range map[string]func(*rig){
		"an effect of what had none": func(r *rig) {
			op := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
			r.frozenBy(person)
			r.proven(op, 1, "e_late")
		},
		"a second effect": func(r *rig) {
			op := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e_1"})
			r.frozenBy(person)
			r.proven(op, 1, "e_2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			find(r)
			g, err := r.Guard(r.ctx, tenant)
			require.NoError(t, err)
			require.Len(t, g.Freezes, 1)
			require.Equal(t, ledger.Gateway("contradiction"), g.Freezes[0].By)
			require.Equal(t, ledger.FreezeAll, g.Freezes[0].Level)
			rows := r.intact(tenant)
			require.Equal(t, person, rows[len(rows)-2].Change.By, "the person's freeze stays in the history")

			// A person's freeze afterwards does not hide it either.
			r.frozenBy(person)
			g, err = r.Guard(r.ctx, tenant)
			require.NoError(t, err)
			require.Equal(t, ledger.Gateway("contradiction"), g.Freezes[0].By)
		})
	}
}

// TestResolve_NamesWhatProves: a rejection was kept and its move could not be
// written. A lookup that proves nothing brings the move about; what is named is
// the rejection.
func TestResolve_NamesWhatProves(t *testing.T) {
	for name, want := range map[string]struct {
		outcome tools.Verdict
		effect  string
		state   ledger.State
		reason  string
	}{
		"a rejection": {tools.NoEffect, "", ledger.Failed, "refused_upstream"},
		"an effect":   {tools.Succeeded, "e_1", ledger.Succeeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			op := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Unknown})
			said := ledger.Evidence{
				ID: "evd_said", Operation: op.ID, Attempt: 1, Kind: "response", Verdict: want.outcome, EffectID: want.effect,
				By: ledger.Gateway("executor"), At: r.Now(),
			}
			require.NoError(t, r.store.AddEvidence(r.ctx, tenant, said))
			asked := ledger.Evidence{
				ID: "evd_asked", Operation: op.ID, Covers: 1, Kind: "lookup", Verdict: tools.Unknown, Answer: tools.NotVisibleYet,
				By: ledger.Reconciler, At: r.Now(),
			}
			got, err := r.AddEvidence(r.ctx, tenant, asked)
			require.NoError(t, err)
			require.Equal(t, want.state, got.State)
			last := r.last(op)
			require.Equal(t, ledger.VerbResolve, last.Verb)
			require.Equal(t, said.ID, last.Evidence)
			require.Equal(t, said.Digest(), last.EvidenceDigest)
			require.Equal(t, said.By, last.Actor)
			if want.reason != "" {
				require.Equal(t, want.reason, got.Reason.Code)
			}
			all, err := r.Evidence(r.ctx, tenant, op.ID)
			require.NoError(t, err)
			require.Equal(t, asked.ID, all[len(all)-1].ID, "what brought it about is kept")
		})
	}
}

// frozenBy freezes hold_order at all.
func (r *rig) frozenBy(who ledger.Actor) {
	r.t.Helper()
	_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: tenant, Tool: "hold_order"}, ledger.FreezeAll, who, "stop")
	require.NoError(r.t, err)
}
