package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// MarkRequest is what was evaluated before a dispatch mark.
type MarkRequest struct {
	// Epoch of the guard row that was checked.
	Epoch int64
	// GuardsReadAt is when the guards began to read; zero when there are none.
	GuardsReadAt time.Time
	// YesUntil is how long the yeses that were counted are young enough; zero when
	// nobody was asked, or they never grow old.
	YesUntil time.Time
	Timeout  time.Duration
}

// Mark makes the dispatch mark on a pending operation as the caller evaluated
// it. Only when it returns without error may anything be sent. ErrMoved asks
// the caller to evaluate again; *Lost means somebody else was first.
func (l *Ledger) Mark(ctx context.Context, op Operation, r MarkRequest) (Operation, error) {
	if op.Withdrawn {
		return op, withOperation(fault.New(fault.InvalidState, "A yes was taken back; people must be asked again."), op)
	}
	if err := l.stillWanted(ctx, op); err != nil {
		return op, err
	}
	now := l.Now()
	next := op
	next.State = Running
	l.mark(&next, now, r.Timeout)
	t := Transition{
		Operation: next, Epoch: &r.Epoch,
		Event: Event{Verb: VerbDispatch, Actor: Gateway("executor"), Digest: op.PlanDigest},
	}
	if !r.GuardsReadAt.IsZero() {
		t.NotAfter = r.GuardsReadAt.Add(l.cfg.GuardMaxAge)
	}
	// A yes counts while it is young, and not after its round (I12).
	t.NotAfter = sooner(t.NotAfter, r.YesUntil)
	if !op.ExpiresAt.IsZero() {
		t.NotAfter = sooner(t.NotAfter, op.ExpiresAt.Add(-1))
	}
	return l.step(ctx, op, t)
}

// sooner is the earlier of two moments, of which a zero one never comes.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stillWanted refuses to send what something else did, or may have done, since
// the operation was opened: only late evidence behind an end can bring that
// about, which moves the guard row. So what is read here holds for the mark that
// names the epoch that was read before. What is refused waits until it expires or
// a person cancels it.
func (l *Ledger) stillWanted(ctx context.Context, op Operation) error {
	if op.After != "" {
		before, err := l.Operation(ctx, op.Tenant, op.After)
		if err != nil {
			return err
		}
		if before.State != Succeeded {
			return withOperation(fault.New(fault.InvalidState, "The undo before this one is %s; this one waits for its success.", before.State), op)
		}
	}
	if op.Parent != "" {
		parent, err := l.Operation(ctx, op.Tenant, op.Parent)
		if err != nil {
			return err
		}
		others, err := l.otherUndo(ctx, parent, op.ID)
		if err != nil {
			return err
		}
		if !speaks(parent, op.ID, others) {
			return withOperation(fault.New(fault.InvalidState, "Another undo of the same operation took effect after all, or may have; the operation is %s.", parent.State), op)
		}
	}
	if op.Generation > 1 {
		if err := l.standsAlone(ctx, op, Filter{Tenant: op.Tenant, Tool: op.Tool, Key: op.Key, States: PossibleEffect()}); err != nil {
			return err
		}
	}
	if op.Goal != nil {
		return l.standsAlone(ctx, op, Filter{Tenant: op.Tenant, Goal: op.Goal, States: holds()})
	}
	return nil
}

// standsAlone refuses an operation beside another one of the filter, save the one
// that it is a wanted repeat of.
func (l *Ledger) standsAlone(ctx context.Context, op Operation, f Filter) error {
	f.Limit = 2
	page, err := l.List(ctx, f)
	if err != nil {
		return err
	}
	for _, other := range page.Operations {
		switch other.ID {
		case op.ID:
			continue
		case op.AgainOf:
			return nil
		}
		return withOperation(fault.New(fault.InvalidState, "Another operation for the same took effect after all, or may have; nothing is sent beside it."), op)
	}
	return nil
}

// Adopt ends a pending operation whose effect was found already there; nothing
// was sent.
func (l *Ledger) Adopt(ctx context.Context, op Operation, d tools.Done) (Operation, error) {
	next := op
	ev := l.adopt(&next, d)
	return l.step(ctx, op, Transition{
		Operation: next, Evidence: ev,
		Event: Event{Verb: VerbAdopt, Actor: Gateway("guard")},
	})
}

// MaxUnsent is how many attempts in a row may be proven unsent before the
// operation fails.
const MaxUnsent = 5

// Conclude writes what a dispatch saw. op is the operation as marked; its fence
// must still be the current one. A late worker's outcome is kept as evidence
// and weighed like any other (I11). The evidence is in the same write as the
// move.
func (l *Ledger) Conclude(ctx context.Context, op Operation, o tools.Outcome) (Operation, error) {
	attempt := op.Attempts[len(op.Attempts)-1].N
	ev := Evidence{
		ID: responseID(op.ID, attempt, o), Operation: op.ID, Attempt: attempt, Kind: "response", Verdict: o.Verdict,
		EffectID: o.EffectID, Result: o.Result, Because: o.Because, By: Gateway("executor"), Seen: o.Seen, At: l.Now(),
	}
	late := false
	conclude := func(cur Operation) (t Transition, err error) {
		if cur.State != Running || cur.Fence != op.Fence {
			late = true
			return Transition{}, ErrMoved
		}
		all, err := l.proofs(ctx, cur, ev)
		if err != nil {
			return Transition{}, err
		}
		t = l.conclusion(all.fold(cur), ev)
		t.Guard, err = l.freezeOf(ctx, cur, all)
		return t, err
	}
	for try := 0; ; try++ {
		next, err := l.move(ctx, op.Tenant, op.ID, conclude)
		switch {
		case late:
			return l.AddEvidence(ctx, op.Tenant, ev)
		case !errors.Is(err, ErrMoved) || try == maxTries: // the guard row moves under a freeze
			return next, err
		}
	}
}

// conclusion works out where the evidence of the current attempt, folded into
// next already, leads.
func (l *Ledger) conclusion(next Operation, ev Evidence) Transition {
	next.LeaseUntil = noTime
	event := Event{Actor: ev.By}
	event.Verb, next.State = concluded(next.Attempts, ev.Verdict)
	if next.State == Pending {
		next.NotBefore = l.Now().Add(unsentBackoff(len(next.Attempts)))
		if next.ExpiresAt.IsZero() {
			// Nobody was asked, so nothing bounds the wait yet (I21).
			next.ExpiresAt = l.Now().Add(cmp.Or(next.Requirement.Expiry, unsentExpiry))
		}
	}
	next.Reason = reasonOf(next.State, ev)
	event.Reason = next.Reason
	return Transition{Operation: next, Event: event, Evidence: &ev}
}

// unsentExpiry bounds how long an operation that nobody was asked about waits to
// be sent, where its tool says nothing.
const unsentExpiry = time.Hour

// responseID names what one dispatch saw. It is the same each time that the
// worker tells it, so that an outcome told twice is kept once.
func responseID(operation string, attempt int, o tools.Outcome) string {
	sum := sha256.Sum256(frame(operation, itoa(attempt), fmt.Sprintf("%+v", o)))
	return "evd_" + strings.ToLower(idEncoding.EncodeToString(sum[:16]))
}

// unsentBackoff is 1 s, 2 s, 4 s, … before the next try of what was never sent.
func unsentBackoff(attempts int) time.Duration { return time.Second << min(attempts-1, 5) }

// reasonOf puts an end or a doubt in words.
func reasonOf(s State, ev Evidence) *Reason {
	switch {
	case s == Succeeded && ev.Kind == "statement":
		return &Reason{Code: "stated_happened", Text: ev.Because}
	case s == Succeeded:
		return nil
	case s == Failed && ev.Kind == "statement":
		return &Reason{Code: "stated_no_effect", Text: ev.Because}
	case s == Failed && ev.Kind == "lookup":
		return &Reason{Code: "absent_outside", Text: ev.Because}
	case s == Failed && ev.Verdict == tools.NotSent, s == Pending:
		return &Reason{Code: "not_sent", Text: "The upstream could not be reached; nothing was sent."}
	case s == Failed:
		return &Reason{Code: "refused_upstream", Text: ev.Because}
	default:
		return &Reason{Code: "no_proof", Text: ev.Because}
	}
}

// LoseLease marks a running operation whose lease is over as unknown: its
// worker is gone or stuck, and what it sent may have arrived. Evidence that is
// there already resolves it.
func (l *Ledger) LoseLease(ctx context.Context, tenant, id string) (Operation, error) {
	op, err := l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		if op.State == Running && l.Now().Before(op.LeaseUntil) {
			return Transition{}, ErrMoved
		}
		next := op
		next.State = Unknown
		next.LeaseUntil = noTime
		next.Reason = &Reason{Code: "lease_lost", Text: "The worker that sent it gave no answer in time; it may have happened."}
		return Transition{Operation: next, Event: Event{Verb: VerbLoseLease, Actor: Gateway("lease"), Reason: next.Reason}}, nil
	})
	if err != nil {
		return op, err
	}
	// What came in while it ran is weighed now.
	stored, err := l.Evidence(ctx, tenant, id)
	if err != nil || len(stored) == 0 {
		return op, err
	}
	return l.AddEvidence(ctx, tenant, stored[len(stored)-1])
}

// RetryRequest is what was evaluated before a retry.
type RetryRequest struct {
	// Epoch of the guard row that was checked.
	Epoch   int64
	Timeout time.Duration
	// NotAfter is the end of the tool's key retention, less a margin.
	NotAfter time.Time
	// Why is said in the event.
	Why string
}

// Retry makes a dispatch mark on an unknown operation: the same key and the same
// bytes once more, for a tool that honours keys, inside its key retention (I4,
// I6). Only when it returns without error may anything be sent. Beside another
// operation for the same that took effect after all nothing is; a person is asked.
func (l *Ledger) Retry(ctx context.Context, op Operation, r RetryRequest) (Operation, error) {
	now := l.Now()
	if r.NotAfter.IsZero() || now.After(r.NotAfter) {
		return op, withOperation(fault.New(fault.InvalidState, "The tool no longer remembers the key; nothing is sent again."), op)
	}
	if slices.ContainsFunc(op.Attempts, func(a Attempt) bool { return a.Presumed }) {
		return op, withOperation(fault.New(fault.InvalidState, "When it was sent first stood in the part of the ledger that is lost, so nobody knows how long the tool remembers the key."), op)
	}
	if err := l.stillWanted(ctx, op); err != nil {
		if fault.Is(err, fault.InvalidState) && op.State == Unknown && !op.OnList {
			if _, e := l.HandOver(ctx, op.Tenant, op.ID, fault.Of(err).Detail); e != nil && !errors.Is(e, ErrMoved) {
				return op, e
			}
		}
		return op, err
	}
	next := op
	next.State = Running
	l.mark(&next, now, r.Timeout)
	return l.step(ctx, op, Transition{
		Operation: next, Epoch: &r.Epoch, NotAfter: r.NotAfter,
		Event: Event{Verb: VerbRetry, Actor: Reconciler, Digest: op.PlanDigest, Reason: &Reason{Code: "retry", Text: r.Why}},
	})
}

// Restore puts an operation of a restored backup in doubt, on the people's list:
// what the lost part of the ledger did with it nobody here knows. An attempt is
// presumed, so that nothing frees its key without a proof.
func (l *Ledger) Restore(ctx context.Context, tenant, id string) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		next := op
		next.State, next.OnList, next.LeaseUntil = Unknown, true, noTime
		l.mark(&next, l.Now(), 0)
		next.LeaseUntil = noTime
		next.Attempts[len(next.Attempts)-1].Presumed = true
		next.Reason = &Reason{Code: "restored", Text: "The ledger was restored from a backup; it may have happened in the part that is lost."}
		return Transition{Operation: next, Event: Event{Verb: VerbRestored, Actor: Gateway("recover"), Reason: next.Reason}}, nil
	})
}
