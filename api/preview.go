package api

import (
	"context"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
)

func (h handlers) PreviewTool(ctx context.Context, r PreviewToolRequestObject) (PreviewToolResponseObject, error) {
	key := r.Params.IdempotencyKey
	switch {
	case key == "":
		key = r.Body.IdempotencyKey
	case r.Body.IdempotencyKey != "" && r.Body.IdempotencyKey != key:
		return nil, fault.New(fault.IdempotencyKeyInvalid, "The header Idempotency-Key and the body name two keys; send one.").
			At("/idempotency_key", "differs from the header")
	}
	req := preview.Request{
		Agent: *of(ctx).who.agent, Tool: r.Tool, Args: argsOf(ctx), IdempotencyKey: key,
		AgainOf: r.Body.AgainOf, RequestID: of(ctx).requestID,
	}
	if run := r.Body.Run; run.ID != "" {
		req.Run = &ledger.Run{ID: run.ID, Step: run.Step, Call: run.Call}
	}
	res, err := h.cfg.Preview.Preview(ctx, req)
	if err != nil {
		return nil, underArgs(err)
	}
	if res.Operation != nil {
		return h.stands(ctx, *res.Operation)
	}
	p := res.Preview
	out := h.planned(ctx, p.ToolVersion, p.Plan, p.Requirement)
	out.PreviewID, out.CommitToken, out.ExpiresAt = p.ID, res.Token, res.ExpiresAt.UTC()
	out.ArgsDigest = p.ArgsDigest
	out.Next = Next{
		Action: NextActionCommit, URL: "/v1/tools/" + p.Tool + "/commit",
		Text: "Look at the effects. If they are what you want, commit with the token before it expires.",
	}
	if p.Requirement.Asks() {
		out.Next.Text = "Look at the effects. A commit asks people: " + policy.Groups(p.Requirement.Groups) +
			". If it is what you want, commit with the token before it expires."
	}
	return PreviewTool200JSONResponse{Body: out}, nil
}

// stands answers a preview whose key has its first result already.
func (h handlers) stands(ctx context.Context, op ledger.Operation) (PreviewToolResponseObject, error) {
	plan, err := h.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return nil, err
	}
	o, err := h.operation(ctx, op)
	if err != nil {
		return nil, err
	}
	out := h.planned(ctx, op.ToolVersion, plan, op.Requirement)
	out.ArgsDigest = op.ArgsDigest
	out.Warnings = []Warning{}
	out.Operation = again(o)
	out.Next = Next{
		Action: NextActionUseFirstResult,
		Text:   "This intent was served already: the operation holds the first result, and its next says what to do about it. Do not commit again.",
	}
	if visible(op, of(ctx).who) {
		out.Next.URL = operationURL(op)
	}
	return PreviewTool200JSONResponse{Body: out, Headers: PreviewTool200ResponseHeaders{IdempotencyReplayed: true}}, nil
}

// planned is what a plan and its requirement say.
func (s *Server) planned(ctx context.Context, version string, plan tools.Plan, req ledger.Requirement) Preview {
	t, err := s.cfg.Registry.Version(ctx, version)
	if err != nil {
		t = nil // the tool is gone; what it could undo is too
	}
	return Preview{
		Tool: plan.Tool, ToolVersion: version, IdempotencyKey: plan.Key.Value, Generation: plan.Key.Generation,
		Headline: plan.Headline, Reversible: plan.Reversible, Undo: undoOf(t, plan),
		Effects: effectsOf(plan.Effects), Basis: basisOf(plan.Basis), Args: s.redacted(ctx, version, plan.Args),
		Warnings: warningsOf(plan.Warnings),
		Approval: PolicyVerdict{
			Required: req.Asks(), Outcome: PolicyVerdictOutcome(req.Outcome), Groups: groupsOf(req.Groups), Rule: req.Rule,
		},
	}
}
