package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
)

// hiddenToken is the commit token that a page's form carries.
func hiddenToken(t *testing.T, p page) string {
	t.Helper()
	for _, n := range find(p.tree(t), byTag("input")) {
		if name, _ := attr(n, "name"); name == "commit_token" {
			value, _ := attr(n, "value")
			return value
		}
	}
	require.Fail(t, "the page has no commit token", p.Body)
	return ""
}

// One effect is taken back in two steps: look, then go.
func TestUndo_Operation(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	require.Contains(t, mara.get(at(op.ID)).Body, "See what undoing it would do")

	before := r.shop.EffectCount()
	look := mara.post("/operations/" + op.ID + "/undo")
	require.Equal(t, http.StatusOK, look.Status)
	require.Contains(t, look.Body, "Nothing has been changed yet")
	require.Equal(t, before, r.shop.EffectCount())
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)

	token := hiddenToken(t, look)
	done := mara.post("/operations/"+op.ID+"/undo/commit", "commit_token", token)
	require.Equal(t, http.StatusSeeOther, done.Status)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Equal(t, ledger.Compensated, r.op(op.ID).State)
	require.Equal(t, before+1, r.shop.EffectCount())

	// Again: the page leads to the undo that is there, nothing is sent.
	again := mara.post("/operations/"+op.ID+"/undo/commit", "commit_token", token)
	require.Equal(t, done.Location, again.Location)
	require.Equal(t, done.Location, mara.post("/operations/"+op.ID+"/undo").Location)
	require.Equal(t, before+1, r.shop.EffectCount())
	require.NotContains(t, mara.get(at(op.ID)).Body, "See what undoing it would do")
	require.Contains(t, mara.get(at(op.ID)).Body, "Its undo")
	require.Contains(t, mara.get(done.Location).Body, "This takes back")
}

// What can't be undone says why, and nothing is opened.
func TestUndo_Impossible(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	got := mara.post("/operations/" + op.ID + "/undo")
	require.Equal(t, http.StatusUnprocessableEntity, got.Status)
	require.Contains(t, got.Body, "Only what succeeded can be taken back")
	require.Equal(t, http.StatusUnauthorized, mara.post("/operations/"+op.ID+"/undo/commit", "commit_token", "nonsense").Status)
}

// A run is taken back by one plan, newest effect first.
func TestUndo_Run(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	run := func(step string) *ledger.Run { return &ledger.Run{ID: "run <1>", Step: step, Call: "c"} }
	first := r.askIn(r.agent, "hold_order", args("order_id", "ord_1001"), run("1"))
	second := r.askIn(r.agent, "hold_order", args("order_id", "ord_1002"), run("2"))
	list := mara.get("/runs")
	require.Contains(t, list.Body, "run &lt;1&gt;")
	var here string
	for _, n := range find(list.tree(t), func(n *html.Node) bool { return n.Data == "a" }) {
		if href, _ := attr(n, "href"); len(href) > 5 && href[:5] == "/run?" {
			here = href
		}
	}
	page := mara.get(here)
	require.Equal(t, http.StatusOK, page.Status)
	require.Contains(t, page.Body, first.EffectID)

	plan := mara.post("/run/undo" + here[len("/run"):])
	require.Equal(t, http.StatusOK, plan.Status)
	require.Contains(t, plan.Body, "Take back 2 effects")
	done := mara.follow(mara.post("/run/undo/commit"+here[len("/run"):], "commit_token", hiddenToken(t, plan)))
	require.Contains(t, done.Body, "closed by its undo")
	for range 3 {
		r.work()
	}
	require.Equal(t, ledger.Compensated, r.op(second.ID).State)
	require.Equal(t, ledger.Compensated, r.op(first.ID).State)
	require.Equal(t, http.StatusNotFound, mara.get("/run?id=nothing&agent="+r.agent.ID).Status)
}
