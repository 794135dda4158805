package commit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
			_, err := r.ledger.Freeze(ctx, tenant, "", ledger.FreezeNew, ledger.Gateway("test"), "stop")
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
