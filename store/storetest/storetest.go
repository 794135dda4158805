// Package storetest is the contract of the stores as tests: of ledger.Store
// (Run) and of identity.Store (RunIdentity). Every store passes the same suite.
//
// What lives here: the two suites, one file for each part of a contract; the
// Clock that a store under test reads; Faults, the door through which a store
// lets itself be broken.
//
// How it flows: a store's own test calls Run with a function that opens an
// empty store. Each case opens its own, writes rows as the ledger would, and
// looks at them through the reading half of the same interface. A refused write
// must leave no trace, so many cases compare a dump of everything before and
// after. Races are started together and never timed.
//
// What does not live here: rules. The rows need not follow the table of states,
// for a store knows no rule. What is true of SQL alone (locks, triggers, query
// plans, crashes) is tested in sqlstore.
package storetest

import (
	"sync"
	"testing"
	"time"

	"countersign/ledger"
)

// Subject is an empty store under test. The suite closes it.
type Subject struct {
	Store ledger.Store
	// Clock is what the store reads the time from.
	Clock *Clock
	// Reopen closes the store and opens it again as after a restart.
	Reopen func() ledger.Store
	// Faults breaks the store; nil when it can't be broken on demand, which
	// leaves out the cases that need it and says so.
	Faults Faults
}

// Faults breaks a store on demand.
type Faults interface {
	// Hold keeps writes waiting. wait returns when at least n of them wait;
	// release lets them go, as one group if the store groups writes.
	Hold() (wait func(n int), release func())
	// LoseNextAnswer: the next commit happens, and the store can't tell.
	LoseNextAnswer()
	// FailNextCommit: the next commit does not happen, and the store can't tell.
	FailNextCommit()
	// FailWrite: a statement of the write with this id fails, that many times.
	// endsTransaction: the failure takes the transaction with it, as an
	// interrupted statement does.
	FailWrite(writeID string, err error, endsTransaction bool, times int)
}

// Clock is a clock that moves when told to. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts a clock at a time with a nanosecond in it, so that a store
// that rounds is found out.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 11, 5, 9, 30, 0, 123456789, time.UTC)}
}

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run tests one store. open gives a new, empty one each time.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, part := range []struct {
		name  string
		cases []testCase
	}{
		{"ledger_id", ledgerIDCases},
		{"previews", previewCases},
		{"clock", clockCases},
		{"open", openCases},
		{"heads", headCases},
		{"goals", goalCases},
		{"runs", runCases},
		{"apply", applyCases},
		{"moves", moveCases},
		{"decisions", decisionCases},
		{"guard", guardCases},
		{"races", raceCases},
		{"evidence", evidenceCases},
		{"due", dueCases},
		{"doubts", doubtCases},
		{"events", eventCases},
		{"list", listCases},
		{"seals", sealCases},
		{"tally", tallyCases},
		{"tenants", tenantCases},
		{"exact", exactCases},
		{"restart", restartCases},
		{"writes", writeCases},
		{"model", modelCases},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, c := range part.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newWorld(t, open(t))) })
			}
		})
	}
	t.Run("faults", func(t *testing.T) {
		for _, c := range faultCases {
			t.Run(c.name, func(t *testing.T) {
				w := newWorld(t, open(t))
				if w.Faults == nil {
					t.Log("this store can't be broken on demand")
					return
				}
				c.run(w)
			})
		}
	})
}

type testCase struct {
	name string
	run  func(*world)
}
