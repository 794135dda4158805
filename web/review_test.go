package web_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// A freeze of everything over a doubt in another tenant: the page offers the
// override once it was refused, though it has no doubt of its own to show, and says
// nothing of what stands elsewhere.
func TestFreezes_EverythingOverADoubtElsewhere(t *testing.T) {
	ctx := context.Background()
	r := newRig(t)
	mara := r.as("mara", "support")
	plan := tools.Plan{Encoding: 1, Tool: "pay_out", Key: tools.Key{Value: "k", Generation: 1, Upstream: "u"}, Args: map[string]any{}, Wire: []byte(`{}`)}
	guard, _, err := r.ledger.ChangeGuard(ctx, "elsewhere", ledger.Change{What: "tools"}, func(g *ledger.Guard) { g.Tools = map[string]string{"pay_out": "v1"} })
	require.NoError(t, err)
	p := ledger.Preview{
		ID: "prv_elsewhere", Tenant: "elsewhere", Agent: "agt_9", Tool: "pay_out", ToolVersion: "v1", Key: "k", Generation: 1, ArgsDigest: "sha256:a",
		PlanDigest: plan.Digest(), Plan: plan, CreatedAt: r.ledger.Now(), ExpiresAt: r.ledger.Now().Add(time.Hour),
	}
	require.NoError(t, r.db.PutPreview(ctx, p))
	op, _, err := r.ledger.OpenOperation(ctx, ledger.OpenRequest{
		Preview: p, Agent: tools.Agent{ID: "agt_9", Tenant: "elsewhere"}, TokenID: "jti", Requirement: ledger.Requirement{Outcome: tools.OutcomeAuto},
		Manifest: ledger.Manifest{Version: "v1"}, Epoch: guard.Epoch, Timeout: time.Second,
	})
	require.NoError(t, err)
	op, err = r.ledger.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, op.State)

	const offer = `name="override"`
	got := mara.follow(mara.post("/freezes", "scope", "**", "level", "all", "reason", "All of it."))
	require.NotContains(t, got.Body, offer)
	refused := mara.post("/freezes/lift", "scope", "**", "reason", "Over.")
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.Body, offer)
	for _, foreign := range []string{op.ID, "pay_out", "elsewhere", "agt_9"} {
		require.NotContains(t, refused.Body, foreign)
	}
	got = mara.follow(mara.post("/freezes/lift", "scope", "**", "override", "yes", "reason", "The bank said to go on."))
	require.Contains(t, got.Body, "The freeze is lifted")
}
