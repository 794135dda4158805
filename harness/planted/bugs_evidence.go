package planted

// What is proven, and where it leads.
var bugsEvidence = []bug{
	{
		Name: "doubt_counts_as_no_effect", Rule: "I7: failed only when every attempt is proven", By: model,
		edit: edit{"ledger/judge.go", "\tif open {\n\t\treturn Unknown\n\t}", ``},
	},
	{
		Name: "proof_taken_back", Rule: "a proof of an effect is never taken back", By: room("ledger", "^TestConclude_"),
		edit: edit{"ledger/judge.go", `|| v == tools.Unknown || a.Proof == tools.Succeeded {`, `|| v == tools.Unknown || a.Proof == tools.Succeeded && !fault.Planted("proof_taken_back") {`},
	},
	{
		Name: "rejection_of_every_attempt", Rule: "a definite rejection proves only its own attempt", By: model,
		edit: edit{"ledger/judge.go", `if n != 0 && a.N != n ||`, `if n != 0 && a.N != n && !fault.Planted("rejection_of_every_attempt") ||`},
	},
	{
		Name: "unsent_without_end", Rule: "I21: what can't be sent is tried a bounded number of times", By: room("ledger", "^TestConclude_"),
		edit: edit{"ledger/judge.go", `|| len(attempts) >= MaxUnsent ||`, `|| len(attempts) >= MaxUnsent && !fault.Planted("unsent_without_end") ||`},
	},
	{
		Name: "unsent_beside_a_proof", Rule: "I8: what is proven to have happened is not sent again", By: room("ledger", "^TestConclude_"),
		edit: edit{"ledger/judge.go", `|| all == Succeeded {`, `|| all == Succeeded && !fault.Planted("unsent_beside_a_proof") {`},
	},
	{
		Name: "released_beside_a_doubt", Rule: "I3: an unsent repeat leaves the first attempt in doubt", By: model,
		edit: edit{"ledger/judge.go", `if a.Proof != tools.NotSent {`, ``},
	},
	{
		Name: "evidence_of_later_attempts", Rule: "evidence says nothing of an attempt made after it", By: room("ledger", "^TestEvidence_"),
		edit: edit{"ledger/settle.go", `if e.Covers > 0 && e.Covers < len(about) {`, ``},
	},
	{
		Name: "success_without_effect_proves", Rule: "I8: a success that names no effect is no proof", By: room("ledger", "^TestConclude_"),
		edit: edit{"ledger/settle.go", "if e.Verdict == tools.Succeeded && e.EffectID == \"\" {\n\t\t\tcontinue", ``},
	},
	{
		Name: "contradiction_is_ignored", Rule: "I9: evidence behind a void state reopens it", By: room("ledger", "^TestAmbiguous_Contradiction|^TestContradiction_"),
		edit: edit{"ledger/settle.go", `case contradictable(cur.State) && verdict == Succeeded:`, ``},
	},
	{
		Name: "contradiction_freezes_nothing", Rule: "I9: evidence behind a void state freezes the tool", By: simulator, First: 206,
		edit: edit{"ledger/settle.go", `Operation: next, Guard: l.autoFreeze(g, next.Tool, next.Reason.Text), Evidence: &ev,`, `Operation: next, Guard: map[bool]*Guard{false: l.autoFreeze(g, next.Tool, next.Reason.Text)}[fault.Planted("contradiction_freezes_nothing")], Evidence: &ev,`},
	},
	{
		Name: "contradiction_moves_no_epoch", Rule: "N6: what was evaluated before a contradiction does not commit", By: room("ledger", "^TestContradiction_"),
		edit: edit{"ledger/settle.go", "\tnext := g.clone()\n\tnext.stop", "\tif g.stopped(tool) && fault.Planted(\"contradiction_moves_no_epoch\") {\n\t\treturn nil\n\t}\n\tnext := g.clone()\n\tnext.stop"},
	},
	{
		Name: "second_effect_in_a_move_freezes_nothing", Rule: "I4: two effects for one key freeze the tool in the write that brings the second", By: room("ledger", "^TestEffects_|^TestSecondEffect_"),
		edit: edit{"ledger/settle.go", "if !all.second(op) {\n\t\treturn nil, nil", "if !all.second(op) || fault.Planted(\"second_effect_in_a_move_freezes_nothing\") {\n\t\treturn nil, nil"},
	},
	{
		Name: "second_effect_freezes_nothing", Rule: "I4: two effects for one key freeze the tool at once", By: simulator, First: 1879,
		edit: edit{"ledger/settle.go", "if !all.second(op) {\n\t\treturn nil\n", "if !all.second(op) || fault.Planted(\"second_effect_freezes_nothing\") {\n\t\treturn nil\n"},
	},
	{
		Name: "evidence_that_moves_nothing_is_dropped", Rule: "I11: evidence is kept whatever the state", By: simulator,
		edit: edit{"ledger/settle.go", "if err := l.keep(ctx, tenant, ev); err != nil {\n\t\t\treturn Operation{}, err\n\t\t}\n\t\tif kept", "if fault.Planted(\"evidence_that_moves_nothing_is_dropped\") {\n\t\t\treturn op, err\n\t\t}\n\t\tif err := l.keep(ctx, tenant, ev); err != nil {\n\t\t\treturn Operation{}, err\n\t\t}\n\t\tif kept"},
	},
	{
		Name: "evidence_of_a_running_one_is_forgotten", Rule: "what came in while it ran is weighed when its lease is over", By: room("ledger", "^TestEvidence_"),
		edit: edit{"ledger/dispatch.go", `if err != nil || len(stored) == 0 {`, `if err != nil || len(stored) == 0 || fault.Planted("evidence_of_a_running_one_is_forgotten") {`},
	},
	{
		Name: "statement_without_effect_id", Rule: "I8: a person's word that it happened names the effect", By: room("commit", "^TestDoubt_"),
		edit: edit{"ledger/settle.go", `case s.Happened && s.EffectID == "":`, ``},
	},
	{
		Name: "statement_without_reason", Rule: "R26: a person says how they know", By: room("commit", "^TestDoubt_"),
		edit: edit{"ledger/settle.go", `case s.Reason == "":`, ``},
	},
	{
		Name: "statement_of_both", Rule: "a statement that nothing happened names no effect", By: room("commit", "^TestDoubt_"),
		edit: edit{"ledger/settle.go", `case !s.Happened && s.EffectID != "":`, ``},
	},
	{
		Name: "undo_of_what_did_not_succeed", Rule: "I15: what is unknown, live or void is never undone", By: room("ledger", "^TestUndo_Refused"),
		edit: edit{"ledger/undo.go", `case op.State == Unknown:`, ``},
		More: []edit{{"ledger/undo.go", `case op.State != Succeeded:`, ``}},
	},
	{
		Name: "undo_of_an_adopted_effect", Rule: "what was only found is never undone by us", By: room("commit", "^TestUndo_Impossible"),
		edit: edit{"ledger/undo.go", `case op.Adopted:`, ``},
	},
	{
		Name: "undo_of_an_undo", Rule: "an undo is not undone", By: room("ledger", "^TestUndo_Refused"),
		edit: edit{"ledger/undo.go", `case op.Parent != "":`, ``},
	},
	{
		Name: "parent_left_behind", Rule: "I15: the undo's end moves its parent in the same write", By: simulator,
		edit: edit{"ledger/undo.go", `if child.Parent == "" || !ends && !contradicted {`, `if child.Parent == "" || !ends && !contradicted || fault.Planted("parent_left_behind") {`},
	},
	{
		Name: "contradicted_undo_is_forgotten", Rule: "I15: an undo that took effect after all takes its parent along", By: model,
		edit: edit{"ledger/undo.go", `case contradicted && parent.State == Succeeded:`, ``},
	},
	{
		Name: "given_up_beside_another_undo", Rule: "I15: an undo that ends void does not speak for one in doubt", By: model,
		edit: edit{"ledger/undo.go", `case ends && parent.State == Compensating && !others:`, `case ends && parent.State == Compensating && (!others || fault.Planted("given_up_beside_another_undo")):`},
	},
	{
		Name: "undo_beside_another_speaks", Rule: "I15: beside an undo in doubt no other is sent", By: model,
		edit: edit{"ledger/undo.go", `parent.Child == child && !others`, `parent.Child == child && (!others || fault.Planted("undo_beside_another_speaks"))`},
	},
	{
		Name: "undos_of_a_run_at_once", Rule: "design 8: each undo of a run is sent behind the one before", By: room("ledger", "^TestRunUndo_"),
		edit: edit{"ledger/undo.go", `b.op.After = births[i-1].op.ID`, `b.op.After = map[bool]string{false: births[i-1].op.ID}[fault.Planted("undos_of_a_run_at_once")]`},
	},
	{
		Name: "run_undo_of_any_size", Rule: "I22: one undo of a run takes back a bounded number", By: room("ledger", "^TestRunUndo_"),
		edit: edit{"ledger/undo.go", `if len(u.Children) == 0 || len(u.Children) > MaxRunUndo {`, ``},
	},
	{
		Name: "undo_of_the_revoked_asker", Rule: "what another agent asked for hangs on that one's rights", By: room("ledger", "^TestSubject_"),
		edit: edit{"ledger/undo.go", `case op.AskedBy.Kind == "agent":`, ``},
	},
	{
		Name: "goal_of_a_doubt_is_free", Rule: "N6: an unknown outcome holds its goal", By: simulator, First: 214,
		edit: edit{"ledger/undo.go", `if !h.Exists() || op.State.Void() || op.State == Compensated || op.ID == againOf {`, `if !h.Exists() || op.State.Void() || op.State == Compensated || op.ID == againOf || op.State == Unknown && fault.Planted("goal_of_a_doubt_is_free") {`},
	},
	{
		Name: "run_undone_over_a_doubt", Rule: "R104: a run is taken back when everything in it has its answer", By: room("commit", "^TestRunUndo_Refused|^TestMatrix_Row48"),
		edit: edit{"ledger/journal.go", `if op, live := j.Live(); live {`, ``},
	},
	{
		Name: "run_undone_twice", Rule: "a closed run is not closed again", By: room("commit", "^TestRunUndo_"),
		edit: edit{"ledger/journal.go", `case j.Run.Closed():`, ``},
	},
}
