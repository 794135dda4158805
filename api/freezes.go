package api

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// shownInScope is how many operations of each kind a freeze shows.
const shownInScope = 200

func (h handlers) ListFreezes(ctx context.Context, _ ListFreezesRequestObject) (ListFreezesResponseObject, error) {
	list, err := h.frozen(ctx)
	return ListFreezes200JSONResponse(list), err
}

func (h handlers) Freeze(ctx context.Context, r FreezeRequestObject) (FreezeResponseObject, error) {
	who := of(ctx).who
	scope, err := scopeOf(who, r.Body.Scope)
	if err == nil {
		err = checkReason(r.Body.Reason)
	}
	if err != nil {
		return nil, err
	}
	switch there, err := h.freezable(ctx, scope); {
	case err != nil:
		return nil, err
	case !there:
		return nil, fault.New(fault.ToolNotFound, "There is no such tool that writes.").At("/scope/tool", "no such tool")
	}
	if _, err := h.cfg.Ledger.Freeze(ctx, scope, ledger.FreezeLevel(r.Body.Level), who.actor(), r.Body.Reason); err != nil {
		return nil, err
	}
	g, err := h.cfg.Ledger.Guard(ctx, who.tenant())
	if err != nil {
		return nil, readBack(err)
	}
	i := slices.IndexFunc(g.Freezes, func(f ledger.Freeze) bool { return sameScope(scope, f) })
	if i < 0 {
		return nil, readBack(fault.New(fault.FreezeNotFound, "It was lifted again at once."))
	}
	f, err := h.freezeDoc(ctx, g.Freezes[i])
	return Freeze200JSONResponse(f), readBack(err)
}

func (h handlers) LiftFreeze(ctx context.Context, r LiftFreezeRequestObject) (LiftFreezeResponseObject, error) {
	who := of(ctx).who
	scope, err := scopeOf(who, r.Body.Scope)
	if err == nil {
		err = checkReason(r.Body.Reason)
	}
	if err != nil {
		return nil, err
	}
	g, err := h.cfg.Ledger.Guard(ctx, who.tenant())
	switch {
	case err != nil:
		return nil, err
	case !slices.ContainsFunc(g.Freezes, func(f ledger.Freeze) bool { return sameScope(scope, f) }):
		return nil, fault.New(fault.FreezeNotFound, "Nothing is frozen in this scope.")
	}
	err = h.cfg.Ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: scope, By: who.actor(), Reason: r.Body.Reason, Override: r.Body.Override})
	if fault.Is(err, fault.UnknownsOpen) {
		return nil, &advised{refusal: fault.Of(err), url: doubtsURL(scope.Tool)}
	}
	if err != nil {
		return nil, err
	}
	list, err := h.frozen(ctx)
	return LiftFreeze200JSONResponse(list), readBack(err)
}

// freezable reports that a scope is one that something could be sent in: a tool
// that writes, in force here or by the guard row, or one that was withdrawn and
// has operations that finish on it.
func (s *Server) freezable(ctx context.Context, scope ledger.Scope) (bool, error) {
	if scope.Tool == "" {
		return true, nil
	}
	if t, ok := s.cfg.Registry.Get(scope.Tool); ok {
		return t.Access == tools.Write, nil
	}
	g, err := s.cfg.Ledger.Guard(ctx, scope.Tenant)
	if err != nil || g.Tools[scope.Tool] != "" {
		return err == nil, err
	}
	page, err := s.cfg.Ledger.List(ctx, ledger.Filter{Tenant: scope.Tenant, Tool: scope.Tool, Limit: 1})
	return len(page.Operations) > 0, err
}

// doubtsURL lists what must be settled before a freeze is lifted.
func doubtsURL(tool string) string {
	at := "/v1/operations?state=" + string(ledger.Unknown)
	if tool != "" {
		at += "&tool=" + url.QueryEscape(tool)
	}
	return at
}

// historyRows is how many guard rows are read at once.
const historyRows = 200

func (h handlers) ListFreezeHistory(ctx context.Context, r ListFreezeHistoryRequestObject) (ListFreezeHistoryResponseObject, error) {
	tenant := of(ctx).who.tenant()
	limit := r.Params.Limit
	if limit == 0 {
		limit = 50
	}
	// The cursor is an epoch; the page is what came before it.
	before := int64(0)
	if c := r.Params.Cursor; c != "" {
		n, err := strconv.ParseInt(c, 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != c {
			return nil, fault.New(fault.ParameterInvalid, "The query parameter cursor is not one that a page gave.")
		}
		before = n
	} else {
		g, err := h.cfg.Ledger.Guard(ctx, tenant)
		if err != nil {
			return nil, err
		}
		before = g.Epoch + 1
	}
	out := FreezeHistory{Changes: []FreezeChange{}}
	for before > 1 {
		// One row more than is looked at: what changed is told by the row before.
		from := max(0, before-1-historyRows)
		rows, err := h.cfg.Ledger.GuardHistory(ctx, tenant, max(0, from-1), int(before-1-max(0, from-1)))
		if err != nil {
			return nil, err
		}
		for i, row := range slices.Backward(rows) {
			if row.Epoch <= from {
				continue
			}
			if row.Change.What != "freeze" && row.Change.What != "unfreeze" {
				continue
			}
			if len(out.Changes) == limit {
				out.NextCursor = strconv.FormatInt(row.Epoch+1, 10)
				return ListFreezeHistory200JSONResponse(out), nil
			}
			var prev ledger.Guard
			if i > 0 {
				prev = rows[i-1]
			}
			out.Changes = append(out.Changes, changeOf(prev, row))
		}
		before = from + 1
	}
	return ListFreezeHistory200JSONResponse(out), nil
}

// changeOf tells what a row froze or lifted, by the row before it.
func changeOf(prev, row ledger.Guard) FreezeChange {
	c := row.Change
	out := FreezeChange{
		What: FreezeChangeWhat(c.What), Scope: FreezeScope{Tool: c.Tool, Tenant: c.Tool == ""},
		By: Principal{ID: c.By.ID, Name: c.By.Name}, Reason: c.Reason, At: c.At.UTC(), Unknown: c.Open, Signature: c.Signature,
	}
	if c.What == "unfreeze" {
		for _, f := range prev.Freezes {
			if f.Tool == c.Tool && !slices.Contains(row.Freezes, f) {
				out.Scope = scopeDoc(f)
			}
		}
		return out
	}
	for _, f := range row.Freezes {
		// A contradiction is told also where its tool was frozen already.
		if f.Tool == c.Tool && (c.Tool != "" || !slices.Contains(prev.Freezes, f)) {
			out.Scope, out.Level = scopeDoc(f), FreezeLevel(f.Level)
		}
	}
	return out
}

// maxReason is the longest reason in bytes, as in approvals.
const maxReason = 2000

// checkReason refuses a reason that says nothing or too much.
func checkReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return fault.New(fault.DecisionInvalid, "A reason is needed; people read it later.").At("/reason", "missing")
	case len(reason) > maxReason:
		return fault.New(fault.TooLong, "A reason has at most %d bytes.", maxReason).At("/reason", "too long")
	}
	return nil
}

// scopeOf reads a scope. Exactly one member is there; the contract sees to that.
func scopeOf(who principal, s FreezeScope) (ledger.Scope, error) {
	if s.Tool == "" && !s.Tenant && !s.Everything {
		return ledger.Scope{}, fault.New(fault.DecisionInvalid, "A scope is a tool, or says true.").At("/scope", "says false")
	}
	return ledger.Scope{Tenant: who.tenant(), Tool: s.Tool, Everything: s.Everything}, nil
}

func scopeDoc(f ledger.Freeze) FreezeScope {
	return FreezeScope{Tool: f.Tool, Everything: f.Everything, Tenant: f.Tool == "" && !f.Everything}
}

// sameScope reports that a freeze is that of exactly this scope.
func sameScope(s ledger.Scope, f ledger.Freeze) bool {
	return f.Tool == s.Tool && f.Everything == s.Everything
}

// frozen is everything that is in force for the caller's tenant.
func (s *Server) frozen(ctx context.Context) (FreezeList, error) {
	g, err := s.cfg.Ledger.Guard(ctx, of(ctx).who.tenant())
	if err != nil {
		return FreezeList{}, err
	}
	list := FreezeList{Freezes: make([]Freeze, len(g.Freezes))}
	for i, f := range g.Freezes {
		if list.Freezes[i], err = s.freezeDoc(ctx, f); err != nil {
			return FreezeList{}, err
		}
	}
	return list, nil
}

// freezeDoc is one freeze with what stands in its scope.
func (s *Server) freezeDoc(ctx context.Context, f ledger.Freeze) (Freeze, error) {
	out := Freeze{
		Scope: scopeDoc(f), Level: FreezeLevel(f.Level), By: Principal{ID: f.By.ID, Name: f.By.Name}, Reason: f.Reason, Since: f.At.UTC(),
	}
	var err error
	if out.Running, err = s.inScope(ctx, f, ledger.Running); err != nil {
		return out, err
	}
	if out.Unknown, err = s.inScope(ctx, f, ledger.Unknown); err != nil {
		return out, err
	}
	m, measured, err := s.cfg.Ledger.FreezeMeasures(ctx, of(ctx).who.tenant(), f)
	if measured {
		out.Measures = &FreezeMeasures{
			Before: ScopeCount(m.Before), Now: ScopeCount(m.Now),
			Dispatched: m.Dispatched, Doubted: m.Doubted, Settled: m.Settled, Contradicted: m.Contradicted,
		}
	}
	return out, err
}

func (s *Server) inScope(ctx context.Context, f ledger.Freeze, state ledger.State) ([]OperationSummary, error) {
	who := of(ctx).who
	page, err := s.cfg.Ledger.List(ctx, ledger.Filter{
		Tenant: who.tenant(), Tool: f.Tool, States: []ledger.State{state}, OldestFirst: true, Limit: shownInScope,
	})
	return s.summaries(page.Operations, who), err
}
