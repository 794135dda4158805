package powercut_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/harness/powercut"
	"countersign/ledger"
	"countersign/store/sqlstore"
)

var (
	cuts = flag.Int("powercut.cuts", number("POWERCUTS", 100), "how often the power is cut (also POWERCUTS)")
	seed = flag.Uint64("powercut.seed", uint64(number("POWERCUTS_FROM", 1)), "of the first ledger; each next one has the next seed (also POWERCUTS_FROM)")
)

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// cutsOfALife is how often one ledger loses its power before another takes its
// place.
const cutsOfALife = 10

// How long a caller writes: short, or long enough that the log is folded into the
// file while it grows.
const (
	short = 12
	long  = 50
)

// within is how far away an armed cut is at most, in events of its kind: while a
// ledger is made; while it is opened and recovered; under load; while it is closed.
var within = map[string]map[powercut.Event]int{
	"make":  {powercut.AnyEvent: 190, powercut.Write: 175, powercut.Sync: 12, powercut.Entry: 5},
	"open":  {powercut.AnyEvent: 120, powercut.Write: 120, powercut.Sync: 6, powercut.Entry: 4},
	"load":  {powercut.AnyEvent: 3000, powercut.Write: 3000, powercut.Sync: 150, powercut.Entry: 8},
	"close": {powercut.AnyEvent: 200, powercut.Write: 200, powercut.Sync: 3, powercut.Entry: 2},
}

// aims is where cuts are meant to come, in turn.
var aims = []string{"open", "load", "close", "load", "idle", "load"}

// arm arms a cut for a part, with the events in turn.
func (l *life) arm(part string, n int) {
	event := powercut.Event(n / len(aims) % 4)
	l.disk.CutAt(event, 1+l.rng.IntN(within[part][event]))
}

// cutOnce opens the ledger, writes, cuts the power where the n-th cut is meant to
// come or later, gives it back and looks at what is left. It says in which part
// the power went.
func (l *life) cutOnce(n int) (*findings, string) {
	l.t.Helper()
	aim, part := aims[n%len(aims)], "open"
	if l.id == "" {
		part = "make"
		if l.seed%2 == 0 { // half of the ledgers lose their power while they are made
			aim = "open"
		}
	}
	rounds := short
	if l.rng.IntN(3) == 0 {
		rounds = long
	}
	switch aim {
	case "open":
		l.arm(part, n)
	case "load":
		l.arm(aim, n)
	}
	db, led, err := l.open()
	if err != nil {
		require.True(l.t, l.disk.Off(), "seed %d: the ledger does not open while the power is on: %v", l.seed, err)
	} else {
		part = l.use(db, led, rounds, aim, n)
	}
	l.disk.Cut()
	return l.again(), part
}

// use writes until the power goes or all is written, and closes the store.
func (l *life) use(db *sqlstore.DB, led *ledger.Ledger, rounds int, aim string, n int) string {
	l.t.Helper()
	l.load(db, led, 6, rounds)
	part := "load"
	switch {
	case l.disk.Off():
	case aim == "close":
		part = "close"
		l.arm("close", n)
	default:
		part = "idle"
		l.disk.Cut()
	}
	_ = db.Close() // without power it says so
	if part == "close" && !l.disk.Off() {
		part = "closed"
	}
	return part
}

// again gives the power back and looks. Half of the time the store that looked
// loses its power too, with nothing under way.
func (l *life) again() *findings {
	l.t.Helper()
	l.disk.Boot()
	db, _, found := l.inspect()
	if db == nil {
		return found
	}
	quietly := l.rng.IntN(2) == 0
	if quietly {
		l.disk.Cut()
	}
	err := db.Close()
	if quietly {
		l.disk.Boot()
	} else {
		require.NoError(l.t, err, "seed %d", l.seed)
	}
	return found
}

// sum is what all cuts of a run came to.
type sum struct {
	mu                                       sync.Mutex
	cuts, acknowledged, events, lost, broken int
	seen                                     map[string]int
}

// live cuts the power of one ledger again and again. The seed alone says where cuts
// are meant to come and what they leave; in between six callers run as they will.
func (s *sum) live(t *testing.T, seed uint64, times int) {
	t.Helper()
	l := newLife(t, seed)
	for i := range times {
		found, part := l.cutOnce(int(seed)*cutsOfALife + i)
		s.mu.Lock()
		s.cuts++
		s.lost += len(found.lost)
		s.broken += len(found.broken)
		s.seen["in "+part]++
		s.seen["left "+l.disk.Survived().String()]++
		if at := l.disk.WentAt(); at != (powercut.Moment{}) {
			s.seen["at "+at.Event.String()+" of "+strings.TrimPrefix(at.File, l.path[:len(l.path)-len("ledger.db")])]++
		}
		s.mu.Unlock()
		require.True(t, found.none(), "seed %d, cut %d (in %s, %s survived): %s\nagain: go test ./harness/powercut -run 'TestPowerCut$' -powercut.seed %d -powercut.cuts %d -v",
			seed, i+1, part, l.disk.Survived(), found, seed, times)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledged += l.acknowledged()
	s.events += l.disk.Count(powercut.AnyEvent)
}

// Whenever the power goes, everything that was acknowledged is there, and
// everything that is there is whole (I10, I16; fault matrix 11).
func TestPowerCut(t *testing.T) {
	s := &sum{seen: map[string]int{}}
	ledgers := (*cuts + cutsOfALife - 1) / cutsOfALife
	var next atomic.Int64
	began := time.Now()
	t.Run("lanes", func(t *testing.T) {
		for lane := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				for n := int(next.Add(1)) - 1; n < ledgers && !t.Failed(); n = int(next.Add(1)) - 1 {
					// Each is a test of its own, so that its disk is gone with it.
					t.Run(fmt.Sprintf("seed %d", *seed+uint64(n)), func(t *testing.T) {
						s.live(t, *seed+uint64(n), min(cutsOfALife, *cuts-n*cutsOfALife))
					})
				}
			})
		}
	})
	took := time.Since(began).Seconds()
	t.Logf("power cuts: %d (seeds %d to %d) in %.0f s, %.1f a second; acknowledged writes %d, lost acknowledgements %d, damages %d; events of the disk: %d",
		s.cuts, *seed, *seed+uint64(max(ledgers, 1))-1, took, float64(s.cuts)/took, s.acknowledged, s.lost, s.broken, s.events)
	t.Logf("the power went %v", s.seen)
	if *cuts < 100 || t.Failed() {
		return
	}
	require.Greater(t, s.acknowledged, 10**cuts, "too little was written to prove anything")
	must := []string{
		"in load", "in idle", "in close", "left nothing", "left everything", "left prefix", "left scattered", "at write of ledger.db-wal", "at sync of ledger.db-wal",
	}
	if *cuts >= 1000 {
		must = append(must, "in make", "in open", "in closed", "at write of ledger.db", "at sync of ledger.db", "at entry of ledger.db", "at entry of ledger.db-wal")
	}
	if *cuts >= 5000 { // the directory's own flush, and the journal that a ledger is made with
		must = append(must, "at sync of ", "at sync of ledger.db-journal", "at entry of ledger.db-journal")
	}
	for _, what := range must {
		require.NotZero(t, s.seen[what], "the power never went: %s", what)
	}
}

// The same must fail where flushes are left out: without the flush at each commit,
// without any flush, and on disks that do not flush all that they are told to. Each
// kind of flush is needed: of the log, of the file, of the directory.
func TestPowerCut_FindsLosses(t *testing.T) {
	const times = 12
	none := func(string) bool { return false }
	for name, c := range map[string]struct {
		options []powercut.Option
		deaf    func(file string) bool
		// closed: the power goes when the store is closed, and the log folded into
		// the file.
		closed bool
		// whole: what is left is whole, only too old.
		whole bool
	}{
		"synchronous=NORMAL":               {options: []powercut.Option{powercut.Loosely("NORMAL")}, deaf: none, whole: true},
		"synchronous=OFF":                  {options: []powercut.Option{powercut.Loosely("OFF")}, deaf: none},
		"a disk that flushes nothing":      {deaf: func(string) bool { return true }},
		"a disk that flushes no log":       {deaf: func(file string) bool { return strings.HasSuffix(file, "-wal") }},
		"a disk that flushes no file":      {deaf: func(file string) bool { return strings.HasSuffix(file, ".db") }, closed: true},
		"a disk that flushes no directory": {deaf: func(file string) bool { return file == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			acknowledged, lost, broken, hurt := 0, 0, 0, 0
			for i := range uint64(times) {
				l := newLife(t, *seed+i, c.options...)
				l.disk.Deafen(c.deaf)
				db, led, err := l.open()
				require.NoError(t, err)
				rounds := short
				if !c.closed {
					rounds = long
					l.disk.CutAt(powercut.Write, 500+l.rng.IntN(1500))
				}
				l.load(db, led, 6, rounds)
				if err := db.Close(); c.closed {
					require.NoError(t, err)
				}
				l.disk.Cut()
				found := l.again()
				acknowledged += l.acknowledged()
				lost += len(found.lost)
				broken += len(found.broken)
				if !found.none() {
					hurt++
				}
			}
			t.Logf("%s: power cuts: %d, acknowledged writes: %d, lost: %d, damages: %d, in %d of the cuts", name, times, acknowledged, lost, broken, hurt)
			require.NotZero(t, lost, "losses that are there are not found")
			require.Greater(t, hurt, times/4)
			if c.whole {
				require.Zero(t, broken, "the disk does worse than a disk may")
			}
		})
	}
}
