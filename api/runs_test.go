package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The journal of a run is what it did, oldest first; it is its own agent's and
// the operators' to read (S15).
func TestRuns_Journal(t *testing.T) {
	r := newRig(t)
	first, hold := r.held("ord_1001", "run-1")
	second, _ := r.held("ord_1002", "run-1")
	r.held("ord_1003", "run-2")
	j := r.want(get("/v1/runs/run-1", r.clerk), 200, "")
	require.Equal(t, r.clerkID, j.str("run", "agent_id"))
	entries := asList(j.doc["entries"])
	require.Len(t, entries, 2)
	entry := func(i int, names ...string) any { return answer{doc: entries[i].(map[string]any)}.at(names...) }
	require.Equal(t, first, entry(0, "operation", "id"))
	require.Equal(t, hold, entry(0, "operation", "effect_id"))
	require.Equal(t, second, entry(1, "operation", "id"))
	require.Equal(t, []any{}, entry(0, "stale"))
	require.Equal(t, []any{}, entry(0, "undoes"))

	r.want(get("/v1/runs/run-1?agent="+r.clerkID, r.clerk), 200, "")
	mine := r.want(get("/v1/runs/run-1", r.helper).with("Request-Id", "same"), 404, "run_not_found")
	theirs := r.want(get("/v1/runs/run-1?agent="+r.clerkID, r.helper).with("Request-Id", "same"), 404, "run_not_found")
	require.Equal(t, mine.text, theirs.text)
	r.want(get("/v1/runs/run-1", "").as(r.ann), 400, "parameter_invalid")
	r.want(get("/v1/runs/run-1?agent="+r.helperID, "").as(r.ann), 404, "run_not_found")
	seen := r.want(get("/v1/runs/run-1?agent="+r.clerkID, "").as(r.ann), 200, "")
	require.Len(t, asList(seen.doc["entries"]), 2)
}

// The undo of a run closes it and takes its effects back, the newest first.
func TestRuns_Undo(t *testing.T) {
	r := newRig(t)
	first, _ := r.held("ord_1001", "run-1")
	second, _ := r.held("ord_1002", "run-1")
	u := undoOfRun("run-1")
	p := r.want(u.preview(r.clerk), 200, "")
	items := asList(p.doc["items"])
	require.Len(t, items, 2)
	newest := answer{doc: items[0].(map[string]any)}
	require.Equal(t, second, newest.str("operation", "id"))
	require.Equal(t, true, newest.at("possible"))
	require.Equal(t, "release_hold", newest.str("undo", "tool"))
	require.Nil(t, newest.at("undo", "commit_token"), "the plan has the one token")
	require.Equal(t, "commit", p.str("next", "action"))
	require.Equal(t, 2, r.shop.EffectCount())
	late := r.want(u.preview(r.clerk), 200, "").str("commit_token")

	c := r.want(u.commit(r.clerk, p.str("commit_token")), 202, "")
	require.Equal(t, true, c.at("run", "closed"))
	require.Equal(t, "clerk", c.str("run", "closed_by", "name"))
	undoes := asList(c.doc["operations"])
	require.Len(t, undoes, 2)
	require.Equal(t, second, undoes[0].(map[string]any)["undo_of"])
	require.Equal(t, first, undoes[1].(map[string]any)["undo_of"])
	r.want(u.commit(r.clerk, late), 409, "run_closed")
	r.work()
	require.Equal(t, 4, r.shop.EffectCount())
	done := r.want(u.commit(r.clerk, p.str("commit_token")), 200, "")
	require.Equal(t, true, done.at("replayed"))
	require.Equal(t, "done", done.str("next", "action"))

	// Nothing more is opened in it.
	r.want(u.preview(r.clerk), 409, "run_closed")
	r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1004"},"run":{"id":"run-1"}}`), 409, "run_closed")
	j := r.want(get("/v1/runs/run-1", r.clerk), 200, "")
	entry := answer{doc: asList(j.doc["entries"])[0].(map[string]any)}
	require.Equal(t, []any{"undone", "run_closed"}, entry.at("stale"))
	require.Len(t, asList(entry.at("undoes")), 1)
}

// A run is closed under a call that was previewed before.
func TestRuns_ClosedUnderAPreview(t *testing.T) {
	r := newRig(t)
	r.held("ord_1001", "run-1")
	early := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1002"},"run":{"id":"run-1"}}`), 200, "").str("commit_token")
	u := undoOfRun("run-1")
	r.want(u.commit(r.clerk, r.want(u.preview(r.clerk), 200, "").str("commit_token")), 202, "")
	r.want(r.spend("hold_order", r.clerk, early), 409, "run_closed")
}

// Nothing is taken back around what has no answer yet, and who has too many open
// previews waits.
func TestRuns_Refused(t *testing.T) {
	r := newRig(t, func(o *options) { o.quota = 3 })
	r.held("ord_1001", "run-1")
	u := undoOfRun("run-1")
	r.want(undoOfRun("run-none").preview(r.clerk), 404, "run_not_found")
	foreign := u.commit(r.helper, "a.b.c")
	foreign.path += "?agent=" + r.clerkID
	r.want(foreign, 404, "run_not_found")
	p := r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"c-1","payment_id":"pay_a1","amount":1},"run":{"id":"run-1"}}`), 200, "")
	token := r.want(u.preview(r.clerk), 200, "").str("commit_token")
	r.want(u.preview(r.clerk), 429, "quota_exhausted")
	waiting := r.want(r.spend("refund_payment", r.clerk, p.str("commit_token")), 202, "").str("id")
	no := r.want(u.commit(r.clerk, token), 409, "run_live")
	require.Equal(t, waiting, no.str("operation", "id"))
	r.want(u.preview(r.clerk), 409, "run_live")
}
