package commit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestRunUndo_PlansABoundedNumber: an outside system that refuses every undo is
// not asked about without end for one plan (I22); behind the bound the plan stops,
// and says so.
func TestRunUndo_PlansABoundedNumber(t *testing.T) {
	hold, release := undoable()
	fakes := []*tooltest.Fake{tooltest.FakeOf(hold), tooltest.FakeOf(release)}
	asked := 0
	release.Connector = hooked{Connector: release.Connector, preview: func(*tools.Plan) error {
		asked++
		return fault.New(fault.ToolRefused, "It is shipped.")
	}}
	r := newRigOf(t, fakes, hold, release)
	const more = 3
	for i := range ledger.MaxRunUndo + more {
		r.inRun(i+1, "hold_order", args(fmt.Sprint("ord_", i)))
	}
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	require.Equal(t, ledger.MaxRunUndo, asked)
	require.Len(t, plan.Items, ledger.MaxRunUndo+more)
	require.NotEmpty(t, plan.Stopped)
	require.Empty(t, plan.Token)
	for i, item := range plan.Items {
		require.False(t, item.Possible)
		if i >= ledger.MaxRunUndo {
			require.Contains(t, item.Because, "stops before it")
		}
	}
}
