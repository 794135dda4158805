package planted

// The guard row: freezes and revocations.
var bugsGuardRow = []bug{
	{
		Name: "freeze_loosened", Rule: "a freeze of everything is never loosened by a weaker one", By: simulator,
		edit: edit{"ledger/freeze.go", `return s.is(f) && (f.Level == FreezeAll || f.Level == level)`, `return s.is(f) && (f.Level == FreezeAll && !fault.Planted("freeze_loosened") || f.Level == level)`},
	},
	{
		Name: "freeze_passes_by_new_tenants", Rule: "I14: a freeze of everything holds tenants that appear meanwhile", By: room("ledger", "^TestFreeze_"),
		edit: edit{"ledger/freeze.go", `if err != nil || !wrote || !s.Everything {`, `if err != nil || !wrote || !s.Everything || fault.Planted("freeze_passes_by_new_tenants") {`},
	},
	{
		Name: "new_tenant_is_born_free", Rule: "I14: a new tenant inherits the freezes of everything", By: room("ledger", "^TestFreeze_"),
		edit: edit{"ledger/guard.go", `if old.bare() {`, ``},
	},
	{
		Name: "unfreeze_over_doubts", Rule: "N13: lifting a freeze over unknown outcomes needs an override", By: room("ledger", "^TestUnfreeze_"),
		edit: edit{"ledger/freeze.go", `case open > 0 && !u.Override:`, ``},
	},
	{
		Name: "override_without_reason", Rule: "N13: an override has a reason", By: room("ledger", "^TestUnfreeze_"),
		edit: edit{"ledger/freeze.go", `case open > 0 && u.Reason == "":`, ``},
	},
	{
		Name: "override_is_not_signed", Rule: "N13: an override is signed", By: room("ledger", "^TestUnfreeze_"),
		edit: edit{"ledger/guard.go", `if g.Change.Open == 0 || l.cfg.Sign == nil {`, `if g.Change.Open == 0 || l.cfg.Sign == nil || fault.Planted("override_is_not_signed") {`},
	},
	{
		Name: "unfreeze_lifts_what_came_meanwhile", Rule: "I9: lifting a freeze leaves one that evidence set meanwhile", By: room("ledger", "^TestUnfreeze_"),
		edit: edit{"ledger/freeze.go", `return slices.Contains(stood, f) })`, `return slices.Contains(stood, f) || fault.Planted("unfreeze_lifts_what_came_meanwhile") && s.is(f) })`},
	},
	{
		Name: "finding_lost_behind_a_persons_freeze", Rule: "I9: a person's freeze does not stand for what was found out", By: room("ledger", "^TestFinding_"),
		edit: edit{"ledger/guard.go", `return f.Tool == tool && f.By == foundOut`, `return f.Tool == tool && (f.By == foundOut || fault.Planted("finding_lost_behind_a_persons_freeze"))`},
	},
	{
		Name: "freeze_of_all_lets_undos_through", Rule: "I14: a freeze at all stops undos too", By: simulator, First: 191,
		edit: edit{"ledger/guard.go", `return f, ok && (f.Level == FreezeAll || !s.Undo)`, `return f, ok && (f.Level == FreezeAll && !fault.Planted("freeze_of_all_lets_undos_through") || !s.Undo)`},
	},
	{
		Name: "weaker_freeze_hides_the_stricter", Rule: "I14: of several freezes the strictest holds", By: room("ledger", "^TestFreeze_"),
		edit: edit{"ledger/guard.go", "if f.Level == FreezeAll {\n\t\t\treturn f, true", ``},
	},
	{
		Name: "revoked_agent_goes_on", Rule: "a revoked agent opens and sends nothing", By: simulator,
		edit: edit{"ledger/guard.go", `if !s.ByOperator && slices.Contains(g.Revoked, s.Agent) {`, ``},
	},
	{
		Name: "change_of_rights_voids_nothing", Rule: "I12: what counted a right that was taken away is not sent", By: room("commit", "^TestMeanwhile_RightsGoneAtTheMark"),
		edit: edit{"ledger/guard.go", `func(g *Guard) { g.People++ })`, "func(g *Guard) {\n\t\tif !fault.Planted(\"change_of_rights_voids_nothing\") {\n\t\t\tg.People++\n\t\t}\n\t})"},
	},
}
