package ledger

import (
	"context"

	"countersign/fault"
	"countersign/tools"
)

// Contradict takes what a person found out too late: an operation that ended
// without effect had one, or one that took effect had another one beside it. It is
// kept as evidence and weighed with all that is there: the operation is reopened
// and its tool frozen, as by a reply that came too late. Nothing may block it
// (I9), and only a finding of an effect is taken: that nothing happened is no
// news of an operation that ended so. The effect that is known already is kept
// too, and moves nothing, so that whoever lost the answer may say it again. What
// was proven unsent and waits to be sent again says that there is no effect, and is
// contradicted as well. Of what is in doubt a person speaks by Resolve.
func (l *Ledger) Contradict(ctx context.Context, tenant, id string, by Actor, s Statement) (Operation, error) {
	switch {
	case s.Reason == "":
		return Operation{}, fault.New(fault.DecisionInvalid, "A statement needs a reason: say how you know.").At("/reason", "missing")
	case !s.Happened:
		return Operation{}, fault.New(fault.DecisionInvalid, "Only an effect that was found contradicts an end.").At("/outcome", "not happened")
	case s.EffectID == "":
		return Operation{}, fault.New(fault.DecisionInvalid, "Say which effect it was: the outside system's own id.").At("/effect_id", "missing")
	}
	op, err := l.Operation(ctx, tenant, id)
	switch {
	case err != nil:
		return op, err
	case op.State == Unknown:
		return op, notStatable(op, "Its outcome is unknown, so there is no end to contradict: say what happened without that.")
	case len(op.Attempts) == 0:
		return op, notStatable(op, neverSent)
	case !op.State.Effective() && !contradictable(op.State):
		return op, invalidState(op, VerbContradict)
	}
	return l.AddEvidence(ctx, tenant, Evidence{
		ID: l.cfg.NewID("evd_"), Operation: id, Kind: "statement", Verdict: tools.Succeeded, Covers: len(op.Attempts),
		EffectID: s.EffectID, Because: s.Reason, By: by, At: l.Now(),
	})
}

// neverSent is why nobody's word on the effect of an operation is taken: what is
// there was made by somebody else.
const neverSent = "The operation was never sent, so that no effect can be its own."

// notInDoubt refuses a statement about an operation whose outcome is not unknown,
// and names the door for what was found too late.
func notInDoubt(op Operation, s Statement) error {
	switch {
	case !op.State.Effective() && !contradictable(op.State):
		return invalidState(op, VerbResolve)
	case len(op.Attempts) == 0:
		return notStatable(op, neverSent)
	case s.Happened:
		return notStatable(op, "The operation is not in doubt, it is %s. If its effect, or another one, was found after all, say that it contradicts: the tool is frozen then.", op.State)
	case op.State.Effective():
		return notStatable(op, "The operation is %s: a proof of an effect is never taken back.", op.State)
	}
	return notStatable(op, "The operation is %s: that nothing happened is known already.", op.State)
}

// notStatable says why no statement is taken.
func notStatable(op Operation, format string, args ...any) error {
	return withOperation(fault.New(fault.InvalidState, format, args...), op)
}
