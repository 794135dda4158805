package api

import (
	"context"

	"countersign/commit"
)

func (h handlers) CommitTool(ctx context.Context, r CommitToolRequestObject) (CommitToolResponseObject, error) {
	// Only a name that no tool can ever have is refused here: a tool that was
	// withdrawn still answers the repeats of its commits.
	if !toolForm.MatchString(r.Tool) {
		return nil, h.advise(of(ctx).who, r.Tool, toolNotFound())
	}
	wait := secondsOf(r.Params.Wait, defaultWait)
	h.patient(ctx, wait)
	x := of(ctx)
	h.asks(x, r.Tool, nil, "")
	res, err := h.cfg.Commit.Commit(ctx, commit.Request{
		Agent: *x.who.agent, Tool: r.Tool, Token: r.Body.CommitToken, Args: argsOf(ctx),
		RequestID: x.requestID, Wait: wait,
	})
	if err != nil {
		return nil, h.advise(x.who, r.Tool, err)
	}
	o := h.answered(ctx, res)
	if res.Operation.State.Final() {
		return CommitTool200JSONResponse{Body: o, Headers: CommitTool200ResponseHeaders{
			IdempotencyReplayed: res.Replayed, Location: o.URL,
		}}, nil
	}
	return CommitTool202JSONResponse{Body: o, Headers: CommitTool202ResponseHeaders{
		IdempotencyReplayed: res.Replayed, Location: o.URL, RetryAfter: o.Next.AfterSeconds,
	}}, nil
}
