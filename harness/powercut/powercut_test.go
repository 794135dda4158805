package powercut_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/harness/powercut"
	"countersign/ledger"
	"countersign/store/sqlstore"
)

var (
	cuts = flag.Int("powercut.cuts", 100, "how often the power is cut")
	seed = flag.Uint64("powercut.seed", 1, "of the first ledger; each next one has the next seed")
)

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
// ledger is opened, made and recovered; under load; while it is closed.
var within = map[string]map[powercut.Event]int{
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
	aim := aims[n%len(aims)]
	rounds := short
	if l.rng.IntN(3) == 0 {
		rounds = long
	}
	if aim == "open" || aim == "load" {
		l.arm(aim, n)
	}
	part := "open"
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

// Whenever the power goes, everything that was acknowledged is there, and
// everything that is there is whole (I10, I16; fault matrix 11).
func TestPowerCut(t *testing.T) {
	acknowledged, events, seen := 0, 0, map[string]int{}
	for done, ledgers := 0, uint64(0); done < *cuts; ledgers++ {
		l := newLife(t, *seed+ledgers)
		for n := 0; n < cutsOfALife && done < *cuts; n++ {
			found, part := l.cutOnce(done)
			done++
			at := l.disk.WentAt()
			seen["in "+part]++
			seen["left "+l.disk.Survived().String()]++
			if at != (powercut.Moment{}) {
				seen["at "+at.Event.String()+" of "+strings.TrimPrefix(at.File, l.path[:len(l.path)-len("ledger.db")])]++
			}
			require.True(t, found.none(), "seed %d, cut %d (%s survived): %s", l.seed, n+1, l.disk.Survived(), found)
		}
		acknowledged += l.acknowledged()
		events += l.disk.Count(powercut.AnyEvent)
	}
	t.Logf("power cuts: %d, acknowledged writes: %d, lost: 0, events of the disk: %d, the power went %v", *cuts, acknowledged, events, seen)
	if *cuts < 100 {
		return
	}
	require.Greater(t, acknowledged, 10**cuts, "too little was written to prove anything")
	for _, what := range []string{
		"in open", "in load", "in idle", "in close", "in closed", "left nothing", "left everything", "left prefix", "left scattered",
		"at write of ledger.db", "at write of ledger.db-wal", "at sync of ledger.db-wal",
	} {
		require.NotZero(t, seen[what], "the power never went: %s", what)
	}
}

// The same must fail where flushes are left out: without the flush at each commit,
// without any flush, and on a disk that flushes nothing that it is told to.
func TestPowerCut_FindsLosses(t *testing.T) {
	const times = 12
	for name, c := range map[string]struct {
		options []powercut.Option
		deaf    bool
	}{
		"synchronous=NORMAL": {options: []powercut.Option{powercut.Loosely("NORMAL")}},
		"synchronous=OFF":    {options: []powercut.Option{powercut.Loosely("OFF")}},
		"a disk that lies":   {deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			acknowledged, lost, broken, hurt := 0, 0, 0, 0
			for i := range uint64(times) {
				l := newLife(t, *seed+i, c.options...)
				if c.deaf {
					l.disk.Deafen()
				}
				db, led, err := l.open()
				require.NoError(t, err)
				l.disk.CutAt(powercut.Write, 500+l.rng.IntN(1500))
				l.use(db, led, long, "load", 0)
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
		})
	}
}
