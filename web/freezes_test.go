package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools/tooltest"
)

// The guided way: freeze, look, be refused over a doubt, settle it, lift.
func TestFreezes_TheWayBack(t *testing.T) {
	letter := tooltest.FakeTool("post_card")
	tooltest.FakeOf(letter).Script(tooltest.LoseReply())
	r := newRig(t, letter)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "post_card", args("order_id", "ord_1001"))
	require.Equal(t, ledger.Unknown, op.State)

	got := mara.follow(mara.post("/freezes", "scope", "post_card", "level", "all", "reason", "Something is odd."))
	require.Contains(t, got.Body, "It is frozen")
	require.Contains(t, got.Body, "Something is odd.")
	require.Contains(t, got.Body, "/operations/"+op.ID)
	require.Contains(t, got.Body, "/v1/operations/export?state=unknown&amp;tool=post_card&amp;format=csv")
	g, err := r.ledger.Guard(context.Background(), tenant)
	require.NoError(t, err)
	require.Equal(t, ledger.FreezeAll, g.Freezes[0].Level)
	require.Equal(t, r.people["mara"].ID, g.Freezes[0].By.ID)

	refused := mara.post("/freezes/lift", "scope", "post_card", "reason", "Looks fine to me.")
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.Body, "are not known")
	require.Contains(t, refused.Body, "Looks fine to me.", "what was typed is kept")

	settled := mara.post("/operations/"+op.ID+"/resolve", "happened", "no", "reason", "The post office never saw it.")
	require.Equal(t, http.StatusSeeOther, settled.Status)
	got = mara.follow(mara.post("/freezes/lift", "scope", "post_card", "reason", "Settled."))
	require.Contains(t, got.Body, "The freeze is lifted")
	require.Contains(t, got.Body, "Nothing is frozen")
	g, err = r.ledger.Guard(context.Background(), tenant)
	require.NoError(t, err)
	require.Empty(t, g.Freezes)
}

// An override lifts it over a doubt, and the record says so.
func TestFreezes_Override(t *testing.T) {
	letter := tooltest.FakeTool("post_card")
	tooltest.FakeOf(letter).Script(tooltest.LoseReply())
	r := newRig(t, letter)
	mara := r.as("mara", "support")
	r.ask(r.agent, "post_card", args("order_id", "ord_1001"))
	mara.follow(mara.post("/freezes", "scope", "*", "level", "new", "reason", "All of it."))
	got := mara.follow(mara.post("/freezes/lift", "scope", "*", "override", "yes", "reason", "The bank said to go on."))
	require.Contains(t, got.Body, "over 1 unknown outcome")
	history, err := r.ledger.GuardHistory(context.Background(), tenant, 0, 100)
	require.NoError(t, err)
	last := history[len(history)-1].Change
	require.Equal(t, 1, last.Open)
	require.Equal(t, "The bank said to go on.", last.Reason)
}

func TestFreezes_Refused(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	for name, form := range map[string][]string{
		"no scope":          {"level", "all", "reason", "x"},
		"no such tool":      {"scope", "nothing", "level", "all", "reason", "x"},
		"a tool that reads": {"scope", "get_order", "level", "all", "reason", "x"},
		"no level":          {"scope", "hold_order", "reason", "x"},
		"odd level":         {"scope", "hold_order", "level", "most", "reason", "x"},
		"no reason":         {"scope", "hold_order", "level", "all", "reason", "  "},
	} {
		t.Run(name, func(t *testing.T) {
			got := mara.post("/freezes", form...)
			require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusNotFound}, got.Status)
			g, err := r.ledger.Guard(context.Background(), tenant)
			require.NoError(t, err)
			require.Empty(t, g.Freezes)
		})
	}
	require.Equal(t, http.StatusSeeOther, r.browser().get("/freezes").Status, "nobody looks without signing in")
	other := r.browser()
	other.site = "cross-site"
	require.Equal(t, http.StatusForbidden, other.post("/freezes", "scope", "hold_order", "level", "all", "reason", "x").Status)
}

// The three scopes have one name each, in the form, on the card and in the history;
// also where both of the wide ones stand, and one of them is lifted.
func TestFreezes_ScopesHaveOneName(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	const ours, everything = "Every tool of this tenant", "Everything, in all tenants"
	history := func(p page) (said []string) {
		for _, list := range find(p.tree(t), byClass("timeline")) {
			for _, li := range find(list, byTag("li")) {
				said = append(said, content(li))
			}
		}
		return said
	}
	p := mara.get("/freezes")
	for _, name := range []string{ours, everything} {
		require.Equal(t, 1, strings.Count(p.Body, ">"+name+"</option>"))
	}
	mara.follow(mara.post("/freezes", "scope", "*", "level", "new", "reason", "Ours."))
	mara.follow(mara.post("/freezes", "scope", "**", "level", "all", "reason", "All of it."))
	p = mara.follow(mara.post("/freezes", "scope", "hold_order", "level", "all", "reason", "This one."))
	for _, name := range []string{ours, everything, "hold_order"} {
		require.Contains(t, p.Body, `aria-label="`+name+`"`, "the card")
	}
	mara.follow(mara.post("/freezes/lift", "scope", "**", "reason", "Over."))
	p = mara.follow(mara.post("/freezes/lift", "scope", "*", "reason", "Over too."))
	said := history(p)
	require.Len(t, said, 5)
	for i, want := range []string{ours + " lifted by You", everything + " lifted by You", "hold_order frozen by You nothing is sent", everything + " frozen by You nothing is sent", ours + " frozen by You nothing new is sent"} {
		require.True(t, strings.HasPrefix(said[i], want), said[i])
	}
}

// The figures of a freeze beside those of now, and the way to its doubts.
func TestFreezes_Figures(t *testing.T) {
	r := newRig(t, lost("post_card", tooltest.LoseReply()))
	mara := r.as("mara", "support")
	op := r.unknown("post_card", args("order_id", "ord_1"))
	r.clock.Add(time.Minute)
	p := mara.follow(mara.post("/freezes", "scope", "post_card", "level", "all", "reason", "Look."))
	require.Contains(t, p.Body, `href="/unknown?tool=post_card"`)
	require.Equal(t, "In this scopeWhen frozenNow On the way00 Unknown11", p.one(t, "figures"))
	r.clock.Add(time.Minute)
	mara.post("/operations/"+op.ID+"/resolve", "happened", "no", "reason", "The post office never saw it.")
	p = mara.get("/freezes")
	require.Equal(t, "In this scopeWhen frozenNow On the way00 Unknown10", p.one(t, "figures"))
	require.Contains(t, p.Body, "Since then: 0 sent, 0 came into doubt, 1 settled, 0 contradicted.")
}
