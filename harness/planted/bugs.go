package planted

import (
	"fmt"
	"regexp"
	"strings"
)

// bug is one guard taken out of the product.
type bug struct {
	Name string
	// What the guard is for, in the words of the rule that it keeps.
	Rule string
	By   finder
	// First is the schedule that the simulator begins with, for a bug that takes it
	// long from the first one on: one in which it found it once. 0 is the first.
	First uint64
	edit
	// More takes out what stands behind the guard and refuses the same: where two
	// guards keep one rule, one bug takes out both.
	More []edit
}

// edit is a text of one file and what stands there instead; that calls
// fault.Planted with the bug's name, and with the switch off is the same.
type edit struct {
	File  string
	Guard string
	// Without is empty where the guard is a condition (its first line is an if or a
	// case): then that never holds.
	Without string
}

// condition takes a guard's first line apart: what comes before the condition, the
// condition, and what follows.
var condition = regexp.MustCompile(`^(\s*(?:if|case) (?:.+; )?)(.+?)( \{|:)$`)

// without is what stands in the guard's place.
func (e edit) without(name string) (string, error) {
	if e.Without != "" {
		return e.Without, nil
	}
	first, rest, more := strings.Cut(e.Guard, "\n")
	m := condition.FindStringSubmatch(first)
	if m == nil {
		return "", fmt.Errorf("%s: this is no condition: %s", name, first)
	}
	text := m[1] + "(" + m[2] + ") && !fault.Planted(" + quoted(name) + ")" + m[3]
	if more {
		text += "\n" + rest
	}
	return text, nil
}

func quoted(s string) string { return `"` + s + `"` }

// edits are all edits of a bug.
func (b bug) edits() []edit { return append([]edit{b.edit}, b.More...) }

// finder is the test that must notice.
type finder struct {
	Package string
	Test    string
	Args    string // separated by spaces
	// Clean stands in place of Args where no bug is switched on: a long search for
	// nothing is made elsewhere.
	Clean string
	// Says, where given, is in what the finder says when it has found something.
	Says string
	// Is is the finder in words, for the page.
	Is string
}

func (f finder) args(planted bool, first uint64) []string {
	words := f.Args
	if !planted && f.Clean != "" {
		words = f.Clean
	}
	args := strings.Fields(words)
	if f.Package == simulator.Package {
		args = append(args, fmt.Sprintf("-sim.from=%d", max(first, 1)))
	}
	return args
}

// schedules is how many schedules the simulator may need for one bug.
const schedules = 3000

var (
	// simulator is harness/sim; the schedules begin with the first seed.
	simulator = finder{
		Package: "harness/sim", Test: "^TestSchedules$", Args: fmt.Sprintf("-sim.keep=false -sim.seeds=%d", schedules-1),
		Clean: "-sim.keep=false -sim.seeds=100", Says: `seed (\d+): `, Is: "the simulator",
	}
	// model is the search over everything that the state table allows.
	model = finder{Package: "ledger", Test: "^TestSearch_", Is: "the model check"}
)

// room is the tests of a package, or those of its tests that a pattern names.
func room(pkg, test string) finder {
	f := finder{Package: pkg, Test: test, Is: "tests of `" + pkg + "`"}
	if pkg == "approvals/policy" || pkg == "reconcile" { // a sample that fails is no news here
		f.Args = "-rapid.nofailfile"
	}
	return f
}

// bugs are all of them.
var bugs = joined(bugsLedger, bugsEvidence, bugsGuardRow, bugsCommit, bugsUndo, bugsReconcile, bugsPeople, bugsStore, bugsTokens, bugsTools, bugsAudit, bugsMatrix)

func joined(lists ...[]bug) (all []bug) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
