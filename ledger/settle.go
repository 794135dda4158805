package ledger

import (
	"context"
	"errors"

	"countersign/fault"
	"countersign/tools"
)

// fold gives the operation with everything that its stored evidence, and one
// more piece, proves. It changes no state.
func (l *Ledger) fold(ctx context.Context, op Operation, more *Evidence) (Operation, error) {
	stored, err := l.Evidence(ctx, op.Tenant, op.ID)
	if err != nil {
		return op, err
	}
	if more != nil {
		stored = append(stored, *more)
	}
	for _, e := range stored {
		op.Attempts = prove(op.Attempts, e.Attempt, e.Verdict)
		if e.Verdict == tools.Succeeded && op.EffectID == "" {
			op.EffectID, op.Result = e.EffectID, e.Result
		}
	}
	return op, nil
}

// AddEvidence keeps evidence whatever state the operation is in, and moves the
// operation where all evidence together leads: an unknown one is resolved; a
// void one with an effect is contradicted, which freezes the tool; a second
// effect id freezes the tool too.
func (l *Ledger) AddEvidence(ctx context.Context, tenant string, ev Evidence) (Operation, error) {
	if err := l.persist(ctx, "", func() error { return l.cfg.Store.AddEvidence(ctx, tenant, ev) }); err != nil {
		if errors.Is(err, ErrNotFound) {
			return Operation{}, readFault(err)
		}
		return Operation{}, StoreFault(err)
	}
	if ev.Verdict == tools.Succeeded {
		if err := l.freezeOnSecondEffect(ctx, tenant, ev); err != nil {
			return Operation{}, err
		}
	}
	// Contradict, then resolve, then look once more; a guard row that moved
	// under a contradiction is read again, for nothing may block it.
	for range maxTries {
		op, moved, err := l.settle(ctx, tenant, ev)
		if errors.Is(err, ErrMoved) {
			continue
		}
		if err != nil || !moved {
			return op, err
		}
	}
	return l.Operation(ctx, tenant, ev.Operation)
}

// settle makes the one move, if any, that the evidence asks for.
func (l *Ledger) settle(ctx context.Context, tenant string, ev Evidence) (Operation, bool, error) {
	stays := false
	op, err := l.move(ctx, tenant, ev.Operation, func(cur Operation) (Transition, error) {
		next, err := l.fold(ctx, cur, nil)
		if err != nil {
			return Transition{}, err
		}
		verdict := Judge(next.Attempts)
		switch {
		case cur.State == Unknown && verdict != Unknown:
			next.State = verdict
			next.OnList = false
			next.Reason = reasonOf(verdict, ev)
			return Transition{Operation: next, Event: Event{Verb: VerbResolve, Actor: ev.By, Reason: next.Reason, Evidence: ev.ID}}, nil
		case cur.State.Void() && verdict == Succeeded:
			return l.contradiction(ctx, next, ev)
		}
		stays = true
		return Transition{}, ErrMoved
	})
	if stays {
		return op, false, nil
	}
	return op, err == nil, err
}

// contradiction reopens a void operation whose effect exists, and freezes the
// tool in the same write. Nothing may block it.
func (l *Ledger) contradiction(ctx context.Context, next Operation, ev Evidence) (Transition, error) {
	next.State = Unknown
	next.OnList = true
	next.Reason = &Reason{Code: "contradicted", Text: "Evidence of an effect arrived after the operation had ended without one."}
	g, err := l.Guard(ctx, next.Tenant)
	if err != nil {
		return Transition{}, err
	}
	return Transition{
		Operation: next, Guard: l.autoFreeze(g, next.Tool, next.Reason.Text),
		Event: Event{Verb: VerbContradict, Actor: ev.By, Reason: next.Reason, Evidence: ev.ID},
	}, nil
}

// autoFreeze gives the guard row with the tool frozen at "all", or nil when it
// is already.
func (l *Ledger) autoFreeze(g Guard, tool, reason string) *Guard {
	if f, ok := g.Frozen(tool); ok && f.Level == FreezeAll {
		return nil
	}
	g = g.clone()
	g.Freezes = append(g.Freezes, Freeze{Tool: tool, Level: FreezeAll, By: Gateway("contradiction"), Reason: reason, At: l.Now()})
	g.Epoch++
	return &g
}

// freezeOnSecondEffect freezes the tool when evidence names an effect other
// than the one that is known (I4).
func (l *Ledger) freezeOnSecondEffect(ctx context.Context, tenant string, ev Evidence) error {
	op, err := l.Operation(ctx, tenant, ev.Operation)
	if err != nil || op.EffectID == "" || op.EffectID == ev.EffectID || ev.EffectID == "" {
		return err
	}
	_, err = l.Freeze(ctx, tenant, op.Tool, FreezeAll, Gateway("contradiction"), "Two effects were seen for one operation.")
	return err
}

// Statement is a person's word on an unknown operation.
type Statement struct {
	Happened bool
	EffectID string // needed when it happened
	Reason   string // always needed
}

// Resolve ends an unknown operation by a person's statement, which is kept as
// evidence.
func (l *Ledger) Resolve(ctx context.Context, tenant, id string, by Actor, s Statement) (Operation, error) {
	switch {
	case s.Reason == "":
		return Operation{}, fault.New(fault.DecisionInvalid, "A statement needs a reason: say how you know.").At("/reason", "missing")
	case s.Happened && s.EffectID == "":
		return Operation{}, fault.New(fault.DecisionInvalid, "Say which effect it was: the outside system's own id.").At("/effect_id", "missing")
	case !s.Happened && s.EffectID != "":
		return Operation{}, fault.New(fault.DecisionInvalid, "An effect id can't stand beside a statement that nothing happened.").At("/effect_id", "not expected")
	}
	ev := Evidence{
		ID: l.cfg.NewID("evd_"), Operation: id, Kind: "statement", Verdict: tools.NoEffect,
		Because: s.Reason, By: by, At: l.Now(),
	}
	if s.Happened {
		ev.Verdict, ev.EffectID = tools.Succeeded, s.EffectID
	}
	return l.move(ctx, tenant, id, func(cur Operation) (Transition, error) {
		if cur.State != Unknown {
			return Transition{}, invalidState(cur, VerbResolve)
		}
		next, err := l.fold(ctx, cur, &ev)
		if err != nil {
			return Transition{}, err
		}
		next.State = Judge(next.Attempts)
		next.OnList = false
		next.Reason = reasonOf(next.State, ev)
		return Transition{Operation: next, Evidence: &ev, Event: Event{Verb: VerbResolve, Actor: by, Reason: &Reason{Code: "statement", Text: s.Reason}, Evidence: ev.ID}}, nil
	})
}

// HandOver puts an unknown operation on the people's list.
func (l *Ledger) HandOver(ctx context.Context, tenant, id string, reason string) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		if op.OnList {
			return Transition{}, ErrMoved
		}
		next := op
		next.OnList = true
		return Transition{Operation: next, Event: Event{Verb: VerbHandOver, Actor: Gateway("executor"), Reason: &Reason{Code: "handed_over", Text: reason}}}, nil
	})
}
