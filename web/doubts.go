package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/identity"
	"countersign/ledger"
	"countersign/reconcile"
)

// unknownPage is every unknown outcome: what is for people first, then what the
// gateway is still finding out.
type unknownPage struct {
	frame
	Groups []doubtGroup
	// Tool is the only one that is shown, if any; All is the address without it.
	Tool, All string
	// CSV and JSONL are the same list as files.
	CSV, JSONL string
	Later      bool
}

// doubtGroup are the doubts that wait for the same.
type doubtGroup struct {
	// Person: only a person can settle them.
	Person bool
	Rows   []doubtView
	Next   string
}

// doubtView is one unknown outcome with all that helps to settle it.
type doubtView struct {
	ID, Tool, Agent, Key string
	Headline             []piece
	Person, Drill        bool
	Reversible           bool
	Since                *moment
	// Line and Target say what was sent, and to whom; Times how often, the last time
	// at Sent. UpstreamKey finds it in the outside system.
	Line, Target, UpstreamKey string
	Times                     int
	Sent                      *moment
	// Seen is why the outcome is not known.
	Seen string
	// Answer is what the outside system said last, of Asked times; MayAsk that it
	// can be asked at all.
	Answer, Because string
	AnswerAt        *moment
	Asked           int
	MayAsk          bool
	// Next says what happens next, at At if that is known; Handed why people must.
	Next, Handed string
	At           *moment
	// Undo is what this would take back; empty for what is no undo.
	Undo    string
	Mark    string
	Actions actionsView
}

// doubtsLimit is how many of each kind one page shows.
const doubtsLimit = 25

func (p *Pages) unknown(w http.ResponseWriter, r *http.Request) {
	v, err := p.unknownView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "unknown", v)
}

// doubtsQuery is what a page of doubts shows: all, or only what waits for a person
// or for the gateway.
type doubtsQuery struct{ tool, who, cursor string }

func doubtsQueryOf(r *http.Request) doubtsQuery {
	q := r.URL.Query()
	d := doubtsQuery{tool: q.Get("tool"), who: q.Get("who"), cursor: q.Get("cursor")}
	// Any other word is no choice: an address by hand harms nobody. A place in the
	// list belongs to one of the two.
	if d.who != "person" && d.who != "gateway" {
		d.who, d.cursor = "", ""
	}
	return d
}

// members are those of an address.
func (d doubtsQuery) members(more ...string) []string {
	return append([]string{"tool", d.tool, "who", d.who, "cursor", d.cursor}, more...)
}

// lists reads the doubts of both kinds, the oldest first; those that are not asked
// for stay empty. A doubt goes from the gateway to people, so the gateway's are read
// first: one that goes meanwhile is in both lists, never in none, and counts as a
// person's.
func (p *Pages) lists(ctx context.Context, tenant string, d doubtsQuery) (person, gateway ledger.Page, err error) {
	read := func(onList bool) (ledger.Page, error) {
		return p.cfg.Ledger.List(ctx, ledger.Filter{
			Tenant: tenant, Tool: d.tool, States: []ledger.State{ledger.Unknown}, OnList: &onList, OldestFirst: true, Cursor: d.cursor, Limit: doubtsLimit,
		})
	}
	var err1, err2 error
	if d.who != "person" {
		gateway, err1 = read(false)
	}
	if d.who != "gateway" {
		person, err2 = read(true)
	}
	gateway.Operations = slices.DeleteFunc(gateway.Operations, func(op ledger.Operation) bool {
		return slices.ContainsFunc(person.Operations, func(o ledger.Operation) bool { return o.ID == op.ID })
	})
	return person, gateway, errors.Join(err1, err2)
}

func (p *Pages) unknownView(r *http.Request) (*unknownPage, error) {
	ctx, me := r.Context(), person(r.Context())
	d := doubtsQueryOf(r)
	forPeople, forGateway, err := p.lists(ctx, me.Tenant, d)
	if err != nil {
		return nil, err
	}
	export := []string{"state", string(ledger.Unknown), "tool", d.tool, "format"}
	v := &unknownPage{
		frame: p.frame(r, "unknown", "Unknown outcomes"), Tool: d.tool, All: "/unknown", Later: d.cursor != "",
		CSV: address("/v1/operations/export", append(export, "csv")...), JSONL: address("/v1/operations/export", append(export, "jsonl")...),
	}
	for i, page := range []ledger.Page{forPeople, forGateway} {
		g := doubtGroup{Person: i == 0}
		for _, op := range page.Operations {
			row, err := p.doubt(ctx, me, op)
			if err != nil {
				return nil, err
			}
			g.Rows = append(g.Rows, row)
		}
		if page.Next != "" {
			g.Next = address("/unknown", "tool", d.tool, "who", []string{"person", "gateway"}[i], "cursor", page.Next)
		}
		if len(g.Rows) > 0 {
			v.Groups = append(v.Groups, g)
		}
	}
	done, about := r.URL.Query().Get("done"), r.URL.Query().Get("about")
	v.Notice = p.doubtNotice(ctx, me, done, about)
	v.Self = address("/unknown", d.members(liveParam, "1", "done", done, "about", about)...)
	v.Stream = address("/events", d.members("unknown", "1", "seen", p.doubtsMark(forPeople, forGateway))...)
	return v, nil
}

// doubtNotice says what the last form on the page did. It believes the record.
func (p *Pages) doubtNotice(ctx context.Context, me identity.Operator, done, about string) *notice {
	if about == "" {
		return nil
	}
	op, err := p.cfg.Ledger.Operation(ctx, me.Tenant, about)
	if err != nil {
		return nil
	}
	evidence, err := p.cfg.Ledger.Evidence(ctx, me.Tenant, about)
	if err != nil {
		return nil
	}
	var n *notice
	switch {
	case done == "ask":
		n = askedNotice(op, evidence, p.now())
	case done == "resolve" && stated(op, evidence, me):
		n = statedNotice(op)
	}
	if n != nil {
		n.Unknown, n.About = false, op.ID
	}
	return n
}

// doubt reads one unknown outcome.
func (p *Pages) doubt(ctx context.Context, me identity.Operator, op ledger.Operation) (doubtView, error) {
	plan, err := p.cfg.Ledger.Plan(ctx, me.Tenant, op.ID, op.Round)
	if err != nil {
		return doubtView{}, err
	}
	evidence, err := p.cfg.Ledger.Evidence(ctx, me.Tenant, op.ID)
	if err != nil {
		return doubtView{}, err
	}
	events, err := p.cfg.Ledger.Events(ctx, me.Tenant, op.ID)
	if err != nil {
		return doubtView{}, err
	}
	spec, redacted := p.redact(ctx, op, plan)
	draw := drawer{mask: maskOf(plan.Args, redacted)}
	line, _, _ := strings.Cut(wireText(plan.Wire), "\n")
	v := doubtView{
		ID: op.ID, Tool: op.Tool, Agent: nameOr(ledger.Actor{ID: op.Agent.ID, Name: op.Agent.Name}), Key: op.Key,
		Headline: headline(op.Headline, spec, plan.Args, redacted),
		Person:   op.OnList, Drill: op.EvidenceBoundary == "drill", Reversible: op.Reversible, Since: p.when(op.UnknownSince),
		Target: draw.hide(op.Target), UpstreamKey: op.UpstreamKey, Times: len(op.Attempts), Undo: op.Parent,
		Actions: actionsView{Resolve: true, Irreversible: !op.Reversible},
	}
	if strings.Contains(line, " ") { // the line of a request, not the beginning of something else
		v.Line = cutTo(draw.hide(line), longText)
	}
	if n := len(op.Attempts); n > 0 {
		v.Sent = p.when(op.Attempts[n-1].MarkedAt)
	}
	if op.Reason != nil {
		v.Seen = cutTo(draw.hide(op.Reason.Text), longText)
	}
	answer, n := newestLookup(evidence)
	if v.Asked = n; n > 0 {
		v.Answer, v.Because, v.AnswerAt = proofOf(answer), cutTo(draw.hide(answer.Because), longText), p.when(answer.At)
	}
	_, v.MayAsk = p.askable(ctx, op)
	v.Actions.Ask = v.MayAsk && p.cfg.Ask != nil
	step, err := p.step(ctx, op, evidence)
	if err != nil {
		return doubtView{}, err
	}
	if v.next(step, p.now()); op.OnList {
		v.Handed = handedOver(events)
	}
	v.Mark = digestOf(op.ID, operationMark(op))
	return v, nil
}

// step is what the reconciler does about a doubt now, by the same rules: without
// the tool that it was sent with it is handed over, and nothing is sent again that
// a freeze or a revoked right holds back.
func (p *Pages) step(ctx context.Context, op ledger.Operation, evidence []ledger.Evidence) (reconcile.Step, error) {
	t, err := p.cfg.Registry.Version(ctx, op.ToolVersion)
	if err != nil {
		return reconcile.Step{Do: reconcile.HandOver}, nil
	}
	s := reconcile.Next(op, evidence, &t.Spec, p.now(), p.cfg.Doubts)
	if s.Do != reconcile.Retry {
		return s, nil
	}
	guard, err := p.cfg.Ledger.Guard(ctx, op.Tenant)
	subject := op.Subject()
	subject.Undo = true // a freeze of new work lets a repeat through, as it does an undo
	if err == nil && guard.Check(subject) != nil {
		without := p.cfg.Doubts
		without.Retries = -1
		s = reconcile.Next(op, evidence, &t.Spec, p.now(), without)
	}
	return s, err
}

// next puts that in words.
func (v *doubtView) next(s reconcile.Step, now time.Time) {
	switch {
	case v.Person && v.MayAsk:
		v.Next = "Nothing by itself: a person asks again, or says what happened."
	case v.Person:
		v.Next = "Nothing by itself: a person looks in the outside system, and says here what happened."
	case s.Do == reconcile.Wait:
		v.Next, v.At = "The gateway looks again", momentAt(s.At, now)
	case s.Do == reconcile.Retry:
		v.Next = "The gateway sends the same again, under the same key."
	case s.Do == reconcile.HandOver:
		v.Next = "The gateway hands it to people."
	case s.Do == reconcile.Absent:
		v.Next = "The gateway concludes that it did not happen."
	default:
		v.Next = "The gateway is asking the outside system."
	}
}

// handedOver is why people must find out.
func handedOver(events []ledger.Event) string {
	for _, e := range slices.Backward(events) {
		if e.Verb == ledger.VerbHandOver && e.Reason != nil {
			return e.Reason.Text
		}
	}
	return ""
}

// doubtsMark names what a page of doubts shows. While there are any, it changes
// with the minute: answers that prove nothing, and how long ago they came, move no
// operation.
func (p *Pages) doubtsMark(lists ...ledger.Page) string {
	mark := queueMark(lists...)
	for _, list := range lists {
		if len(list.Operations) > 0 {
			return mark + p.now().Format("-1504")
		}
	}
	return mark
}

// currentDoubtsMark is doubtsMark as of now.
func (p *Pages) currentDoubtsMark(ctx context.Context, tenant string, d doubtsQuery) (string, error) {
	forPeople, forGateway, err := p.lists(ctx, tenant, d)
	return p.doubtsMark(forPeople, forGateway), err
}
