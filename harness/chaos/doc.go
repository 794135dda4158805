// Package chaos puts the real program under load and kills it: at random moments,
// at named points of the code, and by stopping it past its lease.
//
// What lives here: a gateway as a child process (gateway_test.go), an outside
// system with its own log of effects (outside_test.go), agents that note every
// answer that they really received (agents_test.go), and the oracles that compare
// the three (oracles_test.go).
//
// How it flows: agents ask, repeat what got no answer, and share keys; the parent
// kills and restarts the gateway under them. In the end faults stop, the gateway
// settles what it can, and is stopped. Then the agents' log says what was
// acknowledged, the outside's log says what happened, and the store is opened and
// read event by event. The gateway's own word counts for nothing.
//
// What does not live here: faults of the store and of the clock, which need no
// process (harness/sim, harness/powercut).
package chaos
