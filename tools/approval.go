package tools

import (
	"fmt"
	"slices"
)

// DefaultRule is the name of the approval rule that is written out when a
// manifest has none, or none that always holds.
const DefaultRule = "default"

// buildApproval compiles the rules and writes the default out.
func (b *builder) buildApproval() {
	spec := &b.m.Spec
	n := b.root.get("approval")
	closed := false
	if n != nil {
		for i, item := range n.items {
			if item.kind != mapNode {
				continue
			}
			rule := b.approvalRule(item)
			if rule == nil {
				continue
			}
			if closed {
				b.ps.at(item.pos, "Put it before the rule without `when`, or take it out.", "This rule is never reached: the rule before it always holds.")
				continue
			}
			closed = rule.When == ""
			if rule.Name == "" {
				rule.Name = fmt.Sprintf("rule %d", i+1)
			}
			spec.Approval = append(spec.Approval, *rule)
		}
	}
	if !closed {
		spec.Approval = append(spec.Approval, defaultRule(spec))
	}
	b.approvalTimes()
	b.minRetention()
}

// defaultRule is what holds when the manifest says nothing: an irreversible
// effect has one approver, and so has one that could be neither repeated safely
// nor looked up.
func defaultRule(spec *Spec) ApprovalRule {
	rule := ApprovalRule{Name: DefaultRule, Outcome: OutcomeAuto, Match: alwaysMatch}
	if !spec.Reversible || !spec.HonoursKey && spec.Consistency == NoLookup {
		rule.Outcome, rule.Groups = OutcomeApprove, map[string]int{AnyGroup: 1}
	}
	return rule
}

func alwaysMatch(map[string]any, []Effect, Agent) (bool, error) { return true, nil }

func (b *builder) approvalRule(n *node) *ApprovalRule {
	rule := &ApprovalRule{Name: n.get("name").text(), Match: alwaysMatch}
	if rule.Name == DefaultRule {
		b.ps.at(n.get("name").pos, "Choose another name.", "`%s` is the name of the rule that is added at the end.", DefaultRule)
	}
	var forms []string
	for _, form := range []string{"approve", "auto", "deny"} {
		if n.has(form) {
			forms = append(forms, form)
		}
	}
	switch {
	case len(forms) == 0:
		b.ps.at(n.pos, "Write `approve: {support: 1}`, `auto: true` or `deny: \"reason\"`.", "The rule does not say what happens.")
		return nil
	case len(forms) > 1:
		b.ps.at(n.keyPos(forms[1]), "Keep one of them.", "The rule says both `%s` and `%s`.", forms[0], forms[1])
		return nil
	}
	switch forms[0] {
	case "approve":
		rule.Outcome, rule.Groups = OutcomeApprove, map[string]int{}
		for _, m := range n.get("approve").members {
			quorum, ok := m.node.integer()
			if !ok || quorum < 1 {
				return nil // said by the grammar
			}
			rule.Groups[m.name] = quorum
		}
		if len(rule.Groups) == 0 {
			return nil // said by the grammar
		}
	case "auto":
		rule.Outcome = OutcomeAuto
	case "deny":
		rule.Outcome, rule.Reason = OutcomeDeny, n.get("deny").text()
	}
	if when := n.get("when"); when != nil {
		e := b.bare(when, scopeApproval, wantBool)
		if e == nil {
			return nil
		}
		b.checkMoneyRule(when, e)
		rule.When = e.text
		rule.Match = b.m.matcher(e)
	}
	return rule
}

// checkMoneyRule refuses a rule over money that no effect declares: it would
// never hold.
func (b *builder) checkMoneyRule(n *node, e *expr) {
	declared := slices.ContainsFunc(b.m.effects, func(t effectTemplate) bool { return t.amount != nil })
	if slices.Contains(e.uses.methods, "money") && slices.Contains(e.uses.vars, "effects") && !declared && len(b.m.effects) > 0 {
		b.ps.at(n.pos, "Add `money: {amount: …, currency: …}` to the effect.", "No effect declares money: this rule would never hold.")
	}
}

// matcher evaluates a rule over what was predicted.
func (m *Manifest) matcher(e *expr) func(map[string]any, []Effect, Agent) (bool, error) {
	return func(args map[string]any, effects []Effect, agent Agent) (bool, error) {
		return e.truth(m.vars(values{args: args, effects: effects, agent: agent}))
	}
}

// approvalTimes reads how long a round waits and how old a yes may be.
func (b *builder) approvalTimes() {
	spec := &b.m.Spec
	spec.ApprovalExpiry = b.duration("approval_expires", defaultExpiry)
	age := spec.ApprovalExpiry
	if !spec.Reversible {
		age = min(age, defaultIrreversibleAt)
	}
	spec.ApprovalMaxAge = b.duration("approval_max_age", age)
	if n := b.root.get("approval_max_age"); n != nil && spec.ApprovalMaxAge > spec.ApprovalExpiry {
		b.ps.at(n.pos, "Write at most the time that a round waits (`approval_expires`).", "A yes can't be used after its round has expired.")
	}
}
