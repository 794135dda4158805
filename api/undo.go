package api

import (
	"context"

	"countersign/approvals/policy"
	"countersign/commit"
	"countersign/ledger"
	"countersign/preview"
)

func (h handlers) PreviewUndo(ctx context.Context, r PreviewUndoRequestObject) (PreviewUndoResponseObject, error) {
	if !isOperationID(r.ID) {
		return nil, operationNotFound()
	}
	x := of(ctx)
	res, err := h.cfg.Preview.Undo(ctx, preview.UndoRequest{
		Tenant: x.who.tenant(), Operation: r.ID, Agent: x.who.agent, By: x.who.actor(), RequestID: x.requestID,
	})
	if err != nil {
		return nil, err
	}
	if res.Operation != nil {
		out, err := h.stands(ctx, *res.Operation, res.Stale)
		return PreviewUndo200JSONResponse{Body: out, Headers: PreviewUndo200ResponseHeaders{IdempotencyReplayed: true}}, err
	}
	return PreviewUndo200JSONResponse{Body: h.previewed(ctx, res, operationPath(r.ID)+"/undo/commit")}, nil
}

func (h handlers) CommitUndo(ctx context.Context, r CommitUndoRequestObject) (CommitUndoResponseObject, error) {
	if !isOperationID(r.ID) {
		return nil, operationNotFound()
	}
	wait := secondsOf(r.Params.Wait, defaultWait)
	h.patient(ctx, wait)
	x := of(ctx)
	res, err := h.cfg.Commit.Undo(ctx, commit.UndoCommit{
		Tenant: x.who.tenant(), Operation: r.ID, Token: r.Body.CommitToken,
		Agent: x.who.agent, By: x.who.actor(), RequestID: x.requestID, Wait: wait,
	})
	if err != nil {
		return nil, err
	}
	o := h.answered(ctx, res)
	if res.Operation.State.Final() {
		return CommitUndo200JSONResponse{Body: o, Headers: CommitUndo200ResponseHeaders{
			IdempotencyReplayed: res.Replayed, Location: o.URL,
		}}, nil
	}
	return CommitUndo202JSONResponse{Body: o, Headers: CommitUndo202ResponseHeaders{
		IdempotencyReplayed: res.Replayed, Location: o.URL, RetryAfter: o.Next.AfterSeconds,
	}}, nil
}

// answered is what a commit answers with.
func (h handlers) answered(ctx context.Context, res commit.Result) Operation {
	o := h.opened(ctx, res.Operation)
	if res.Replayed {
		o = again(o, res.Stale)
	}
	return o
}

// actor is an operator as an undo keeps who asked; an agent is known by itself.
func (p principal) actor() ledger.Actor {
	if p.operator == nil {
		return ledger.Actor{}
	}
	return ledger.Actor{Kind: "operator", ID: p.operator.ID, Name: p.operator.Name}
}

// previewed is a fresh preview with its token; at is where it is committed.
func (s *Server) previewed(ctx context.Context, res preview.Result, at string) Preview {
	p := res.Preview
	out := s.planned(ctx, p.ToolVersion, p.Plan, p.Requirement)
	out.PreviewID, out.CommitToken, out.ExpiresAt = p.ID, res.Token, res.ExpiresAt.UTC()
	out.ArgsDigest = p.ArgsDigest
	out.Next = commitNext(p.Requirement, at)
	return out
}

// commitNext says what to do with a preview.
func commitNext(req ledger.Requirement, at string) Next {
	n := Next{
		Action: NextActionCommit, URL: at,
		Text: "Look at the effects. If they are what you want, commit with the token before it expires.",
	}
	if req.Asks() {
		n.Text = "Look at the effects. A commit asks people: " + policy.Groups(req.Groups) +
			". If it is what you want, commit with the token before it expires."
	}
	return n
}
