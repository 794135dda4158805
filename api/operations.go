package api

import (
	"context"
	"regexp"
	"strings"
	"time"

	"countersign/fault"
	"countersign/ledger"
)

// idForm is what stands behind the prefix of an id.
var idForm = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{26}$`)

func isOperationID(id string) bool {
	random, ok := strings.CutPrefix(id, "op_")
	return ok && idForm.MatchString(random)
}

// find reads an operation that the caller may see. What is absent, foreign or no
// id at all is the same 404.
func (s *Server) find(ctx context.Context, id string) (ledger.Operation, error) {
	if !isOperationID(id) {
		return ledger.Operation{}, operationNotFound()
	}
	who := of(ctx).who
	op, err := s.cfg.Ledger.Operation(ctx, who.tenant(), id)
	if err != nil {
		return op, err
	}
	if !visible(op, who) {
		return ledger.Operation{}, operationNotFound()
	}
	return op, nil
}

func (h handlers) ListOperations(ctx context.Context, r ListOperationsRequestObject) (ListOperationsResponseObject, error) {
	who := of(ctx).who
	f := ledger.Filter{
		Tenant: who.tenant(), Tool: r.Params.Tool, Key: r.Params.Key, Run: r.Params.Run,
		Cursor: r.Params.Cursor, Limit: r.Params.Limit,
	}
	for _, state := range r.Params.State {
		f.States = append(f.States, ledger.State(state))
	}
	if who.agent != nil {
		f.Agent = who.agent.ID
	}
	page, err := h.cfg.Ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	list := OperationList{Operations: make([]OperationSummary, len(page.Operations)), NextCursor: page.Next}
	for i, op := range page.Operations {
		list.Operations[i] = h.summary(op, who, nil)
	}
	return ListOperations200JSONResponse(list), nil
}

func (h handlers) GetOperation(ctx context.Context, r GetOperationRequestObject) (GetOperationResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if op, err = h.await(ctx, op, secondsOf(r.Params.Wait, 0)); err != nil {
		return nil, err
	}
	o, err := h.operation(ctx, op)
	if err == nil && op.State.Effective() {
		var stale []string
		if stale, err = h.cfg.Ledger.Stale(ctx, op); len(stale) > 0 {
			o.Stale = staleOf(stale)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case op.State.Final():
		return GetOperation200JSONResponse(o), nil
	default:
		return GetOperation202JSONResponse{Body: o, Headers: GetOperation202ResponseHeaders{RetryAfter: o.Next.AfterSeconds}}, nil
	}
}

func (h handlers) CancelOperation(ctx context.Context, r CancelOperationRequestObject) (CancelOperationResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if who := of(ctx).who; who.operator != nil {
		op, err = h.cfg.Approvals.Cancel(ctx, *who.operator, op.ID, r.Body.Reason)
	} else {
		by := ledger.Actor{Kind: "agent", ID: who.agent.ID, Name: who.agent.Name}
		op, err = h.cfg.Commit.Cancel(ctx, op.Tenant, op.ID, by, r.Body.Reason)
	}
	if err != nil {
		return nil, err
	}
	o, err := h.operation(ctx, op)
	return CancelOperation200JSONResponse(o), readBack(err)
}

func (h handlers) ResolveOperation(ctx context.Context, r ResolveOperationRequestObject) (ResolveOperationResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	say := h.cfg.Approvals.Resolve
	if r.Body.Contradict {
		say = h.cfg.Approvals.Contradict
	}
	op, err = say(ctx, *of(ctx).who.operator, op.ID, ledger.Statement{
		Happened: r.Body.Outcome == ResolveRequestOutcomeHappened, EffectID: r.Body.EffectID, Reason: r.Body.Reason,
	})
	if err != nil {
		return nil, err
	}
	o, err := h.operation(ctx, op)
	return ResolveOperation200JSONResponse(o), readBack(err)
}

func (h handlers) AskOperation(ctx context.Context, r AskOperationRequestObject) (AskOperationResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	h.patient(ctx, askFor)
	if op, err = h.cfg.Ask(ctx, op.Tenant, op.ID); err != nil {
		return nil, err
	}
	o, err := h.operation(ctx, op)
	return AskOperation200JSONResponse(o), readBack(err)
}

// askFor is how long questions to outside systems may take, with their repeats.
const askFor = time.Minute

// readBack is the refusal of a request that was carried out and whose result
// can't be read: "nothing was changed" would not be true.
func readBack(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.OutcomeUnclear, "It was written, but what stands now could not be read.")
}
