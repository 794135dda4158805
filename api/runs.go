package api

import (
	"context"
	"net/url"
	"slices"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
)

// runOf says whose run is asked for. An agent's runs are its own, and another's
// is not there for it; an operator names the agent, since two agents may use one
// word for their runs.
func runOf(ctx context.Context, agent string) (string, error) {
	who := of(ctx).who
	switch {
	case who.operator == nil && (agent == "" || agent == who.agent.ID):
		return who.agent.ID, nil
	case who.operator == nil:
		return "", runNotFound()
	case agent == "":
		return "", fault.New(fault.ParameterInvalid, "The query parameter agent is needed: say whose run it is.")
	}
	return agent, nil
}

func runNotFound() error { return fault.New(fault.RunNotFound, "There is no such run.") }

func (h handlers) ListRuns(ctx context.Context, r ListRunsRequestObject) (ListRunsResponseObject, error) {
	who := of(ctx).who
	out := RunList{Runs: []RunHead{}}
	f := ledger.RunFilter{Tenant: who.tenant(), Agent: r.Params.Agent, Cursor: r.Params.Cursor, Limit: r.Params.Limit}
	if who.agent != nil {
		if f.Agent != "" && f.Agent != who.agent.ID {
			return ListRuns200JSONResponse(out), nil // another's runs are not there for it
		}
		f.Agent = who.agent.ID
	}
	page, err := h.cfg.Ledger.Runs(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, head := range page.Runs {
		out.Runs = append(out.Runs, runHead(head))
	}
	out.NextCursor = page.Next
	return ListRuns200JSONResponse(out), nil
}

func (h handlers) GetRun(ctx context.Context, r GetRunRequestObject) (GetRunResponseObject, error) {
	who := of(ctx).who
	agent, err := runOf(ctx, r.Params.Agent)
	if err != nil {
		return nil, err
	}
	j, err := h.cfg.Ledger.Journal(ctx, who.tenant(), agent, r.Run)
	switch {
	case err != nil:
		return nil, err
	case len(j.Entries) == 0:
		return nil, runNotFound()
	}
	if r.Params.Verify == GetRunParamsVerifyTrue {
		h.patient(ctx, askFor)
		within, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		// When the time is over, what was not asked about stays as it is.
		if j, err = h.cfg.Preview.Verify(within, j); err != nil && within.Err() == nil {
			return nil, err
		}
	}
	out := Journal{Run: runHead(j.Run), Entries: make([]JournalEntry, len(j.Entries))}
	for i, e := range j.Entries {
		out.Entries[i] = JournalEntry{
			Operation: h.summary(e.Operation, who, nil), Stale: staleOf(e.Stale), Undoes: h.summaries(e.Undoes, who),
		}
	}
	return GetRun200JSONResponse(out), nil
}

func (h handlers) PreviewRunUndo(ctx context.Context, r PreviewRunUndoRequestObject) (PreviewRunUndoResponseObject, error) {
	x := of(ctx)
	agent, err := runOf(ctx, r.Params.Agent)
	if err != nil {
		return nil, err
	}
	plan, err := h.cfg.Preview.UndoRun(ctx, preview.UndoRunRequest{
		Tenant: x.who.tenant(), AgentID: agent, Run: r.Run, Agent: x.who.agent, By: x.who.actor(), RequestID: x.requestID,
	})
	if err != nil {
		return nil, err
	}
	at := h.runURL(ctx, r.Run, agent, "/undo/commit")
	out := RunUndoPlan{Run: runHead(plan.Run), Items: make([]RunUndoItem, len(plan.Items)), Stopped: plan.Stopped}
	for i, item := range plan.Items {
		out.Items[i] = RunUndoItem{Operation: h.summary(item.Operation, x.who, nil), Possible: item.Possible, Because: item.Because}
		if p := item.Preview; p != nil {
			// The token of the plan is the only one, so the parts have none.
			out.Items[i].Undo = h.previewed(ctx, preview.Result{Preview: *p, ExpiresAt: p.ExpiresAt}, at)
		}
	}
	if plan.Token == "" {
		out.Next = Next{Action: NextActionStop, Text: "Nothing of this run can be taken back; each item says why."}
		return PreviewRunUndo200JSONResponse(out), nil
	}
	out.PreviewID, out.CommitToken, out.ExpiresAt = plan.PreviewID, plan.Token, plan.ExpiresAt.UTC()
	out.Next = Next{
		Action: NextActionCommit, URL: at,
		Text: "Look at every item. If all of it is what you want, commit with the token before it expires.",
	}
	return PreviewRunUndo200JSONResponse(out), nil
}

func (h handlers) CommitRunUndo(ctx context.Context, r CommitRunUndoRequestObject) (CommitRunUndoResponseObject, error) {
	x := of(ctx)
	agent, err := runOf(ctx, r.Params.Agent)
	if err != nil {
		return nil, err
	}
	res, err := h.cfg.Commit.UndoRun(ctx, commit.UndoRunCommit{
		Tenant: x.who.tenant(), AgentID: agent, Run: r.Run, Token: r.Body.CommitToken,
		Agent: x.who.agent, By: x.who.actor(), RequestID: x.requestID,
	})
	if err != nil {
		return nil, err
	}
	out := RunUndo{Run: runHead(res.Run), Operations: h.summaries(res.Operations, x.who), Replayed: res.Replayed}
	if !slices.ContainsFunc(res.Operations, func(op ledger.Operation) bool { return !op.State.Final() }) {
		out.Next = Next{Action: NextActionDone, Text: "Every undo of the run is final; look at each. Nothing is left to do."}
		return CommitRunUndo200JSONResponse{Body: out, Headers: CommitRunUndo200ResponseHeaders{IdempotencyReplayed: res.Replayed}}, nil
	}
	out.Next = Next{
		Action: NextActionPoll, AfterSeconds: 5, URL: h.runURL(ctx, r.Run, agent, ""),
		Text: "The run is closed and its effects are being taken back, one after the other. Ask again.",
	}
	return CommitRunUndo202JSONResponse{Body: out, Headers: CommitRunUndo202ResponseHeaders{
		IdempotencyReplayed: res.Replayed, RetryAfter: out.Next.AfterSeconds,
	}}, nil
}

// runURL is the address of a run, or of something below it, for the caller.
func (s *Server) runURL(ctx context.Context, run, agent, below string) string {
	at := "/v1/runs/" + url.PathEscape(run) + below
	if of(ctx).who.operator != nil {
		at += "?agent=" + url.QueryEscape(agent)
	}
	return at
}

func runHead(h ledger.RunHead) RunHead {
	out := RunHead{ID: h.ID, AgentID: h.Agent, Operations: h.Operations, NewestAt: utc(h.Newest), Closed: h.Closed()}
	if h.Closed() {
		out.ClosedAt = h.ClosedAt.UTC()
		out.ClosedBy = Principal{ID: h.ClosedBy.ID, Name: h.ClosedBy.Name}
	}
	return out
}

func (s *Server) summaries(ops []ledger.Operation, who principal) []OperationSummary {
	out := make([]OperationSummary, len(ops))
	for i, op := range ops {
		out[i] = s.summary(op, who, nil)
	}
	return out
}

// staleOf never is nil.
func staleOf(why []string) []Stale {
	out := make([]Stale, len(why))
	for i, w := range why {
		out[i] = Stale(w)
	}
	return out
}
