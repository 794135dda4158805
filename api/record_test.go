package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/examples/shop"
	"countersign/identity"
	"countersign/tokens"
	"countersign/tools"
)

// doubtfulHold makes a hold whose reply was lost, of a tool that can be asked.
func (r *rig) doubtfulHold(order string) string {
	r.t.Helper()
	token := r.preview(order).str("commit_token")
	r.shop.Set(shop.Switches{CutNext: 1})
	c := r.spend("hold_order", r.clerk, token)
	c.path += "?wait=0"
	id := r.want(c, 202, "").str("id")
	require.NoError(r.t, r.executor.Drain(context.Background()))
	require.Equal(r.t, "unknown", r.want(get("/v1/operations/"+id, r.clerk), 202, "").str("state"))
	return id
}

func ofOperation(id, below string) string { return "/v1/operations/" + id + "/" + below }

// A person's question settles a doubt by what it finds, and only there; nothing is
// sent again (R128).
func TestAsk(t *testing.T) {
	r := newRig(t)
	id := r.doubtfulHold("ord_1001")
	before := r.want(get("/v1/operations/"+id, "").as(r.ann), 202, "")
	require.Equal(t, []any{"resolve", "ask"}, before.at("allowed_actions"))
	require.NotEmpty(t, before.str("first_unknown_at"))
	require.NotEmpty(t, before.str("ask_at"))
	require.Nil(t, before.at("needs_person"))

	r.outside.breakReads(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	failed := r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 200, "")
	require.Equal(t, "unknown", failed.str("state"))
	r.outside.breakReads(nil)
	r.clock.Add(time.Minute)
	found := r.want(post(ofOperation(id, "ask"), "", "{}").as(r.ann), 200, "")
	require.Equal(t, "succeeded", found.str("state"))
	require.NotEmpty(t, found.str("effect_id"))
	require.NotEmpty(t, found.str("first_unknown_at"))
	require.Nil(t, found.at("ask_at"))
	require.Equal(t, 1, r.shop.RequestCount(), "nothing was sent again")

	known := r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 409, "invalid_state")
	require.Equal(t, id, known.str("operation", "id"))
	letter := r.doubt()
	_, err := r.ledger.HandOver(context.Background(), tenant, letter, "nobody can be asked")
	require.NoError(t, err)
	onList := r.want(get("/v1/operations/"+letter, "").as(r.ann), 202, "")
	require.Equal(t, true, onList.at("needs_person"))
	require.Equal(t, []any{"resolve"}, onList.at("allowed_actions"), "the tool can't be asked")
	r.want(post(ofOperation(letter, "ask"), "", "").as(r.ann), 409, "invalid_state")
}

// What a person was wrong about is found by a question: who may put it is told so,
// and the find reopens the operation and freezes its tool (I9).
func TestAsk_ContradictsAnEnd(t *testing.T) {
	r := newRig(t)
	id := r.doubtfulHold("ord_1001")
	r.want(post(ofOperation(id, "resolve"), "", `{"outcome":"did_not_happen","reason":"Not in the list."}`).as(r.ann), 200, "")
	ended := r.want(get("/v1/operations/"+id, "").as(r.ann), 200, "")
	require.Equal(t, "failed", ended.str("state"))
	require.Equal(t, []any{"ask"}, ended.at("allowed_actions"))
	require.Equal(t, []any{}, r.want(get("/v1/operations/"+id, r.clerk), 200, "").at("allowed_actions"))
	r.want(post(ofOperation(id, "ask"), r.clerk, ""), 403, "not_allowed")

	r.outside.breakReads(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	r.clock.Add(time.Minute)
	require.Equal(t, "failed", r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 200, "").str("state"))
	r.outside.breakReads(nil)
	r.clock.Add(time.Minute)
	found := r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 200, "")
	require.Equal(t, "succeeded", found.str("state"))
	require.NotEmpty(t, found.str("effect_id"))
	stands := asList(r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])
	require.Len(t, stands, 1)
	require.Equal(t, map[string]any{"tool": "hold_order"}, stands[0].(map[string]any)["scope"])
	require.Equal(t, 1, r.shop.RequestCount(), "nothing was sent again")
}

// An answer that can't be written down is told as what it is, and does not count.
func TestAsk_WritesFail(t *testing.T) {
	for _, trouble := range writeTroubles {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t)
			id := r.doubtfulHold("ord_1001")
			r.store.set(nil, trouble.err, trouble.lost)
			r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), trouble.status, trouble.code)
			r.store.set(nil, nil, false)
			r.clock.Add(time.Minute)
			require.Equal(t, "succeeded", r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 200, "").str("state"))
		})
	}
}

// The record of an operation is its agent's and the operators' to read, save the
// evidence, which may quote the outside system.
func TestRecord(t *testing.T) {
	r := newRig(t)
	id := r.doubtfulHold("ord_1001")
	r.want(post(ofOperation(id, "ask"), "", "").as(r.ann), 200, "")

	events := asList(r.want(get(ofOperation(id, "events"), r.clerk), 200, "").doc["events"])
	var verbs, hashes []string
	prev := ""
	for _, e := range events {
		event := answer{doc: e.(map[string]any)}
		require.Equal(t, prev, event.str("prev"))
		prev = event.str("hash")
		verbs, hashes = append(verbs, event.str("verb")), append(hashes, prev)
	}
	require.Equal(t, []string{"open", "finish", "resolve"}, verbs)
	require.Equal(t, "clerk", answer{doc: events[0].(map[string]any)}.str("actor", "name"))

	evidence := asList(r.want(get(ofOperation(id, "evidence"), "").as(r.ann), 200, "").doc["evidence"])
	require.Len(t, evidence, 2)
	lost, found := answer{doc: evidence[0].(map[string]any)}, answer{doc: evidence[1].(map[string]any)}
	require.Equal(t, "response", lost.str("kind"))
	require.Equal(t, "unknown", lost.str("verdict"))
	require.Nil(t, lost.at("seen", "answered_at"))
	require.Equal(t, "lookup", found.str("kind"))
	require.Equal(t, "present", found.str("answer"))
	require.Equal(t, found.str("id"), answer{doc: events[2].(map[string]any)}.str("evidence"))

	a := r.want(get(ofOperation(id, "receipt"), r.clerk), 200, "")
	keys, err := tokens.ParseJWKS(r.keys.JWKS(r.clock.Now()))
	require.NoError(t, err)
	receipt, _, err := audit.VerifyReceipt(keys, a.str("token"))
	require.NoError(t, err)
	signed, err := json.Marshal(receipt)
	require.NoError(t, err)
	shown, err := json.Marshal(a.at("receipt"))
	require.NoError(t, err)
	require.JSONEq(t, string(signed), string(shown), "what is shown is what is signed")
	require.Equal(t, hashes[2], receipt.Chain.Hash)

	report := r.want(get(ofOperation(id, "forensics"), "").as(r.ann), 200, "")
	require.Equal(t, id, report.str("operation", "id"))
	var verdicts []string
	for _, h := range asList(report.doc["hypotheses"]) {
		of := answer{doc: h.(map[string]any)}
		verdicts = append(verdicts, of.str("name")+" "+of.str("verdict"))
	}
	require.Equal(t, []string{"two_plans excluded", "never_ran excluded", "submitted_twice excluded", "lost_reply open"}, verdicts)

	// What another agent did is not there for it; nothing is stated of what has not
	// ended.
	for _, below := range []string{"events", "receipt"} {
		mine := r.want(get(ofOperation(id, below), r.helper).with("Request-Id", "same"), 404, "operation_not_found")
		none := r.want(get(ofOperation(noOperation, below), r.helper).with("Request-Id", "same"), 404, "operation_not_found")
		require.Equal(t, none.text, mine.text)
	}
	open := r.want(get(ofOperation(r.refund("c-1", 100), "receipt"), r.clerk), 409, "invalid_state")
	require.Equal(t, "wait_for_people", open.str("next", "action"))
}

// An operation says how it hangs together with others.
func TestOperation_Relations(t *testing.T) {
	r := newRig(t)
	first, _ := r.held("ord_1001", "run-1")
	r.held("ord_1002", "run-1")
	o := r.want(get("/v1/operations/"+first, r.clerk), 200, "")
	require.Equal(t, []any{"undo"}, o.at("allowed_actions"))
	require.Nil(t, o.at("stale"))
	goal := r.want(post("/v1/tools/goal_hold/preview", r.clerk, `{"args":{"order_id":"ord_1003"}}`), 200, "")
	g := r.want(r.spend("goal_hold", r.clerk, goal.str("commit_token")), 200, "")
	require.NotEmpty(t, g.str("goal", "group"))
	require.Contains(t, g.str("goal", "value"), "ord_1003")

	u := undoOfRun("run-1")
	c := r.want(u.commit(r.clerk, r.want(u.preview(r.clerk), 200, "").str("commit_token")), 202, "")
	undoes := asList(c.doc["operations"])
	require.Equal(t, undoes[0].(map[string]any)["id"], undoes[1].(map[string]any)["after"])
	now := r.want(get("/v1/operations/"+first, r.clerk), 200, "")
	require.Equal(t, undoes[1].(map[string]any)["id"], now.str("undone_by"))
	require.Equal(t, []any{"being_undone", "run_closed"}, now.at("stale"), "whoever builds on it is told (R56)")
	require.Equal(t, []any{}, now.at("allowed_actions"))

	// Who may not use the tool that takes it back may not ask for it.
	other, _ := r.held("ord_1004", "run-2")
	r.store.grant("hold_order")
	require.Equal(t, []any{}, r.want(get("/v1/operations/"+other, r.clerk), 200, "").at("allowed_actions"))
	require.Equal(t, []any{"undo"}, r.want(get("/v1/operations/"+other, "").as(r.ann), 200, "").at("allowed_actions"))
	r.forgetTools()
	require.Equal(t, []any{"undo"}, r.want(get("/v1/operations/"+other, "").as(r.ann), 200, "").at("allowed_actions"), "its preview tells")
}

// Runs are listed for those who may read them.
func TestRuns_List(t *testing.T) {
	r := newRig(t)
	for i, run := range []string{"run-1", "run-2", "run-3"} {
		r.held(fmt.Sprintf("ord_100%d", i+1), run)
		r.clock.Add(time.Second)
	}
	ids := func(c call) (ids []any, next string) {
		a := r.want(c, 200, "")
		for _, run := range asList(a.doc["runs"]) {
			ids = append(ids, run.(map[string]any)["id"])
		}
		return ids, a.str("next_cursor")
	}
	all := []any{"run-3", "run-2", "run-1"}
	got, next := ids(get("/v1/runs", r.clerk))
	require.Equal(t, all, got)
	require.Empty(t, next)
	first, next := ids(get("/v1/runs?limit=2", "").as(r.ann))
	rest, _ := ids(get("/v1/runs?limit=2&cursor="+next, "").as(r.ann))
	require.Equal(t, all, append(first, rest...))
	for _, c := range []call{
		get("/v1/runs", r.helper), get("/v1/runs?agent="+r.clerkID, r.helper), get("/v1/runs?agent="+r.helperID, "").as(r.ann),
	} {
		none, _ := ids(c)
		require.Empty(t, none)
	}
	mine, _ := ids(get("/v1/runs?agent="+r.clerkID, r.clerk))
	require.Equal(t, all, mine)
}

// A journal that is verified says what is no longer there outside, and believes
// only who can know (R56).
func TestRuns_Verify(t *testing.T) {
	r := newRig(t)
	r.held("ord_1001", "run-1")
	stale := func(query string) any {
		a := r.want(get("/v1/runs/run-1"+query, r.clerk), 200, "")
		return answer{doc: asList(a.doc["entries"])[0].(map[string]any)}.at("stale")
	}
	require.Equal(t, []any{}, stale("?verify=true"))
	r.outside.breakReads(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	for query, want := range map[string][]any{"": {}, "?verify=false": {}, "?verify=true": {"absent_outside"}} {
		require.Equal(t, want, stale(query), query)
	}
	r.outside.breakReads(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	require.Equal(t, []any{}, stale("?verify=true"), "no answer proves nothing")
}

// What a freeze changed is told by the figures of both moments (R130); reads and
// previews go on under it.
func TestFreezes_Measures(t *testing.T) {
	r := newRig(t)
	doubt := r.doubt()
	hold := r.doubtfulHold("ord_1001")
	r.clock.Add(time.Second)
	figures := func(f any) string {
		m := answer{doc: f.(map[string]any)}
		return fmt.Sprintf("%v %v %v %v", m.at("measures", "before", "unknown"), m.at("measures", "now", "unknown"), m.at("measures", "settled"), m.at("measures", "dispatched"))
	}
	frozen := r.want(r.freezes(`{"scope":{"tenant":true},"level":"all","reason":"stop"}`), 200, "")
	require.Equal(t, "2 2 0 0", figures(frozen.doc))
	r.clock.Add(time.Second)

	r.want(post("/v1/tools/get_order/call", r.clerk, `{"args":{"order_id":"ord_1002"}}`), 200, "")
	token := r.preview("ord_1002").str("commit_token")
	r.want(r.spend("hold_order", r.clerk, token), 423, "tool_frozen")
	r.want(get("/v1/operations", r.clerk), 200, "")

	no := r.want(r.lift(`{"scope":{"tenant":true},"reason":"over"}`), 409, "unknowns_open")
	require.Contains(t, no.str("detail"), "(2)")
	require.Len(t, asList(r.want(get(no.str("next", "url"), "").as(r.ann), 200, "").doc["operations"]), 2)
	r.want(r.freezes(`{"scope":{"tool":"send_letter"},"level":"all","reason":"letters"}`), 200, "")
	one := r.want(r.lift(`{"scope":{"tool":"send_letter"},"reason":"over"}`), 409, "unknowns_open")
	require.Equal(t, doubt, asList(r.want(get(one.str("next", "url"), "").as(r.ann), 200, "").doc["operations"])[0].(map[string]any)["id"])

	r.want(post(ofOperation(hold, "ask"), "", "").as(r.ann), 200, "")
	r.want(post(ofOperation(doubt, "resolve"), "", `{"outcome":"did_not_happen","reason":"looked"}`).as(r.ann), 200, "")
	list := asList(r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])
	require.Equal(t, "2 0 2 0", figures(list[0]))
	r.want(r.lift(`{"scope":{"tenant":true},"reason":"over"}`), 200, "")
}

// A tool that was withdrawn is frozen while operations finish on it, and one that
// is not loaded here, as by a command while the gateway is stopped.
func TestFreezes_NotLoaded(t *testing.T) {
	r := newRig(t)
	r.hold("ord_1001")
	r.forgetTools()
	r.want(r.freezes(`{"scope":{"tool":"refund_payment"},"level":"all","reason":"r"}`), 200, "")
	r.inForce(func(*tools.Tool) bool { return false })
	r.want(r.freezes(`{"scope":{"tool":"hold_order"},"level":"all","reason":"r"}`), 200, "")
	r.want(r.freezes(`{"scope":{"tool":"send_letter"},"level":"all","reason":"r"}`), 404, "tool_not_found")
}

// Whom the program vouches for is an operator without a session, save for what is
// a signed-in person's own.
func TestVouched(t *testing.T) {
	r := newRig(t)
	waiting := r.refund("c-1", 100)
	door := r.api.As(identity.Operator{ID: "command-line", Tenant: tenant, Name: "the command line"})
	ask := func(method, path, body string) answer {
		req := httptest.NewRequest(method, "http://admin"+path, strings.NewReader(body))
		if method == http.MethodPost {
			req.Header.Set("Content-Type", "application/json")
		}
		// Neither decides who it is.
		req.Header.Set("Authorization", "Bearer "+r.clerk)
		req.AddCookie(r.bob)
		w := httptest.NewRecorder()
		door.ServeHTTP(w, req)
		return r.received(req, w.Result())
	}
	f := ask("POST", "/v1/freezes", `{"scope":{"tenant":true},"level":"new","reason":"stop"}`)
	require.Equal(t, 200, f.StatusCode, f.text)
	require.Equal(t, "the command line", f.str("by", "name"))
	require.Equal(t, 202, ask("GET", "/v1/operations/"+waiting+"?wait=1", "").StatusCode, "there is no session to end")
	require.Equal(t, 403, ask("POST", "/v1/tools/hold_order/preview", `{"args":{}}`).StatusCode)
	for path, item := range contractDoc().Paths.Map() {
		for method, op := range item.Operations() {
			if op.Tags[0] == "Approvals" {
				a := ask(method, strings.Replace(path, "{id}", "apr_"+waiting[3:], 1), "{}")
				require.Equal(t, "not_allowed", a.str("code"), path)
			}
		}
	}
}
