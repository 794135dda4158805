// Package shop is "Acme shop", a small system outside the gateway: orders,
// payments, addresses, letters, and an HTTP API that can be broken on purpose.
//
// What lives here: the shop's rows and rules, its HTTP API, its durable log of
// what really happened (the ground truth that the demo shows and tests count),
// its page, the switches that cut, refuse, slow and garble replies, and the
// tool manifests that put the shop behind a gateway (Manifests).
//
// How it flows: a request is written to requests.jsonl when it has arrived, the
// route decides against the rows under one lock, the effect is appended to
// effects.jsonl and fsynced, the rows are set, and only then does the switch
// board decide what becomes of the reply. Open rebuilds the rows from the seed
// and the logs, so a killed shop comes back with everything that it ever
// acknowledged.
//
// What does not live here: anything of Countersign. The shop plays the outside
// world and imports nothing of this module; it believes no promise of the
// gateway and records what it sees.
package shop
