// Package preview is phase one: it works out what a write would do, changes
// nothing, and returns a commit token for exactly that.
//
// What lives here: Service.Preview, from checked arguments to a stored preview
// and its token; Undo, the same for the undo of an operation; UndoRun, one plan
// and one token for the undos of a whole run.
//
// How it flows: tool and grant, arguments against the schema, the key, the
// key's standing in the ledger, run and goal, the connector's plan, the policy's
// requirement; then the preview is stored and a token is minted for it. Where
// the key already has an answer, the answer is returned and no token. The undo
// of an operation takes its tool and arguments from what was recorded, and goes
// the same way.
//
// What does not live here: everything that opens or sends (commit), the meaning
// of rules (approvals/policy), HTTP (api).
package preview

import (
	"context"
	"regexp"
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
	Store    Store
	Registry *tools.Registry
	Signer   *tokens.Signer
	// Quota is how many unexpired previews one agent may hold; 0 means 1,000.
	Quota int
	// Waiting is how many operations of one agent may wait for people when one more
	// is asked for; 0 means 1,000.
	Waiting int
	// Keep is how long expired previews are kept before they are swept; 0 means
	// an hour.
	Keep time.Duration
	// OnPreview is called after each preview, for counters and the log.
	OnPreview func(Request, Result)
}

// Store is the part of ledger.Store that previews are written to.
type Store interface {
	PutPreview(ctx context.Context, p ledger.Preview) error
	SweepPreviews(ctx context.Context, before time.Time) error
}

// Service makes previews. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service {
	if cfg.Quota == 0 {
		cfg.Quota = 1000
	}
	if cfg.Waiting == 0 {
		cfg.Waiting = 1000
	}
	if cfg.Keep == 0 {
		cfg.Keep = time.Hour
	}
	return &Service{cfg: cfg}
}

// Request asks what a call would do.
type Request struct {
	Agent identity.Agent
	Tool  string
	// Args is the parsed object of the body; it is checked here.
	Args map[string]any
	Run  *ledger.Run
	// IdempotencyKey is the caller's, from header or body; empty when absent.
	IdempotencyKey string
	// AgainOf names the effective operation that is wanted once more.
	AgainOf   string
	RequestID string
}

// Result is a preview with its token, or the operation that already answers
// the key.
type Result struct {
	Preview ledger.Preview
	Token   string
	// ExpiresAt is the token's and the preview's end.
	ExpiresAt time.Time
	// Operation is set, and Token empty, when the key's first result stands.
	Operation *ledger.Operation
	// Stale says why that result should not be built upon without a look:
	// ledger.Stale* words (R56).
	Stale []string
}

// Tool finds a tool for an agent, of the wanted access.
func (s *Service) Tool(name string, agent identity.Agent, access tools.Access) (*tools.Tool, error) {
	t, ok := s.cfg.Registry.Get(name)
	switch {
	case !ok:
		return nil, fault.New(fault.ToolNotFound, "There is no such tool.")
	case !agent.May(name):
		return nil, fault.New(fault.ToolNotGranted, "This agent has no grant for the tool %s.", name)
	case t.Access != access && access == tools.Write:
		return nil, fault.New(fault.ToolAccess, "The tool %s only reads; call it, there is nothing to preview.", name)
	case t.Access != access:
		return nil, fault.New(fault.ToolAccess, "The tool %s writes; preview it first, then commit.", name)
	}
	return t, nil
}

// Call answers a read tool.
func (s *Service) Call(ctx context.Context, agent identity.Agent, tool string, args map[string]any) (any, error) {
	t, err := s.Tool(tool, agent, tools.Read)
	if err != nil {
		return nil, err
	}
	checked, _, err := t.CheckArgs(args)
	if err != nil {
		return nil, err
	}
	return t.Connector.Read(ctx, tools.Call{Args: checked, Agent: Principal(agent)})
}

// Principal is the agent as expressions, plans and operations see it.
func Principal(a identity.Agent) tools.Agent {
	return tools.Agent{ID: a.ID, Name: a.Name, Owner: a.Owner, Tenant: a.Tenant}
}

// Preview works out what the call would do. It changes nothing outside; it
// stores the preview and returns a token for it.
func (s *Service) Preview(ctx context.Context, r Request) (Result, error) {
	t, err := s.Tool(r.Tool, r.Agent, tools.Write)
	if err != nil {
		return Result{}, err
	}
	if t.NeedsRun && r.Run == nil {
		return Result{}, fault.New(fault.RunNeeded, "The tool %s depends on earlier steps; say in which run, step and call it stands.", t.Name).At("/run", "missing")
	}
	args, warnings, err := t.CheckArgs(r.Args)
	if err != nil {
		return Result{}, err
	}
	agent := Principal(r.Agent)
	key, err := s.key(t, args, agent, r)
	if err != nil {
		return Result{}, err
	}
	argsDigest := strictjson.Digest(args)
	standing, head, err := s.standing(ctx, r, t.Name, key, argsDigest)
	if err != nil {
		return Result{}, err
	}
	if standing.Advice == ledger.AdviceReplay {
		return s.stands(ctx, head.Operation)
	}
	if err := s.runOpen(ctx, r); err != nil {
		return Result{}, err
	}
	if err := s.cfg.Ledger.PlaceFree(ctx, ledger.Preview{Tenant: agent.Tenant, Agent: agent.ID, Tool: t.Name, Key: key, Run: r.Run}); err != nil {
		return Result{}, err
	}
	if err := s.quota(ctx, agent.Tenant, agent.ID); err != nil {
		return Result{}, err
	}
	plan, err := t.Connector.Preview(ctx, tools.Call{Args: args, Agent: agent, Key: tools.Key{
		Value: key, Generation: standing.Generation,
		Upstream: s.cfg.Ledger.UpstreamKey(agent.Tenant, t.Name, key, standing.Generation),
	}})
	if err != nil {
		// A commit of this key may have been opened meanwhile, and what it did may be
		// what is refused here. What exists is the answer.
		if standing, head, e := s.standing(ctx, r, t.Name, key, argsDigest); e == nil && standing.Advice == ledger.AdviceReplay {
			return s.stands(ctx, head.Operation)
		}
		return Result{}, err
	}
	if err := s.goalFree(ctx, r, plan.Goal); err != nil {
		return Result{}, err
	}
	others, err := s.cfg.Ledger.SameArgs(ctx, agent.Tenant, t.Name, key, argsDigest)
	if err != nil {
		return Result{}, err
	}
	plan.Warnings = append(plan.Warnings, warnings...)
	plan.Warnings = append(plan.Warnings, keyHygiene(t, r, s.cfg.Ledger.Now())...)
	plan.Warnings = append(plan.Warnings, duplicateWarning(others)...)
	req := policy.AskDuplicate(&t.Spec, policy.Evaluate(&t.Spec, plan), others)
	if standing.Asks {
		req = policy.AskAnybody(req, "a wanted repeat of something that already took effect: 1 of all approvers")
	}
	if req.Outcome == tools.OutcomeDeny {
		return Result{}, fault.New(fault.PolicyDenied, "The policy denies this action: %s.", req.Rule)
	}
	if req.Asks() {
		if err := s.peopleAreFree(ctx, agent.Tenant, agent.ID); err != nil {
			return Result{}, err
		}
	}
	p := ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: agent.Tenant, Agent: agent.ID, Tool: t.Name, ToolVersion: t.Version,
		Key: key, Generation: standing.Generation, AgainOf: r.AgainOf, ArgsDigest: argsDigest,
		PlanDigest: plan.Digest(), Plan: plan, Requirement: req, Run: r.Run, CreatedAt: s.cfg.Ledger.Now(),
	}
	res, err := s.store(ctx, p)
	if err == nil && s.cfg.OnPreview != nil {
		s.cfg.OnPreview(r, res)
	}
	return res, err
}

// stands answers with the operation that a key stands for.
func (s *Service) stands(ctx context.Context, op ledger.Operation) (Result, error) {
	stale, err := s.cfg.Ledger.Stale(ctx, op)
	return Result{Operation: &op, Stale: stale}, err
}

// runOpen refuses a call in a run that was closed.
func (s *Service) runOpen(ctx context.Context, r Request) error {
	if r.Run == nil {
		return nil
	}
	head, err := s.cfg.Ledger.RunHead(ctx, r.Agent.Tenant, r.Agent.ID, r.Run.ID)
	if err == nil && head.Closed() {
		return ledger.RunIsClosed()
	}
	return err
}

// goalFree refuses early what commit would refuse: a goal that another
// operation holds (N6).
func (s *Service) goalFree(ctx context.Context, r Request, goal *tools.Goal) error {
	if goal == nil {
		return nil
	}
	head, err := s.cfg.Ledger.Goal(ctx, r.Agent.Tenant, *goal)
	if err != nil {
		return err
	}
	return ledger.GoalFree(head, r.Agent.ID, r.AgainOf)
}

// quota refuses more open previews than one asker may hold.
func (s *Service) quota(ctx context.Context, tenant, holder string) error {
	n, err := s.cfg.Ledger.CountPreviews(ctx, tenant, holder, s.cfg.Ledger.Now())
	if err != nil || n < s.cfg.Quota {
		return err
	}
	e := fault.New(fault.QuotaExhausted, "You hold %d open previews, as many as one may; commit some or let them expire.", n)
	e.RetryAfter = time.Minute
	return e
}

// peopleAreFree refuses to ask people for more while as much of one agent waits for
// them as may (I22): what one agent floods them with must not bury what others ask.
// Tokens that are out there can still open theirs, which Quota bounds.
func (s *Service) peopleAreFree(ctx context.Context, tenant, agent string) error {
	n, err := s.cfg.Ledger.Waiting(ctx, tenant, agent, s.cfg.Waiting)
	if err != nil || n < s.cfg.Waiting {
		return err
	}
	e := fault.New(fault.QuotaExhausted, "%d operations of yours wait for people, as many as may; wait until some are decided or have expired.", n)
	e.RetryAfter = time.Minute
	return e
}

// standing asks the ledger what the key may become, and refuses early what
// commit would refuse: an ask that a person has said no to.
func (s *Service) standing(ctx context.Context, r Request, tool, key, argsDigest string) (ledger.Standing, ledger.Head, error) {
	head, err := s.cfg.Ledger.Head(ctx, r.Agent.Tenant, tool, key)
	if err != nil {
		return ledger.Standing{}, head, err
	}
	standing, err := ledger.Stand(head, argsDigest, r.AgainOf)
	if err != nil {
		return standing, head, ledger.HideForeign(err, head.Operation, r.Agent.ID)
	}
	if standing.Advice == ledger.AdviceOpen {
		if err := s.cfg.Ledger.RefuseRejected(ctx, r.Agent.Tenant, r.Agent.ID, tool, argsDigest); err != nil {
			return standing, head, err
		}
	}
	return standing, head, nil
}

// keyForm is what a key may look like: visible ASCII without quotes, braces or
// wildcards, so that it is the same text in headers, SQL, Redis and logs.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+%~=-]{0,254}$`)

// key works out the idempotency key of the call.
func (s *Service) key(t *tools.Tool, args map[string]any, agent tools.Agent, r Request) (string, error) {
	if r.IdempotencyKey != "" && !keyForm.MatchString(r.IdempotencyKey) {
		return "", fault.New(fault.IdempotencyKeyInvalid, "An idempotency key is 1 to 255 of A-Z a-z 0-9 . _ : / @ + %% ~ = - and starts with a letter or digit.")
	}
	switch t.KeySource {
	case tools.KeyFromCaller:
		if r.IdempotencyKey == "" {
			return "", fault.New(fault.IdempotencyKeyNeeded, "The tool %s takes its idempotency key from the caller: send Idempotency-Key, one for each intent, the same on every retry.", t.Name)
		}
		return s.unreserved(r.IdempotencyKey)
	case tools.KeyFromRun:
		if r.Run == nil || r.Run.Step == "" || r.Run.Call == "" {
			return "", fault.New(fault.RunNeeded, "The tool %s takes its key from run, step and call; say all three.", t.Name).At("/run", "missing or incomplete")
		}
		return s.sameAs(s.cfg.Ledger.RunKey(agent.Tenant, agent.ID, *r.Run), r.IdempotencyKey)
	default:
		key, err := t.BusinessKey(args, agent)
		if err != nil {
			return "", err
		}
		if !keyForm.MatchString(key) {
			return "", fault.New(fault.SchemaViolation, "The tool's key template gave a key that is empty, too long or has characters that a key can't have.")
		}
		if key, err = s.unreserved(key); err != nil {
			return "", err
		}
		return s.sameAs(key, r.IdempotencyKey)
	}
}

// unreserved refuses the prefix under which undo operations live.
func (s *Service) unreserved(key string) (string, error) {
	if len(key) >= 5 && key[:5] == "undo:" {
		return "", fault.New(fault.IdempotencyKeyInvalid, "Keys that start with undo: are reserved.")
	}
	return key, nil
}

// sameAs refuses a caller's key beside a tool's own, unless it is the same.
func (s *Service) sameAs(key, callers string) (string, error) {
	if callers != "" && callers != key {
		return "", fault.New(fault.IdempotencyKeyMismatch, "This tool makes its own idempotency key from the arguments; leave yours out, or send the same.")
	}
	return key, nil
}

// store keeps the preview and mints its token. Both end at the same moment.
func (s *Service) store(ctx context.Context, p ledger.Preview) (Result, error) {
	token, expires, err := s.mint(ctx, p)
	if err != nil {
		return Result{}, err
	}
	p.ExpiresAt = expires
	if err := s.cfg.Store.PutPreview(ctx, p); err != nil {
		return Result{}, ledger.StoreFault(err)
	}
	return Result{Preview: p, Token: token, ExpiresAt: p.ExpiresAt}, nil
}

// mint makes the commit token of a preview.
func (s *Service) mint(ctx context.Context, p ledger.Preview) (string, time.Time, error) {
	g, err := s.cfg.Ledger.Guard(ctx, p.Tenant)
	if err != nil {
		return "", time.Time{}, err
	}
	token, claims, err := s.cfg.Signer.Mint(tokens.Binding{
		Subject: p.Agent, Tenant: p.Tenant, Tool: p.Tool, ToolVersion: p.ToolVersion,
		KeyDigest: ledger.KeyDigest(p.Key), Generation: p.Generation, ArgsDigest: p.ArgsDigest,
		PreviewDigest: p.PlanDigest, PreviewID: p.ID, PolicyDigest: p.Requirement.Digest, LedgerGeneration: g.Generation,
	})
	return token, claims.Expiry(), err
}

// Run sweeps expired previews until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// A failed sweep costs space until the next one; nothing else.
			_ = s.RunOnce(ctx)
		}
	}
}

// RunOnce sweeps once.
func (s *Service) RunOnce(ctx context.Context) (err error) {
	defer fault.Recovered(&err)
	return s.cfg.Store.SweepPreviews(ctx, s.cfg.Ledger.Now().Add(-s.cfg.Keep))
}
