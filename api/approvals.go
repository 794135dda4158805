package api

import (
	"context"
	"strings"

	"countersign/approvals"
	"countersign/fault"
	"countersign/ledger"
)

// An approval is an operation seen from the people's side: one for its whole
// life, with rounds inside. So its id is the operation's with another prefix.

func approvalID(op ledger.Operation) string { return "apr_" + strings.TrimPrefix(op.ID, "op_") }

// asked reads the operation of an approval; what nobody was ever asked about is
// no approval.
func (h handlers) asked(ctx context.Context, id string) (ledger.Operation, error) {
	random, ok := strings.CutPrefix(id, "apr_")
	if !ok || !idForm.MatchString(random) {
		return ledger.Operation{}, approvalNotFound()
	}
	op, err := h.find(ctx, "op_"+random)
	if err != nil {
		return op, asApproval(err)
	}
	if !wasAsked(op) {
		return op, approvalNotFound()
	}
	return op, nil
}

func (h handlers) ListApprovals(ctx context.Context, r ListApprovalsRequestObject) (ListApprovalsResponseObject, error) {
	who := of(ctx).who
	page, err := h.cfg.Approvals.Queue(ctx, who.tenant(), r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	list := ApprovalList{Approvals: make([]ApprovalSummary, len(page.Operations)), NextCursor: page.Next}
	for i, op := range page.Operations {
		said, err := h.cfg.Ledger.Decisions(ctx, op.Tenant, op.ID)
		if err != nil {
			return nil, err
		}
		why := whyNot(op, who, said)
		list.Approvals[i] = ApprovalSummary{
			ID: approvalID(op), Operation: h.summary(op, who, said), Round: op.Round,
			Groups: groupsOf(op.Requirement.Groups), Rule: op.Requirement.Rule, ExpiresAt: op.ExpiresAt.UTC(),
			MayDecide: why == "", WhyNot: why, URL: h.pageURL(op),
		}
	}
	return ListApprovals200JSONResponse(list), nil
}

func (h handlers) GetApproval(ctx context.Context, r GetApprovalRequestObject) (GetApprovalResponseObject, error) {
	op, err := h.asked(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	a, err := h.card(ctx, op)
	return GetApproval200JSONResponse(a), err
}

func (h handlers) DecideApproval(ctx context.Context, r DecideApprovalRequestObject) (DecideApprovalResponseObject, error) {
	op, err := h.asked(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	op, err = h.cfg.Approvals.Decide(ctx, *of(ctx).who.operator, op.ID, approvals.Decision{
		Word: string(r.Body.Decision), ShownDigest: r.Body.ShownDigest, Reason: r.Body.Reason,
	})
	if err != nil {
		return nil, err
	}
	a, err := h.card(ctx, op)
	return DecideApproval200JSONResponse(a), readBack(err)
}

func (h handlers) ReopenApproval(ctx context.Context, r ReopenApprovalRequestObject) (ReopenApprovalResponseObject, error) {
	op, err := h.asked(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	op, err = h.cfg.Approvals.Reopen(ctx, *of(ctx).who.operator, op.ID, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	a, err := h.card(ctx, op)
	return ReopenApproval200JSONResponse(a), readBack(err)
}

// card is everything that a decision is about.
func (h handlers) card(ctx context.Context, op ledger.Operation) (Approval, error) {
	who := of(ctx).who
	c, err := h.cfg.Approvals.Card(ctx, who.person(), op.Tenant, op.ID)
	if err != nil {
		return Approval{}, err
	}
	op = c.Operation
	of(ctx).op = &op
	t, err := h.cfg.Registry.Version(ctx, op.ToolVersion)
	if err != nil {
		t = nil
	}
	a := Approval{
		ID: approvalID(op), Operation: h.render(ctx, op, c.Plan, c.Decisions), Round: op.Round, ShownDigest: c.ShownDigest,
		Plan: ShownPlan{
			Target: c.Plan.Target, Headline: c.Plan.Headline, Reversible: c.Plan.Reversible, Undo: undoOf(t, c.Plan),
			Effects: effectsOf(c.Plan.Effects), Basis: basisOf(c.Plan.Basis),
			Args: h.redacted(ctx, op.ToolVersion, c.Plan.Args), Warnings: warningsOf(c.Plan.Warnings),
		},
		Groups: groupsOf(op.Requirement.Groups), Rule: op.Requirement.Rule, Missing: c.Missing,
		Decisions: make([]Decision, len(c.Decisions)), PossibleDuplicates: make([]OperationSummary, len(c.Duplicates)),
		ExpiresAt: op.ExpiresAt.UTC(), MayDecide: c.May, WhyNot: c.WhyNot, URL: h.pageURL(op),
	}
	for i, d := range c.Decisions {
		a.Decisions[i] = Decision{
			Round: d.Round, Decision: DecisionWord(d.Verb), By: Principal{ID: d.Person, Name: d.Name},
			Groups: append([]string{}, d.Groups...), ShownDigest: d.Digest, Reason: d.Reason, At: d.At.UTC(),
		}
	}
	for i, o := range c.Duplicates {
		a.PossibleDuplicates[i] = h.summary(o, who, nil)
	}
	return a, nil
}

// asApproval names what is missing as the caller asked for it.
func asApproval(err error) error {
	if fault.Is(err, fault.OperationNotFound) {
		return approvalNotFound()
	}
	return err
}
