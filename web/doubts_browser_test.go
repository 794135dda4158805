//go:build browser

package web_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// On a phone and by the keyboard: a doubt comes while somebody types about another
// one, and nothing that was typed is lost; then the outside system is asked again,
// and the statement is sent.
func TestBrowser_Unknown(t *testing.T) {
	r := newRig(t, lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual)), lost("post_card", tooltest.LoseReply()))
	mara := r.as("mara", "support")
	r.endReconciling()
	op := r.unknown("book_courier", args("order_id", "ord_1"))

	b := openTab(t)
	b.look("dark", 390, 844)
	b.as(mara)
	b.do(chromedp.Navigate(r.server.URL + "/unknown"))
	row := "#doubt-" + op.ID
	b.eval(fmt.Sprintf(`(document.querySelector(%q).focus(), "")`, row+" .resolve summary"))
	b.do(chromedp.KeyEvent("\r"))
	b.wait(fmt.Sprintf(`document.querySelector(%q).open`, row+" .resolve"))
	b.do(chromedp.SendKeys(css(row+" textarea"), "Not in their list."))

	other := r.unknown("post_card", args("order_id", "ord_2"))
	b.wait(fmt.Sprintf(`document.getElementById(%q) !== null`, "doubt-"+other.ID))
	require.Equal(t, "Not in their list.", b.eval(fmt.Sprintf(`document.querySelector(%q).value`, row+" textarea")))
	require.Equal(t, "true", b.eval(fmt.Sprintf(`String(document.querySelector(%q).open)`, row+" .resolve")))
	require.Equal(t, "", b.eval(sideways))

	b.goes(chromedp.Click(css(row + " .ask button")))
	require.Equal(t, "/unknown", b.eval(`location.pathname`))
	require.Contains(t, b.text("#live > .note"), "The outside system does not show it.")

	b.do(chromedp.Click(css(row+" .resolve summary")), chromedp.Click(css(row+` input[value="no"]`)), chromedp.SendKeys(css(row+" textarea"), "Not in their list."))
	b.goes(chromedp.Click(css(row + " .resolve button")))
	require.Contains(t, b.text("#live > .note"), "Your statement is recorded.")
	require.Equal(t, ledger.Failed, r.op(op.ID).State)
	require.Equal(t, "null", b.eval(fmt.Sprintf(`String(document.querySelector(%q))`, row)))
	b.quiet()
}
