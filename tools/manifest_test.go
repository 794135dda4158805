package tools_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/tools"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every broken manifest is refused with a position, an excerpt and what to write
// instead; the golden file is what `tool validate` prints.
func TestParseManifest_broken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 40)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			m, err := tools.ParseManifest(text)
			require.Nil(t, m)
			var bad *tools.ManifestError
			require.True(t, errors.As(err, &bad), "%v", err)
			lines := strings.Split(string(text), "\n")
			for _, p := range bad.Problems {
				require.Positive(t, p.Line)
				require.LessOrEqual(t, p.Line, len(lines))
				require.Positive(t, p.Column)
				require.NotEmpty(t, p.Message)
				require.NotEmpty(t, p.Instead, p.Message)
				require.Contains(t, p.Excerpt, "^")
			}
			bad.File = filepath.Base(file)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			got := bad.Error() + "\n"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s: -want +got\n%s", file, diff)
			}
		})
	}
}
