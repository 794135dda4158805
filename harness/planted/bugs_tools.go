package planted

// What goes over the wire, and what an answer proves.
var bugsTools = []bug{
	{
		Name: "keep_alive_without_key", Rule: "trap 1: net/http sends a request twice on a connection that died", By: room("tools/httptool", "^TestDispatch_connections$"),
		edit: edit{"tools/httptool/httptool.go", `c.fresh.DisableKeepAlives = true`, `c.fresh.DisableKeepAlives = !fault.Planted("keep_alive_without_key")`},
	},
	{
		Name: "second_connection", Rule: "a second connection for one request would be a second sending", By: room("tools/httptool", "^TestDispatch_connections$"),
		edit: edit{"tools/httptool/dispatch.go", `if c.m.Spec.HonoursKey && req.Body != nil {`, `if c.m.Spec.HonoursKey && (req.Body != nil || fault.Planted("second_connection")) {`},
	},
	{
		Name: "late_waker", Rule: "row 20: a late waker must not send", By: room("tools/httptool", "^TestDispatch_deadline$"),
		edit: edit{"tools/httptool/dispatch.go", `if wallLate || now.Sub(s.started) > budget {`, `if (wallLate || now.Sub(s.started) > budget) && !fault.Planted("late_waker") {`},
	},
	{
		Name: "lost_reply_not_sent", Rule: "row 2: a reply that was lost is unknown", By: room("tools/httptool", "^TestDispatch_idempotencyKeyTrap$"),
		edit: edit{"tools/httptool/dispatch.go", "\tout.Verdict = tools.Unknown\n\ts.seen(&out.Seen)", "\tif !fault.Planted(\"lost_reply_not_sent\") {\n\t\tout.Verdict = tools.Unknown\n\t}\n\ts.seen(&out.Seen)"},
	},
	{
		Name: "caller_cancels_dispatch", Rule: "row 43: an agent that hangs up never cancels a dispatch", By: room("tools/httptool", "^TestShop_Contract$"),
		edit: edit{"tools/httptool/dispatch.go", `ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)`, "sendCtx := context.WithoutCancel(ctx)\n\tif fault.Planted(\"caller_cancels_dispatch\") {\n\t\tsendCtx = ctx\n\t}\n\tctx, cancel := context.WithTimeout(sendCtx, timeout)"},
	},
	{
		Name: "plan_to_other_address", Rule: "an operation is never sent to another target", By: room("tools/httptool", "^TestDispatch_notThisPlan$"),
		edit: edit{"tools/httptool/dispatch.go", `case !strings.HasPrefix(w.URL, c.client.URL()+"/"):`, `case !strings.HasPrefix(w.URL, c.client.URL()+"/") && !fault.Planted("plan_to_other_address"):`},
	},
	{
		Name: "private_address", Rule: "S54: addresses inside are not dialled unless allowed", By: room("tools/httptool", "^TestGuard_refusesResolvedAddresses$"),
		edit: edit{"tools/httptool/guard.go", `if kind == "" {`, `if kind == "" || fault.Planted("private_address") {`},
	},
	{
		Name: "write_through_a_read", Rule: "N2: a preview can't write", By: room("tools/httptool", "^TestRead_"),
		edit: edit{"tools/httptool/read.go", `if !r.EffectFree {`, `if !r.EffectFree && !fault.Planted("write_through_a_read") {`},
	},
	{
		Name: "truncated_answer_proves", Rule: "row 35: a truncated 2xx is unknown", By: room("tools", "^TestManifest_Judge$"),
		edit: edit{"tools/outcome.go", "\tif reply.Incomplete != \"\" {\n\t\treturn Outcome{Verdict: Unknown,", "\tif reply.Incomplete != \"\" && !fault.Planted(\"truncated_answer_proves\") {\n\t\treturn Outcome{Verdict: Unknown,"},
	},
	{
		Name: "undeclared_status_rejects", Rule: "I7: an undeclared status is never a failure", By: room("tools", "^TestManifest_Judge$"),
		edit: edit{"tools/outcome.go", "\treturn Outcome{Verdict: Unknown, Because: why}\n", "\tif reply.Status >= 400 && fault.Planted(\"undeclared_status_rejects\") {\n\t\treturn Outcome{Verdict: NoEffect, Because: why}\n\t}\n\treturn Outcome{Verdict: Unknown, Because: why}\n"},
	},
	{
		Name: "lookup_error_is_absent", Rule: "I7: a failed lookup is no proof of absence", By: room("tools", "^TestManifest_JudgeLookup$"),
		edit: edit{"tools/outcome.go", `return Answer{Kind: LookupFailed, Because: fmt.Sprintf(format, args...)}`, "if fault.Planted(\"lookup_error_is_absent\") {\n\t\t\treturn Answer{Kind: Absent}\n\t\t}\n\t\treturn Answer{Kind: LookupFailed, Because: fmt.Sprintf(format, args...)}"},
	},
	{
		Name: "two_effects_are_one", Rule: "row 38: two effects for one key are a broken promise", By: room("tools", "^TestManifest_JudgeLookup$"),
		edit: edit{"tools/outcome.go", `case len(a.EffectIDs) > 1:`, "case len(a.EffectIDs) > 1 && fault.Planted(\"two_effects_are_one\"):\n\t\ta.Kind, a.EffectIDs = Present, a.EffectIDs[:1]\n\tcase len(a.EffectIDs) > 1:"},
	},
	{
		Name: "success_without_effect_id", Rule: "I8: a success has the declared proof", By: room("tools", "^TestManifest_Judge_effectID$"),
		edit: edit{"tools/outcome.go", `if strings.TrimSpace(v) == "" || invisible`, `if strings.TrimSpace(v) == "" && !fault.Planted("success_without_effect_id") || invisible`},
	},
}
