package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
	"countersign/web"
)

// lost is a tool that loses its first reply, after its effect or before.
func lost(name string, step tooltest.Step, options ...tooltest.Option) *tools.Tool {
	tool := tooltest.FakeTool(name, append([]tooltest.Option{tooltest.WithApproval(tooltest.Auto())}, options...)...)
	tooltest.FakeOf(tool).Script(step)
	return tool
}

// unknown opens an operation that ends in doubt. It waits for that alone: the
// outcome may be long in coming, and so may another one's reply.
func (r *rig) unknown(tool string, in map[string]any) ledger.Operation {
	r.t.Helper()
	op := r.commitNow(r.agent, tool, in)
	require.Eventually(r.t, func() bool { return r.op(op.ID).State == ledger.Unknown }, 20*time.Second, 2*time.Millisecond)
	return r.op(op.ID)
}

// A question finds the effect, and that settles the doubt.
func TestAsk_Finds(t *testing.T) {
	courier := lost("book_courier", tooltest.LoseReply(), tooltest.WithLookup(tools.Eventual))
	tooltest.FakeOf(courier).HideFromLookups(true)
	r := newRig(t, courier)
	r.endReconciling()
	mara := r.as("mara", "support")
	op := r.unknown("book_courier", args("order_id", "ord_1"))
	p := mara.get(at(op.ID))
	require.True(t, p.hasForm(t, at(op.ID)+"/ask", ""))
	require.NotContains(t, p.Body, "The tool can’t be asked")

	got := mara.follow(mara.send(p.form(t, at(op.ID)+"/ask", "")))
	require.Contains(t, got.notice(t), "The outside system does not show it. That proves nothing yet, so it stays unknown.")
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)

	tooltest.FakeOf(courier).HideFromLookups(false)
	require.Contains(t, mara.follow(mara.post(at(op.ID)+"/ask")).notice(t), "does not show it", "an answer that is younger than a second is not asked for again")
	r.clock.Add(askPause)
	got = mara.follow(mara.post(at(op.ID) + "/ask"))
	require.Contains(t, got.notice(t), "The outside system says that it is there. The outcome is no longer unknown.")
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Len(t, tooltest.FakeOf(courier).Requests(), 1, "nothing was sent again")
	require.False(t, got.hasForm(t, at(op.ID)+"/ask", ""), "what is known is not asked about")

	refused := mara.post(at(op.ID) + "/ask")
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.notice(t), "Its outcome is known")
}

// askPause is more than the pause between two questions of a person.
const askPause = 2 * time.Second

// From the list of doubts one comes back to the list.
func TestAsk_FromTheList(t *testing.T) {
	r := newRig(t, lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual)))
	r.endReconciling()
	mara := r.as("mara", "support")
	op := r.unknown("book_courier", args("order_id", "ord_1"))
	done := mara.send(mara.get("/unknown").form(t, at(op.ID)+"/ask", ""))
	require.Equal(t, "/unknown?about="+op.ID+"&done=ask", done.Location)
	require.Contains(t, mara.get(done.Location).notice(t), "The outside system does not show it.")
}

// A link claims no question that was not put.
func TestAsk_BelievesTheRecord(t *testing.T) {
	r := newRig(t, lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual)))
	r.endReconciling()
	mara := r.as("mara", "support")
	op := r.unknown("book_courier", args("order_id", "ord_1"))
	for _, path := range []string{at(op.ID) + "?done=ask", "/unknown?done=ask&about=" + op.ID, "/unknown?done=resolve&about=" + op.ID, "/unknown?done=ask&about=op_0"} {
		require.Empty(t, mara.get(path).notice(t), path)
	}
}

// What can't be asked has no button, and says so to whoever posts all the same.
func TestAsk_CantBeAsked(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()))
	mara := r.as("mara", "support")
	op := r.unknown("post_card", args("order_id", "ord_1"))
	p := mara.get(at(op.ID))
	require.False(t, p.hasForm(t, at(op.ID)+"/ask", ""))
	require.Contains(t, p.Body, "The tool can’t be asked, so only a person can find out.")
	refused := mara.post(at(op.ID) + "/ask")
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.notice(t), "can't be asked")
	require.Equal(t, http.StatusNotFound, mara.post("/operations/op_0/ask").Status)
}

// Only who is signed in asks, from this site, and only where there is somebody to
// ask with.
func TestAsk_WhoMay(t *testing.T) {
	courier := lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual))
	r := newRig(t, courier)
	r.endReconciling()
	mara := r.as("mara", "support")
	op := r.unknown("book_courier", args("order_id", "ord_1"))
	require.Equal(t, http.StatusUnauthorized, r.browser().post(at(op.ID)+"/ask").Status)
	require.Equal(t, http.StatusMethodNotAllowed, mara.get(at(op.ID)+"/ask").Status)
	mara.site = "cross-site"
	require.Equal(t, http.StatusForbidden, mara.post(at(op.ID)+"/ask").Status)
	mara.site = "same-origin"
	require.Equal(t, http.StatusRequestEntityTooLarge, mara.post(at(op.ID)+"/ask", "x", strings.Repeat("x", 70_000)).Status)
	require.Zero(t, tooltest.FakeOf(courier).Lookups())

	alone := newRigWith(t, func(c *web.Config) { c.Ask = nil }, lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual)))
	alone.endReconciling()
	op = alone.unknown("book_courier", args("order_id", "ord_1"))
	tomas := alone.as("tomas", "support")
	require.False(t, tomas.get(at(op.ID)).hasForm(t, at(op.ID)+"/ask", ""))
	require.Equal(t, http.StatusNotFound, tomas.post(at(op.ID)+"/ask").Status)
}
