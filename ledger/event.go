package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
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
