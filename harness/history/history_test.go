package history_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

var (
	histories = flag.Uint64("history.n", number("HISTORIES", 50), "how many histories are made and checked (also HISTORIES)")
	from      = flag.Uint64("history.from", number("HISTORIES_FROM", 1), "the seed of the first; each next one has the next (also HISTORIES_FROM)")
)

func number(variable string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(variable), 10, 64); err == nil {
		return n
	}
	return otherwise
}

const (
	callsOfAHistory = 200
	// enough histories meet everything that is to be met sometimes.
	enough = 50
)

// record makes one history: clients over two gateways on one store, until all have
// made their calls and the world has come to rest.
func record(t testing.TB, seed uint64, spoil func(ledger.Store) ledger.Store) (*world, *recorder) {
	t.Helper()
	w := newWorld(t, seed, spoil)
	r := &recorder{}
	rng := rand.New(rand.NewPCG(seed, 0))
	clients := 4 + rng.IntN(5)
	shared := make([]*known, len(w.subjects))
	for i := range shared {
		shared[i] = &known{order: 1}
	}
	each := func(n int) *client {
		return &client{world: w, recorder: r, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n+1))), known: shared}
	}
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() { each(n).run(callsOfAHistory / clients) })
	}
	wg.Wait()
	if err := w.settle(); spoil == nil {
		require.NoError(t, err, "seed %d", seed)
	}
	last := each(clients)
	last.calm = true
	for i, s := range w.subjects {
		in := call{Tool: s.tool.Name, Quorum: s.quorum, Keyed: s.keyed}
		last.find(w.gateways[0], in, shared[i])
		for _, op := range slices.Clone(shared[i].ops) {
			in.Operation, in.Order = op.id, op.order
			last.get(w.gateways[1], in, shared[i])
			last.look(s, in)
		}
	}
	return w, r
}

// tally adds up what happened in all histories.
type tally struct {
	mu               sync.Mutex
	seen             map[string]int
	made, calls      int
	illegal          int
	undecided        int
	making, checking time.Duration
}

// TestHistory_Linearizable: whatever is lost, slow, frozen or killed, what callers
// see of a key is what one record, changed one call at a time, would show them; and
// what the record says happened is what happened.
func TestHistory_Linearizable(t *testing.T) {
	n := *histories
	if testing.Short() {
		n = min(n, 4)
	}
	all := tally{seen: map[string]int{}}
	began := time.Now()
	var next atomic.Uint64
	var wg sync.WaitGroup
	for i := range 2 * runtime.GOMAXPROCS(0) { // half of the time is spent waiting for the disk
		wg.Go(func() {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				for i := next.Add(1) - 1; i < n && !t.Failed(); i = next.Add(1) - 1 {
					all.one(t, *from+i)
				}
			})
		})
	}
	wg.Wait()
	took := time.Since(began)
	t.Logf("%d histories of 4 to 8 clients, seeds %d to %d, %d calls each, in %s (%.1f/s): %d illegal, %d undecided; made in %s, checked in %s",
		all.made, *from, *from+n-1, all.calls/max(1, all.made), took.Round(time.Millisecond), float64(all.made)/took.Seconds(), all.illegal, all.undecided,
		all.making.Round(time.Millisecond), all.checking.Round(time.Millisecond))
	if testing.Verbose() || t.Failed() {
		t.Log(sorted(all.seen))
	}
	if n < enough || t.Failed() {
		return
	}
	for _, what := range sometimes {
		if all.seen[what] == 0 {
			t.Errorf("never met, so nothing is proven about it: %s", what)
		}
	}
}

// one makes and checks one history.
func (all *tally) one(t *testing.T, seed uint64) {
	begin := time.Now()
	w, r := record(t, seed, nil)
	defer w.close()
	history := r.history()
	made := time.Now()
	result := porcupine.CheckOperationsTimeout(model(), history, patience)
	checked := time.Since(made)

	all.mu.Lock()
	defer all.mu.Unlock()
	all.made++
	all.calls += len(history)
	all.making += made.Sub(begin)
	all.checking += checked
	again := fmt.Sprintf("repeat with -history.from=%d -history.n=1", seed)
	switch result {
	case porcupine.Illegal:
		all.illegal++
		part := smallest(history)
		t.Errorf("seed %d: an illegal history; %s\n%s\nits smallest key:\n%s", seed, again, picture(t, seed, part), told(part))
	case porcupine.Unknown:
		all.undecided++
		t.Errorf("seed %d: the history could not be decided within %s; %s", seed, patience, again)
	}
	if len(r.unexpected) > 0 {
		t.Errorf("seed %d: answers that no call may have; %s\n%s", seed, again, strings.Join(r.unexpected, "\n"))
	}
	if !t.Failed() {
		w.compare(seed, all.seen)
		count(history, all.seen)
	}
}

// sometimes is what must have happened in fifty histories.
var sometimes = []string{
	"commit opened", "commit repeated", "commit lost", "commit tool_frozen", "commit idempotency_key_reused", "commit store_unavailable", "commit lost, opened all the same",
	"approve lost", "cancel lost", "freeze lost", "unfreeze lost",
	"preview answered by an operation", "preview idempotency_key_reused", "preview rejected_before",
	"approve done", "approve invalid_state", "approve already_decided", "reject done", "cancel done", "cancel invalid_state",
	"resolve happened", "resolve did not happen", "resolve invalid_state", "freeze done", "unfreeze done", "unfreeze unknowns_open", "unfreeze freeze_not_found",
	"outside an effect", "outside nothing",
	"at once: two commits of one generation", "at once: a commit and a freeze", "at once: a commit and an unfreeze",
	"at once: a yes and a yes", "at once: a yes and a no", "at once: a yes and a cancel",
	"verb dispatch", "verb release", "verb lose_lease", "verb resolve", "verb retry", "verb hand_over", "verb finish",
	"later generation", "fault commits that failed", "fault answers lost, not written", "fault answers lost, written", "fault reads that failed",
	"fault clients that hung up", "fault connections that broke", "fault gateways restarted",
}

// count counts what happened in a history.
func count(history []porcupine.Operation, seen map[string]int) {
	type birth struct {
		tool              string
		order, generation int
	}
	opened, lost := map[birth]bool{}, map[birth]bool{}
	for _, op := range history {
		c, a := op.Input.(call), op.Output.(answer)
		b := birth{c.Tool, c.Order, a.Op.Generation}
		how := "done"
		switch {
		case a.Lost:
			how = "lost"
			if c.What == "commit" {
				lost[birth{c.Tool, c.Order, c.Generation}] = true
			}
		case a.Code != "":
			how = string(a.Code)
		case c.What == "commit" && a.Fresh:
			how = "opened"
			opened[b] = true
		case c.What == "commit":
			how = "repeated"
		case c.What == "preview" && a.Generation == 0:
			how = "answered by an operation"
		case c.What == "outside" && a.Effects == "":
			how = "nothing"
		case c.What == "outside":
			how = "an effect"
		case c.What == "resolve" && c.Said == "":
			how = "did not happen"
		case c.What == "resolve":
			how = "happened"
		}
		seen[c.What+" "+how]++
	}
	for i, op := range history {
		for _, other := range history[i+1:] {
			if op.Call < other.Return && other.Call < op.Return && op.ClientId != other.ClientId {
				atOnce(op.Input.(call), other.Input.(call), seen)
			}
		}
	}
	for _, op := range history {
		c, a := op.Input.(call), op.Output.(answer)
		b := birth{c.Tool, c.Order, a.Op.Generation}
		if a.Op.ID != "" && lost[b] && !opened[b] {
			seen["commit lost, opened all the same"]++
			delete(lost, b)
		}
	}
}

// atOnce counts what is interesting of two calls that overlap.
func atOnce(a, b call, seen map[string]int) {
	if a.What > b.What {
		a, b = b, a
	}
	switch {
	case a.Tool != b.Tool:
	case a.What == "commit" && b.What == "commit" && a.Order == b.Order && a.Generation == b.Generation:
		seen["at once: two commits of one generation"]++
	case a.What == "commit" && b.What == "freeze":
		seen["at once: a commit and a freeze"]++
	case a.What == "commit" && b.What == "unfreeze":
		seen["at once: a commit and an unfreeze"]++
	case a.Operation == "" || a.Operation != b.Operation:
	case a.What == "approve" && (b.What == "approve" || b.What == "cancel" || b.What == "reject"):
		seen["at once: a yes and "+map[string]string{"approve": "a yes", "cancel": "a cancel", "reject": "a no"}[b.What]]++
	}
}

// compare compares the ledger with the outside world, and every operation with its
// events.
func (w *world) compare(seed uint64, seen map[string]int) {
	w.t.Helper()
	ctx := context.Background()
	w.faults.mu.Lock()
	for what, n := range w.faults.done {
		seen["fault "+what] += n
	}
	w.faults.mu.Unlock()
	for _, s := range w.subjects {
		requests, effects := map[string]int{}, map[string][]string{}
		for _, r := range s.fake.Requests() {
			requests[r.Operation]++
		}
		for _, e := range s.fake.Effects() {
			effects[e.Key] = append(effects[e.Key], e.ID)
		}
		page, err := w.store.List(ctx, ledger.Filter{Tenant: tenant, Tool: s.tool.Name, Limit: 200, OldestFirst: true})
		require.NoError(w.t, err)
		require.Empty(w.t, page.Next)
		newest := map[string]ledger.Operation{}
		for _, op := range page.Operations {
			before := newest[op.Key]
			newest[op.Key] = op
			require.Equal(w.t, before.Generation+1, op.Generation, "seed %d: one operation for each generation (I1)", seed)
			require.True(w.t, before.Generation == 0 || before.State.Void(), "seed %d: the generation before %s is void (I1)", seed, op.ID)
			did := effects[op.UpstreamKey]
			delete(effects, op.UpstreamKey)
			require.LessOrEqual(w.t, len(did), 1, "seed %d: %s has more than one effect (I4)", seed, op.ID)
			if !s.keyed {
				require.LessOrEqual(w.t, requests[op.ID], 1, "seed %d: %s was sent more than once (I3)", seed, op.ID)
			}
			switch {
			case op.State.Effective():
				require.Equal(w.t, []string{op.EffectID}, did, "seed %d: %s succeeded (I8)", seed, op.ID)
			case op.State.Void(), op.State == ledger.AwaitingApproval, op.State == ledger.Pending:
				require.Empty(w.t, did, "seed %d: %s is %s (I8)", seed, op.ID, op.State)
			}
			if op.Generation > 1 {
				seen["later generation"]++
			}
			w.chain(seed, op, seen)
		}
		require.Empty(w.t, effects, "seed %d: effects that no operation stands for", seed)
	}
	g, err := w.store.Guard(ctx, tenant)
	require.NoError(w.t, err)
	for _, f := range g.Freezes {
		require.NotEqual(w.t, "contradiction", f.By.ID, "seed %d: honest tools and people contradict nobody", seed)
	}
}

// chain requires one event for each version, in an intact chain.
func (w *world) chain(seed uint64, op ledger.Operation, seen map[string]int) {
	w.t.Helper()
	events, err := w.store.Events(context.Background(), tenant, op.ID)
	require.NoError(w.t, err)
	require.Len(w.t, events, int(op.Version), "seed %d: %s", seed, op.ID)
	prev, state := "", ledger.State("")
	for i, e := range events {
		require.True(w.t, e.Intact(prev) && e.Version == int64(i+1) && e.From == state, "seed %d: event %d of %s", seed, i+1, op.ID)
		prev, state = e.Hash, e.To
		seen["verb "+string(e.Verb)]++
	}
	require.Equal(w.t, op.Chain, prev)
	require.Equal(w.t, op.State, state)
}

func sorted(seen map[string]int) string {
	var parts []string
	for what, n := range seen {
		parts = append(parts, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
