package web

import (
	"net/http"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
)

// runsPage lists the runs of agents, the newest first.
type runsPage struct {
	frame
	Rows []runRow
	Next string
	// Later: this is not the first page.
	Later bool
}

// runRow is one run.
type runRow struct {
	ID, Agent  string
	URL        string
	Operations int
	Newest     *moment
	Closed     *moment
}

// runPage is what one run changed in the world, and its undo.
type runPage struct {
	frame
	ID, Agent, AgentID string
	URL                string
	Closed             *moment
	ClosedBy           string
	Entries            []entryView
	// MayUndo: the run can be taken back; else WhyNot says why not.
	MayUndo bool
	WhyNot  string
	Plan    *planView
}

// entryView is one entry of the journal.
type entryView struct {
	ID, Tool, Step, Call string
	Headline             []piece
	Badge                badge
	EffectID             string
	At                   *moment
	Result               []row
	Stale                []string
	Undoes               []undoRow
}

// undoRow is one undo of an entry.
type undoRow struct {
	ID    string
	Badge badge
	At    *moment
}

// planView is the undo of the run as it would be.
type planView struct {
	Items   []planItem
	Token   string
	Count   int
	Asks    int
	Stopped string
	Expires *moment
}

// planItem is one effect of the plan, newest first.
type planItem struct {
	ID       string
	Headline []piece
	Possible bool
	Because  string
	// How is the headline of the undo.
	How  []piece
	Asks bool
	Who  string
}

const runsLimit = 50

func (p *Pages) runs(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	cursor := r.URL.Query().Get("cursor")
	page, err := p.cfg.Ledger.Runs(ctx, ledger.RunFilter{Tenant: me.Tenant, Cursor: cursor, Limit: runsLimit})
	if err != nil {
		p.problem(w, r, err)
		return
	}
	names, err := p.agentNames(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	v := &runsPage{frame: p.frame(r, "runs", "Runs"), Later: cursor != ""}
	for _, h := range page.Runs {
		v.Rows = append(v.Rows, runRow{
			ID: h.ID, Agent: orID(names[h.Agent], h.Agent), URL: runURL(h.ID, h.Agent), Operations: h.Operations,
			Newest: p.when(h.Newest), Closed: p.when(h.ClosedAt),
		})
	}
	if page.Next != "" {
		v.Next = address("/runs", "cursor", page.Next)
	}
	p.render(w, r, http.StatusOK, "runs", v)
}

func orID(name, id string) string {
	if name == "" {
		return id
	}
	return name
}

// agentNames are the tenant's agents by id.
func (p *Pages) agentNames(r *http.Request) (map[string]string, error) {
	agents, err := p.cfg.Identity.ListAgents(r.Context(), person(r.Context()).Tenant)
	names := make(map[string]string, len(agents))
	for _, a := range agents {
		names[a.ID] = a.Name
	}
	return names, err
}

// runURL is the page of a run. Runs are the agent's own words, so the id stands in
// the query, where every character has a place.
func runURL(run, agent string) string { return address("/run", "id", run, "agent", agent) }

func (p *Pages) run(w http.ResponseWriter, r *http.Request) {
	v, err := p.runView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "run", v)
}

func (p *Pages) runView(r *http.Request) (*runPage, error) {
	ctx, me := r.Context(), person(r.Context())
	run, agent := r.URL.Query().Get("id"), r.URL.Query().Get("agent")
	j, err := p.cfg.Ledger.Journal(ctx, me.Tenant, agent, run)
	switch {
	case err != nil:
		return nil, err
	case len(j.Entries) == 0:
		return nil, fault.New(fault.RunNotFound, "There is no such run.")
	}
	v := &runPage{
		frame: p.frame(r, "runs", "Run"), ID: run, AgentID: agent, Agent: j.Entries[0].Operation.Agent.Name, URL: runURL(run, agent),
		Closed: p.when(j.Run.ClosedAt), ClosedBy: actorName(j.Run.ClosedBy, me.ID),
	}
	for _, e := range j.Entries {
		v.Entries = append(v.Entries, p.entry(r, e))
	}
	if err := j.Undoable(); err != nil {
		v.WhyNot = fault.Of(err).Detail
	} else {
		v.MayUndo = p.cfg.Previews != nil
	}
	return v, nil
}

func (p *Pages) entry(r *http.Request, e ledger.JournalEntry) entryView {
	op := e.Operation
	v := entryView{
		ID: op.ID, Tool: op.Tool, Headline: p.headlineOf(r.Context(), op), Badge: badgeOf(op.State), EffectID: op.EffectID, At: p.when(op.CreatedAt),
	}
	if op.Run != nil {
		v.Step, v.Call = op.Run.Step, op.Run.Call
	}
	v.Result = drawer{}.rows(op.Result, op.Result, nil)
	for _, s := range e.Stale {
		v.Stale = append(v.Stale, staleWords[s])
	}
	for _, u := range e.Undoes {
		v.Undoes = append(v.Undoes, undoRow{ID: u.ID, Badge: badgeOf(u.State), At: p.when(u.CreatedAt)})
	}
	return v
}

// staleWords say why a recorded result should not be built upon without a look.
var staleWords = map[string]string{
	ledger.StaleBeingUndone:   "its undo is under way",
	ledger.StaleUndone:        "it was undone",
	ledger.StaleRunClosed:     "the run was closed by its undo",
	ledger.StaleToolChanged:   "the tool has changed since",
	ledger.StaleToolWithdrawn: "the tool is no longer there",
	ledger.StaleAbsentOutside: "the outside system does not show it any more",
}

// planRunUndo works the plan out and shows it; nothing is changed.
func (p *Pages) planRunUndo(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	v, err := p.runView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	if p.cfg.Previews == nil {
		p.notFound(w, r)
		return
	}
	plan, err := p.cfg.Previews.UndoRun(ctx, preview.UndoRunRequest{Tenant: me.Tenant, AgentID: v.AgentID, Run: v.ID, By: operatorActor(me), RequestID: ledger.NewID("req_")})
	if err != nil {
		f := fault.Of(err)
		v.Notice = refusal(f)
		p.render(w, r, p.refused(w, r, f), "run", v)
		return
	}
	v.Plan = &planView{Token: plan.Token, Stopped: plan.Stopped, Expires: p.when(plan.ExpiresAt)}
	for _, item := range plan.Items {
		i := planItem{ID: item.Operation.ID, Headline: p.headlineOf(ctx, item.Operation), Possible: item.Possible, Because: item.Because}
		if item.Preview != nil {
			i.How, _ = p.planHeadline(item.Preview.Plan)
			i.Asks, i.Who = item.Preview.Requirement.Asks(), quorum(item.Preview.Requirement.Groups)
		}
		if item.Possible {
			v.Plan.Count++
		}
		if i.Asks {
			v.Plan.Asks++
		}
		v.Plan.Items = append(v.Plan.Items, i)
	}
	p.render(w, r, http.StatusOK, "run", v)
}

// undoRun opens the undos of a plan that was shown.
func (p *Pages) undoRun(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	run, agent := r.URL.Query().Get("id"), r.URL.Query().Get("agent")
	if p.cfg.Commits == nil {
		p.notFound(w, r)
		return
	}
	_, err := p.cfg.Commits.UndoRun(ctx, commit.UndoRunCommit{
		Tenant: me.Tenant, AgentID: agent, Run: run, Token: r.PostForm.Get("commit_token"), By: operatorActor(me), RequestID: ledger.NewID("req_"),
	})
	if err == nil {
		http.Redirect(w, r, runURL(run, agent), http.StatusSeeOther)
		return
	}
	f := fault.Of(err)
	v, viewErr := p.runView(r)
	if viewErr != nil {
		p.problem(w, r, err)
		return
	}
	v.Notice = refusal(f)
	p.render(w, r, p.refused(w, r, f), "run", v)
}
