package sim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRegressions replays every schedule that failed once: in the product, or
// with one of its guards taken out.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "regressions", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var o options
			require.NoError(t, json.Unmarshal(text, &o))
			require.NotEmpty(t, o.Note, "say what it was")
			r := run(t, o, nil)
			require.Empty(t, r.violations, o.Note)
			require.NotZero(t, r.struck, "the schedule has drifted: none of its faults strikes")
		})
	}
}
