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
// news of an operation that ended so. Of one that has no end yet a person speaks
// by Resolve.
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
	case !op.State.Final() && op.State != Compensating, len(op.Attempts) == 0, op.EffectID == s.EffectID:
		return op, invalidState(op, VerbContradict)
	}
	return l.AddEvidence(ctx, tenant, Evidence{
		ID: l.cfg.NewID("evd_"), Operation: id, Kind: "statement", Verdict: tools.Succeeded, Covers: len(op.Attempts),
		EffectID: s.EffectID, Because: s.Reason, By: by, At: l.Now(),
	})
}
