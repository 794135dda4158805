package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sort"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` describes it, with
// the two kinds of event of `go help buildjson`.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string
	FailedBuild string
}

// report collects the events of a run and prints what is worth reading.
type report struct {
	out     io.Writer
	allowed map[string]string // "package test" to reason

	output  map[string]*strings.Builder // what a test or package said, by key, until it ends
	running map[string][]string         // by package, the tests that began and have not ended
	builds  map[string]*strings.Builder // compiler output, by import path
	skips   []string
	refused int // skips that are not allowed
	noTests []string
	failed  []string
	broken  bool // a package or go test itself failed
	totals  totals
}

// totals counts top-level and sub-tests alike, as go test -v would show them.
type totals struct {
	Passed, Failed, Skipped int
}

func newReport(out io.Writer, allowed map[string]string) *report {
	return &report{
		out:     out,
		allowed: allowed,
		output:  map[string]*strings.Builder{},
		running: map[string][]string{},
		builds:  map[string]*strings.Builder{},
	}
}

// read takes events until the end of r. A line that is no event is passed on as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprint(r.out, string(line))
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		builder(r.builds, e.ImportPath).WriteString(e.Output)
	case "run":
		r.running[e.Package] = append(r.running[e.Package], e.Test)
	case "output":
		if e.Test == "" && isPackageLine(e.Output) {
			fmt.Fprint(r.out, e.Output)
			return
		}
		builder(r.output, key).WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(e)
		} else {
			r.testEnded(e)
		}
	}
}

// isPackageLine tells go test's closing line of a package from what tests print.
func isPackageLine(s string) bool {
	return strings.HasPrefix(s, "ok  \t") || strings.HasPrefix(s, "FAIL\t") || strings.HasPrefix(s, "---\t")
}

func (r *report) testEnded(e event) {
	key := e.Package + " " + e.Test
	said := builder(r.output, key).String()
	delete(r.output, key)
	r.running[e.Package] = without(r.running[e.Package], e.Test)
	switch e.Action {
	case "pass":
		r.totals.Passed++
	case "fail":
		r.totals.Failed++
		r.failed = append(r.failed, key)
		fmt.Fprintf(r.out, "FAILED %s\n%s", key, indent(said))
	case "skip":
		r.totals.Skipped++
		mark := "skipped (allowed: " + r.allowed[key] + ")"
		if r.allowed[key] == "" {
			r.refused++
			mark = "SKIPPED"
		}
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", mark, key, skipReason(said)))
	}
}

// packageEnded closes a package. Of a failed one it prints what no ended test
// has printed: the compiler, the package's own output, and the tests that were
// still running when a panic or the time limit ended it.
func (r *report) packageEnded(e event) {
	key := e.Package + " "
	said := builder(r.output, key).String()
	delete(r.output, key)
	switch e.Action {
	case "skip":
		r.noTests = append(r.noTests, e.Package)
	case "fail":
		r.broken = true
		if e.FailedBuild != "" {
			fmt.Fprint(r.out, indent(builder(r.builds, e.FailedBuild).String()))
		}
		for _, test := range r.running[e.Package] {
			r.totals.Failed++
			r.failed = append(r.failed, e.Package+" "+test)
			fmt.Fprintf(r.out, "UNFINISHED %s %s\n%s", e.Package, test, indent(builder(r.output, e.Package+" "+test).String()))
		}
		if said := strings.TrimPrefix(said, "FAIL\n"); said != "" {
			fmt.Fprint(r.out, indent(said))
		}
	}
	delete(r.running, e.Package)
}

// exitedWith notes that go test ended badly; the words are needed only where no
// event said so.
func (r *report) exitedWith(dir string, err *exec.ExitError) {
	if !r.broken {
		fmt.Fprintf(r.out, "FAIL\tgo test in %s: %v\n", dir, err)
	}
	r.broken = true
}

// finish prints the end of the report and tells whether all is well.
func (r *report) finish() bool {
	if len(r.noTests) > 0 {
		fmt.Fprintf(r.out, "no test files: %s\n", strings.Join(r.noTests, " "))
	}
	sort.Strings(r.skips)
	for _, s := range r.skips {
		fmt.Fprintln(r.out, s)
	}
	if r.refused > 0 {
		fmt.Fprintf(r.out, "%d skipped tests are not in the list of allowed skips\n", r.refused)
	}
	for _, key := range r.failed {
		fmt.Fprintln(r.out, "--- FAIL:", key)
	}
	if r.totals.Passed+r.totals.Failed == 0 && !r.broken {
		fmt.Fprintln(r.out, "no test ran")
		r.broken = true
	}
	fmt.Fprintf(r.out, totalsForm, r.totals.Passed, r.totals.Failed, r.totals.Skipped)
	return !r.broken && len(r.failed) == 0 && r.refused == 0
}

// totalsForm is read back by addTo, and by whoever reads the end of a run.
const totalsForm = "%d passed, %d failed, %d skipped\n"

// addTo adds t to the totals in a file. A missing file counts none.
func (t totals) addTo(file string) error {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		var before totals
		if _, err := fmt.Sscanf(string(b), totalsForm, &before.Passed, &before.Failed, &before.Skipped); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		t.Passed += before.Passed
		t.Failed += before.Failed
		t.Skipped += before.Skipped
	}
	return os.WriteFile(file, fmt.Appendf(nil, totalsForm, t.Passed, t.Failed, t.Skipped), 0o644)
}

// skipReason takes the words of t.Skip out of a skipped test's output.
func skipReason(said string) string {
	var words []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		words = append(words, line)
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}

func builder(m map[string]*strings.Builder, key string) *strings.Builder {
	if m[key] == nil {
		m[key] = &strings.Builder{}
	}
	return m[key]
}

func without(tests []string, test string) []string {
	for i, t := range tests {
		if t == test {
			return append(tests[:i], tests[i+1:]...)
		}
	}
	return tests
}

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("    ")
		b.WriteString(line)
	}
	if s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}
