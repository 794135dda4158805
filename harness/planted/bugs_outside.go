package planted

// The guards at the borders: tokens, what an answer means, the wire, who may
// decide, and the store's comparisons.

var (
	tokensTests = finder{Package: "tokens", Test: "."}
	httpTests   = finder{Package: "tools/httptool", Test: "Test"}
	toolsTests  = finder{Package: "tools", Test: "Test"}
	policyTests = finder{Package: "approvals/policy", Test: ".", Args: "-rapid.nofailfile"}
	storeTests  = finder{Package: "store/sqlstore", Test: "Test"}
)

var bugsOutside = []bug{
	{
		Name: "token_signature", Rule: "S1: a token is ours only when its signature verifies", File: "tokens/tokens.go", By: tokensTests,
		Guard:   `if jwt.SigningMethodEdDSA.Verify(t.input, t.signature, t.key.public) != nil {`,
		Without: `if jwt.SigningMethodEdDSA.Verify(t.input, t.signature, t.key.public) != nil && !fault.Planted("token_signature") {`,
	},
	{
		Name: "token_expiry", Rule: "R4: a commit token is short-lived", File: "tokens/tokens.go", By: tokensTests,
		Guard:   `case c.Expired(now):`,
		Without: `case c.Expired(now) && !fault.Planted("token_expiry"):`,
	},
	{
		Name: "token_retired_key", Rule: "a retired key replays and opens nothing (matrix row 41)", File: "tokens/tokens.go", By: tokensTests,
		Guard:   `case !t.key.opens(now):`,
		Without: `case !t.key.opens(now) && !fault.Planted("token_retired_key"):`,
	},
	{
		Name: "token_spelling", Rule: "S7: a token has one spelling", File: "tokens/tokens.go", By: tokensTests,
		Guard:   `return b, err == nil && encode(b) == s`,
		Without: `return b, err == nil && (encode(b) == s || fault.Planted("token_spelling"))`,
	},
	{
		Name: "keep_alive_without_key", Rule: "trap 1: net/http sends a request twice on a connection that died", File: "tools/httptool/httptool.go", By: httpTests,
		Guard:   `c.fresh.DisableKeepAlives = true`,
		Without: `c.fresh.DisableKeepAlives = !fault.Planted("keep_alive_without_key")`,
	},
	{
		Name: "second_connection", Rule: "a second connection for one request would be a second sending", File: "tools/httptool/dispatch.go", By: httpTests,
		Guard:   `if c.m.Spec.HonoursKey && req.Body != nil {`,
		Without: `if c.m.Spec.HonoursKey && (req.Body != nil || fault.Planted("second_connection")) {`,
	},
	{
		Name: "late_waker", Rule: "row 20: a late waker must not send", File: "tools/httptool/dispatch.go", By: httpTests,
		Guard:   `if wallLate || now.Sub(s.started) > budget {`,
		Without: `if (wallLate || now.Sub(s.started) > budget) && !fault.Planted("late_waker") {`,
	},
	{
		Name: "lost_reply_not_sent", Rule: "row 2: a reply that was lost is unknown", File: "tools/httptool/dispatch.go", By: httpTests,
		Guard:   "\tout.Verdict = tools.Unknown\n\ts.seen(&out.Seen)",
		Without: "\tif !fault.Planted(\"lost_reply_not_sent\") {\n\t\tout.Verdict = tools.Unknown\n\t}\n\ts.seen(&out.Seen)",
	},
	{
		Name: "caller_cancels_dispatch", Rule: "row 43: an agent that hangs up never cancels a dispatch", File: "tools/httptool/dispatch.go", By: httpTests,
		Guard:   `ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)`,
		Without: "sendCtx := context.WithoutCancel(ctx)\n\tif fault.Planted(\"caller_cancels_dispatch\") {\n\t\tsendCtx = ctx\n\t}\n\tctx, cancel := context.WithTimeout(sendCtx, timeout)",
	},
	{
		Name: "plan_to_other_address", Rule: "an operation is never sent to another target", File: "tools/httptool/dispatch.go", By: httpTests,
		Guard:   `case !strings.HasPrefix(w.URL, c.client.URL()+"/"):`,
		Without: `case !strings.HasPrefix(w.URL, c.client.URL()+"/") && !fault.Planted("plan_to_other_address"):`,
	},
	{
		Name: "private_address", Rule: "S54: addresses inside are not dialled unless allowed", File: "tools/httptool/guard.go", By: httpTests,
		Guard:   `if kind == "" {`,
		Without: `if kind == "" || fault.Planted("private_address") {`,
	},
	{
		Name: "write_through_a_read", Rule: "N2: a preview can't write", File: "tools/httptool/read.go", By: httpTests,
		Guard:   `if !r.EffectFree {`,
		Without: `if !r.EffectFree && !fault.Planted("write_through_a_read") {`,
	},
	{
		Name: "truncated_answer_proves", Rule: "row 35: a truncated 2xx is unknown", File: "tools/outcome.go", By: toolsTests,
		Guard:   "\tif reply.Incomplete != \"\" {\n\t\treturn Outcome{Verdict: Unknown,",
		Without: "\tif reply.Incomplete != \"\" && !fault.Planted(\"truncated_answer_proves\") {\n\t\treturn Outcome{Verdict: Unknown,",
	},
	{
		Name: "undeclared_status_rejects", Rule: "I7: an undeclared status is never a failure", File: "tools/outcome.go", By: toolsTests,
		Guard:   "\treturn Outcome{Verdict: Unknown, Because: why}\n",
		Without: "\tif reply.Status >= 400 && fault.Planted(\"undeclared_status_rejects\") {\n\t\treturn Outcome{Verdict: NoEffect, Because: why}\n\t}\n\treturn Outcome{Verdict: Unknown, Because: why}\n",
	},
	{
		Name: "lookup_error_is_absent", Rule: "I7: a failed lookup is no proof of absence", File: "tools/outcome.go", By: toolsTests,
		Guard:   `return Answer{Kind: LookupFailed, Because: fmt.Sprintf(format, args...)}`,
		Without: "if fault.Planted(\"lookup_error_is_absent\") {\n\t\t\treturn Answer{Kind: Absent}\n\t\t}\n\t\treturn Answer{Kind: LookupFailed, Because: fmt.Sprintf(format, args...)}",
	},
	{
		Name: "two_effects_are_one", Rule: "row 38: two effects for one key are a broken promise", File: "tools/outcome.go", By: toolsTests,
		Guard:   `case len(a.EffectIDs) > 1:`,
		Without: "case len(a.EffectIDs) > 1 && fault.Planted(\"two_effects_are_one\"):\n\t\ta.Kind, a.EffectIDs = Present, a.EffectIDs[:1]\n\tcase len(a.EffectIDs) > 1:",
	},
	{
		Name: "success_without_effect_id", Rule: "I8: a success has the declared proof", File: "tools/outcome.go", By: toolsTests,
		Guard:   `if strings.TrimSpace(v) == "" || invisible`,
		Without: `if strings.TrimSpace(v) == "" && !fault.Planted("success_without_effect_id") || invisible`,
	},
	{
		Name: "self_approval", Rule: "R15, S26: the agent's owner can't approve", File: "approvals/policy/undo.go", By: policyTests,
		Guard:   `case person == op.Agent.Owner:`,
		Without: `case person == op.Agent.Owner && !fault.Planted("self_approval"):`,
	},
	{
		Name: "approves_the_own_undo", Rule: "separation of duties: who asks for an undo can't approve it", File: "approvals/policy/undo.go", By: policyTests,
		Guard:   `op.AskedBy != nil && person == op.AskedBy.ID:`,
		Without: `op.AskedBy != nil && person == op.AskedBy.ID && !fault.Planted("approves_the_own_undo"):`,
	},
	{
		Name: "disabled_approver", Rule: "row 31: a person who lost their rights counts no more", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `if p.Disabled {`,
		Without: `if p.Disabled && !fault.Planted("disabled_approver") {`,
	},
	{
		Name: "empty_approver_set", Rule: "S30: an empty approver set denies", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `return len(groups) > 0`,
		Without: `return len(groups) > 0 || fault.Planted("empty_approver_set")`,
	},
	{
		Name: "one_person_twice", Rule: "row 30: one person counts once", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `if !slices.ContainsFunc(out, func(o Person) bool { return o.ID == p.ID }) {`,
		Without: `if fault.Planted("one_person_twice") || !slices.ContainsFunc(out, func(o Person) bool { return o.ID == p.ID }) {`,
	},
	{
		Name: "yes_of_an_old_round", Rule: "a new round voids the decisions of the old", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `if d.Round != op.Round {`,
		Without: `if d.Round != op.Round && !fault.Planted("yes_of_an_old_round") {`,
	},
	{
		Name: "shown_digest", Rule: "I12: a yes is to what was shown", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `if d.Digest == digest {`,
		Without: `if d.Digest == digest || fault.Planted("shown_digest") {`,
	},
	{
		Name: "policy_loosened", Rule: "row 32: the stricter of pinned and current counts", File: "approvals/policy/policy.go", By: policyTests,
		Guard:   `if strictness(a.Outcome) < strictness(b.Outcome) {`,
		Without: `if strictness(a.Outcome) < strictness(b.Outcome) && !fault.Planted("policy_loosened") {`,
	},
	{
		Name: "no_version_test", Rule: "row 14: each transition compares the version", File: "store/sqlstore/apply.go", By: storeTests,
		Guard:   `if version != tr.Expect {`,
		Without: `if version != tr.Expect && !fault.Planted("no_version_test") {`,
	},
	{
		Name: "epoch_outside_the_write", Rule: "I14: the guard row is compared in the write", File: "store/sqlstore/guard.go", By: storeTests,
		Guard:   `if now != epoch {`,
		Without: `if now != epoch && !fault.Planted("epoch_outside_the_write") {`,
	},
	{
		Name: "head_not_compared", Rule: "I1: the newest generation is compared in the write", File: "store/sqlstore/open_operation.go", By: storeTests,
		Guard:   `if head.id != was.ID || head.version != was.Version || int64(op.Generation) != head.generation+1 {`,
		Without: `if (head.id != was.ID || head.version != was.Version || int64(op.Generation) != head.generation+1) && !fault.Planted("head_not_compared") {`,
	},
	{
		Name: "preview_expiry_at_the_write", Rule: "R4: expiry is decided once more in the write", File: "store/sqlstore/preview.go", By: storeTests,
		Guard:   `case nanos(db.now()) >= expires:`,
		Without: `case nanos(db.now()) >= expires && !fault.Planted("preview_expiry_at_the_write"):`,
	},
	{
		Name: "old_reads_at_the_write", Rule: "guards_read_at: old reads don't commit", File: "store/sqlstore/open_operation.go", By: storeTests,
		Guard:   `if !notAfter.IsZero() && db.now().After(notAfter) {`,
		Without: `if !notAfter.IsZero() && db.now().After(notAfter) && !fault.Planted("old_reads_at_the_write") {`,
	},
	{
		Name: "decision_twice", Rule: "row 29: a person decides once in a round", File: "store/sqlstore/apply.go", By: storeTests,
		Guard:   "\tif n == 0 {\n\t\treturn &ledger.Refused{Why: ledger.AlreadyDecided}",
		Without: "\tif n == 0 && !fault.Planted(\"decision_twice\") {\n\t\treturn &ledger.Refused{Why: ledger.AlreadyDecided}",
	},
	{
		Name: "goal_not_compared", Rule: "N6: at most one operation of a goal takes effect", File: "store/sqlstore/run.go", By: storeTests,
		Guard:   `if was := n.GoalHead.Operation; id != was.ID || version != was.Version {`,
		Without: `if was := n.GoalHead.Operation; (id != was.ID || version != was.Version) && !fault.Planted("goal_not_compared") {`,
	},
	{
		Name: "open_in_a_closed_run", Rule: "design 8: a closed run takes nothing more", File: "store/sqlstore/run.go", By: storeTests,
		Guard:   `case err == nil && h.Closed():`,
		Without: `case err == nil && h.Closed() && !fault.Planted("open_in_a_closed_run"):`,
	},
}
