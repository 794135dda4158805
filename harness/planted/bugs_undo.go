package planted

// Previews, and the undo of operations and runs.
var bugsUndo = []bug{
	{
		Name: "previewed_without_a_grant", Rule: "an agent previews what it may use", By: room("commit", "^TestCommit_|^TestPreview_"),
		edit: edit{"preview/preview.go", `case !agent.May(name):`, ``},
	},
	{
		Name: "step_without_its_run", Rule: "R57: a tool that depends on earlier steps is called in a run", By: room("commit", "^TestRun_"),
		edit: edit{"preview/preview.go", `if t.NeedsRun && r.Run == nil {`, ``},
	},
	{
		Name: "previews_without_number", Rule: "I22: one agent holds a bounded number of previews", By: room("commit", "^TestPreview_Quota"),
		edit: edit{"preview/preview.go", `if err != nil || n < s.cfg.Quota {`, `if err != nil || n < s.cfg.Quota || fault.Planted("previews_without_number") {`},
	},
	{
		Name: "key_of_any_form", Rule: "S45: a key is the same text in headers, SQL and logs", By: room("commit", "^TestPreview_KeySources"),
		edit: edit{"preview/preview.go", `if r.IdempotencyKey != "" && !keyForm.MatchString(r.IdempotencyKey) {`, ``},
	},
	{
		Name: "callers_key_beside_the_tools_own", Rule: "R40: a tool that makes its own key takes no other", By: room("commit", "^TestPreview_KeySources"),
		edit: edit{"preview/preview.go", `if callers != "" && callers != key {`, ``},
	},
	{
		Name: "callers_key_of_an_undo", Rule: "I15: no caller's key lies among those of undos", By: room("commit", "^TestPreview_KeySources|^TestUndo_"),
		edit: edit{"preview/preview.go", `if len(key) >= 5 && key[:5] == "undo:" {`, ``},
	},
	{
		Name: "undo_of_a_parent_that_moved", Rule: "I15: an undo takes back what it was shown on", By: room("commit", "^TestUndo_ShownOnAnOlderParent"),
		edit: edit{"commit/undo.go", `if parent.Version != p.ParentVersion {`, ``},
	},
	{
		Name: "call_changed_in_its_run", Rule: "R42, R57: at one place of a run stands one intent", By: room("commit", "^TestRun_CallChanged$"),
		edit: edit{"ledger/journal.go", `if op.Tool != p.Tool || op.Key != p.Key {`, ``},
	},
	{
		Name: "previewed_in_a_closed_run", Rule: "design 8: a closed run takes nothing more", By: room("commit", "^TestRun_|^TestRunUndo_"),
		edit: edit{"preview/preview.go", `if err == nil && head.Closed() {`, ``},
	},
	{
		Name: "duplicate_is_not_said", Rule: "N7: the same arguments under another key are said", By: room("commit", "^TestPreview_PossibleDuplicate"),
		edit: edit{"preview/preview.go", `plan.Warnings = append(plan.Warnings, duplicateWarning(others)...)`, `plan.Warnings = append(plan.Warnings, duplicateWarning(map[bool]int{false: others}[fault.Planted("duplicate_is_not_said")])...)`},
	},
	{
		Name: "run_undone_over_what_cant_be_told", Rule: "N15: the undo of a run stops at the first doubt", By: room("commit", "^TestRunUndo_|^TestMatrix_Row48"),
		edit: edit{"preview/undo_run.go", `case certainly(err):`, `case certainly(err) || !ours(err) && fault.Planted("run_undone_over_what_cant_be_told"):`},
	},
	{
		Name: "run_undo_asks_without_bound", Rule: "I22: the plan of a run's undo asks outside a bounded number of times", By: room("commit", "^TestRunUndo_PlansABoundedNumber"),
		edit: edit{"preview/undo_run.go", `case refused == ledger.MaxRunUndo:`, ``},
	},
	{
		Name: "undo_with_anothers_token", Rule: "I2: the token of an undo is its asker's alone", By: room("commit", "^TestUndo_"),
		edit: edit{"commit/undo.go", `if c.Subject != who.ID() || c.Tenant != who.Tenant {`, ``},
	},
	{
		Name: "undo_with_another_undos_token", Rule: "S2: the token of an undo is for that operation", By: room("commit", "^TestUndo_TokensDoNotMix"),
		edit: edit{"commit/undo.go", `if claims.KeyDigest != ledger.KeyDigest(ledger.UndoKey(r.Operation)) {`, ``},
	},
	{
		Name: "undo_shown_without_rights", Rule: "S19: an undo is shown to who could ask for it", By: room("commit", "^TestUndo_ReplayNeedsRights"),
		edit: edit{"commit/undo.go", `if err := who.MaySee(parent, op); err != nil {`, ``},
	},
	{
		Name: "undo_without_a_grant", Rule: "an undo needs the grant for the tool that does it", By: room("commit", "^TestUndo_"),
		edit: edit{"commit/undo.go", `if err := who.MayUse(c.Tool); err != nil {`, ``},
	},
	{
		Name: "damaged_undo_opens", Rule: "I13: the undo that is opened is the one that was previewed", By: room("commit", "^TestDamaged"),
		edit: edit{"commit/undo.go", `case p.Parent != r.Operation || p.Plan.Digest() != c.PreviewDigest:`, ``},
	},
	{
		Name: "undo_by_who_lost_the_right", Rule: "S31: rights to undo are asked for again at commit", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/undo.go", `if err := who.MayUndo(parent); err != nil {`, ``},
	},
	{
		Name: "undo_by_a_changed_tool", Rule: "I13: an undo is done by the tool version that was previewed", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/undo.go", `if !ok || t.Version != p.ToolVersion {`, ``},
	},
	{
		Name: "run_undo_with_another_runs_token", Rule: "S2: the token of a run's undo is for that run", By: room("commit", "^TestRunUndo_|^TestUndo_TokensDoNotMix"),
		edit: edit{"commit/undo_run.go", `if claims.Tool != ledger.RunUndoTool || claims.KeyDigest != ledger.KeyDigest(ledger.RunUndoKey(r.AgentID, r.Run)) {`, ``},
	},
	{
		Name: "damaged_undo_in_a_run", Rule: "I13: the undos of a run are those that were previewed", By: room("commit", "^TestDamaged"),
		edit: edit{"commit/undo_run.go", `case p.Parent == "" || p.Plan.Digest() != p.PlanDigest:`, ``},
	},
	{
		Name: "run_undo_of_a_run_that_grew", Rule: "the undo of a run is the one that was shown", By: simulator, First: 1114,
		edit: edit{"commit/undo_run.go", `if ledger.RunPlanDigest(journal.Run, undoes) != c.PreviewDigest {`, ``},
	},
	{
		Name: "run_undo_without_a_grant", Rule: "the undo of a run needs the grant for every tool that does it", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"commit/undo_run.go", `if err := who.MayUse(p.Tool); err != nil {`, ``},
	},
	{
		Name: "anothers_undo_is_cancelled", Rule: "an agent cancels what it asked for", By: room("commit", "^TestUndo_OfAnOperator"),
		edit: edit{"commit/commit.go", `if by.Kind == "agent" && op.AskedBy != nil && op.AskedBy.ID != by.ID {`, ``},
	},
}
