package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/ledger"
)

// Record is one entry of an anchor.
type Record struct {
	Checkpoint ledger.Checkpoint `json:"checkpoint"`
	// Recovery is a JWS over a Recovery. It stands with the first checkpoint that
	// was made after a restore, and says why checkpoints before this record are not
	// in the ledger any more.
	Recovery string `json:"recovery,omitempty"`
}

// Anchor is a place outside the store that keeps checkpoints: who rewrites the
// ledger, or puts back an older one, would have to change it too.
type Anchor interface {
	// Name is how people know it, without secrets.
	Name() string
	// Append adds a record behind the others, durable when it returns nil. The same
	// record again changes nothing. ErrForked: it does not follow the newest one.
	Append(ctx context.Context, r Record) error
	// Last reads the newest record, the one that was appended last; false when there
	// is none. ErrWriteOnly: this kind of anchor can't be read by the gateway.
	Last(ctx context.Context) (Record, bool, error)
}

// ErrWriteOnly: the anchor is read by people and other machines, not by us.
var ErrWriteOnly = errors.New("the anchor can't be read from here")

// ErrForked: the anchor's newest checkpoint is not one that this one follows.
var ErrForked = errors.New("the anchor holds another checkpoint in that place")

// anchorTimeout bounds one exchange with an anchor.
const anchorTimeout = 10 * time.Second

// Standing is how an anchor stands to the ledger.
type Standing string

const (
	// Agrees: the ledger has the anchor's newest checkpoint.
	Agrees Standing = "agrees"
	// Empty: nothing was anchored there yet.
	Empty Standing = "empty"
	// Ahead: the anchor's newest checkpoint is newer than any of the ledger.
	Ahead Standing = "ahead"
	// Forked: the ledger has another checkpoint of that number.
	Forked Standing = "forked"
	// Foreign: the anchor is another ledger's.
	Foreign Standing = "foreign"
	// Unreadable: it could not be read now.
	Unreadable Standing = "unreadable"
	// WriteOnly: nobody can read it from here.
	WriteOnly Standing = "write_only"
)

// RolledBack reports that the anchor proves that the ledger is not what it was.
func (s Standing) RolledBack() bool { return s == Ahead || s == Forked }

// Comparison is what one anchor says about the ledger.
type Comparison struct {
	Anchor   string
	Standing Standing
	// Record is the anchor's newest, where it could be read.
	Record Record
	// Newest is the ledger's newest checkpoint.
	Newest ledger.Checkpoint
	// Ledger is the ledger's id.
	Ledger string
	Err    error // of an unreadable one
}

// Compare holds every anchor against the ledger. An error is the store's.
func Compare(ctx context.Context, store Source, ledgerID string, anchors []Anchor) ([]Comparison, error) {
	var all []Comparison
	for _, a := range anchors {
		c, err := compare(ctx, store, ledgerID, a)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func compare(ctx context.Context, store Source, ledgerID string, a Anchor) (Comparison, error) {
	c := Comparison{Anchor: a.Name(), Ledger: ledgerID}
	var there bool
	c.Err = within(ctx, anchorTimeout, func(ctx context.Context) (err error) {
		c.Record, there, err = a.Last(ctx)
		return err
	})
	// The ledger is read after the anchor: what was sealed in between is not ahead.
	newest, err := store.LastCheckpoint(ctx)
	if err != nil {
		return c, ledger.StoreFault(err)
	}
	c.Newest = newest
	anchored := c.Record.Checkpoint
	if c.Err == nil && there && anchored.Digest() != anchored.Hash {
		c.Err = errors.New("its newest checkpoint is not what its hash says")
	}
	switch {
	case errors.Is(c.Err, ErrWriteOnly):
		c.Standing, c.Err = WriteOnly, nil
	case c.Err != nil:
		c.Standing = Unreadable
	case !there:
		c.Standing = Empty
	case anchored.Ledger != ledgerID:
		c.Standing = Foreign
	case anchored.N > newest.N:
		c.Standing = Ahead
	default:
		ours, found, err := checkpointNumbered(ctx, store, anchored.N)
		if err != nil {
			return c, ledger.StoreFault(err)
		}
		c.Standing = Agrees
		if !found || ours.Hash != anchored.Hash {
			c.Standing = Forked
		}
	}
	return c, nil
}

// Refusal says in plain sentences why a gateway must not start on this ledger;
// nil when it may. Unreadable anchors refuse too (I20), unless that is waived.
func Refusal(all []Comparison, waiveUnreadable bool) error {
	var why []string
	rolledBack := false
	for _, c := range all {
		switch {
		case c.Standing.RolledBack() || c.Standing == Foreign, c.Standing == Unreadable && !waiveUnreadable:
			why = append(why, c.String())
			rolledBack = rolledBack || c.Standing.RolledBack()
		}
	}
	switch {
	case len(why) == 0:
		return nil
	case rolledBack:
		why = append(why, "Nothing is started, for what was done after that copy would be done again. If the ledger was put back on purpose, "+
			"run `countersign recover --restored`: it puts what was open in doubt, voids all tokens and freezes everything. Else put the right ledger back.")
	default:
		why = append(why, "Nothing is started on a ledger that its anchors can't vouch for.")
	}
	return errors.New(strings.Join(why, "\n"))
}

// String tells what the anchor says, in a sentence.
func (c Comparison) String() string {
	a, n := c.Record.Checkpoint, c.Newest
	ours := "has none"
	if n.N > 0 {
		ours = fmt.Sprintf("ends at checkpoint %d of %s", n.N, n.At.UTC().Format(time.RFC3339))
	}
	theirs := fmt.Sprintf("checkpoint %d of %s", a.N, a.At.UTC().Format(time.RFC3339))
	switch c.Standing {
	case Agrees:
		return fmt.Sprintf("The anchor %s holds %s, and so does the ledger.", c.Anchor, theirs)
	case Empty:
		return fmt.Sprintf("The anchor %s is empty.", c.Anchor)
	case Ahead:
		return fmt.Sprintf("The ledger is older than its anchor: %s holds %s, and the ledger %s. It is an old copy, or its end was cut off.", c.Anchor, theirs, ours)
	case Forked:
		return fmt.Sprintf("The ledger is not the one that was anchored: %s holds %s with the hash %.12s, and the ledger has another of that number. It was rewritten, or went on from an old copy.", c.Anchor, theirs, a.Hash)
	case Foreign:
		return fmt.Sprintf("The anchor %s belongs to another ledger: to %s, and this one is %s. Put the right ledger back, or name an anchor of its own for this one.", c.Anchor, a.Ledger, c.Ledger)
	case WriteOnly:
		return fmt.Sprintf("The anchor %s can't be read from here.", c.Anchor)
	default:
		return fmt.Sprintf("The anchor %s can't be read: %v.", c.Anchor, c.Err)
	}
}

// follows says whether a record may stand behind the last one: nil, or ErrForked.
func follows(last, next Record) error {
	a, b := last.Checkpoint, next.Checkpoint
	if a.Ledger != b.Ledger || next.Recovery == "" && (b.N != a.N+1 || b.Prev != a.Hash) {
		return fmt.Errorf("%w: it ends at %d (%.12s), and %d follows %.12s", ErrForked, a.N, a.Hash, b.N, b.Prev)
	}
	return nil
}

// sameRecord reports that a record stands there already.
func sameRecord(a, b Record) bool {
	return a.Checkpoint.Hash == b.Checkpoint.Hash && a.Recovery == b.Recovery
}
