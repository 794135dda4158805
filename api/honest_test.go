package api_test

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was opened is answered as an operation, also when its plan can't be read
// any more; what was written is never told as "nothing was changed".
func TestHonest_AfterTheWrite(t *testing.T) {
	r := newRig(t)
	waiting, other := r.refund("c-1", 100), r.refund("c-2", 100)
	rejected := r.refund("c-3", 100)
	r.decide(rejected, r.ann, "reject", "no").ok(200)
	doubt := r.doubt()
	token := r.preview("ord_1001").str("commit_token")
	decision := r.decide(waiting, r.ann, "approve", "")

	lose := func(c call, status int, code string) answer {
		r.store.losePlans(errors.New("gone"))
		defer r.store.losePlans(nil)
		return r.want(c, status, code)
	}
	c := lose(r.spend("hold_order", r.clerk, token), 200, "")
	require.Equal(t, "succeeded", c.str("state"))
	require.Equal(t, []any{}, c.at("effects"))
	lose(post("/v1/operations/"+other+"/cancel", r.clerk, `{}`), 503, "outcome_unclear")
	require.Equal(t, "cancelled", r.want(get("/v1/operations/"+other, r.clerk), 200, "").str("state"))
	lose(post("/v1/operations/"+doubt+"/resolve", "", `{"outcome":"happened","effect_id":"letter_1","reason":"seen"}`).as(r.ann), 503, "outcome_unclear")
	require.Equal(t, "succeeded", r.want(get("/v1/operations/"+doubt, r.clerk), 200, "").str("state"))
	lose(post("/v1/approvals/apr_"+rejected[3:]+"/reopen", "", `{"reason":"r"}`).as(r.ann), 503, "outcome_unclear")
	require.Equal(t, "preview_again", r.want(get("/v1/operations/"+rejected, r.clerk), 200, "").str("next", "action"))
	// A decision reads the plan before it writes: nothing was written.
	lose(decision.call, 503, "store_unavailable")
	decision.ok(200)
	// A read says plainly that it failed.
	lose(get("/v1/operations/"+waiting, r.clerk), 503, "store_unavailable")
}

// A session that can't be read is a problem document, also when the session was
// asked for before the request reached the API.
func TestHonest_SessionError(t *testing.T) {
	r := newRig(t)
	w := httptest.NewRecorder()
	r.api.SessionError(w, httptest.NewRequest("GET", "/v1/tools", nil), errors.New("gone"))
	require.Equal(t, 500, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NotEmpty(t, w.Header().Get("Request-Id"))
}

// An operation whose tool is gone is still answered; nobody can say any more
// which of its arguments are sensitive, so none is shown.
func TestHonest_ToolGone(t *testing.T) {
	r := newRig(t)
	const secret = "very-secret-4711"
	p := r.want(post("/v1/tools/send_notice/preview", r.clerk, `{"args":{"case":"c-1","subject":"s","secret":"`+secret+`"}}`), 200, "")
	id := r.want(r.spend("send_notice", r.clerk, p.str("commit_token")), 202, "").str("id")
	r.forgetTools()
	got := r.want(get("/v1/operations/"+id, r.clerk), 202, "")
	require.Equal(t, map[string]any{}, got.at("args"))
	require.NotContains(t, got.text, secret)
	card := r.want(get("/v1/approvals/apr_"+id[3:], "").as(r.ann), 200, "")
	require.Equal(t, map[string]any{}, card.at("plan", "args"))
	require.NotContains(t, card.text, secret)
}
