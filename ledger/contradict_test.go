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

	// Who lost the answer says it again: it is kept, and changes nothing.
	again2, err := r.Contradict(r.ctx, tenant, op.ID, person, found("e1"))
	require.NoError(t, err)
	require.Equal(t, op.Version, again2.Version)
	kept, err := r.Evidence(r.ctx, tenant, op.ID)
	require.NoError(t, err)
	require.Len(t, kept, 4, "the reply, the no, and the finding twice")
}

// TestContradict_WaitsToBeSentAgain: what was proven unsent says that there is no
// effect as much as what has ended (I9).
func TestContradict_WaitsToBeSentAgain(t *testing.T) {
	r := newRig(t)
	op := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NotSent})
	require.Equal(t, ledger.Pending, op.State)
	op, err := r.Contradict(r.ctx, tenant, op.ID, person, found("e1"))
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.Equal(t, "e1", op.EffectID)
	require.True(t, r.stopped(op.Tool))
}

// TestContradict_TheKeyWasFree: the next generation has its own effect by then. Each
// keeps its own, and the tool is frozen.
func TestContradict_TheKeyWasFree(t *testing.T) {
	r := newRig(t)
	first := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Unknown})
	_, err := r.Resolve(r.ctx, tenant, first.ID, person, ledger.Statement{Reason: "Not there."})
	require.NoError(t, err)
	second := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e2"})
	require.Equal(t, first.Generation+1, second.Generation)
	first, err = r.Contradict(r.ctx, tenant, first.ID, person, found("e1"))
	require.NoError(t, err)
	require.Equal(t, "e1", first.EffectID)
	require.Equal(t, second.Version, r.read(second).Version)
	require.True(t, r.stopped(first.Tool))
}

// TestContradict_NotByResolve: a statement about what is not in doubt is refused,
// and the refusal says why, and which door there is.
func TestContradict_NotByResolve(t *testing.T) {
	r := newRig(t)
	failed := r.concluded(r.born(r.ask("failed", nil)), tools.Outcome{Verdict: tools.NoEffect})
	waits := r.born(r.ask("waits", asks))
	unsent, err := r.Cancel(r.ctx, tenant, waits.ID, person, "no")
	require.NoError(t, err)
	done := r.done("done")
	running := r.born(r.ask("running", nil))
	no := ledger.Statement{Reason: "Not there."}
	for name, c := range map[string]struct {
		op   ledger.Operation
		says ledger.Statement
		want string
	}{
		"found late":      {failed, found("e"), "say that it contradicts"},
		"another effect":  {done, found("e"), "say that it contradicts"},
		"no effect, late": {failed, no, "is known already"},
		"a proof":         {done, no, "never taken back"},
		"never sent":      {unsent, found("e"), "never sent"},
		"on its way":      {running, found("e"), "must be found out first"},
	} {
		_, err := r.Resolve(r.ctx, tenant, c.op.ID, person, c.says)
		require.Equal(t, fault.InvalidState, fault.Of(err).Code, name)
		require.Contains(t, fault.Of(err).Detail, c.want, name)
		require.Equal(t, c.op.ID, fault.Of(err).Operation, name)
		require.Equal(t, c.op.Version, r.read(c.op).Version, name)
		kept, err := r.Evidence(r.ctx, tenant, c.op.ID)
		require.NoError(t, err)
		for _, e := range kept {
			require.NotEqual(t, "statement", e.Kind, name)
		}
	}
	require.False(t, r.stopped(done.Tool))
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
	running := r.born(r.ask("running", nil))
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
		"on its way":      {running, found("e"), fault.InvalidState},
	} {
		_, err := r.Contradict(r.ctx, tenant, c.op.ID, person, c.says)
		require.Equal(t, c.want, fault.Of(err).Code, name)
		require.Equal(t, c.op.Version, r.read(c.op).Version, name)
	}
	require.False(t, r.stopped(done.Tool))
}
