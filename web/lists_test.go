package web_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
	"countersign/tools/tooltest"
)

// rows are the texts of a list's rows.
func (p page) rows(t testing.TB, list string) []string {
	t.Helper()
	var out []string
	for _, n := range find(p.tree(t), byClass(list)) {
		for _, row := range find(n, func(d *html.Node) bool { return d.Data == "li" || d.Data == "tr" && d.Parent.Data == "tbody" }) {
			out = append(out, content(row))
		}
	}
	return out
}

// The oldest ask comes first, with all that helps to choose.
func TestQueue_Rows(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	require.Contains(t, mara.get("/approvals").Body, "Nothing waits for you")
	r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 12000))
	r.clock.Add(5 * time.Minute)
	r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a5", "amount", 61200))
	r.clock.Add(5 * time.Minute)
	p := mara.get("/approvals")
	rows := p.rows(t, "queue")
	require.Len(t, rows, 2)
	for _, want := range []string{"Refund 120.00 EUR to Birch Bakery", "refund_payment", "support-bot", "10 minutes ago", "expires in 50 minutes", "Cannot be undone", "0 of 1", "yours"} {
		require.Contains(t, rows[0], want)
	}
	for _, want := range []string{"Refund 612.00 EUR to Linden Books", "5 minutes ago", "0 of 2", "asks 2 people from finance"} {
		require.Contains(t, rows[1], want)
	}
	require.Equal(t, "2 waiting", p.one(t, "pill"))
	require.Len(t, p.forms(t), 1, "nothing is decided in the list: the one form signs out")
}

// A refresh leaves rows in their places and says what became of them; it shows
// nothing that is not the viewer's to see.
func TestQueue_Refresh(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	one := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	two := r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a2", "amount", 100))
	r.decide(r.people["mara"], one.ID, "reject", "No.")
	three := r.ask(r.agent, "refund_payment", args("case", "3", "payment_id", "pay_a3", "amount", 100))
	ids := func(path string) []string {
		var out []string
		for _, n := range find(mara.get(path).tree(t), byClass("queue")) {
			for _, li := range find(n, byTag("li")) {
				id, _ := attr(li, "id")
				out = append(out, strings.TrimPrefix(id, "row-"))
			}
		}
		return out
	}
	require.Equal(t, []string{two.ID, three.ID}, ids("/approvals"))
	live := "/approvals?live=1&shown=" + one.ID + "&shown=" + two.ID
	require.Equal(t, []string{one.ID, two.ID, three.ID}, ids(live))
	require.Contains(t, mara.get(live).rows(t, "queue")[0], "no longer waits")
	// Strange, repeated and unknown ids, and far too many, are no harm.
	long := url.Values{"live": {"1"}, "shown": {one.ID, one.ID, "nothing", "../x", "\u202e", strings.Repeat("x", 500)}}
	for i := range 500 {
		long.Add("shown", fmt.Sprintf("op_%d", i))
	}
	require.Equal(t, []string{one.ID, two.ID, three.ID}, ids("/approvals?"+long.Encode()))
}

func TestQueue_Pages(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Approve("support", 1))))
	mara := r.as("mara", "support")
	for i := range 53 {
		r.ask(r.agent, "send_gift", args("order_id", fmt.Sprintf("ord_%03d", i)))
	}
	p := mara.get("/approvals")
	require.Len(t, p.rows(t, "queue"), 50)
	require.Equal(t, "50+ waiting", p.one(t, "pill"))
	next := find(p.tree(t), func(n *html.Node) bool { return n.Data == "a" && content(n) == "Later ones" })
	require.Len(t, next, 1)
	href, _ := attr(next[0], "href")
	p = mara.get(href)
	require.Len(t, p.rows(t, "queue"), 3)
	require.Contains(t, p.rows(t, "queue")[0], "ord_050")
	require.Contains(t, p.Body, "Back to the oldest")
	require.Equal(t, 400, mara.get("/approvals?cursor=nonsense").Status)
}

// Doubts that need a person stand under the queue.
func TestQueue_Doubts(t *testing.T) {
	tool := tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(tool).Script(tooltest.LoseReply())
	r := newRig(t, tool)
	op := r.ask(r.agent, "send_gift", args("order_id", "ord_9"))
	p := r.as("mara").get("/approvals")
	require.NotContains(t, p.Body, "Nothing waits for you")
	require.Contains(t, content(p.tree(t)), "No request waits for approval, but 1 unknown outcome needs a person")
	require.Equal(t, "1 waiting", p.one(t, "pill"), "the menu counts it too")
	require.Contains(t, content(p.tree(t)), "1 thing waits for people")
	doubts := p.rows(t, "doubts")
	require.Len(t, doubts, 1)
	require.Contains(t, doubts[0], "send_gift “ord_9”")
	require.Contains(t, doubts[0], "unknown for under a minute")
	require.Contains(t, doubts[0], "needs a person")
	require.Contains(t, p.Body, at(op.ID))
	r.clock.Add(65 * time.Second)
	require.Contains(t, r.as("mara").get("/approvals").rows(t, "doubts")[0], "unknown for 1 minute")
	_, err := r.approvals.Resolve(context.Background(), r.people["mara"], op.ID, ledger.Statement{Happened: true, EffectID: "gift_1", Reason: "Seen."})
	require.NoError(t, err)
	p = r.as("mara").get("/approvals")
	require.Contains(t, p.Body, "Nothing waits for you")
	require.Empty(t, find(p.tree(t), byClass("pill")))
}

// The ledger by state, tool, agent, key and run, and page by page.
func TestLedger_Filters(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	require.Contains(t, mara.get("/operations").Body, "Nothing has happened yet")
	other, _, err := r.identity.CreateAgent(context.Background(), tenant, "other-bot", r.agent.Owner, []string{"*"})
	require.NoError(t, err)
	refund := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	hold := r.askIn(other, "hold_order", args("order_id", "ord_1001"), &ledger.Run{ID: "run_b"})
	letter := r.ask(other, "send_letter", args("case", "1", "to", "adr_2001", "subject", "s", "body", "b"))
	r.decide(r.people["mara"], letter.ID, "reject", "No.")
	ids := func(query string) []string {
		p := mara.get("/operations" + query)
		require.Equal(t, 200, p.Status, p.Body)
		var out []string
		for _, n := range find(p.tree(t), byClass("ledger")) {
			for _, a := range find(n, byTag("a")) {
				href, _ := attr(a, "href")
				out = append(out, strings.TrimPrefix(href, "/operations/"))
			}
		}
		return out
	}
	all := []string{letter.ID, hold.ID, refund.ID}
	for query, want := range map[string][]string{
		"":                                   all,
		"?state=":                            all,
		"?state=nonsense":                    all,
		"?state=awaiting_approval":           {refund.ID},
		"?state=succeeded":                   {hold.ID},
		"?state=rejected&tool=send_letter":   {letter.ID},
		"?state=rejected&tool=hold_order":    nil,
		"?tool=hold_order":                   {hold.ID},
		"?tool=gone":                         nil,
		"?agent=" + other.ID:                 {letter.ID, hold.ID},
		"?key=hold%2Ford_1001":               {hold.ID},
		"?key=%E2%80%AE%3Cscript%3E":         nil,
		"?run=run_b&agent=" + other.ID:       {hold.ID},
		"?tool=refund_payment&key=refund%2F": nil,
	} {
		require.Equal(t, want, ids(query), query)
	}
	require.Contains(t, mara.get("/operations?tool=gone").Body, "Nothing matches")
	require.Contains(t, mara.get("/operations?run=run_b").Body, "Only of the run")
	// What is chosen stays chosen, also a tool and an agent that are gone.
	p := mara.get("/operations?tool=gone&agent=agt_gone&state=expired&key=k")
	var chosen []string
	for _, n := range find(p.tree(t), func(n *html.Node) bool { _, s := attr(n, "selected"); return s }) {
		chosen = append(chosen, content(n))
	}
	require.Equal(t, []string{"Expired", "gone", "agt_gone"}, chosen)
	require.Equal(t, 400, mara.get("/operations?cursor=nonsense").Status)
}

func TestLedger_Pages(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto())))
	mara := r.as("mara")
	for i := range 101 {
		r.ask(r.agent, "send_gift", args("order_id", fmt.Sprintf("ord_%03d", i)))
	}
	seen := map[string]bool{}
	path, pages := "/operations?tool=send_gift", 0
	for path != "" {
		p := mara.get(path)
		pages++
		for _, row := range p.rows(t, "ledger") {
			seen[strings.Fields(row)[1]] = true
		}
		path = ""
		for _, a := range find(p.tree(t), func(n *html.Node) bool { return n.Data == "a" && content(n) == "Older" }) {
			path, _ = attr(a, "href")
			require.Contains(t, path, "tool=send_gift", "the filter stays")
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, seen, 101)
}

// What the tools declare and lack, in plain words.
func TestTools(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara")
	p := mara.get("/tools")
	require.Contains(t, p.Body, "Tools that only read")
	for tool, says := range map[string][]string{
		"refund_payment": {"Cannot be undone", "honours our key for 24 hours", "its answer is current", "2 people from finance must say yes", "1 person from support must say yes", "effects.money", "makes it from the arguments"},
		"send_letter":    {"There is no way back", "sends a request once and never repeats it", "A lost answer needs a person", "What it does not declare"},
		"hold_order":     {"Can be undone", "The tool release_hold takes it back", "nobody is asked"},
		"get_order":      {"Reads only", "It changes nothing"},
	} {
		require.Contains(t, p.Body, "/tools/"+tool)
		one := mara.get("/tools/" + tool)
		text := content(one.tree(t))
		for _, s := range says {
			require.Contains(t, text, s, tool)
		}
		require.Contains(t, text, "Input schema")
		require.Contains(t, text, "tool: "+tool, "the manifest as written")
	}
	require.Equal(t, 404, mara.get("/tools/nothing").Status)
	require.Equal(t, 404, mara.get("/tools/..%2Fapprovals").Status)
}

// Ids that are no operation are a page that says so, whatever they are.
func TestOperation_NotThere(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara")
	for _, id := range []string{"op_0", "x", "%2e%2e", strings.Repeat("a", 5000), "%E2%80%AE", "%3Cscript%3E", "op_1%00", "'%20OR%201=1--"} {
		got := mara.get("/operations/" + id)
		require.Equal(t, 404, got.Status, id)
		require.NotContains(t, got.Body, "<script>alert")
		require.Equal(t, 404, mara.post("/operations/"+id+"/decision", "decision", "approve", "checked", "yes").Status, id)
	}
}
