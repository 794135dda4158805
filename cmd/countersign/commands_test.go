package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// run runs a command in this process.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{getenv: noEnv, stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: time.Now}
	status = p.run(context.Background(), args)
	return status, out.String(), errs.String()
}

func everyCommand(t *testing.T, visit func(*cobra.Command)) {
	t.Helper()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		visit(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&program{getenv: noEnv}).command())
}

// Every command says what it does, in short and at length, shows how it is
// called, and describes its flags.
func TestCommands_Help(t *testing.T) {
	everyCommand(t, func(c *cobra.Command) {
		name := c.CommandPath()
		require.NotEmpty(t, c.Short, name)
		require.False(t, strings.HasSuffix(c.Short, "."), "%s: a heading", name)
		if c.Hidden {
			return
		}
		require.NotEmpty(t, c.Long, "%s has no explanation", name)
		for line := range strings.Lines(c.Long) {
			require.LessOrEqual(t, len(line), 90, "%s: %s", name, line)
		}
		if !c.HasSubCommands() && c.Name() != "demo" { // that word is the whole example
			require.NotEmpty(t, c.Example, "%s has no example", name)
			require.Contains(t, c.Example, name, "the example of %s calls another command", name)
		}
		for line := range strings.Lines(c.Flags().FlagUsages()) {
			require.Greater(t, len(strings.Fields(line)), 2, "%s: a flag without a word: %s", name, line)
		}
	})
}

// The exit statuses that a script relies on are in the help of both commands.
func TestCommands_ExitStatusesAreTold(t *testing.T) {
	for _, name := range []string{"preview", "commit"} {
		status, out, _ := run(t, name, "--help")
		require.Zero(t, status)
		for _, line := range []string{"  0  done", "  2  waiting", "  3  rejected", "  4  expired", "  5  unknown", "  6  failed", "  1  anything else"} {
			require.Contains(t, out, line, name)
		}
	}
}

func TestCommands_Version(t *testing.T) {
	status, out, _ := run(t, "version")
	require.Zero(t, status)
	for _, word := range []string{"countersign", "go1.", "ledger schema", "countersign-json-1"} {
		require.Contains(t, out, word)
	}
	_, out, _ = run(t, "version", "--output", "json")
	require.Contains(t, out, `"schema_version": `)
	require.Contains(t, out, `"canonical_json": "countersign-json-1"`)
}

func TestCommands_Completion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		status, out, errs := run(t, "completion", shell)
		require.Zero(t, status, errs)
		require.Contains(t, out, "countersign", shell)
	}
}

func TestCommands_Schema(t *testing.T) {
	_, out, _ := run(t, "schema", "config")
	require.JSONEq(t, string(configSchema), out)
	_, out, _ = run(t, "schema", "manifest")
	require.Contains(t, out, "urn:countersign:manifest")
	status, _, errs := run(t, "schema", "other")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "there is a schema of config and one of manifest")
}

func TestCommands_Man(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	status, _, errs := run(t, "man", dir)
	require.Zero(t, status, errs)
	page, err := os.ReadFile(filepath.Join(dir, "countersign-commit.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Exit status:")
	require.FileExists(t, filepath.Join(dir, "countersign.1"))
	require.FileExists(t, filepath.Join(dir, "countersign-agent-create.1"))
}

// Mistakes on the command line are one sentence and status 1.
func TestCommands_Mistakes(t *testing.T) {
	for says, args := range map[string][]string{
		`--output is table or json, not "xml"`:              {"version", "--output", "xml"},
		`unknown command "agnet" for "countersign"`:         {"agnet"},
		`unknown command "remove" for "countersign agent"`:  {"agent", "remove", "x"},
		`unknown flag: --force`:                             {"init", "--force"},
		`accepts 1 arg(s), received 0`:                      {"commit"},
		`accepts 2 arg(s), received 1`:                      {"preview", "hold_order"},
		`required flag(s) "owner", "tools" not set`:         {"agent", "create", "bot"},
		`"gate.example" is not the URL of a gateway`:        {"preview", "x", "testdata/args.json", "--url", "gate.example"},
		`the configuration can't be read: open nowhere.yml`: {"serve", "-c", "nowhere.yml"},
	} {
		status, out, errs := run(t, args...)
		require.Equal(t, 1, status, args)
		require.Empty(t, out, args)
		require.Contains(t, errs, "countersign: ", args)
		require.Contains(t, errs, says, args)
	}
}

// The smallest write tool that is shown to newcomers stays small.
func TestStarter_SmallestTool(t *testing.T) {
	text, err := starter.ReadFile("starter/tools/close_ticket.yaml")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(text, []byte("\n")), 20)
	checked := validate([]string{"starter/tools/close_ticket.yaml"}, []string{"helpdesk"}, "starter/countersign.yaml")
	require.Empty(t, checked[0].Problems)
	require.Empty(t, checked[0].Warnings)
}
