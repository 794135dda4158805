package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/commit"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
)

// undoPage is the preview of one operation's undo.
type undoPage struct {
	frame
	ID       string
	Line     []piece
	Tool     string
	How      []piece
	Effects  []effectView
	Warnings []warningView
	Rule     string
	Asks     bool
	Groups   string
	Token    string
	Expires  *moment
	Heads    heads
	Totals   totals
}

// planUndo shows what the undo of an operation would be; nothing is changed.
func (p *Pages) planUndo(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	id := chi.URLParam(r, "id")
	if p.cfg.Previews == nil {
		p.notFound(w, r)
		return
	}
	parent, err := p.cfg.Ledger.Operation(ctx, me.Tenant, id)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	res, err := p.cfg.Previews.Undo(ctx, preview.UndoRequest{Tenant: me.Tenant, Operation: id, By: operatorActor(me), RequestID: ledger.NewID("req_")})
	switch {
	case err != nil:
		p.backToOperation(w, r, id, "", err, typedForm{Form: "undo"})
		return
	case res.Operation != nil:
		http.Redirect(w, r, "/operations/"+res.Operation.ID, http.StatusSeeOther)
		return
	}
	plan := res.Preview.Plan
	how, mask := p.planHeadline(plan)
	d := drawer{money: moneyIn(plan.Effects), mask: mask}
	v := &undoPage{
		frame: p.frame(r, "operations", "Undo"), ID: id, Line: p.headlineOf(ctx, parent), Tool: plan.Tool, How: how,
		Effects: d.effects(plan.Effects), Totals: totalsOf(plan.Effects), Rule: res.Preview.Requirement.Rule, Asks: res.Preview.Requirement.Asks(), Groups: quorum(res.Preview.Requirement.Groups),
		Token: res.Token, Expires: p.when(res.ExpiresAt), Heads: heads{Effects: "What the undo changes"},
	}
	for _, warning := range plan.Warnings {
		v.Warnings = append(v.Warnings, warningOf(d, warning, ""))
	}
	p.render(w, r, http.StatusOK, "undo", v)
}

// undo opens an undo that was shown.
func (p *Pages) undo(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	if p.cfg.Commits == nil {
		p.notFound(w, r)
		return
	}
	res, err := p.cfg.Commits.Undo(ctx, commit.UndoCommit{
		Tenant: me.Tenant, Operation: id, Token: r.PostForm.Get("commit_token"), By: operatorActor(me), RequestID: ledger.NewID("req_"),
	})
	if err != nil {
		p.backToOperation(w, r, id, "", err, typedForm{Form: "undo"})
		return
	}
	http.Redirect(w, r, "/operations/"+res.Operation.ID, http.StatusSeeOther)
}

// undoesOf are the undos of an operation, oldest first.
func (p *Pages) undoesOf(ctx context.Context, op ledger.Operation) ([]undoRow, error) {
	if op.Child == "" {
		return nil, nil
	}
	page, err := p.cfg.Ledger.List(ctx, ledger.Filter{Tenant: op.Tenant, Parent: op.ID, OldestFirst: true})
	if err != nil {
		return nil, err
	}
	var rows []undoRow
	for _, u := range page.Operations {
		rows = append(rows, undoRow{ID: u.ID, Badge: badgeOf(u.State), At: p.when(u.CreatedAt)})
	}
	return rows, nil
}

// planHeadline is the headline of a plan that is no operation yet, and the mask of
// what is sensitive in it.
func (p *Pages) planHeadline(plan tools.Plan) ([]piece, *strings.Replacer) {
	t, ok := p.cfg.Registry.Get(plan.Tool)
	redacted := map[string]any{}
	if ok {
		redacted = t.Redact(plan.Args)
	} else {
		t = nil
	}
	return headline(plan.Headline, t, plan.Args, redacted), maskOf(plan.Args, redacted)
}
