package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// open are the routes that take no credential.
var open = []string{"/.well-known/jwks.json", "/openapi.yaml", "/docs", "/docs/reference.js", "/healthz", "/readyz"}

func TestOpen_Answers(t *testing.T) {
	r := newRig(t)
	for _, path := range open {
		r.want(get(path, ""), 200, "")
		// HEAD is GET without its body.
		a := r.do(call{method: http.MethodHead, path: path})
		require.Equal(t, 200, a.StatusCode)
		require.Empty(t, a.text)
	}
	r.want(get("/docs/reference.css", ""), 200, "")
	r.want(get("/docs/nothing.js", ""), 404, "not_found")
	r.want(get("/docs/page.html", ""), 404, "not_found")
	require.Contains(t, r.want(get("/openapi.yaml", ""), 200, "").text, "openapi: 3.1.0")
}

func TestOpen_Host(t *testing.T) {
	r := newRig(t)
	for _, path := range open {
		c := get(path, "").with("Host", "evil.example")
		if path == "/healthz" || path == "/readyz" {
			r.want(c, 200, "") // probes ask by address
			continue
		}
		r.want(c, 421, "host_not_allowed")
	}
	for _, host := range []string{"gate.example", "GATE.example:443", "127.0.0.1", "127.0.0.1:1"} {
		r.want(get("/openapi.yaml", "").with("Host", host), 200, "")
	}
}

func TestDoors_Unauthenticated(t *testing.T) {
	r := newRig(t)
	for _, d := range doors {
		a := r.want(d.call(), 401, "unauthenticated")
		require.Equal(t, `Bearer realm="countersign"`, a.Header.Get("WWW-Authenticate"), d.operation)
		c := d.call()
		c.key = strings.Replace(r.clerk, "cs_agent_", "cs_agent_0", 1)
		r.want(c, 401, "unauthenticated")
	}
}

// An agent's key, a session and a commit token are three kinds of secret, and
// none is taken in another's place (S4).
func TestDoors_KindsOfSecret(t *testing.T) {
	r := newRig(t)
	token := r.preview("ord_1001").str("commit_token")
	session := r.ann.Value
	key := r.clerk
	cookie := func(value string) *http.Cookie { return &http.Cookie{Name: r.ann.Name, Value: value} }
	commit := "/v1/tools/hold_order/commit"
	asToken := func(secret string) call { return post(commit, r.clerk, asJSON(map[string]any{"commit_token": secret})) }

	// As a bearer key.
	r.want(get("/v1/tools", key), 200, "")
	r.want(get("/v1/tools", session), 401, "unauthenticated")
	r.want(get("/v1/tools", token), 401, "unauthenticated")
	// As a session.
	r.want(get("/v1/approvals", "").as(cookie(session)), 200, "")
	r.want(get("/v1/approvals", "").as(cookie(key)), 401, "unauthenticated")
	r.want(get("/v1/approvals", "").as(cookie(token)), 401, "unauthenticated")
	// As a commit token.
	r.want(asToken(key), 401, "token_invalid")
	r.want(asToken(session), 401, "token_invalid")
	r.want(asToken(token), 200, "")
}

// A route that is for the other kind of caller says so, and an Authorization
// header decides alone (S16).
func TestDoors_NotAllowed(t *testing.T) {
	r := newRig(t)
	for _, d := range doors {
		switch d.operation {
		case "callTool", "previewTool", "commitTool":
			r.want(d.call().as(r.ann), 403, "not_allowed")
		case "listApprovals", "getApproval", "decideApproval", "reopenApproval", "resolveOperation", "listFreezes", "freeze", "liftFreeze", "listFreezeHistory", "exportOperations",
			"askOperation", "listOperationEvidence", "getForensics":
			c := d.call()
			c.key = r.clerk
			r.want(c, 403, "not_allowed")
			c.session = r.ann
			r.want(c, 403, "not_allowed")
			c.key = "cs_agent_wrong"
			r.want(c, 401, "unauthenticated")
		}
	}
}

func TestDoors_GetWithBody(t *testing.T) {
	r := newRig(t)
	for _, d := range doors {
		if d.method == http.MethodGet {
			c := r.through(d)
			c.body = "{}"
			r.want(c, 400, "malformed_request")
			c.chunked = true
			r.want(c, 400, "malformed_request")
		}
	}
}

func TestDoors_RepeatedHeaders(t *testing.T) {
	r := newRig(t)
	for _, d := range doors {
		c := r.through(d)
		c.key = ""
		r.want(c.with("Authorization", "Bearer "+r.clerk, "Bearer "+r.clerk), 400, "header_repeated")
	}
}

// Whatever panics behind the outermost middleware is answered, on every route,
// without a word about what it was (S78).
func TestDoors_Panic(t *testing.T) {
	r := newRig(t)
	all := doors
	for _, path := range open {
		all = append(all, door{method: http.MethodGet, path: path})
	}
	for _, d := range all {
		req := httptest.NewRequest(d.method, r.server.URL+d.path, strings.NewReader(d.body))
		w := &panicky{ResponseRecorder: httptest.NewRecorder(), at: 3}
		r.api.ServeHTTP(w, req)
		a := r.received(req, w.Result())
		require.Equal(t, 500, a.StatusCode)
		require.Equal(t, "internal", a.doc["code"])
		require.NotContains(t, a.text, "wires crossed")
	}
	require.Contains(t, r.log.String(), "wires crossed")
}

// panicky panics once, when its header is asked for the n-th time: twice by the
// outermost middleware, then by whoever answers.
type panicky struct {
	*httptest.ResponseRecorder
	at int
}

func (p *panicky) Header() http.Header {
	p.at--
	if p.at == 0 {
		panic("wires crossed")
	}
	return p.ResponseRecorder.Header()
}

func TestDoors_RateLimited(t *testing.T) {
	r := newRig(t, func(o *options) { o.ratePerMinute, o.burst = 6, 1 })
	r.want(get("/v1/tools", r.clerk), 200, "")
	for _, d := range doors {
		if d.person {
			continue
		}
		c := d.call()
		c.key = r.clerk
		a := r.want(c, 429, "rate_limited")
		require.Equal(t, "10", a.Header.Get("Retry-After"))
	}
	// Another agent has its own bucket, people have none, and time fills it.
	r.want(get("/v1/tools", r.helper), 200, "")
	for range 20 {
		r.want(get("/v1/approvals", "").as(r.ann), 200, "")
	}
	r.clock.Add(10 * time.Second)
	r.want(get("/v1/tools", r.clerk), 200, "")
	r.want(get("/v1/tools", r.clerk), 429, "rate_limited")
}

func TestDoors_StoreAway(t *testing.T) {
	r := newRig(t)
	r.store.set(errors.New("the line is cut: host db.internal, password hunter2"), nil, false)
	for _, d := range doors {
		a := r.want(r.through(d), 503, "store_unavailable")
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.NotContains(t, a.text, "hunter2")
		require.NotContains(t, a.text, "db.internal")
	}
	r.want(get("/readyz", ""), 503, "store_unavailable")
	r.want(get("/healthz", ""), 200, "")
	r.store.set(nil, nil, false)
	r.want(get("/readyz", ""), 200, "")
}

// writeTroubles are the ways in which a write is not made, or its answer is lost, and
// how each is told.
var writeTroubles = []struct {
	err    error
	lost   bool
	status int
	code   string
}{
	{err: ledger.ErrDiskFull, status: 507, code: "disk_full"},
	{err: errors.New("gone"), status: 503, code: "store_unavailable"},
	{lost: true, status: 503, code: "outcome_unclear"},
}

// A write that can't be made, or whose answer is lost, is told on every route
// that writes.
func TestDoors_WritesFail(t *testing.T) {
	for _, trouble := range writeTroubles {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t)
			waiting := r.refund("c-1", 100)
			rejected := r.refund("c-2", 100)
			r.decide(rejected, r.ann, "reject", "no").ok(200)
			doubt := r.doubt()
			token := r.preview("ord_1001").str("commit_token")
			before := r.state()

			r.store.set(nil, trouble.err, trouble.lost)
			r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1002"}}`), trouble.status, trouble.code)
			c := r.want(post("/v1/tools/hold_order/commit", r.clerk, asJSON(map[string]any{"commit_token": token})), trouble.status, trouble.code)
			if trouble.lost {
				require.Equal(t, "repeat_commit", c.str("next", "action"))
			}
			r.want(post("/v1/operations/"+waiting+"/cancel", r.clerk, `{}`), trouble.status, trouble.code)
			r.decide(waiting, r.ann, "approve", "").want(trouble.status, trouble.code)
			r.want(post("/v1/approvals/apr_"+rejected[3:]+"/reopen", "", `{"reason":"r"}`).as(r.ann), trouble.status, trouble.code)
			r.want(post("/v1/operations/"+doubt+"/resolve", "", `{"outcome":"did_not_happen","reason":"looked"}`).as(r.ann), trouble.status, trouble.code)
			require.Equal(t, before, r.state())

			// The same commit once more, when the store is there again.
			r.store.set(nil, nil, false)
			r.want(post("/v1/tools/hold_order/commit", r.clerk, asJSON(map[string]any{"commit_token": token})), 200, "")
			require.Equal(t, before.effects+1, r.shop.EffectCount())
		})
	}
}

func TestAddresses_Unknown(t *testing.T) {
	r := newRig(t)
	for path, code := range map[string]string{
		"/":                                   "not_found",
		"/v1":                                 "not_found",
		"/v1/":                                "not_found",
		"/v2/tools":                           "not_found",
		"/v1/tools/":                          "tool_not_found",
		"/v1/tools/a/b":                       "tool_not_found",
		"/v1/tools/a/preview/b":               "tool_not_found",
		"/v1/operations/":                     "operation_not_found",
		"/v1/operations/" + noOperation + "/": "operation_not_found",
		"/v1/approvals/" + noApproval + "/x":  "approval_not_found",
		"/v1/runs/":                           "run_not_found",
		"/v1/runs/r/x":                        "run_not_found",
		"/docs/":                              "not_found",
		"/openapi.yaml/":                      "not_found",
	} {
		r.want(get(path, r.clerk), 404, code)
	}
}

func TestAddresses_Methods(t *testing.T) {
	r := newRig(t)
	for path, allow := range map[string]string{
		"/v1/tools":                     "GET",
		"/v1/tools/hold_order/preview":  "POST",
		"/v1/operations/" + noOperation: "GET",
		"/healthz":                      "GET",
	} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS"} {
			a := r.want(call{method: method, path: path, key: r.clerk}, 405, "method_not_allowed")
			require.Equal(t, allow, a.Header.Get("Allow"))
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	head := r.do(call{method: http.MethodHead, path: "/v1/tools", key: r.clerk})
	require.Equal(t, 200, head.StatusCode)
	require.Equal(t, 401, r.do(call{method: http.MethodHead, path: "/v1/tools"}).StatusCode)
	a := r.want(get("/v1/tools/hold_order/commit", r.clerk), 405, "method_not_allowed")
	require.Equal(t, "POST", a.Header.Get("Allow"))
}

func TestRequestID(t *testing.T) {
	r := newRig(t)
	require.Equal(t, "mine-1", r.do(get("/healthz", "").with("Request-Id", "mine-1")).Header.Get("Request-Id"))
	for _, bad := range []string{"", "a b", strings.Repeat("x", 65), `"><script>`} {
		id := r.do(get("/healthz", "").with("Request-Id", bad)).Header.Get("Request-Id")
		require.True(t, strings.HasPrefix(id, "req_"), id)
	}
	id := r.do(get("/healthz", "").with("Request-Id", "a", "b")).Header.Get("Request-Id")
	require.True(t, strings.HasPrefix(id, "req_"), id)
}
