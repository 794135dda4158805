package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kills   = flag.Int("chaos.kills", number("KILLS", 100), "how often the gateway is killed under load (also KILLS)")
	seedOf  = flag.Uint64("chaos.seed", uint64(number("KILLS_FROM", 1)), "seed of the first ledger: of moments, agents and the outside's faults; each next one has the next seed (also KILLS_FROM)")
	ofALife = flag.Int("chaos.ledger", 500, "how many kills one ledger sees at most before it is left to settle and is judged")
	lanes   = flag.Int("chaos.lanes", runtime.GOMAXPROCS(0), "how many gateways are killed at once, each with its own ledger")
)

// TestMain lets all tests run side by side, however few the cores: nearly all of
// their time they wait, for leases and for what may still arrive to be overdue.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// total sums up what all ledgers of a run came to.
type total struct {
	mu      sync.Mutex
	ends    map[end]int
	reached map[string]int
	judged  judged
	busy    time.Duration // with kills
}

func (s *total) add(w *world, j judged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for how, n := range w.ends {
		s.ends[how] += n
	}
	for point, n := range w.reached {
		s.reached[point] += n
	}
	s.judged.add(j)
}

// TestMatrix_Row10_Kill9UnderLoad kills gateways while agents ask: most of them 15
// to 75 ms after they answer, others at named points, in and behind pauses, and
// while they start. A ledger that saw its share settles while the next one is
// under load: that takes minutes of waiting, and no work.
func TestMatrix_Row10_Kill9UnderLoad(t *testing.T) {
	t.Parallel()
	sum := &total{ends: map[end]int{}, reached: map[string]int{}}
	lane := make(chan struct{}, *lanes)
	var worlds sync.WaitGroup
	began := time.Now()
	last := *seedOf
	share := min(*ofALife, (*kills+*lanes-1) / *lanes)
	for left, seed := *kills, *seedOf; left > 0; left, seed = left-share, seed+1 {
		last = seed
		lives := min(left, share)
		lane <- struct{}{}
		worlds.Go(func() {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				var w *world
				func() {
					defer func() { <-lane }()
					w = newWorld(t, seed)
					from := time.Now()
					w.underLoad(lives, seed)
					sum.mu.Lock()
					sum.busy += time.Since(from)
					sum.mu.Unlock()
				}()
				from := time.Now()
				j := w.end()
				sum.add(w, j)
				t.Logf("seed %d: %d kills, settled in %.0f s: %s", seed, lives, time.Since(from).Seconds(), &j)
				if len(j.duplicates)+len(j.lost)+len(j.illegal)+len(j.limbo) > 0 {
					t.Logf("again: go test ./harness/chaos -run Row10 -chaos.seed %d -chaos.kills %d -chaos.lanes 1 -timeout 60m -v", seed, lives)
				}
				j.requireNone(t)
			})
		})
	}
	worlds.Wait()
	took := time.Since(began)
	t.Logf("kills: %d (seeds %d to %d) in %.0f s, %.2f a second in each of %d lanes: %s", *kills, *seedOf, last, took.Seconds(),
		float64(*kills)/sum.busy.Seconds(), *lanes, &sum.judged)
	t.Logf("ends %v, named points %v", sum.ends, sum.reached)
	if t.Failed() || *kills < 100 {
		return
	}
	require.NotZero(t, sum.judged.answers)
	require.NotZero(t, sum.judged.effects)
	died := 0
	for _, n := range sum.ends {
		died += n
	}
	require.Equal(t, *kills, died)
	for _, how := range []end{atRandom, atPoint, behindPause, inPause, whileStarting} {
		require.NotZero(t, sum.ends[how], how)
	}
	if *kills >= 2000 {
		require.NotZero(t, sum.ends[pastLease])
		for _, point := range points {
			require.NotZero(t, sum.reached[point], "no kill ever came to %s", point)
		}
	}
}

// crashPoints are the rows of the crash table that a single intent passes.
var crashPoints = []string{"before_open", "after_open", "after_reply", "before_finish", "after_finish"}

// TestMatrix_Row09_Kill9AtEachPoint kills the gateway at named points of one
// commit, for each kind of tool.
func TestMatrix_Row09_Kill9AtEachPoint(t *testing.T) {
	t.Parallel()
	for _, point := range crashPoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.o.heal()
			for _, kind := range kinds {
				w.g.start("COUNTERSIGN_CRASH=" + point)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				asked := make(chan struct{})
				go func() { defer close(asked); w.c.pursue(ctx, kind, "x") }()
				w.g.died()
				w.g.start()
				<-asked
				cancel()
				w.g.kill()
			}
			w.g.start()
			j := w.end()
			j.requireNone(t)
			require.Equal(t, len(kinds), j.operations)
		})
	}
}

// TestMatrix_Row19to21_PausedPastTheLease stops the process at points around a
// dispatch until its lease is over, and lets it go on.
func TestMatrix_Row19to21_PausedPastTheLease(t *testing.T) {
	t.Parallel()
	for row, point := range map[int]string{19: "before_open", 20: "after_open", 21: "after_reply"} {
		t.Run(fmt.Sprintf("row %d %s", row, point), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.o.heal()
			w.g.start("COUNTERSIGN_PAUSE=" + point)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			asked := make(chan struct{})
			go func() { defer close(asked); w.c.pursue(ctx, "asked", "x") }()
			time.Sleep(leaseOver + time.Second)
			w.g.signal(syscall.SIGCONT)
			<-asked
			j := w.end()
			j.requireNone(t)
			_, requests := w.o.happened(t)
			for _, n := range requests {
				require.LessOrEqual(t, n, 1)
			}
		})
	}
}
