package planted

// What is done about a doubt.
var bugsReconcile = []bug{
	{
		Name: "absent_from_an_eventual_source", Rule: "I7: absent counts only from a source declared authoritative", By: simulator,
		edit: edit{"reconcile/next.go", `case spec.Consistency == tools.Strong && absentInARow`, `case (spec.Consistency == tools.Strong || fault.Planted("absent_from_an_eventual_source")) && absentInARow`},
	},
	{
		Name: "no_settle_window", Rule: "A3: absent counts only behind the settle window", By: simulator,
		edit: edit{"reconcile/next.go", `return newest.Add(spec.Timeout + spec.MaxInFlight + s.Skew)`, "if fault.Planted(\"no_settle_window\") {\n\t\treturn newest.Add(-time.Hour)\n\t}\n\treturn newest.Add(spec.Timeout + spec.MaxInFlight + s.Skew)"},
	},
	{
		Name: "one_absent_is_enough", Rule: "I7: absent is said often enough before it counts", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `absentInARow(asked, settled(op, spec, s), s) >= s.Repeats:`, `absentInARow(asked, settled(op, spec, s), s) >= map[bool]int{true: 1, false: s.Repeats}[fault.Planted("one_absent_is_enough")]:`},
	},
	{
		Name: "answers_close_together_count", Rule: "I7: answers close together count once", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `if n > 0 && counted.Sub(putAt(asked[i])) < s.Spacing {`, ``},
	},
	{
		Name: "slow_answer_is_new", Rule: "a slow answer is as old as its question", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `; !sent.IsZero() && sent.Before(e.At) {`, `; !sent.IsZero() && sent.Before(e.At) && !fault.Planted("slow_answer_is_new") {`},
	},
	{
		Name: "failed_lookup_is_absent", Rule: "I7: a failed lookup is no proof of absence", By: simulator,
		edit: edit{"reconcile/next.go", `i >= 0 && asked[i].Answer == tools.Absent &&`, `i >= 0 && (asked[i].Answer == tools.Absent || fault.Planted("failed_lookup_is_absent")) &&`},
	},
	{
		Name: "absent_of_what_cant_be_taken_back", Rule: "what can't be taken back is never called failed by a lookup", By: simulator, First: 192,
		edit: edit{"reconcile/next.go", "if !op.Reversible {\n\t\t\treturn Step", ``},
	},
	{
		Name: "asked_for_ever", Rule: "I21: a doubt comes to a person when its budget is used up", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `case !now.Before(asked[0].At.Add(s.Budget)) && now.Before(last.At.Add(s.MaxPause)):`, ``},
	},
	{
		Name: "asked_without_number", Rule: "I22: a doubt is asked about a bounded number of times", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `case len(asked) >= s.Asks:`, ``},
	},
	{
		Name: "answers_about_older_attempts", Rule: "an answer says nothing of an attempt made after it", By: room("reconcile", "^TestNext_Answers"),
		edit: edit{"reconcile/next.go", `e.Covers == len(op.Attempts) && !e.At.Before(op.UnknownSince)`, `(e.Covers == len(op.Attempts) && !e.At.Before(op.UnknownSince) || fault.Planted("answers_about_older_attempts"))`},
	},
	{
		Name: "retry_without_keys", Rule: "I3: what honours no key is never sent again", By: room("reconcile", "^TestNext_Retention"),
		edit: edit{"reconcile/next.go", `spec.HonoursKey && spec.KeyRetention > 0`, `(spec.HonoursKey || fault.Planted("retry_without_keys")) && spec.KeyRetention > 0`},
	},
	{
		Name: "retry_past_the_retention", Rule: "I6: nothing is sent again when the tool may have forgotten the key", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `&& now.Before(r.notAfter)`, `&& (now.Before(r.notAfter) || fault.Planted("retry_past_the_retention"))`},
	},
	{
		Name: "retention_of_the_newest_attempt", Rule: "I6: the tool remembers the key from the first attempt on", By: room("reconcile", "^TestNext_RetentionBegins"),
		edit: edit{"reconcile/next.go", `if sent++; sent == 1 {`, `if sent++; sent == 1 || fault.Planted("retention_of_the_newest_attempt") {`},
	},
	{
		Name: "no_margin_before_the_retention", Rule: "I6: a repeat has arrived before the tool forgets the key", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `first.Add(spec.KeyRetention - spec.Timeout - s.RetentionMargin)`, `first.Add(spec.KeyRetention - map[bool]time.Duration{false: spec.Timeout + s.RetentionMargin}[fault.Planted("no_margin_before_the_retention")])`},
	},
	{
		Name: "retries_without_number", Rule: "I22: the same is sent again a bounded number of times", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `&& !r.spent &&`, `&& (!r.spent || fault.Planted("retries_without_number")) &&`},
	},
	{
		Name: "retry_of_the_presumed", Rule: "what a lost part of the ledger may have sent is not sent again", By: room("reconcile", "^TestNext"),
		edit: edit{"reconcile/next.go", `&& !r.presumed &&`, `&& (!r.presumed || fault.Planted("retry_of_the_presumed")) &&`},
	},
	{
		Name: "retry_while_frozen", Rule: "I14: what is frozen is not sent again", By: simulator,
		edit: edit{"reconcile/reconciler.go", `if stands := guard.Check(subject); stands != nil {`, ``},
	},
	{
		Name: "damaged_plan_sent_again", Rule: "I4: a repeat is the same bytes", By: room("commit", "^TestDamaged"),
		edit: edit{"reconcile/reconciler.go", `case plan.Digest() != op.PlanDigest || plan.Target != op.Target:`, ``},
	},
	{
		Name: "second_effect_of_a_repeat_unseen", Rule: "I4: what a repeat did is looked at", By: room("commit", "^TestReconcile_Repeat|^TestMatrix_Row38"),
		edit: edit{"reconcile/ask.go", `if !askable(&t.Spec) || ctx.Err() != nil {`, `if !askable(&t.Spec) || ctx.Err() != nil || fault.Planted("second_effect_of_a_repeat_unseen") {`},
	},
	{
		Name: "person_asks_without_pause", Rule: "I22: a person's question is not put again at once", By: room("commit", "^TestReconcile_AskNow"),
		edit: edit{"reconcile/ask.go", `; n > 0 && r.cfg.Ledger.Now().Sub(asked[n-1].At) < r.cfg.Settings.FirstPause {`, `; n > 0 && r.cfg.Ledger.Now().Sub(asked[n-1].At) < r.cfg.Settings.FirstPause && !fault.Planted("person_asks_without_pause") {`},
	},
	{
		Name: "asks_about_what_is_known", Rule: "only a doubt is asked about", By: room("commit", "^TestMeanwhile_"),
		edit: edit{"reconcile/ask.go", `case op.State != ledger.Unknown:`, ``},
	},
}
