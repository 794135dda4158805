package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

func at(id string) string { return "/operations/" + id }

func decision(id string) string { return at(id) + "/decision" }

// A yes by plain forms: look, tick, press; the gateway sends it; the page tells.
func TestDecision_Approve(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 12000))
	mara := r.as("mara", "support")
	shown := mara.get(at(op.ID))
	f := shown.form(t, decision(op.ID), "approve")
	require.Equal(t, []string{"checked"}, f.required, "what can't be taken back has a second step")

	got := mara.send(f, "checked", "yes", "reason", "Receipt seen.")
	require.Equal(t, http.StatusSeeOther, got.Status, got.Body)
	after := mara.follow(got)
	require.Contains(t, after.notice(t), "Approved by you. The gateway is sending it")
	require.False(t, after.hasForm(t, decision(op.ID), "approve"), "what was decided is not asked again")

	r.work()
	after = mara.follow(got)
	require.Contains(t, after.notice(t), "it is done")
	require.Equal(t, "Done", content(find(after.tree(t), byClass("good"))[1]))
	require.Contains(t, after.Body, "Receipt seen.")
	require.Equal(t, 1, r.shop.EffectCount())
	// Looking again, also by an old link, repeats nothing.
	mara.follow(got)
	require.Equal(t, 1, r.shop.EffectCount())
}

// Nothing is decided without the tick, the reason, the digest, the exact word.
func TestDecision_Incomplete(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 12000))
	mara := r.as("mara", "support")
	f := mara.get(at(op.ID)).form(t, decision(op.ID), "approve")
	digest := f.fields.Get("shown_digest")
	for name, c := range map[string]struct {
		form   []string
		status int
		says   string
	}{
		"no tick":           {[]string{"decision", "approve", "shown_digest", digest}, 422, "Tick the box before you approve"},
		"another tick":      {[]string{"decision", "approve", "shown_digest", digest, "checked", "no"}, 422, "Tick the box"},
		"no reason":         {[]string{"decision", "reject", "shown_digest", digest}, 422, "needs a reason"},
		"blank reason":      {[]string{"decision", "reject", "shown_digest", digest, "reason", " \t\r\n "}, 422, "needs a reason"},
		"reason too long":   {[]string{"decision", "reject", "shown_digest", digest, "reason", strings.Repeat("a", 2001)}, 422, "at most 2000 bytes"},
		"no digest":         {[]string{"decision", "approve", "checked", "yes"}, 409, "has changed since"},
		"another digest":    {[]string{"decision", "approve", "checked", "yes", "shown_digest", "sha256:" + strings.Repeat("0", 64)}, 409, "has changed since"},
		"digest of no case": {[]string{"decision", "approve", "checked", "yes", "shown_digest", strings.ToUpper(digest)}, 409, "has changed since"},
		"word Approve":      {[]string{"decision", "Approve", "checked", "yes", "shown_digest", digest}, 422, "exactly approve or reject"},
		"word yes":          {[]string{"decision", "yes", "checked", "yes", "shown_digest", digest}, 422, "exactly approve or reject"},
		"word approve_":     {[]string{"decision", "approve ", "checked", "yes", "shown_digest", digest}, 422, "exactly approve or reject"},
		"no word":           {[]string{"checked", "yes", "shown_digest", digest}, 422, "exactly approve or reject"},
		"a word of script":  {[]string{"decision", "<script>alert(1)</script>", "shown_digest", digest}, 422, "exactly approve or reject"},
	} {
		t.Run(name, func(t *testing.T) {
			got := mara.post(decision(op.ID), c.form...)
			require.Equal(t, c.status, got.Status, got.Body)
			require.Contains(t, got.notice(t), c.says)
			require.Contains(t, got.Body, "Refund 120.00 EUR to Birch Bakery", "the page comes back")
			require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
			require.EqualValues(t, 1, r.op(op.ID).Version, "nothing was written")
		})
	}
	// In the address nothing counts: it would be logged, and a link could hold it.
	got := mara.post(decision(op.ID) + "?" + url.Values{"decision": {"approve"}, "checked": {"yes"}, "shown_digest": {digest}}.Encode())
	require.Equal(t, 422, got.Status)
	require.EqualValues(t, 1, r.op(op.ID).Version)
}

// What was typed comes back with the refusal; a tick never does.
func TestDecision_TypedComesBack(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 12000))
	mara := r.as("mara", "support")
	got := mara.post(decision(op.ID), "decision", "reject", "shown_digest", "sha256:old", "reason", `Not "ours" <b>`)
	require.Equal(t, 409, got.Status)
	f := got.form(t, decision(op.ID), "reject")
	require.Equal(t, `Not "ours" <b>`, f.fields.Get("reason"))
	require.NotEqual(t, "sha256:old", f.fields.Get("shown_digest"), "the page shows what is asked now, with its digest")
	got = mara.post(decision(op.ID), "decision", "approve", "shown_digest", "sha256:old", "checked", "yes", "reason", "fine")
	f = got.form(t, decision(op.ID), "approve")
	require.Equal(t, "fine", f.fields.Get("reason"))
	require.False(t, f.fields.Has("checked"))
	// The refused digest and the right one: the same form sent again works.
	require.Equal(t, http.StatusSeeOther, mara.send(f, "checked", "yes").Status)
}

// Reversible work has no box to tick, but a second step all the same.
func TestDecision_ReversibleStillTwoSteps(t *testing.T) {
	tool := tooltest.FakeTool("tag_order", tooltest.WithUndo("untag_order"), tooltest.WithApproval(tooltest.Approve("support", 1)))
	r := newRig(t, tool)
	op := r.ask(r.agent, "tag_order", args("order_id", "ord_1"))
	p := r.as("mara", "support").get(at(op.ID))
	require.Empty(t, p.form(t, decision(op.ID), "approve").required)
	require.Contains(t, p.Body, "Can be undone")
	for _, f := range find(p.tree(t), byTag("form")) {
		if action, _ := attr(f, "action"); action == decision(op.ID) {
			require.Equal(t, "details", f.Parent.Data, "the button that decides is behind another")
			_, open := attr(f.Parent, "open")
			require.False(t, open)
		}
	}
}

func TestDecision_Reject(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 12000))
	mara := r.as("mara", "support")
	f := mara.get(at(op.ID)).form(t, decision(op.ID), "reject")
	require.Equal(t, []string{"reason"}, f.required)
	after := mara.follow(mara.send(f, "reason", "Wrong customer.\r\nAsk again."))
	require.Contains(t, after.notice(t), "Rejected by you")
	require.Equal(t, ledger.Rejected, r.op(op.ID).State)
	require.Equal(t, "Wrong customer.\nAsk again.", r.op(op.ID).Reason.Text)
	require.Equal(t, 0, r.shop.RequestCount())
}

// Two people above a limit: each once, one yes is not enough, and the page counts.
func TestDecision_Quorum(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a5", "amount", 61200))
	mara, tomas, ines := r.as("mara", "finance"), r.as("tomas", "finance"), r.as("ines", "support")

	// Support is not asked above the limit: no buttons, and why.
	p := ines.get(at(op.ID))
	require.False(t, p.hasForm(t, decision(op.ID), "approve"))
	require.Contains(t, p.one(t, "press"), "None of your groups is asked")
	f := mara.get(at(op.ID)).form(t, decision(op.ID), "approve")
	got := ines.send(f, "checked", "yes")
	require.Equal(t, 403, got.Status)
	require.Contains(t, got.notice(t), "None of your groups")

	after := mara.follow(mara.send(f, "checked", "yes"))
	require.Contains(t, after.notice(t), "One more must say yes")
	require.Contains(t, after.one(t, "facts"), "1 of 2")
	require.Contains(t, after.one(t, "press"), "You said yes. One more must say yes")
	require.False(t, after.hasForm(t, decision(op.ID), "approve"))

	// A second click, from a tab that was left open.
	again := mara.send(f, "checked", "yes")
	require.Equal(t, 409, again.Status)
	require.Contains(t, again.notice(t), "already decided")
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Contains(t, mara.get("/approvals").Body, "you said yes")

	f = tomas.get(at(op.ID)).form(t, decision(op.ID), "approve")
	after = tomas.follow(tomas.send(f, "checked", "yes"))
	require.Contains(t, after.notice(t), "The gateway is sending it")
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Equal(t, 1, r.shop.EffectCount())
}

// Who owns the agent can't decide, whatever is sent.
func TestDecision_SelfApproval(t *testing.T) {
	r := newRig(t)
	mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
	own, _, err := r.identity.CreateAgent(context.Background(), tenant, "her-bot", r.people["mara"].ID, []string{identity.AllTools})
	require.NoError(t, err)
	op := r.ask(own, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	p := mara.get(at(op.ID))
	require.Contains(t, p.one(t, "press"), "You own the agent that asks")
	for _, word := range []string{"approve", "reject"} {
		require.False(t, p.hasForm(t, decision(op.ID), word))
		f := tomas.get(at(op.ID)).form(t, decision(op.ID), word)
		got := mara.send(f, "checked", "yes", "reason", "mine")
		require.Equal(t, 403, got.Status)
		require.Contains(t, got.notice(t), "You own the agent that asks")
	}
	require.Contains(t, mara.get("/approvals").Body, "your own agent asks")
	require.EqualValues(t, 1, r.op(op.ID).Version)
	// Taking it back is no decision for anybody: the owner may.
	f := p.form(t, at(op.ID)+"/cancel", "")
	require.Contains(t, mara.follow(mara.send(f, "reason", "Mistake.")).notice(t), "Cancelled")
}

// Approve and reject at the same moment: one outcome, both are told.
func TestDecision_Race(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
	yes, no := mara.get(at(op.ID)).form(t, decision(op.ID), "approve"), tomas.get(at(op.ID)).form(t, decision(op.ID), "reject")
	var answers [2]page
	var both sync.WaitGroup
	both.Go(func() { answers[0] = mara.send(yes, "checked", "yes") })
	both.Go(func() { answers[1] = tomas.send(no, "reason", "No.") })
	both.Wait()
	statuses := []int{answers[0].Status, answers[1].Status}
	require.ElementsMatch(t, []int{303, 409}, statuses)
	won := map[bool]ledger.State{true: ledger.Pending, false: ledger.Rejected}[answers[0].Status == 303]
	require.Equal(t, won, r.op(op.ID).State)
}

// After its time an ask can't be approved, and its page says so.
func TestDecision_TooLate(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	f := mara.get(at(op.ID)).form(t, decision(op.ID), "approve")
	r.clock.Add(10 * time.Minute)
	mara.get("/approvals") // still here
	r.clock.Add(51 * time.Minute)
	mara = r.as("mara")
	p := mara.get(at(op.ID))
	require.False(t, p.hasForm(t, decision(op.ID), "approve"), "a button exists only where it works")
	require.Contains(t, p.one(t, "press"), "The time to decide is over")
	require.Contains(t, mara.get("/approvals").Body, "time is over")
	got := mara.send(f, "checked", "yes")
	require.Equal(t, 409, got.Status)
	require.Equal(t, ledger.Expired, r.op(op.ID).State)
}

// Values that are shown in part must be opened and read before a yes (S46).
func TestDecision_LongValues(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "send_letter", args("case", "1", "to", "adr_2001", "subject", "Hello", "body", strings.Repeat("long ", 200)))
	mara := r.as("mara", "support")
	p := mara.get(at(op.ID))
	f := p.form(t, decision(op.ID), "approve")
	require.Equal(t, []string{"checked", "read"}, f.required)
	got := mara.send(f, "checked", "yes")
	require.Equal(t, 422, got.Status)
	require.Contains(t, got.notice(t), "show all")
	require.Equal(t, 303, mara.send(f, "checked", "yes", "read", "yes").Status)
}

// A new round voids the form of the old one.
func TestDecision_NewRound(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a3", "amount", 100))
	mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
	old := tomas.get(at(op.ID)).form(t, decision(op.ID), "approve")
	require.Equal(t, 303, mara.send(mara.get(at(op.ID)).form(t, decision(op.ID), "approve"), "checked", "yes").Status)
	r.byHand("/payments/pay_a3/change")
	r.work()
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	got := tomas.send(old, "checked", "yes")
	require.Equal(t, 409, got.Status)
	require.Contains(t, got.notice(t), "has changed since it was shown")
	require.Contains(t, got.Body, "people are asked anew")
	require.Contains(t, got.Body, "no longer counts")
	require.Equal(t, 303, tomas.send(got.form(t, decision(op.ID), "approve"), "checked", "yes").Status)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

func TestReopen(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	reopen := at(op.ID) + "/reopen"
	require.False(t, mara.get(at(op.ID)).hasForm(t, reopen, ""))
	require.Equal(t, 409, mara.post(reopen, "reason", "too early").Status)
	r.decide(r.people["mara"], op.ID, "reject", "No.")
	f := mara.get(at(op.ID)).form(t, reopen, "")
	require.Equal(t, 422, mara.send(f, "reason", " ").Status)
	require.False(t, r.op(op.ID).Reopened)
	after := mara.follow(mara.send(f, "reason", "The customer was right."))
	require.Contains(t, after.notice(t), "It may be asked again")
	require.True(t, r.op(op.ID).Reopened)
	require.False(t, after.hasForm(t, reopen, ""), "once is enough")
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	cancel := at(op.ID) + "/cancel"
	f := mara.get(at(op.ID)).form(t, cancel, "")
	require.Equal(t, 422, mara.send(f, "reason", "").Status)
	require.Equal(t, 422, mara.send(f, "reason", strings.Repeat("x", 2001)).Status)
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Contains(t, mara.follow(mara.send(f, "reason", "Twice by mistake.")).notice(t), "Cancelled")
	got := mara.send(f, "reason", "again")
	require.Equal(t, 409, got.Status)
	require.False(t, got.hasForm(t, cancel, ""))
}

// An unknown outcome: what is known, what may be said, and what follows.
func TestResolve(t *testing.T) {
	for happened, want := range map[string]ledger.State{"yes": ledger.Succeeded, "no": ledger.Failed} {
		t.Run(happened, func(t *testing.T) {
			tool := tooltest.FakeTool("send_gift", tooltest.Irreversible(), tooltest.WithApproval(tooltest.Auto()))
			tooltest.FakeOf(tool).Script(tooltest.LoseReply())
			r := newRig(t, tool)
			op := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
			require.Equal(t, ledger.Unknown, r.op(op.ID).State)
			mara := r.as("mara", "support")
			resolve := at(op.ID) + "/resolve"
			p := mara.get(at(op.ID))
			require.Contains(t, p.one(t, "evidence"), "No answer that proves anything")
			require.Contains(t, p.Body, "If that is wrong, it can happen twice, and nobody can undo it.")
			f := p.form(t, resolve, "")
			require.ElementsMatch(t, []string{"happened", "happened", "reason"}, f.required)
			for name, wrong := range map[string][]string{
				"neither":       {"reason", "Seen."},
				"maybe":         {"happened", "maybe", "reason", "Seen."},
				"no reason":     {"happened", happened, "effect_id", map[string]string{"yes": "gift_1"}[happened]},
				"no effect":     {"happened", "yes", "reason", "Seen."},
				"effect of no":  {"happened", "no", "effect_id", "gift_1", "reason", "Seen."},
				"long reason":   {"happened", "no", "reason", strings.Repeat("x", 2001)},
				"long effect":   {"happened", "yes", "effect_id", strings.Repeat("x", 257), "reason", "Seen."},
				"in capitals":   {"happened", "YES", "effect_id", "gift_1", "reason", "Seen."},
				"blank effect":  {"happened", "yes", "effect_id", "  ", "reason", "Seen."},
				"hostile words": {"happened", `"><script>alert(1)</script>`, "reason", "\u202e"},
			} {
				got := mara.post(resolve, wrong...)
				require.Equal(t, 422, got.Status, name)
				require.NotEmpty(t, got.notice(t), name)
				require.Equal(t, ledger.Unknown, r.op(op.ID).State, name)
				require.NotContains(t, got.Body, "<script>alert", name)
			}
			effect := map[string]string{"yes": "gift_1", "no": ""}[happened]
			after := mara.follow(mara.send(f, "happened", happened, "effect_id", effect, "reason", "Looked in the shop."))
			require.Contains(t, after.notice(t), "The doubt is settled")
			require.Equal(t, want, r.op(op.ID).State)
			require.Equal(t, effect, r.op(op.ID).EffectID)
			require.False(t, after.hasForm(t, resolve, ""))
			require.Equal(t, 409, mara.post(resolve, "happened", "no", "reason", "again").Status)
			require.Len(t, tooltest.FakeOf(tool).Requests(), 1, "nothing was sent again")
		})
	}
}

// An address can't claim what was not done.
func TestNotice_BelievesTheRecord(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	for _, done := range []string{"approve", "reject", "cancel", "reopen", "resolve", "<script>"} {
		require.Empty(t, mara.get(at(op.ID)+"?done="+url.QueryEscape(done)).notice(t), done)
	}
}

// What is sent is what was shown, and two asks with one content are two.
func TestDuplicates_EachOnItsOwn(t *testing.T) {
	tool := tooltest.FakeTool("send_gift", tooltest.KeyFrom(tools.KeyFromCaller), tooltest.WithApproval(tooltest.Approve("support", 1)))
	r := newRig(t, tool)
	one, two := r.keyed(r.agent, "send_gift", "gift-1", args("order_id", "ord_9")), r.keyed(r.agent, "send_gift", "gift-2", args("order_id", "ord_9"))
	mara := r.as("mara", "support")
	p := mara.get(at(one.ID))
	require.Contains(t, p.Body, "Possible duplicates")
	require.Contains(t, p.Body, at(two.ID))
	require.Equal(t, 303, mara.send(p.form(t, decision(one.ID), "approve")).Status)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(one.ID).State)
	require.Equal(t, ledger.AwaitingApproval, r.op(two.ID).State)
	require.Len(t, tooltest.FakeOf(tool).Requests(), 1)
}

// What was found too late: the operation is re-opened and settled by it, and its
// tool is frozen; of what took effect a second effect can be told.
func TestContradict(t *testing.T) {
	tool := tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(tool).Script(tooltest.LoseReply())
	r := newRig(t, tool)
	op := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
	mara := r.as("mara", "support")
	late := at(op.ID) + "/contradict"
	require.False(t, mara.get(at(op.ID)).hasForm(t, late, ""), "while it is in doubt, the doubt is settled")
	require.Equal(t, 409, mara.post(late, "effect_id", "gift_1", "reason", "Seen.").Status)
	mara.post(at(op.ID)+"/resolve", "happened", "no", "reason", "Nobody saw it.")
	require.Equal(t, ledger.Failed, r.op(op.ID).State)

	p := mara.get(at(op.ID))
	require.Contains(t, p.Body, "It happened after all…")
	f := p.form(t, late, "")
	require.ElementsMatch(t, []string{"effect_id", "reason"}, f.required)
	for name, wrong := range map[string][]string{
		"no effect":    {"reason", "Seen."},
		"blank effect": {"effect_id", "  ", "reason", "Seen."},
		"no reason":    {"effect_id", "gift_1"},
		"long effect":  {"effect_id", strings.Repeat("x", 257), "reason", "Seen."},
		"long reason":  {"effect_id", "gift_1", "reason", strings.Repeat("x", 2001)},
		"hostile":      {"effect_id", `"><script>alert(1)</script>`},
	} {
		got := mara.post(late, wrong...)
		require.Equal(t, 422, got.Status, name)
		require.NotEmpty(t, got.notice(t), name)
		require.NotContains(t, got.Body, "<script>alert", name)
		require.Equal(t, ledger.Failed, r.op(op.ID).State, name)
	}
	after := mara.follow(mara.send(f, "effect_id", "gift_1", "reason", "It stands in the shop."))
	require.Contains(t, after.notice(t), "the tool is frozen now")
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Equal(t, "gift_1", r.op(op.ID).EffectID)
	require.Contains(t, mara.get("/freezes").Body, "send_gift")

	require.Contains(t, after.Body, "Another effect of it was found…")
	mara.follow(mara.send(after.form(t, late, ""), "effect_id", "gift_2", "reason", "And another."))
	tally, err := r.ledger.Tally(context.Background(), tenant)
	require.NoError(t, err)
	require.EqualValues(t, 1, tally.Duplicates)
}
