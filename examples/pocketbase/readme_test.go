package pocketbase_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The five commands of the README, as a newcomer types them, the last one twice:
// one record. Only the two ports are others.
func TestReadme_FiveCommands(t *testing.T) {
	start(t)
	root := t.TempDir()
	folder := filepath.Join(root, "examples", "pocketbase")
	copyExample(t, folder)
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(root, "bin", "countersign"), "./cmd/countersign")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)

	commands := readmeCommands(t)
	url := ""
	shell := func(n int, more string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", commands[n-1]+more)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "COUNTERSIGN_URL="+url)
		return cmd
	}
	run := func(n int) string {
		out, err := shell(n, "").CombinedOutput()
		require.NoError(t, err, "%s\n%s", commands[n-1], out)
		return string(out)
	}
	serve := func(n int, ready string, command func(port string) *exec.Cmd) string {
		port, stop, err := launch(ready, func(port string) *exec.Cmd {
			cmd := command(port)
			cmd.Args[2] = "exec " + cmd.Args[2] // what is stopped is the server, not a shell around it
			return cmd
		})
		require.NoError(t, err, commands[n-1])
		t.Cleanup(func() { require.NoError(t, stop()) })
		return port
	}

	port := serve(1, "Ready.", func(port string) *exec.Cmd { return shell(1, " "+port) })
	replace(t, filepath.Join(folder, "countersign.yaml"), ":8090", ":"+port)
	require.Contains(t, run(2), "/setup#")
	run(3)
	listen := ":8420"
	url = "http://localhost:" + serve(4, "gateway started", func(port string) *exec.Cmd {
		replace(t, filepath.Join(folder, "countersign.yaml"), listen, ":"+port)
		listen = ":" + port
		return shell(4, "")
	})
	first, again := run(5), run(5)
	require.Contains(t, first, "succeeded")
	require.NotContains(t, first, "nothing was sent")
	require.Contains(t, again, "nothing was sent")

	s := &server{t: t, url: "http://127.0.0.1:" + port, tokenFile: filepath.Join(folder, "data", "token")}
	records := s.customers()
	require.Len(t, records, 1)
	require.Equal(t, "Ada", records[0]["name"])
	require.Contains(t, again, records[0]["id"])
}

// copyExample copies the folder as it is in the repository, and the program that
// start.sh has built already.
func copyExample(t *testing.T, to string) {
	t.Helper()
	data := filepath.Join(to, "data")
	require.NoError(t, os.MkdirAll(data, 0o700))
	copyFile := func(from, to string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		info, err := os.Stat(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, info.Mode()))
	}
	for _, name := range []string{"tools", "server"} {
		require.NoError(t, os.CopyFS(filepath.Join(to, name), os.DirFS(name)))
	}
	for _, name := range []string{"start.sh", "collections.json", "countersign.yaml"} {
		copyFile(name, filepath.Join(to, name))
	}
	copyFile(filepath.Join(prepared.dir, "pocketbase"), filepath.Join(data, "pocketbase"))
}

// readmeCommands are what stands under the lines "# 1: …" to "# 5: …".
func readmeCommands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "```sh\n")
	require.True(t, found)
	block, _, found = strings.Cut(block, "```")
	require.True(t, found)
	var commands []string
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, "# ") {
			commands = append(commands, "")
			continue
		}
		require.NotEmpty(t, commands, line)
		commands[len(commands)-1] += line
	}
	for i := range commands {
		commands[i] = strings.TrimSpace(commands[i])
	}
	require.Len(t, commands, 5)
	return commands
}

// replace changes a text in a file, wherever it stands.
func replace(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), from)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o600))
}
