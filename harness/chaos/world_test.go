package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// end is a way in which one life of the gateway ends. All but a stop are by
// SIGKILL.
type end string

const (
	atRandom      end = "at a random moment"
	atPoint       end = "at a named point"
	behindPause   end = "behind a pause"
	inPause       end = "in a pause"
	whileStarting end = "while it starts"
	pastLease     end = "behind a pause past the lease"
)

// points are the named points that a gateway under load comes to.
var points = []string{
	"before_open", "after_open", "after_reply", "before_finish", "after_finish", "before_resolve", "after_resolve",
	"before_lose_lease", "after_lose_lease", "before_retry", "after_retry", "before_hand_over", "after_hand_over",
}

// world is one ledger with its gateway, its agents and its outside system.
type world struct {
	t *testing.T
	o *outside
	g *gateway
	c *crowd
	r *rand.Rand

	// ends and reached count how its lives ended, and at which points.
	ends    map[end]int
	reached map[string]int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	o := newOutside(t, seed)
	g := newGateway(t, o)
	return &world{
		t: t, o: o, g: g, c: newCrowd(g), r: rand.New(rand.NewPCG(seed, 2)),
		ends: map[end]int{}, reached: map[string]int{},
	}
}

// agents is how many ask at once.
const agents = 6

// underLoad lets the gateway live and die so often while agents ask, and leaves it
// running without load.
func (w *world) underLoad(lives int, seed uint64) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.c.work(ctx, agents, seed) }()
	defer func() { stop(); <-done }()
	for n := range lives {
		w.live(w.fate(n))
	}
	w.g.start()
}

// fate says how the n-th life ends. One in 250 lasts as long as all the others.
func (w *world) fate(n int) end {
	roll := w.r.IntN(100)
	switch {
	case n%250 == 125:
		return pastLease
	case roll < 60:
		return atRandom
	case roll < 80:
		return atPoint
	case roll < 88:
		return behindPause
	case roll < 92:
		return inPause
	default:
		return whileStarting
	}
}

// wait lets a time between the two pass, in milliseconds.
func (w *world) wait(from, to int) {
	time.Sleep(time.Duration(from+w.r.IntN(to-from+1)) * time.Millisecond)
}

// live is one life of the gateway, from its start to its end.
func (w *world) live(how end) {
	w.t.Helper()
	switch how {
	case whileStarting:
		w.g.launch()
		w.wait(0, 250)
	case atPoint:
		point := points[w.r.IntN(len(points))]
		w.g.launch(fmt.Sprintf("COUNTERSIGN_CRASH=%s:%d", point, 1+w.r.IntN(4)))
		// It may come to the point before it answers, or never.
		if !w.g.answers() || w.g.endsWithin(500*time.Millisecond) {
			w.reached[point]++
		}
	default:
		w.g.start()
		w.wait(15, 75)
		switch how {
		case behindPause:
			w.g.signal(syscall.SIGSTOP)
			w.wait(20, 200)
			w.g.signal(syscall.SIGCONT)
			w.wait(5, 50)
		case inPause:
			w.g.signal(syscall.SIGSTOP)
			w.wait(1, 50)
		case pastLease:
			w.g.signal(syscall.SIGSTOP)
			time.Sleep(leaseOver)
			w.g.signal(syscall.SIGCONT)
			w.wait(15, 75)
		}
	}
	w.g.kill()
	w.ends[how]++
}

// leaseOver is longer than a lease: the tool's 2 s and a margin of 5 s.
const leaseOver = 8 * time.Second

// end ends the faults, lets the gateway run until nothing is left that it can bring
// to an end, stops it and judges what became of everything.
func (w *world) end() judged {
	w.t.Helper()
	settle(w.t, w.c, w.o)
	w.g.stop()
	return judge(w.t, w.g, w.c, w.o)
}

// patience is how long what is left may take: what is absent counts as such only
// when it could not arrive any more, which is more than a minute; and what a dead
// gateway had claimed is free after a minute.
const patience = 8 * time.Minute

// settle lets the gateway run without faults until nothing is live that it can
// bring to an end.
func settle(t *testing.T, c *crowd, o *outside) {
	t.Helper()
	o.heal()
	quiet := 0 // what moves between two lists is in neither
	for until := time.Now().Add(patience); ; time.Sleep(time.Second) {
		live := c.live(t)
		if quiet++; len(live) > 0 {
			quiet = 0
		}
		if quiet == 2 {
			return
		}
		require.True(t, time.Now().Before(until), "%d operations do not settle, as %v\n%s", len(live), live[:min(5, len(live))], c.g.out)
	}
}

// live lists the operations that have no end and wait for no person.
func (c *crowd) live(t *testing.T) (ids []string) {
	t.Helper()
	query := url.Values{"limit": {"200"}, "state": {"pending", "running", "unknown"}}
	for {
		status, text, err := c.send(context.Background(), http.MethodGet, "/v1/operations?"+query.Encode(), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, string(text))
		var page struct {
			Operations []struct {
				ID   string `json:"id"`
				Next struct {
					Action string `json:"action"`
				} `json:"next"`
			} `json:"operations"`
			Next string `json:"next_cursor"`
		}
		require.NoError(t, json.Unmarshal(text, &page))
		for _, op := range page.Operations {
			if op.Next.Action != "wait_for_people" {
				ids = append(ids, op.ID)
			}
		}
		if page.Next == "" {
			return ids
		}
		query.Set("cursor", page.Next)
	}
}
