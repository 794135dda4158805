package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a tool or its outside system says no to.
func TestRefusal_Tool(t *testing.T) {
	r := newRig(t)
	refused := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1009"}}`), 422, "tool_refused")
	require.Equal(t, "Only an open order can be held.", refused.str("detail"))
	r.want(post("/v1/tools/denied_hold/preview", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 403, "policy_denied")
	r.want(post("/v1/tools/hold_order/preview", r.stray, `{"args":{"order_id":"ord_1001"}}`), 403, "tool_not_granted")
	r.want(post("/v1/tools/get_order/call", r.stray, `{"args":{"order_id":"ord_1001"}}`), 403, "tool_not_granted")
	for _, run := range []string{``, `,"run":{"id":"r-1"}`, `,"run":{"id":"r-1","step":"1"}`} {
		needed := r.want(post("/v1/tools/run_hold/preview", r.clerk, `{"args":{"order_id":"ord_1001"}`+run+`}`), 422, "run_needed")
		require.Equal(t, []any{"/run"}, needed.at("next", "pointers"))
	}
	r.want(post("/v1/tools/run_hold/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"run":{"id":"r-1","step":"1","call":"1"}}`), 200, "")
}

// The header, the body and the tool's own key must say the same.
func TestRefusal_Key(t *testing.T) {
	r := newRig(t)
	body := `{"args":{"order_id":"ord_1001"}}`
	hold := post("/v1/tools/hold_order/preview", r.clerk, body)
	r.want(hold.with("Idempotency-Key", "mine"), 422, "idempotency_key_mismatch")
	r.want(hold.with("Idempotency-Key", "hold/ord_1001"), 200, "")
	r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"idempotency_key":"mine"}`), 422, "idempotency_key_mismatch")
	caller := post("/v1/tools/caller_hold/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"idempotency_key":"k-1"}`)
	r.want(caller.with("Idempotency-Key", "k-1"), 200, "")
	require.Equal(t, "k-1", r.want(caller, 200, "").str("idempotency_key"))
	// Keys are exact: two spellings are two intents.
	a := r.want(post("/v1/tools/caller_hold/preview", r.clerk, body).with("Idempotency-Key", "Key-1"), 200, "")
	b := r.want(post("/v1/tools/caller_hold/preview", r.clerk, body).with("Idempotency-Key", "key-1"), 200, "")
	one := r.want(r.spend("caller_hold", r.clerk, a.str("commit_token")), 200, "")
	two := r.want(r.spend("caller_hold", r.clerk, b.str("commit_token")), 200, "")
	require.NotEqual(t, one.str("id"), two.str("id"))
}

// Two ways to one goal: while the first stands, the second is not opened (N6).
func TestRefusal_Goal(t *testing.T) {
	r := newRig(t)
	body := `{"args":{"order_id":"ord_1001"}}`
	one := r.want(post("/v1/tools/goal_hold/preview", r.clerk, body), 200, "").str("commit_token")
	two := r.want(post("/v1/tools/goal_stop/preview", r.clerk, body), 200, "").str("commit_token")
	first := r.want(r.spend("goal_hold", r.clerk, one), 200, "").str("id")
	before := r.state()
	no := r.want(r.spend("goal_stop", r.clerk, two), 409, "goal_taken")
	require.Equal(t, first, no.str("operation", "id"))
	require.Equal(t, before, r.state())
}

func TestRefusal_Quota(t *testing.T) {
	r := newRig(t, func(o *options) { o.quota = 2 })
	r.preview("ord_1001")
	r.preview("ord_1002")
	full := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1003"}}`), 429, "quota_exhausted")
	require.Equal(t, "60", full.Header.Get("Retry-After"))
	r.want(post("/v1/tools/hold_order/preview", r.helper, `{"args":{"order_id":"ord_1003"}}`), 200, "")
	r.clock.Add(6 * time.Minute)
	r.preview("ord_1003")
}

// The outside system fails while it is read: nothing is opened, nothing sent.
func TestRefusal_Upstream(t *testing.T) {
	for _, trouble := range []struct {
		code   string
		status int
		answer func(http.ResponseWriter, *http.Request)
	}{
		{"upstream_unexpected", 502, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "stack trace at db.internal:5432", http.StatusInternalServerError)
		}},
		{"upstream_timeout", 504, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t, func(o *options) { o.readBudget = 300 * time.Millisecond })
			token := r.preview("ord_1001").str("commit_token")
			before := r.state()
			r.outside.breakReads(trouble.answer)
			for _, c := range []call{
				post("/v1/tools/get_order/call", r.clerk, `{"args":{"order_id":"ord_1001"}}`),
				post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1002"}}`),
				r.spend("hold_order", r.clerk, token),
			} {
				a := r.want(c, trouble.status, trouble.code)
				require.NotContains(t, a.text, "db.internal")
				require.NotContains(t, a.text, "stack trace")
			}
			require.Equal(t, before, r.state())
			r.outside.breakReads(nil)
			r.want(r.spend("hold_order", r.clerk, token), 200, "")
		})
	}
}

// A body that does not arrive is given up, and the connection with it.
func TestRefusal_SlowBody(t *testing.T) {
	r := newRig(t, func(o *options) { o.bodyTimeout = 100 * time.Millisecond })
	for _, d := range doors {
		if d.body == "" {
			continue
		}
		r.under(t, d.operation, func(r *rig) {
			r.unchanged(r.t, func() {
				conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
				require.NoError(r.t, err)
				defer conn.Close()
				credential := "Authorization: Bearer " + r.clerk
				if d.person {
					credential = "Cookie: " + r.ann.String()
					credential, _, _ = strings.Cut(credential, ";")
				}
				_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", d.path, credential)
				require.NoError(r.t, err)
				from := bufio.NewReader(conn)
				res, err := http.ReadResponse(from, nil)
				require.NoError(r.t, err)
				req, err := http.NewRequest(http.MethodPost, r.server.URL+d.path, nil)
				require.NoError(r.t, err)
				a := r.received(req, res)
				require.Equal(r.t, 408, a.StatusCode, a.text)
				require.Equal(r.t, "request_timeout", a.doc["code"])
				_, err = from.ReadByte()
				require.Error(r.t, err, "the connection is closed")
			})
		})
	}
}

// A header that does not arrive is not waited for.
func TestRefusal_SlowHeader(t *testing.T) {
	r := newRig(t, func(o *options) { o.bodyTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"))
	require.NoError(t, err)
	rest, err := io.ReadAll(conn)
	require.NoError(t, err, "the connection is closed")
	require.NotContains(t, string(rest), "200")
}

// A decision names what was shown; when that has changed it counts for nothing.
func TestRefusal_Shown(t *testing.T) {
	r := newRig(t)
	id := r.refund("c-1", 100)
	path := "/v1/approvals/apr_" + id[3:]
	r.want(post(path+"/decision", "", `{"decision":"approve","shown_digest":"`+someDigest+`"}`).as(r.ann), 409, "approval_changed")
	// The world moves after the yes: the gateway asks anew, and the old digest is
	// worth nothing.
	old := r.decide(id, r.ann, "approve", "")
	old.ok(200)
	r.movePayment("pay_a1")
	r.work()
	round := r.want(get(path, "").as(r.ann), 200, "")
	require.Equal(t, "2", fmt.Sprint(round.at("round")))
	require.Equal(t, "awaiting_approval", round.str("operation", "state"))
	require.Len(t, round.doc["decisions"], 1)
	old.want(409, "approval_changed")
	require.Zero(t, r.shop.RequestCount())
	r.decide(id, r.ann, "approve", "").ok(200)
	r.work()
	require.Equal(t, "succeeded", r.want(get("/v1/operations/"+id, r.clerk), 200, "").str("state"))
}
