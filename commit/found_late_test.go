package commit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// wronglyFailed is an operation whose effect is there, and of which a person said
// that it did not happen.
func (r *rig) wronglyFailed(tool string) ledger.Operation {
	r.t.Helper()
	op := r.inDoubt(tool)
	op, err := r.approvals.Resolve(r.t.Context(), ann, op.ID, ledger.Statement{Reason: "Not in their list."})
	require.NoError(r.t, err)
	require.Equal(r.t, ledger.Failed, op.State)
	return op
}

// asksNow asks about an operation a second later than anybody before.
func (r *rig) asksNow(op ledger.Operation) (ledger.Operation, error) {
	r.clock.Add(2 * time.Second)
	return r.reconciler.AskNow(r.t.Context(), tenant, op.ID)
}

func (r *rig) frozen(tool string) bool {
	r.t.Helper()
	g, err := r.ledger.Guard(r.t.Context(), tenant)
	require.NoError(r.t, err)
	_, held := g.Frozen(tool)
	return held
}

// TestAskNow_ContradictsAnEnd: a question about an operation that ended without
// effect finds the effect: it is reopened and has it, and the tool is frozen. As
// long as the outside system does not show it, nothing moves (I9).
func TestAskNow_ContradictsAnEnd(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold).HideFromLookups(true)
	fake.Script(tooltest.LoseReply())
	op := r.wronglyFailed("hold_order")

	for n := range 4 { // as often as it may be said: "absent" is no news here
		got, err := r.asksNow(op)
		require.NoError(t, err)
		require.Equal(t, op.Version, got.Version)
		require.Len(t, r.lookups(op.ID), n+1, "each answer is kept")
	}
	require.False(t, r.frozen(op.Tool))

	fake.HideFromLookups(false)
	got, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, got.State, "an answer that is younger than a second is not asked for again")
	got, err = r.asksNow(op)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, fake.Effects()[0].ID, got.EffectID)
	require.True(t, r.frozen(op.Tool))
	require.Equal(t, []ledger.Verb{"open", "finish", "resolve", "contradict", "resolve"}, r.verbs(op.ID))
	require.Len(t, fake.Requests(), 1, "nothing was sent again")

	_, err = r.asksNow(op)
	requireCode(t, err, fault.InvalidState) // now it is known
}

// TestAskNow_FailedAnswerContradictsNothing: no answer is no evidence, of an ended
// operation as little as of a doubt.
func TestAskNow_FailedAnswerContradictsNothing(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	letter := tooltest.FakeTool("send_letter")
	r := newRig(t, hold, letter)
	r.endReconciling()
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	op := r.wronglyFailed("hold_order")
	fake.Answers(tools.Answer{Kind: tools.LookupFailed, Because: "They are closed."})
	got, err := r.asksNow(op)
	require.NoError(t, err)
	require.Equal(t, op.Version, got.Version)

	tooltest.FakeOf(letter).Script(tooltest.LoseReply())
	unaskable := r.wronglyFailed("send_letter")
	_, err = r.asksNow(unaskable)
	requireCode(t, err, fault.InvalidState)
	require.Contains(t, fault.Of(err).Detail, "can't be asked")
}

// TestAskNow_NeverSent: what was never sent can have no effect of its own, whatever
// the outside system shows.
func TestAskNow_NeverSent(t *testing.T) {
	tool := refund(tooltest.WithLookup(tools.Strong))
	r := newRig(t, tool)
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	op, err := r.decide(carl, op, "reject", "no")
	require.NoError(t, err)
	require.Equal(t, ledger.Rejected, op.State)
	_, err = r.asksNow(op)
	requireCode(t, err, fault.InvalidState)
	require.Contains(t, fault.Of(err).Detail, "never sent")
	require.Zero(t, tooltest.FakeOf(tool).Lookups())
}

// TestAskNow_AnotherGenerationsEffect: the key was free, and the next generation has
// its own effect. Who is asked by arguments shows both: only the one that is
// nobody's contradicts.
func TestAskNow_AnotherGenerationsEffect(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	r.endReconciling()
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	first := r.wronglyFailed("hold_order")
	lost := fake.Effects()[0].ID

	// The next one is in doubt: what is shown may be its own.
	fake.Script(tooltest.LoseReply())
	second := r.inDoubt("hold_order")
	require.Equal(t, first.Generation+1, second.Generation)
	taken := fake.Effects()[1].ID
	fake.Answers(tools.Answer{Kind: tools.Present, EffectIDs: []string{taken}})
	got, err := r.asksNow(first)
	require.NoError(t, err)
	require.Equal(t, first.Version, got.Version)

	second, err = r.asksNow(second)
	require.NoError(t, err)
	require.Equal(t, taken, second.EffectID)
	fake.Answers(tools.Answer{Kind: tools.Present, EffectIDs: []string{taken}})
	got, err = r.asksNow(first)
	require.NoError(t, err)
	require.Equal(t, first.Version, got.Version, "that effect is known, and another's")
	require.False(t, r.frozen(first.Tool))
	require.Equal(t, []tools.AnswerKind{tools.LookupFailed, tools.Absent}, r.lookups(first.ID))

	fake.Answers(tools.Answer{Kind: tools.BrokenPromise, EffectIDs: []string{taken, lost}})
	got, err = r.asksNow(first)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, lost, got.EffectID)
	require.True(t, r.frozen(first.Tool))
	require.Equal(t, second.Version, r.op(second.ID).Version)
	kept, err := r.ledger.Evidence(t.Context(), tenant, first.ID)
	require.NoError(t, err)
	for _, e := range kept {
		require.NotEqual(t, taken, e.EffectID)
	}
}
