package web

import (
	"context"
	"net/http"
	"slices"

	"countersign/ledger"
	"countersign/tools"
)

// operationsLimit is how many operations one page of the ledger shows.
const operationsLimit = 50

// operationsPage is the ledger, the newest first, filtered.
type operationsPage struct {
	frame
	Rows   []operationRow
	States []choice
	Tools  []choice
	Agents []choice
	Key    string
	Run    string
	// Filtered: some filter is set. Later: this is not the first page.
	Filtered, Later bool
	First, Next     string
	// NoRun is the address without the run filter.
	NoRun string
}

// choice is one entry of a filter.
type choice struct {
	Value, Label string
	Chosen       bool
}

// operationRow is one line of the ledger.
type operationRow struct {
	ID, Tool, Headline, Agent, Key string
	Generation                     int
	Reversible                     bool
	Badge                          badge
	OnList                         bool
	EffectID                       string
	At                             *moment
	Updated                        *moment
}

func (p *Pages) operations(w http.ResponseWriter, r *http.Request) {
	v, err := p.operationsView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "operations", v)
}

func (p *Pages) operationsView(r *http.Request) (*operationsPage, error) {
	ctx, me := r.Context(), person(r.Context())
	q := r.URL.Query()
	state, tool, agent, key, run := q.Get("state"), q.Get("tool"), q.Get("agent"), q.Get("key"), q.Get("run")
	f := ledger.Filter{Tenant: me.Tenant, Tool: tool, Agent: agent, Key: key, Run: run, Cursor: q.Get("cursor"), Limit: operationsLimit}
	// A state that does not exist is no filter: an address by hand harms nobody.
	if slices.Contains(ledger.States, ledger.State(state)) {
		f.States = []ledger.State{ledger.State(state)}
	} else {
		state = ""
	}
	page, err := p.cfg.Ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	v := &operationsPage{
		frame: p.frame(r, "operations", "Ledger"), Tools: p.toolChoices(tool), Key: key, Run: run,
		Filtered: state+tool+agent+key+run != "", Later: f.Cursor != "",
	}
	v.States = stateChoices(state)
	if v.Agents, err = p.agentChoices(ctx, me.Tenant, agent); err != nil {
		return nil, err
	}
	members := []string{"state", state, "tool", tool, "agent", agent, "key", key, "run", run}
	v.First = address("/operations", members...)
	v.NoRun = address("/operations", members[:8]...)
	if page.Next != "" {
		v.Next = address("/operations", append(members, "cursor", page.Next)...)
	}
	for _, op := range page.Operations {
		v.Rows = append(v.Rows, operationRow{
			ID: op.ID, Tool: op.Tool, Headline: p.listHeadline(ctx, op), Agent: op.Agent.Name, Key: op.Key, Generation: op.Generation,
			Reversible: op.Reversible, Badge: badgeOf(op.State), OnList: op.OnList, EffectID: op.EffectID,
			At: p.when(op.CreatedAt), Updated: p.when(op.UpdatedAt),
		})
	}
	return v, nil
}

// listHeadline is the headline of an operation in a list. The plan, which tells
// what in it is sensitive, is read only where a tool marks anything.
func (p *Pages) listHeadline(ctx context.Context, op ledger.Operation) string {
	t, err := p.cfg.Registry.Version(ctx, op.ToolVersion)
	if err == nil && len(t.Sensitive) == 0 {
		return cutTo(op.Headline, headChars)
	}
	plan, err := p.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return op.Tool
	}
	_, redacted := p.redact(ctx, op, plan)
	return cutTo(drawer{mask: maskOf(plan.Args, redacted)}.hide(op.Headline), headChars)
}

// stateChoices are the states that an operation can be in.
func stateChoices(chosen string) []choice {
	list := make([]choice, 0, len(ledger.States))
	for _, s := range ledger.States {
		list = append(list, choice{Value: string(s), Label: badges[s].Label, Chosen: string(s) == chosen})
	}
	return list
}

// toolChoices are the tools in force that change something, since reading makes no
// operation, and the chosen one also when it is gone.
func (p *Pages) toolChoices(chosen string) []choice {
	names := []string{}
	for _, t := range p.cfg.Registry.List() {
		if t.Access == tools.Write {
			names = append(names, t.Name)
		}
	}
	if chosen != "" {
		names = append(names, chosen)
	}
	slices.Sort(names)
	list := []choice{}
	for _, name := range slices.Compact(names) {
		list = append(list, choice{Value: name, Label: name, Chosen: name == chosen})
	}
	return list
}

// agentChoices are the tenant's agents, revoked ones too: the record speaks of
// them.
func (p *Pages) agentChoices(ctx context.Context, tenant, chosen string) ([]choice, error) {
	agents, err := p.cfg.Identity.ListAgents(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := []choice{}
	found := chosen == ""
	for _, a := range agents {
		label := a.Name
		if !a.RevokedAt.IsZero() {
			label += " (revoked)"
		}
		found = found || a.ID == chosen
		list = append(list, choice{Value: a.ID, Label: label, Chosen: a.ID == chosen})
	}
	if !found {
		list = append(list, choice{Value: chosen, Label: chosen, Chosen: true})
	}
	return list, nil
}
