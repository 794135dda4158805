package shop

import "time"

// Verb says what an effect did.
type Verb string

// The verbs, one for each effectful route.
const (
	VerbHold    Verb = "hold"
	VerbRelease Verb = "release"
	VerbRefund  Verb = "refund"
	VerbCancel  Verb = "cancel"
	VerbChange  Verb = "change"
	VerbSend    Verb = "send"
)

// idSeries names the ids that the effects of a verb get. The shop is not new:
// its series begin in the middle.
var idSeries = map[Verb]struct {
	prefix string
	first  int
}{
	VerbHold:    {"hold_", 88},
	VerbRelease: {"rel_", 3},
	VerbRefund:  {"re_", 12},
	VerbCancel:  {"can_", 2},
	VerbChange:  {"chg_", 7},
	VerbSend:    {"let_", 5},
}

// Effect is one thing that really happened because of a request. It is on disk
// before its request is answered.
type Effect struct {
	// Number counts the effects from 1; it is the line in effects.jsonl.
	Number int       `json:"number"`
	Time   time.Time `json:"time"`
	Verb   Verb      `json:"verb"`
	// ID is the shop's own id of the effect: hold_88, rel_3, re_12, can_2, chg_7, let_5.
	ID string `json:"id"`
	// Target is what was changed: "order/ord_1001".
	Target string `json:"target"`
	// Text is one plain sentence.
	Text string `json:"text"`
	// Key is the Idempotency-Key header of the request, on every route, whether
	// or not the route honours it.
	Key string `json:"idempotency_key,omitempty"`
	// Request is the number of the request that did it.
	Request int `json:"request"`
	// Rows are the rows as they stand afterwards.
	Rows Rows `json:"rows"`
}

// Rows are the rows that an effect or a change by hand set; the others are nil.
// Replaying a log is setting its rows in order, so a replay can't fail.
type Rows struct {
	Order   *Order         `json:"order,omitempty"`
	Hold    *Hold          `json:"hold,omitempty"`
	Payment *Payment       `json:"payment,omitempty"`
	Refund  *Refund        `json:"refund,omitempty"`
	Address *Address       `json:"address,omitempty"`
	Change  *AddressChange `json:"change,omitempty"`
	Letter  *Letter        `json:"letter,omitempty"`
}

// change is something that was changed by hand on the page, behind every
// caller's back. It is durable but no effect of a request, so it is not counted
// and has a file of its own.
type change struct {
	// After is how many effects had happened before it.
	After int       `json:"after"`
	Time  time.Time `json:"time"`
	Text  string    `json:"text"`
	Rows  Rows      `json:"rows"`
}

// Request is an effectful request that was received, whatever became of it:
// done, refused, unauthorised, cut.
type Request struct {
	// Number counts the requests from 1; it is the line in requests.jsonl.
	Number int       `json:"number"`
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Key    string    `json:"idempotency_key,omitempty"`
	// Body is "sha256:" and the hex digest of the body as far as it arrived: two
	// attempts of one intent can be compared byte for byte.
	Body string `json:"body"`
	// Status is what was answered; 0 means no answer was sent (yet, or the reply
	// was cut). It is not in the file, so it is 0 after a restart.
	Status int `json:"status,omitempty"`
}
