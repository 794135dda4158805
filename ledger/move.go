package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/fault"
)

// maxTries bounds how often a verb looks again after a lost race or a lost
// answer.
const maxTries = 16

// ErrMoved: what the caller evaluated (guard row, head, guards' reads) is no
// longer so; evaluate again.
var ErrMoved = errors.New("ledger: what was evaluated has moved")

// step applies one transition to op as the caller read it. Where the parent of
// an undo moved meanwhile, the same transition is made beside its new row.
func (l *Ledger) step(ctx context.Context, op Operation, t Transition) (Operation, error) {
	for try := 0; ; try++ {
		next, err := l.stepOnce(ctx, op, t)
		var lost *Lost
		if !errors.As(err, &lost) || lost.Current.ID == op.ID {
			return next, err
		}
		if try == maxTries {
			return op, ErrMoved
		}
	}
}

// stepOnce is a single compare-and-swap. t carries the new row's own fields, the
// event's verb, actor and reason, and what comes along; the rest is filled in
// here. It returns *Lost or *Refused as the store gave them, ErrMoved for an
// epoch or an age that moved.
func (l *Ledger) stepOnce(ctx context.Context, op Operation, t Transition) (Operation, error) {
	now := l.Now()
	next := &t.Operation
	verb := t.Event.Verb
	if !slices.Contains(Allowed(op.State, verb, len(op.Attempts) > 0, op.Touched()), next.State) {
		return op, invalidState(op, verb)
	}
	if err := consistent(*next); err != nil {
		return op, err
	}
	t.WriteID = newWriteID()
	t.Expect = op.Version
	next.Version = op.Version + 1
	next.UpdatedAt = now
	next.WriteID = t.WriteID
	if next.State.Final() && !op.State.Final() {
		next.FinalAt = now
	}
	doubt(op, next, t.Event, now)
	also, err := l.endUndo(ctx, op, *next, t.WriteID)
	if err != nil {
		return op, err
	}
	t.Also = also
	t.Event = l.event(op.State, *next, t.Event.by(t.Evidence))
	next.Chain = t.Event.Hash

	CrashPoint("before_" + string(verb))
	err = l.persist(ctx, t.WriteID, func() error { return l.cfg.Store.Apply(ctx, t) })
	CrashPoint("after_" + string(verb))
	var refused *Refused
	switch {
	case err == nil:
		l.announce(*next, t.Event)
		for _, m := range t.Also {
			l.announce(m.Operation, m.Event)
		}
		return *next, nil
	case errors.As(err, &refused) && (refused.Why == EpochMoved || refused.Why == TooLate):
		return op, ErrMoved
	case errors.As(err, &refused):
		return op, err
	default:
		var lost *Lost
		if errors.As(err, &lost) {
			return op, err
		}
		return op, StoreFault(err)
	}
}

// doubt keeps the row's account of its doubts: since when, when it is looked at
// next, and who ended them.
func doubt(op Operation, next *Operation, ev Event, now time.Time) {
	switch {
	case next.State == Unknown && op.State != Unknown:
		next.UnknownSince, next.FinalAt, next.AskAt = now, noTime, now
	case next.State.Final() && (op.Doubt == DoubtEntered || op.State == Unknown):
		next.Doubt = DoubtElsewhere
		if ev.Verb == VerbFinish || ev.Actor == Reconciler {
			next.Doubt = DoubtReconciled // a finish out of a doubt ends a retry
		}
	}
	if next.State == Unknown {
		// Also of a row that was written before doubts were accounted for.
		next.Doubt = DoubtEntered
		if next.FirstUnknownAt.IsZero() {
			next.FirstUnknownAt = next.UnknownSince
		}
	} else {
		next.OnList = false // only a doubt waits for people's knowledge
	}
	if next.State != Unknown || next.OnList {
		next.AskAt = noTime
	}
}

// Reconciler is the actor of what the reconciler finds out.
var Reconciler = Gateway("reconciler")

// persist runs one write and settles an ambiguous answer: the write id is
// looked for; the identical write is issued again when it is not there, which
// can't apply twice because of the write id and the version in it.
func (l *Ledger) persist(ctx context.Context, writeID string, write func() error) error {
	var unclear error
	for try := 0; ; try++ {
		err := write()
		var amb *Ambiguous
		switch {
		case errors.As(err, &amb):
			unclear = err
		case unclear != nil && !decided(err):
			err = unclear // this try wrote nothing; the one before may have
		default:
			return err
		}
		// The caller may be gone; the question must still be answered.
		if _, found := l.cfg.Store.ByWrite(context.WithoutCancel(ctx), writeID); found == nil {
			return nil
		}
		if try == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// decided reports that a store knows what became of a write: applied, lost or
// refused, which holds for every earlier try of it too.
func decided(err error) bool {
	var lost *Lost
	var refused *Refused
	return err == nil || errors.As(err, &lost) || errors.As(err, &refused)
}

// move is step in a loop: decide sees the operation as it stands and builds
// the transition; a lost race makes it look again.
func (l *Ledger) move(ctx context.Context, tenant, id string, decide func(op Operation) (Transition, error)) (Operation, error) {
	op, err := l.Operation(ctx, tenant, id)
	if err != nil {
		return Operation{}, err
	}
	for try := 0; ; try++ {
		t, err := decide(op)
		if err != nil {
			return op, err
		}
		next, err := l.step(ctx, op, t)
		var lost *Lost
		if !errors.As(err, &lost) || try == maxTries {
			return next, err
		}
		op = lost.Current
	}
}

// event completes an event of a transition to next.
func (l *Ledger) event(from State, next Operation, e Event) Event {
	e.Operation, e.Tenant, e.Tool = next.ID, next.Tenant, next.Tool
	e.At = next.UpdatedAt
	e.From, e.To = from, next.State
	e.Version, e.Fence, e.Round = next.Version, next.Fence, next.Round
	e.Attempt = len(next.Attempts)
	e.EffectID = readable(next.EffectID)
	if e.Reason == nil && next.State.Final() {
		e.Reason = next.Reason
	}
	if e.Reason != nil {
		e.Reason = &Reason{Code: e.Reason.Code, Text: readable(e.Reason.Text)}
	}
	e.Actor.Name = readable(e.Actor.Name)
	e.WriteID = next.WriteID
	e.Prev = next.Chain
	e.Hash = e.seal()
	return e
}

// by names the evidence that moves an operation, unless another is named already.
func (e Event) by(ev *Evidence) Event {
	if ev != nil && e.Evidence == "" {
		e.Evidence, e.EvidenceDigest = ev.ID, ev.Digest()
	}
	return e
}

// readable replaces bytes that are not UTF-8, which JSON does not give back as
// they were: the hash of an event must survive being stored.
func readable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// consistent is the last line of defence: a row that would free its key while
// an effect is possible, or that claims a success without proof, is never
// written (I8).
func consistent(op Operation) error {
	touched, verdict := op.Touched(), Judge(op.Attempts)
	bad := false
	switch op.State {
	case Failed:
		bad = verdict != Failed
	case Pending, AwaitingApproval, Rejected, Expired, Cancelled:
		bad = touched
	case Succeeded:
		bad = op.EffectID == "" || (!op.Adopted && verdict != Succeeded)
	case Compensating, Compensated:
		bad = op.EffectID == "" || op.Adopted || verdict != Succeeded || op.Child == ""
	case Running, Unknown:
		bad = len(op.Attempts) == 0
	}
	if bad {
		return fault.New(fault.Internal, "The ledger refused an inconsistent row: %s with verdict %s.", op.State, verdict)
	}
	return nil
}

// invalidState refuses a verb that the table does not allow now.
func invalidState(op Operation, verb Verb) error {
	e := fault.New(fault.InvalidState, "An operation that is %s can't be changed by %s.", op.State, verb)
	if op.Touched() && op.State.Live() && op.State != Unknown {
		e = fault.New(fault.InvalidState, "The operation may already have had an effect, so %s is refused; its outcome must be found out first.", verb)
	}
	return withOperation(e, op)
}
