package api_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/tools"
	"countersign/tools/httptool"
)

// An id that the outside system does not know is the caller's mistake: whoever
// repeated the request would do so for ever.
func TestAdvice_NoSuchObject(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/v1/tools/get_order/call", "/v1/tools/hold_order/preview"} {
		a := r.want(post(path, r.clerk, `{"args":{"order_id":"ord_9999"}}`), 422, "tool_refused")
		require.Equal(t, exampleProblems(t)["tool_refused_no_object"]["detail"], a.str("detail"))
		require.Equal(t, "fix_arguments", a.str("next", "action"))
		require.NotContains(t, a.text, "127.0.0.1")
	}

	// What was there at preview and is gone at commit is no mistake of the caller.
	token := r.preview("ord_1001").str("commit_token")
	r.outside.breakReads(http.NotFound)
	before := r.state()
	r.want(r.spend("hold_order", r.clerk, token), 502, "upstream_unexpected")
	require.Equal(t, before, r.state())
}

// A used key names what makes another one, by where the tool takes it from.
func TestAdvice_KeyReused(t *testing.T) {
	r := newRig(t)
	token := r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"4711","payment_id":"pay_a1","amount":3}}`), 200, "").str("commit_token")
	r.refund("4711", 2)
	example := exampleProblems(t)["idempotency_key_reused"]
	for _, c := range []call{
		post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"4711","payment_id":"pay_a1","amount":3}}`),
		r.spend("refund_payment", r.clerk, token),
	} {
		a := r.want(c, 422, "idempotency_key_reused")
		require.Equal(t, example["next"], a.at("next"))
		require.Contains(t, a.str("next", "text"), "another value there (case, payment_id).")
	}

	ask := func(path, order, call string) call {
		return post(path, r.clerk, `{"args":{"order_id":"`+order+`"},"run":{"id":"r1","step":"1","call":"`+call+`"}}`)
	}
	own := func(order, call string) call {
		return ask("/v1/tools/caller_hold/preview", order, call).with("Idempotency-Key", "mine")
	}
	r.want(r.spend("caller_hold", r.clerk, r.want(own("ord_1001", "c1"), 200, "").str("commit_token")), 200, "")
	require.Contains(t, r.want(own("ord_1002", "c2"), 422, "idempotency_key_reused").str("next", "text"), "send another key.")
	run := func(order string) call { return ask("/v1/tools/run_hold/preview", order, "c3") }
	r.want(r.spend("run_hold", r.clerk, r.want(run("ord_1003"), 200, "").str("commit_token")), 200, "")
	require.Contains(t, r.want(run("ord_1004"), 422, "idempotency_key_reused").str("next", "text"), "another call there.")
}

// Another call at one place of a run is refused, and what stands there is shown.
func TestAdvice_RunCallChanged(t *testing.T) {
	r := newRig(t)
	ask := func(tool, order string) call {
		return post("/v1/tools/"+tool+"/preview", r.clerk, `{"args":{"order_id":"`+order+`"},"run":{"id":"r1","step":"1","call":"c1"}}`)
	}
	early := r.want(ask("hold_order", "ord_1002"), 200, "").str("commit_token")
	first := r.want(r.spend("hold_order", r.clerk, r.want(ask("hold_order", "ord_1001"), 200, "").str("commit_token")), 200, "")
	for _, c := range []call{ask("hold_order", "ord_1002"), ask("run_hold", "ord_1001"), r.spend("hold_order", r.clerk, early)} {
		a := r.want(c, 422, "run_call_changed")
		require.Equal(t, first.str("id"), a.str("operation", "id"))
		require.Equal(t, exampleProblems(t)["run_call_changed"]["next"], a.at("next"))
	}
	require.Equal(t, first.str("id"), r.want(ask("hold_order", "ord_1001"), 200, "").str("operation", "id"), "the same is answered with the first result")
}

// An argument beside args is told where it belongs; what the tool does not know
// either is to be left out.
func TestAdvice_FlatBody(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/v1/tools/hold_order/preview", "/v1/tools/get_order/call"} {
		a := r.want(post(path, r.clerk, `{"order_id":"ord_1001"}`), 400, "unknown_member")
		require.Equal(t, `Put it under args: {"args": {"order_id": …}}. Nothing was changed.`, a.str("next", "text"))
		require.Equal(t, []any{"/order_id"}, a.at("next", "pointers"))
		for key, body := range map[string]string{
			r.clerk: `{"args":{"order_id":"ord_1001"},"order":"ord_1001"}`,
			r.stray: `{"order_id":"ord_1001"}`, // a schema is not for whom the tool is not
		} {
			a := r.want(post(path, key, body), 400, "unknown_member")
			require.Contains(t, a.str("next", "text"), "Leave out the member")
		}
	}
	nested := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"run":{"id":"r","order_id":"x"}}`), 400, "unknown_member")
	require.Contains(t, nested.str("next", "text"), "Leave out the member")
}

// A mistyped name is answered with what the caller may have meant and may use.
func TestAdvice_DidYouMean(t *testing.T) {
	r := newRig(t)
	for name, want := range map[string]string{
		"hold_oder":       "There is no such tool; did you mean hold_order?",
		"hold_orders":     "There is no such tool; did you mean hold_order?",
		"refund":          "There is no such tool; did you mean refund_payment?",
		"get_order_by_id": "There is no such tool; did you mean get_order?",
		"wire_money":      "There is no such tool.",
		"xy":              "There is no such tool.",
	} {
		for _, c := range []call{
			get("/v1/tools/"+name, r.clerk),
			post("/v1/tools/"+name+"/preview", r.clerk, `{"args":{}}`),
			post("/v1/tools/"+name+"/call", r.clerk, `{"args":{}}`),
			r.spend(name, r.clerk, r.preview("ord_1001").str("commit_token")),
		} {
			a := r.do(c)
			if a.doc["code"] != "tool_not_found" { // a commit goes by its token first
				require.True(t, strings.HasSuffix(c.path, "/commit"), a.text)
				continue
			}
			require.Equal(t, want, a.str("detail"), c.path)
		}
	}
	require.Equal(t, "There is no such tool.", r.want(get("/v1/tools/hold_oder", r.stray), 404, "tool_not_found").str("detail"),
		"what a caller may not use is not named")
	require.Equal(t, "There is no such tool; did you mean list_orders?", r.want(get("/v1/tools/list_order", r.stray), 404, "tool_not_found").str("detail"))
}

// The wrong route for a tool's kind is answered with the right one.
func TestAdvice_ToolAccess(t *testing.T) {
	r := newRig(t)
	read := r.want(post("/v1/tools/get_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 422, "tool_access")
	require.Equal(t, exampleProblems(t)["tool_access"]["next"], read.at("next"))
	require.Equal(t, "stop", read.str("next", "action"))
	r.want(post(read.str("next", "url"), r.clerk, `{"args":{"order_id":"ord_1001"}}`), 200, "")

	write := r.want(post("/v1/tools/hold_order/call", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 422, "tool_access")
	require.Equal(t, exampleProblems(t)["tool_access_write"]["next"], write.at("next"))
	require.Equal(t, "preview_again", write.str("next", "action"))
	r.want(post(write.str("next", "url"), r.clerk, `{"args":{"order_id":"ord_1001"}}`), 200, "")
}

// A route that does not exist below a tool is no missing tool. Nobody learns from
// it whether the tool exists.
func TestAdvice_NoRoute(t *testing.T) {
	r := newRig(t)
	for _, c := range []call{
		post("/v1/tools/get_order/read", r.clerk, `{}`),
		get("/v1/tools/get_order/", r.clerk),
		get("/v1/tools/get_order/read", ""),
		post("/v1/tools/no_such_tool/preview/again", "", `{}`),
	} {
		a := r.want(c, 404, "not_found")
		require.Equal(t, "There is no such route; below a tool there are only preview, commit and call.", a.str("detail"))
		for _, name := range []string{"/preview", "/commit", "/call", "GET /v1/tools"} {
			require.Contains(t, a.str("next", "text"), name)
		}
	}
}

// A person's no is final for the same ask and open for what the reason asks for.
func TestAdvice_Rejected(t *testing.T) {
	r := newRig(t)
	id := r.refund("4711", 1500)
	r.decide(id, r.ann, "reject", "Ask for 14.00.").ok(200)
	o := r.want(get("/v1/operations/"+id, r.clerk), 200, "")
	require.Equal(t, "A person said no: Ask for 14.00. Do not ask for the same again or reach the same end by other means. "+
		"If the reason asks for something else, preview that.", o.str("next", "text"))
	require.Equal(t, "stop", o.str("next", "action"))
	r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"4711","payment_id":"pay_a1","amount":1400}}`), 200, "")
}

// What stands under a key is said as it is, and how to have it once more only
// where it took effect.
func TestAdvice_Standing(t *testing.T) {
	r := newRig(t)
	stands := func(tool, args string) string {
		a := r.want(post("/v1/tools/"+tool+"/preview", r.clerk, `{"args":`+args+`}`), 200, "")
		require.Equal(t, "use_first_result", a.str("next", "action"))
		require.Contains(t, a.str("next", "text"), "Do not commit again.")
		return a.str("next", "text")
	}
	r.hold("ord_1001")
	done := stands("hold_order", `{"order_id":"ord_1001"}`)
	require.Contains(t, done, "served already")
	require.Contains(t, done, "again_of set to this operation's id; a person must then agree.")

	r.refund("4711", 1500)
	waiting := stands("refund_payment", `{"case":"4711","payment_id":"pay_a1","amount":1500}`)
	require.Contains(t, waiting, "waits for people; nothing was sent yet.")

	r.doubt()
	unknown := stands("send_letter", `{"case":"d-1","to":"adr_2001","subject":"s","body":"b"}`)
	require.Contains(t, unknown, "it may have happened")
	for _, text := range []string{waiting, unknown} {
		require.NotContains(t, text, "served already")
		require.NotContains(t, text, "again_of")
	}
	r.shop.Set(shop.Switches{})
}

// A person's word for an effect is told as that.
func TestAdvice_Stated(t *testing.T) {
	r := newRig(t)
	id := r.doubt()
	long := strings.Repeat("x", 256)
	r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"`+long+`","reason":"seen"}`).as(r.ann), 422, "decision_invalid")
	wide := strings.Repeat("é", 128) // few characters and too many bytes
	r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"`+wide+`","reason":"seen"}`).as(r.ann), 422, "too_long")
	done := r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"`+long[1:]+`","reason":"It is in the log."}`).as(r.ann), 200, "")
	require.Equal(t, "stated_happened", done.str("reason", "code"))
	require.True(t, strings.HasPrefix(done.str("next", "text"), "A person stated that it happened"), done.str("next", "text"))
	require.Contains(t, done.str("next", "text"), "Nothing is left to do.")
}

// A secret that is not there is the operator's to mend, and told once in the log.
func TestAdvice_NoCredential(t *testing.T) {
	r := newRig(t)
	allow, err := httptool.ParseAllowed("127.0.0.1")
	require.NoError(t, err)
	client, err := httptool.Open(httptool.Upstream{
		Name: "shop", URL: r.outside.url, Allow: []httptool.Allowed{allow},
		Auth: &httptool.Credential{Bearer: func() (string, error) { return "", errors.New("the variable SHOP_TOKEN is not set") }},
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	r.compile = func(m *tools.Manifest) *tools.Tool {
		tool, err := tools.Compile(m, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: client.Connector})
		require.NoError(t, err)
		return tool
	}
	r.inForce(func(*tools.Tool) bool { return true })
	for _, path := range []string{"/v1/tools/get_order/call", "/v1/tools/hold_order/preview"} {
		before := strings.Count(r.log.String(), "SHOP_TOKEN")
		a := r.want(post(path, r.clerk, `{"args":{"order_id":"ord_1001"}}`), 502, "upstream_unexpected")
		require.Equal(t, "The gateway has no usable credential for the upstream shop; an operator must set it.", a.str("detail"))
		require.Equal(t, "repeat", a.str("next", "action"))
		require.Equal(t, "60", a.Header.Get("Retry-After"))
		require.NotContains(t, a.text, "SHOP_TOKEN")
		require.Equal(t, before+1, strings.Count(r.log.String(), "SHOP_TOKEN"))
	}
	require.Contains(t, r.log.String(), `"level":"ERROR"`)
}

// How long an answer took is a number of milliseconds.
func TestRequestLog_Milliseconds(t *testing.T) {
	r := newRig(t)
	r.do(get("/v1/tools", r.clerk))
	require.Regexp(t, `"route":"/v1/tools",.*"took_ms":[0-9.]+\}`, r.log.String())
	require.NotContains(t, r.log.String(), `"took":`)
}
