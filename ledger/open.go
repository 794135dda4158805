package ledger

import (
	"cmp"
	"context"
	"errors"
	"time"

	"countersign/fault"
	"countersign/tools"
)

var noTime time.Time

// OpenRequest is everything that was evaluated before an operation is born.
type OpenRequest struct {
	Preview     Preview
	Agent       tools.Agent
	TokenID     string
	RequestID   string
	Requirement Requirement
	Manifest    Manifest
	// Head is the head that Stand was asked about.
	Head Head
	// GoalHead is the holder of the plan's goal that GoalFree was asked about;
	// only where the plan has one.
	GoalHead Head
	// Parent is the operation that this one takes back, as evaluated; nil
	// otherwise.
	Parent *Operation
	// AskedBy is the operator who asked, when it was not the agent.
	AskedBy *Actor
	// Trace is the caller's W3C traceparent.
	Trace string
	// Epoch of the guard row that was checked.
	Epoch int64
	// GuardsReadAt is when the guards began to read; zero when the tool has
	// none.
	GuardsReadAt time.Time
	// Timeout is the tool's, for the lease of a dispatch at birth.
	Timeout time.Duration
	// Done makes the operation an adopted success: it was found already there.
	Done *tools.Done
	// EvidenceBoundary is "live" or "drill".
	EvidenceBoundary string
}

// OpenOperation gives birth to the operation of the preview's (key,
// generation). For a tool that asks nobody the dispatch mark is in the same
// write and the operation is born running. When that generation exists already,
// its operation is returned with opened = false. ErrMoved asks the caller to
// evaluate again. Where the store left it unclear (fault.OutcomeUnclear), the
// operation is the one that may have been born: who finds it under the key later
// knows by its id whose it is.
func (l *Ledger) OpenOperation(ctx context.Context, r OpenRequest) (op Operation, opened bool, err error) {
	b, err := l.birth(r, newWriteID())
	if err != nil {
		return Operation{}, false, err
	}
	if b.op.State == Running {
		l.mark(&b.op, b.op.CreatedAt, r.Timeout)
		if !r.GuardsReadAt.IsZero() {
			b.row.NotAfter = r.GuardsReadAt.Add(l.cfg.GuardMaxAge)
		}
	}
	o := Opening{WriteID: b.op.WriteID, Epoch: r.Epoch}
	if err := l.bear(&o, b); err != nil {
		return Operation{}, false, err
	}
	switch err := l.write(ctx, o); {
	case err == nil:
		return o.New[0].Operation, true, nil
	default:
		return l.notOpened(ctx, o.New[0].Operation, r.Preview, err)
	}
}

// write makes an opening durable and tells who watches.
func (l *Ledger) write(ctx context.Context, o Opening) error {
	CrashPoint("before_open")
	err := l.persist(ctx, o.WriteID, func() error { return l.cfg.Store.Open(ctx, o) })
	CrashPoint("after_open")
	if err != nil {
		return err
	}
	for _, n := range o.New {
		l.announce(n.Operation, n.Event)
	}
	for _, m := range o.Moves {
		l.announce(m.Operation, m.Event)
	}
	return nil
}

// notOpened says what a birth that was not written means.
func (l *Ledger) notOpened(ctx context.Context, born Operation, p Preview, err error) (Operation, bool, error) {
	var refused *Refused
	var lost *Lost
	var unclear *Ambiguous
	switch {
	case errors.As(err, &unclear):
		return born, false, StoreFault(err)
	case errors.As(err, &refused):
		return l.refusedOpen(ctx, p, refused.Why)
	case errors.As(err, &lost): // a parent moved
		return l.refusedOpen(ctx, p, HeadMoved)
	default:
		return Operation{}, false, StoreFault(err)
	}
}

// newborn is an operation before its write.
type newborn struct {
	op  Operation
	row NewOperation
	ev  Event
	r   OpenRequest
}

// birth makes the row of a new operation. The state is where it begins; a mark
// is not made yet.
func (l *Ledger) birth(r OpenRequest, writeID string) (newborn, error) {
	now := l.Now()
	p := r.Preview
	op := Operation{
		ID: l.cfg.NewID("op_"), Tenant: p.Tenant, Tool: p.Tool, ToolVersion: p.ToolVersion,
		Key: p.Key, KeyDigest: KeyDigest(p.Key), Generation: p.Generation, UpstreamKey: p.Plan.Key.Upstream,
		Agent: r.Agent, RequestID: r.RequestID, Run: p.Run, PreviewID: p.ID, TokenID: r.TokenID,
		ArgsDigest: p.ArgsDigest, Target: p.Plan.Target, Headline: p.Plan.Headline, Reversible: p.Plan.Reversible,
		Round: 1, PlanDigest: p.PlanDigest, Requirement: r.Requirement, AgainOf: p.AgainOf,
		EvidenceBoundary: r.EvidenceBoundary, Version: 1, CreatedAt: now, UpdatedAt: now, WriteID: writeID,
		Parent: p.Parent, AskedBy: r.AskedBy, Trace: r.Trace, Goal: p.Plan.Goal,
	}
	if op.Parent != "" {
		op.Goal = nil // an undo has no goal
	}
	if op.EvidenceBoundary == "" {
		op.EvidenceBoundary = "live"
	}
	n := NewOperation{
		Plan: p.Plan, Manifest: r.Manifest, Preview: p.ID,
		Head: Head{Operation: r.Head.newest()}, GoalHead: Head{Operation: r.GoalHead.newest()},
		OpenRun: op.Run != nil && op.Parent == "",
	}
	ev := Event{Verb: VerbOpen, Actor: Actor{Kind: "agent", ID: r.Agent.ID, Name: r.Agent.Name}, Digest: p.PlanDigest}
	if r.AskedBy != nil {
		ev.Actor = *r.AskedBy
	}
	switch {
	case r.Done != nil && op.Parent != "":
		// What this undo would do is done. The parent moves with the end of its
		// undo, so the executor adopts it, in the write that moves both.
		op.State, op.ExpiresAt = Pending, now.Add(cmp.Or(r.Requirement.Expiry, undoExpiry))
	case r.Done != nil:
		ev.Verb, ev.Actor = VerbAdopt, Gateway("guard")
		n.Evidence = l.adopt(&op, *r.Done)
	case r.Requirement.Asks():
		op.State = AwaitingApproval
		op.ExpiresAt = now.Add(r.Requirement.Expiry)
	case r.Requirement.Outcome != tools.OutcomeAuto: // also a word that this program does not know (I20)
		return newborn{}, fault.New(fault.PolicyDenied, "The policy denies this action: %s", r.Requirement.Rule)
	default:
		op.State = Running
	}
	return newborn{op: op, row: n, ev: ev, r: r}, nil
}

// bear puts a newborn into an opening, and its parent's move beside it.
func (l *Ledger) bear(o *Opening, b newborn) error {
	if err := consistent(b.op); err != nil {
		return err
	}
	if err := itsParent(b.op, b.r.Parent); err != nil {
		return err
	}
	if p := b.r.Parent; p != nil {
		m, err := l.beginUndo(*p, b.op, o.WriteID)
		if err != nil {
			return err
		}
		o.Moves = append(o.Moves, m)
	}
	b.row.Event = l.event(unopened, b.op, b.ev.by(b.row.Evidence))
	b.op.Chain = b.row.Event.Hash
	b.row.Operation = b.op
	o.New = append(o.New, b.row)
	return nil
}

// refusedOpen says what a refused birth means: somebody else opened that
// generation, the token came too late, or the ground moved.
func (l *Ledger) refusedOpen(ctx context.Context, p Preview, why Why) (Operation, bool, error) {
	switch why {
	case HeadMoved:
		op, err := l.Generation(ctx, p.Tenant, p.Tool, KeyDigest(p.Key), p.Generation)
		if errors.Is(err, ErrNotFound) {
			return Operation{}, false, ErrMoved
		}
		return op, false, err
	case RunClosed:
		return Operation{}, false, RunIsClosed()
	case PlaceTaken:
		if err := l.PlaceFree(ctx, p); err != nil {
			return Operation{}, false, err
		}
		return Operation{}, false, ErrMoved // it is free again
	case PreviewGone, PreviewExpired:
		return Operation{}, false, fault.New(fault.TokenExpired, "The commit token has expired; nothing was opened.")
	default:
		return Operation{}, false, ErrMoved
	}
}

// mark makes the dispatch mark on a row: the next attempt, a higher fence and a
// lease.
func (l *Ledger) mark(op *Operation, now time.Time, timeout time.Duration) {
	op.Fence++
	op.Attempts = append(append([]Attempt(nil), op.Attempts...), Attempt{
		N: len(op.Attempts) + 1, Fence: op.Fence, MarkedAt: now, Deadline: now.Add(l.cfg.LeaseMargin / 2),
	})
	op.LeaseUntil = now.Add(timeout + l.cfg.LeaseMargin)
	op.NotBefore = noTime
}

// adopt makes a row an adopted success and gives its evidence.
func (l *Ledger) adopt(op *Operation, d tools.Done) *Evidence {
	op.State, op.Adopted, op.EffectID, op.Result = Succeeded, true, d.EffectID, d.Result
	op.Reason = &Reason{Code: "already_done", Text: "It was found already done outside; nothing was sent."}
	op.FinalAt = l.Now()
	return &Evidence{
		ID: l.cfg.NewID("evd_"), Operation: op.ID, Kind: "adoption", Verdict: tools.Succeeded,
		EffectID: d.EffectID, Result: d.Result, By: Gateway("guard"), Seen: d.Seen, At: l.Now(),
	}
}
