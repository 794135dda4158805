package web

import (
	"context"
	"net/http"
	"slices"

	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
)

// freezesPage is what is stopped, and the way back: freeze, evidence, reconcile,
// recover.
type freezesPage struct {
	frame
	Freezes []freezeView
	// Tools that may be frozen; Scopes are what else may be.
	Tools, Scopes []choice
	Typed         typedFreeze
	History       []freezeStep
}

// freezeView is one freeze in force.
type freezeView struct {
	// Tool is empty for the whole tenant and for everything.
	Tool       string
	Everything bool
	All        bool // also what is approved or begun stands still
	By, Reason string
	Since      *moment
	// Running were dispatched before and have no answer yet; Doubts have none that
	// proves anything.
	Running, Doubts []doubtRow
	// Export is the address of the doubts as a file, List that of their page.
	Export, List string
	// Measures compare the scope when it was frozen with now; nil where too much
	// went on to be counted.
	Measures *ledger.FreezeMeasures
	Typed    typedFreeze
}

// Scope is the scope as a form says it.
func (v freezeView) Scope() string {
	switch {
	case v.Everything:
		return scopeEverything
	case v.Tool != "":
		return v.Tool
	}
	return scopeTenant
}

// Name is what is frozen, in words.
func (v freezeView) Name() string { return scopeName(v.Tool, v.Everything) }

// scopeName is a scope in words, the same on every page: one tool, all tools of the
// tenant, or everything.
func scopeName(tool string, everything bool) string {
	switch {
	case everything:
		return "Everything, in all tenants"
	case tool != "":
		return tool
	}
	return "Every tool of this tenant"
}

// The scopes of the form that are no tool; no tool can have such a name.
const (
	scopeTenant     = "*"
	scopeEverything = "**"
)

// typedFreeze is what a form said before it was refused.
type typedFreeze struct {
	Form                        string // freeze, or lift and the scope
	Scope, Level, Reason, Wrong string
	BadScope, BadReason         bool
	// Blocked: outcomes in the scope are not known, perhaps where this page can't
	// look.
	Blocked bool
}

func (p *Pages) freezes(w http.ResponseWriter, r *http.Request) {
	v, err := p.freezesView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	if what := r.URL.Query().Get("done"); what == "freeze" || what == "lift" {
		v.Notice = freezeNotice(what, v)
	}
	p.render(w, r, http.StatusOK, "freezes", v)
}

// freezeNotice believes the record, not the address.
func freezeNotice(what string, v *freezesPage) *notice {
	switch {
	case len(v.History) == 0 || v.History[0].Froze != (what == "freeze"):
		return nil
	case what == "freeze":
		return &notice{Text: "It is frozen, here and on every other gateway. Reads and previews go on; clocks go on too."}
	}
	return &notice{Text: "The freeze is lifted. What waited is checked again before it is sent."}
}

func (p *Pages) freezesView(r *http.Request) (*freezesPage, error) {
	ctx, me := r.Context(), person(r.Context())
	g, err := p.cfg.Ledger.Guard(ctx, me.Tenant)
	if err != nil {
		return nil, err
	}
	v := &freezesPage{frame: p.frame(r, "freezes", "Freezes"), Tools: p.toolChoices("")}
	v.Scopes = []choice{{Value: scopeTenant, Label: scopeName("", false)}, {Value: scopeEverything, Label: scopeName("", true)}}
	for _, f := range g.Freezes {
		view := freezeView{
			Tool: f.Tool, Everything: f.Everything, All: f.Level == ledger.FreezeAll, By: actorName(f.By, me.ID), Reason: f.Reason, Since: p.when(f.At),
			Export: address("/v1/operations/export", "state", string(ledger.Unknown), "tool", f.Tool),
			List:   address("/unknown", "tool", f.Tool),
		}
		m, measured, err := p.cfg.Ledger.FreezeMeasures(ctx, me.Tenant, f)
		if err != nil {
			return nil, err
		}
		if measured {
			view.Measures = &m
		}
		if view.Running, err = p.inScope(ctx, me, f, ledger.Running); err != nil {
			return nil, err
		}
		if view.Doubts, err = p.inScope(ctx, me, f, ledger.Unknown); err != nil {
			return nil, err
		}
		v.Freezes = append(v.Freezes, view)
	}
	if v.History, err = p.freezeHistory(ctx, me); err != nil {
		return nil, err
	}
	v.Self = address("/freezes", liveParam, "1")
	v.Stream = address("/events", "freezes", "1", "seen", freezesMark(g, v))
	return v, nil
}

// inScope lists operations of a freeze's scope that are in a state.
func (p *Pages) inScope(ctx context.Context, me identity.Operator, f ledger.Freeze, s ledger.State) ([]doubtRow, error) {
	page, err := p.cfg.Ledger.List(ctx, ledger.Filter{Tenant: me.Tenant, Tool: f.Tool, States: []ledger.State{s}, OldestFirst: true, Limit: queueLimit})
	if err != nil {
		return nil, err
	}
	var rows []doubtRow
	for _, op := range page.Operations {
		rows = append(rows, doubtRow{ID: op.ID, Tool: op.Tool, Headline: p.headlineOf(ctx, op), Since: p.when(op.UnknownSince), NeedsPerson: op.OnList})
	}
	return rows, nil
}

// freezesMark names what the page shows.
func freezesMark(g ledger.Guard, v *freezesPage) string {
	parts := []string{g.Hash}
	for _, f := range v.Freezes {
		for _, row := range slices.Concat(f.Running, f.Doubts) {
			parts = append(parts, row.ID)
		}
		parts = append(parts, "|")
	}
	return digestOf(parts...)
}

// currentFreezesMark is freezesMark as of now.
func (p *Pages) currentFreezesMark(ctx context.Context, me identity.Operator) (string, error) {
	g, err := p.cfg.Ledger.Guard(ctx, me.Tenant)
	if err != nil {
		return "", err
	}
	v := &freezesPage{}
	for _, f := range g.Freezes {
		view := freezeView{}
		if view.Running, err = p.inScope(ctx, me, f, ledger.Running); err != nil {
			return "", err
		}
		if view.Doubts, err = p.inScope(ctx, me, f, ledger.Unknown); err != nil {
			return "", err
		}
		v.Freezes = append(v.Freezes, view)
	}
	return freezesMark(g, v), nil
}

// scopeOf reads a scope from a form. One tool must be there, or be frozen.
func (p *Pages) scopeOf(tenant, scope string) (ledger.Scope, error) {
	switch scope {
	case scopeEverything:
		return ledger.Scope{Tenant: tenant, Everything: true}, nil
	case scopeTenant:
		return ledger.Scope{Tenant: tenant}, nil
	case "":
		return ledger.Scope{}, fault.New(fault.DecisionInvalid, "Say what is to be frozen.").At("/scope", "missing")
	}
	return ledger.Scope{Tenant: tenant, Tool: scope}, nil
}

// freeze stops a scope.
func (p *Pages) freeze(w http.ResponseWriter, r *http.Request) {
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	me := person(r.Context())
	typed := typedFreeze{Form: "freeze", Scope: r.PostForm.Get("scope"), Level: r.PostForm.Get("level"), Reason: r.PostForm.Get("reason")}
	scope, err := p.scopeOf(me.Tenant, typed.Scope)
	if err == nil && scope.Tool != "" {
		if t, ok := p.cfg.Registry.Get(scope.Tool); !ok || t.Access != tools.Write {
			err = fault.New(fault.ToolNotFound, "There is no such tool that writes.").At("/scope", "no such tool")
		}
	}
	level := ledger.FreezeLevel(typed.Level)
	if err == nil && level != ledger.FreezeNew && level != ledger.FreezeAll {
		err = fault.New(fault.DecisionInvalid, "Say how much is to be frozen.").At("/level", "neither new nor all")
	}
	reason, reasonErr := neededReason(r)
	if err == nil {
		err = reasonErr
	}
	if err == nil {
		_, err = p.cfg.Ledger.Freeze(r.Context(), scope, level, operatorActor(me), reason)
	}
	p.backToFreezes(w, r, "freeze", err, typed)
}

// lift ends a freeze.
func (p *Pages) lift(w http.ResponseWriter, r *http.Request) {
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	me := person(r.Context())
	typed := typedFreeze{Scope: r.PostForm.Get("scope"), Reason: r.PostForm.Get("reason")}
	typed.Form = "lift " + typed.Scope
	scope, err := p.scopeOf(me.Tenant, typed.Scope)
	reason, reasonErr := neededReason(r)
	if err == nil {
		err = reasonErr
	}
	if err == nil {
		err = p.cfg.Ledger.Unfreeze(r.Context(), ledger.Unfreezing{
			Scope: scope, By: operatorActor(me), Reason: reason, Override: r.PostForm.Get("override") == "yes",
		})
	}
	p.backToFreezes(w, r, "lift", err, typed)
}

// backToFreezes is how the forms of the page end.
func (p *Pages) backToFreezes(w http.ResponseWriter, r *http.Request, done string, err error, typed typedFreeze) {
	if err == nil {
		http.Redirect(w, r, address("/freezes", "done", done), http.StatusSeeOther)
		return
	}
	f := fault.Of(err)
	v, viewErr := p.freezesView(r)
	if viewErr != nil {
		p.problem(w, r, err)
		return
	}
	v.Notice = refusal(f)
	typed.Wrong, typed.Blocked = f.Detail, f.Code == fault.UnknownsOpen
	for _, at := range f.Pointers {
		typed.BadScope = typed.BadScope || at.Pointer == "/scope"
		typed.BadReason = typed.BadReason || at.Pointer == "/reason"
	}
	v.Typed = typed
	for i := range v.Freezes {
		if typed.Form == "lift "+v.Freezes[i].Scope() {
			v.Freezes[i].Typed = typed
		}
	}
	p.render(w, r, p.refused(w, r, f), "freezes", v)
}

func operatorActor(o identity.Operator) ledger.Actor {
	return ledger.Actor{Kind: "operator", ID: o.ID, Name: o.Name}
}
