package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Checkpoint commits to everything that the ledger held when it was made: it
// covers all events up to Seq, each of which carries the hash of the event
// before it in its own operation's chain, and every tenant's guard row. Each
// checkpoint carries the hash of the one before. A signature is made over Hash.
type Checkpoint struct {
	// N counts checkpoints from 1.
	N      int64     `json:"n"`
	Ledger string    `json:"ledger"`
	At     time.Time `json:"at"`
	// After and Seq bound the events that this checkpoint adds: those behind
	// After up to and with Seq.
	After int64 `json:"after"`
	Seq   int64 `json:"seq"`
	// Events is the digest over the hashes of those events in their order.
	Events string `json:"events"`
	// Guards are the newest guard rows by tenant.
	Guards map[string]GuardHead `json:"guards,omitempty"`
	Prev   string               `json:"prev"`
	Hash   string               `json:"hash"`
	// Signature is a JWS (RFC 7515) by one of the published keys over the
	// checkpoint without Signature.
	Signature string `json:"signature"`
}

// GuardHead is a guard row as a checkpoint names it.
type GuardHead struct {
	Epoch int64  `json:"epoch"`
	Hash  string `json:"hash"`
}

// Digest computes the checkpoint's hash over everything but Hash and Signature.
func (c Checkpoint) Digest() string {
	c.Hash, c.Signature = "", ""
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings, numbers and times always marshal
	}
	sum := sha256.Sum256(append([]byte("countersign-checkpoint-1\n"), b...))
	return hex.EncodeToString(sum[:])
}

// EventsDigest is the digest over events' hashes in their order.
func EventsDigest(events []Event) string {
	h := sha256.New()
	h.Write([]byte("countersign-events-1\n"))
	for _, e := range events {
		h.Write([]byte(e.Hash))
		h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))
}
