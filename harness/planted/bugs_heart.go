package planted

// The guards of the heart: the ledger's verbs, the two phases, the reconciler.

var (
	ledgerTests = finder{Package: "ledger", Test: "Test"}
	webTests    = finder{Package: "web", Test: "Test"}
	commitTests = finder{Package: "commit", Test: "Test"}
)

var bugsHeart = []bug{
	{
		Name: "touched_is_forgotten", Rule: "a touched operation can't be cancelled, expired, revised or rejected", File: "ledger/state.go", By: ledgerTests,
		Guard:   `if r.when == untouched && isTouched || r.when == attempted && !isAttempted {`,
		Without: `if r.when == untouched && isTouched && !fault.Planted("touched_is_forgotten") || r.when == attempted && !isAttempted {`,
	},
	{
		Name: "ambiguous_is_applied", Rule: "never act on a guess: an ambiguous write that is not found is written again or given up", File: "ledger/move.go", By: ledgerTests,
		Guard:   "case errors.As(err, &amb):\n\t\t\tunclear = err",
		Without: "case errors.As(err, &amb) && fault.Planted(\"ambiguous_is_applied\"):\n\t\t\treturn nil\n\t\tcase errors.As(err, &amb):\n\t\t\tunclear = err",
	},
	{
		Name: "doubt_counts_as_no_effect", Rule: "I7: failed only when every attempt is proven", File: "ledger/judge.go", By: ledgerTests,
		Guard:   "\tif open {\n\t\treturn Unknown\n\t}",
		Without: "\tif open && !fault.Planted(\"doubt_counts_as_no_effect\") {\n\t\treturn Unknown\n\t}",
	},
	{
		Name: "proof_taken_back", Rule: "a proof of an effect is never taken back", File: "ledger/judge.go", By: ledgerTests,
		Guard:   `|| v == tools.Unknown || a.Proof == tools.Succeeded {`,
		Without: `|| v == tools.Unknown || a.Proof == tools.Succeeded && !fault.Planted("proof_taken_back") {`,
	},
	{
		Name: "evidence_of_later_attempts", Rule: "evidence says nothing of an attempt made after it", File: "ledger/settle.go", By: ledgerTests,
		Guard:   `if e.Covers > 0 && e.Covers < len(about) {`,
		Without: `if e.Covers > 0 && e.Covers < len(about) && !fault.Planted("evidence_of_later_attempts") {`,
	},
	{
		Name: "round_over_at_the_mark", Rule: "I12: nothing is dispatched after its round is over", File: "ledger/dispatch.go", By: commitTests,
		Guard:   `if end := op.ExpiresAt.Add(-1); !op.ExpiresAt.IsZero()`,
		Without: `if end := op.ExpiresAt.Add(-1); !fault.Planted("round_over_at_the_mark") && !op.ExpiresAt.IsZero()`,
	},
	{
		Name: "contradiction_freezes_nothing", Rule: "I9: evidence behind a void state freezes the tool", File: "ledger/settle.go", By: ledgerTests,
		Guard:   `Operation: next, Guard: l.autoFreeze(g, next.Tool, next.Reason.Text), Evidence: &ev,`,
		Without: `Operation: next, Guard: map[bool]*Guard{false: l.autoFreeze(g, next.Tool, next.Reason.Text)}[fault.Planted("contradiction_freezes_nothing")], Evidence: &ev,`,
	},
	{
		Name: "second_effect_freezes_nothing", Rule: "I4: two effects for one key freeze the tool at once", File: "ledger/settle.go", By: ledgerTests,
		Guard:   "\tif !all.second(op) {\n",
		Without: "\tif !all.second(op) || fault.Planted(\"second_effect_freezes_nothing\") {\n",
	},
	{
		Name: "statement_without_effect_id", Rule: "I8: a person's word that it happened names the effect", File: "ledger/settle.go", By: commitTests,
		Guard:   `case s.Happened && s.EffectID == "":`,
		Without: `case s.Happened && s.EffectID == "" && !fault.Planted("statement_without_effect_id"):`,
	},
	{
		Name: "other_args_under_a_key", Rule: "R42: same key, other arguments: refused", File: "ledger/standing.go", By: commitTests,
		Guard:   `case op.ArgsDigest != argsDigest:`,
		Without: `case op.ArgsDigest != argsDigest && !fault.Planted("other_args_under_a_key"):`,
	},
	{
		Name: "next_generation_over_a_doubt", Rule: "I1: the next generation opens only behind a void one", File: "ledger/standing.go", By: commitTests,
		Guard:   `case op.State.Void():`,
		Without: `case op.State.Void() || op.State == Unknown && fault.Planted("next_generation_over_a_doubt"):`,
	},
	{
		Name: "rejected_ask_again", Rule: "N12: a rejected ask is refused until a person reopens it", File: "ledger/standing.go", By: commitTests,
		Guard:   "\tif err != nil || !found {\n\t\treturn err",
		Without: "\tif err != nil || !found || fault.Planted(\"rejected_ask_again\") {\n\t\treturn err",
	},
	{
		Name: "freeze_loosened", Rule: "a freeze of everything is never loosened by a weaker one", File: "ledger/freeze.go", By: ledgerTests,
		Guard:   `(f.Level == FreezeAll || f.Level == level)`,
		Without: `(f.Level == FreezeAll && !fault.Planted("freeze_loosened") || f.Level == level)`,
	},
	{
		Name: "unfreeze_over_doubts", Rule: "N13: lifting a freeze over unknown outcomes needs an override", File: "ledger/freeze.go", By: webTests,
		Guard:   `case open > 0 && !u.Override:`,
		Without: `case open > 0 && !u.Override && !fault.Planted("unfreeze_over_doubts"):`,
	},
	{
		Name: "undo_of_an_adopted_effect", Rule: "what was only found is never undone by us", File: "ledger/undo.go", By: commitTests,
		Guard:   `case op.Adopted:`,
		Without: `case op.Adopted && !fault.Planted("undo_of_an_adopted_effect"):`,
	},
	{
		Name: "parent_left_behind", Rule: "I15: the undo's end moves its parent in the same write", File: "ledger/undo.go", By: commitTests,
		Guard:   `if child.Parent == "" || !ends && !contradicted {`,
		Without: `if child.Parent == "" || !ends && !contradicted || fault.Planted("parent_left_behind") {`,
	},
	{
		Name: "goal_of_a_doubt_is_free", Rule: "N6: an unknown outcome holds its goal", File: "ledger/undo.go", By: commitTests,
		Guard:   `if !h.Exists() || op.State.Void() || op.State == Compensated || op.ID == againOf {`,
		Without: `if !h.Exists() || op.State.Void() || op.State == Compensated || op.ID == againOf || op.State == Unknown && fault.Planted("goal_of_a_doubt_is_free") {`,
	},
	{
		Name: "run_undo_of_a_run_that_grew", Rule: "the undo of a run is the one that was shown", File: "commit/undo_run.go", By: commitTests,
		Guard:   `if ledger.RunPlanDigest(journal.Run, undoes) != c.PreviewDigest {`,
		Without: `if ledger.RunPlanDigest(journal.Run, undoes) != c.PreviewDigest && !fault.Planted("run_undo_of_a_run_that_grew") {`,
	},
	{
		Name: "token_of_another_agent", Rule: "I2, row 8: a token is its agent's alone", File: "commit/commit.go", By: commitTests,
		Guard:   `if claims.Subject != r.Agent.ID || claims.Tenant != r.Agent.Tenant {`,
		Without: `if (claims.Subject != r.Agent.ID || claims.Tenant != r.Agent.Tenant) && !fault.Planted("token_of_another_agent") {`,
	},
	{
		Name: "expired_token_opens", Rule: "R4: an expired token opens nothing", File: "commit/commit.go", By: commitTests,
		Guard:   `case status != tokens.Fresh:`,
		Without: `case status != tokens.Fresh && !fault.Planted("expired_token_opens"):`,
	},
	{
		Name: "args_of_the_commit_not_compared", Rule: "I13: args sent along must be those previewed", File: "commit/commit.go", By: commitTests,
		Guard:   `if r.Args == nil || strictjson.Digest(r.Args) == c.ArgsDigest {`,
		Without: `if r.Args == nil || fault.Planted("args_of_the_commit_not_compared") || strictjson.Digest(r.Args) == c.ArgsDigest {`,
	},
	{
		Name: "emergency_revoke_ignored", Rule: "tokens of an older ledger generation are void", File: "commit/commit.go", By: commitTests,
		Guard:   `if c.LedgerGeneration != guardRow.Generation {`,
		Without: `if c.LedgerGeneration != guardRow.Generation && !fault.Planted("emergency_revoke_ignored") {`,
	},
	{
		Name: "drift_at_open", Rule: "N4: drift before open opens nothing", File: "commit/commit.go", By: commitTests,
		Guard:   `if g.Done == nil && len(g.Drift) > 0 {`,
		Without: `if g.Done == nil && len(g.Drift) > 0 && !fault.Planted("drift_at_open") {`,
	},
	{
		Name: "drift_after_approval", Rule: "row 33: the world changed after approval: people are asked again", File: "commit/dispatch.go", By: commitTests,
		Guard:   `case len(seen.Drift) > 0:`,
		Without: `case len(seen.Drift) > 0 && !fault.Planted("drift_after_approval"):`,
	},
	{
		Name: "already_done_sent_again", Rule: "R12: what is already done is adopted, not sent", File: "commit/dispatch.go", By: commitTests,
		Guard:   `case seen.Done != nil:`,
		Without: `case seen.Done != nil && !fault.Planted("already_done_sent_again"):`,
	},
	{
		Name: "frozen_and_sent", Rule: "I14: what is frozen is not dispatched", File: "commit/dispatch.go", By: commitTests,
		Guard:   `if _, frozen := guard.Stops(subject); frozen {`,
		Without: `if _, frozen := guard.Stops(subject); frozen && !fault.Planted("frozen_and_sent") {`,
	},
	{
		Name: "revoked_agent_sent", Rule: "a revoked agent's operations are not dispatched", File: "commit/dispatch.go", By: commitTests,
		Guard:   `if err := guard.Check(subject); err != nil {`,
		Without: `if err := guard.Check(subject); err != nil && !fault.Planted("revoked_agent_sent") {`,
	},
	{
		Name: "old_yes_sent", Rule: "a yes that is too old is asked for again", File: "commit/dispatch.go", By: commitTests,
		Guard:   `stricter.MaxAge > 0 && age > stricter.MaxAge {`,
		Without: `stricter.MaxAge > 0 && age > stricter.MaxAge && !fault.Planted("old_yes_sent") {`,
	},
	{
		Name: "quorum_not_counted_at_dispatch", Rule: "row 31: the quorum is counted again before the mark", File: "commit/dispatch.go", By: commitTests,
		Guard:   `if !policy.Full(op.Requirement.Groups, yes) {`,
		Without: `if !policy.Full(op.Requirement.Groups, yes) && !fault.Planted("quorum_not_counted_at_dispatch") {`,
	},
	{
		Name: "stricter_policy_ignored", Rule: "row 32: a policy tightened while waiting counts", File: "commit/dispatch.go", By: commitTests,
		Guard:   `if !policy.AsStrict(op.Requirement, inForce) {`,
		Without: `if !policy.AsStrict(op.Requirement, inForce) && !fault.Planted("stricter_policy_ignored") {`,
	},
	{
		Name: "revise_to_another_target", Rule: "I13: the target is fixed at open", File: "commit/dispatch.go", By: commitTests,
		Guard:   `case plan.Target != op.Target:`,
		Without: `case plan.Target != op.Target && !fault.Planted("revise_to_another_target"):`,
	},
	{
		Name: "endless_rounds", Rule: "people are asked at most three times", File: "commit/dispatch.go", By: commitTests,
		Guard:   `if op.Round >= ledger.MaxRounds {`,
		Without: `if op.Round >= ledger.MaxRounds && !fault.Planted("endless_rounds") {`,
	},
}
