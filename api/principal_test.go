package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What belongs to another agent is answered, byte for byte, as what is not there
// (S15, I17).
func TestPrincipal_OthersAreAbsent(t *testing.T) {
	r := newRig(t)
	mine := r.refund("c-1", 100)
	done := r.hold("ord_1001").str("id")
	for _, id := range []string{mine, done} {
		for _, d := range doors {
			if d.operation != "getOperation" && d.operation != "cancelOperation" {
				continue
			}
			absent := d.call().with("Request-Id", "same")
			absent.key = r.helper
			there := absent
			there.path = strings.Replace(there.path, noOperation, id, 1)
			malformed := absent
			malformed.path = strings.Replace(malformed.path, noOperation, "op_x", 1)
			want := r.want(absent, 404, "operation_not_found")
			for _, c := range []call{there, malformed} {
				got := r.want(c, 404, "operation_not_found")
				require.Equal(t, want.text, got.text)
				require.Equal(t, headers(want), headers(got))
			}
		}
	}
	// Waiting for it tells nothing either.
	r.want(get("/v1/operations/"+mine+"?wait=60", r.helper), 404, "operation_not_found")
	require.Equal(t, "awaiting_approval", r.want(get("/v1/operations/"+mine, r.clerk), 202, "").str("state"))
}

// headers are those of an answer that could tell two of them apart.
func headers(a answer) http.Header {
	h := a.Header.Clone()
	h.Del("Date")
	return h
}

// Another agent that asks for the same, with a grant, gets the first result; for
// anything else it learns nothing about it.
func TestPrincipal_EqualAsk(t *testing.T) {
	r := newRig(t)
	first := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"run":{"id":"clerk-run"}}`), 200, "")
	id := r.want(r.spend("hold_order", r.clerk, first.str("commit_token")), 200, "").str("id")
	// Previewed before the result stood, committed after.
	same := r.want(post("/v1/tools/hold_order/preview", r.helper, `{"args":{"order_id":"ord_1001"}}`), 200, "")
	require.Equal(t, "use_first_result", same.str("next", "action"))
	require.Empty(t, same.str("next", "url"), "not an address of this agent's")
	require.Equal(t, id, same.str("operation", "id"))
	require.Equal(t, []any{}, same.at("operation", "allowed_actions"))
	require.NotContains(t, same.text, "clerk-run")
	no := r.want(post("/v1/tools/hold_order/preview", r.helper, `{"args":{"order_id":"ord_1001","reason":"x"}}`), 422, "idempotency_key_reused")
	require.Nil(t, no.doc["operation"])
	require.NotContains(t, no.text, id)

	// An operation that is still open is asked about by repeating the commit.
	a := r.want(post("/v1/tools/refund_payment/preview", r.helper, `{"args":{"case":"c-1","payment_id":"pay_a1","amount":100}}`), 200, "").str("commit_token")
	r.refund("c-1", 100)
	open := r.want(r.spend("refund_payment", r.helper, a), 202, "")
	require.Equal(t, "repeat_commit", open.str("next", "action"))
	require.Empty(t, open.str("next", "url"))
	require.Equal(t, true, open.at("replayed"))
}

// A revoked agent, and a person who was signed out or disabled, are nobody from
// the next request on (S18).
func TestPrincipal_Gone(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	r.want(get("/v1/tools", r.clerk), 200, "")
	require.NoError(t, r.identity.RevokeAgent(ctx, tenant, r.clerkID))
	r.want(get("/v1/tools", r.clerk), 401, "unauthenticated")
	ann, err := r.identity.OperatorNamed(ctx, tenant, "ann")
	require.NoError(t, err)
	require.NoError(t, r.identity.DisableOperator(ctx, tenant, ann.ID))
	r.want(get("/v1/approvals", "").as(r.ann), 401, "unauthenticated")
}

// Nobody was ever asked about it: there is no approval.
func TestPrincipal_NoApproval(t *testing.T) {
	r := newRig(t)
	id := r.hold("ord_1001").str("id")
	r.want(get("/v1/approvals/apr_"+id[3:], "").as(r.ann), 404, "approval_not_found")
	r.want(post("/v1/approvals/apr_"+id[3:]+"/decision", "", `{"decision":"approve","shown_digest":"`+someDigest+`"}`).as(r.ann), 404, "approval_not_found")
	r.want(post("/v1/approvals/apr_"+id[3:]+"/reopen", "", `{"reason":"r"}`).as(r.ann), 404, "approval_not_found")
}
