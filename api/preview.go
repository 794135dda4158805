package api

import (
	"context"

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
	h.asks(of(ctx), r.Tool, req.Run, key)
	res, err := h.cfg.Preview.Preview(ctx, req)
	if err != nil {
		return nil, h.advise(of(ctx).who, r.Tool, underArgs(err))
	}
	if res.Operation != nil {
		out, err := h.stands(ctx, *res.Operation, res.Stale)
		return PreviewTool200JSONResponse{Body: out, Headers: PreviewTool200ResponseHeaders{IdempotencyReplayed: true}}, err
	}
	h.asks(of(ctx), r.Tool, req.Run, res.Preview.Key)
	return PreviewTool200JSONResponse{Body: h.previewed(ctx, res, "/v1/tools/"+res.Preview.Tool+"/commit")}, nil
}

// stands answers a preview whose key has its first result already.
func (s *Server) stands(ctx context.Context, op ledger.Operation, stale []string) (Preview, error) {
	plan, err := s.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return Preview{}, err
	}
	o, err := s.operation(ctx, op)
	if err != nil {
		return Preview{}, err
	}
	out := s.planned(ctx, op.ToolVersion, plan, op.Requirement)
	out.ArgsDigest = op.ArgsDigest
	out.Warnings = []Warning{}
	out.Operation = again(o, stale)
	out.Next = Next{Action: NextActionUseFirstResult, Text: standingText(op)}
	if visible(op, of(ctx).who) {
		out.Next.URL = operationURL(op)
	}
	return out, nil
}

// standingText says what stands under a key, and how more could be had.
func standingText(op ledger.Operation) string {
	const its = " The operation is enclosed, and its next says what to do about it. Do not commit again."
	if op.Parent != "" {
		return "An undo of this operation stands already; it is " + string(op.State) + "." + its
	}
	switch op.State {
	case ledger.Succeeded, ledger.Compensated:
		return "This intent was served already: the operation holds the first result, and its next says what to do about it. Do not commit again. " +
			"If it is really wanted once more (for example because it was undone since), preview again with again_of set to this operation's id; " +
			"a person must then agree."
	case ledger.Compensating:
		return "This intent was served already, and is being taken back." + its
	case ledger.AwaitingApproval:
		return "This intent stands already and waits for people; nothing was sent yet." + its
	case ledger.Pending:
		return "This intent stands already and will be sent." + its
	case ledger.Running:
		return "This intent stands already and is being sent; there is no result yet." + its
	case ledger.Unknown:
		return "This intent stands already, and it may have happened; that is being found out." + its
	default:
		return "This intent stands already; it is " + string(op.State) + "." + its
	}
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
