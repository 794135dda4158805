package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

func wantApproved(t *tools.Tool, _ *tooltest.Fake) { t.Duplicates = tools.DuplicatesApprove }

func (r *rig) previewKey(tool, key string, run *ledger.Run) preview.Result {
	r.t.Helper()
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: args("ord_1"), IdempotencyKey: key, Run: run})
	require.NoError(r.t, err)
	return res
}

func codes(p preview.Result) []string {
	var out []string
	for _, w := range p.Preview.Plan.Warnings {
		out = append(out, w.Code)
	}
	return out
}

// TestHygiene_EverNewKeys: one run asks for the same again and again, each time
// under a key of its own: it is said, with where the keys come from (N7).
func TestHygiene_EverNewKeys(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.KeyFrom(tools.KeyFromCaller))
	r := newRig(t, hold)
	first := r.previewKey("hold_order", "call_9fKq2mXbV71nPz", step(1))
	require.Equal(t, []string{"key_hygiene"}, codes(first))
	require.Equal(t, "/idempotency_key", first.Preview.Plan.Warnings[0].Pointer)
	require.Contains(t, first.Preview.Plan.Warnings[0].Text, "tool call")
	r.mustCommit(agent, "hold_order", first.Token)
	second := r.previewKey("hold_order", "call_7hTz4nQwE22kLs", step(2))
	require.Equal(t, []string{"key_hygiene", "possible_duplicate"}, codes(second))
	require.False(t, second.Preview.Requirement.Asks(), "it is said, no more")
	require.Equal(t, ledger.Succeeded, r.mustCommit(agent, "hold_order", second.Token).Operation.State)
	require.Empty(t, codes(r.previewKey("hold_order", "hold/ord_9", step(3)))[1:], "a good key has no warning of its own")
}

func TestHygiene_OfRunKeys(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order", tooltest.KeyFrom(tools.KeyFromRun)))
	p := r.previewKey("hold_order", "", &ledger.Run{ID: runID, Step: "2", Call: "toolu_01A09q90qw90lq91"})
	require.Equal(t, []string{"key_hygiene"}, codes(p))
	require.Equal(t, "/run/call", p.Preview.Plan.Warnings[0].Pointer)
	require.Empty(t, codes(r.previewKey("hold_order", "", step(2))))
}

// TestDuplicates_Approve: a tool whose manifest says so has a person look at a
// call whose arguments were used under another key, also when both were
// previewed before either was committed.
func TestDuplicates_Approve(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.KeyFrom(tools.KeyFromCaller), wantApproved)
	r := newRig(t, hold)
	one, two := r.previewKey("hold_order", "one", nil), r.previewKey("hold_order", "two", nil)
	require.False(t, one.Preview.Requirement.Asks())
	require.False(t, two.Preview.Requirement.Asks())
	require.Equal(t, ledger.Succeeded, r.mustCommit(agent, "hold_order", one.Token).Operation.State)
	second := r.mustCommit(agent, "hold_order", two.Token).Operation
	require.Equal(t, ledger.AwaitingApproval, second.State)
	require.Contains(t, second.Requirement.Rule, "another key")

	three := r.previewKey("hold_order", "three", nil)
	require.True(t, three.Preview.Requirement.Asks())
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	r.approve(ann, second)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(second.ID).State)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 2)

	// The same key is no duplicate: it is the first result.
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), IdempotencyKey: "one"})
	require.NoError(t, err)
	require.NotNil(t, res.Operation)
}
