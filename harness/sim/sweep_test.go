package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sweepKinds are the six faults of the sweep.
var sweepKinds = []Fault{
	{Kind: Refuse},
	{Kind: Down, For: 20 * time.Minute}, // as long as faults last
	{Kind: LostAck},
	{Kind: CrashBefore, For: 3 * time.Second},
	{Kind: CrashAfter, For: 3 * time.Second},
	{Kind: Slow, For: 2 * lease},
}

// tells reports whether a kind is another fault than those before it for this
// class of calls: a read changes nothing, so that its lost answer is a refusal and
// a crash behind it is one before it. An actor's own step doesn't fail.
func tells(k Kind, class string) bool {
	reads := strings.HasPrefix(class, "read.") || class == "up.preview" || class == "up.guard" || class == "up.lookup" || class == "up.reply"
	switch {
	case class == "act":
		return false
	case k == LostAck, k == CrashAfter:
		return !reads && class != "answer"
	}
	return true
}

// singles gives every single fault of a script: each of its calls, in each of the
// six ways that can be told apart.
func singles(t *testing.T, name string) []Fault {
	t.Helper()
	base := run(t, options{Script: name, Faults: []Fault{}}, nil)
	require.Empty(t, base.violations, "without any fault")
	for _, what := range scripts[name].meets {
		require.NotZero(t, base.counts[what], "the script %s does not meet: %s", name, what)
	}
	var list []Fault
	for i, class := range base.calls {
		for _, f := range sweepKinds {
			if f.Call, f.N = "*", i+1; tells(f.Kind, class) {
				list = append(list, f)
			}
		}
	}
	return list
}

// sweep runs a script with each of the sets of faults.
func sweep(t *testing.T, name string, sets [][]Fault) {
	t.Helper()
	each(t, 0, uint64(len(sets)), func(t *testing.T, i uint64) bool {
		o := options{Script: name, Faults: sets[i]}
		r := run(t, o, nil)
		if r.struck == 0 {
			t.Errorf("%s: %v did not strike", name, o.Faults)
		}
		if len(r.violations) > 0 {
			report(t, o, r)
		}
		return len(r.violations) == 0
	})
}

// TestSweep makes every single call of twelve scripts fail, in each of six ways.
func TestSweep(t *testing.T) {
	require.Len(t, scripts, 12)
	for _, name := range sortedNames() {
		t.Run(name, func(t *testing.T) {
			var sets [][]Fault
			for _, f := range singles(t, name) {
				sets = append(sets, []Fault{f})
			}
			t.Logf("%d single faults", len(sets))
			sweep(t, name, sets)
		})
	}
}

// TestSweepPairs does it with all pairs of them, where it is asked for.
func TestSweepPairs(t *testing.T) {
	if !*pairs {
		return
	}
	for _, name := range sortedNames() {
		t.Run(name, func(t *testing.T) {
			var sets [][]Fault
			list := singles(t, name)
			for i, f := range list {
				for _, g := range list[i+1:] {
					if g.N > f.N {
						sets = append(sets, []Fault{f, g})
					}
				}
			}
			t.Logf("%d pairs", len(sets))
			sweep(t, name, sets)
		})
	}
}

func sortedNames() []string {
	var names []string
	for name := range scripts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
