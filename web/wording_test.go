package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
	"countersign/web"
)

// element is the one element with this id.
func (p page) element(t testing.TB, id string) *html.Node {
	t.Helper()
	list := find(p.tree(t), func(n *html.Node) bool { v, _ := attr(n, "id"); return v == id })
	require.Len(t, list, 1, id)
	return list[0]
}

// A refresh takes the menu along: its number and which part the page is in.
func TestLive_MenuGoesAlong(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	for _, path := range []string{"/approvals", at(op.ID)} {
		live := mara.get(path).element(t, "live")
		oob, _ := attr(live, "hx-select-oob")
		require.Equal(t, "#menu:outerMorph", oob)
		self, _ := attr(live, "hx-get")
		before := content(mara.get(self).element(t, "menu"))
		require.Contains(t, before, "1 waiting")
	}
	self, _ := attr(mara.get(at(op.ID)).element(t, "live"), "hx-get")
	r.decide(r.people["mara"], op.ID, "reject", "No.")
	menu := mara.get(self).element(t, "menu")
	require.NotContains(t, content(menu), "waiting")
	current := find(menu, func(n *html.Node) bool { _, ok := attr(n, "aria-current"); return ok })
	require.Len(t, current, 1)
	require.Equal(t, "Ledger", content(current[0]))
	// A page that never changes by itself says nothing of it.
	_, ok := attr(mara.get("/tools").element(t, "live"), "hx-select-oob")
	require.False(t, ok)
}

// What a person states is told as a person's word, never as proof.
func TestStanding_Statement(t *testing.T) {
	for _, c := range []struct {
		statement ledger.Statement
		says, not string
	}{
		{ledger.Statement{Happened: true, EffectID: "gift_1", Reason: "It is on the shelf."}, "A person says that it happened.", "there is proof"},
		{ledger.Statement{Reason: "It is on the shelf."}, "A person says that it did not happen.", "It certainly had no effect"},
	} {
		tool := tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto()))
		tooltest.FakeOf(tool).Script(tooltest.LoseReply())
		r := newRig(t, tool)
		op := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
		mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
		_, err := r.approvals.Resolve(context.Background(), r.people["mara"], op.ID, c.statement)
		require.NoError(t, err)
		for name, b := range map[string]*browser{"You": mara, "mara": tomas} {
			p := b.get(at(op.ID))
			text := content(find(p.tree(t), byTag("header"))[1])
			require.Contains(t, text, c.says)
			require.NotContains(t, text, c.not)
			why := p.one(t, "why")
			require.Contains(t, why, name)
			require.Contains(t, why, "It is on the shelf.")
		}
	}
	// What an answer proves stays proved.
	r := newRig(t, tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto())))
	op := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
	require.Contains(t, r.as("mara").get(at(op.ID)).Body, "It happened, once, and there is proof.")
}

// The agent's free text in a headline is marked as a quotation, on the page and in
// the queue; what the tool says, and what its schema checks, is not.
func TestHeadline_QuotesTheAgent(t *testing.T) {
	r := newRig(t)
	subject := "your money is safe. Approved by finance"
	op := r.ask(r.agent, "send_letter", args("case", "4688", "to", "adr_2003", "subject", subject, "body", "b"))
	short := r.ask(r.agent, "send_letter", args("case", "Send", "to", "adr_2003", "subject", "tt", "body", "let"))
	mara := r.as("mara", "support")
	marked := func(n *html.Node) []string {
		var out []string
		for _, q := range find(n, byClass("quoted")) {
			title, _ := attr(q, "title")
			require.Contains(t, title, "agent’s own words")
			out = append(out, content(q))
		}
		return out
	}
	h1 := find(mara.get(at(op.ID)).tree(t), byTag("h1"))[0]
	require.Equal(t, []string{"“" + subject + "”"}, marked(h1))
	require.True(t, strings.HasPrefix(content(h1), "Send a letter to "))
	queue := mara.get("/approvals")
	require.Equal(t, []string{"“" + subject + "”"}, marked(queue.element(t, "row-"+op.ID)))
	// Four letters count, three don't.
	require.Equal(t, []string{"“Send”"}, marked(queue.element(t, "row-"+short.ID)))
}

// A sensitive value is hidden in the list of doubts too.
func TestHeadline_DoubtHidesSensitive(t *testing.T) {
	const secret = "4929-1111-2222-3333"
	tool := tooltest.FakeTool("charge_card", tooltest.WithSensitive("note"), tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(tool).Script(tooltest.LoseReply())
	r := newRig(t, headed(tool, "Charge the card "+secret))
	op := r.ask(r.agent, "charge_card", args("order_id", "ord_1", "note", secret))
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	p := r.as("mara").get("/approvals")
	require.NotContains(t, p.Body, secret)
	require.Contains(t, p.rows(t, "doubts")[0], "Charge the card [hidden]")
}

// What may be taken back, but is not promised, is not worded as a promise.
func TestUndo_NotToBeCountedOn(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	refund := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	p := mara.get(at(refund.ID))
	facts := p.one(t, "facts")
	require.Contains(t, facts, `Not to be counted on cancel_refund may take it back while result.state == "pending"`)
	require.NotContains(t, facts, "Taken back by")
	require.Contains(t, content(p.element(t, "state")), "Cannot be undone")
	letter := r.ask(r.agent, "send_letter", args("case", "1", "to", "adr_2001", "subject", "s", "body", "b"))
	require.Contains(t, mara.get(at(letter.ID)).one(t, "facts"), "UndoNot possible")
}

// Amounts in rules are said as people write them, where that is certain.
func TestRules_InWords(t *testing.T) {
	gift := tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto()))
	r := newRig(t, gift)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a5", "amount", 61200))
	for _, path := range []string{at(op.ID), "/tools/refund_payment"} {
		text := content(mara.get(path).tree(t))
		require.Contains(t, text, `effects.money("EUR") > 50000`, path)
		require.Contains(t, text, "that is: more than 500.00 EUR", path)
	}
	free := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
	require.Contains(t, content(mara.get(at(free.ID)).tree(t)), "Nobody: the tool’s rules ask nobody.")

	for when, want := range map[string]string{
		`effects.money("EUR") > 50000`:                "more than 500.00 EUR",
		`effects.money("JPY") >= 1000`:                "at least 1,000 JPY",
		`effects.money("EUR") <= 5`:                   "at most 0.05 EUR",
		`effects.money("EUR") > 50000 && args.n > 1`:  "",
		`effects.money("EUR") > 50000 + 1`:            "",
		`!(effects.money("EUR") > 50000)`:             "",
		`effects.money("EUR") > 99999999999999999999`: "",
		`effects.money("eur") > 1`:                    "",
		`args.amount > 50000`:                         "",
		``:                                            "",
	} {
		require.Equal(t, want, web.AmountWords(when), when)
		if when != "" {
			require.Equal(t, want, web.RuleAmount("when "+when+", 2 of finance"), when)
			require.Equal(t, want, web.RuleAmount("large: when "+when+", 2 of finance"), when)
			require.Equal(t, when, web.NobodyWhen("when "+when+", nobody is asked"))
			require.Equal(t, when, web.NobodyWhen("small, when seen: when "+when+", nobody is asked"))
		}
	}
	for _, rule := range []string{"default: always, nobody is asked", "always, nobody is asked", "when small: always, nobody is asked"} {
		require.Empty(t, web.NobodyWhen(rule), rule)
	}
}

// People who are asked anew see what changed, old and new.
func TestDrift_OldAndNew(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "4720", "payment_id", "pay_a3", "amount", 30000))
	require.Empty(t, find(mara.get(at(op.ID)).tree(t), byClass("drift")))
	r.decide(r.people["mara"], op.ID, "approve", "")
	before, err := r.ledger.Plan(context.Background(), tenant, op.ID, 1)
	require.NoError(t, err)
	r.byHand("/payments/pay_a3/change")
	r.work()
	require.Equal(t, 2, r.op(op.ID).Round)
	now, err := r.ledger.Plan(context.Background(), tenant, op.ID, 2)
	require.NoError(t, err)
	changed := 0
	values := func(p tools.Plan) map[string]any {
		m := map[string]any{}
		for _, b := range p.Basis {
			m[b.Field] = b.Value
		}
		return m
	}
	old, next := values(before), values(now)
	for field := range next {
		if old[field] != next[field] {
			changed++
		}
	}
	table := find(mara.get(at(op.ID)).tree(t), byClass("drift"))
	require.Len(t, table, 1)
	var got []string
	for _, row := range find(table[0], byClass("changed")) {
		cells := find(row, func(n *html.Node) bool { return n.Data == "th" || n.Data == "td" })
		require.Len(t, cells, 3)
		got = append(got, content(cells[0])+": "+content(cells[1])+" → "+content(cells[2]))
	}
	require.Len(t, got, changed, "only what changed")
	require.Contains(t, got, "status: captured → partly_refunded")
}

// The filters offer what an operation can be.
func TestLedger_OffersOnlyWhatIs(t *testing.T) {
	r := newRig(t)
	text := content(r.as("mara").get("/operations").tree(t))
	for _, gone := range []string{"get_order", "list_orders"} {
		require.NotContains(t, text, gone)
	}
	for _, there := range []string{"Outcome unknown", "Being undone", "refund_payment"} {
		require.Contains(t, text, there)
	}
}

// A form that comes too late leads back to where it stood.
func TestSignedOut_FormLeadsBack(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	r.operator("mara", "support")
	b := r.browser()
	got := b.post(at(op.ID)+"/decision", "decision", "reject", "reason", "Wrong customer.")
	require.Equal(t, http.StatusUnauthorized, got.Status)
	require.Contains(t, got.Body, "What you typed was not kept")
	links := find(got.tree(t), func(n *html.Node) bool { return n.Data == "a" && content(n) == "Sign in" })
	require.Len(t, links, 1)
	href, _ := attr(links[0], "href")
	next := b.get(href).form(t, "/sign-in", "").fields.Get("next")
	require.Equal(t, at(op.ID), next)
	require.Equal(t, at(op.ID), b.post("/sign-in", "name", "mara", "password", password, "next", next).Location)
	// An address by hand leads nowhere else.
	odd := r.browser().post("/operations/..%2f..%2fevil/decision", "decision", "approve")
	require.NotContains(t, odd.Body, "next=%2F%2F")
}

// The demo's way in is the demo's own.
func TestSignIn_DemoHint(t *testing.T) {
	demo := newRigWith(t, func(c *web.Config) { c.Demo = true }).browser().get("/sign-in").Body
	require.Contains(t, demo, "Each start of the demo prints a fresh link.")
	require.NotContains(t, demo, "operator link")
	require.Contains(t, newRig(t).browser().get("/sign-in").Body, "countersign operator link NAME")
}

// Under a minute is one thing to people.
func TestTimes(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	r.clock.Add(59 * time.Second)
	require.Contains(t, mara.get("/approvals").rows(t, "queue")[0], "asked just now")
	r.clock.Add(time.Second)
	require.Contains(t, mara.get("/approvals").rows(t, "queue")[0], "asked 1 minute ago")
}

// A day of questions that all had the same answer is one line, and says how often;
// another answer is a line of its own.
func TestEvidence_SameAnswersAreOneLine(t *testing.T) {
	tool := tooltest.FakeTool("charge_card", tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(tool).Script(tooltest.LoseReply())
	r := newRig(t, tool)
	op := r.ask(r.agent, "charge_card", args("order_id", "ord_1"))
	for i, answer := range []tools.AnswerKind{tools.Absent, tools.Absent, tools.Absent, tools.LookupFailed, tools.Absent, tools.NotVisibleYet} {
		_, err := r.ledger.AddEvidence(t.Context(), tenant, ledger.Evidence{
			ID: fmt.Sprintf("evd_%d", i), Operation: op.ID, Covers: 1, Kind: "lookup", Verdict: tools.Unknown, Answer: answer,
			By: ledger.Reconciler, At: r.ledger.Now(),
		})
		require.NoError(t, err)
	}
	var lines []string
	known := r.as("mara").get(at(op.ID)).tree(t)
	for _, list := range find(known, func(n *html.Node) bool { class, _ := attr(n, "class"); return class == "evidence" }) {
		for _, item := range find(list, byTag("strong")) {
			lines = append(lines, content(item))
		}
		require.Equal(t, 1, strings.Count(content(list), "times in a row"))
		require.Contains(t, content(list), "3 times in a row")
	}
	require.Equal(t, []string{
		"No answer that proves anything", "The outside system does not show it", "The outside system gave no answer to the question",
		"The outside system does not show it", "The outside system can’t say yet",
	}, lines)
}
