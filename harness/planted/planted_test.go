package planted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var only = flag.String("planted.only", "", "run only bugs whose name contains this")

// root is the module's folder.
const root = "../.."

// patience bounds one run; a bug that is not found by then is not found.
const patience = 4 * time.Minute

// switchFile is added to the leaf package that everything imports; it exists in
// the overlay only.
const switchFile = `package fault

import "os"

var planted = os.Getenv("COUNTERSIGN_PLANTED")

// Planted reports whether this bug is switched on.
func Planted(name string) bool { return planted == name }
`

// packageClause is where an import can be put.
var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// overlay writes the edited sources and the description that go build takes.
func overlay(t *testing.T) string {
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(file, text string) {
		path, err := filepath.Abs(filepath.Join(root, file))
		require.NoError(t, err)
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		require.NoError(t, os.WriteFile(copied, []byte(text), 0o600))
		replace[path] = copied
	}
	edited := map[string]string{}
	for _, b := range bugs {
		text, ok := edited[b.File]
		if !ok {
			source, err := os.ReadFile(filepath.Join(root, b.File))
			require.NoError(t, err)
			text = string(source)
		}
		require.Equal(t, 1, strings.Count(text, b.Guard), "%s: the guard must stand once in %s:\n%s", b.Name, b.File, b.Guard)
		require.Contains(t, b.Without, "fault.Planted("+quoted(b.Name)+")", b.Name)
		edited[b.File] = strings.Replace(text, b.Guard, b.Without, 1)
	}
	for file, text := range edited {
		if !strings.Contains(text, `"countersign/fault"`) {
			text = packageClause.ReplaceAllString(text, "$0\n\nimport \"countersign/fault\"\n")
		}
		put(file, text)
	}
	put("fault/planted_switch.go", switchFile)
	description, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, description, 0o600))
	return path
}

func quoted(s string) string { return `"` + s + `"` }

// binary builds the tests of a package with the overlay.
func binary(t *testing.T, overlay, pkg string) string {
	out := filepath.Join(t.TempDir(), strings.ReplaceAll(pkg, "/", "_")+".test")
	cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", out, "./"+pkg)
	cmd.Dir = root
	message, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", message)
	return out
}

// run runs a finder with one bug switched on (none when name is empty).
func run(ctx context.Context, bin string, f finder, name string) (found bool, output []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"-test.run", f.Test, "-test.failfast", "-test.timeout", "5m"}, f.args()...)...)
	cmd.Dir = filepath.Join(root, f.Package)
	cmd.Env = append(os.Environ(), "COUNTERSIGN_PLANTED="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil && bytes.Contains(out.Bytes(), []byte("no tests to run")):
		return false, out.Bytes(), errors.New("no such test")
	case ctx.Err() != nil:
		return false, out.Bytes(), fmt.Errorf("not found within %s", patience)
	case errors.As(err, &exit):
		return true, out.Bytes(), nil
	}
	return false, out.Bytes(), err
}

func TestPlanted_EveryBugIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs many test binaries")
	}
	path := overlay(t)
	bins := map[string]string{}
	clean := map[finder]bool{}
	var list []bug
	for _, b := range bugs {
		if !strings.Contains(b.Name, *only) {
			continue
		}
		list = append(list, b)
		if bins[b.By.Package] == "" {
			bins[b.By.Package] = binary(t, path, b.By.Package)
		}
		clean[b.By] = true
	}
	// What finds a bug must pass without one.
	for _, b := range list {
		k := b.By
		if !clean[k] {
			continue
		}
		delete(clean, k)
		found, out, err := run(t.Context(), bins[b.By.Package], b.By, "")
		require.NoError(t, err)
		require.False(t, found, "%s %s fails with no bug at all:\n%s", b.By.Package, b.By.Test, tail(out))
	}
	var missed []string
	var mu sync.Mutex
	slots := make(chan struct{}, 2)
	var wait sync.WaitGroup
	for _, b := range list {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			found, out, err := run(t.Context(), bins[b.By.Package], b.By, b.Name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !found {
				missed = append(missed, fmt.Sprintf("%s (%s %s): %v\n%s", b.Name, b.By.Package, b.By.Test, err, tail(out)))
				return
			}
			t.Logf("%-40s found by %s %s in %.1f s", b.Name, b.By.Package, b.By.Test, time.Since(began).Seconds())
		})
	}
	wait.Wait()
	for _, m := range missed {
		t.Errorf("not found: %s", m)
	}
	t.Logf("planted bugs: %d of %d found", len(list)-len(missed), len(list))
}

// tail is the end of an output.
func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return string(out)
}

var write = flag.Bool("planted.write", false, "write docs/planted-bugs.md anew")

// TestPlanted_ListIsInTheDocs keeps the page that tells which guard is tested by
// what as true as the list.
func TestPlanted_ListIsInTheDocs(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Guards, and what finds their absence\n\n"+
		"Each of these %d guards is taken out of the product's own code by a build overlay, one at a time, and the test named must then fail (`harness/planted`).\n"+
		"A guard that no planted bug tests is a guess.\n\n| planted bug | the rule that its guard keeps | guard in | found by |\n|---|---|---|---|\n", len(bugs))
	seen := map[string]bool{}
	for _, bug := range bugs {
		require.False(t, seen[bug.Name], "two bugs are called %s", bug.Name)
		seen[bug.Name] = true
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | tests of `%s` |\n", bug.Name, bug.Rule, bug.File, bug.By.Package)
	}
	path := filepath.Join(root, "docs", "planted-bugs.md")
	if *write {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(page), "write it anew with -planted.write")
}
