package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"countersign/tools"
)

// Event is the trace of one transition: exactly one for each, in the same
// atomic write. The events of an operation form a hash chain.
type Event struct {
	// Seq is given by the store in commit order, without gaps.
	Seq       int64     `json:"seq"`
	Operation string    `json:"operation"`
	Tenant    string    `json:"tenant"`
	Tool      string    `json:"tool"`
	At        time.Time `json:"at"`
	Verb      Verb      `json:"verb"`
	From      State     `json:"from"` // empty at open
	To        State     `json:"to"`
	Actor     Actor     `json:"actor"`
	Version   int64     `json:"version"`
	Fence     int64     `json:"fence"`
	Round     int       `json:"round"`
	Attempt   int       `json:"attempt,omitempty"`
	EffectID  string    `json:"effect_id,omitempty"`
	Reason    *Reason   `json:"reason,omitempty"`
	// Evidence is the id of the evidence that moved it.
	Evidence string `json:"evidence,omitempty"`
	// EvidenceDigest is the digest of that evidence. Older events have none.
	EvidenceDigest string `json:"evidence_digest,omitempty"`
	// Digest is what was decided on or dispatched: the shown digest of a
	// decision, the plan's digest of a mark.
	Digest  string `json:"digest,omitempty"`
	WriteID string `json:"write_id"`
	Prev    string `json:"prev"`
	Hash    string `json:"hash"`
}

// seal computes the event's hash over everything but Seq (which the store
// gives) and Hash itself.
func (e Event) seal() string {
	e.Seq, e.Hash = 0, ""
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // a struct of strings, numbers and times always marshals
	}
	sum := sha256.Sum256(append([]byte("countersign-event-1\n"), b...))
	return hex.EncodeToString(sum[:])
}

// Intact reports whether the event is what was written and follows prev, the
// hash of the operation's event before it (empty for the first).
func (e Event) Intact(prev string) bool { return e.Prev == prev && e.Hash == e.seal() }

// Digest names what a piece of evidence says: SHA-256 over its JSON as it is read
// back from a store. Two observers may make the same observation under one id, of
// which the first is kept; so what their accounts of it may differ in is left out:
// when it was noted down, and of a lookup everything but the answer. It is empty
// where there is no JSON of it, which no store keeps.
func (ev Evidence) Digest() string {
	ev.At = noTime
	if ev.Kind == "lookup" {
		ev.Covers, ev.Because, ev.By, ev.Seen = 0, "", Actor{}, tools.Exchange{}
	}
	given, err := json.Marshal(ev)
	if err != nil {
		return ""
	}
	var kept Evidence
	d := json.NewDecoder(bytes.NewReader(given))
	d.UseNumber()
	if err := d.Decode(&kept); err != nil {
		return ""
	}
	read, err := json.Marshal(kept)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte("countersign-evidence-1\n"), read...))
	return "sha256:" + hex.EncodeToString(sum[:])
}
