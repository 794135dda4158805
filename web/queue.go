package web

import (
	"context"
	"errors"
	"net/http"

	"countersign/approvals"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
)

// queueLimit is how many asks one page of the queue shows.
const queueLimit = 50

// queuePage is what waits for people, the oldest first.
type queuePage struct {
	frame
	Rows []queueRow
	// Doubts are operations whose outcome is not known.
	Doubts []doubtRow
	// DoubtsMore: there are more than fit.
	DoubtsMore bool
	Next       string
	// Later: this is not the first page.
	Later bool
	// NeedPerson counts the doubts that only a person can settle.
	NeedPerson int
	// Tools in force, for the hint of an empty page.
	Tools int
}

// queueRow is one ask.
type queueRow struct {
	ID, Tool   string
	Headline   []piece
	Amount     string
	Reversible bool
	Agent      string
	Asked      *moment
	Expires    *moment
	Given      int
	Total      int
	// Round counts how often people were asked.
	Round int
	// Yours: the viewer may decide. Else WhyNot says why not.
	Yours  bool
	WhyNot string
	// Settled: it stood here when the page was opened, and no longer waits. Its
	// row stays in its place until the page is opened anew, so that nothing moves
	// under a finger.
	Settled bool
	Badge   badge
}

// Dots draw the progress.
func (r queueRow) Dots() []bool { return dots(r.Given, r.Total) }

// doubtRow is one unknown outcome.
type doubtRow struct {
	ID, Tool string
	Headline []piece
	Since    *moment
	// NeedsPerson: only a person can find out.
	NeedsPerson bool
}

func (p *Pages) queue(w http.ResponseWriter, r *http.Request) {
	v, err := p.queueView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "approvals", v)
}

func (p *Pages) queueView(r *http.Request) (*queuePage, error) {
	ctx, me := r.Context(), person(r.Context())
	q := r.URL.Query()
	cursor := q.Get("cursor")
	page, err := p.cfg.Approvals.Queue(ctx, me.Tenant, cursor, queueLimit)
	if err != nil {
		return nil, err
	}
	doubts, err := p.doubts(ctx, me.Tenant)
	if err != nil {
		return nil, err
	}
	v := &queuePage{frame: p.frame(r, "approvals", "Approvals"), Later: cursor != "", DoubtsMore: doubts.Next != "", Tools: len(p.cfg.Registry.List())}
	if v.Rows, err = p.queueRows(ctx, me, page.Operations, shownIDs(q["shown"])); err != nil {
		return nil, err
	}
	for _, op := range doubts.Operations {
		v.Doubts = append(v.Doubts, doubtRow{ID: op.ID, Tool: op.Tool, Headline: p.headlineOf(ctx, op), Since: p.when(op.UnknownSince), NeedsPerson: op.OnList})
		if op.OnList {
			v.NeedPerson++
		}
	}
	if page.Next != "" {
		v.Next = address("/approvals", "cursor", page.Next)
	}
	members := []string{liveParam, "1", "cursor", cursor}
	for _, row := range v.Rows {
		members = append(members, "shown", row.ID)
	}
	v.Self = address("/approvals", members...)
	v.Stream = address("/events", "queue", "1", "cursor", cursor, "seen", queueMark(page, doubts))
	return v, nil
}

// doubts lists unknown outcomes, the oldest first.
func (p *Pages) doubts(ctx context.Context, tenant string) (ledger.Page, error) {
	return p.cfg.Ledger.List(ctx, ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Unknown}, OldestFirst: true, Limit: queueLimit})
}

// shownIDs are the rows that the browser shows now, no more than two pages.
func shownIDs(ids []string) []string {
	return ids[:min(len(ids), 2*queueLimit)]
}

// queueRows draws the rows that the browser shows in their places, waiting or
// not, and behind them what came since.
func (p *Pages) queueRows(ctx context.Context, me identity.Operator, waiting []ledger.Operation, shown []string) ([]queueRow, error) {
	var rows []queueRow
	done := map[string]bool{}
	for _, id := range shown {
		if done[id] {
			continue
		}
		done[id] = true
		row, err := p.queueRow(ctx, me, id)
		if fault.Is(err, fault.OperationNotFound) {
			continue // never ours to show
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for _, op := range waiting {
		if done[op.ID] {
			continue
		}
		row, err := p.queueRow(ctx, me, op.ID)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (p *Pages) queueRow(ctx context.Context, me identity.Operator, id string) (queueRow, error) {
	c, err := p.cfg.Approvals.Card(ctx, approvals.PersonOf(me), me.Tenant, id)
	if err != nil {
		return queueRow{}, err
	}
	op := c.Operation
	spec, redacted := p.redact(ctx, op, c.Plan)
	row := queueRow{
		ID: op.ID, Tool: op.Tool, Headline: headline(c.Plan.Headline, spec, c.Plan.Args, redacted), Amount: totalsOf(c.Plan.Effects).Amount(), Reversible: op.Reversible,
		Agent: op.Agent.Name, Asked: p.when(op.CreatedAt), Total: places(op.Requirement), Round: op.Round, Badge: badgeOf(op.State),
		Settled: op.State != ledger.AwaitingApproval,
	}
	row.Given = row.Total - c.Missing
	if row.Settled {
		return row, nil
	}
	row.Expires = p.when(op.ExpiresAt)
	row.Yours, row.WhyNot = c.May, shortWhyNot(c, me)
	if !p.now().Before(op.ExpiresAt) {
		row.Yours, row.WhyNot = false, "time is over"
	}
	return row, nil
}

// shortWhyNot says in a few words why an ask is not the viewer's to decide.
func shortWhyNot(c approvals.Card, me identity.Operator) string {
	switch {
	case c.May:
		return ""
	case c.Decided != nil:
		return "you said yes"
	case c.Operation.Agent.Owner == me.ID:
		return "your own agent asks"
	default:
		return "asks " + quorum(c.Operation.Requirement.Groups)
	}
}

// queueMark names what a page of the queue shows: which operations, at which
// versions.
func queueMark(lists ...ledger.Page) string {
	var parts []string
	for _, list := range lists {
		for _, op := range list.Operations {
			parts = append(parts, op.ID, operationMark(op))
		}
		parts = append(parts, list.Next)
	}
	return digestOf(parts...)
}

// currentQueueMark is queueMark as of now.
func (p *Pages) currentQueueMark(ctx context.Context, tenant, cursor string) (string, error) {
	page, err1 := p.cfg.Approvals.Queue(ctx, tenant, cursor, queueLimit)
	doubts, err2 := p.doubts(ctx, tenant)
	return queueMark(page, doubts), errors.Join(err1, err2)
}
