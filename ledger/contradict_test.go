package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// found is a person's word that an effect is there.
func found(effect string) ledger.Statement {
	return ledger.Statement{Happened: true, EffectID: effect, Reason: "It is in the bank's list."}
}

// TestContradict_AWrongNo: a person said that nothing happened, and another one
// finds the effect later: the operation has it, the key is not free any more, and
// the tool is frozen (I9).
func TestContradict_AWrongNo(t *testing.T) {
	r := newRig(t)
	op := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Unknown})
	op, err := r.Resolve(r.ctx, tenant, op.ID, person, ledger.Statement{Reason: "Not there."})
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, op.State)
	require.False(t, r.stopped(op.Tool))

	op, err = r.Contradict(r.ctx, tenant, op.ID, person, found("e1"))
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.Equal(t, "e1", op.EffectID)
	require.True(t, r.stopped(op.Tool))
	r.last(op)
	events, err := r.Events(r.ctx, tenant, op.ID)
	require.NoError(t, err)
	again := events[len(events)-2]
	require.Equal(t, ledger.VerbContradict, again.Verb)
	require.Equal(t, person, again.Actor)
	head, err := r.Head(r.ctx, tenant, op.Tool, "k")
	require.NoError(t, err)
	require.Equal(t, op.ID, head.Operation.ID)
	require.Equal(t, ledger.Succeeded, head.Operation.State)

	_, err = r.Contradict(r.ctx, tenant, op.ID, person, found("e1"))
	require.Equal(t, fault.InvalidState, fault.Of(err).Code, "that is known")
}

// TestContradict_ASecondEffect: one operation, two effects outside: the state is
// right, the promise is broken, the duplicate counts (I4, R142).
func TestContradict_ASecondEffect(t *testing.T) {
	r := newRig(t)
	op := r.done("k")
	before, err := r.Tally(r.ctx, tenant)
	require.NoError(t, err)
	require.Zero(t, before.Duplicates)
	now, err := r.Contradict(r.ctx, tenant, op.ID, person, found("another"))
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, now.State)
	require.Equal(t, op.EffectID, now.EffectID)
	require.True(t, r.stopped(op.Tool))
	after, err := r.Tally(r.ctx, tenant)
	require.NoError(t, err)
	require.EqualValues(t, 1, after.Duplicates)
}

// TestContradict_Refused: what is no finding, or is about no end, changes nothing.
func TestContradict_Refused(t *testing.T) {
	r := newRig(t)
	doubt := r.concluded(r.born(r.ask("doubt", nil)), tools.Outcome{Verdict: tools.Unknown})
	waits := r.born(r.ask("waits", asks))
	unsent, err := r.Cancel(r.ctx, tenant, waits.ID, person, "no")
	require.NoError(t, err)
	done := r.done("done")
	for name, c := range map[string]struct {
		op   ledger.Operation
		says ledger.Statement
		want fault.Code
	}{
		"no reason":       {done, ledger.Statement{Happened: true, EffectID: "e"}, fault.DecisionInvalid},
		"no effect":       {done, ledger.Statement{Happened: true, Reason: "r"}, fault.DecisionInvalid},
		"nothing":         {done, ledger.Statement{EffectID: "e", Reason: "r"}, fault.DecisionInvalid},
		"a doubt":         {doubt, found("e"), fault.InvalidState},
		"never attempted": {unsent, found("e"), fault.InvalidState},
		"no news":         {done, found(done.EffectID), fault.InvalidState},
	} {
		_, err := r.Contradict(r.ctx, tenant, c.op.ID, person, c.says)
		require.Equal(t, c.want, fault.Of(err).Code, name)
		require.Equal(t, c.op.Version, r.read(c.op).Version, name)
	}
	require.False(t, r.stopped(done.Tool))
}
