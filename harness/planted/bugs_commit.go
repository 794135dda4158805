package planted

// Phase two: the checks at commit, the last checks before a mark, the outcome.
var bugsCommit = []bug{
	{
		Name: "token_of_another_agent", Rule: "I2, row 8: a token is its agent's alone", By: simulator,
		edit: edit{"commit/commit.go", `if claims.Subject != r.Agent.ID || claims.Tenant != r.Agent.Tenant {`, ``},
	},
	{
		Name: "token_of_another_tool", Rule: "S2: a token is for one tool", By: room("commit", "^TestCommit_Order"),
		edit: edit{"commit/commit.go", `if c.Tool != r.Tool {`, ``},
	},
	{
		Name: "args_of_the_commit_not_compared", Rule: "I13: args sent along must be those previewed", By: simulator,
		edit: edit{"commit/commit.go", `if r.Args == nil || strictjson.Digest(r.Args) == c.ArgsDigest {`, `if r.Args == nil || fault.Planted("args_of_the_commit_not_compared") || strictjson.Digest(r.Args) == c.ArgsDigest {`},
	},
	{
		Name: "expired_token_opens", Rule: "R4: an expired token opens nothing", By: room("commit", "^TestCommit_"),
		edit: edit{"commit/commit.go", `case status != tokens.Fresh:`, ``},
	},
	{
		Name: "another_intents_result", Rule: "R42: a result is shown to who asked for the same", By: room("commit", "^TestCommit_|^TestRepeat_"),
		edit: edit{"commit/commit.go", `if op.ArgsDigest != argsDigest ||`, `if op.ArgsDigest != argsDigest && !fault.Planted("another_intents_result") ||`},
	},
	{
		Name: "another_agents_result", Rule: "S19: a result is shown to who may use the tool", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/commit.go", `|| op.Agent.ID != r.Agent.ID && !r.Agent.May(op.Tool) {`, `|| op.Agent.ID != r.Agent.ID && !r.Agent.May(op.Tool) && !fault.Planted("another_agents_result") {`},
	},
	{
		Name: "opens_without_a_grant", Rule: "a grant that was taken away opens nothing", By: room("commit", "^TestCommit_"),
		edit: edit{"commit/commit.go", "if !r.Agent.May(r.Tool) {\n\t\treturn Result{}, fault.New(fault.ToolNotGranted", ``},
	},
	{
		Name: "changed_tool_opens", Rule: "I13: a token opens with the tool version that was previewed", By: room("commit", "^TestCommit_"),
		edit: edit{"commit/commit.go", `if !ok || t.Version != c.ToolVersion {`, ``},
	},
	{
		Name: "rules_not_in_force_open", Rule: "a version that the guard row does not name opens nothing", By: room("commit", "^TestInForce_"),
		edit: edit{"commit/commit.go", `if guardRow.Tools[t.Name] != t.Version {`, ``},
	},
	{
		Name: "undo_committed_as_a_call", Rule: "I15: the token of an undo opens nothing but the undo", By: room("commit", "^TestUndo_TokensDoNotMix"),
		edit: edit{"commit/commit.go", `case p.Parent != "":`, ``},
	},
	{
		Name: "damaged_preview_opens", Rule: "I13: what is opened is the plan that was previewed", By: room("commit", "^TestDamaged"),
		edit: edit{"commit/commit.go", `case p.Plan.Digest() != c.PreviewDigest:`, ``},
	},
	{
		Name: "another_preview_opens", Rule: "S2: a token stands for one preview", By: room("commit", "^TestDamaged"),
		edit: edit{"commit/commit.go", `case p.PlanDigest != c.PreviewDigest:`, ``},
	},
	{
		Name: "token_forgets_its_generation", Rule: "I2: a token stays with its own generation while the key moves on", By: room("commit", "^TestCommit_TokenKeepsItsGeneration"),
		edit: edit{"commit/commit.go", `if op.Generation > c.Generation {`, ``},
	},
	{
		Name: "emergency_revoke_ignored", Rule: "tokens of an older ledger generation are void", By: room("commit", "^TestCommit_LedgerGeneration"),
		edit: edit{"commit/commit.go", `if c.LedgerGeneration != guardRow.Generation {`, ``},
	},
	{
		Name: "goal_not_asked_at_commit", Rule: "N6: the goal is asked about again at commit", By: simulator, First: 289,
		edit: edit{"commit/commit.go", `return holder, ledger.GoalFree(holder, a.agent.ID, a.preview.AgainOf)`, "if fault.Planted(\"goal_not_asked_at_commit\") {\n\t\treturn holder, nil\n\t}\n\treturn holder, ledger.GoalFree(holder, a.agent.ID, a.preview.AgainOf)"},
	},
	{
		Name: "frozen_and_opened", Rule: "I14: what is frozen is not opened", By: simulator,
		edit: edit{"commit/commit.go", `if err := guardRow.Check(a.subject); err != nil {`, ``},
	},
	{
		Name: "guard_unread_and_opened", Rule: "N4: where the world can't be read nothing is opened", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/commit.go", "g, err := t.Connector.Guard(ctx, p.Plan)\n\tif err != nil {", "g, err := t.Connector.Guard(ctx, p.Plan)\n\tif err != nil && !fault.Planted(\"guard_unread_and_opened\") {"},
	},
	{
		Name: "drift_at_open", Rule: "N4: drift before open opens nothing", By: simulator,
		edit: edit{"commit/commit.go", `if g.Done == nil && len(g.Drift) > 0 {`, ``},
	},
	{
		Name: "policy_of_the_preview_is_forgotten", Rule: "row 32: the stricter of the policy at preview and at commit counts", By: simulator,
		edit: edit{"commit/commit.go", `req := policy.Stricter(p.Requirement, now)`, "req := policy.Stricter(p.Requirement, now)\n\tif fault.Planted(\"policy_of_the_preview_is_forgotten\") {\n\t\treq = now\n\t}"},
	},
	{
		Name: "duplicate_not_asked_at_commit", Rule: "N7: two previews of one intent are both asked about", By: room("commit", "^TestDuplicates_"),
		edit: edit{"commit/commit.go", `if a.tool.Duplicates == tools.DuplicatesApprove {`, ``},
	},
	{
		Name: "caller_cancels_the_birth", Rule: "row 43: an agent that hangs up leaves no mark that nobody sends", By: room("commit", "^TestLeaving_"),
		edit: edit{"commit/commit.go", `return s.cfg.Ledger.OpenOperation(context.WithoutCancel(ctx), req)`, "if fault.Planted(\"caller_cancels_the_birth\") {\n\t\treturn s.cfg.Ledger.OpenOperation(ctx, req)\n\t}\n\treturn s.cfg.Ledger.OpenOperation(context.WithoutCancel(ctx), req)"},
	},
	{
		Name: "overdue_and_sent", Rule: "I12: an overdue round expires before anybody is asked outside", By: room("commit", "^TestApproval_Expires|^TestSweep_|^TestLiveness_"),
		edit: edit{"commit/dispatch.go", `if op.Overdue(e.cfg.Ledger.Now()) {`, ``},
	},
	{
		Name: "looks_before_its_turn", Rule: "design 8: an undo of a run that waits is not revised or expired for what it would see", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/dispatch.go", `if waits, err := e.waitsItsTurn(ctx, op); waits || err != nil {`, ``},
	},
	{
		Name: "frozen_and_sent", Rule: "I14: what is frozen is not dispatched", By: simulator,
		edit: edit{"commit/dispatch.go", `if _, frozen := guard.Stops(subject); frozen {`, ``},
		More: []edit{{"commit/dispatch.go", `if err := guard.Check(subject); err != nil {`, `if _, frozen := guard.Stops(subject); frozen && fault.Planted("frozen_and_sent") {
	} else if err := guard.Check(subject); err != nil {`}},
	},
	{
		Name: "frozen_is_expired", Rule: "a freeze makes what was approved wait, and ends nothing", By: room("commit", "^TestApproval_FrozenWaits"),
		edit: edit{"commit/dispatch.go", `frozen := guard.Stops(subject); (frozen) &&`, `frozen := guard.Stops(subject); (frozen) && !fault.Planted("frozen_is_expired") &&`},
	},
	{
		Name: "rules_not_in_force_send", Rule: "nothing is sent by rules that the guard row does not name", By: room("commit", "^TestInForce_"),
		edit: edit{"commit/dispatch.go", `if guard.Tools[op.Tool] != current.Version {`, ``},
	},
	{
		Name: "damaged_plan_sent", Rule: "I13: what is sent is the plan that was decided on", By: room("commit", "^TestDamaged"),
		edit: edit{"commit/dispatch.go", `if plan.Digest() != op.PlanDigest || plan.Target != op.Target {`, ``},
	},
	{
		Name: "undo_of_a_disabled_operator", Rule: "what a person asked for hangs on their account", By: room("commit", "^TestUndo_OfADisabledOperator"),
		edit: edit{"commit/dispatch.go", `if err != nil || !p.Disabled {`, `if err != nil || !p.Disabled || fault.Planted("undo_of_a_disabled_operator") {`},
	},
	{
		Name: "already_done_sent_again", Rule: "R12: what is already done is adopted, not sent", By: simulator, First: 935,
		edit: edit{"commit/dispatch.go", `case seen.Done != nil:`, ``},
	},
	{
		Name: "guard_unread_and_sent", Rule: "I20: where the world can't be read nothing is sent", By: room("commit", "^TestLiveness_Released"),
		edit: edit{"commit/dispatch.go", "case unread != nil:\n\t\treturn nil, unread", ``},
	},
	{
		Name: "drift_after_approval", Rule: "row 33: the world changed after approval: people are asked again", By: simulator, First: 440,
		edit: edit{"commit/dispatch.go", `case len(seen.Drift) > 0:`, ``},
	},
	{
		Name: "denied_meanwhile_and_sent", Rule: "row 32: what the policy now denies is not sent", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/dispatch.go", `if inForce.Outcome == tools.OutcomeDeny {`, ``},
		More: []edit{{"commit/dispatch.go", `if anew.Outcome == tools.OutcomeDeny {`, ``}},
	},
	{
		Name: "stricter_policy_ignored", Rule: "row 32: a policy tightened while waiting counts", By: room("commit", "^TestApproval_|^TestInForce_|^TestRevise_"),
		edit: edit{"commit/dispatch.go", `if !policy.AsStrict(op.Requirement, inForce) {`, ``},
	},
	{
		Name: "requirement_that_cant_be_read", Rule: "I20: a requirement that can't be read sends nothing", By: room("commit", "^TestLiveness_"),
		edit: edit{"commit/dispatch.go", `case op.Requirement.Outcome == tools.OutcomeAuto:`, `case op.Requirement.Outcome == tools.OutcomeAuto || !op.Requirement.Asks() && fault.Planted("requirement_that_cant_be_read"):`},
	},
	{
		Name: "withdrawn_yes_counts", Rule: "a yes that was taken back is asked for again", By: room("commit", "^TestApproval_Withdrawn"),
		edit: edit{"commit/dispatch.go", `if op.Withdrawn {`, ``},
	},
	{
		Name: "old_yes_sent", Rule: "a yes that is too old is asked for again", By: simulator,
		edit: edit{"commit/dispatch.go", `if !until.IsZero() && e.cfg.Ledger.Now().After(until) {`, ``},
		More: []edit{{"ledger/dispatch.go", `t.NotAfter = sooner(t.NotAfter, r.YesUntil)`, `t.NotAfter = sooner(t.NotAfter, map[bool]time.Time{false: r.YesUntil}[fault.Planted("old_yes_sent")])`}},
	},
	{
		Name: "quorum_not_counted_at_dispatch", Rule: "row 31: the quorum is counted again before the mark", By: simulator, First: 139,
		edit: edit{"commit/dispatch.go", `if !policy.Full(op.Requirement.Groups, yes) {`, ``},
	},
	{
		Name: "revise_to_another_target", Rule: "I13: the target is fixed at open", By: room("commit", "^TestRevise_"),
		edit: edit{"commit/dispatch.go", `case plan.Target != op.Target:`, ``},
	},
	{
		Name: "endless_rounds", Rule: "people are asked at most three times", By: room("commit", "^TestApproval_ThreeRounds"),
		edit: edit{"commit/dispatch.go", `if op.Round >= ledger.MaxRounds {`, ``},
	},
	{
		Name: "stop_leaves_a_mark", Rule: "a stop leaves no mark that nobody sends", By: room("commit", "^TestLeaving_"),
		edit: edit{"commit/dispatch.go", `undisturbed := context.WithoutCancel(ctx)`, "undisturbed := context.WithoutCancel(ctx)\n\t\tif fault.Planted(\"stop_leaves_a_mark\") {\n\t\t\tundisturbed = ctx\n\t\t}"},
	},
	{
		Name: "outcome_told_once_only", Rule: "I11: an outcome is held until the store takes it", By: simulator,
		edit: edit{"commit/executor.go", "\t\tif !storeAway(err) {\n\t\t\te.unhold", "\t\tif !storeAway(err) || fault.Planted(\"outcome_told_once_only\") {\n\t\t\te.unhold"},
	},
	{
		Name: "outcome_not_spooled", Rule: "row 15: an outcome that the store does not take outlives the process", By: room("commit", "^TestSpool_|^TestMatrix_Row15"),
		edit: edit{"commit/executor.go", "if file == \"\" {\n\t\t\tfile = e.hold", ``},
	},
	{
		Name: "damaged_spool_is_believed", Rule: "a damaged file of the spool is no evidence", By: room("commit", "^TestSpool_"),
		edit: edit{"commit/spool.go", `return text, string(seal) == hex.EncodeToString(sum[:])`, `return text, string(seal) == hex.EncodeToString(sum[:]) || fault.Planted("damaged_spool_is_believed")`},
	},
	{
		Name: "spool_of_another_ledger", Rule: "a file of the spool is of a dispatch that the ledger knows", By: room("commit", "^TestSpool_"),
		edit: edit{"commit/spool.go", `a.N == o.Attempt && a.Fence == o.Fence && !a.Presumed`, `a.N == o.Attempt && (a.Fence == o.Fence && !a.Presumed || fault.Planted("spool_of_another_ledger"))`},
	},
}
