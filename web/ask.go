package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"countersign/ledger"
	"countersign/tools"
)

// ask puts the question about an unknown outcome to the outside system once more,
// at a person's wish. What is answered is evidence; nothing is sent again.
func (p *Pages) ask(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	if p.cfg.Ask == nil {
		p.notFound(w, r)
		return
	}
	// An outside system may take its time, and more than pages have: the question
	// has a limit of its own. A writer without deadlines is one of a test.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(time.Time{})
	_, err := p.cfg.Ask(r.Context(), person(r.Context()).Tenant, id)
	p.backToOperation(w, r, id, "ask", err, typedForm{Form: "ask"})
}

// askable gives the tool that an unknown operation was sent with, where that one
// can be asked what became of it.
func (p *Pages) askable(ctx context.Context, op ledger.Operation) (*tools.Tool, bool) {
	t, err := p.cfg.Registry.Version(ctx, op.ToolVersion)
	if err != nil {
		return nil, false
	}
	return t, t.Consistency == tools.Strong || t.Consistency == tools.Eventual
}

// newestLookup is the newest answer of the outside system, and how many there are.
func newestLookup(evidence []ledger.Evidence) (newest ledger.Evidence, n int) {
	for _, e := range slices.Backward(evidence) {
		if e.Kind != "lookup" {
			continue
		}
		if n++; n == 1 {
			newest = e
		}
	}
	return newest, n
}

// askedNotice says what the outside system answered last; nil when it was never
// asked, whatever the address says.
func askedNotice(op ledger.Operation, evidence []ledger.Evidence, now time.Time) *notice {
	e, n := newestLookup(evidence)
	if n == 0 {
		return nil
	}
	text := "The newest answer is from " + momentAt(e.At, now).Words + ". " + proofOf(e) + "."
	if op.State == ledger.Unknown {
		return &notice{Text: text + " That proves nothing yet, so it stays unknown.", Unknown: true}
	}
	return &notice{Text: text + " The outcome is no longer unknown.", Unknown: true}
}
