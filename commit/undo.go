package commit

import (
	"context"
	"errors"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

// UndoCommit spends the token of an undo.
type UndoCommit struct {
	Tenant, Operation, Token string
	// Agent is nil when an operator asks; By is then the operator.
	Agent     *identity.Agent
	By        ledger.Actor
	RequestID string
	// Wait is how long to wait for an outcome.
	Wait time.Duration
}

// Undo opens the operation that takes another one back, or answers with it. The
// order of the checks is that of Commit: a token that opened something is
// answered with that, also when it has expired. Where an undo of the operation
// is under way, in doubt or done, that one is the answer, whoever asked for it
// (I15).
func (s *Service) Undo(ctx context.Context, r UndoCommit) (Result, error) {
	who := policy.Asker{Tenant: r.Tenant, Agent: r.Agent, By: r.By}
	hook := hooked(who, r.Token, r.RequestID)
	res, err := s.undo(ctx, who, r, &hook)
	switch {
	case err != nil && s.cfg.OnRefusal != nil:
		s.cfg.OnRefusal(hook, err)
	case err == nil && s.cfg.OnCommit != nil:
		s.cfg.OnCommit(hook, res)
	}
	return res, err
}

// hooked is an undo as the hooks know commits.
func hooked(who policy.Asker, token, requestID string) Request {
	r := Request{Token: token, RequestID: requestID}
	if who.Agent != nil {
		r.Agent = *who.Agent
	}
	return r
}

func (s *Service) undo(ctx context.Context, who policy.Asker, r UndoCommit, hook *Request) (Result, error) {
	claims, status, err := s.cfg.Signer.Verify(r.Token)
	if err != nil {
		return Result{}, err
	}
	if err := itsAsker(who, claims); err != nil {
		return Result{}, err
	}
	hook.Tool = claims.Tool
	if claims.KeyDigest != ledger.KeyDigest(ledger.UndoKey(r.Operation)) {
		return Result{}, fault.New(fault.ArgsMismatch, "The commit token is for something else than the undo of this operation.")
	}
	op, err := s.cfg.Ledger.Generation(ctx, claims.Tenant, claims.Tool, claims.KeyDigest, claims.Generation)
	switch {
	case err == nil:
		return s.repeatUndo(ctx, who, op, r.Wait)
	case !errors.Is(err, ledger.ErrNotFound):
		return Result{}, err
	case status != tokens.Fresh:
		return Result{}, expired()
	}
	return s.openUndo(ctx, who, r, claims)
}

// repeatUndo answers with an undo that exists, to who may see it.
func (s *Service) repeatUndo(ctx context.Context, who policy.Asker, op ledger.Operation, wait time.Duration) (Result, error) {
	parent, err := s.cfg.Ledger.Operation(ctx, op.Tenant, op.Parent)
	if err != nil {
		return Result{}, err
	}
	if err := who.MaySee(parent, op); err != nil {
		return Result{}, err
	}
	return s.outcome(ctx, op, true, wait), nil
}

// itsAsker refuses a token that was given to somebody else.
func itsAsker(who policy.Asker, c tokens.Claims) error {
	if err := who.Check(); err != nil {
		return err
	}
	if c.Subject != who.ID() || c.Tenant != who.Tenant {
		return fault.New(fault.TokenSubjectMismatch, "The commit token was given to somebody else.")
	}
	return nil
}

// openUndo evaluates everything that may stand against the undo and opens it.
func (s *Service) openUndo(ctx context.Context, who policy.Asker, r UndoCommit, c tokens.Claims) (Result, error) {
	if err := who.MayUse(c.Tool); err != nil {
		return Result{}, err
	}
	p, err := s.previewed(ctx, c)
	switch {
	case err != nil:
		return Result{}, err
	case p.Parent != r.Operation || p.Plan.Digest() != c.PreviewDigest:
		return Result{}, notTheOne()
	}
	for range attempts {
		op, opened, err := s.tryUndo(ctx, who, r, c, p)
		switch {
		case errors.Is(err, ledger.ErrMoved):
			continue
		case err != nil:
			// Another commit may have opened an undo meanwhile, and what it did may
			// be what stood in the way. What exists is the answer.
			stands, found, e := s.cfg.Ledger.StandingUndo(ctx, c.Tenant, r.Operation)
			switch {
			case e != nil || !found:
				return Result{}, err
			case stands.ID != op.ID:
				return s.repeatUndo(ctx, who, stands, r.Wait)
			}
			op = stands // the birth that the store could not confirm was made
		case !opened:
			return s.repeatUndo(ctx, who, op, r.Wait)
		}
		if unsent(op) {
			t, err := s.cfg.Registry.Version(ctx, p.ToolVersion)
			if err != nil { // it was in force a moment ago
				return Result{}, err
			}
			s.cfg.Executor.Start(op, p.Plan, t)
		}
		return s.outcome(ctx, op, false, r.Wait), nil
	}
	return Result{}, movedAgain()
}

// tryUndo is one evaluation and one conditional write.
func (s *Service) tryUndo(ctx context.Context, who policy.Asker, r UndoCommit, c tokens.Claims, p ledger.Preview) (ledger.Operation, bool, error) {
	guardRow, err := s.guardRow(ctx, c)
	if err != nil {
		return ledger.Operation{}, false, err
	}
	standing, found, err := s.cfg.Ledger.StandingUndo(ctx, c.Tenant, r.Operation)
	if err != nil || found {
		return standing, false, err
	}
	req, same, err := s.evaluateUndo(ctx, guardRow, who, p)
	if err != nil || same != nil {
		return deref(same), false, err
	}
	req.TokenID, req.RequestID = c.ID, r.RequestID
	// Who hangs up must not leave an operation behind its mark that nobody sends.
	return s.cfg.Ledger.OpenOperation(context.WithoutCancel(ctx), req)
}

// evaluateUndo asks everything that may stand against the birth of one undo.
func (s *Service) evaluateUndo(ctx context.Context, guardRow ledger.Guard, who policy.Asker, p ledger.Preview) (ledger.OpenRequest, *ledger.Operation, error) {
	parent, err := s.cfg.Ledger.Operation(ctx, p.Tenant, p.Parent)
	if err != nil {
		return ledger.OpenRequest{}, nil, err
	}
	if err := who.MayUndo(parent); err != nil {
		return ledger.OpenRequest{}, nil, err
	}
	if err := ledger.Undoable(parent); err != nil {
		return ledger.OpenRequest{}, nil, err
	}
	// What was shown was read on that version. The generation does not tell: a preview
	// that was slow between the parent and the key has the next one all the same.
	if parent.Version != p.ParentVersion {
		return ledger.OpenRequest{}, nil, fault.New(fault.PreviewStale, "The operation has moved since its undo was previewed. Nothing was opened; preview it again.")
	}
	t, ok := s.cfg.Registry.Get(p.Tool)
	if !ok || t.Version != p.ToolVersion {
		return ledger.OpenRequest{}, nil, fault.New(fault.ToolChanged, "The tool %s, which takes it back, was changed or withdrawn since the preview; preview again.", p.Tool)
	}
	askedBy := who.AskedBy(parent)
	req, standing, err := s.evaluate(ctx, guardRow, ask{
		tool: t, preview: p, agent: parent.Agent, by: parent.Agent.ID, parent: &parent,
		subject: ledger.Operation{Tool: p.Tool, Agent: tools.Agent{ID: parent.Agent.ID}, Parent: parent.ID, AskedBy: askedBy}.Subject(),
	})
	req.AskedBy = askedBy
	return req, standing, err
}

// follow sends the undo that waits for this one in the undo of a run, at once,
// if this one has succeeded. What stands in its way, and a stop, leave it
// pending for the next look.
func (e *Executor) follow(ctx context.Context, op ledger.Operation) {
	if op.Next == "" || ctx.Err() != nil {
		return
	}
	if now, err := e.cfg.Ledger.Operation(ctx, op.Tenant, op.ID); err != nil || now.State != ledger.Succeeded {
		return
	}
	next, err := e.cfg.Ledger.Operation(ctx, op.Tenant, op.Next)
	if err == nil && next.State == ledger.Pending {
		err = e.Dispatch(ctx, next)
	}
	if err != nil && ctx.Err() == nil {
		e.cfg.Logger.Warn("the next undo of a run was not dispatched", "operation", op.Next, "error", err)
	}
}

// Follow is for who brings an undo to its end elsewhere, the reconciler or a
// person's word: the undo behind it in the undo of a run is sent in the
// background.
func (e *Executor) Follow(ctx context.Context, op ledger.Operation) {
	if op.Next == "" {
		return
	}
	e.wg.Go(func() {
		defer e.recovered(op)
		e.follow(ctx, op)
	})
}
