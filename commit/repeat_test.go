package commit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestRepeat_ArgsAsFirstSent: a repeat that sends its args along, as the agent
// first wrote them, is the same call also when the tool's defaults have changed
// since.
func TestRepeat_ArgsAsFirstSent(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	p := r.preview(agent, "hold_order", args("ord_1"))
	first := r.mustCommit(agent, "hold_order", p.Token)
	changed := tooltest.FakeTool("hold_order", tooltest.Versioned(2))
	check := changed.CheckArgs
	changed.CheckArgs = func(in map[string]any) (map[string]any, []tools.Warning, error) {
		out, w, err := check(in)
		out["note"] = "another default"
		return out, w, err
	}
	for name, list := range map[string][]*tools.Tool{"changed": {changed}, "withdrawn": nil} {
		require.NoError(t, r.registry.Set(list))
		r.inForce()
		req := commitNow(p.Token)
		req.Args = args("ord_1")
		res, err := r.commits.Commit(t.Context(), req)
		require.NoError(t, err, name)
		require.True(t, res.Replayed)
		require.Equal(t, first.Operation.ID, res.Operation.ID)
	}
}

// TestRepeat_RejectedMeanwhile: what a person rejected under another key after
// the preview is refused at commit; the key's own state is named before that,
// a freeze behind it.
func TestRepeat_RejectedMeanwhile(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		before func(r *rig, preview func(key string, in map[string]any) string)
		want   fault.Code
	}{
		"alone": {want: fault.RejectedBefore},
		"and the key was used": {before: func(r *rig, preview func(string, map[string]any) string) {
			r.mustCommit(agent, "refund_payment", preview("k1", args("pay_1", "amount", 7)))
		}, want: fault.IdempotencyKeyReused},
		"and the tool is frozen": {before: func(r *rig, _ func(string, map[string]any) string) {
			_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: ""}, ledger.FreezeNew, ledger.Gateway("test"), "stop")
			require.NoError(r.t, err)
		}, want: fault.RejectedBefore},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, refund(tooltest.KeyFrom(tools.KeyFromCaller)))
			preview := func(key string, in map[string]any) string {
				res, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: "refund_payment", Args: in, IdempotencyKey: key})
				require.NoError(t, err)
				return res.Token
			}
			in := args("pay_1", "amount", 100)
			token := preview("k1", in)
			rejected := r.mustCommit(agent, "refund_payment", preview("k2", in)).Operation
			_, err := r.decide(carl, rejected, "reject", "no")
			require.NoError(t, err)
			if c.before != nil {
				c.before(r, preview)
			}
			n := r.count()
			_, err = r.commit(agent, "refund_payment", token)
			requireCode(t, err, c.want)
			require.Equal(t, n, r.count())
		})
	}
}

// TestRepeat_OfOneThatHappenedMeanwhile: a commit that was still looking when
// another of its key was opened and took effect is answered with that operation,
// whatever the effect made of its own last look.
func TestRepeat_OfOneThatHappenedMeanwhile(t *testing.T) {
	ctx := t.Context()
	for name, look := range map[string]func(r *rig, fake *tooltest.Fake, p tools.Plan) (tools.Guard, error){
		"drift": func(r *rig, fake *tooltest.Fake, p tools.Plan) (tools.Guard, error) {
			fake.SetWorld("status", "held")
			return fake.Guard(ctx, p)
		},
		"already done": func(r *rig, fake *tooltest.Fake, p tools.Plan) (tools.Guard, error) {
			fake.SetDone(&tools.Done{EffectID: fake.Effects()[0].ID})
			return fake.Guard(ctx, p)
		},
		"no answer": func(*rig, *tooltest.Fake, tools.Plan) (tools.Guard, error) {
			return tools.Guard{}, fault.New(fault.UpstreamTimeout, "no answer")
		},
		"frozen and looked again": func(r *rig, fake *tooltest.Fake, p tools.Plan) (tools.Guard, error) {
			_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: ""}, ledger.FreezeNew, ledger.Gateway("test"), "stop")
			require.NoError(r.t, err)
			return fake.Guard(ctx, p)
		},
	} {
		for _, oneToken := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, one token %v", name, oneToken), func(t *testing.T) {
				hold := tooltest.FakeTool("hold_order")
				fake := tooltest.FakeOf(hold)
				fake.SetWorld("status", "open")
				r := newRig(t, hold)
				mine := r.preview(agent, "hold_order", args("ord_1")).Token
				theirs := mine
				if !oneToken {
					theirs = r.preview(agent, "hold_order", args("ord_1")).Token
				}
				var first commit.Result
				hold.Connector = hooked{Connector: fake, guard: func(ctx context.Context, p tools.Plan) (tools.Guard, error) {
					hold.Connector = fake
					first = r.mustCommit(agent, "hold_order", theirs)
					return look(r, fake, p)
				}}
				res, err := r.commit(agent, "hold_order", mine)
				require.NoError(t, err)
				require.False(t, first.Replayed)
				require.True(t, res.Replayed)
				require.Equal(t, first.Operation.ID, res.Operation.ID)
				require.Len(t, fake.Requests(), 1)
			})
		}
	}
}

// TestRepeat_PreviewOfOneThatHappenedMeanwhile: a preview that the tool refuses,
// since another commit of its key has just done it, is answered with that
// operation.
func TestRepeat_PreviewOfOneThatHappenedMeanwhile(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	fake := tooltest.FakeOf(hold)
	r := newRig(t, hold)
	token := r.preview(agent, "hold_order", args("ord_1")).Token
	var first commit.Result
	hold.Connector = hooked{Connector: fake, preview: func(*tools.Plan) error {
		hold.Connector = fake
		first = r.mustCommit(agent, "hold_order", token)
		return fault.New(fault.ToolRefused, "It is held already.")
	}}
	res, err := r.previews.Preview(t.Context(), previewRequest("hold_order", "ord_1"))
	require.NoError(t, err)
	require.Empty(t, res.Token)
	require.Equal(t, first.Operation.ID, res.Operation.ID)

	hold.Connector = hooked{Connector: fake, preview: func(*tools.Plan) error { return fault.New(fault.ToolRefused, "No.") }}
	_, err = r.previews.Preview(t.Context(), previewRequest("hold_order", "ord_2"))
	requireCode(t, err, fault.ToolRefused)
}
