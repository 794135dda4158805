package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// Dispatch takes one pending operation over the last checks, makes its
// dispatch mark, sends, and writes the outcome. What it finds may instead
// revise it (people must be asked again), expire it, or leave it pending for
// the next look. An error means that it stays pending.
func (e *Executor) Dispatch(ctx context.Context, op ledger.Operation) error {
	for range attempts {
		d, err := e.prepare(ctx, op)
		if err != nil || d == nil {
			if err == nil {
				e.follow(ctx, op) // it may have been adopted
			}
			return settled(err)
		}
		if err := ctx.Err(); err != nil {
			return err // a stop leaves it pending
		}
		// A write that its caller leaves would be made all the same, and nobody
		// would send what it marks.
		undisturbed := context.WithoutCancel(ctx)
		marked, err := e.cfg.Ledger.Mark(undisturbed, op, d.mark)
		switch {
		case errors.Is(err, ledger.ErrMoved):
			if op, err = e.cfg.Ledger.Operation(undisturbed, op.Tenant, op.ID); err != nil || op.State != ledger.Pending {
				return err
			}
			continue
		case err != nil:
			return settled(err)
		}
		// From here on a request may be on the wire; nobody's leaving stops it.
		e.send(undisturbed, marked, d.plan, d.tool)
		e.follow(ctx, marked)
		return nil
	}
	return ledger.ErrMoved
}

// settled turns "somebody else was first" into no error.
func settled(err error) error {
	var lost *ledger.Lost
	if errors.As(err, &lost) || errors.Is(err, ledger.ErrMoved) || fault.Is(err, fault.InvalidState) {
		return nil
	}
	return err
}

// ready is what the last checks found fit to be sent.
type ready struct {
	tool *tools.Tool
	plan tools.Plan
	mark ledger.MarkRequest
}

// prepare evaluates everything that may stand against sending now. A nil ready
// without error means that it was moved elsewhere, or waits for an unfreeze.
func (e *Executor) prepare(ctx context.Context, op ledger.Operation) (*ready, error) {
	if op.Overdue(e.cfg.Ledger.Now()) {
		_, err := e.cfg.Ledger.ExpireOverdue(ctx, op.Tenant, op.ID)
		return nil, err
	}
	if waits, err := e.waitsItsTurn(ctx, op); waits || err != nil {
		return nil, err
	}
	// The guard row comes first: whatever is evaluated below was in force at this
	// epoch or later, and the mark fails if it moved since.
	guard, err := e.cfg.Ledger.Guard(ctx, op.Tenant)
	if err != nil {
		return nil, err
	}
	subject := op.Subject()
	if _, frozen := guard.Stops(subject); frozen {
		return nil, nil // looked at again after its claim
	}
	t, err := e.cfg.Registry.Version(ctx, op.ToolVersion)
	switch {
	case errors.Is(err, tools.ErrUpstreamGone):
		return nil, e.expire(ctx, op, "upstream_gone", "The upstream is no longer configured at the address that was approved.")
	case err != nil:
		return nil, err
	}
	current, ok := e.cfg.Registry.Get(op.Tool)
	if !ok {
		return nil, e.expire(ctx, op, "tool_withdrawn", "The tool was withdrawn before it was sent.")
	}
	if guard.Tools[op.Tool] != current.Version {
		return nil, errNotInForce
	}
	plan, err := e.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return nil, err
	}
	if plan.Digest() != op.PlanDigest || plan.Target != op.Target {
		// Never send what is not provably the plan that was decided on.
		return nil, e.expire(ctx, op, "plan_damaged", "The stored plan is not the one that was decided on; nothing was sent.")
	}
	if err := guard.Check(subject); err != nil {
		return nil, e.expire(ctx, op, "agent_revoked", "The agent's rights were taken away before it was sent.")
	}
	if gone, err := e.askerGone(ctx, op); gone || err != nil {
		return nil, err
	}
	// What is done already sends nothing, so that nobody is asked about it.
	seen, unread := t.Connector.Guard(ctx, plan)
	switch {
	case unread != nil:
	case seen.Done != nil:
		_, err := e.cfg.Ledger.Adopt(ctx, op, *seen.Done)
		return nil, err
	}
	moved, yesUntil, err := e.people(ctx, op, plan, t, current)
	if moved || err != nil {
		return nil, err
	}
	switch {
	case unread != nil:
		return nil, unread // a guard that can't be read sends nothing
	case len(seen.Drift) > 0:
		return nil, e.revise(ctx, op, plan, t, current, op.Requirement, ledger.Reason{
			Code: "drift", Text: "What the plan was read from has changed: " + fields(seen.Drift) + ".",
		})
	}
	return &ready{tool: t, plan: plan, mark: ledger.MarkRequest{Epoch: guard.Epoch, GuardsReadAt: seen.ReadAt, YesUntil: yesUntil, Timeout: t.Timeout}}, nil
}

// askerGone expires an undo that an operator asked for whose account is disabled:
// what a person asked for hangs on their rights, as what an agent asked for does.
func (e *Executor) askerGone(ctx context.Context, op ledger.Operation) (bool, error) {
	if op.AskedBy == nil || op.AskedBy.Kind != "operator" {
		return false, nil
	}
	p, err := e.cfg.Person(ctx, op.Tenant, op.AskedBy.ID)
	if err != nil || !p.Disabled {
		return false, err
	}
	return true, e.expire(ctx, op, "asker_disabled", "The account of who asked for it was disabled before it was sent.")
}

// waitsItsTurn reports that the undo before this one, in the undo of a run, has
// not succeeded. An undo that succeeded stays so, for no undo is undone.
func (e *Executor) waitsItsTurn(ctx context.Context, op ledger.Operation) (bool, error) {
	if op.After == "" {
		return false, nil
	}
	before, err := e.cfg.Ledger.Operation(ctx, op.Tenant, op.After)
	return before.State != ledger.Succeeded, err
}

// errNotInForce: this process has other rules than the guard row says, because a
// reload is under way here or was made elsewhere. The operation waits for it.
var errNotInForce = errors.New("commit: the tool loaded here is not the version in force")

// people checks that what people must say is still said: the policy in force
// asks for no more, the yeses stand for exactly this plan, by people who still
// may, and are young enough, and until when they are. Where not, the operation is
// revised.
func (e *Executor) people(ctx context.Context, op ledger.Operation, plan tools.Plan, t, current *tools.Tool) (moved bool, until time.Time, err error) {
	inForce := policy.Evaluate(&current.Spec, plan)
	if inForce.Outcome == tools.OutcomeDeny {
		return true, until, e.expire(ctx, op, "policy_denied", "The policy now denies this action.")
	}
	stricter := policy.Stricter(op.Requirement, inForce)
	if !policy.AsStrict(op.Requirement, inForce) {
		return true, until, e.revise(ctx, op, plan, t, current, stricter, ledger.Reason{
			Code: "policy_stricter", Text: "The policy now asks for more people.",
		})
	}
	switch {
	case op.Requirement.Outcome == tools.OutcomeAuto:
		return false, until, nil
	case !op.Requirement.Asks(): // a word that this program does not know (I20)
		return true, until, e.expire(ctx, op, "policy_denied", "What people must say about this action can't be read.")
	}
	if op.Withdrawn {
		return true, until, e.revise(ctx, op, plan, t, current, op.Requirement, ledger.Reason{Code: "withdrawn", Text: "A yes was taken back."})
	}
	if stricter.MaxAge > 0 {
		until = op.ApprovedAt.Add(stricter.MaxAge)
	}
	if !until.IsZero() && e.cfg.Ledger.Now().After(until) {
		return true, until, e.revise(ctx, op, plan, t, current, stricter, ledger.Reason{
			Code: "approval_old", Text: fmt.Sprintf("The approval was older than %s when it could be sent.", stricter.MaxAge),
		})
	}
	decisions, err := e.cfg.Ledger.Decisions(ctx, op.Tenant, op.ID)
	if err != nil {
		return false, until, err
	}
	yes, err := policy.EligibleYeses(ctx, e.cfg.Person, op, decisions, policy.ShownDigest(op, plan))
	if err != nil {
		return false, until, err
	}
	if !policy.Full(op.Requirement.Groups, yes) {
		return true, until, e.revise(ctx, op, plan, t, current, op.Requirement, ledger.Reason{
			Code: "approvers_changed", Text: "The people who approved may no longer do so, or approved something else.",
		})
	}
	return false, until, nil
}

// revise asks people again with a plan read anew, or ends the operation where
// nobody is asked or they were asked often enough. t is the pinned version,
// current the one in force; the stricter counts.
func (e *Executor) revise(ctx context.Context, op ledger.Operation, old tools.Plan, t, current *tools.Tool, req ledger.Requirement, why ledger.Reason) error {
	if !req.Asks() {
		return e.expire(ctx, op, why.Code, why.Text+" Preview it again.")
	}
	if op.Round >= ledger.MaxRounds {
		return e.expire(ctx, op, why.Code, fmt.Sprintf("%s People were asked %d times; preview it again.", why.Text, op.Round))
	}
	plan, err := t.Connector.Preview(ctx, tools.Call{Args: old.Args, Agent: old.Agent, Key: old.Key})
	switch {
	case fault.Is(err, fault.ToolRefused), fault.Is(err, fault.SchemaViolation):
		return e.expire(ctx, op, "refused_now", why.Text+" Now the tool refuses it: "+fault.Of(err).Detail)
	case err != nil:
		return err
	case plan.Target != op.Target:
		return e.expire(ctx, op, "target_changed", why.Text+" Now it would go to another address; preview it again.")
	}
	// What was said of the arguments and of other operations is still so.
	for _, w := range old.Warnings {
		if !slices.Contains(plan.Warnings, w) {
			plan.Warnings = append(plan.Warnings, w)
		}
	}
	anew := policy.Stricter(req, policy.Stricter(policy.Evaluate(&t.Spec, plan), policy.Evaluate(&current.Spec, plan)))
	if anew.Outcome == tools.OutcomeDeny {
		return e.expire(ctx, op, "policy_denied", "The policy denies the action as it would be now.")
	}
	_, err = e.cfg.Ledger.Revise(ctx, op, plan, plan.Digest(), anew, why)
	return err
}

func (e *Executor) expire(ctx context.Context, op ledger.Operation, code, text string) error {
	_, err := e.cfg.Ledger.Expire(ctx, op.Tenant, op.ID, ledger.Gateway("executor"), ledger.Reason{Code: code, Text: text})
	return err
}
