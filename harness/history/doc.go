// Package history checks that what callers see of the gateway is what they would
// see if each call took place at one moment between its beginning and its end:
// linearizability, decided by porcupine over recorded histories.
//
// What lives here, all of it tests: the gateways (two over one real SQLite store,
// with the real API on real sockets, the real services and background loops, and
// fake tools), what goes wrong (faults_test.go), the clients, the recorder, and the
// model: what stands under one key, and which answers that allows.
//
// How it flows: four to eight clients preview, commit, read, decide, cancel,
// freeze, unfreeze, resolve and look outside, over a few keys whose tools can do
// different things, while the clock jumps, replies of the tools are slow or lost,
// clients hang up, the store fails, and gateways die and start again. Each call and
// each answer is noted with its place in time. An answer that says that nothing
// happened must be true; a call without an answer leaves open whether it happened,
// now or at any later time. Between calls the gateway may move an operation by
// itself, as the table of states allows; under a freeze it may send nothing.
// Afterwards the histories are checked, key by key, and the outside world is
// compared with the ledger. Corrupted histories and planted mistakes show that the
// model is strict.
//
// What does not live here: processes that are killed (harness/chaos), schedules
// that can be repeated exactly (harness/sim). A history depends on the order in
// which goroutines ran; its seed repeats only what each client and each fault
// chose.
package history
