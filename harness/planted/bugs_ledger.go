package planted

// The verbs of an operation: its rows, its birth, its marks.
var bugsLedger = []bug{
	{
		Name: "touched_is_forgotten", Rule: "a touched operation can't be cancelled, expired, revised or rejected", By: room("ledger", "^TestStates_"),
		edit: edit{"ledger/state.go", `if r.when == untouched && isTouched || r.when == attempted && !isAttempted {`, `if r.when == untouched && isTouched && !fault.Planted("touched_is_forgotten") || r.when == attempted && !isAttempted {`},
	},
	{
		Name: "any_move_is_allowed", Rule: "I17: only the table's moves are made", By: room("ledger", "^TestWalk_"),
		edit: edit{"ledger/move.go", `if !slices.Contains(Allowed(op.State, verb, len(op.Attempts) > 0, op.Touched()), next.State) {`, ``},
	},
	{
		Name: "inconsistent_row", Rule: "I8: no success without an effect is written", By: room("ledger", "^TestConsistent"),
		edit: edit{"ledger/move.go", `if err := consistent(*next); err != nil {`, ``},
	},
	{
		Name: "inconsistent_birth", Rule: "I8: nothing is born done without an effect", By: room("ledger", "^TestConsistent"),
		edit: edit{"ledger/open.go", `if err := consistent(b.op); err != nil {`, ``},
	},
	{
		Name: "inconsistent_parent", Rule: "I8: what has no effect is not taken back", By: room("ledger", "^TestConsistent"),
		edit: edit{"ledger/undo.go", `if err := consistent(next); err != nil {`, ``},
	},
	{
		Name: "ambiguous_is_applied", Rule: "never act on a guess: an ambiguous write that is not found is written again or given up", By: simulator,
		edit: edit{"ledger/move.go", "case errors.As(err, &amb):\n\t\t\tunclear = err", "case errors.As(err, &amb) && fault.Planted(\"ambiguous_is_applied\"):\n\t\t\treturn nil\n\t\tcase errors.As(err, &amb):\n\t\t\tunclear = err"},
	},
	{
		Name: "unclear_is_forgotten", Rule: "a refusal of the second try says nothing of the first", By: room("ledger", "^TestAmbiguous_"),
		edit: edit{"ledger/move.go", `case unclear != nil && !decided(err):`, ``},
	},
	{
		Name: "lost_answer_is_not_looked_for", Rule: "I10: a write whose answer was lost is looked for", By: room("ledger", "^TestAmbiguous_"),
		edit: edit{"ledger/move.go", `; found == nil {`, `; found == nil && !fault.Planted("lost_answer_is_not_looked_for") {`},
	},
	{
		Name: "caller_leaves_a_question_open", Rule: "a write whose answer was lost is looked for, also when its caller left", By: room("ledger", "^TestAmbiguous_CallerGone"),
		edit: edit{"ledger/move.go", `l.cfg.Store.ByWrite(context.WithoutCancel(ctx), writeID)`, `l.cfg.Store.ByWrite(map[bool]context.Context{true: ctx, false: context.WithoutCancel(ctx)}[fault.Planted("caller_leaves_a_question_open")], writeID)`},
	},
	{
		Name: "undo_without_its_parent", Rule: "I15: an undo comes with what it takes back", By: room("ledger", "^TestUndo_"),
		edit: edit{"ledger/open.go", `if err := itsParent(b.op, b.r.Parent); err != nil {`, ``},
	},
	{
		Name: "unknown_word_opens", Rule: "I20: an outcome that no rule knows denies", By: room("ledger", "^TestOpen_"),
		edit: edit{"ledger/open.go", `case r.Requirement.Outcome != tools.OutcomeAuto: // also`, `case r.Requirement.Outcome != tools.OutcomeAuto && !fault.Planted("unknown_word_opens"): // also`},
	},
	{
		Name: "undo_is_adopted_alone", Rule: "I15: an adopted undo moves its parent in the same write", By: room("commit", "^TestUndo_AlreadyDone"),
		edit: edit{"ledger/open.go", `case r.Done != nil && op.Parent != "":`, ``},
	},
	{
		Name: "opens_on_old_reads", Rule: "guards_read_at: what was read too long ago opens nothing", By: simulator, First: 1757,
		edit: edit{"ledger/open.go", `if !r.GuardsReadAt.IsZero() {`, ``},
	},
	{
		Name: "marks_on_old_reads", Rule: "guards_read_at: what was read too long ago sends nothing", By: room("commit", "^TestLiveness_OldGuards"),
		edit: edit{"ledger/dispatch.go", `if !r.GuardsReadAt.IsZero() {`, ``},
	},
	{
		Name: "round_over_at_the_mark", Rule: "I12: nothing is dispatched after its round is over", By: simulator, First: 2443,
		edit: edit{"ledger/dispatch.go", "if !op.ExpiresAt.IsZero() {\n\t\tt.NotAfter = sooner(", ``},
	},
	{
		Name: "sent_after_a_yes_was_taken_back", Rule: "I12: a yes that was taken back sends nothing", By: room("ledger", "^TestMark_"),
		edit: edit{"ledger/dispatch.go", `if op.Withdrawn {`, ``},
	},
	{
		Name: "mark_of_any_epoch", Rule: "I14: the guard row is compared in the write of the mark", By: simulator, First: 167,
		edit: edit{"ledger/dispatch.go", "Operation: next, Epoch: &r.Epoch,\n\t\tEvent: Event{Verb: VerbDispatch", "Operation: next, Epoch: map[bool]*int64{false: &r.Epoch}[fault.Planted(\"mark_of_any_epoch\")],\n\t\tEvent: Event{Verb: VerbDispatch"},
	},
	{
		Name: "mark_beside_another", Rule: "I1: nothing is sent beside what took effect after all", By: room("ledger", "^TestMark_|^TestUndo_|^TestGoal_"),
		edit: edit{"ledger/dispatch.go", "if err := l.stillWanted(ctx, op); err != nil {\n\t\treturn op, err\n\t}\n\tnow", ``},
	},
	{
		Name: "undo_out_of_turn", Rule: "design 8: an undo of a run waits for the success of the one before", By: simulator, First: 2152,
		edit: edit{"ledger/dispatch.go", `if before.State != Succeeded {`, ``},
		More: []edit{{"commit/dispatch.go", `return before.State != ledger.Succeeded, err`, `return before.State != ledger.Succeeded && !fault.Planted("undo_out_of_turn"), err`}},
	},
	{
		Name: "second_undo_is_sent", Rule: "I15: at most one undo of an operation takes effect", By: room("ledger", "^TestUndo_|^TestMark_"),
		edit: edit{"ledger/dispatch.go", `if !speaks(parent, op.ID, others) {`, ``},
	},
	{
		Name: "sent_beside_another_generation", Rule: "I1: a contradicted generation keeps the next one from being sent", By: room("ledger", "^TestMark_"),
		edit: edit{"ledger/dispatch.go", `if op.Generation > 1 {`, ``},
	},
	{
		Name: "sent_beside_the_goals_holder", Rule: "N6: a contradicted holder of a goal keeps others from being sent", By: room("ledger", "^TestMark_|^TestGoal_"),
		edit: edit{"ledger/dispatch.go", "if op.Goal != nil {\n\t\treturn l.standsAlone", ``},
	},
	{
		Name: "fence_not_compared", Rule: "I11: only the newest attempt's worker ends an operation", By: simulator, First: 330,
		edit: edit{"ledger/dispatch.go", `if cur.State != Running || cur.Fence != op.Fence {`, `if cur.State != Running || cur.Fence != op.Fence && !fault.Planted("fence_not_compared") {`},
	},
	{
		Name: "late_outcome_is_dropped", Rule: "I11: what a late worker was told is kept as evidence", By: simulator,
		edit: edit{"ledger/dispatch.go", `case late:`, ``},
	},
	{
		Name: "released_without_an_end", Rule: "I21: what was never sent and waits has an end", By: room("commit", "^TestLiveness_Released"),
		edit: edit{"ledger/dispatch.go", `if next.ExpiresAt.IsZero() {`, ``},
	},
	{
		Name: "lease_of_a_worker_at_work", Rule: "a lease is taken when it is over, not before", By: room("ledger", "^TestLoseLease_"),
		edit: edit{"ledger/dispatch.go", `if op.State == Running && l.Now().Before(op.LeaseUntil) {`, ``},
	},
	{
		Name: "retry_after_the_key_is_forgotten", Rule: "I6: nothing is sent again when the tool no longer remembers the key", By: room("ledger", "^TestRetry_"),
		edit: edit{"ledger/dispatch.go", `if r.NotAfter.IsZero() || now.After(r.NotAfter) {`, ``},
	},
	{
		Name: "retry_late_in_the_write", Rule: "I6: the key's retention is compared in the write", By: simulator, First: 933,
		edit: edit{"ledger/dispatch.go", `Epoch: &r.Epoch, NotAfter: r.NotAfter,`, `Epoch: &r.Epoch, NotAfter: map[bool]time.Time{false: r.NotAfter}[fault.Planted("retry_late_in_the_write")],`},
	},
	{
		Name: "retry_of_any_epoch", Rule: "I14: the guard row is compared in the write of a repeat", By: simulator, First: 995,
		edit: edit{"ledger/dispatch.go", `Operation: next, Epoch: &r.Epoch, NotAfter:`, `Operation: next, Epoch: map[bool]*int64{false: &r.Epoch}[fault.Planted("retry_of_any_epoch")], NotAfter:`},
	},
	{
		Name: "retry_of_what_is_presumed", Rule: "what a lost part of the ledger may have sent is not sent again", By: room("ledger", "^TestRe"),
		edit: edit{"ledger/dispatch.go", `if slices.ContainsFunc(op.Attempts, func(a Attempt) bool { return a.Presumed }) {`, ``},
	},
	{
		Name: "retry_beside_an_effect", Rule: "nothing is sent again beside what took effect after all", By: room("ledger", "^TestRetry_"),
		edit: edit{"ledger/dispatch.go", "if err := l.stillWanted(ctx, op); err != nil {\n\t\tif fault.Is", ``},
	},
	{
		Name: "restored_without_an_attempt", Rule: "what was restored from a backup may have been sent", By: room("ledger", "^TestRe"),
		edit: edit{"ledger/dispatch.go", `next.Attempts[len(next.Attempts)-1].Presumed = true`, `next.Attempts[len(next.Attempts)-1].Presumed = !fault.Planted("restored_without_an_attempt")`},
	},
	{
		Name: "yes_late_by_the_stores_clock", Rule: "I19: a yes counts while the round lasts by the store's clock", By: room("commit", "^TestMatrix_Row2[45]"),
		edit: edit{"ledger/decide.go", "if !op.ExpiresAt.IsZero() {\n\t\tt.NotAfter", ``},
	},
	{
		Name: "expires_a_renewed_round", Rule: "a round whose time was renewed is not over", By: room("commit", "^TestSweep_"),
		edit: edit{"ledger/decide.go", `if !op.Overdue(l.Now()) {`, ``},
	},
	{
		Name: "other_args_under_a_key", Rule: "R42: same key, other arguments: refused", By: simulator,
		edit: edit{"ledger/standing.go", `case op.ArgsDigest != argsDigest:`, ``},
	},
	{
		Name: "next_generation_over_a_doubt", Rule: "I1: the next generation opens only behind a void one", By: simulator,
		edit: edit{"ledger/standing.go", `case op.State.Void():`, `case op.State.Void() || op.State == Unknown && fault.Planted("next_generation_over_a_doubt"):`},
	},
	{
		Name: "again_of_anything", Rule: "a wanted repeat names what stands", By: room("ledger", "^TestStand_"),
		edit: edit{"ledger/standing.go", `case !h.Exists() || op.ID != againOf:`, ``},
	},
	{
		Name: "again_of_a_doubt", Rule: "I1: a wanted repeat is of what took effect", By: simulator,
		edit: edit{"ledger/standing.go", `case !op.State.Final() || !op.State.Effective():`, ``},
	},
	{
		Name: "wanted_repeat_asks_nobody", Rule: "a wanted repeat is approved by a person", By: simulator,
		edit: edit{"ledger/standing.go", `Generation: h.newest().Generation + 1, Asks: true}`, `Generation: h.newest().Generation + 1, Asks: !fault.Planted("wanted_repeat_asks_nobody")}`},
	},
	{
		Name: "foreign_operation_is_named", Rule: "S19: a refusal names no operation of another agent", By: room("commit", "^TestCommit_KeyReused"),
		edit: edit{"ledger/standing.go", `if op.Agent.ID != agent {`, ``},
	},
	{
		Name: "rejected_ask_again", Rule: "N12: a rejected ask is refused until a person reopens it", By: simulator, First: 149,
		edit: edit{"ledger/standing.go", "\tif err != nil || !found {\n\t\treturn err", "\tif err != nil || !found || fault.Planted(\"rejected_ask_again\") {\n\t\treturn err"},
	},
	{
		Name: "contradicted_generation_is_forgotten", Rule: "I1: an older generation that took effect after all stands", By: simulator, First: 329,
		edit: edit{"ledger/reader.go", `if !h.Operation.State.Void() || h.Operation.Generation == 1 {`, `if !h.Operation.State.Void() || h.Operation.Generation == 1 || fault.Planted("contradicted_generation_is_forgotten") {`},
	},
	{
		Name: "contradicted_holder_is_forgotten", Rule: "N6: a holder of a goal that took effect after all stands", By: room("ledger", "^TestGoal_"),
		edit: edit{"ledger/reader.go", `if err != nil || !h.Exists() || !frees(h.Operation.State) {`, `if err != nil || !h.Exists() || !frees(h.Operation.State) || fault.Planted("contradicted_holder_is_forgotten") {`},
	},
}
