package preview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/strictjson"
)

// UndoRunRequest asks what it would be to take back what a run did.
type UndoRunRequest struct {
	Tenant string
	// AgentID is the agent whose run it is.
	AgentID, Run string
	// Agent is nil when an operator asks; By is then the operator.
	Agent     *identity.Agent
	By        ledger.Actor
	RequestID string
}

// RunPlan is what a run did, and how it would be taken back (N15).
type RunPlan struct {
	Run ledger.RunHead
	// Items are the effects of the run in the order in which they would be taken
	// back: the newest first.
	Items []RunItem
	// Token commits the undo of exactly the items that are possible; empty when
	// none is.
	Token     string
	ExpiresAt time.Time
	PreviewID string
	// Stopped says why the plan ends before an effect that might be taken back:
	// the first doubt. Empty when it goes through to the first effect.
	Stopped string
}

// RunItem is one effect of a run.
type RunItem struct {
	Operation ledger.Operation
	// Possible: it would be taken back as Preview says. Because says why not.
	Possible bool
	Because  string
	Preview  *ledger.Preview
}

// UndoRun works out how everything that a run did would be taken back, newest
// effect first, in one plan with one token that binds the whole list. It changes
// nothing.
//
// Nothing in the run may be live or unknown (fault.RunLive). What certainly
// can't be taken back (no undo, no longer possible, refused, no grant) is an
// item that says so, and the plan goes on behind it: who commits has seen it.
// Where it can't be told whether an effect can be taken back, the plan stops:
// nothing older is taken back over a doubt.
func (s *Service) UndoRun(ctx context.Context, r UndoRunRequest) (RunPlan, error) {
	who := policy.Asker{Tenant: r.Tenant, Agent: r.Agent, By: r.By}
	if err := who.Check(); err != nil {
		return RunPlan{}, err
	}
	if err := who.MayUndoRun(r.AgentID); err != nil {
		return RunPlan{}, err
	}
	journal, err := s.cfg.Ledger.Journal(ctx, r.Tenant, r.AgentID, r.Run)
	if err != nil {
		return RunPlan{}, err
	}
	if err := journal.Undoable(); err != nil {
		return RunPlan{}, err
	}
	if err := s.quota(ctx, r.Tenant, who.ID()); err != nil {
		return RunPlan{}, err
	}
	plan := RunPlan{Run: journal.Run}
	undoes, err := s.planRun(ctx, who, journal, &plan)
	if err != nil || len(undoes) == 0 {
		return plan, err
	}
	return plan, s.storeRun(ctx, who, &plan, undoes)
}

// planRun fills in the items and gives the undos in the order of their dispatch.
func (s *Service) planRun(ctx context.Context, who policy.Asker, journal ledger.Journal, plan *RunPlan) ([]ledger.Preview, error) {
	var undoes []ledger.Preview
	refused := 0
	effects := journal.Effects()
	slices.Reverse(effects)
	for _, e := range effects {
		item := RunItem{Operation: e.Operation}
		switch {
		case e.Operation.State == ledger.Compensated:
			item.Because = "It was taken back already."
		case plan.Stopped != "":
			item.Because = "The plan stops before it."
		case len(undoes) == ledger.MaxRunUndo:
			plan.Stopped = fmt.Sprintf("One undo of a run takes back %d effects at most.", ledger.MaxRunUndo)
			item.Because = "The plan stops before it."
		case refused == ledger.MaxRunUndo:
			plan.Stopped = fmt.Sprintf("%d effects of this run were refused; no more are asked about in one plan. Take older ones back one by one.", refused)
			item.Because = "The plan stops before it."
		default:
			p, err := s.planUndo(ctx, who, e.Operation)
			switch {
			case err == nil:
				undoes = append(undoes, p)
				item.Possible, item.Preview = true, &p
			case certainly(err):
				item.Because = fault.Of(err).Detail
				if asked(err) {
					refused++
				}
			case ours(err):
				return nil, err
			default:
				item.Because = fault.Of(err).Detail
				plan.Stopped = fmt.Sprintf("Whether %s can be taken back can't be told now: %s Nothing older is taken back over a doubt.", e.Operation.ID, fault.Of(err).Detail)
			}
		}
		plan.Items = append(plan.Items, item)
	}
	return undoes, nil
}

// certainly reports that a refusal is a definite no as things stand, not a
// doubt.
func certainly(err error) bool {
	switch fault.Of(err).Code {
	case fault.UndoImpossible, fault.ToolRefused, fault.ToolNotGranted, fault.PolicyDenied, fault.RejectedBefore, fault.SchemaViolation:
		return true
	}
	return false
}

// asked reports that the outside may have been asked before the refusal, which is
// work that must be bounded (I22).
func asked(err error) bool {
	switch fault.Of(err).Code {
	case fault.ToolRefused, fault.PolicyDenied, fault.SchemaViolation:
		return true
	}
	return false
}

// ours reports that the gateway itself can't go on: that says nothing about the
// effect.
func ours(err error) bool {
	switch fault.Of(err).Code {
	case fault.Internal, fault.StoreUnavailable, fault.OutcomeUnclear, fault.DiskFull, fault.PreviewStale:
		return true
	}
	return false
}

// storeRun keeps the previews of the undos and of the whole, and mints the
// token. All end at the same moment.
func (s *Service) storeRun(ctx context.Context, who policy.Asker, plan *RunPlan, undoes []ledger.Preview) error {
	head := plan.Run
	whole := ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: head.Tenant, Agent: who.ID(), Tool: ledger.RunUndoTool, ToolVersion: ledger.RunUndoTool,
		Key: ledger.RunUndoKey(head.Agent, head.ID), Generation: 1,
		ArgsDigest: strictjson.Digest(map[string]any{"agent": head.Agent, "run": head.ID}),
		PlanDigest: ledger.RunPlanDigest(head, undoes), Requirement: ledger.Requirement{Digest: "none"},
		Run: &ledger.Run{ID: head.ID}, CreatedAt: s.cfg.Ledger.Now(),
	}
	for _, p := range undoes {
		whole.Undoes = append(whole.Undoes, p.ID)
	}
	token, expires, err := s.mint(ctx, whole)
	if err != nil {
		return err
	}
	whole.ExpiresAt = expires
	for i := range undoes {
		undoes[i].ExpiresAt = expires
		if err := s.cfg.Store.PutPreview(ctx, undoes[i]); err != nil {
			return ledger.StoreFault(err)
		}
	}
	// The whole comes last: a token whose list is not all there opens nothing.
	if err := s.cfg.Store.PutPreview(ctx, whole); err != nil {
		return ledger.StoreFault(err)
	}
	for i := range plan.Items {
		if p := plan.Items[i].Preview; p != nil {
			p.ExpiresAt = expires
		}
	}
	plan.Token, plan.ExpiresAt, plan.PreviewID = token, expires, whole.ID
	return nil
}
