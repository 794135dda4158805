package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kills  = flag.Int("chaos.kills", 100, "how often the gateway is killed at a random moment")
	seedOf = flag.Uint64("chaos.seed", 1, "seed of moments, agents and the outside's faults")
)

// settle lets the gateway run without faults until nothing is live that it can
// bring to an end.
func settle(t *testing.T, c *crowd, o *outside) {
	t.Helper()
	o.heal()
	quiet := 0 // what moves between two lists is in neither
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		live := 0
		for _, state := range []string{"pending", "running", "unknown"} {
			status, text, err := c.send(context.Background(), http.MethodGet, "/v1/operations?limit=200&state="+state, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, string(text))
			live += liveOf(t, text)
		}
		if quiet++; live > 0 {
			quiet = 0
		}
		if quiet == 5 {
			return
		}
		require.True(t, time.Now().Before(end), "%d operations do not settle:\n%s", live, c.g.out)
	}
}

// TestMatrix_Row10_Kill9UnderLoad kills the gateway at random moments, 15 to 75 ms
// after it answers, while agents ask.
func TestMatrix_Row10_Kill9UnderLoad(t *testing.T) {
	t.Parallel()
	seed := *seedOf
	o := newOutside(t, seed)
	g := newGateway(t, o)
	c := newCrowd(g)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); c.work(ctx, 6, seed) }()
	r := rand.New(rand.NewPCG(seed, 2))
	began := time.Now()
	for range *kills {
		g.start()
		time.Sleep(time.Duration(15+r.IntN(61)) * time.Millisecond)
		g.kill()
	}
	took := time.Since(began)
	g.start()
	stop()
	<-done
	settle(t, c, o)
	g.stop()
	j := judge(t, g, c, o)
	t.Logf("seed %d: %d kills in %.0f s, %d answers received, %d operations, %d effects, %d left to people; 0 duplicates, 0 lost acknowledgements, 0 illegal transitions",
		seed, *kills, took.Seconds(), j.answers, j.operations, j.effects, j.unknown)
	require.NotZero(t, j.answers)
	require.NotZero(t, j.effects)
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
			o := newOutside(t, 1)
			o.heal()
			g := newGateway(t, o)
			c := newCrowd(g)
			for _, kind := range kinds {
				g.start("COUNTERSIGN_CRASH=" + point)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				asked := make(chan struct{})
				go func() { defer close(asked); c.pursue(ctx, kind, "x") }()
				g.died()
				g.start()
				<-asked
				cancel()
				g.kill()
			}
			g.start()
			settle(t, c, o)
			g.stop()
			j := judge(t, g, c, o)
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
			o := newOutside(t, 1)
			o.heal()
			g := newGateway(t, o)
			c := newCrowd(g)
			g.start("COUNTERSIGN_PAUSE=" + point)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			asked := make(chan struct{})
			go func() { defer close(asked); c.pursue(ctx, "asked", "x") }()
			// The lease is the tool's 2 s and a margin of 5 s.
			time.Sleep(9 * time.Second)
			require.NoError(t, g.cmd.Process.Signal(syscall.SIGCONT))
			<-asked
			settle(t, c, o)
			g.stop()
			judge(t, g, c, o)
			_, requests := o.log()
			for _, n := range requests {
				require.LessOrEqual(t, n, 1)
			}
		})
	}
}
