package web

import (
	"context"
	"net/http"
	"strings"

	"countersign/ledger"
)

// undosPage lists undos that came to no end by themselves, and wait for a person.
type undosPage struct {
	frame
	Rows  []undoneRow
	Next  string
	Later bool
}

// undoneRow is one undo that waits for a person, with the operation that it was to
// take back.
type undoneRow struct {
	ID     string
	Badge  badge
	At     *moment
	Reason string
	Parent string
	// Headline and EffectID are those of the operation whose effect is, or may be,
	// still there.
	Headline       []piece
	Tool, EffectID string
	Run, RunURL    string
	// Why says in words what it waits for.
	Why string
	// Again: another undo may be tried. Doubt: it must be found out what became of
	// this one. Behind is the undo that this one waits for.
	Again, Doubt bool
	Behind       string
}

const (
	undosLimit = 25
	// undosRead bounds how many undos are read for one page: most of them need
	// nobody.
	undosRead = 500
)

// undoStates are the states in which an undo may wait for a person. What a person
// rejected or cancelled was decided: the effect stays on purpose.
var undoStates = []ledger.State{ledger.Failed, ledger.Expired, ledger.Unknown, ledger.Pending}

func (p *Pages) undos(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	v := &undosPage{frame: p.frame(r, "runs", "Undos that need a person"), Later: r.URL.Query().Get("cursor") != ""}
	is := true
	f := ledger.Filter{Tenant: me.Tenant, Undo: &is, States: undoStates, Cursor: r.URL.Query().Get("cursor"), Limit: undosLimit}
	for read := 0; read < undosRead && len(v.Rows) < undosLimit; read += undosLimit {
		page, err := p.cfg.Ledger.List(ctx, f)
		if err != nil {
			p.problem(w, r, err)
			return
		}
		for _, undo := range page.Operations {
			row, waits, err := p.undone(ctx, undo)
			if err != nil {
				p.problem(w, r, err)
				return
			}
			if waits {
				v.Rows = append(v.Rows, row)
			}
		}
		v.Next = ""
		if page.Next == "" {
			break
		}
		f.Cursor = page.Next
		v.Next = address("/undos", "cursor", page.Next)
	}
	p.render(w, r, http.StatusOK, "undos", v)
}

// undone tells whether an undo waits for a person, and for what.
func (p *Pages) undone(ctx context.Context, undo ledger.Operation) (undoneRow, bool, error) {
	parent, err := p.cfg.Ledger.Operation(ctx, undo.Tenant, undo.Parent)
	if err != nil {
		return undoneRow{}, false, err
	}
	row := undoneRow{
		ID: undo.ID, Badge: badgeOf(undo.State), At: p.when(undo.UpdatedAt), Parent: parent.ID, Tool: parent.Tool, EffectID: parent.EffectID,
		Headline: p.headlineOf(ctx, parent),
	}
	if undo.Reason != nil {
		row.Reason = cutTo(p.hiddenIn(ctx, undo, undo.Reason.Text), longText)
	}
	if parent.Run != nil {
		row.Run, row.RunURL = parent.Run.ID, runURL(parent.Run.ID, parent.Agent.ID)
	}
	switch {
	case undo.State.Void():
		row.Why = "The undo ended without effect: what it was to take back is still there."
		row.Again = p.cfg.Previews != nil && ledger.Undoable(parent) == nil
		// A later undo, or the operation's own end, has the last word.
		return row, parent.Child == undo.ID && parent.State == ledger.Succeeded, nil
	case undo.State == ledger.Unknown:
		row.Why, row.Doubt = "Nobody knows whether the undo took place. It can’t be tried again before that is known.", true
		return row, undo.OnList, nil
	case undo.After == "":
		return row, false, nil
	}
	before, err := p.cfg.Ledger.Operation(ctx, undo.Tenant, undo.After)
	if err != nil {
		return row, false, err
	}
	row.Behind = before.ID
	row.Why = "The undo of its run stopped before this one, at an undo that is " + strings.ToLower(badgeOf(before.State).Label) + ". It waits until it expires or is cancelled."
	if before.State == ledger.Unknown {
		row.Why = "The undo of its run stopped before this one: of the undo before it nobody knows whether it took place. Settle that, and this one goes on."
	}
	return row, before.State == ledger.Unknown && before.OnList || before.State.Void(), nil
}

// hiddenIn hides what is sensitive in an operation's text.
func (p *Pages) hiddenIn(ctx context.Context, op ledger.Operation, text string) string {
	plan, err := p.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return ""
	}
	_, redacted := p.redact(ctx, op, plan)
	return drawer{mask: maskOf(plan.Args, redacted)}.hide(text)
}
