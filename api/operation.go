package api

import (
	"context"
	"slices"
	"time"

	"countersign/approvals/policy"
	"countersign/ledger"
	"countersign/tools"
)

// visible reports whether the caller may see an operation of their tenant: an
// agent its own and the undos that it asked for, an operator all (S15).
func visible(op ledger.Operation, who principal) bool {
	return who.operator != nil || op.Agent.ID == who.agent.ID || askedFor(op, who.agent.ID)
}

// askedFor reports that an undo was asked for by that agent or person, and not by
// the agent that did what it takes back.
func askedFor(op ledger.Operation, id string) bool { return op.AskedBy != nil && op.AskedBy.ID == id }

// summary is an operation as the ledger's row tells it. said are the decisions
// of people, where they were read.
func (s *Server) summary(op ledger.Operation, who principal, said []ledger.Decision) OperationSummary {
	mine := visible(op, who)
	o := OperationSummary{
		ID: op.ID, Tool: op.Tool, ToolVersion: op.ToolVersion, State: OperationState(op.State),
		IdempotencyKey: op.Key, Generation: op.Generation, Agent: Principal{ID: op.Agent.ID, Name: op.Agent.Name},
		ArgsDigest: op.ArgsDigest, Headline: op.Headline, Reversible: op.Reversible,
		EffectID: op.EffectID, Result: op.Result, Attempts: len(op.Attempts), RetryCount: op.Retries(),
		RequestID: op.RequestID, EvidenceBoundary: EvidenceBoundary(op.EvidenceBoundary), AgainOf: op.AgainOf, UndoOf: op.Parent,
		Adopted: op.Adopted, After: op.After, NeedsPerson: op.OnList && op.State == ledger.Unknown,
		FirstUnknownAt: utc(op.FirstUnknownAt), AskAt: utc(op.AskAt), Doubt: Doubt(op.Doubt), AllowedActions: s.allowed(op, who, said),
		CreatedAt: op.CreatedAt.UTC(), UpdatedAt: op.UpdatedAt.UTC(),
		URL: operationURL(op), Next: s.nextOf(op, mine),
	}
	if op.Reason != nil {
		o.Reason = OperationReason{Code: op.Reason.Code, Text: op.Reason.Text}
	}
	if op.AskedBy != nil {
		o.AskedBy = Principal{ID: op.AskedBy.ID, Name: op.AskedBy.Name}
	}
	if op.Goal != nil {
		o.Goal = Goal{Group: op.Goal.Group, Value: op.Goal.Value}
	}
	if mine {
		o.UndoneBy = op.Child
	}
	// Run and call are the words of the agent that asked.
	if op.Run != nil && (who.operator != nil || op.Agent.ID == who.agent.ID) {
		o.Run = Run{ID: op.Run.ID, Step: op.Run.Step, Call: op.Run.Call}
		o.ToolCallID = op.Run.Call
	}
	return o
}

// operation is the whole of an operation for the caller of the request.
func (s *Server) operation(ctx context.Context, op ledger.Operation) (Operation, error) {
	of(ctx).op = &op
	plan, err := s.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return Operation{}, err
	}
	var said []ledger.Decision
	if wasAsked(op) {
		if said, err = s.cfg.Ledger.Decisions(ctx, op.Tenant, op.ID); err != nil {
			return Operation{}, err
		}
	}
	return s.render(ctx, op, plan, said), nil
}

// render puts what was read into the contract's form.
func (s *Server) render(ctx context.Context, op ledger.Operation, plan tools.Plan, said []ledger.Decision) Operation {
	return Operation{
		OperationSummary: s.summary(op, of(ctx).who, said),
		Args:             s.redacted(ctx, op.ToolVersion, plan.Args),
		Effects:          effectsOf(plan.Effects),
		Approval:         s.approvalOf(op, said),
	}
}

// opened answers with an operation that a commit has opened, whatever fails now:
// what exists is answered as an operation.
func (s *Server) opened(ctx context.Context, op ledger.Operation) Operation {
	o, err := s.operation(ctx, op)
	if err != nil {
		s.cfg.Log.Error("an operation is answered without its plan", "request_id", of(ctx).requestID, "operation", op.ID, "error", err)
		return Operation{OperationSummary: s.summary(op, of(ctx).who, nil), Args: Args{}, Effects: []Effect{}}
	}
	return o
}

// again marks an answer that repeats what existed before the request; stale is
// what speaks against building on it without a look (R56).
func again(o Operation, stale []string) Operation {
	o.Replayed, o.FirstAt = true, o.CreatedAt
	if len(stale) > 0 {
		o.Stale = staleOf(stale)
	}
	return o
}

// wasAsked reports that people are or were asked about an operation.
func wasAsked(op ledger.Operation) bool { return op.Requirement.Asks() }

// approvalOf is what people must say and have said in the current round; zero
// when nobody was asked.
func (s *Server) approvalOf(op ledger.Operation, said []ledger.Decision) OperationApproval {
	if !wasAsked(op) {
		return OperationApproval{}
	}
	a := OperationApproval{
		ID: approvalID(op), Round: op.Round, Groups: groupsOf(op.Requirement.Groups), Rule: op.Requirement.Rule,
		Decided: []Decided{}, ExpiresAt: op.ExpiresAt.UTC(), URL: s.pageURL(op),
	}
	for _, d := range said {
		if d.Round == op.Round {
			a.Decided = append(a.Decided, Decided{
				Decision: DecisionWord(d.Verb), By: Principal{ID: d.Person, Name: d.Name}, At: d.At.UTC(),
			})
		}
	}
	return a
}

// pageURL is where people decide.
func (s *Server) pageURL(op ledger.Operation) string {
	return s.cfg.PublicURL + "/operations/" + op.ID
}

// allowed lists what the caller may do with an operation now.
func (s *Server) allowed(op ledger.Operation, who principal, said []ledger.Decision) []AllowedAction {
	can := []AllowedAction{}
	if !visible(op, who) {
		return can
	}
	verbs := ledger.AllowedVerbs(op)
	has := func(v ledger.Verb) bool { return slices.Contains(verbs, v) }
	// Nobody's undo but its own is an agent's to cancel.
	if has(ledger.VerbCancel) && (who.operator != nil || op.AskedBy == nil || askedFor(op, who.agent.ID)) {
		can = append(can, AllowedActionCancel)
	}
	if s.mayAskForUndo(op, who) {
		can = append(can, AllowedActionUndo)
	}
	if who.operator == nil {
		return can
	}
	if has(ledger.VerbApprove) && whyNot(op, who, said) == "" {
		can = append(can, AllowedActionApprove, AllowedActionReject)
	}
	if has(ledger.VerbReopen) && !op.Reopened && op.Agent.Owner != who.operator.ID {
		can = append(can, AllowedActionReopen)
	}
	if has(ledger.VerbResolve) {
		can = append(can, AllowedActionResolve)
	}
	if has(ledger.VerbResolve) || has(ledger.VerbContradict) && op.State.Void() {
		if t, ok := s.asDone(op); !ok || t.Consistency == tools.Strong || t.Consistency == tools.Eventual {
			can = append(can, AllowedActionAsk)
		}
	}
	return can
}

// asDone is the tool that an operation was opened with, if that is still the one
// in force. An older version would have to be read; whoever asks for something
// about it is told then.
func (s *Server) asDone(op ledger.Operation) (*tools.Tool, bool) {
	t, ok := s.cfg.Registry.Get(op.Tool)
	return t, ok && t.Version == op.ToolVersion
}

// mayAskForUndo reports that the caller may ask for the undo of an operation; its
// preview says whether the outside system still allows it.
func (s *Server) mayAskForUndo(op ledger.Operation, who principal) bool {
	if ledger.Undoable(op) != nil {
		return false
	}
	t, ok := s.asDone(op)
	if !ok {
		return op.Reversible
	}
	return t.UndoTool != "" && mayUse(who, t.UndoTool)
}

// utc is a time as answers tell it; none stays none.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// whyNot says why an operator may not decide on the current round; empty when
// they may.
func whyNot(op ledger.Operation, who principal, said []ledger.Decision) string {
	if op.State != ledger.AwaitingApproval {
		return "Nobody is asked any more."
	}
	if may, why := policy.Eligible(op, who.person()); !may {
		return why
	}
	if slices.ContainsFunc(said, func(d ledger.Decision) bool { return d.Round == op.Round && d.Person == who.operator.ID }) {
		return "You have already decided on this."
	}
	return ""
}

// redacted shows arguments with sensitive values as their digest. When the
// tool's definition can't be had any more, nobody knows which those are, and
// none is shown.
func (s *Server) redacted(ctx context.Context, version string, args map[string]any) Args {
	t, err := s.cfg.Registry.Version(ctx, version)
	if err != nil || args == nil {
		return Args{}
	}
	return t.Redact(args)
}

func effectsOf(list []tools.Effect) []Effect {
	out := make([]Effect, len(list))
	for i, e := range list {
		out[i] = Effect{
			Verb: e.Verb, Target: e.Target, Before: e.Before, After: e.After,
			Summary: e.Summary, Count: e.Count, Outside: e.Outside,
		}
		if e.Money != nil {
			out[i].Money = Money{Amount: e.Money.Amount, Currency: e.Money.Currency}
		}
	}
	return out
}

func basisOf(list []tools.BasisField) []BasisField {
	out := make([]BasisField, len(list))
	for i, b := range list {
		out[i] = BasisField{Field: b.Field, Value: b.Value}
	}
	return out
}

func warningsOf(list []tools.Warning) []Warning {
	out := make([]Warning, len(list))
	for i, w := range list {
		out[i] = Warning{Code: w.Code, Pointer: w.Pointer, Text: w.Text}
	}
	return out
}

// groupsOf never is nil: nobody is asked is an empty object.
func groupsOf(groups map[string]int) Groups {
	out := make(Groups, len(groups))
	for name, n := range groups {
		out[name] = n
	}
	return out
}

// undoOf says how a plan's effect could be taken back.
func undoOf(t *tools.Tool, plan tools.Plan) Undo {
	if t == nil || t.UndoTool == "" {
		return Undo{}
	}
	text := plan.UndoText
	if text == "" {
		text = "Call " + t.UndoTool + "."
	}
	return Undo{Tool: t.UndoTool, Text: text}
}
