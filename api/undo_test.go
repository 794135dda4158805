package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

// held holds an order in a run and gives the operation and its hold.
func (r *rig) held(order, run string) (id, hold string) {
	r.t.Helper()
	p := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"`+order+`"},"run":{"id":"`+run+`"}}`), 200, "")
	a := r.want(r.spend("hold_order", r.clerk, p.str("commit_token")), 200, "")
	return a.str("id"), a.str("effect_id")
}

// undoing is something that can be taken back: an operation, or a run.
type undoing struct{ at string }

func undoOf(operation string) undoing { return undoing{"/v1/operations/" + operation + "/undo"} }
func undoOfRun(run string) undoing    { return undoing{"/v1/runs/" + run + "/undo"} }

func (u undoing) preview(key string) call { return post(u.at+"/preview", key, "") }

func (u undoing) commit(key, token string) call {
	return post(u.at+"/commit", key, asJSON(map[string]any{"commit_token": token}))
}

// The undo of an operation: what it would do, that it was done, and what every
// repeat is answered with (I15).
func TestUndo_Flow(t *testing.T) {
	r := newRig(t)
	id, hold := r.held("ord_1001", "run-1")
	u := undoOf(id)
	p := r.want(u.preview(r.clerk), 200, "")
	require.Equal(t, "release_hold", p.str("tool"))
	require.Equal(t, "undo:"+id, p.str("idempotency_key"))
	require.Equal(t, hold, p.str("args", "hold_id"))
	require.Equal(t, u.at+"/commit", p.str("next", "url"))
	require.Equal(t, 1, r.shop.EffectCount(), "a preview changes nothing")
	token := p.str("commit_token")
	// An empty object says as much as nothing.
	require.NotEmpty(t, r.want(post(u.at+"/preview", r.clerk, "{}"), 200, "").str("commit_token"))

	c := r.want(u.commit(r.clerk, token), 200, "")
	require.Equal(t, "succeeded", c.str("state"))
	require.Equal(t, id, c.str("undo_of"))
	require.Nil(t, c.doc["asked_by"], "the agent that did it asked")
	require.Equal(t, "false", c.Header.Get("Idempotency-Replayed"))
	require.Equal(t, 2, r.shop.EffectCount())

	// Every repeat, also under another token or by a person, is that undo.
	for _, again := range []answer{
		r.want(u.commit(r.clerk, token), 200, ""),
		r.want(u.preview(r.clerk), 200, ""),
		r.want(u.preview("").as(r.ann), 200, ""),
	} {
		require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
		found := again.str("id")
		if found == "" {
			require.Nil(t, again.doc["commit_token"])
			require.Equal(t, "use_first_result", again.str("next", "action"))
			found = again.str("operation", "id")
		}
		require.Equal(t, c.str("id"), found)
	}
	require.Equal(t, 2, r.shop.EffectCount())

	// What was taken back says so when it is answered once more (R56).
	first := r.want(get("/v1/operations/"+id, r.clerk), 200, "")
	require.Equal(t, "compensated", first.str("state"))
	stands := r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1001"}}`), 200, "")
	require.Equal(t, []any{"undone"}, stands.at("operation", "stale"))
}

// A person who asks for an undo is named in it, and does not decide on it.
func TestUndo_ByOperator(t *testing.T) {
	r := newRig(t)
	id, _ := r.held("ord_1001", "run-1")
	r.policy("release_hold", "send_letter")
	u := undoOf(id)
	p := r.want(u.preview("").as(r.ann), 200, "")
	require.Equal(t, true, p.at("approval", "required"))
	c := r.want(u.commit("", p.str("commit_token")).as(r.ann), 202, "")
	require.Equal(t, "awaiting_approval", c.str("state"))
	require.Equal(t, "ann", c.str("asked_by", "name"))
	require.Equal(t, "clerk", c.str("agent", "name"))
	card := r.want(get("/v1/approvals/apr_"+c.str("id")[3:], "").as(r.ann), 200, "")
	require.Equal(t, false, card.at("may_decide"))
	require.Equal(t, []any{}, r.want(get("/v1/operations/"+c.str("id"), r.clerk), 202, "").at("allowed_actions"))
	r.want(post("/v1/operations/"+c.str("id")+"/cancel", r.clerk, `{}`), 403, "not_allowed")
	require.Equal(t, "compensating", r.want(get("/v1/operations/"+id, r.clerk), 200, "").str("state"))
}

// Another agent of the same owner may ask; who may not use the tool is told that
// nothing is there.
func TestUndo_OtherAgents(t *testing.T) {
	r := newRig(t)
	id, _ := r.held("ord_1001", "run-1")
	u := undoOf(id)
	there := r.want(u.preview(r.stray).with("Request-Id", "same"), 404, "operation_not_found")
	absent := r.want(undoOf(noOperation).preview(r.stray).with("Request-Id", "same"), 404, "operation_not_found")
	require.Equal(t, absent.text, there.text)
	token := r.want(u.preview(r.helper), 200, "").str("commit_token")
	r.want(u.commit(r.clerk, token), 403, "token_subject_mismatch")
	c := r.want(u.commit(r.helper, token), 200, "")
	require.Equal(t, "helper", c.str("asked_by", "name"))
	require.Nil(t, c.doc["run"], "the words of another agent")

	// Who asked may look at it, and take it back while it was not sent.
	r.policy("release_hold", "send_letter")
	second, _ := r.held("ord_1002", "run-1")
	token = r.want(undoOf(second).preview(r.helper), 200, "").str("commit_token")
	asked := r.want(undoOf(second).commit(r.helper, token), 202, "")
	require.Equal(t, []any{"cancel"}, asked.at("allowed_actions"))
	r.want(get("/v1/operations/"+asked.str("id"), r.helper), 202, "")
	r.want(post("/v1/operations/"+asked.str("id")+"/cancel", r.helper, `{}`), 200, "")
	require.Equal(t, "succeeded", r.want(get("/v1/operations/"+second, r.clerk), 200, "").str("state"))
}

func TestUndo_Refused(t *testing.T) {
	r := newRig(t, func(o *options) { o.quota = 6 })
	waiting := r.refund("c-1", 100)
	no := r.want(undoOf(waiting).preview(r.clerk), 422, "undo_impossible")
	require.Equal(t, waiting, no.str("operation", "id"))
	id, hold := r.held("ord_1001", "run-1")
	u := undoOf(id)

	r.store.grant("hold_order")
	r.want(u.preview(r.clerk), 403, "tool_not_granted")
	r.store.grant("*")
	rules := r.registry.List()
	r.policy("release_hold", "denied_hold")
	r.want(u.preview(r.clerk), 403, "policy_denied")
	require.NoError(t, r.registry.Set(rules))

	// A person said no to the same release.
	r.policy("release_hold", "send_letter")
	direct := r.want(post("/v1/tools/release_hold/preview", r.clerk, `{"args":{"hold_id":"`+hold+`"}}`), 200, "")
	asked := r.want(r.spend("release_hold", r.clerk, direct.str("commit_token")), 202, "").str("id")
	r.decide(asked, r.ann, "reject", "no").ok(200)
	r.want(u.preview(r.clerk), 409, "rejected_before")

	other, otherHold := r.held("ord_1002", "run-1")
	r.byHand("/holds/" + otherHold + "/release")
	r.want(undoOf(other).preview(r.clerk), 422, "tool_refused")

	third, _ := r.held("ord_1003", "run-1")
	r.want(undoOf(third).preview(r.clerk), 200, "")
	r.want(undoOf(third).preview(r.clerk), 429, "quota_exhausted")
}

func TestUndo_Upstream(t *testing.T) {
	for _, trouble := range []struct {
		code   string
		status int
		answer func(http.ResponseWriter, *http.Request)
	}{
		{"upstream_unexpected", 502, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }},
		{"upstream_timeout", 504, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t, func(o *options) { o.readBudget = 300 * time.Millisecond })
			id, _ := r.held("ord_1001", "run-1")
			r.held("ord_1002", "run-2")
			token := r.want(undoOf(id).preview(r.clerk), 200, "").str("commit_token")
			runToken := r.want(undoOfRun("run-2").preview(r.clerk), 200, "").str("commit_token")
			before := r.state()
			r.outside.breakReads(trouble.answer)
			r.want(undoOf(id).preview(r.clerk), trouble.status, trouble.code)
			r.want(undoOf(id).commit(r.clerk, token), trouble.status, trouble.code)
			r.want(undoOfRun("run-2").commit(r.clerk, runToken), trouble.status, trouble.code)
			// What can't be told about an effect stops the plan of a run.
			plan := r.want(undoOfRun("run-2").preview(r.clerk), 200, "")
			require.NotEmpty(t, plan.str("stopped"))
			require.Nil(t, plan.doc["commit_token"])
			require.Equal(t, "stop", plan.str("next", "action"))
			require.Equal(t, before, r.state())
		})
	}
}

// What may change between the preview of an undo and its commit: each world is
// refused, nothing is opened, and the run stays open (undo of an operation and of
// a run alike).
func TestUndo_Moved(t *testing.T) {
	for _, world := range []struct {
		status int
		code   string
		move   func(r *rig, hold string)
	}{
		{403, "tool_not_granted", func(r *rig, _ string) { r.store.grant("hold_order") }},
		{403, "policy_denied", func(r *rig, _ string) { r.policy("release_hold", "denied_hold") }},
		{409, "preview_stale", func(r *rig, hold string) { r.byHand("/holds/" + hold + "/release") }},
		{409, "tool_changed", func(r *rig, _ string) {
			r.inForce(func(t *tools.Tool) bool { return t.Name != "release_hold" })
		}},
		{409, "rejected_before", func(r *rig, hold string) {
			r.policy("release_hold", "send_letter")
			direct := r.want(post("/v1/tools/release_hold/preview", r.clerk, `{"args":{"hold_id":"`+hold+`"}}`), 200, "")
			asked := r.want(r.spend("release_hold", r.clerk, direct.str("commit_token")), 202, "").str("id")
			r.decide(asked, r.ann, "reject", "no").ok(200)
		}},
		{410, "token_expired", func(r *rig, _ string) { r.clock.Add(tokens.DefaultTTL) }},
		{423, "tool_frozen", func(r *rig, _ string) {
			_, err := r.ledger.Freeze(context.Background(), ledger.Scope{Tenant: tenant}, ledger.FreezeAll, ledger.Gateway("test"), "a test")
			require.NoError(r.t, err)
		}},
	} {
		t.Run(world.code, func(t *testing.T) {
			r := newRig(t)
			id, hold := r.held("ord_1001", "run-1")
			token := r.want(undoOf(id).preview(r.clerk), 200, "").str("commit_token")
			runToken := r.want(undoOfRun("run-1").preview(r.clerk), 200, "").str("commit_token")
			world.move(r, hold)
			before := r.state()
			r.want(undoOf(id).commit(r.clerk, token), world.status, world.code)
			r.want(undoOfRun("run-1").commit(r.clerk, runToken), world.status, world.code)
			require.Equal(t, before, r.state())
			require.Equal(t, "succeeded", r.want(get("/v1/operations/"+id, r.clerk), 200, "").str("state"))
			require.Equal(t, false, r.want(get("/v1/runs/run-1", r.clerk), 200, "").at("run", "closed"))
		})
	}
}

// A token is for one undo and for nobody else.
func TestUndo_Token(t *testing.T) {
	r := newRig(t)
	id, _ := r.held("ord_1001", "run-1")
	other, _ := r.held("ord_1002", "run-2")
	token := r.want(undoOf(id).preview(r.clerk), 200, "").str("commit_token")
	run := r.want(undoOfRun("run-1").preview(r.clerk), 200, "").str("commit_token")
	before := r.state()
	for _, c := range []call{
		undoOf(other).commit(r.clerk, token), undoOf(id).commit(r.clerk, run),
		undoOfRun("run-1").commit(r.clerk, token), undoOfRun("run-2").commit(r.clerk, run),
		r.spend("release_hold", r.clerk, token), r.spend("hold_order", r.clerk, run),
	} {
		r.want(c, 422, "args_mismatch")
	}
	for _, u := range []undoing{undoOf(id), undoOfRun("run-1")} {
		r.want(u.commit(r.clerk, "a.b.c"), 401, "token_invalid")
	}
	r.want(undoOf(id).commit("", token).as(r.ann), 403, "token_subject_mismatch")
	c := undoOfRun("run-1").commit("", run).as(r.ann)
	c.path += "?agent=" + r.clerkID
	r.want(c, 403, "token_subject_mismatch")
	require.Equal(t, before, r.state())
}

func TestUndo_WritesFail(t *testing.T) {
	for _, trouble := range writeTroubles {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t)
			id, _ := r.held("ord_1001", "run-1")
			token := r.want(undoOf(id).preview(r.clerk), 200, "").str("commit_token")
			runToken := r.want(undoOfRun("run-1").preview(r.clerk), 200, "").str("commit_token")
			before := r.state()
			r.store.set(nil, trouble.err, trouble.lost)
			for _, u := range []undoing{undoOf(id), undoOfRun("run-1")} {
				r.want(u.preview(r.clerk), trouble.status, trouble.code)
			}
			for _, c := range []call{undoOf(id).commit(r.clerk, token), undoOfRun("run-1").commit(r.clerk, runToken)} {
				a := r.want(c, trouble.status, trouble.code)
				if trouble.lost {
					require.Equal(t, "repeat_commit", a.str("next", "action"))
				}
			}
			require.Equal(t, before, r.state())
			r.store.set(nil, nil, false)
			r.want(undoOf(id).commit(r.clerk, token), 200, "")
		})
	}
}

// Ids that no operation has are told before any token is looked at.
func TestUndo_Address(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"op_x", "apr_" + noOperation[3:], strings.ToUpper(noOperation)} {
		r.want(undoOf(id).preview(r.clerk), 404, "operation_not_found")
		r.want(undoOf(id).commit(r.clerk, "a.b.c"), 404, "operation_not_found")
	}
}
