package web

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/approvals"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tools"
)

// operationPage is one operation as a whole, in the order in which it is read:
// what happens, where it stands, can it be undone, what changes, with which
// arguments, who asked, who must say yes, what exactly is sent, what happened so
// far, and what may be done now.
type operationPage struct {
	frame
	ID   string
	Tool string
	// Line is the headline as the heading draws it, and Headline all of it.
	Line     []piece
	Headline value
	Standing standing
	// Drift is what changed since the last round.
	Drift []driftRow
	Drill bool

	// Heads are headings in the tense of the state.
	Heads    heads
	Undo     undoView
	Totals   totals
	Effects  []effectView
	Warnings []warningView

	// Arguments fit a rule of the tool's schema; Words are free text, the agent's
	// own.
	Arguments, Words rowList
	// Unloaded: the tool's version is not known any more, so that nothing says
	// which arguments are sensitive.
	Unloaded bool

	Who        whoView
	Rule       ruleView
	Duplicates []duplicateView
	Sent       sentView
	Basis      []row
	Timeline   []stepView
	Evidence   []evidenceView
	Outcome    *outcomeView
	// Parent is what this one takes back, Undoes what took this one back.
	Parent  string
	Undoes  []undoRow
	Actions actionsView
}

// undoView says what taking it back would be.
type undoView struct {
	Reversible bool
	// Nothing: it ended without an effect, so there is nothing to undo.
	Nothing bool
	// Text is the tool's own word on it, if any.
	Text string
}

// takenBack is how a manifest's undo is put in words when it has none of its own.
var takenBack = regexp.MustCompile(`(?s)^Taken back by ([a-z0-9_]+)(?:, while (.+))?\.$`)

// undoOf words the undo. What can't be counted on is not promised: "taken back by"
// becomes "may take it back".
func undoOf(op ledger.Operation, text string) undoView {
	v := undoView{Reversible: op.Reversible, Nothing: op.State.Void(), Text: text}
	if m := takenBack.FindStringSubmatch(text); m != nil && !op.Reversible {
		v.Text = m[1] + " may take it back"
		if m[2] != "" {
			v.Text += " while " + m[2]
		}
	}
	return v
}

// rowList is rows with the ones behind "show all": a page of thousands hides
// what must be read.
type rowList struct{ Shown, More []row }

const shownRows = 40

func listOf(rows []row) rowList {
	n := min(len(rows), shownRows)
	return rowList{Shown: rows[:n], More: rows[n:]}
}

// All is every row.
func (l rowList) All() []row { return slices.Concat(l.Shown, l.More) }

// whoView is who asked, and from where.
type whoView struct {
	Agent, AgentID string
	Owner          string
	You            bool // the viewer owns the agent
	Run            *ledger.Run
	RunURL         string
	At             *moment
	RequestID      string
	Key            string
	Generation     int
	AgainOf        string
}

// sentView is exactly what goes out.
type sentView struct {
	Target     string
	Wire       value
	ArgsDigest string
	// Canonical is the canonical form of the arguments in base64, so that the
	// browser can compute their digest anew; empty when some are hidden.
	Canonical string
	Prefix    string
	PlanDigest, ToolVersion,
	UpstreamKey string
}

func (p *Pages) operation(w http.ResponseWriter, r *http.Request) {
	v, err := p.operationView(r, chi.URLParam(r, "id"))
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "operation", v)
}

// backToOperation is how every form of the page ends: on success it redirects,
// when it is refused the page comes back with why, and with what was typed.
func (p *Pages) backToOperation(w http.ResponseWriter, r *http.Request, id, done string, err error, typed typedForm) {
	if err == nil {
		http.Redirect(w, r, doneURL(r, id, done), http.StatusSeeOther)
		return
	}
	f := fault.Of(err)
	v, viewErr := p.operationView(r, id)
	if viewErr != nil {
		// Not even the page can be read: that is the news, unless the refusal
		// itself says that there is no such operation.
		p.problem(w, r, err)
		return
	}
	v.Notice = refusal(f)
	typed.Problem, typed.Bad = f.Detail, map[string]bool{}
	for _, at := range f.Pointers {
		typed.Bad[strings.TrimPrefix(at.Pointer, "/")] = true
	}
	v.Actions.Typed = typed
	p.render(w, r, p.refused(w, r, f), "operation", v)
}

// doneURL is where a form that succeeded leads: to its operation, or back to the
// list that it stood in.
func doneURL(r *http.Request, id, done string) string {
	if r.PostForm.Get("back") == "unknown" {
		return address("/unknown", "done", done, "about", id)
	}
	return address("/operations/"+id, "done", done)
}

func (p *Pages) operationView(r *http.Request, id string) (*operationPage, error) {
	ctx := r.Context()
	me := person(ctx)
	card, err := p.cfg.Approvals.Card(ctx, viewer(ctx), me.Tenant, id)
	if err != nil {
		return nil, err
	}
	op, plan := card.Operation, card.Plan
	events, err := p.cfg.Ledger.Events(ctx, me.Tenant, id)
	if err != nil {
		return nil, err
	}
	evidence, err := p.cfg.Ledger.Evidence(ctx, me.Tenant, id)
	if err != nil {
		return nil, err
	}
	frozen, err := p.frozen(ctx, op)
	if err != nil {
		return nil, err
	}
	spec, redacted := p.redact(ctx, op, plan)
	d := drawer{money: moneyIn(plan.Effects), mask: maskOf(plan.Args, redacted)}

	v := &operationPage{
		frame: p.frame(r, "approvals", op.Tool+" · "+op.ID), ID: op.ID, Tool: op.Tool,
		Headline: d.text("text", d.hide(plan.Headline)), Standing: standingOf(card, frozen, events, evidence, me.ID),
		Drill: op.EvidenceBoundary == "drill", Unloaded: spec == nil,
		Heads: headsOf(op), Undo: undoOf(op, d.hide(plan.UndoText)),
		Totals: totalsOf(plan.Effects), Effects: d.effects(plan.Effects),
		Who: p.who(ctx, me, op), Rule: p.rule(card, me), Duplicates: p.duplicates(card.Duplicates),
		Sent: sent(d, op, plan, redacted), Timeline: p.timeline(me, card, events),
		Evidence: p.evidence(d, me, evidence), Outcome: outcome(d, op),
	}
	v.Section = sectionOf(op.State)
	var s schema
	if spec != nil {
		s = schemaOf(spec.InputSchema)
	}
	v.Line = headline(plan.Headline, spec, plan.Args, redacted)
	v.Standing.Quote = d.hide(v.Standing.Quote)
	v.Drift = p.drift(ctx, d, op, plan, events)
	v.Arguments, v.Words = split(d.rows(plan.Args, redacted, s))
	for _, b := range plan.Basis {
		v.Basis = append(v.Basis, row{Path: []string{b.Field}, Value: d.value(b.Value)})
	}
	for _, w := range plan.Warnings {
		// Those about the characters of a value stand beside the value.
		if w.Code != tools.WarnInvisible && w.Code != tools.WarnConfusable {
			v.Warnings = append(v.Warnings, warningOf(d, w, op.ID))
		}
	}
	v.Parent = op.Parent
	if v.Undoes, err = p.undoesOf(ctx, op); err != nil {
		return nil, err
	}
	v.Actions = actions(card, me, v)
	if v.Actions.Resolve || v.Actions.Late && op.State.Void() {
		_, may := p.askable(ctx, op)
		v.Actions.Ask, v.Actions.CantAsk = may && p.cfg.Ask != nil, v.Actions.Resolve && !may
		v.Actions.Mark = markOf(v.Actions, card)
	}
	v.Actions.Undo = p.cfg.Previews != nil && ledger.Undoable(op) == nil && spec != nil && spec.UndoTool != ""
	done := r.URL.Query().Get("done")
	v.Notice = p.doneNotice(done, card, evidence, me)
	v.Self = address("/operations/"+op.ID, liveParam, "1", "done", done)
	v.Stream = address("/events", "operation", op.ID, "seen", pageMark(op, v.Waiting))
	return v, nil
}

// sectionOf is the part of the site in which an operation stands.
func sectionOf(s ledger.State) string {
	switch s {
	case ledger.AwaitingApproval:
		return "approvals"
	case ledger.Unknown:
		return "unknown"
	}
	return "operations"
}

// frozen gives the reason of the freeze that holds the operation's tool.
func (p *Pages) frozen(ctx context.Context, op ledger.Operation) (string, error) {
	g, err := p.cfg.Ledger.Guard(ctx, op.Tenant)
	if err != nil {
		return "", err
	}
	f, held := g.Frozen(op.Tool)
	switch {
	case !held:
		return "", nil
	case f.Reason == "":
		return "frozen", nil
	}
	return f.Reason, nil
}

// redact gives the tool as it was when the operation was opened, and the args
// with what it marks sensitive replaced. When no version of the tool is known,
// nothing says what is sensitive, and all of it counts as such.
func (p *Pages) redact(ctx context.Context, op ledger.Operation, plan tools.Plan) (*tools.Tool, map[string]any) {
	t, err := p.cfg.Registry.Version(ctx, op.ToolVersion)
	if err != nil {
		var ok bool
		if t, ok = p.cfg.Registry.Get(op.Tool); !ok {
			return nil, map[string]any{}
		}
	}
	return t, t.Redact(plan.Args)
}

// split parts what the schema checks from the agent's own words.
func split(rows []row) (checked, words rowList) {
	var a, b []row
	for _, r := range rows {
		if r.Free {
			b = append(b, r)
		} else {
			a = append(a, r)
		}
	}
	return listOf(a), listOf(b)
}

func (p *Pages) who(ctx context.Context, me identity.Operator, op ledger.Operation) whoView {
	w := whoView{
		Agent: op.Agent.Name, AgentID: op.Agent.ID, Owner: op.Agent.Owner, You: op.Agent.Owner == me.ID, Run: op.Run,
		At: p.when(op.CreatedAt), RequestID: op.RequestID, Key: op.Key, Generation: op.Generation, AgainOf: op.AgainOf,
	}
	if w.Agent == "" {
		w.Agent = op.Agent.ID
	}
	switch {
	case w.You:
		w.Owner = me.Name
	case op.Agent.Owner == identity.BuiltinOwner:
		w.Owner = "the demo itself"
	default:
		// An owner who can't be read is shown by id.
		if o, err := p.cfg.Identity.Operator(ctx, op.Tenant, op.Agent.Owner); err == nil {
			w.Owner = o.Name
		}
	}
	if op.Run != nil {
		w.RunURL = runURL(op.Run.ID, op.Agent.ID)
	}
	return w
}

func sent(d drawer, op ledger.Operation, plan tools.Plan, redacted map[string]any) sentView {
	s := sentView{
		Target: d.hide(plan.Target), Wire: d.text("text", d.hide(wireText(plan.Wire))), ArgsDigest: op.ArgsDigest,
		PlanDigest: op.PlanDigest, ToolVersion: op.ToolVersion, UpstreamKey: op.UpstreamKey, Prefix: strictjson.CanonicalVersion,
	}
	if strictjson.Equal(plan.Args, redacted) {
		s.Canonical = base64.StdEncoding.EncodeToString(strictjson.Canonical(plan.Args))
	}
	return s
}

// duplicateView is another operation with the same arguments under another key.
type duplicateView struct {
	ID, Key string
	Badge   badge
	Agent   string
	At      *moment
}

func (p *Pages) duplicates(list []ledger.Operation) []duplicateView {
	out := make([]duplicateView, 0, len(list))
	for _, op := range list {
		out = append(out, duplicateView{ID: op.ID, Key: op.Key, Badge: badgeOf(op.State), Agent: op.Agent.Name, At: p.when(op.CreatedAt)})
	}
	return out
}

// outcomeView is what came of it.
type outcomeView struct {
	EffectID string
	Adopted  bool
	Result   []row
	Retries  int
}

func outcome(d drawer, op ledger.Operation) *outcomeView {
	if op.EffectID == "" && op.Result == nil {
		return nil
	}
	return &outcomeView{
		EffectID: op.EffectID, Adopted: op.Adopted, Retries: op.Retries(),
		Result: d.rows(op.Result, op.Result, nil),
	}
}

// operationMark names an operation as it stands.
func operationMark(op ledger.Operation) string { return strconv.FormatInt(op.Version, 10) }

// pageMark names what the page of an operation shows, with the number in its menu.
func pageMark(op ledger.Operation, waiting int) string {
	return operationMark(op) + "." + strconv.Itoa(waiting)
}

// rule says who must say yes, and who has.
type ruleView struct {
	Asks  bool
	Waits bool // people are still asked
	Text  string
	// Amount says the rule's condition on an amount in words, if it is one; Nobody
	// the condition under which nobody is asked.
	Amount  string
	Nobody  string
	Groups  string
	Total   int
	Given   int
	Missing int
	Said    []saidView
	Expires *moment
	Over    bool // the time to decide has passed
	Round   int
	// MaxAge is how old a yes may be when it is sent.
	MaxAge string
}

// Dots draw the progress: one for each person needed, filled for those who said
// yes.
func (v ruleView) Dots() []bool { return dots(v.Given, v.Total) }

func dots(given, total int) []bool {
	list := make([]bool, total)
	for i := range list {
		list[i] = i < given
	}
	return list
}

// saidView is one person's word.
type saidView struct {
	Name, Word, Reason string
	Counts             bool
	Round              int
	At                 *moment
}

func (p *Pages) rule(c approvals.Card, me identity.Operator) ruleView {
	op := c.Operation
	v := ruleView{
		Asks: op.Requirement.Asks(), Text: op.Requirement.Rule, Amount: ruleAmount(op.Requirement.Rule), Nobody: nobodyWhen(op.Requirement.Rule), Groups: quorum(op.Requirement.Groups),
		Total: places(op.Requirement), Missing: c.Missing, Round: op.Round,
	}
	v.Given = v.Total - v.Missing
	if op.State == ledger.AwaitingApproval {
		v.Waits = true
		v.Expires = p.when(op.ExpiresAt)
		v.Over = !p.now().Before(op.ExpiresAt)
	}
	if op.Requirement.MaxAge > 0 {
		v.MaxAge = span(op.Requirement.MaxAge)
	}
	for _, d := range c.Decisions {
		said := saidView{Name: d.Name, Word: happened[d.Verb], Reason: d.Reason, Round: d.Round, At: p.when(d.At)}
		if d.Person == me.ID {
			said.Name = "You"
		}
		said.Counts = d.Verb == ledger.VerbApprove && slices.ContainsFunc(c.Standing, func(y standingPerson) bool { return y.ID == d.Person }) && d.Round == op.Round
		v.Said = append(v.Said, said)
	}
	return v
}

// trimmed is a form's text without space around it, lines ended as everywhere but
// in forms.
func trimmed(r *http.Request, name string) string {
	return strings.ReplaceAll(strings.TrimSpace(r.PostForm.Get(name)), "\r\n", "\n")
}
