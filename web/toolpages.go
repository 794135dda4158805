package web

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// toolsPage lists the tools in force.
type toolsPage struct {
	frame
	Writes, Reads []toolRow
}

// toolRow is one tool in the list.
type toolRow struct {
	Name, Description string
	Write, Reversible bool
	Approval          string
	Lacks             []string
	Frozen            bool
}

// toolPage is all that one tool declares, and what it lacks.
type toolPage struct {
	frame
	toolRow
	Says     []fact
	Upstream string
	Digest   string
	Rules    []ruleRow
	Warnings []string
	Schema   string
	Source   string
	Freeze   string
	LedgerAt string
}

// fact is one promise of a tool in plain words.
type fact struct {
	Title, Text string
	// Good, or else something to know before trusting it.
	Good bool
}

// ruleRow is one approval rule: first match wins.
type ruleRow struct {
	When, Then string
	// Amount says a condition on an amount in words, if it is one.
	Amount string
}

func (p *Pages) tools(w http.ResponseWriter, r *http.Request) {
	g, err := p.cfg.Ledger.Guard(r.Context(), person(r.Context()).Tenant)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	v := toolsPage{frame: p.frame(r, "tools", "Tools")}
	for _, t := range p.cfg.Registry.List() {
		row := toolRowOf(t, g)
		if row.Write {
			v.Writes = append(v.Writes, row)
		} else {
			v.Reads = append(v.Reads, row)
		}
	}
	p.render(w, r, http.StatusOK, "tools", v)
}

func (p *Pages) tool(w http.ResponseWriter, r *http.Request) {
	t, ok := p.cfg.Registry.Get(chi.URLParam(r, "name"))
	if !ok {
		p.problem(w, r, fault.New(fault.ToolNotFound, "There is no tool of this name in force. Operations of tools that were taken away are still in the ledger."))
		return
	}
	g, err := p.cfg.Ledger.Guard(r.Context(), person(r.Context()).Tenant)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	v := toolPage{
		frame: p.frame(r, "tools", t.Name), toolRow: toolRowOf(t, g), Says: facts(&t.Spec), Upstream: t.UpstreamURL,
		Digest: t.Version, Rules: ruleRows(t.Approval), Warnings: t.Warnings,
		Schema: indented(t.InputSchema), Source: string(t.Manifest),
		LedgerAt: address("/operations", "tool", t.Name),
	}
	if f, held := g.Frozen(t.Name); held {
		v.Freeze = f.Reason
	}
	p.render(w, r, http.StatusOK, "tool", v)
}

func toolRowOf(t *tools.Tool, g ledger.Guard) toolRow {
	_, frozen := g.Frozen(t.Name)
	row := toolRow{
		Name: t.Name, Description: t.Description, Write: t.Access == tools.Write, Reversible: t.Reversible, Lacks: t.Lacks, Frozen: frozen,
	}
	if row.Write {
		row.Approval = approvalInShort(t.Approval)
	}
	return row
}

// approvalInShort says in a few words who is asked.
func approvalInShort(rules []tools.ApprovalRule) string {
	asks, denies, auto := 0, 0, 0
	for _, r := range rules {
		switch r.Outcome {
		case tools.OutcomeApprove:
			asks++
		case tools.OutcomeDeny:
			denies++
		default:
			auto++
		}
	}
	switch {
	case len(rules) == 1 && asks == 1:
		return "Always asks " + quorum(rules[0].Groups)
	case asks == 0 && denies == 0:
		return "Asks nobody"
	case auto == 0:
		return "Always asks people, by " + count(len(rules), "rule", "rules")
	default:
		return "Asks people by " + count(len(rules), "rule", "rules")
	}
}

func ruleRows(rules []tools.ApprovalRule) []ruleRow {
	rows := make([]ruleRow, 0, len(rules))
	for _, r := range rules {
		row := ruleRow{When: r.When, Amount: amountWords(r.When)}
		switch r.Outcome {
		case tools.OutcomeAuto:
			row.Then = "nobody is asked"
		case tools.OutcomeApprove:
			row.Then = quorum(r.Groups) + " must say yes"
		default:
			row.Then = "denied"
			if r.Reason != "" {
				row.Then += ": " + r.Reason
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// facts put what a write tool declares into plain words. Not known counts as no.
func facts(s *tools.Spec) []fact {
	if s.Access != tools.Write {
		return []fact{{"Reads only", "It changes nothing, so there is no preview, no commit and no operation.", true}}
	}
	list := []fact{
		undoFact(s),
		keyFact(s),
		lookupFact(s),
		{"One request at a time", "The gateway waits up to " + span(s.Timeout) + " for an answer; after that the outcome is unknown.", true},
		{"Where the key comes from", keySources[s.KeySource], true},
	}
	if s.ApprovalExpiry > 0 {
		list = append(list, fact{"Time to decide", "People have " + span(s.ApprovalExpiry) + "; then it expires. A yes may be " + span(s.ApprovalMaxAge) + " old when it is sent.", true})
	}
	if s.NeedsRun {
		list = append(list, fact{"Needs a run", "It depends on earlier steps; calls outside a run are refused.", true})
	}
	return list
}

var keySources = map[tools.KeySource]string{
	tools.KeyTemplate:   "The tool makes it from the arguments, so that the same intent always has the same key.",
	tools.KeyFromCaller: "The agent gives it, one for each intent.",
	tools.KeyFromRun:    "It follows from the run, step and call that the agent names.",
}

func undoFact(s *tools.Spec) fact {
	switch {
	case s.Reversible && s.UndoTool != "":
		return fact{"Can be undone", "The tool " + s.UndoTool + " takes it back.", true}
	case s.Reversible:
		return fact{"Can be undone", "The manifest says so.", true}
	case s.UndoTool != "":
		return fact{"Cannot be undone", "The tool " + s.UndoTool + " may still stop it for a while, but nothing promises that.", false}
	default:
		return fact{"Cannot be undone", "There is no way back. That is why people are asked.", false}
	}
}

func keyFact(s *tools.Spec) fact {
	if s.HonoursKey {
		return fact{"At most one effect", "The outside system honours our key for " + span(s.KeyRetention) + " after the first request: the same key twice has one effect.", true}
	}
	return fact{"At most one request", "The outside system does not promise to honour keys, so the gateway sends a request once and never repeats it.", false}
}

func lookupFact(s *tools.Spec) fact {
	switch s.Consistency {
	case tools.Strong:
		return fact{"A lost answer can be looked up", "The outside system can be asked what became of a request, and its answer is current.", true}
	case tools.Eventual:
		return fact{"A lost answer can be looked up", "The outside system can be asked what became of a request, but its answer may lag behind.", true}
	default:
		return fact{"A lost answer needs a person", "The outside system can’t be asked what became of a request. If an answer is lost, somebody has to find out.", false}
	}
}
