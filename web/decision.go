package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
)

type standingPerson = policy.Person

// maxReason is the longest reason in bytes, as in approvals.
const maxReason = 2000

// actionsView is what may be done now, and by whom. A button exists only where
// it works.
type actionsView struct {
	// Decide: the viewer may approve or reject.
	Decide bool
	// WhyNot says why the viewer may not, while others may.
	WhyNot string
	Digest string
	// Mark changes with what is asked. The forms carry it in their id: a refresh
	// leaves them and what was typed alone as long as it stays.
	Mark string
	// Checks are what must be ticked before an approval counts.
	Checks []check

	Cancel, Reopen, Resolve, Undo bool
	// Late: an effect that was found too late can be told. Effective: one is known.
	Late, Effective bool
	// Ask: the outside system can be asked what became of it. CantAsk: it can't.
	Ask, CantAsk bool
	Irreversible bool
	Amount       string
	// Typed is what a refused form said.
	Typed typedForm
}

// Any reports whether there is anything to press or to be told.
func (a actionsView) Any() bool {
	return a.Decide || a.WhyNot != "" || a.Cancel || a.Reopen || a.Resolve || a.Undo || a.Late
}

// check is one box that must be ticked.
type check struct{ Name, Text string }

// typedForm is what a form said before it was refused, to be shown again. Boxes
// are not ticked for anybody.
type typedForm struct {
	Form     string // approve, reject, cancel, reopen, resolve, contradict, ask, undo
	Reason   string
	Happened string
	EffectID string
	// Problem is what was wrong with it, and Bad the members that were.
	Problem string
	Bad     map[string]bool
}

func actions(c approvals.Card, me identity.Operator, v *operationPage) actionsView {
	op := c.Operation
	a := actionsView{
		Decide: c.May && !v.Rule.Over, WhyNot: c.WhyNot, Digest: c.ShownDigest, Irreversible: !op.Reversible, Amount: v.Totals.Amount(),
		Cancel:  slices.Contains(c.Verbs, ledger.VerbCancel),
		Resolve: slices.Contains(c.Verbs, ledger.VerbResolve),
		Reopen:  slices.Contains(c.Verbs, ledger.VerbReopen) && !op.Reopened && op.Agent.Owner != me.ID,
		Late:    len(op.Attempts) > 0 && op.State.Final(), Effective: op.State.Effective(),
	}
	switch {
	case op.State != ledger.AwaitingApproval:
	case v.Rule.Over:
		a.WhyNot = "The time to decide is over. Nothing is sent."
	case c.Decided != nil:
		a.WhyNot = "You said yes. " + stillNeeded(c)
	}
	a.Mark = markOf(a, c)
	a.Checks = checks(op, v)
	return a
}

// markOf names the forms: the digest of what is asked, and which forms there are.
func markOf(a actionsView, c approvals.Card) string {
	digest := strings.TrimPrefix(c.ShownDigest, "sha256:")
	return fmt.Sprintf("%.12s-%t%t%t%t%t%t", digest, a.Decide, a.Cancel, a.Reopen, a.Resolve, a.Late, a.Ask)
}

// checks are the second step of an approval: for what can't be taken back, and
// for values that the page shows in part (S46).
func checks(op ledger.Operation, v *operationPage) []check {
	var list []check
	if !op.Reversible {
		text := "I have checked what happens and to whom. It cannot be undone."
		if amount := v.Totals.Amount(); amount != "" {
			text = "I have checked the amount, " + amount + ", and to whom it goes. It cannot be undone."
		}
		list = append(list, check{"checked", text})
	}
	if n := longValues(v); n > 0 {
		list = append(list, check{"read", "I have opened “show all” and read " + count(n, "long value", "long values") + " to the end."})
	}
	return list
}

// longValues counts values that are drawn in part.
func longValues(v *operationPage) int {
	n := 0
	seen := func(val *value) {
		if val != nil && val.Long() {
			n++
		}
	}
	seen(&v.Headline)
	for _, list := range []rowList{v.Arguments, v.Words} {
		for _, r := range list.All() {
			seen(&r.Value)
		}
		if len(list.More) > 0 {
			n++
		}
	}
	for _, e := range v.Effects {
		for _, f := range e.Fields {
			seen(f.Before)
			seen(f.After)
		}
	}
	return n
}

// decide takes a decision. The word, the digest of what was shown and the ticks
// all come from the form.
func (p *Pages) decide(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	word := r.PostForm.Get("decision")
	typed := typedForm{Form: word, Reason: r.PostForm.Get("reason")}
	err := p.ticked(r, id, word)
	if err == nil {
		_, err = p.cfg.Approvals.Decide(r.Context(), person(r.Context()), id, approvals.Decision{
			Word: word, ShownDigest: r.PostForm.Get("shown_digest"), Reason: trimmed(r, "reason"),
		})
	}
	p.backToOperation(w, r, id, word, err, typed)
}

// ticked demands the boxes that the page shows. A browser does so too; who posts
// without one is told the same.
func (p *Pages) ticked(r *http.Request, id, word string) error {
	if word != "approve" {
		return nil
	}
	v, err := p.operationView(r, id)
	if err != nil {
		return err
	}
	// Where the viewer may not decide, the service says why.
	if !v.Actions.Decide {
		return nil
	}
	for _, c := range v.Actions.Checks {
		if r.PostForm.Get(c.Name) != "yes" {
			return fault.New(fault.DecisionInvalid, "Tick the box before you approve: %s", c.Text).At("/"+c.Name, "not ticked")
		}
	}
	return nil
}

// reopen lets a rejected ask be asked again.
func (p *Pages) reopen(w http.ResponseWriter, r *http.Request) {
	p.withReason(w, r, "reopen", p.cfg.Approvals.Reopen)
}

// cancel takes back what was not sent.
func (p *Pages) cancel(w http.ResponseWriter, r *http.Request) {
	p.withReason(w, r, "cancel", p.cfg.Approvals.Cancel)
}

// withReason does what a form with nothing but a reason asks for.
func (p *Pages) withReason(w http.ResponseWriter, r *http.Request, form string,
	act func(ctx context.Context, who identity.Operator, id, reason string) (ledger.Operation, error),
) {
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	reason, err := neededReason(r)
	if err == nil {
		_, err = act(r.Context(), person(r.Context()), id, reason)
	}
	p.backToOperation(w, r, id, form, err, typedForm{Form: form, Reason: r.PostForm.Get("reason")})
}

// resolve ends a doubt by a person's statement.
func (p *Pages) resolve(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	typed := typedForm{Form: "resolve", Reason: r.PostForm.Get("reason"), Happened: r.PostForm.Get("happened"), EffectID: r.PostForm.Get("effect_id")}
	statement := ledger.Statement{Happened: typed.Happened == "yes", EffectID: trimmed(r, "effect_id"), Reason: trimmed(r, "reason")}
	var err error
	if typed.Happened != "yes" && typed.Happened != "no" {
		err = fault.New(fault.DecisionInvalid, "Say whether it happened or not.").At("/happened", "neither yes nor no")
	} else {
		_, err = p.cfg.Approvals.Resolve(r.Context(), person(r.Context()), id, statement)
	}
	p.backToOperation(w, r, id, "resolve", err, typed)
}

// contradict takes what was found too late: an effect of what ended without one, or
// a second one.
func (p *Pages) contradict(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	typed := typedForm{Form: "contradict", Reason: r.PostForm.Get("reason"), EffectID: r.PostForm.Get("effect_id")}
	_, err := p.cfg.Approvals.Contradict(r.Context(), person(r.Context()), id, ledger.Statement{Happened: true, EffectID: trimmed(r, "effect_id"), Reason: trimmed(r, "reason")})
	p.backToOperation(w, r, id, "contradict", err, typed)
}

// neededReason reads a reason that the record needs.
func neededReason(r *http.Request) (string, error) {
	reason := trimmed(r, "reason")
	switch {
	case reason == "":
		return "", fault.New(fault.DecisionInvalid, "Say why; the reason stands in the record.").At("/reason", "missing")
	case len(reason) > maxReason:
		return "", fault.New(fault.TooLong, "A reason has at most %d bytes.", maxReason).At("/reason", "too long")
	}
	return reason, nil
}

// doneNotice says what the last form did. It believes the record, not the
// address: a link can't claim a decision that was not taken.
func (p *Pages) doneNotice(done string, c approvals.Card, evidence []ledger.Evidence, me identity.Operator) *notice {
	op := c.Operation
	own := func(v ledger.Verb) bool { return c.Decided != nil && c.Decided.Verb == v }
	switch {
	case done == "approve" && own(ledger.VerbApprove):
		return &notice{Text: "Approved by you. " + afterApproval(c), Onward: true}
	case done == "reject" && own(ledger.VerbReject) && op.State == ledger.Rejected:
		return &notice{Text: "Rejected by you. Nothing was sent, and the agent reads your reason.", Onward: true}
	case done == "cancel" && op.State == ledger.Cancelled:
		return &notice{Text: "Cancelled. Nothing was sent."}
	case done == "reopen" && op.Reopened:
		return &notice{Text: "It may be asked again. This operation stays rejected; the agent previews anew, and people are asked again."}
	case done == "resolve" && stated(op, evidence, me):
		return statedNotice(op)
	case done == "contradict" && stated(op, evidence, me):
		return &notice{Text: "Your finding is recorded. Unless that effect was known already, the tool is frozen now: look at why before you lift it.", Unknown: true}
	case done == "ask":
		return askedNotice(op, evidence, p.now())
	}
	return nil
}

// stated reports that the doubt is over and that the viewer made a statement on it.
func stated(op ledger.Operation, evidence []ledger.Evidence, me identity.Operator) bool {
	return op.State.Final() && slices.ContainsFunc(evidence, func(e ledger.Evidence) bool { return e.Kind == "statement" && e.By.ID == me.ID })
}

func statedNotice(op ledger.Operation) *notice {
	return &notice{Text: "Your statement is recorded. The doubt is settled: " + strings.ToLower(badgeOf(op.State).Label) + ".", Unknown: true}
}

// afterApproval says what happens after one's yes.
func afterApproval(c approvals.Card) string {
	switch c.Operation.State {
	case ledger.AwaitingApproval:
		return stillNeeded(c) + " Nothing is sent before that."
	case ledger.Pending, ledger.Running:
		return "The gateway is sending it; this page follows."
	case ledger.Succeeded, ledger.Compensating, ledger.Compensated:
		return "The gateway has sent it, and it is done."
	case ledger.Unknown:
		return "The gateway has sent it, and the outcome is not known."
	case ledger.Failed:
		return "It failed, certainly without effect."
	default:
		return "It was not sent after all: " + strings.ToLower(badgeOf(c.Operation.State).Label) + "."
	}
}
