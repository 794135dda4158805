package ledger

import (
	"context"
	"errors"
	"slices"

	"countersign/fault"
	"countersign/tools"
)

// proofs are all evidence of one operation, oldest first.
type proofs []Evidence

// proofs reads what is stored, and puts one more piece behind it unless it is
// stored already.
func (l *Ledger) proofs(ctx context.Context, op Operation, more Evidence) (proofs, error) {
	stored, err := l.Evidence(ctx, op.Tenant, op.ID)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(stored, func(e Evidence) bool { return e.ID == more.ID }) {
		return stored, nil
	}
	return append(stored, more), nil
}

// fold gives the operation with everything that the evidence proves. It changes
// no state. A success that names no effect is no proof (I8).
func (p proofs) fold(op Operation) Operation {
	for _, e := range p {
		if e.Verdict == tools.Succeeded && e.EffectID == "" {
			continue
		}
		about, later := op.Attempts, []Attempt(nil)
		if e.Covers > 0 && e.Covers < len(about) {
			about, later = about[:e.Covers], about[e.Covers:]
		}
		op.Attempts = append(prove(about, e.Attempt, e.Verdict), later...)
		if e.Verdict == tools.Succeeded && op.EffectID == "" {
			op.EffectID, op.Result = e.EffectID, e.Result
		}
	}
	return op
}

// behind gives the evidence that stands behind a verdict: the piece that came last,
// more, if it proves something itself, else the newest of those that do. A lookup
// that shows nothing yet may be what brings a rejection to light that was kept
// before and could not be written into the row.
func (p proofs) behind(verdict State, more Evidence) Evidence {
	proves := func(e Evidence) bool {
		if verdict == Succeeded {
			return e.Verdict == tools.Succeeded && e.EffectID != ""
		}
		return e.Verdict == tools.NoEffect || e.Verdict == tools.NotSent
	}
	if proves(more) {
		return more
	}
	for _, e := range slices.Backward(p) {
		if proves(e) {
			return e
		}
	}
	return more
}

// second reports that the evidence names more than one effect.
func (p proofs) second(op Operation) bool {
	op = p.fold(op)
	return slices.ContainsFunc(p, func(e Evidence) bool {
		return e.Verdict == tools.Succeeded && e.EffectID != "" && e.EffectID != op.EffectID
	})
}

// AddEvidence keeps evidence whatever state the operation is in, and moves the
// operation where all evidence together leads: an unknown one is resolved; one
// that ended without effect, or waits to be sent again, and had an effect is
// contradicted, which freezes the tool; a second effect id freezes the tool too.
// Evidence and the move that it asks for are one write.
func (l *Ledger) AddEvidence(ctx context.Context, tenant string, ev Evidence) (Operation, error) {
	kept := false
	// Contradict, then resolve, then look once more; a guard row that moved
	// under a contradiction is read again, for nothing may block it.
	for range 2 * maxTries {
		op, all, moved, err := l.settle(ctx, tenant, ev)
		switch {
		case moved:
			kept = true
			continue
		case errors.Is(err, ErrMoved):
			continue
		case kept && err == nil:
			return op, l.freezeOnSecondEffect(ctx, op, all)
		case kept:
			return op, err
		}
		// Where it moves nothing, or that can't be told, it is kept all the same;
		// then another look, since the operation may have moved before it was there.
		// A freeze comes first: whoever dies between the two leaves the tool frozen.
		// If it fails, it is made by that other look.
		if err == nil {
			_ = l.freezeOnSecondEffect(ctx, op, all)
		}
		if err := l.keep(ctx, tenant, ev); err != nil {
			return Operation{}, err
		}
		if kept = true; err != nil {
			return op, err
		}
	}
	if err := l.keep(ctx, tenant, ev); err != nil {
		return Operation{}, err
	}
	return Operation{}, fault.New(fault.StoreUnavailable, "The ground moved under this evidence again and again; it is kept and must be weighed once more.")
}

// keep stores evidence once by its id.
func (l *Ledger) keep(ctx context.Context, tenant string, ev Evidence) error {
	err := l.persist(ctx, "", func() error { return l.cfg.Store.AddEvidence(ctx, tenant, ev) })
	if errors.Is(err, ErrNotFound) {
		return readFault(err)
	}
	return StoreFault(err)
}

// settle makes the one move, if any, that the evidence asks for.
func (l *Ledger) settle(ctx context.Context, tenant string, ev Evidence) (op Operation, all proofs, moved bool, err error) {
	stays := false
	op, err = l.move(ctx, tenant, ev.Operation, func(cur Operation) (t Transition, err error) {
		if all, err = l.proofs(ctx, cur, ev); err != nil {
			return Transition{}, err
		}
		next := all.fold(cur)
		verdict := Judge(next.Attempts)
		switch {
		case cur.State == Unknown && verdict != Unknown:
			next.State = verdict
			next.OnList = false
			proof := all.behind(verdict, ev)
			next.Reason = reasonOf(verdict, proof)
			t = Transition{Operation: next, Evidence: &ev, Event: Event{Verb: VerbResolve, Actor: proof.By, Reason: next.Reason}.by(&proof)}
			t.Guard, err = l.freezeOf(ctx, cur, all)
			return t, err
		case contradictable(cur.State) && verdict == Succeeded:
			return l.contradiction(ctx, next, ev, all.behind(verdict, ev))
		}
		stays = true
		return Transition{}, ErrMoved
	})
	if stays {
		return op, all, false, nil
	}
	return op, all, err == nil, err
}

// contradictable reports that an effect gives the lie to the state: it says that
// there is none. What was proven unsent and waits to be sent again says so too.
func contradictable(s State) bool { return s.Void() || s == Pending || s == AwaitingApproval }

// contradiction reopens an operation that has no effect by its state and whose
// effect exists by proof, and freezes the tool in the same write, which keeps ev.
// Nothing may block it.
func (l *Ledger) contradiction(ctx context.Context, next Operation, ev, proof Evidence) (Transition, error) {
	next.State = Unknown
	next.OnList = true
	next.Reason = &Reason{Code: "contradicted", Text: "Evidence of an effect arrived after it was proven that there was none."}
	g, err := l.Guard(ctx, next.Tenant)
	if err != nil {
		return Transition{}, err
	}
	return Transition{
		Operation: next, Guard: l.autoFreeze(g, next.Tool, next.Reason.Text), Evidence: &ev,
		Event: Event{Verb: VerbContradict, Actor: proof.By, Reason: next.Reason}.by(&proof),
	}, nil
}

// autoFreeze gives the guard row with the tool frozen at "all". Where that stands
// already the row moves on all the same, so that nothing commits that was
// evaluated before this was known: under another tool, one goal may ask for the
// same effect.
func (l *Ledger) autoFreeze(g Guard, tool, reason string) *Guard {
	next := g.clone()
	next.stop(tool, reason, l.Now())
	next = l.follow(next, g, Change{What: "freeze", Tool: tool, By: foundOut, Reason: reason})
	return &next
}

// twoEffects is why a tool is frozen when more than one effect was seen for one
// operation (I4).
const twoEffects = "Two effects were seen for one operation."

// freezeOf gives the guard row with the tool frozen, for the write that brings the
// second effect; nil where there is none, or it is frozen already.
func (l *Ledger) freezeOf(ctx context.Context, op Operation, all proofs) (*Guard, error) {
	if !all.second(op) {
		return nil, nil
	}
	g, err := l.Guard(ctx, op.Tenant)
	if err != nil || g.stopped(op.Tool) {
		return nil, err
	}
	return l.autoFreeze(g, op.Tool, twoEffects), nil
}

// freezeOnSecondEffect freezes the tool where the evidence moves nothing.
func (l *Ledger) freezeOnSecondEffect(ctx context.Context, op Operation, all proofs) error {
	if !all.second(op) {
		return nil
	}
	why := Change{What: "freeze", Tool: op.Tool, By: foundOut, Reason: twoEffects}
	_, _, err := l.ChangeGuard(ctx, op.Tenant, why, func(g *Guard) { g.stop(op.Tool, twoEffects, l.Now()) })
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
	resolve := func(cur Operation) (t Transition, err error) {
		if cur.State != Unknown {
			return Transition{}, notInDoubt(cur, s)
		}
		ev.Covers = len(cur.Attempts)
		all, err := l.proofs(ctx, cur, ev)
		if err != nil {
			return Transition{}, err
		}
		next := all.fold(cur)
		next.State = Judge(next.Attempts)
		next.OnList = false
		next.Reason = reasonOf(next.State, ev)
		t = Transition{Operation: next, Evidence: &ev, Event: Event{Verb: VerbResolve, Actor: by, Reason: &Reason{Code: "statement", Text: s.Reason}}}
		t.Guard, err = l.freezeOf(ctx, cur, all)
		return t, err
	}
	for try := 0; ; try++ {
		op, err := l.move(ctx, tenant, id, resolve)
		if !errors.Is(err, ErrMoved) || try == maxTries { // the guard row moves under a freeze
			return op, err
		}
	}
}

// HandOver puts an unknown operation on the people's list.
func (l *Ledger) HandOver(ctx context.Context, tenant, id string, reason string) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		if op.OnList {
			return Transition{}, ErrMoved
		}
		next := op
		next.OnList = true
		return Transition{Operation: next, Event: Event{Verb: VerbHandOver, Actor: Reconciler, Reason: &Reason{Code: "handed_over", Text: reason}}}, nil
	})
}
