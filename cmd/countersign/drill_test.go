package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrill: the story of a lost reply and the five rows all pass, by the real
// program against the shop's own log (R158; matrix rows 1 to 5).
func TestDrill(t *testing.T) {
	t.Parallel()
	out := command(t, t.TempDir(), "drill")
	require.Contains(t, out, "synthetic data (evidence_boundary: drill)")
	for _, mark := range []string{"T0", "T1", "T2", "T3", "T4", "row 1", "row 2", "row 3", "row 4", "row 5"} {
		require.Contains(t, out, mark)
	}
	require.Equal(t, 5, strings.Count(out, "Passed"), out)
	require.NotContains(t, out, "✗")
	require.Equal(t, 6, strings.Count(out, "/operations/op_"), "the story and each row have a link")
	require.Contains(t, out, "what the alert watches has risen")
	require.Contains(t, out, "countersign drill --stay")
	require.Regexp(t, `all \d+ checks passed`, out)
}
