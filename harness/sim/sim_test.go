package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seeds = flag.Uint64("sim.seeds", number("SIM_SEEDS", 3000), "how many random schedules (also SIM_SEEDS)")
	from  = flag.Uint64("sim.from", number("SIM_FROM", 1), "the first seed (also SIM_FROM)")
	trace = flag.Bool("sim.trace", false, "print every step; for a single seed")
	keep  = flag.Bool("sim.keep", os.Getenv("COUNTERSIGN_PLANTED") == "", "shrink a failure and keep it in testdata/regressions")
	pairs = flag.Bool("sim.pairs", false, "sweep over all pairs of faults as well")
)

func number(variable string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(variable), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// each runs a function over numbers on all cores; it stops when one says so.
func each(t *testing.T, from, n uint64, do func(t *testing.T, i uint64) bool) {
	var next atomic.Uint64
	var stop atomic.Bool
	t.Run("workers", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				for !stop.Load() {
					i := next.Add(1) - 1
					if i >= n {
						return
					}
					if !do(t, from+i) {
						stop.Store(true)
					}
				}
			})
		}
	})
}

// TestSchedules runs random schedules. None may break an invariant, and together
// they must meet everything that is to be met sometimes.
func TestSchedules(t *testing.T) {
	var mu sync.Mutex
	sum := map[string]int{}
	steps, struck, few := 0, 0, 0
	began := time.Now()
	each(t, *from, *seeds, func(t *testing.T, seed uint64) bool {
		var tell func(string)
		if *trace {
			tell = func(line string) { t.Log(line) }
		}
		r := run(t, options{Seed: seed}, tell)
		mu.Lock()
		defer mu.Unlock()
		for what, n := range r.counts {
			sum[what] += n
		}
		steps += r.steps
		struck += r.struck
		if r.struck < 3 {
			few++
		}
		if len(r.violations) > 0 {
			report(t, options{Seed: seed}, r)
			return false
		}
		return true
	})
	took := time.Since(began)
	t.Logf("%d schedules in %s (%.0f/s), %.0f steps each, %.1f faults each, %d with fewer than 3",
		*seeds, took.Round(time.Millisecond), float64(*seeds)/took.Seconds(), float64(steps)/float64(*seeds), float64(struck)/float64(*seeds), few)
	if *seeds >= enough && !t.Failed() {
		for _, what := range sometimes {
			if sum[what] == 0 {
				t.Errorf("never met: %s", what)
			}
		}
	}
	if testing.Verbose() {
		for _, what := range slices.Sorted(maps.Keys(sum)) {
			t.Logf("%7d %s", sum[what], what)
		}
	}
}

// report prints everything that is needed to see a failure again, with as few
// faults as it needs, and keeps it.
func report(t *testing.T, o options, r result) {
	t.Helper()
	if !*keep {
		t.Errorf("seed %d: %s", o.Seed, strings.Join(r.violations, "\n"))
		return
	}
	o.Faults = shrink(t, o, r)
	text, err := json.MarshalIndent(o, "", "  ")
	require.NoError(t, err)
	var steps []string
	last := run(t, o, func(line string) { steps = append(steps, line) })
	t.Errorf("seed %d: %s\nshrunk to %s\nwhich ends in %s\nits last steps:\n%s", o.Seed, strings.Join(r.violations, "\n"), text,
		strings.Join(last.violations, "\n"), strings.Join(steps[max(0, len(steps)-60):], "\n"))
	file := filepath.Join("testdata", "regressions", fmt.Sprintf("seed%d%s.json", o.Seed, o.Script))
	if os.MkdirAll(filepath.Dir(file), 0o750) == nil && os.WriteFile(file, append(text, '\n'), 0o600) == nil {
		t.Logf("written to %s: say in its note what it was, and keep it", file)
	}
}

// shrink removes faults one by one while it still fails.
func shrink(t *testing.T, o options, r result) []Fault {
	t.Helper()
	kept := r.faults
	for again := true; again; {
		again = false
		for i := range kept {
			fewer := slices.Delete(slices.Clone(kept), i, i+1)
			if fewer == nil {
				fewer = []Fault{}
			}
			o.Faults = fewer
			if len(run(t, o, nil).violations) > 0 {
				kept, again = fewer, true
				break
			}
		}
	}
	if kept == nil {
		kept = []Fault{}
	}
	return kept
}

// TestSameSeedSameSteps: a seed gives the same schedule each time, step for step.
func TestSameSeedSameSteps(t *testing.T) {
	each(t, *from, min(*seeds, 1000), func(t *testing.T, seed uint64) bool {
		a, b := run(t, options{Seed: seed}, nil), run(t, options{Seed: seed}, nil)
		if a.log != b.log || a.steps != b.steps {
			t.Errorf("seed %d: %d and %d steps\n%s", seed, a.steps, b.steps, parts(t, seed))
		}
		return true
	})
}

// parts tries to show where two runs of a seed part.
func parts(t *testing.T, seed uint64) string {
	t.Helper()
	steps := func() (list []string) {
		run(t, options{Seed: seed}, func(line string) { list = append(list, line) })
		return list
	}
	first := steps()
	for range 20 {
		second := steps()
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				from := max(0, i-8)
				return strings.Join(first[from:min(i+4, len(first))], "\n") + "\n--- or\n" + strings.Join(second[i:min(i+4, len(second))], "\n")
			}
		}
	}
	return "they don't part when they are watched"
}
