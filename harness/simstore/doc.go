// Package simstore is a ledger.Store in plain maps, for the simulator: every
// call can be held, lost, repeated or cut off by whoever drives the run.
//
// What lives here: Store, a handle on a State; the door (Hook) through which each
// call of a handle goes; Change, by which an observer sees every applied write in
// its order. Its meaning is exactly that of ledger.Store, proven by storetest.
//
// How it flows: a method turns its arguments into one closure, the effect, and
// hands it to the hook. A hook runs it at once, later, twice or never, on
// whatever goroutine, and says what the caller is told. Nothing here starts a
// goroutine or waits, and the order of a map is never seen.
//
// What does not live here: rules (ledger), and which call fails (harness/sim).
package simstore
