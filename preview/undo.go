package preview

import (
	"context"
	"errors"
	"fmt"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tools"
)

// UndoRequest asks what it would be to take an operation back.
type UndoRequest struct {
	Tenant, Operation string
	// Agent is nil when an operator asks; By is then the operator.
	Agent     *identity.Agent
	By        ledger.Actor
	RequestID string
}

// Undo works out how an operation would be taken back: the call of its declared
// undo tool, previewed by that tool's own connector, under that tool's policy in
// force. It changes nothing. Where an undo of it is under way, in doubt or done,
// that operation is the answer (I15). What can't be taken back is refused with
// fault.UndoImpossible, and why.
func (s *Service) Undo(ctx context.Context, r UndoRequest) (Result, error) {
	who := policy.Asker{Tenant: r.Tenant, Agent: r.Agent, By: r.By}
	if err := who.Check(); err != nil {
		return Result{}, err
	}
	parent, err := s.cfg.Ledger.Operation(ctx, r.Tenant, r.Operation)
	if err != nil {
		return Result{}, err
	}
	if err := who.MayUndo(parent); err != nil {
		return Result{}, err
	}
	standing, found, err := s.cfg.Ledger.StandingUndo(ctx, r.Tenant, parent.ID)
	switch {
	case err != nil:
		return Result{}, err
	case found:
		return s.undoStands(ctx, who, parent, standing)
	}
	if err := s.quota(ctx, r.Tenant, who.ID()); err != nil {
		return Result{}, err
	}
	p, err := s.planUndo(ctx, who, parent)
	if err != nil {
		// An undo may have been opened meanwhile, and what it did may be what is
		// refused here. What exists is the answer.
		if standing, found, e := s.cfg.Ledger.StandingUndo(ctx, r.Tenant, parent.ID); e == nil && found {
			return s.undoStands(ctx, who, parent, standing)
		}
		return Result{}, err
	}
	res, err := s.store(ctx, p)
	if err == nil && s.cfg.OnPreview != nil {
		s.cfg.OnPreview(undoCall(r.Agent, p, r.RequestID), res)
	}
	return res, err
}

// undoStands answers with an undo that exists, to who may see it.
func (s *Service) undoStands(ctx context.Context, who policy.Asker, parent, undo ledger.Operation) (Result, error) {
	if err := who.MaySee(parent, undo); err != nil {
		return Result{}, err
	}
	return s.stands(ctx, undo)
}

// undoCall is an undo as the hooks know previews.
func undoCall(agent *identity.Agent, p ledger.Preview, requestID string) Request {
	r := Request{Tool: p.Tool, Args: p.Plan.Args, Run: p.Run, IdempotencyKey: p.Key, RequestID: requestID}
	if agent != nil {
		r.Agent = *agent
	}
	return r
}

// planUndo works out the undo of one operation; the preview is not stored yet.
func (s *Service) planUndo(ctx context.Context, who policy.Asker, parent ledger.Operation) (ledger.Preview, error) {
	if err := ledger.Undoable(parent); err != nil {
		return ledger.Preview{}, err
	}
	u, err := s.opposite(ctx, parent)
	if err != nil {
		return ledger.Preview{}, err
	}
	if err := who.MayUse(u.Tool); err != nil {
		return ledger.Preview{}, err
	}
	t, ok := s.cfg.Registry.Get(u.Tool)
	if !ok || t.Access != tools.Write {
		return ledger.Preview{}, impossible(parent, "The tool %s, which takes it back, is not in force.", u.Tool)
	}
	args, warnings, err := t.CheckArgs(u.Args)
	if err != nil {
		return ledger.Preview{}, impossible(parent, "The tool %s does not take what its undo gives it: %s", u.Tool, reasons(err))
	}
	key, argsDigest := ledger.UndoKey(parent.ID), strictjson.Digest(args)
	head, err := s.cfg.Ledger.Head(ctx, parent.Tenant, t.Name, key)
	if err != nil {
		return ledger.Preview{}, err
	}
	standing, err := ledger.Stand(head, argsDigest, "")
	if err != nil || standing.Advice != ledger.AdviceOpen {
		return ledger.Preview{}, fault.New(fault.PreviewStale, "An undo of it was opened this moment; ask again.")
	}
	if err := s.cfg.Ledger.RefuseRejected(ctx, parent.Tenant, parent.Agent.ID, t.Name, argsDigest); err != nil {
		return ledger.Preview{}, err
	}
	plan, err := t.Connector.Preview(ctx, tools.Call{Args: args, Agent: parent.Agent, Key: tools.Key{
		Value: key, Generation: standing.Generation,
		Upstream: s.cfg.Ledger.UpstreamKey(parent.Tenant, t.Name, key, standing.Generation),
	}})
	if err != nil {
		return ledger.Preview{}, err
	}
	plan.Goal = nil // an undo achieves nothing of its own
	others, err := s.cfg.Ledger.SameArgs(ctx, parent.Tenant, t.Name, key, argsDigest)
	if err != nil {
		return ledger.Preview{}, err
	}
	plan.Warnings = append(plan.Warnings, warnings...)
	plan.Warnings = append(plan.Warnings, duplicateWarning(others)...)
	req := policy.AskDuplicate(&t.Spec, policy.Evaluate(&t.Spec, plan), others)
	if req.Outcome == tools.OutcomeDeny {
		return ledger.Preview{}, fault.New(fault.PolicyDenied, "The policy denies this action: %s.", req.Rule)
	}
	return ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: parent.Tenant, Agent: who.ID(), Tool: t.Name, ToolVersion: t.Version,
		Key: key, Generation: standing.Generation, ArgsDigest: argsDigest, PlanDigest: plan.Digest(), Plan: plan,
		Requirement: req, Run: parent.Run, Parent: parent.ID, ParentVersion: parent.Version, CreatedAt: s.cfg.Ledger.Now(),
	}, nil
}

// opposite asks the version that did it how it is taken back.
func (s *Service) opposite(ctx context.Context, parent ledger.Operation) (tools.Undo, error) {
	did, err := s.cfg.Registry.Version(ctx, parent.ToolVersion)
	switch {
	case errors.Is(err, tools.ErrUpstreamGone):
		return tools.Undo{}, impossible(parent, "The upstream that it was sent to is no longer configured at that address.")
	case err != nil:
		return tools.Undo{}, err
	case did.UndoTool == "":
		return tools.Undo{}, impossible(parent, "The tool %s declares no undo.", did.Name)
	}
	plan, err := s.cfg.Ledger.Plan(ctx, parent.Tenant, parent.ID, parent.Round)
	if err != nil {
		return tools.Undo{}, err
	}
	u, err := did.Undo(plan, parent.EffectID, parent.Result)
	switch {
	case err != nil:
		return tools.Undo{}, err
	case !u.Possible:
		return tools.Undo{}, impossible(parent, "%s", u.Because)
	}
	return u, nil
}

// impossible refuses an undo, with the operation that stays as it is.
func impossible(op ledger.Operation, format string, args ...any) error {
	e := fault.New(fault.UndoImpossible, format, args...)
	e.Operation = op.ID
	return e
}

// reasons puts a refusal of arguments in one line. Its pointers mean nothing to
// who asked: the arguments are not theirs.
func reasons(err error) string {
	e := fault.Of(err)
	text := e.Detail
	for _, v := range e.Pointers {
		text += fmt.Sprintf(" %s %s.", v.Pointer, v.Detail)
	}
	return text
}
