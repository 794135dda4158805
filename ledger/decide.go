package ledger

import (
	"context"
	"errors"

	"countersign/fault"
	"countersign/tools"
)

// The verbs of people and time on an operation that was not dispatched. Who
// may use them, and when a quorum is full, is decided in approvals.

// Approve records a yes on op as the caller evaluated it; full moves it to
// pending in the same write. *Lost asks the caller to evaluate again. By the
// store's clock the round must not be over, whatever the caller's says (I19).
func (l *Ledger) Approve(ctx context.Context, op Operation, d Decision, full bool) (Operation, error) {
	next := op
	if full {
		next.State = Pending
		next.ApprovedAt = d.At
	}
	t := Transition{Operation: next, Event: Event{Verb: VerbApprove}}
	if !op.ExpiresAt.IsZero() {
		t.NotAfter = op.ExpiresAt.Add(-1)
	}
	next, err := l.decided(ctx, op, t, d)
	if errors.Is(err, ErrMoved) {
		return op, withOperation(fault.New(fault.InvalidState, "The time to decide is over."), op)
	}
	return next, err
}

// Reject records a no, which ends the operation.
func (l *Ledger) Reject(ctx context.Context, op Operation, d Decision) (Operation, error) {
	next := op
	next.State = Rejected
	next.Reason = &Reason{Code: "rejected", Text: d.Reason}
	return l.decided(ctx, op, Transition{Operation: next, Event: Event{Verb: VerbReject, Reason: next.Reason}}, d)
}

// Withdraw records that a person took their own yes back. A pending operation
// is then not dispatched before it was revised.
func (l *Ledger) Withdraw(ctx context.Context, op Operation, d Decision) (Operation, error) {
	next := op
	if op.State == Pending {
		next.Withdrawn = true
	}
	return l.decided(ctx, op, Transition{Operation: next, Event: Event{Verb: VerbWithdraw}}, d)
}

func (l *Ledger) decided(ctx context.Context, op Operation, t Transition, d Decision) (Operation, error) {
	t.Event.Actor = Actor{Kind: "operator", ID: d.Person, Name: d.Name}
	t.Event.Digest = d.Digest
	t.Decision = &d
	next, err := l.step(ctx, op, t)
	var refused *Refused
	if errors.As(err, &refused) && refused.Why == AlreadyDecided {
		return op, withOperation(fault.New(fault.AlreadyDecided, "You have already decided on this round."), op)
	}
	return next, err
}

// Reopen lets a rejected ask be asked again; the rejected operation itself
// stays rejected.
func (l *Ledger) Reopen(ctx context.Context, tenant, id string, by Actor, reason string) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		next := op
		next.Reopened = true
		return Transition{Operation: next, Event: Event{Verb: VerbReopen, Actor: by, Reason: &Reason{Code: "reopened", Text: reason}}}, nil
	})
}

// Cancel ends an untouched operation at the wish of the agent, its owner or a
// person.
func (l *Ledger) Cancel(ctx context.Context, tenant, id string, by Actor, reason string) (Operation, error) {
	return l.end(ctx, tenant, id, Cancelled, VerbCancel, by, Reason{Code: "cancelled", Text: reason})
}

// Expire ends an untouched operation that time, a revocation or a withdrawn
// tool has overtaken. It never approves.
func (l *Ledger) Expire(ctx context.Context, tenant, id string, by Actor, reason Reason) (Operation, error) {
	return l.end(ctx, tenant, id, Expired, VerbExpire, by, reason)
}

// ExpireOverdue ends an untouched operation whose time is over by now; one whose
// time was renewed meanwhile is left alone with ErrMoved.
func (l *Ledger) ExpireOverdue(ctx context.Context, tenant, id string) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		if !op.Overdue(l.Now()) {
			return Transition{}, ErrMoved
		}
		reason := Reason{Code: "expired", Text: "Nobody decided in time; silence is not consent."}
		switch {
		case !op.Requirement.Asks():
			reason.Text = "It could not be sent in time; preview it again."
		case op.State == Pending:
			reason.Text = "It was approved but could not be sent in time; preview it again."
		}
		next := op
		next.State = Expired
		next.Reason = &reason
		return Transition{Operation: next, Event: Event{Verb: VerbExpire, Actor: Gateway("expiry"), Reason: &reason}}, nil
	})
}

func (l *Ledger) end(ctx context.Context, tenant, id string, to State, verb Verb, by Actor, reason Reason) (Operation, error) {
	return l.move(ctx, tenant, id, func(op Operation) (Transition, error) {
		next := op
		next.State = to
		next.Reason = &reason
		return Transition{Operation: next, Event: Event{Verb: verb, Actor: by, Reason: &reason}}, nil
	})
}

// MaxRounds is how often people are asked about one operation before it
// expires.
const MaxRounds = 3

// Revise opens the next round of a pending operation with a new plan: the
// world, the policy or the approvers changed, or a yes was taken back. The
// decisions of the old round no longer count. op is as the caller evaluated it.
func (l *Ledger) Revise(ctx context.Context, op Operation, plan tools.Plan, planDigest string, req Requirement, reason Reason) (Operation, error) {
	next := op
	next.State = AwaitingApproval
	next.Round++
	next.PlanDigest = planDigest
	next.Headline = plan.Headline
	next.Requirement = req
	next.ExpiresAt = l.Now().Add(req.Expiry)
	next.ApprovedAt = noTime
	next.Withdrawn = false
	return l.step(ctx, op, Transition{
		Operation: next, Plan: &plan,
		Event: Event{Verb: VerbRevise, Actor: Gateway("executor"), Reason: &reason, Digest: planDigest},
	})
}
