// Package commit is phase two: it spends a commit token exactly once, sends
// what was previewed, and answers every repeat with the recorded result.
//
// What lives here: Service (the checks at commit, in their order, and the
// birth of the operation; Undo and UndoRun go the same way), and Executor, which
// makes dispatch marks, lets the connector send, and writes what was seen.
//
// How it flows: Commit verifies the token, answers with the operation when its
// generation exists, else evaluates grant, tool version, key, freeze, policy and
// guards, and opens. An operation that nobody need approve is born behind its
// dispatch mark and sent at once; others wait for people, and the executor
// sends them, also when the agent is gone.
//
// What does not live here: states (ledger), people (approvals), time and doubt
// (reconcile), what an answer means (the connector).
package commit

import (
	"context"
	"errors"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tokens"
	"countersign/tools"
)

// Config is what a Service is made of.
type Config struct {
	Ledger   *ledger.Ledger
	Registry *tools.Registry
	Signer   *tokens.Signer
	Executor *Executor
	// EvidenceBoundary marks the operations: "live", or "drill" for synthetic
	// data.
	EvidenceBoundary string
	// OnCommit is called after each answered commit, for counters and the log.
	OnCommit func(Request, Result)
	// OnRefusal is called after each commit that was answered with an error.
	OnRefusal func(Request, error)
	// Trace gives the W3C traceparent of a commit, which the operation keeps: what
	// is sent later continues that trace. Nil keeps none.
	Trace func(context.Context) string
}

// Service commits. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Request spends a token.
type Request struct {
	Agent identity.Agent
	Tool  string // of the path
	Token string
	// Args are only compared with the token's digest, never used; nil when
	// absent.
	Args      map[string]any
	RequestID string
	// Wait is how long to wait for an outcome.
	Wait time.Duration
}

// Result is the operation, and whether it was there before.
type Result struct {
	Operation ledger.Operation
	Replayed  bool
	// Stale says why a repeated result should not be built upon without a look:
	// ledger.Stale* words (R56).
	Stale []string
}

// attempts bounds how often a commit evaluates again when the ground moved
// under it.
const attempts = 8

// Commit opens the operation that the token stands for, or answers with it.
// The order of the checks is part of the contract (design: order at commit).
func (s *Service) Commit(ctx context.Context, r Request) (Result, error) {
	res, err := s.commit(ctx, r)
	if err != nil && s.cfg.OnRefusal != nil {
		s.cfg.OnRefusal(r, err)
	}
	return res, err
}

func (s *Service) commit(ctx context.Context, r Request) (Result, error) {
	claims, status, err := s.cfg.Signer.Verify(r.Token)
	if err != nil {
		return Result{}, err
	}
	if claims.Subject != r.Agent.ID || claims.Tenant != r.Agent.Tenant {
		return Result{}, fault.New(fault.TokenSubjectMismatch, "The commit token was given to another agent.")
	}
	if err := s.sameCall(ctx, r, claims); err != nil {
		return Result{}, err
	}
	op, err := s.cfg.Ledger.Generation(ctx, claims.Tenant, claims.Tool, claims.KeyDigest, claims.Generation)
	switch {
	case err == nil:
		return s.replay(ctx, r, op, claims.ArgsDigest)
	case !errors.Is(err, ledger.ErrNotFound):
		return Result{}, err
	case status != tokens.Fresh:
		return Result{}, expired()
	}
	return s.open(ctx, r, claims)
}

// unsent reports that an operation stands behind the mark of its own birth, which
// whoever opened it sends. One that has moved since is somebody else's to send.
func unsent(op ledger.Operation) bool { return op.State == ledger.Running && op.Version == 1 }

func expired() error {
	return fault.New(fault.TokenExpired, "The commit token has expired and opened nothing; preview again.")
}

// sameCall compares the path's tool, and args when they are sent along, with
// what the token stands for.
func (s *Service) sameCall(ctx context.Context, r Request, c tokens.Claims) error {
	if c.Tool != r.Tool {
		return fault.New(fault.ArgsMismatch, "The commit token is for the tool %s.", c.Tool)
	}
	if r.Args == nil || strictjson.Digest(r.Args) == c.ArgsDigest {
		return nil
	}
	// Args as the agent first sent them, before the defaults of that version were
	// applied, are the same call.
	t, err := s.cfg.Registry.Version(ctx, c.ToolVersion)
	switch {
	case fault.Is(err, fault.StoreUnavailable):
		return err
	case err == nil:
		if checked, _, err := t.CheckArgs(r.Args); err == nil && strictjson.Digest(checked) == c.ArgsDigest {
			return nil
		}
	}
	return fault.New(fault.ArgsMismatch, "The arguments differ from those that were previewed; preview again.")
}

// replay answers with an operation that exists. Another agent's is shown only
// to an agent that may use the tool and asked for the same.
func (s *Service) replay(ctx context.Context, r Request, op ledger.Operation, argsDigest string) (Result, error) {
	if op.ArgsDigest != argsDigest || op.Agent.ID != r.Agent.ID && !r.Agent.May(op.Tool) {
		e := fault.New(fault.IdempotencyKeyReused, "The idempotency key was used with other arguments. One key stands for one intent.")
		if op.Agent.ID == r.Agent.ID {
			e.Operation = op.ID
		}
		return Result{}, e
	}
	return s.answer(ctx, r, op, true)
}

// answer says what became of the operation, and tells who counts.
func (s *Service) answer(ctx context.Context, r Request, op ledger.Operation, replayed bool) (Result, error) {
	res := s.outcome(ctx, op, replayed, r.Wait)
	if s.cfg.OnCommit != nil {
		s.cfg.OnCommit(r, res)
	}
	return res, nil
}

// outcome waits for the outcome as long as the caller will, never for people.
func (s *Service) outcome(ctx context.Context, op ledger.Operation, replayed bool, wait time.Duration) Result {
	settled := func(op ledger.Operation) bool {
		// An unknown outcome is looked into at once: where nobody can be asked it is
		// on the people's list a moment later, and the answer says whom to wait for;
		// else the outside system may know before the caller's wait is over.
		return op.State != ledger.Running && op.State != ledger.Pending && (op.State != ledger.Unknown || op.OnList)
	}
	if !settled(op) && wait > 0 {
		waited, err := s.cfg.Ledger.Await(ctx, op.Tenant, op.ID, wait, settled)
		if err == nil {
			op = waited
		}
		// An operation that was opened is answered as it was last known; a store
		// that fails now doesn't make it undone.
	}
	res := Result{Operation: op, Replayed: replayed}
	if replayed {
		// The first result is the answer all the same when this can't be read.
		res.Stale, _ = s.cfg.Ledger.Stale(ctx, op)
	}
	return res
}

// open evaluates everything that may stand against a birth and opens.
func (s *Service) open(ctx context.Context, r Request, c tokens.Claims) (Result, error) {
	if !r.Agent.May(r.Tool) {
		return Result{}, fault.New(fault.ToolNotGranted, "This agent has no grant for the tool %s.", r.Tool)
	}
	t, ok := s.cfg.Registry.Get(r.Tool)
	if !ok || t.Version != c.ToolVersion {
		return Result{}, fault.New(fault.ToolChanged, "The tool %s was changed or withdrawn since the preview; preview again.", r.Tool)
	}
	p, err := s.previewed(ctx, c)
	switch {
	case err != nil:
		return Result{}, err
	case p.Parent != "":
		return Result{}, fault.New(fault.ArgsMismatch, "The commit token is for the undo of %s; commit it there.", p.Parent)
	case p.Plan.Digest() != c.PreviewDigest:
		return Result{}, notTheOne()
	}
	for range attempts {
		op, opened, err := s.tryOpen(ctx, r, c, t, p)
		switch {
		case errors.Is(err, ledger.ErrMoved):
			continue
		case err != nil:
			// Another commit of this key may have been opened meanwhile, and what it
			// did may be what stood in the way. What exists is the answer.
			exists, e := s.cfg.Ledger.Generation(ctx, c.Tenant, c.Tool, c.KeyDigest, c.Generation)
			switch {
			case e != nil:
				return Result{}, err
			case exists.ID != op.ID:
				return s.replay(ctx, r, exists, c.ArgsDigest)
			}
			op = exists // the birth that the store could not confirm was made
		case !opened:
			// Where the key has moved on to a wanted repeat since, the token's own
			// generation is there too, and stays its answer (I2).
			if op.Generation > c.Generation {
				own, err := s.cfg.Ledger.Generation(ctx, c.Tenant, c.Tool, c.KeyDigest, c.Generation)
				switch {
				case errors.Is(err, ledger.ErrNotFound):
					return Result{}, movedOn()
				case err != nil:
					return Result{}, err
				}
				op = own
			}
			return s.replay(ctx, r, op, c.ArgsDigest)
		}
		if unsent(op) {
			s.cfg.Executor.Start(op, p.Plan, t)
		}
		return s.answer(ctx, r, op, false)
	}
	return Result{}, movedAgain()
}

// movedAgain gives up on a ground that doesn't hold still.
func movedAgain() error {
	e := fault.New(fault.StoreUnavailable, "The ground moved under this commit again and again; nothing was opened. Repeat it.")
	e.RetryAfter = time.Second
	return e
}

// previewed reads the preview that a token names.
func (s *Service) previewed(ctx context.Context, c tokens.Claims) (ledger.Preview, error) {
	p, err := s.cfg.Ledger.Preview(ctx, c.Tenant, c.PreviewID)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return p, expired()
	case err != nil:
		return p, err
	case p.PlanDigest != c.PreviewDigest:
		return p, notTheOne()
	}
	return p, nil
}

func notTheOne() error {
	return fault.New(fault.Internal, "The stored preview is not the one that the token names.")
}

// tryOpen is one evaluation and one conditional write.
func (s *Service) tryOpen(ctx context.Context, r Request, c tokens.Claims, t *tools.Tool, p ledger.Preview) (ledger.Operation, bool, error) {
	guardRow, err := s.guardRow(ctx, c)
	if err != nil {
		return ledger.Operation{}, false, err
	}
	req, standing, err := s.evaluate(ctx, guardRow, ask{
		tool: t, preview: p, agent: p.Plan.Agent, by: r.Agent.ID,
		subject: ledger.Subject{Tool: p.Tool, Agent: r.Agent.ID},
	})
	if err != nil || standing != nil {
		return deref(standing), false, err
	}
	req.TokenID, req.RequestID = c.ID, r.RequestID
	// An agent that hangs up must not leave an operation behind its mark that
	// nobody sends.
	return s.cfg.Ledger.OpenOperation(context.WithoutCancel(ctx), req)
}

func deref(op *ledger.Operation) ledger.Operation {
	if op == nil {
		return ledger.Operation{}
	}
	return *op
}

// guardRow reads the row that everything below is evaluated against, and refuses
// a token of an older ledger generation.
func (s *Service) guardRow(ctx context.Context, c tokens.Claims) (ledger.Guard, error) {
	guardRow, err := s.cfg.Ledger.Guard(ctx, c.Tenant)
	if err != nil {
		return guardRow, err
	}
	if c.LedgerGeneration != guardRow.Generation {
		return guardRow, fault.New(fault.TokenInvalid, "The commit token is not valid.")
	}
	return guardRow, nil
}

// ask is one birth that is evaluated.
type ask struct {
	tool    *tools.Tool
	preview ledger.Preview
	// agent is whose operation it becomes, by who asks for it.
	agent   tools.Agent
	by      string
	subject ledger.Subject
	// parent is what it takes back; nil otherwise.
	parent *ledger.Operation
}

// evaluate asks everything that may stand against a birth, in the order of the
// contract: tool version, head, goal, rejected ask, freeze, policy, guards. An
// operation that stands under the key already is the answer.
func (s *Service) evaluate(ctx context.Context, guardRow ledger.Guard, a ask) (req ledger.OpenRequest, standing *ledger.Operation, err error) {
	t, p := a.tool, a.preview
	if guardRow.Tools[t.Name] != t.Version {
		return req, nil, fault.New(fault.ToolChanged, "The tool %s was changed or withdrawn since the preview; preview again.", t.Name)
	}
	head, err := s.cfg.Ledger.Head(ctx, p.Tenant, p.Tool, p.Key)
	if err != nil {
		return req, nil, err
	}
	stands, err := ledger.Stand(head, p.ArgsDigest, p.AgainOf)
	switch {
	case err != nil:
		return req, nil, ledger.HideForeign(err, head.Operation, a.by)
	case stands.Advice == ledger.AdviceReplay:
		return req, &head.Operation, nil
	case stands.Generation != p.Generation:
		return req, nil, movedOn()
	}
	goal, err := s.goal(ctx, a)
	if err != nil {
		return req, nil, err
	}
	if err := s.cfg.Ledger.RefuseRejected(ctx, p.Tenant, a.agent.ID, p.Tool, p.ArgsDigest); err != nil {
		return req, nil, err
	}
	if err := guardRow.Check(a.subject); err != nil {
		return req, nil, err
	}
	verdict, err := s.verdict(ctx, a)
	if err != nil {
		return req, nil, err
	}
	g, err := t.Connector.Guard(ctx, p.Plan)
	if err != nil {
		return req, nil, err
	}
	if g.Done == nil && len(g.Drift) > 0 {
		return req, nil, stale(g.Drift)
	}
	return ledger.OpenRequest{
		Preview: p, Agent: a.agent, Requirement: verdict,
		Manifest: ledger.Manifest{Version: t.Version, Text: t.Manifest, Upstream: t.Upstream, UpstreamURL: t.UpstreamURL},
		Head:     head, GoalHead: goal, Parent: a.parent, Epoch: guardRow.Epoch,
		GuardsReadAt: g.ReadAt, Timeout: t.Timeout, Done: g.Done,
		EvidenceBoundary: s.cfg.EvidenceBoundary, Trace: s.trace(ctx),
	}, nil, nil
}

// movedOn refuses a token whose generation is not the key's next any more.
func movedOn() error {
	return fault.New(fault.PreviewStale, "The key has moved on to another generation since the preview; preview again.")
}

// goal reads who holds the plan's goal, and refuses while another may have, or
// has, its effect (N6).
func (s *Service) goal(ctx context.Context, a ask) (ledger.Head, error) {
	if a.preview.Plan.Goal == nil || a.parent != nil {
		return ledger.Head{}, nil
	}
	holder, err := s.cfg.Ledger.Goal(ctx, a.preview.Tenant, *a.preview.Plan.Goal)
	if err != nil {
		return holder, err
	}
	return holder, ledger.GoalFree(holder, a.agent.ID, a.preview.AgainOf)
}

// verdict is the stricter of what the policy said at the preview and what it
// says now.
func (s *Service) verdict(ctx context.Context, a ask) (ledger.Requirement, error) {
	p := a.preview
	now := policy.Evaluate(&a.tool.Spec, p.Plan)
	if a.tool.Duplicates == tools.DuplicatesApprove {
		// Asked again here: two previews may have been made before either was
		// committed.
		others, err := s.cfg.Ledger.SameArgs(ctx, p.Tenant, p.Tool, p.Key, p.ArgsDigest)
		if err != nil {
			return now, err
		}
		now = policy.AskDuplicate(&a.tool.Spec, now, others)
	}
	req := policy.Stricter(p.Requirement, now)
	if req.Outcome == tools.OutcomeDeny {
		return req, fault.New(fault.PolicyDenied, "The policy denies this action: %s.", req.Rule)
	}
	return req, nil
}

// trace is what the operation keeps of the caller's trace.
func (s *Service) trace(ctx context.Context) string {
	if s.cfg.Trace == nil {
		return ""
	}
	return s.cfg.Trace(ctx)
}

// stale refuses a plan whose basis moved.
func stale(drift []tools.Drift) error {
	e := fault.New(fault.PreviewStale, "What the preview was read from has changed since: %s. Nothing was opened; preview again.", fields(drift))
	return e
}

// fields names what drifted.
func fields(drift []tools.Drift) string {
	s := ""
	for i, d := range drift {
		if i > 0 {
			s += ", "
		}
		s += d.Field
	}
	return s
}

// Cancel takes back an operation that was not dispatched. An undo that somebody
// else asked for is not the agent's to cancel, though it takes back what the agent
// did.
func (s *Service) Cancel(ctx context.Context, tenant, id string, by ledger.Actor, reason string) (ledger.Operation, error) {
	op, err := s.cfg.Ledger.Operation(ctx, tenant, id)
	if err != nil {
		return op, err
	}
	if by.Kind == "agent" && op.AskedBy != nil && op.AskedBy.ID != by.ID {
		e := fault.New(fault.NotAllowed, "This undo was asked for by somebody else; only they, or a person, may cancel it.")
		e.Operation = op.ID
		return op, e
	}
	return s.cfg.Ledger.Cancel(ctx, tenant, id, by, reason)
}
