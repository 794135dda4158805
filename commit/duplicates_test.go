package commit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestDuplicates_VoidOnesHideNone: however many operations with the same
// arguments ended without effect, the live one is named, to the agent and on
// the card.
func TestDuplicates_VoidOnesHideNone(t *testing.T) {
	r := newRig(t, refund(tooltest.KeyFrom(tools.KeyFromCaller)))
	by := ledger.Actor{Kind: "agent", ID: agent.ID}
	ask := func(key string) (preview.Result, ledger.Operation) {
		res, err := r.previews.Preview(t.Context(), preview.Request{Agent: agent, Tool: "refund_payment", Args: args("pay_1", "amount", 100), IdempotencyKey: key})
		require.NoError(t, err)
		return res, r.mustCommit(agent, "refund_payment", res.Token).Operation
	}
	_, live := ask("first")
	for i := range 25 {
		_, op := ask(fmt.Sprintf("k%d", i))
		_, err := r.commits.Cancel(t.Context(), tenant, op.ID, by, "")
		require.NoError(t, err)
	}
	p, op := ask("last")
	require.Len(t, p.Preview.Plan.Warnings, 1)
	require.Equal(t, "possible_duplicate", p.Preview.Plan.Warnings[0].Code)
	card, err := r.approvals.Card(t.Context(), approvals.PersonOf(carl), tenant, op.ID)
	require.NoError(t, err)
	require.Len(t, card.Duplicates, 1)
	require.Equal(t, live.ID, card.Duplicates[0].ID)
}
