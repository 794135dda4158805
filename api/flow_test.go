package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// Steps that many tests take.

// preview previews the hold of an order as the clerk.
func (r *rig) preview(order string) answer {
	r.t.Helper()
	return r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"`+order+`"}}`), 200, "")
}

// spend commits a token as an agent.
func (r *rig) spend(tool, key, token string) call {
	return post("/v1/tools/"+tool+"/commit", key, asJSON(map[string]any{"commit_token": token}))
}

// hold previews and commits the hold of an order.
func (r *rig) hold(order string) answer {
	r.t.Helper()
	return r.want(r.spend("hold_order", r.clerk, r.preview(order).str("commit_token")), 200, "")
}

// refund asks for a refund and gives the operation that waits for people.
func (r *rig) refund(case_ string, amount int) string {
	r.t.Helper()
	p := r.want(post("/v1/tools/refund_payment/preview", r.clerk, fmt.Sprintf(`{"args":{"case":%q,"payment_id":"pay_a1","amount":%d}}`, case_, amount)), 200, "")
	return r.want(r.spend("refund_payment", r.clerk, p.str("commit_token")), 202, "").str("id")
}

// doubt makes an operation whose outcome is unknown.
func (r *rig) doubt() string {
	r.t.Helper()
	p := r.want(post("/v1/tools/send_letter/preview", r.clerk, `{"args":{"case":"d-1","to":"adr_2001","subject":"s","body":"b"}}`), 200, "")
	id := r.want(r.spend("send_letter", r.clerk, p.str("commit_token")), 202, "").str("id")
	r.shop.Set(shop.Switches{CutNext: 1})
	r.decide(id, r.ann, "approve", "").ok(200)
	r.work()
	require.Equal(r.t, "unknown", r.want(get("/v1/operations/"+id, r.clerk), 202, "").str("state"))
	return id
}

// work lets the gateway send what is approved.
func (r *rig) work() {
	r.t.Helper()
	r.clock.Add(11 * time.Second) // past soft claims and back-offs
	_, err := r.executor.RunOnce(context.Background())
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
}

// moveOrder and movePayment change the shop behind the gateway's back.
func (r *rig) moveOrder(id string)   { r.byHand("/orders/" + id + "/change") }
func (r *rig) movePayment(id string) { r.byHand("/payments/" + id + "/change") }

func (r *rig) byHand(path string) {
	r.t.Helper()
	res, err := http.Post(r.outside.url+path, "application/json", strings.NewReader("{}"))
	require.NoError(r.t, err)
	defer res.Body.Close()
	require.Equal(r.t, http.StatusOK, res.StatusCode)
}

// decided is a decision on the way.
type decided struct {
	r *rig
	call
}

// decide prepares a person's word on what the approval shows now.
func (r *rig) decide(operation string, session *http.Cookie, word, reason string) decided {
	r.t.Helper()
	path := "/v1/approvals/apr_" + operation[3:]
	shown := r.want(get(path, "").as(session), 200, "").str("shown_digest")
	body := map[string]any{"decision": word, "shown_digest": shown}
	if reason != "" {
		body["reason"] = reason
	}
	return decided{r, post(path+"/decision", "", asJSON(body)).as(session)}
}

func (d decided) ok(status int) answer {
	d.r.t.Helper()
	return d.r.want(d.call, status, "")
}

func (d decided) want(status int, code string) answer {
	d.r.t.Helper()
	return d.r.want(d.call, status, code)
}

// The whole path of a write that asks nobody, its repeat, and what the preview
// says afterwards (R41, R43).
func TestFlow_Hold(t *testing.T) {
	r := newRig(t)
	p := r.preview("ord_1001")
	require.Equal(t, "commit", p.str("next", "action"))
	require.Equal(t, "/v1/tools/hold_order/commit", p.str("next", "url"))
	require.Equal(t, "hold/ord_1001", p.str("idempotency_key"))
	require.Equal(t, "Hold order ord_1001 of Birch Bakery", p.str("headline"))
	require.Equal(t, "release_hold", p.str("undo", "tool"))
	require.Equal(t, false, p.at("approval", "required"))
	require.Equal(t, "false", p.Header.Get("Idempotency-Replayed"))
	require.Zero(t, r.shop.RequestCount(), "a preview changes nothing")

	c := r.want(r.spend("hold_order", r.clerk, p.str("commit_token")).with("Request-Id", "commit-1"), 200, "")
	require.Equal(t, "succeeded", c.str("state"))
	require.Equal(t, "done", c.str("next", "action"))
	require.Equal(t, "commit-1", c.str("request_id"))
	require.Equal(t, false, c.at("replayed"))
	require.Equal(t, "false", c.Header.Get("Idempotency-Replayed"))
	require.Equal(t, "/v1/operations/"+c.str("id"), c.Header.Get("Location"))
	require.NotEmpty(t, c.str("effect_id"))

	r.clock.Add(time.Minute)
	again := r.want(r.spend("hold_order", r.clerk, p.str("commit_token")), 200, "")
	require.Equal(t, true, again.at("replayed"))
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, c.str("created_at"), again.str("first_at"))
	require.Equal(t, c.str("id"), again.str("id"))
	require.Equal(t, "commit-1", again.str("request_id"), "of the commit that opened it")

	stands := r.preview("ord_1001")
	require.Equal(t, "use_first_result", stands.str("next", "action"))
	require.Empty(t, stands.str("commit_token"))
	require.Empty(t, stands.str("preview_id"))
	require.Equal(t, c.str("id"), stands.str("operation", "id"))
	require.Equal(t, "true", stands.Header.Get("Idempotency-Replayed"))
	require.Equal(t, 1, r.shop.RequestCount())
	require.Equal(t, c.str("id"), r.want(get("/v1/operations/"+c.str("id"), r.clerk), 200, "").str("id"))
}

// A refund above 500.00 needs two of finance; the gateway sends it after the
// second yes, and the owner's yes is refused.
func TestFlow_Refund(t *testing.T) {
	r := newRig(t)
	p := r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"4711","payment_id":"pay_a7","amount":60000},"run":{"id":"run-1","step":"2","call":"c-9"}}`), 200, "")
	require.Equal(t, true, p.at("approval", "required"))
	c := r.want(r.spend("refund_payment", r.clerk, p.str("commit_token")), 202, "")
	id := c.str("id")
	require.Equal(t, "awaiting_approval", c.str("state"))
	require.Equal(t, "wait_for_people", c.str("next", "action"))
	require.Equal(t, "30", c.Header.Get("Retry-After"))
	require.Equal(t, "https://gate.example/operations/"+id, c.str("approval", "url"))
	require.Equal(t, "c-9", c.str("tool_call_id"))
	require.Equal(t, []any{"cancel"}, c.at("allowed_actions"))

	queue := r.want(get("/v1/approvals", "").as(r.ann), 200, "")
	entry := queue.doc["approvals"].([]any)[0].(map[string]any)
	require.Equal(t, true, entry["may_decide"])
	require.Equal(t, "apr_"+id[3:], entry["id"])
	mine := r.want(get("/v1/approvals", "").as(r.owner), 200, "").doc["approvals"].([]any)[0].(map[string]any)
	require.Equal(t, false, mine["may_decide"])
	require.Contains(t, mine["why_not"], "own the agent")

	r.decide(id, r.owner, "approve", "").want(403, "separation_of_duties")
	one := r.decide(id, r.ann, "approve", "").ok(200)
	require.EqualValues(t, "1", fmt.Sprint(one.at("missing")))
	require.Equal(t, "awaiting_approval", one.str("operation", "state"))
	r.decide(id, r.ann, "approve", "").want(409, "already_decided")
	require.Zero(t, r.shop.RequestCount(), "one yes is not enough")
	two := r.decide(id, r.bob, "approve", "").ok(200)
	require.Equal(t, "pending", two.str("operation", "state"))
	require.Len(t, two.doc["decisions"], 2)
	r.work()
	done := r.want(get("/v1/operations/"+id, r.clerk), 200, "")
	require.Equal(t, "succeeded", done.str("state"))
	require.Equal(t, 1, r.shop.EffectCount())
	r.decide(id, r.bob, "approve", "").want(409, "already_decided")
	over := r.decide(id, r.owner, "reject", "too late").want(409, "invalid_state")
	require.Equal(t, id, over.str("operation", "id"))
	require.Equal(t, "done", over.str("next", "action"))
}

// A no reaches the agent, stands against the same ask, and can be taken back by
// a person who does not own the agent.
func TestFlow_Reject(t *testing.T) {
	r := newRig(t)
	ask := `{"args":{"case":"c-1","payment_id":"pay_a1","amount":100}}`
	id := r.refund("c-1", 100)
	r.decide(id, r.ann, "reject", "").want(422, "decision_invalid")
	r.decide(id, r.bob, "reject", "I am of finance").want(403, "not_allowed")
	r.decide(id, r.ann, "reject", "The parcel has left.").ok(200)
	got := r.want(get("/v1/operations/"+id, r.clerk), 200, "")
	require.Equal(t, "rejected", got.str("state"))
	require.Equal(t, "stop", got.str("next", "action"))
	require.Contains(t, got.str("next", "text"), "The parcel has left")

	no := r.want(post("/v1/tools/refund_payment/preview", r.clerk, ask), 409, "rejected_before")
	require.Equal(t, id, no.str("operation", "id"))
	require.Equal(t, "stop", no.str("next", "action"))

	reopen := post("/v1/approvals/apr_"+id[3:]+"/reopen", "", `{"reason":"The parcel came back."}`)
	r.want(reopen.as(r.owner), 403, "separation_of_duties")
	re := r.want(reopen.as(r.ann), 200, "")
	require.Equal(t, "rejected", re.str("operation", "state"))
	require.Equal(t, "preview_again", re.str("operation", "next", "action"))
	p := r.want(post("/v1/tools/refund_payment/preview", r.clerk, ask), 200, "")
	require.Equal(t, "2", fmt.Sprint(p.at("generation")))
	// What waits can't be re-opened.
	waits := r.refund("c-2", 100)
	r.want(post("/v1/approvals/apr_"+waits[3:]+"/reopen", "", `{"reason":"r"}`).as(r.ann), 409, "invalid_state")
}

// The reply is lost: unknown, never sent again, settled by a person.
func TestFlow_Unknown(t *testing.T) {
	r := newRig(t)
	id := r.doubt()
	require.Equal(t, 1, r.shop.RequestCount())
	o := r.want(get("/v1/operations/"+id, "").as(r.ann), 202, "")
	require.Equal(t, []any{"resolve"}, o.at("allowed_actions"))
	require.Contains(t, o.str("next", "text"), "may have happened")
	r.want(post("/v1/operations/"+id+"/cancel", r.clerk, `{}`), 409, "invalid_state")
	r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","reason":"seen"}`).as(r.ann), 422, "decision_invalid")
	r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"did_not_happen","effect_id":"x","reason":"seen"}`).as(r.ann), 422, "decision_invalid")
	done := r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"letter_1","reason":"It is in the log."}`).as(r.ann), 200, "")
	require.Equal(t, "succeeded", done.str("state"))
	r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"letter_1","reason":"again"}`).as(r.ann), 409, "invalid_state")
	require.Equal(t, 1, r.shop.RequestCount())
}

// A person said that nothing happened, and finds the effect later.
func TestFlow_FoundLater(t *testing.T) {
	r := newRig(t)
	id := r.doubt()
	say := func(body string) call { return post("/v1/operations/"+id+"/resolve", "", body).as(r.ann) }
	late := `{"outcome":"happened","effect_id":"letter_1","contradict":true,"reason":"The customer has it."}`
	r.want(say(late), 409, "invalid_state") // there is no end to contradict
	r.want(say(`{"outcome":"did_not_happen","reason":"Not in the log."}`), 200, "")
	r.want(say(`{"outcome":"did_not_happen","contradict":true,"reason":"r"}`), 422, "decision_invalid")
	door := r.want(say(`{"outcome":"happened","effect_id":"letter_1","reason":"r"}`), 409, "invalid_state")
	require.Contains(t, door.str("detail"), "say that it contradicts")
	require.Equal(t, id, door.str("operation", "id"))
	again := r.want(say(`{"outcome":"did_not_happen","reason":"r"}`), 409, "invalid_state")
	require.Contains(t, again.str("detail"), "is known already")
	r.want(post("/v1/operations/"+id+"/resolve", r.clerk, late), 403, "not_allowed")
	r.want(post("/v1/operations/"+id+"/ask", "", "").as(r.ann), 409, "invalid_state") // the tool can't be asked
	o := r.want(say(late), 200, "")
	require.Equal(t, "succeeded", o.str("state"))
	require.Equal(t, "letter_1", o.str("effect_id"))
	said := r.want(say(late), 200, "") // by whoever lost the answer
	require.Equal(t, o.str("updated_at"), said.str("updated_at"))
	back := r.want(say(`{"outcome":"did_not_happen","reason":"r"}`), 409, "invalid_state")
	require.Contains(t, back.str("detail"), "never taken back")
	stands := asList(r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])
	require.Len(t, stands, 1)
	require.Equal(t, map[string]any{"tool": "send_letter"}, stands[0].(map[string]any)["scope"])
}

// What was never sent has no effect of its own, whatever was found.
func TestFlow_FoundOfTheUnsent(t *testing.T) {
	r := newRig(t)
	id := r.refund("c-1", 100)
	r.want(post("/v1/operations/"+id+"/cancel", r.clerk, `{}`), 200, "")
	for _, more := range []string{"", `,"contradict":true`} {
		no := r.want(post("/v1/operations/"+id+"/resolve", "", `{"outcome":"happened","effect_id":"re_1","reason":"r"`+more+`}`).as(r.ann), 409, "invalid_state")
		require.Contains(t, no.str("detail"), "never sent")
	}
	no := r.want(post("/v1/operations/"+id+"/ask", "", "").as(r.ann), 409, "invalid_state")
	require.Contains(t, no.str("detail"), "never sent")
	require.Empty(t, r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])
}

func TestFlow_Cancel(t *testing.T) {
	r := newRig(t)
	id := r.refund("c-1", 100)
	o := r.want(post("/v1/operations/"+id+"/cancel", r.clerk, `{"reason":"Not any more."}`), 200, "")
	require.Equal(t, "cancelled", o.str("state"))
	require.Equal(t, "Not any more.", o.str("reason", "text"))
	r.want(post("/v1/operations/"+id+"/cancel", r.clerk, `{}`), 409, "invalid_state")
	// A person can too.
	other := r.refund("c-2", 100)
	r.want(post("/v1/operations/"+other+"/cancel", "", `{}`).as(r.bob), 200, "")
	require.Zero(t, r.shop.RequestCount())
}

// A definite refusal of the outside system is failed, and frees the key for the
// next generation, also with other arguments.
func TestFlow_Refused(t *testing.T) {
	r := newRig(t)
	p := r.preview("ord_1001")
	r.shop.Set(shop.Switches{RefuseNext: 1})
	c := r.want(r.spend("hold_order", r.clerk, p.str("commit_token")), 200, "")
	require.Equal(t, "failed", c.str("state"))
	require.Equal(t, "preview_again", c.str("next", "action"))
	next := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001","reason":"other"}}`), 200, "")
	require.Equal(t, "2", fmt.Sprint(next.at("generation")))
	require.Equal(t, "succeeded", r.want(r.spend("hold_order", r.clerk, next.str("commit_token")), 200, "").str("state"))
}

// A wanted repeat names what it repeats and asks people.
func TestFlow_AgainOf(t *testing.T) {
	r := newRig(t)
	first := r.hold("ord_1001").str("id")
	r.shop.Set(shop.Switches{})
	p := r.want(post("/v1/tools/release_hold/preview", r.clerk, `{"args":{"hold_id":"`+r.want(get("/v1/operations/"+first, r.clerk), 200, "").str("effect_id")+`"}}`), 200, "")
	r.want(r.spend("release_hold", r.clerk, p.str("commit_token")), 200, "")
	again := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"},"again_of":"`+first+`"}`), 200, "")
	require.Equal(t, true, again.at("approval", "required"))
	c := r.want(r.spend("hold_order", r.clerk, again.str("commit_token")), 202, "")
	require.Equal(t, first, c.str("again_of"))
	require.Equal(t, "2", fmt.Sprint(c.at("generation")))
}

func TestFlow_Read(t *testing.T) {
	r := newRig(t)
	a := r.want(post("/v1/tools/get_order/call", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 200, "")
	require.Equal(t, "Birch Bakery", a.str("result", "customer"))
	r.want(post("/v1/tools/hold_order/call", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 422, "tool_access")
	r.want(post("/v1/tools/get_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 422, "tool_access")
}

func TestFlow_Tools(t *testing.T) {
	r := newRig(t)
	names := func(a answer) (out []string) {
		for _, tool := range a.doc["tools"].([]any) {
			out = append(out, tool.(map[string]any)["name"].(string))
		}
		return out
	}
	require.Equal(t, []string{"list_orders"}, names(r.want(get("/v1/tools", r.stray), 200, "")))
	require.Contains(t, names(r.want(get("/v1/tools", r.clerk), 200, "")), "refund_payment")
	require.Contains(t, names(r.want(get("/v1/tools", "").as(r.ann), 200, "")), "refund_payment")
	r.want(get("/v1/tools/hold_order", r.stray), 403, "tool_not_granted")
	refund := r.want(get("/v1/tools/refund_payment", r.clerk), 200, "")
	require.Equal(t, "always", refund.str("approval"))
	require.Equal(t, false, refund.at("reversible"))
	require.Equal(t, true, refund.at("honours_key"))
	require.Equal(t, "strong", refund.str("lookup"))
	require.NotContains(t, refund.text, "50000", "a limit that an agent knows is a limit that it can stay under")
	require.Equal(t, "never", r.want(get("/v1/tools/hold_order", r.clerk), 200, "").str("approval"))
	require.Nil(t, r.want(get("/v1/tools/get_order", r.clerk), 200, "").at("reversible"))
	require.Equal(t, true, r.want(get("/v1/tools/run_hold", r.clerk), 200, "").at("needs_run"))
}

// An agent that lost its memory finds its operations, page by page.
func TestFlow_List(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.hold(fmt.Sprintf("ord_100%d", i+1))
		r.clock.Add(time.Second)
	}
	waiting := r.refund("c-1", 100)
	var ids []string
	path := "/v1/operations?limit=2"
	for range 3 {
		a := r.want(get(path, r.clerk), 200, "")
		for _, o := range a.doc["operations"].([]any) {
			ids = append(ids, o.(map[string]any)["id"].(string))
		}
		path = "/v1/operations?limit=2&cursor=" + a.str("next_cursor")
	}
	require.Len(t, ids, 6)
	require.Equal(t, waiting, ids[0], "newest first")
	count := func(query string) int {
		return len(r.want(get("/v1/operations?"+query, r.clerk), 200, "").doc["operations"].([]any))
	}
	require.Equal(t, 1, count("state=awaiting_approval"))
	require.Equal(t, 6, count("state=awaiting_approval&state=succeeded"))
	require.Equal(t, 1, count("key=hold%2Ford_1003"))
	require.Equal(t, 1, count("tool=refund_payment"))
	require.Equal(t, 0, count("run=r-1"))
	require.Empty(t, r.want(get("/v1/operations", r.helper), 200, "").doc["operations"], "another agent's are not listed")
	require.Len(t, r.want(get("/v1/operations", "").as(r.bob), 200, "").doc["operations"], 6, "an operator sees the tenant's")
}

// Sensitive arguments leave the gateway as their digest only (S75).
func TestFlow_Redacted(t *testing.T) {
	r := newRig(t)
	const secret = "very-secret-4711"
	p := r.want(post("/v1/tools/send_notice/preview", r.clerk, `{"args":{"case":"c-1","subject":"s","secret":"`+secret+`"}}`), 200, "")
	c := r.want(r.spend("send_notice", r.clerk, p.str("commit_token")), 202, "")
	card := r.want(get("/v1/approvals/apr_"+c.str("id")[3:], "").as(r.ann), 200, "")
	for _, text := range []string{p.text, c.text, card.text, r.log.String()} {
		require.NotContains(t, text, secret)
	}
	require.NotEmpty(t, c.at("args", "secret"))
	require.Equal(t, c.at("args", "secret"), card.at("plan", "args", "secret"))
	// Nor do keys, tokens and sessions stand in the log (S10).
	for _, s := range []string{r.clerk, p.str("commit_token"), r.ann.Value} {
		require.NotContains(t, r.log.String(), s)
	}
	require.True(t, strings.Contains(r.log.String(), "commitTool") || strings.Contains(r.log.String(), "/v1/tools/{tool}/commit"))
}
