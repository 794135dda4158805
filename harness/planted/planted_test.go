package planted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	only = flag.String("planted.only", "", "run only bugs whose name contains one of these, separated by commas")
	anew = flag.Bool("planted.anew", false, "let the simulator begin with the first schedule")
	try  = flag.String("planted.try", "", "look for them with another finder: simulator, model, or a package, a pattern of tests and arguments")
)

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
		for _, e := range b.edits() {
			text, ok := edited[e.File]
			if !ok {
				source, err := os.ReadFile(filepath.Join(root, e.File))
				require.NoError(t, err)
				text = string(source)
			}
			without, err := e.without(b.Name)
			require.NoError(t, err)
			if n := strings.Count(text, e.Guard); n != 1 {
				t.Errorf("%s: the guard must stand once in %s, and stands %d times:\n%s", b.Name, e.File, n, e.Guard)
			}
			require.Contains(t, without, "fault.Planted("+quoted(b.Name)+")", b.Name)
			edited[e.File] = strings.Replace(text, e.Guard, without, 1)
		}
	}
	if t.Failed() {
		t.FailNow()
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

// binaries builds the tests of packages with the overlay, all at once, and gives
// them by package.
func binaries(t *testing.T, overlay string, packages []string) map[string]string {
	dir := t.TempDir() + string(filepath.Separator)
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", dir}
	bins := map[string]string{}
	for _, pkg := range packages {
		args = append(args, "./"+pkg)
		bins[pkg] = dir + filepath.Base(pkg) + ".test"
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	message, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", message)
	return bins
}

// outcome is what became of one run of a finder.
type outcome struct {
	found  bool
	seed   string // of the schedule in which the simulator found it
	output []byte
	took   time.Duration
	err    error
}

// run runs a finder with one bug switched on (none when name is empty).
func run(ctx context.Context, bin string, f finder, name string, first uint64) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, bin, append([]string{"-test.run", f.Test, "-test.failfast", "-test.timeout", "5m"}, f.args(name != "", first)...)...)
	cmd.Dir = filepath.Join(root, f.Package)
	cmd.Env = append(os.Environ(), "COUNTERSIGN_PLANTED="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	o.err = cmd.Run()
	o.took, o.output = time.Since(began), out.Bytes()
	var exit *exec.ExitError
	switch {
	case o.err == nil && bytes.Contains(o.output, []byte("no tests to run")):
		o.err = errors.New("no such test")
	case ctx.Err() != nil:
		o.err = fmt.Errorf("not found within %s", patience)
	case errors.As(o.err, &exit):
		o.found, o.err = true, nil
		if f.Says == "" {
			break
		}
		if m := regexp.MustCompile(f.Says).FindSubmatch(o.output); m != nil {
			o.seed = string(m[1])
		} else if name != "" {
			o.found, o.err = false, errors.New("it failed, and not because it found something")
		}
	}
	return o
}

func TestPlanted_EveryBugIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs many test binaries")
	}
	path := overlay(t)
	clean := map[string]finder{}
	var list []bug
	for _, b := range bugs {
		if !slices.ContainsFunc(strings.Split(*only, ","), func(s string) bool { return strings.Contains(b.Name, s) }) {
			continue
		}
		if *try != "" {
			b.By = tried(*try)
		}
		if *anew && b.By.Package == simulator.Package {
			b.First = 1
		}
		list = append(list, b)
		all, there := clean[b.By.Package]
		switch {
		case !there:
			all = b.By
		case !slices.Contains(strings.Split(all.Test, "|"), b.By.Test):
			all.Test += "|" + b.By.Test
		}
		clean[b.By.Package] = all
	}
	require.NotEmpty(t, list, "no bug has that name")
	began := time.Now()
	bins := binaries(t, path, slices.Sorted(maps.Keys(clean)))
	t.Logf("built in %.0f s", time.Since(began).Seconds())
	// What finds a bug must pass without one.
	each(slices.Collect(maps.Values(clean)), func(f finder) {
		if o := run(t.Context(), bins[f.Package], f, "", 1); o.err != nil || o.found {
			t.Errorf("%s %s fails with no bug at all: %v\n%s", f.Package, f.Test, o.err, tail(o.output))
		}
	})
	var mu sync.Mutex
	missed := 0
	t.Logf("without a bug: %.0f s", time.Since(began).Seconds())
	began = time.Now()
	each(list, func(b bug) {
		o := run(t.Context(), bins[b.By.Package], b.By, b.Name, b.First)
		mu.Lock()
		defer mu.Unlock()
		if o.err != nil || !o.found {
			missed++
			t.Errorf("not found: %s (%s %s, %.1f s): %v\n%s", b.Name, b.By.Package, b.By.Test, o.took.Seconds(), o.err, tail(o.output))
			return
		}
		at := ""
		if o.seed != "" {
			at = " in schedule " + o.seed
		}
		t.Logf("%-42s found by %s %s%s in %.1f s", b.Name, b.By.Package, b.By.Test, at, o.took.Seconds())
	})
	t.Logf("planted bugs: %d of %d found, in %.0f s", len(list)-missed, len(list), time.Since(began).Seconds())
}

// tried is a finder of the command line, for who looks for one: package, pattern
// and arguments.
func tried(words string) finder {
	switch words {
	case "simulator":
		return simulator
	case "model":
		return model
	}
	pkg, rest, _ := strings.Cut(words, " ")
	test, args, _ := strings.Cut(rest, " ")
	f := room(pkg, test)
	f.Args += " " + args
	return f
}

// each calls do for every one of a list, two at a time.
func each[T any](list []T, do func(T)) {
	slots := make(chan struct{}, 2)
	var wait sync.WaitGroup
	for _, v := range list {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			do(v)
		})
	}
	wait.Wait()
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

// TestPlanted_EveryGuardStands: an edit whose guard is no longer there plants
// nothing.
func TestPlanted_EveryGuardStands(t *testing.T) { overlay(t) }

// TestPlanted_ListIsInTheDocs keeps the page that tells which guard is tested by
// what as true as the list.
func TestPlanted_ListIsInTheDocs(t *testing.T) {
	var table strings.Builder
	seen, by := map[string]bool{}, map[string]int{}
	for _, bug := range bugs {
		require.False(t, seen[bug.Name], "two bugs are called %s", bug.Name)
		seen[bug.Name] = true
		by[bug.By.Is]++
		files := []string{}
		for _, e := range bug.edits() {
			if file := "`" + e.File + "`"; !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", bug.Name, bug.Rule, strings.Join(files, ", "), bug.By.Is)
	}
	searched := by[simulator.Is] + by[model.Is]
	require.GreaterOrEqual(t, searched, 40, "found by a search, not by a test of that very guard")
	page := fmt.Sprintf("# Guards, and what finds their absence\n\n"+
		"Each of these %d guards is taken out of the product's own code by a build overlay, one at a time, and the test named must then fail (`harness/planted`).\n"+
		"A guard that no planted bug tests is a guess.\n\n"+
		"%d are found by the simulator (`harness/sim`), each within %s schedules, and %d by the model check (the search over everything that the state table allows, in `ledger`). "+
		"Neither knows the guard. The other %d are found by the tests of the room that the guard is for.\n"+
		"Where two guards keep one rule, and each alone is enough, one bug takes out both.\n\n"+
		"A bug that the simulator finds late is looked for from a schedule on in which it was found once; `go test ./harness/planted -planted.anew -v` begins with the first, and says in which schedule each was found.\n\n"+
		"| planted bug | the rule that its guard keeps | guard in | found by |\n|---|---|---|---|\n%s",
		len(bugs), by[simulator.Is], "3,000", by[model.Is], len(bugs)-searched, table.String())
	path := filepath.Join(root, "docs", "planted-bugs.md")
	if *write {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	}
	there, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page, string(there), "write it anew with -planted.write")
}
