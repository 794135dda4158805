package planted

var policyTests = room("approvals/policy", ".")

// Who may decide, on what, and when it is enough.
var bugsPeople = []bug{
	{
		Name: "self_approval", Rule: "R15, S26: the agent's owner can't approve", By: simulator,
		edit: edit{"approvals/policy/undo.go", `case person == op.Agent.Owner:`, ``},
	},
	{
		Name: "approves_the_own_undo", Rule: "separation of duties: who asks for an undo can't approve it", By: simulator, First: 495,
		edit: edit{"approvals/policy/undo.go", `op.AskedBy != nil && person == op.AskedBy.ID:`, `op.AskedBy != nil && person == op.AskedBy.ID && !fault.Planted("approves_the_own_undo"):`},
	},
	{
		Name: "undo_of_another_owners", Rule: "S31: an agent asks for undos of its owner's agents only", By: policyTests,
		edit: edit{"approvals/policy/undo.go", `a.Agent.May(op.Tool) && a.Agent.Owner == op.Agent.Owner {`, `a.Agent.May(op.Tool) && (a.Agent.Owner == op.Agent.Owner || fault.Planted("undo_of_another_owners")) {`},
	},
	{
		Name: "nobody_asks_for_an_undo", Rule: "an undo has an asker of the tenant", By: policyTests,
		edit: edit{"approvals/policy/undo.go", `if a.Agent != nil && a.Agent.Tenant == a.Tenant || a.Agent == nil && a.By.Kind == "operator" && a.By.ID != "" {`, `if a.Agent != nil && a.Agent.Tenant == a.Tenant || a.Agent == nil && a.By.Kind == "operator" && a.By.ID != "" || fault.Planted("nobody_asks_for_an_undo") {`},
	},
	{
		Name: "disabled_approver", Rule: "row 31: a person who lost their rights counts no more", By: simulator,
		edit: edit{"approvals/policy/policy.go", `if p.Disabled {`, ``},
	},
	{
		Name: "approver_of_another_group", Rule: "R14: a yes counts from a group that is asked", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if g == tools.AnyGroup || slices.Contains(p.Groups, g) {`, `if g == tools.AnyGroup || slices.Contains(p.Groups, g) || fault.Planted("approver_of_another_group") {`},
	},
	{
		Name: "place_of_another_group", Rule: "R14: a person fills a place of their own group", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `|| group != tools.AnyGroup && !slices.Contains(people[i].Groups, group) {`, `|| group != tools.AnyGroup && !slices.Contains(people[i].Groups, group) && !fault.Planted("place_of_another_group") {`},
	},
	{
		Name: "empty_approver_set", Rule: "S30: an empty approver set denies", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `return len(groups) > 0`, `return len(groups) > 0 || fault.Planted("empty_approver_set")`},
	},
	{
		Name: "one_person_twice", Rule: "row 30: one person counts once", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if !slices.ContainsFunc(out, func(o Person) bool { return o.ID == p.ID }) {`, `if fault.Planted("one_person_twice") || !slices.ContainsFunc(out, func(o Person) bool { return o.ID == p.ID }) {`},
	},
	{
		Name: "yes_of_an_old_round", Rule: "a new round voids the decisions of the old", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if d.Round != op.Round {`, ``},
	},
	{
		Name: "shown_digest", Rule: "I12: a yes is to what was shown", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if d.Digest == digest {`, `if d.Digest == digest || fault.Planted("shown_digest") {`},
	},
	{
		Name: "policy_loosened", Rule: "row 32: the stricter of pinned and current counts", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if strictness(a.Outcome) < strictness(b.Outcome) {`, ``},
	},
	{
		Name: "smaller_quorum_counts", Rule: "row 32: of two quorums the larger counts in each group", By: policyTests,
		edit: edit{"approvals/policy/policy.go", `if n > joined[g] {`, ``},
	},
	{
		Name: "rule_that_fails_passes", Rule: "I20: a rule that can't be evaluated denies", By: policyTests,
		edit: edit{"approvals/policy/policy.go", "if err != nil {\n\t\t\treq.Rule", ``},
	},
	{
		Name: "unknown_outcome_is_lax", Rule: "I20: an outcome that no rule knows is the strictest", By: policyTests,
		edit: edit{"approvals/policy/policy.go", "default:\n\t\treturn 2", "default:\n\t\tif fault.Planted(\"unknown_outcome_is_lax\") {\n\t\t\treturn -1\n\t\t}\n\t\treturn 2"},
	},
	{
		Name: "any_word_decides", Rule: "S32: exactly approve or reject decides", By: room("commit", "^TestApproval_Words"),
		edit: edit{"approvals/approvals.go", `case d.Word != "approve" && d.Word != "reject":`, ``},
	},
	{
		Name: "no_without_reason", Rule: "a no has a reason, which the agent reads", By: room("commit", "^TestApproval_Words"),
		edit: edit{"approvals/approvals.go", `case d.Word == "reject" && d.Reason == "":`, ``},
	},
	{
		Name: "may_not_and_decides", Rule: "R14: who may not decide does not", By: simulator, First: 230,
		edit: edit{"approvals/approvals.go", `case p.Disabled:`, ``},
		More: []edit{
			{"approvals/approvals.go", `case concerned:`, `case concerned && !fault.Planted("may_not_and_decides"):`},
			{"approvals/approvals.go", `case !card.May:`, `case !card.May && !fault.Planted("may_not_and_decides"):`},
		},
	},
	{
		Name: "decides_on_what_was_not_shown", Rule: "I12: a decision is on what the person saw", By: room("commit", "^TestApproval_Words"),
		edit: edit{"approvals/approvals.go", `case d.ShownDigest != card.ShownDigest:`, ``},
	},
	{
		Name: "yes_after_the_end", Rule: "I12: silence is not consent: a yes after the end counts nothing", By: room("commit", "^TestApproval_Expires"),
		edit: edit{"approvals/approvals.go", `case op.Overdue(s.cfg.Ledger.Now()):`, ``},
	},
	{
		Name: "decides_twice", Rule: "row 29: a person decides once in a round", By: room("commit", "^TestApproval_"),
		edit: edit{"approvals/approvals.go", `case card.Decided != nil:`, ``},
	},
	{
		Name: "owner_reopens", Rule: "separation of duties: who was refused doesn't reopen", By: room("commit", "^TestApproval_RejectedAsk"),
		edit: edit{"approvals/approvals.go", `if _, concerned := policy.Concerned(op, who.ID); concerned {`, ``},
	},
	{
		Name: "reopened_without_reason", Rule: "a no is taken back with a reason", By: room("commit", "^TestApproval_RejectedAsk|^TestPeople_"),
		edit: edit{"approvals/approvals.go", `if reason == "" {`, ``},
	},
	{
		Name: "text_of_any_bytes", Rule: "S62: what people write can be given back as they wrote it", By: room("commit", "^TestPeople_"),
		edit: edit{"approvals/approvals.go", `case !utf8.ValidString(s) || strings.ContainsRune(s, 0):`, ``},
	},
	{
		Name: "stranger_counts", Rule: "S30: who is not known may not decide", By: room("approvals", "."),
		edit: edit{"approvals/approvals.go", `return policy.Person{ID: id, Disabled: true}, nil`, `return policy.Person{ID: id, Disabled: !fault.Planted("stranger_counts")}, nil`},
	},
	{
		Name: "disabled_account_counts", Rule: "row 31: a disabled account is one for the policy", By: room("approvals", "."),
		edit: edit{"approvals/approvals.go", `Disabled: !o.DisabledAt.IsZero()}`, `Disabled: !o.DisabledAt.IsZero() && !fault.Planted("disabled_account_counts")}`},
	},
}
