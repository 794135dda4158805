package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fenced gives the README's code blocks of one language, in order.
func fenced(t *testing.T, language string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	var blocks []string
	rest := string(b)
	for {
		_, after, found := strings.Cut(rest, "```"+language+"\n")
		if !found {
			return blocks
		}
		block, tail, closed := strings.Cut(after, "```")
		require.True(t, closed)
		blocks = append(blocks, block)
		rest = tail
	}
}

// TestReadme_FirstTool: the tool that the README shows loads, in at most twenty
// lines.
func TestReadme_FirstTool(t *testing.T) {
	blocks := fenced(t, "yaml")
	require.Len(t, blocks, 1)
	require.LessOrEqual(t, strings.Count(blocks[0], "\n"), 20)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hold_order.yaml"), []byte(blocks[0]), 0o600))
	require.Contains(t, command(t, dir, "tool", "validate", "hold_order.yaml"), "ok, write hold_order")
}

// TestReadme_Commands runs the README's commands as they stand, in a shell, with
// the program where `make build` puts it. `make run` and `make test` are left to
// the demo's tests and to CI itself.
func TestReadme_Commands(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the real program")
	}
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(bin, filepath.Join(dir, "bin", "countersign")))
	var script string
	for _, block := range fenced(t, "sh") {
		if strings.HasPrefix(block, "make ") {
			continue
		}
		script += block
	}
	setUp, served := strings.CutSuffix(script, "../bin/countersign serve\n")
	require.True(t, served, script)
	cmd := exec.Command("sh", "-eu", "-c", setUp)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "/setup#")
	require.Contains(t, string(out), "cs_agent_")

	// The starter's port may be taken on this machine.
	config := filepath.Join(dir, "gate", "countersign.yaml")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Contains(t, string(text), "listen: 127.0.0.1:8420")
	require.NoError(t, os.WriteFile(config, []byte(strings.Replace(string(text), "127.0.0.1:8420", "127.0.0.1:0", 1)), 0o600))
	p := start(t, filepath.Join(dir, "gate"), nil, "serve")
	p.await("gateway started")
	p.stop()
}

// TestReadme_Links: every file that the README points at is there.
func TestReadme_Links(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	links := 0
	for _, part := range strings.Split(string(b), "](")[1:] {
		target, _, _ := strings.Cut(part, ")")
		if strings.Contains(target, "://") {
			continue
		}
		links++
		_, err := os.Stat(filepath.Join("..", "..", target))
		require.NoError(t, err, target)
	}
	require.Greater(t, links, 5)
	require.LessOrEqual(t, strings.Count(string(b), "\n"), 110, "two screens at most")
}
