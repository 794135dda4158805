package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every page in every situation, whole and within the rules that hold for all.
// WEB_STORYBOOK names a folder in which the pages are left to be looked at.
func TestStorybook(t *testing.T) {
	s := newStage(t)
	folder := os.Getenv("WEB_STORYBOOK")
	for _, story := range s.stories {
		t.Run(story.name, func(t *testing.T) {
			p := story.open(t, s.as)
			if folder != "" {
				require.NoError(t, os.WriteFile(filepath.Join(folder, story.name+".html"), []byte(p.Body), 0o600))
			}
			require.Equal(t, story.status, p.Status, p.Body)
			require.True(t, strings.HasSuffix(strings.TrimSpace(p.Body), "</html>"), "the page is whole")
		})
	}
	require.NotContains(t, s.log.String(), "could not be")
}
