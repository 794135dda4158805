package planted

// What a store compares in its writes.
var bugsStore = []bug{
	{
		Name: "place_not_compared", Rule: "R42, R57: of two calls at one place of a run one is opened", By: room("commit", "^TestRun_CallChanged_Race"),
		edit: edit{"store/sqlstore/run.go", `if err == nil && taken {`, ``},
	},
	{
		Name: "no_version_test", Rule: "row 14: each transition compares the version", By: room("store/sqlstore", "^TestBackup$"),
		edit: edit{"store/sqlstore/apply.go", `if version != tr.Expect {`, `if version != tr.Expect && !fault.Planted("no_version_test") {`},
	},
	{
		Name: "epoch_outside_the_write", Rule: "I14: the guard row is compared in the write", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/guard.go", `if now != epoch {`, `if now != epoch && !fault.Planted("epoch_outside_the_write") {`},
	},
	{
		Name: "head_not_compared", Rule: "I1: the newest generation is compared in the write", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/open_operation.go", `if head.id != was.ID || head.version != was.Version || int64(op.Generation) != head.generation+1 {`, `if (head.id != was.ID || head.version != was.Version || int64(op.Generation) != head.generation+1) && !fault.Planted("head_not_compared") {`},
	},
	{
		Name: "preview_expiry_at_the_write", Rule: "R4: expiry is decided once more in the write", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/preview.go", `case nanos(db.now()) >= expires:`, `case nanos(db.now()) >= expires && !fault.Planted("preview_expiry_at_the_write"):`},
	},
	{
		Name: "old_reads_at_the_write", Rule: "guards_read_at: old reads don't commit", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/open_operation.go", `if !notAfter.IsZero() && db.now().After(notAfter) {`, `if !notAfter.IsZero() && db.now().After(notAfter) && !fault.Planted("old_reads_at_the_write") {`},
	},
	{
		Name: "decision_twice", Rule: "row 29: a person decides once in a round", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/apply.go", "\tif n == 0 {\n\t\treturn &ledger.Refused{Why: ledger.AlreadyDecided}", "\tif n == 0 && !fault.Planted(\"decision_twice\") {\n\t\treturn &ledger.Refused{Why: ledger.AlreadyDecided}"},
	},
	{
		Name: "goal_not_compared", Rule: "N6: at most one operation of a goal takes effect", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/run.go", `if was := n.GoalHead.Operation; id != was.ID || version != was.Version {`, `if was := n.GoalHead.Operation; (id != was.ID || version != was.Version) && !fault.Planted("goal_not_compared") {`},
	},
	{
		Name: "open_in_a_closed_run", Rule: "design 8: a closed run takes nothing more", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/run.go", `if !n.OpenRun || op.Run == nil {`, `if !n.OpenRun || op.Run == nil || fault.Planted("open_in_a_closed_run") {`},
	},
	{
		Name: "parent_not_compared", Rule: "I15: one write takes an effect back once", By: room("ledger", "^TestRunUndo_Refused"),
		edit: edit{"store/sqlstore/apply.go", "if version != b.Expect { // also", "if version != b.Expect && !fault.Planted(\"parent_not_compared\") { // also"},
	},
	{
		Name: "repeated_write_is_lost", Rule: "a write that is told twice was applied once", By: room("store/sqlstore", "^TestBackup$"),
		edit: edit{"store/sqlstore/apply.go", `if err != nil || n > 0 {`, `if err != nil || n > 0 && !fault.Planted("repeated_write_is_lost") {`},
	},
	{
		Name: "repeated_birth_is_refused", Rule: "an opening that is told twice was applied once", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/open_operation.go", `if isNotFound(err) {
		return refused`, `if isNotFound(err) || fault.Planted("repeated_birth_is_refused") {
		return refused`},
	},
	{
		Name: "repeated_freeze_is_refused", Rule: "a freeze that is told twice was applied once", By: room("store/sqlstore", "^TestBackup$"),
		edit: edit{"store/sqlstore/guard.go", `; e != nil || !again {`, `; e != nil || !again || fault.Planted("repeated_freeze_is_refused") {`},
	},
	{
		Name: "preview_that_is_gone", Rule: "I2: a token whose preview is gone opens nothing", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/preview.go", `case isNotFound(err):`, `case isNotFound(err) && fault.Planted("preview_that_is_gone"):
		return nil
	case isNotFound(err):`},
	},
	{
		Name: "closed_run_is_closed_again", Rule: "a run is closed once", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/run.go", "case h.Closed():\n\t\treturn &ledger.Refused{Why: ledger.RunClosed}\n\tcase h.Operations", ``},
	},
	{
		Name: "run_that_grew_is_closed", Rule: "the run that is closed is the one that was shown", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/run.go", `case h.Operations != want.Operations:`, ``},
	},
	{
		Name: "checkpoint_out_of_place", Rule: "checkpoints form one chain", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/seal.go", `case newest.N+1 != c.N || newest.Hash != c.Prev:`, ``},
	},
	{
		Name: "two_take_the_same", Rule: "a claim keeps another gateway from the same work", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/due.go", `if _, err = t.exec(claim,`, `if fault.Planted("two_take_the_same") {
				break
			}
			if _, err = t.exec(claim,`},
	},
	{
		Name: "defers_another_version", Rule: "a claim belongs to the version that it was made on", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/due.go", "AND version = $4 AND `+column", "AND (version = $4 OR `+fmt.Sprint(fault.Planted(\"defers_another_version\"))+`) AND `+column"},
	},
	{
		Name: "another_tenants_row", Rule: "S20: an operation is moved by its own tenant", By: room("store/sqlstore", "^TestStore$"),
		edit: edit{"store/sqlstore/apply.go", "WHERE id = $1 AND tenant = $2`, id", "WHERE id = $1 AND (tenant = $2 OR `+fmt.Sprint(fault.Planted(\"another_tenants_row\"))+`)`, id"},
	},
}
