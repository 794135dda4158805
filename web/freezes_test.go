package web_test

import (
	"context"
	"net/http"
	"testing"

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
