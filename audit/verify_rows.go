package audit

import (
	"fmt"
	"slices"

	"countersign/ledger"
	"countersign/tools"
)

// rows is what is known of the operation whose lines are being read.
type rows struct {
	op   ledger.Operation
	head *head
	line int
	// proven: evidence names the effect that the row names.
	proven bool
	// strange counts decisions that no event tells of.
	strange int
	seen    map[string]int64 // operations by key and generation, for doubles
}

// operation checks one operation's row against its events.
func (v *verifier) operation(op ledger.Operation) {
	v.closeRow()
	entry := "operation " + op.ID
	h := v.chain.heads[op.ID]
	v.rows.op, v.rows.head, v.rows.line, v.rows.proven, v.rows.strange = op, h, v.n, false, 0
	switch {
	case h == nil:
		v.bad(Missing, entry, "There is no event of it.")
		return
	case h.row:
		v.bad(Doubled, entry, "Its row stands twice.")
		v.rows.head = nil
		return
	case op.Version > h.version:
		v.bad(TailCut, entry, "Its row is of version %d, and its events end with version %d.", op.Version, h.version)
	case op.Version < h.version:
		v.bad(RowDiffers, entry, "Its row is of version %d, and its last event of version %d.", op.Version, h.version)
	case op.Chain != h.hash:
		v.bad(RowDiffers, entry, "Its row does not name its last event.")
	case op.State != h.state:
		v.bad(RowDiffers, entry, "Its row says %s, and its last event %s.", op.State, h.state)
	case op.Fence != h.fence || op.Round != h.round || len(op.Attempts) != h.attempts || h.plan != "" && op.PlanDigest != h.plan:
		v.bad(RowDiffers, entry, "Its attempts, round or plan are not those of its last event.")
	case op.EffectID != h.effect:
		v.bad(RowDiffers, entry, "Its effect is not the one that its last event names.")
	}
	h.row = true
	key := op.Tenant + "\n" + op.Tool + "\n" + op.Key + "\n" + fmt.Sprint(op.Generation)
	if v.rows.seen == nil {
		v.rows.seen = map[string]int64{}
	}
	if before, twice := v.rows.seen[key]; twice {
		v.bad(Doubled, entry, "The operation in line %d has the same tool, key and generation.", before)
	}
	v.rows.seen[key] = int64(v.n)
}

// plan checks that an exported plan is that of one of the operation's rounds.
func (v *verifier) plan(p ExportedPlan) {
	op := v.rows.op
	entry := fmt.Sprintf("plan of round %d of %s", p.Round, p.Operation)
	switch {
	case p.Operation != op.ID:
		v.bad(Reordered, entry, "It does not stand behind its operation.")
	case p.Round == op.Round && p.Digest != op.PlanDigest:
		v.bad(Altered, entry, "It is not the plan that the operation names.")
	}
}

// decision checks that an event tells of a decision.
func (v *verifier) decision(d ledger.Decision) {
	entry := fmt.Sprintf("decision of %s on %s", d.Person, d.Operation)
	h := v.rows.head
	if d.Operation != v.rows.op.ID {
		v.bad(Reordered, entry, "It does not stand behind its operation.")
		return
	}
	if h == nil {
		return
	}
	w := word(d.Verb, d.Person, d.Round, d.Digest)
	switch told, there := h.words[w]; {
	case !there && v.chain.whole:
		v.rows.strange++
		v.bad(Altered, entry, "No event tells of it: %s in round %d.", d.Verb, d.Round)
	case told:
		v.bad(Doubled, entry, "It stands twice.")
	case there:
		h.words[w] = true
	}
}

// evidence checks that evidence which moved the operation is there, and that the
// effect is one that evidence names.
func (v *verifier) evidence(e ledger.Evidence) {
	entry := fmt.Sprintf("evidence %s of %s", e.ID, e.Operation)
	op, h := v.rows.op, v.rows.head
	if e.Operation != op.ID {
		v.bad(Reordered, entry, "It does not stand behind its operation.")
		return
	}
	if e.Verdict == tools.Succeeded && e.EffectID == op.EffectID {
		v.rows.proven = true
	}
	if h == nil {
		return
	}
	t := h.evidence[e.ID]
	switch {
	case t == nil: // it moved nothing
		t = &told{}
		h.evidence[e.ID] = t
	case t.there:
		v.bad(Doubled, entry, "It stands twice.")
	case t.digest != "" && t.digest != e.Digest():
		v.bad(Altered, entry, "It is not what the event names that it moved.")
	}
	t.there = true
}

// closeRow says what is missing behind an operation.
func (v *verifier) closeRow() {
	op, h := v.rows.op, v.rows.head
	v.rows.head = nil
	if h == nil {
		return
	}
	entry := "operation " + op.ID
	for _, w := range sorted(h.words) {
		switch {
		case h.words[w]:
		case v.rows.strange > 0:
			v.rows.strange-- // it is there, as another's word or about something else
		default:
			v.badAt(v.rows.line, Missing, entry, "A decision that an event tells of is missing.")
		}
	}
	for _, id := range sorted(h.evidence) {
		if !h.evidence[id].there {
			v.badAt(v.rows.line, Missing, entry, "The evidence %s, which an event names, is missing.", id)
		}
	}
	if op.State.Effective() && op.EffectID != "" && !v.rows.proven {
		v.badAt(v.rows.line, Altered, entry, "No evidence names the effect %s that it ends with.", op.EffectID)
	}
	h.words, h.evidence = nil, nil // they were seen
}

// closeRows finds operations whose row is not there.
func (v *verifier) closeRows() {
	var lost []*head
	names := map[*head]string{}
	for id, h := range v.chain.heads {
		if !h.row {
			lost = append(lost, h)
			names[h] = id
		}
	}
	slices.SortFunc(lost, func(a, b *head) int { return a.line - b.line })
	if !v.footer {
		return // the file breaks off; that is said
	}
	for _, h := range lost {
		v.badAt(h.line, Missing, "operation "+names[h], "There are events of it, and no row.")
	}
}

func sorted[V any](m map[string]V) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
