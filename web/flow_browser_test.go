//go:build browser

package web_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools/tooltest"
)

// run lets the gateway send by itself what was approved.
func (r *rig) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.executor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func css(selector string) chromedp.CSS { return chromedp.CSS(selector) }

// goes does a step that leads to another page, and waits for it.
func (b *tab) goes(step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, step)
	require.NoError(b.t, err)
}

func (b *tab) text(selector string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Text(css(selector)))
	require.NoError(b.t, err)
	return v
}

// From the set-up link to the outcome, as a person does it.
func TestBrowser_SetUpApproveWatch(t *testing.T) {
	tool := tooltest.FakeTool("send_gift", tooltest.Irreversible(), tooltest.WithApproval(tooltest.Approve("support", 1)))
	r := newRig(t, tool)
	release := make(chan struct{})
	tooltest.FakeOf(tool).Script(tooltest.Held(release, tooltest.SucceedAs("gift_77")))
	r.run(t)
	op := r.ask(r.agent, "send_gift", args("order_id", "ord_9", "amount", 12000))
	_, code, err := r.identity.CreateOperator(context.Background(), tenant, "mara", []string{"support"})
	require.NoError(t, err)

	b := openTab(t)
	b.look("light", 390, 844)
	// The link fills in the code and goes on by itself.
	b.do(chromedp.Navigate(r.server.URL + "/setup#" + code))
	b.wait(`document.getElementById("password") !== null`)
	require.Equal(t, "/setup", b.eval(`location.pathname + location.hash`), "the code is out of the address")
	require.Equal(t, "mara", b.eval(`document.querySelector("[autocomplete=username]").value`))
	b.do(chromedp.SendKeys(css("#password"), password), chromedp.Click(css("#show")))
	require.Equal(t, "text", b.eval(`document.getElementById("password").type`))
	b.goes(chromedp.Click(css(`form[action="/setup"] button`)))
	require.Equal(t, "/approvals", b.eval(`location.pathname`))
	require.Contains(t, b.text(".queue"), "send_gift “ord_9”")

	// Two steps: the first click opens, and without the tick nothing is sent.
	b.goes(chromedp.Click(css(".queue .go")))
	b.do(chromedp.Click(css(".approve summary")), chromedp.Click(css(".approve button")))
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
	require.Equal(t, "false", b.eval(`String(document.querySelector(".approve form").checkValidity())`))
	b.do(chromedp.Click(css(`.approve input[name="checked"]`)))
	b.goes(chromedp.Click(css(".approve button")))
	require.Contains(t, b.text("#live > .note"), "Approved by you.")

	// The page follows by itself, without being loaded again.
	<-tooltest.FakeOf(tool).Arrived()
	b.wait(`document.querySelector("#state").textContent.includes("Being sent")`)
	b.eval(`(window.same = "the same page")`)
	close(release)
	b.wait(`document.querySelector("#state").textContent.includes("Done")`)
	require.Equal(t, "the same page", b.eval(`window.same`))
	require.Contains(t, b.text("#live > .note"), "it is done")
	require.Contains(t, b.text(".facts"), "gift_77")
	require.Len(t, tooltest.FakeOf(tool).Effects(), 1)
	require.Equal(t, "null", b.eval(`String(document.querySelector(".actions .approve"))`), "nothing is left to decide")
	require.Equal(t, "computed again in this browser: it is the same", b.eval(`document.getElementById("args-checked").textContent`))
	b.quiet()
}

// A live page never takes anything from under a finger: rows keep their places,
// and what is being typed stays.
func TestBrowser_LivePagesKeepStill(t *testing.T) {
	r := newRig(t)
	first := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 1000))
	second := r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a5", "amount", 61200))
	mara := r.as("mara", "support", "finance")
	tomas := r.operator("tomas", "finance", "support")

	b := openTab(t)
	b.as(mara)
	b.do(chromedp.Navigate(r.server.URL + "/approvals"))
	b.wait(`document.querySelectorAll(".queue li").length === 2`)
	b.eval(`(window.same = "the same page")`)
	r.decide(tomas, first.ID, "reject", "Wrong customer.")
	b.wait(`document.querySelector(".queue li.settled")?.textContent.includes("Rejected")`)
	b.wait(`document.querySelector(".pill").textContent === "1 waiting"`)
	b.eval(`document.querySelector("#menu a[href='/operations']").focus() || "focused"`)
	third := r.ask(r.agent, "refund_payment", args("case", "3", "payment_id", "pay_a7", "amount", 3000))
	b.wait(`document.querySelectorAll(".queue li").length === 3`)
	require.Equal(t, "row-"+first.ID+" row-"+second.ID+" row-"+third.ID, b.eval(`[...document.querySelectorAll(".queue li")].map(e => e.id).join(" ")`))
	require.Equal(t, "the same page", b.eval(`window.same`))
	b.wait(`document.querySelector(".pill").textContent === "2 waiting"`) // the menu counts along
	require.Equal(t, "/operations", b.eval(`document.activeElement.getAttribute("href")`), "and keeps the focus")

	b.do(chromedp.Navigate(r.server.URL+"/operations/"+second.ID),
		chromedp.Click(css(".reject summary")), chromedp.SendKeys(css(".reject textarea"), "The invoice says"))
	r.decide(tomas, second.ID, "approve", "")
	b.wait(`document.querySelector(".facts").textContent.includes("1 of 2")`)
	require.Equal(t, "The invoice says", b.eval(`document.querySelector(".reject textarea").value`))
	require.Equal(t, "true", b.eval(`String(document.querySelector(".reject").open)`))
	require.Equal(t, "TEXTAREA", b.eval(`document.activeElement.tagName`))

	// When the ask ends the buttons go.
	r.decide(r.operator("lena", "finance"), second.ID, "reject", "Not ours.")
	b.wait(`document.querySelector(".reject") === null`)
	b.wait(`document.querySelector("#menu [aria-current]").getAttribute("href") === "/operations"`)
	b.wait(`document.querySelector(".pill").textContent === "1 waiting"`)
	b.quiet()
}

// A session that ends elsewhere ends here: the page says so and tells no more.
func TestBrowser_SessionEnds(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	b := openTab(t)
	b.as(mara)
	b.do(chromedp.Navigate(r.server.URL + "/approvals"))
	b.wait(`document.querySelector("[data-htmx-powered]") !== null`)
	require.Equal(t, 303, mara.post("/sign-out").Status)
	r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 1000))
	b.wait(`document.getElementById("ended").checkVisibility()`)
	require.Equal(t, "null", b.eval(`String(document.querySelector(".queue"))`))
}
