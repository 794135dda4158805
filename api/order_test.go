package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tokens"
	"countersign/tools"
)

// shopHolds keeps replies back for a moment, so that commits meet each other.
var shopHolds = shop.Switches{SlowMS: 300}

// TestCommit_Order meets the checks at commit in the order that the contract
// promises. Everything is wrong at first; each step mends one thing, and the
// next check must be the one that refuses. So each check beats all later ones.
func TestCommit_Order(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	version := func(tool string) string {
		found, ok := r.registry.Get(tool)
		require.True(t, ok)
		return found.Version
	}
	// What stands in the way under the key hold/ord_1001: a live operation with
	// other arguments.
	r.hold("ord_1001")
	current := version("hold_order")

	// forge stores a preview and mints a token for it, as no honest preview would.
	forge := func(subject, tool, toolVersion, key string, generation int, args map[string]any, again string) string {
		t.Helper()
		found, ok := r.registry.Get(tool)
		require.True(t, ok)
		plan, err := found.Connector.Preview(ctx, tools.Call{
			Args: args, Agent: tools.Agent{ID: subject, Name: "clerk", Tenant: tenant},
			Key: tools.Key{Value: key, Generation: generation, Upstream: r.ledger.UpstreamKey(tenant, tool, key, generation)},
		})
		require.NoError(t, err)
		p := ledger.Preview{
			ID: ledger.NewID("prv_"), Tenant: tenant, Agent: subject, Tool: tool, ToolVersion: toolVersion,
			Key: key, Generation: generation, AgainOf: again, ArgsDigest: strictjson.Digest(args), PlanDigest: plan.Digest(), Plan: plan,
			Requirement: ledger.Requirement{Outcome: tools.OutcomeAuto}, CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(tokens.DefaultTTL),
		}
		require.NoError(t, r.store.PutPreview(ctx, p))
		token, _, err := r.signer.Mint(tokens.Binding{
			Subject: subject, Tenant: tenant, Tool: tool, ToolVersion: toolVersion, KeyDigest: ledger.KeyDigest(key),
			Generation: generation, ArgsDigest: p.ArgsDigest, PreviewDigest: p.PlanDigest, PreviewID: p.ID, PolicyDigest: someDigest,
		})
		require.NoError(t, err)
		return token
	}
	other := map[string]any{"order_id": "ord_1002", "reason": ""}
	const old = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	freeze := func() {
		_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: ""}, ledger.FreezeAll, ledger.Gateway("test"), "to test the order")
		require.NoError(t, err)
	}
	freeze()

	commit := func(tool, key, token, args string) call {
		body := `{"commit_token":"` + token + `"`
		if args != "" {
			body += `,"args":` + args
		}
		return post("/v1/tools/"+tool+"/commit", key, body+"}")
	}

	// A token of the stray agent, which has no grant, with everything else wrong:
	// other args, expired, old version, key in use, frozen.
	strayID := r.agentID(r.stray)
	expired := forge(strayID, "hold_order", old, "hold/ord_1001", 2, other, "")
	r.clock.Add(tokens.DefaultTTL)
	const wrong = `{"order_id":"ord_1003"}`
	r.want(commit("hold_order", "cs_agent_none", "garbage", wrong), 401, "unauthenticated")
	r.want(commit("hold_order", r.helper, "garbage", wrong), 401, "token_invalid")
	r.want(commit("hold_order", r.helper, expired, wrong), 403, "token_subject_mismatch")
	r.want(commit("hold_order", r.stray, expired, wrong), 422, "args_mismatch")
	r.want(commit("release_hold", r.stray, expired, ""), 422, "args_mismatch")
	r.want(commit("hold_order", r.stray, expired, ""), 410, "token_expired")
	fresh := forge(strayID, "hold_order", old, "hold/ord_1001", 2, other, "")
	r.want(commit("hold_order", r.stray, fresh, ""), 403, "tool_not_granted")

	// From here as the clerk, who has the grant.
	changed := forge(r.clerkID, "hold_order", old, "hold/ord_1001", 2, other, "")
	r.want(commit("hold_order", r.clerk, changed, ""), 409, "tool_changed")
	taken := forge(r.clerkID, "hold_order", current, "hold/ord_1001", 2, other, "")
	r.want(commit("hold_order", r.clerk, taken, ""), 422, "idempotency_key_reused")
	again := forge(r.clerkID, "hold_order", current, "hold/ord_1001", 2, other, noOperation)
	r.want(commit("hold_order", r.clerk, again, ""), 422, "again_of_invalid")

	// An ask that a person has said no to, by a tool that is denied, on ground
	// that has moved.
	require.NoError(t, r.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant, Tool: ""}, By: ledger.Gateway("test")}))
	noticed := map[string]any{"case": "n-1", "subject": "s", "body": ""}
	asked := r.want(commit("send_notice", r.clerk, forge(r.clerkID, "send_notice", version("send_notice"), "notice/n-1", 1, noticed, ""), ""), 202, "").str("id")
	r.decide(asked, r.ann, "reject", "no").ok(200)
	freeze()
	rejected := forge(r.clerkID, "send_notice", version("send_notice"), "notice/n-2", 1, noticed, "")
	r.want(commit("send_notice", r.clerk, rejected, ""), 409, "rejected_before")
	denied := forge(r.clerkID, "denied_hold", version("denied_hold"), "denied/ord_1004", 1, map[string]any{"order_id": "ord_1004"}, "")
	r.want(commit("denied_hold", r.clerk, denied, ""), 423, "tool_frozen")
	require.NoError(t, r.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant, Tool: ""}, By: ledger.Gateway("test")}))
	r.want(commit("denied_hold", r.clerk, denied, ""), 403, "policy_denied")

	// What an honest preview was read from moves under it.
	stale := r.preview("ord_1005").str("commit_token")
	r.moveOrder("ord_1005")
	before := r.state()
	gone := r.want(commit("hold_order", r.clerk, stale, ""), 409, "preview_stale")
	require.Equal(t, "preview_again", gone.str("next", "action"))
	require.Equal(t, before, r.state(), "nothing was opened")

	// And an operation that exists beats everything behind it: expiry, grant,
	// version, freeze.
	spent := r.preview("ord_1006").str("commit_token")
	id := r.want(commit("hold_order", r.clerk, spent, ""), 200, "").str("id")
	r.clock.Add(time.Hour)
	r.inForce(func(tool *tools.Tool) bool { return tool.Name != "hold_order" })
	freeze()
	require.Equal(t, id, r.want(commit("hold_order", r.clerk, spent, ""), 200, "").str("id"))
	// A withdrawn tool is no tool for anything else.
	r.want(post("/v1/tools/hold_order/preview", r.clerk, `{"args":{"order_id":"ord_1007"}}`), 404, "tool_not_found")
}

// agentID finds the agent of a key.
func (r *rig) agentID(key string) string {
	a, err := r.identity.AuthenticateAgent(context.Background(), key)
	require.NoError(r.t, err)
	return a.ID
}
