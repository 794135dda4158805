package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools"
	"countersign/tools/tooltest"
)

// explanations are the hypotheses of the page with their verdicts, in order.
func (p page) explanations(t testing.TB) (names, verdicts []string) {
	t.Helper()
	for _, h := range find(p.tree(t), byClass("hypothesis")) {
		name, _ := attr(h, "aria-labelledby")
		names = append(names, strings.TrimPrefix(name, "h-"))
		verdicts = append(verdicts, content(find(h, byClass("badge"))[0]))
	}
	return names, verdicts
}

func points() *tools.Tool {
	return tooltest.FakeTool("add_points", tooltest.KeyFrom(tools.KeyFromCaller), tooltest.WithApproval(tooltest.Auto()))
}

// Two tool calls, each with a key: the record supports that the agent planned two
// actions, which is read first and says what follows.
func TestForensics_TwoPlans(t *testing.T) {
	r := newRig(t, points())
	mara := r.as("mara", "support")
	one := r.calledAs(r.agent, "add_points", "first", "call_<i>", args("order_id", "ord_1"))
	two := r.calledAs(r.agent, "add_points", "second", "call_<b>", args("order_id", "ord_1"))
	p := mara.get(at(two.ID) + "/forensics")
	require.Equal(t, http.StatusOK, p.Status)
	wellMade(t, p)
	names, verdicts := p.explanations(t)
	require.Equal(t, []string{"two_plans", "never_ran", "submitted_twice", "lost_reply"}, names)
	require.Equal(t, "The record supports it", verdicts[0])
	text := content(p.tree(t))
	require.Contains(t, text, "It supports one of them. 2 effects are proven in what is compared below.")
	require.Contains(t, text, "Ask the agent’s owner whether both were wanted.")
	require.NotContains(t, text, "Give the client one key", "what is ruled out asks for nothing")
	require.Contains(t, text, "call call_<i>), which is another tool call than this one's")
	require.Contains(t, p.Body, `<a href="/operations/`+one.ID+`"><code>`)
	require.NotContains(t, p.Body, `<a href="/operations/`+two.ID+`"><code>`+two.ID+"</code></a> is", "the page's own operation leads nowhere")
	require.Len(t, p.rows(t, "ledger"), 2)
	require.Contains(t, p.rows(t, "ledger")[1], "This one")
}

// Two keys without a tool call id: nobody can tell, and the page says so.
func TestForensics_Open(t *testing.T) {
	r := newRig(t, points())
	mara := r.as("mara", "support")
	r.keyed(r.agent, "add_points", "first", args("order_id", "ord_1"))
	two := r.keyed(r.agent, "add_points", "second", args("order_id", "ord_1"))
	require.NoError(t, r.executor.Drain(t.Context()))
	p := mara.get(at(two.ID) + "/forensics")
	text := content(p.tree(t))
	require.Contains(t, text, "It supports none of them, and leaves")
	require.Contains(t, text, "without a tool call id on both")
	require.NotContains(t, p.Body, `class="then"`)
}

func TestForensics_Alone(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	p := mara.get(at(op.ID) + "/forensics")
	_, verdicts := p.explanations(t)
	require.Equal(t, []string{"Ruled out", "Ruled out", "Ruled out", "Ruled out"}, verdicts)
	require.Contains(t, content(p.tree(t)), "It rules all of them out. 1 effect is proven in what is compared below.")
	require.Contains(t, p.Body, "Nothing else has these arguments, this key or this goal.")

	for _, id := range []string{"op_0", "%3Cscript%3E", strings.Repeat("a", 5000)} {
		require.Equal(t, http.StatusNotFound, mara.get("/operations/"+id+"/forensics").Status)
	}
	require.Equal(t, http.StatusSeeOther, r.browser().get(at(op.ID)+"/forensics").Status)
	require.Equal(t, http.StatusMethodNotAllowed, mara.post(at(op.ID)+"/forensics").Status)
}

// An operation leads to it, and so do the warning of a possible duplicate and the
// list of them.
func TestForensics_WaysThere(t *testing.T) {
	voucher := tooltest.FakeTool("send_voucher", tooltest.KeyFrom(tools.KeyFromCaller), tooltest.WithApproval(tooltest.Approve("support", 1)))
	r := newRig(t, voucher)
	mara := r.as("mara", "support")
	one := r.keyed(r.agent, "send_voucher", "first", args("order_id", "ord_1"))
	two := r.keyed(r.agent, "send_voucher", "second", args("order_id", "ord_1"))
	there := at(two.ID) + "/forensics"
	links := func(p page, where string) (n int) {
		for _, part := range find(p.tree(t), byClass(where)) {
			for _, a := range find(part, byTag("a")) {
				if href, _ := attr(a, "href"); href == there {
					n++
				}
			}
		}
		return n
	}
	p := mara.get(at(two.ID))
	require.Equal(t, 1, links(p, "more"))
	require.Equal(t, 1, links(p, "warn"), "the warning")
	require.Equal(t, 1, links(p, "caution"), "the list")
	require.NotContains(t, mara.get(at(one.ID)).Body, "What the record says about that", "the first was no duplicate when it was previewed")
}
