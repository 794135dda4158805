// Package sim runs complete gateways in a simulated world, with faults, and looks
// at what became of it.
//
// What lives here (in the tests, since nothing else may use it): the bus, through
// which every call of a node goes, one at a time; nodes made of the product's own
// packages on one simulated store; an outside world with its own log of effects;
// agents, people and an operator; the oracles; the counters of what must happen
// sometimes; the sweep of every single fault over twelve scripts; shrinking, and
// the schedules that failed once, which are replayed always.
//
// How it flows: a schedule is a seed. It gives the tools, the intents, the faults
// and the order in which parked calls go on. Everything runs in one bubble of
// testing/synctest, whose time moves only when all wait. Faults are on at first
// (nothing may happen twice, nothing is lost), then off, until everything has its
// end or waits for a person (nothing hangs for ever). The same seed gives the
// same log of steps.
//
// What does not live here: real stores, sockets and processes (harness/powercut,
// harness/history, harness/chaos).
package sim
