package planted

// What stands against clocks that are set, against floods, and against what breaks
// off.
var bugsMatrix = []bug{
	{
		Name: "clock_goes_back", Rule: "I19, row 25: a store's time never goes back", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"ledger/clock.go", "\tif now.Round(0).Before(c.last) {", ""},
		More: []edit{{"ledger/clock.go", "\tcase told.Before(c.last.Add(-ClockStep)): // set back", "\tcase told.Before(c.last.Add(-ClockStep)) && !fault.Planted(\"clock_goes_back\"):"}},
	},
	{
		Name: "time_is_forgotten", Rule: "I19, row 25: a ledger's time outlives the process", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/clock.go", "\tif now.Sub(w.stamped) < stampEvery {", "\tif now.Sub(w.stamped) < stampEvery || fault.Planted(\"time_is_forgotten\") {"},
	},
	{
		Name: "one_agent_floods_people", Rule: "I22, row 46: a bounded number of one agent's operations waits for people", By: room("commit", "^TestMatrix_Row46"),
		edit: edit{"preview/preview.go", "\tif err != nil || n < s.cfg.Waiting {", "\tif err != nil || n < s.cfg.Waiting || fault.Planted(\"one_agent_floods_people\") {"},
	},
	{
		Name: "panic_ends_the_executor", Rule: "row 50: what breaks off ends no loop", By: room("commit", "^TestMatrix_Row50"),
		edit: edit{"commit/executor.go", "(looked int, err error) {\n\tdefer fault.Recovered(&err)", "(looked int, err error) {\n\tif !fault.Planted(\"panic_ends_the_executor\") {\n\t\tdefer fault.Recovered(&err)\n\t}"},
	},
	{
		Name: "panic_ends_the_sweeper", Rule: "row 50: what breaks off ends no loop", By: room("commit", "^TestMatrix_Row50"),
		edit: edit{"reconcile/reconcile.go", "\tdefer fault.Recovered(&failed)", "\tif !fault.Planted(\"panic_ends_the_sweeper\") {\n\t\tdefer fault.Recovered(&failed)\n\t}"},
	},
	{
		Name: "panic_ends_the_reconciler", Rule: "row 50: what breaks off ends no loop", By: room("commit", "^TestMatrix_Row50"),
		edit: edit{"reconcile/reconciler.go", "\tdefer fault.Recovered(&err)", "\tif !fault.Planted(\"panic_ends_the_reconciler\") {\n\t\tdefer fault.Recovered(&err)\n\t}"},
	},
}
