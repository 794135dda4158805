package ledger

import (
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
// evaluate again.
func (l *Ledger) OpenOperation(ctx context.Context, r OpenRequest) (op Operation, opened bool, err error) {
	now := l.Now()
	p := r.Preview
	op = Operation{
		ID: l.cfg.NewID("op_"), Tenant: p.Tenant, Tool: p.Tool, ToolVersion: p.ToolVersion,
		Key: p.Key, KeyDigest: KeyDigest(p.Key), Generation: p.Generation, UpstreamKey: p.Plan.Key.Upstream,
		Agent: r.Agent, RequestID: r.RequestID, Run: p.Run, PreviewID: p.ID, TokenID: r.TokenID,
		ArgsDigest: p.ArgsDigest, Target: p.Plan.Target, Headline: p.Plan.Headline, Reversible: p.Plan.Reversible,
		Round: 1, PlanDigest: p.PlanDigest, Requirement: r.Requirement, AgainOf: p.AgainOf,
		EvidenceBoundary: r.EvidenceBoundary, Version: 1, CreatedAt: now, UpdatedAt: now, WriteID: newWriteID(),
	}
	if op.EvidenceBoundary == "" {
		op.EvidenceBoundary = "live"
	}
	n := NewOperation{Plan: p.Plan, Manifest: r.Manifest, Head: r.Head, Preview: p.ID}
	ev := Event{Verb: VerbOpen, Actor: Actor{Kind: "agent", ID: r.Agent.ID, Name: r.Agent.Name}, Digest: p.PlanDigest}
	switch {
	case r.Done != nil:
		ev.Verb, ev.Actor = VerbAdopt, Gateway("guard")
		n.Evidence = l.adopt(&op, *r.Done)
		ev.Evidence = n.Evidence.ID
	case r.Requirement.Asks():
		op.State = AwaitingApproval
		op.ExpiresAt = now.Add(r.Requirement.Expiry)
	case r.Requirement.Outcome != tools.OutcomeAuto: // also a word that this program does not know (I20)
		return Operation{}, false, fault.New(fault.PolicyDenied, "The policy denies this action: %s", r.Requirement.Rule)
	default:
		op.State = Running
		l.mark(&op, now, r.Timeout)
		if !r.GuardsReadAt.IsZero() {
			n.NotAfter = r.GuardsReadAt.Add(l.cfg.GuardMaxAge)
		}
	}
	if err := consistent(op); err != nil {
		return Operation{}, false, err
	}
	n.Event = l.event(unopened, op, ev)
	op.Chain = n.Event.Hash
	n.Operation = op

	o := Opening{WriteID: op.WriteID, Epoch: r.Epoch, New: []NewOperation{n}}
	err = l.persist(ctx, op.WriteID, func() error { return l.cfg.Store.Open(ctx, o) })
	var refused *Refused
	switch {
	case err == nil:
		l.announce(op, n.Event)
		return op, true, nil
	case errors.As(err, &refused):
		return l.refusedOpen(ctx, p, refused.Why)
	default:
		return Operation{}, false, StoreFault(err)
	}
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
