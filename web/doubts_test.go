package web_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
	"countersign/web"
)

// doubts are the texts of the page's doubts by group, in the page's order.
func (p page) doubts(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, g := range find(p.tree(t), byClass("group")) {
		name, _ := attr(g, "aria-labelledby")
		for _, d := range find(g, byClass("doubt")) {
			if d.Data == "article" {
				out[name] = append(out[name], content(d))
			}
		}
	}
	return out
}

// handed waits until the reconciler has handed an operation to people.
func (r *rig) handed(id string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.op(id).OnList }, 20*time.Second, 5*time.Millisecond)
}

// Everything that helps to settle a doubt stands with it: how old it is, what was
// sent, what was answered last, what happens next, and whom it waits for.
func TestUnknown_Rows(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()), lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual)))
	mara := r.as("mara", "support")
	empty := mara.get("/unknown")
	require.Contains(t, empty.Body, "Every outcome is known")
	require.NotContains(t, empty.Body, "/v1/operations/export")

	card := r.unknown("post_card", args("order_id", "ord_1"))
	r.handed(card.ID)
	r.endReconciling()
	r.clock.Add(5 * time.Minute)
	courier := r.unknown("book_courier", args("order_id", "ord_2"))
	_, err := r.reconciler.AskNow(t.Context(), tenant, courier.ID)
	require.NoError(t, err)
	r.clock.Add(500 * time.Millisecond)

	p := mara.get("/unknown")
	wellMade(t, p)
	groups := p.doubts(t)
	require.Len(t, groups["h-person"], 1)
	require.Len(t, groups["h-gateway"], 1)
	for _, want := range []string{
		"post_card “ord_1”", "Needs a person", "Unknown for5 minutes", "FAKE http://fake.invalid/post_card", "once, 5 minutes ago", card.UpstreamKey,
		"The connection closed before an answer", "None: the tool can’t be asked.", "a person looks in the outside system",
		"The tool can't be asked, and what it was sent can't be sent again", "Say what happened",
	} {
		require.Contains(t, groups["h-person"][0], want)
	}
	require.NotContains(t, groups["h-person"][0], "Ask again")
	for _, want := range []string{"Being asked", "The outside system does not show it", "just now, asked once", "The gateway looks again in a moment.", "Ask again"} {
		require.Contains(t, groups["h-gateway"][0], want)
	}
	r.clock.Add(time.Minute)
	require.Contains(t, mara.get("/unknown").doubts(t)["h-gateway"][0], "The gateway is asking the outside system.", "its time has come")
	for _, format := range []string{"csv", "jsonl"} {
		require.Contains(t, p.Body, `href="/v1/operations/export?format=`+format+`&amp;state=unknown"`)
	}

	one := mara.get("/unknown?tool=post_card")
	require.Len(t, one.doubts(t)["h-person"], 1)
	require.Empty(t, one.doubts(t)["h-gateway"])
	require.Contains(t, one.Body, `href="/v1/operations/export?format=csv&amp;state=unknown&amp;tool=post_card"`)
	require.Empty(t, mara.get("/unknown?who=gateway").doubts(t)["h-person"])
	require.Len(t, mara.get("/unknown?who=nobody&cursor=nonsense").doubts(t), 2, "an address by hand harms nobody")
	require.Equal(t, http.StatusBadRequest, mara.get("/unknown?who=person&cursor=nonsense").Status)
	gone := mara.get("/unknown?tool=%3Cscript%3E")
	require.Contains(t, gone.Body, "Every outcome is known")
	require.NotContains(t, gone.Body, "<script>")
	require.Equal(t, http.StatusSeeOther, r.browser().get("/unknown").Status, "nobody looks without signing in")
}

// A doubt that goes to people while the page reads both lists stands on the page,
// once.
func TestUnknown_HandedOverMeanwhile(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()))
	r.endReconciling()
	mara := r.as("mara", "support")
	op := r.unknown("post_card", args("order_id", "ord_1"))
	require.False(t, op.OnList)
	store := &betweenLists{Store: r.db, then: func() {
		_, err := r.ledger.HandOver(context.Background(), tenant, op.ID, "it can't be asked")
		require.NoError(t, err)
	}}
	r.pages.Close()
	r.server.Close()
	r.serve(func(c *web.Config) {
		var err error
		c.Ledger, err = ledger.Open(context.Background(), ledger.Config{Store: store, Now: r.clock.Now})
		require.NoError(t, err)
	})
	doubts := mara.get("/unknown").doubts(t)
	require.Nil(t, store.then, "it was handed over between the two")
	require.Len(t, doubts["h-person"], 1)
	require.Empty(t, doubts["h-gateway"])
}

// betweenLists is a store in which something happens after the first list of doubts
// is read.
type betweenLists struct {
	ledger.Store
	then func()
}

func (s *betweenLists) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	page, err := s.Store.List(ctx, f)
	if do := s.then; do != nil && f.OnList != nil {
		s.then = nil
		do()
	}
	return page, err
}

// A statement from the list settles the doubt and leads back; one that says too
// little changes nothing, and what was typed is kept.
func TestUnknown_Settle(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()))
	mara := r.as("mara", "support")
	op := r.unknown("post_card", args("order_id", "ord_1"))
	form := mara.get("/unknown").form(t, at(op.ID)+"/resolve", "")
	require.ElementsMatch(t, []string{"happened", "happened", "reason"}, form.required)

	refused := mara.send(form, "happened", "yes", "reason", "The post office shows it.")
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
	require.Contains(t, refused.Body, "The post office shows it.")
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)

	done := mara.send(form, "happened", "yes", "effect_id", "card_7", "reason", "The post office shows it.")
	require.Equal(t, "/unknown?about="+op.ID+"&done=resolve", done.Location)
	got := mara.get(done.Location)
	require.Contains(t, got.notice(t), "Your statement is recorded. The doubt is settled: done.")
	require.Contains(t, got.Body, `href="/operations/`+op.ID+`"`)
	require.Contains(t, got.Body, "Every outcome is known")
	require.Equal(t, "card_7", r.op(op.ID).EffectID)
	require.Empty(t, r.as("tomas").get(done.Location).notice(t), "another's statement is not one's own")
}

func TestUnknown_Pages(t *testing.T) {
	cards := tooltest.FakeTool("post_card", tooltest.WithApproval(tooltest.Auto()))
	r := newRig(t, cards)
	for i := range 27 {
		tooltest.FakeOf(cards).Script(tooltest.LoseReply())
		r.handed(r.unknown("post_card", args("order_id", fmt.Sprintf("ord_%03d", i))).ID)
	}
	mara := r.as("mara")
	p := mara.get("/unknown")
	require.Len(t, p.doubts(t)["h-person"], 25)
	require.Contains(t, p.doubts(t)["h-person"][0], "ord_000", "the oldest comes first")
	next := find(p.tree(t), func(n *html.Node) bool { return n.Data == "a" && content(n) == "Later ones" })
	require.Len(t, next, 1)
	href, _ := attr(next[0], "href")
	p = mara.get(href)
	require.Len(t, p.doubts(t)["h-person"], 2)
	require.Contains(t, p.doubts(t)["h-person"][1], "ord_026")
}

// What is sensitive is hidden here too, also in what was seen.
func TestUnknown_HidesSensitive(t *testing.T) {
	const secret = "4929-1111-2222-3333"
	r := newRig(t, headed(lost("charge_card", tooltest.LoseReply(), tooltest.WithSensitive("note")), "Charge the card "+secret))
	r.unknown("charge_card", args("order_id", "ord_1", "note", secret))
	p := r.as("mara").get("/unknown")
	require.NotContains(t, p.Body, secret)
	require.Contains(t, p.Body, "[hidden]")
}

// The page follows: a new doubt, one that is settled, and with the minute also an
// answer that proves nothing.
func TestUnknown_Live(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()))
	mara := r.as("mara", "support")
	s := mara.stream(t, mara.get("/unknown").streamOf(t))
	op := r.unknown("post_card", args("order_id", "ord_1"))
	require.Contains(t, s.next(), "event: changed")
	r.handed(op.ID)
	page := mara.get("/unknown")
	self, _ := attr(page.element(t, "live"), "hx-get")
	require.Contains(t, self, "live=1")
	require.Equal(t, http.StatusOK, mara.get(self).Status)
	quiet := page.streamOf(t)
	require.Equal(t, quiet, mara.get("/unknown").streamOf(t), "nothing has changed")
	r.clock.Add(time.Minute)
	require.NotEqual(t, quiet, mara.get("/unknown").streamOf(t))
	require.Contains(t, mara.stream(t, quiet).next(), "event: changed")
	require.True(t, web.Background(&http.Request{Method: http.MethodGet, URL: mustURL(t, self)}))
}

// Under a freeze of everything nothing is sent again, and the page does not say that
// it would be.
func TestUnknown_RepeatUnderAFreeze(t *testing.T) {
	r := newRig(t, lost("book_courier", tooltest.LoseReply(), tooltest.HonoursKey(time.Hour)))
	r.endReconciling()
	mara := r.as("mara", "support")
	r.unknown("book_courier", args("order_id", "ord_1"))
	r.clock.Add(time.Minute)
	require.Contains(t, mara.get("/unknown").doubts(t)["h-gateway"][0], "The gateway sends the same again, under the same key.")
	mara.follow(mara.post("/freezes", "scope", "book_courier", "level", "all", "reason", "Look first."))
	require.Contains(t, mara.get("/unknown").doubts(t)["h-gateway"][0], "The gateway hands it to people.")
}
