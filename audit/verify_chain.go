package audit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"countersign/ledger"
	"countersign/tokens"
)

// chain is what is known of the events read so far.
type chain struct {
	// heads are the newest events of the operations, by operation.
	heads map[string]*head
	// seq is the highest number so far, and at the time of its event.
	seq   int64
	at    time.Time
	gaps  []gap
	whole bool // the export begins at the first event
	ended bool
}

// head is how an operation stands by its events.
type head struct {
	version  int64
	hash     string
	state    ledger.State
	attempts int
	fence    int64
	round    int
	effect   string
	// plan is the digest of the round's plan.
	plan string
	// words are the decisions, evidence the pieces of evidence that events name.
	words    map[string]bool
	evidence map[string]*told
	// row: its operation was read.
	row bool
	// line of the newest event.
	line int
}

// gap is a range of numbers that was passed over.
type gap struct {
	from, to int64
	place    int // of its finding
	// operation is set for a gap in its versions, and empty for one in the numbers
	// of all events.
	operation string
}

func (c *chain) begin(h Header) {
	c.heads = map[string]*head{}
	c.seq, c.whole = h.After.Seq, h.After.N == 0
}

// event checks one event: it is whole, in its place, follows the one before of its
// operation, and makes a move that the table allows.
func (v *verifier) event(e ledger.Event) {
	c := &v.chain
	entry := fmt.Sprintf("event %d of %s", e.Seq, e.Operation)
	whole := e.Intact(e.Prev)
	if !whole {
		v.segmentBad(Altered, entry, "It is not what was written: version %d, %s.", e.Version, e.Verb)
	}
	v.place(e, entry, whole)
	v.seals.hashes = append(v.seals.hashes, ledger.Event{Hash: e.Hash})
	v.late(e)
	h := c.heads[e.Operation]
	switch {
	case h == nil && (e.Version == 1 || !c.whole):
		h = &head{state: e.From, attempts: e.Attempt, words: map[string]bool{}, evidence: map[string]*told{}}
		if added(e) {
			h.attempts--
		}
		c.heads[e.Operation] = h
	case h == nil:
		v.gapped(e.Operation, 1, e.Version-1, entry, "The versions 1 to %d of the operation are missing before it.", e.Version-1)
		h = &head{state: e.From, attempts: e.Attempt, words: map[string]bool{}, evidence: map[string]*told{}}
		c.heads[e.Operation] = h
	case e.Version <= h.version:
		if !v.filled(e.Operation, e.Version) {
			v.segmentBad(Doubled, entry, "There is another event for version %d of the operation.", e.Version)
		}
		return
	case e.Version > h.version+1:
		v.gapped(e.Operation, h.version+1, e.Version-1, entry, "The versions %d to %d of the operation are missing before it.", h.version+1, e.Version-1)
	case whole && e.Prev != h.hash:
		v.segmentBad(Rewritten, entry, "It does not follow the event of version %d as that stands here.", h.version)
	case whole && e.From != h.state:
		v.segmentBad(Forbidden, entry, "It moves on from %q, where the operation was %q.", e.From, h.state)
	case whole && !allowed(e, h.attempts):
		v.segmentBad(Forbidden, entry, "The table of states does not allow %s from %q to %q.", e.Verb, e.From, e.To)
	}
	h.follow(e, v.n)
}

// added tells an event that brings one more attempt.
func added(e ledger.Event) bool {
	return e.Verb == ledger.VerbDispatch || e.Verb == ledger.VerbRetry || e.Verb == ledger.VerbRestored || e.Verb == ledger.VerbOpen && e.To == ledger.Running
}

// allowed asks the table of states. What waits or is not there yet is never
// touched; elsewhere an attempt counts as one that may have had an effect.
func allowed(e ledger.Event, attempts int) bool {
	touched := attempts > 0
	switch e.From {
	case "", ledger.AwaitingApproval, ledger.Pending:
		touched = false
	}
	want := attempts
	if added(e) {
		want++
	}
	return e.Attempt == want && slices.Contains(ledger.Allowed(e.From, e.Verb, attempts > 0, touched), e.To)
}

// follow makes the event the newest of its operation.
func (h *head) follow(e ledger.Event, line int) {
	h.version, h.hash, h.state, h.attempts = e.Version, e.Hash, e.To, e.Attempt
	h.fence, h.round, h.effect, h.line = e.Fence, e.Round, e.EffectID, line
	switch e.Verb {
	case ledger.VerbOpen, ledger.VerbRevise:
		h.plan = e.Digest
	case ledger.VerbApprove, ledger.VerbReject, ledger.VerbWithdraw:
		h.words[word(e.Verb, e.Actor.ID, e.Round, e.Digest)] = false
	}
	if e.Evidence != "" {
		h.evidence[e.Evidence] = &told{digest: e.EvidenceDigest}
	}
}

// told is what an event tells of evidence.
type told struct {
	digest string // none in events of older ledgers
	there  bool   // and the evidence was met
}

// word names a decision.
func word(verb ledger.Verb, person string, round int, digest string) string {
	return fmt.Sprintf("%s\n%s\n%d\n%s", verb, person, round, digest)
}

// place checks the event's number: one for each event, without gaps.
func (v *verifier) place(e ledger.Event, entry string, whole bool) {
	c := &v.chain
	switch {
	case e.Seq == c.seq+1:
	case e.Seq > c.seq+1:
		v.gapped("", c.seq+1, e.Seq-1, entry, "The events %d to %d are missing before it.", c.seq+1, e.Seq-1)
	default:
		if !v.filled("", e.Seq) && whole {
			v.segmentBad(Doubled, entry, "There is another event of that number.")
		}
		return
	}
	c.seq = e.Seq
	// Time alone proves nothing (clocks step); it only says which word fits when a
	// checkpoint does not.
	if e.At.Before(c.at) && v.seals.back == "" {
		v.seals.back, v.seals.backLine = entry, v.n
	}
	c.at = e.At
}

// gapped reports a gap, which may turn out to be a change of order.
func (v *verifier) gapped(operation string, from, to int64, entry, format string, args ...any) {
	place := v.segmentBad(Missing, entry, format, args...)
	v.chain.gaps = append(v.chain.gaps, gap{from: from, to: to, place: place, operation: operation})
}

// filled reports whether a number was passed over before and comes now: then
// nothing is missing there, but the order is another.
func (v *verifier) filled(operation string, n int64) bool {
	for _, g := range v.chain.gaps {
		if g.operation == operation && g.from <= n && n <= g.to {
			v.become(g.place, Reordered, "It stands before what happened before it (line %d).", v.n)
			return true
		}
	}
	return false
}

// segmentBad is a finding that explains why the next checkpoint does not fit.
func (v *verifier) segmentBad(kind Kind, entry, format string, args ...any) (place int) {
	v.seals.explained = true
	return v.bad(kind, entry, format, args...)
}

// seals is what is known of the checkpoints read so far.
type seals struct {
	last   ledger.Checkpoint
	byN    map[int64]string // hashes
	hashes []ledger.Event   // of the events behind the last checkpoint; Hash only
	// explained: something is wrong with these events already.
	explained bool
	// back is the first of them whose time lies before that of its neighbour.
	back     string
	backLine int
	// unverified are checkpoints whose key is not known.
	unverified []unverified
	// tail is the place of the finding about a checkpoint that covers events that
	// were not there yet; cut says that there is one.
	tail int
	cut  bool
}

// unverified is a checkpoint whose key is not known.
type unverified struct {
	n    int64
	line int
}

func (s *seals) begin(h Header) {
	s.byN = map[int64]string{}
	s.last = h.After
	if h.After.N > 0 {
		s.byN[h.After.N] = h.After.Hash
	}
}

// late turns a tail that was thought to be cut off into one that stands too late.
func (v *verifier) late(e ledger.Event) {
	if s := &v.seals; s.cut && e.Seq <= s.last.Seq {
		v.become(s.tail, Reordered, "It stands before events that it covers.")
		s.cut, s.explained = false, true
	}
}

// checkpoint checks one checkpoint: it is whole, follows the one before, covers
// exactly the events and guard rows that stand here, and is signed.
func (v *verifier) checkpoint(c ledger.Checkpoint) {
	s := &v.seals
	entry := fmt.Sprintf("checkpoint %d", c.N)
	fits := false
	switch {
	case c.Digest() != c.Hash || c.Ledger != v.header.Ledger:
		v.bad(Altered, entry, "It is not what was signed.")
	case c.N <= s.last.N:
		v.bad(Reordered, entry, "It stands behind checkpoint %d.", s.last.N)
	case c.N > s.last.N+1:
		v.bad(Missing, entry, "The checkpoints %d to %d are missing before it.", s.last.N+1, c.N-1)
	case c.Prev != s.last.Hash || c.After != s.last.Seq:
		v.bad(Rewritten, entry, "It does not follow checkpoint %d as that stands here.", s.last.N)
	default:
		fits = true
	}
	if fits {
		v.covers(c, entry)
	}
	v.heads(c, entry)
	v.signature(c)
	s.byN[c.N] = c.Hash
	s.last, s.hashes, s.explained, s.back = c, s.hashes[:0], false, ""
}

// covers compares the events behind the checkpoint before with what this one says.
func (v *verifier) covers(c ledger.Checkpoint, entry string) {
	s := &v.seals
	switch {
	case c.Seq > v.chain.seq:
		if !s.explained {
			s.cut, s.tail = true, v.bad(TailCut, entry, "It covers the events up to %d; the last one here is %d.", c.Seq, v.chain.seq)
		}
	case c.Seq < v.chain.seq && !s.explained:
		v.bad(Reordered, entry, "It covers the events up to %d, and stands behind event %d.", c.Seq, v.chain.seq)
	case ledger.EventsDigest(s.hashes) == c.Events || s.explained:
	case s.back != "":
		v.badAt(s.backLine, Reordered, s.back, "Checkpoint %d vouches for these events in another order; this one is older than the one before it.", c.N)
	default:
		v.bad(Rewritten, entry, "It vouches for other events than those that stand before it (%d to %d): whole as they are, they were written later.", c.After+1, c.Seq)
	}
}

// heads compares the guard rows with what a checkpoint says of them.
func (v *verifier) heads(c ledger.Checkpoint, entry string) {
	for tenant, sealed := range c.Guards {
		hash, there := v.guards.hashes[tenant][sealed.Epoch]
		switch {
		case sealed.Epoch == 0 && sealed.Hash == "":
		case !there:
			v.bad(TailCut, entry, "It covers the guard row %d of tenant %s, which is not here.", sealed.Epoch, tenant)
		case hash != sealed.Hash:
			v.bad(Rewritten, entry, "It vouches for another guard row %d of tenant %s.", sealed.Epoch, tenant)
		}
		if before, ok := v.seals.last.Guards[tenant]; ok && before.Epoch > sealed.Epoch {
			v.bad(Rewritten, entry, "The guard row of tenant %s goes back from %d to %d.", tenant, before.Epoch, sealed.Epoch)
		}
	}
	for tenant := range v.seals.last.Guards {
		if _, ok := c.Guards[tenant]; !ok {
			v.bad(Rewritten, entry, "It does not cover the guard row of tenant %s, which the one before did.", tenant)
		}
	}
}

// signature checks who signed a checkpoint. Keys are dropped in time; what they
// signed is covered by the hash in a later checkpoint.
func (v *verifier) signature(c ledger.Checkpoint) {
	switch err := checkSignature(v.keys, c); {
	case err == nil:
		v.report.Covered += len(v.seals.unverified)
		v.seals.unverified = nil
	case errors.Is(err, tokens.ErrUnknownKey):
		v.seals.unverified = append(v.seals.unverified, unverified{c.N, v.n})
	default:
		v.bad(BadSignature, fmt.Sprintf("checkpoint %d", c.N), "Its signature is not over this checkpoint.")
	}
}

// closeSeals says what the last checkpoint leaves open.
func (v *verifier) closeSeals() {
	s := &v.seals
	v.report.Sealed = markOf(s.last)
	v.report.Unsealed = max(0, v.chain.seq-s.last.Seq)
	for _, c := range s.unverified {
		v.badAt(c.line, BadSignature, fmt.Sprintf("checkpoint %d", c.n), "It was signed by a key that is not in the key set, and no later checkpoint with a good signature covers it.")
	}
	switch {
	case s.last.N == 0:
		v.report.note("There is no checkpoint: only the chain of each operation is proven, not that none is missing.")
	case v.report.Unsealed > 0:
		v.report.note("The last %d events are not covered by a checkpoint yet.", v.report.Unsealed)
	}
}

func markOf(c ledger.Checkpoint) Mark { return Mark{N: c.N, Seq: c.Seq, Hash: c.Hash, At: c.At} }
