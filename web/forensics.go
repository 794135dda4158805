package web

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/identity"
	"countersign/ledger"
)

// forensicsPage holds the four explanations of a duplicate against the record of
// one operation (R138).
type forensicsPage struct {
	frame
	ID, Tool string
	Headline []piece
	Badge    badge
	Drill    bool
	// Supported and Open count the explanations; Effects are the effects that were
	// seen in all that is compared.
	Supported, Open int
	Effects         int
	Hypotheses      []hypothesisView
	Compared        []comparedView
}

// hypothesisView is one explanation.
type hypothesisView struct {
	Name           string
	Title, Meaning string
	// Then is what follows if it is so.
	Then      string
	Supported bool
	Badge     badge
	Evidence  [][]linked
}

// linked is a piece of a sentence; ID is the operation that it names, if any.
type linked struct{ Text, ID string }

// comparedView is one operation with the same arguments, key or goal.
type comparedView struct {
	This                            bool
	ID, Tool, Key, Request, Agent   string
	Run, RunURL, Step, Call, Effect string
	Same                            string
	Generation                      int
	Badge                           badge
	At                              *moment
}

// hypotheses are the explanations in plain words.
var hypotheses = map[ledger.HypothesisName][3]string{
	ledger.TwoPlans: {
		"The agent planned two actions", "Two tool calls, each with a key of its own: to the gateway these are two intents.",
		"Ask the agent’s owner whether both were wanted. If not, take one back.",
	},
	ledger.NeverRan: {
		"This one never ran", "There is no second effect, so there is no duplicate.",
		"Leave the other one as it is: taking it back would undo the only effect.",
	},
	ledger.SubmittedTwice: {
		"The client submitted one call twice", "One tool call of the agent came under two keys, so that the gateway could not know it again.",
		"Give the client one key for each call: by the arguments, or by run, step and call. Take one effect back.",
	},
	ledger.LostReply: {
		"A lost reply led to a repeat", "It was sent, the answer did not come back, and somebody asked for it again.",
		"Look at whoever repeated it: a repeat belongs under the same key, and is then answered with the first result.",
	},
}

var hypothesisBadges = map[ledger.HypothesisVerdict]badge{
	ledger.HypothesisSupported: {Label: "The record supports it", Icon: "check", Tone: "doubt"},
	ledger.HypothesisExcluded:  {Label: "Ruled out", Icon: "x", Tone: "still"},
	ledger.HypothesisOpen:      {Label: "Open", Icon: "circle-help", Tone: "wait"},
}

func (p *Pages) forensics(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	op, found, err := p.cfg.Ledger.Forensics(ctx, me.Tenant, chi.URLParam(r, "id"))
	if err != nil {
		p.problem(w, r, err)
		return
	}
	v := &forensicsPage{
		frame: p.frame(r, "operations", "Duplicate? · "+op.ID), ID: op.ID, Tool: op.Tool, Headline: p.headlineOf(ctx, op), Badge: badgeOf(op.State),
		Drill: op.EvidenceBoundary == "drill",
	}
	for _, h := range found {
		words := hypotheses[h.Name]
		one := hypothesisView{
			Name: string(h.Name), Title: words[0], Meaning: words[1], Then: words[2], Supported: h.Verdict == ledger.HypothesisSupported, Badge: hypothesisBadges[h.Verdict],
		}
		for _, sentence := range h.Evidence {
			one.Evidence = append(one.Evidence, linkOperations(cutTo(sentence, 4*longText), op.ID))
		}
		switch h.Verdict {
		case ledger.HypothesisSupported:
			v.Supported++
		case ledger.HypothesisOpen:
			v.Open++
		}
		v.Hypotheses = append(v.Hypotheses, one)
	}
	// What the record supports is read first; else the order stays.
	slices.SortStableFunc(v.Hypotheses, func(a, b hypothesisView) int {
		switch {
		case a.Supported == b.Supported:
			return 0
		case a.Supported:
			return -1
		}
		return 1
	})
	if err := p.compare(ctx, me, op, v); err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "forensics", v)
}

// comparedLimit is how many operations are laid side by side for each reason.
const comparedLimit = 50

// compare lays the operation beside those with its arguments, its key or its goal,
// the oldest first.
func (p *Pages) compare(ctx context.Context, me identity.Operator, op ledger.Operation, v *forensicsPage) error {
	asked := []struct {
		same   string
		filter ledger.Filter
	}{
		{"same arguments", ledger.Filter{Tool: op.Tool, Args: op.ArgsDigest}},
		{"same key", ledger.Filter{Tool: op.Tool, Key: op.Key}},
	}
	if op.Goal != nil {
		asked = append(asked, struct {
			same   string
			filter ledger.Filter
		}{"same goal", ledger.Filter{Goal: op.Goal}})
	}
	all := map[string]ledger.Operation{op.ID: op}
	same := map[string][]string{}
	for _, a := range asked {
		a.filter.Tenant, a.filter.Limit = me.Tenant, comparedLimit
		page, err := p.cfg.Ledger.List(ctx, a.filter)
		if err != nil {
			return err
		}
		for _, o := range page.Operations {
			all[o.ID] = o
			same[o.ID] = append(same[o.ID], a.same)
		}
	}
	list := make([]ledger.Operation, 0, len(all))
	for _, o := range all {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b ledger.Operation) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, o := range list {
		c := comparedView{
			This: o.ID == op.ID, ID: o.ID, Tool: o.Tool, Key: o.Key, Generation: o.Generation, Request: o.RequestID, Effect: o.EffectID,
			Agent: nameOr(ledger.Actor{ID: o.Agent.ID, Name: o.Agent.Name}), Badge: badgeOf(o.State), At: p.when(o.CreatedAt),
			Same: strings.Join(same[o.ID], ", "),
		}
		if o.Run != nil {
			c.Run, c.RunURL, c.Step, c.Call = o.Run.ID, runURL(o.Run.ID, o.Agent.ID), o.Run.Step, o.Run.Call
		}
		if o.EffectID != "" && !o.State.Void() {
			v.Effects++
		}
		v.Compared = append(v.Compared, c)
	}
	return nil
}

// operationID is what an operation's id looks like.
var operationID = regexp.MustCompile(`\bop_[0-9a-z]{26}\b`)

// linkOperations parts a sentence of the record at the ids of operations in it. The
// operation that the page is about leads nowhere.
func linkOperations(sentence, own string) []linked {
	var parts []linked
	at := 0
	for _, m := range operationID.FindAllStringIndex(sentence, -1) {
		id := sentence[m[0]:m[1]]
		if id == own {
			continue
		}
		if m[0] > at {
			parts = append(parts, linked{Text: sentence[at:m[0]]})
		}
		parts, at = append(parts, linked{Text: id, ID: id}), m[1]
	}
	if at < len(sentence) {
		parts = append(parts, linked{Text: sentence[at:]})
	}
	return parts
}
