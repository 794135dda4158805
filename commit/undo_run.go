package commit

import (
	"context"
	"errors"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tokens"
)

// UndoRunCommit spends the token of a run's undo.
type UndoRunCommit struct {
	Tenant string
	// AgentID is the agent whose run it is.
	AgentID, Run, Token string
	// Agent is nil when an operator asks; By is then the operator.
	Agent     *identity.Agent
	By        ledger.Actor
	RequestID string
}

// RunResult is a closed run with the operations that take it back, in the order
// of their dispatch.
type RunResult struct {
	Run        ledger.RunHead
	Operations []ledger.Operation
	Replayed   bool
}

// UndoRun closes a run and opens the undos that its preview listed, all in one
// write, or answers with them. Each is sent only when the one before it has
// succeeded. Nothing is opened when the run, an effect or a plan is not as it was
// shown.
func (s *Service) UndoRun(ctx context.Context, r UndoRunCommit) (RunResult, error) {
	who := policy.Asker{Tenant: r.Tenant, Agent: r.Agent, By: r.By}
	res, err := s.undoRun(ctx, who, r)
	if err != nil && s.cfg.OnRefusal != nil {
		s.cfg.OnRefusal(hooked(who, r.Token, r.RequestID), err)
	}
	return res, err
}

func (s *Service) undoRun(ctx context.Context, who policy.Asker, r UndoRunCommit) (RunResult, error) {
	claims, status, err := s.cfg.Signer.Verify(r.Token)
	if err != nil {
		return RunResult{}, err
	}
	if err := itsAsker(who, claims); err != nil {
		return RunResult{}, err
	}
	if claims.Tool != ledger.RunUndoTool || claims.KeyDigest != ledger.KeyDigest(ledger.RunUndoKey(r.AgentID, r.Run)) {
		return RunResult{}, fault.New(fault.ArgsMismatch, "The commit token is for something else than the undo of this run.")
	}
	if res, there, err := s.replayRun(ctx, r, claims); there || err != nil {
		return res, err
	}
	if status != tokens.Fresh {
		return RunResult{}, expired()
	}
	if err := who.MayUndoRun(r.AgentID); err != nil {
		return RunResult{}, err
	}
	undoes, err := s.previewedRun(ctx, claims)
	if err != nil {
		return RunResult{}, err
	}
	for range attempts {
		res, err := s.tryUndoRun(ctx, who, r, claims, undoes)
		switch {
		case errors.Is(err, ledger.ErrMoved):
			continue
		case err != nil:
			// The same token may have been spent meanwhile, and what it did may be
			// what stood in the way.
			if res, there, e := s.replayRun(ctx, r, claims); there && e == nil {
				return res, nil
			}
		}
		return res, err
	}
	return RunResult{}, movedAgain()
}

// replayRun answers with what the token opened, if it opened something.
func (s *Service) replayRun(ctx context.Context, r UndoRunCommit, c tokens.Claims) (RunResult, bool, error) {
	head, err := s.cfg.Ledger.RunHead(ctx, r.Tenant, r.AgentID, r.Run)
	if err != nil || head.Closing != c.PreviewID {
		return RunResult{}, false, err
	}
	res := RunResult{Run: head, Replayed: true}
	undo := true
	f := ledger.Filter{Tenant: r.Tenant, Agent: r.AgentID, Run: r.Run, Undo: &undo, OldestFirst: true, Limit: 200}
	for {
		page, err := s.cfg.Ledger.List(ctx, f)
		if err != nil {
			return RunResult{}, true, err
		}
		for _, op := range page.Operations {
			if op.TokenID == c.ID {
				res.Operations = append(res.Operations, op)
			}
		}
		if page.Next == "" {
			return res, true, nil
		}
		f.Cursor = page.Next
	}
}

// previewedRun reads the undos that a token stands for, in their order.
func (s *Service) previewedRun(ctx context.Context, c tokens.Claims) ([]ledger.Preview, error) {
	whole, err := s.previewed(ctx, c)
	if err != nil {
		return nil, err
	}
	undoes := make([]ledger.Preview, len(whole.Undoes))
	for i, id := range whole.Undoes {
		p, err := s.cfg.Ledger.Preview(ctx, c.Tenant, id)
		switch {
		case errors.Is(err, ledger.ErrNotFound):
			return nil, expired()
		case err != nil:
			return nil, err
		case p.Parent == "" || p.Plan.Digest() != p.PlanDigest:
			return nil, notTheOne()
		}
		undoes[i] = p
	}
	return undoes, nil
}

// tryUndoRun is one evaluation of everything and one conditional write.
func (s *Service) tryUndoRun(ctx context.Context, who policy.Asker, r UndoRunCommit, c tokens.Claims, undoes []ledger.Preview) (RunResult, error) {
	guardRow, err := s.guardRow(ctx, c)
	if err != nil {
		return RunResult{}, err
	}
	journal, err := s.cfg.Ledger.Journal(ctx, r.Tenant, r.AgentID, r.Run)
	if err != nil {
		return RunResult{}, err
	}
	if err := journal.Undoable(); err != nil {
		return RunResult{}, err
	}
	// The digest names the run as it stood and every undo with its parent's
	// version: one that grew since has another.
	if ledger.RunPlanDigest(journal.Run, undoes) != c.PreviewDigest {
		return RunResult{}, fault.New(fault.PreviewStale, "More was done in this run since its undo was previewed. Nothing was opened; preview it again.")
	}
	u := ledger.RunUndo{Run: journal.Run, Preview: c.PreviewID, By: who.Actor(), Epoch: guardRow.Epoch}
	for _, p := range undoes {
		if err := who.MayUse(p.Tool); err != nil {
			return RunResult{}, err
		}
		req, standing, err := s.evaluateUndo(ctx, guardRow, who, p)
		switch {
		case err != nil:
			return RunResult{}, err
		case standing != nil:
			return RunResult{}, fault.New(fault.PreviewStale, "An effect of this run was taken back since its undo was previewed. Nothing was opened; preview it again.")
		}
		// What its turn will find already done is adopted then: what lies between
		// is not sent yet.
		req.TokenID, req.RequestID, req.Done = c.ID, r.RequestID, nil
		u.Children = append(u.Children, req)
	}
	ops, err := s.cfg.Ledger.OpenRunUndo(context.WithoutCancel(ctx), u)
	if err != nil {
		return RunResult{}, err
	}
	head, err := s.cfg.Ledger.RunHead(ctx, r.Tenant, r.AgentID, r.Run)
	if err != nil {
		// It is done; what can't be read now is as it was written.
		head = journal.Run
		head.ClosedAt, head.ClosedBy, head.Closing = ops[0].CreatedAt, u.By, u.Preview
	}
	return RunResult{Run: head, Operations: ops}, nil
}
