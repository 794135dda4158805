package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"countersign/tools"
)

// Store keeps rows and compares; it knows no rule. Go decides what a write
// means, the store decides whether it still may happen.
//
// Every write is atomic: all of it or nothing. Each carries a fresh write id;
// the same write id a second time is answered as applied and changes nothing. A
// write returns
//
//   - nil: applied and durable;
//   - *Lost: the row moved on; Current is what stands there now;
//   - *Refused: a condition does not hold; nothing was written;
//   - *Ambiguous: the store can't tell. The caller looks for its write id and
//     never acts on a guess;
//   - any other error: certainly nothing was written (ErrDiskFull, or the
//     store can't be reached).
//
// A cancelled context before the write is queued means nothing was written;
// afterwards the write runs to its end, and the caller who left gets Ambiguous.
// Reads come from the primary and see every applied write. ErrNotFound answers
// a read of what is not there, also of another tenant's (I17).
//
// store/storetest is this contract as tests; every store passes it.
type Store interface {
	// LedgerID returns the ledger's id, storing candidate on first use.
	LedgerID(ctx context.Context, candidate string) (string, error)

	// PutPreview stores a preview. It may be lost after it expired.
	PutPreview(ctx context.Context, p Preview) error
	// Preview reads one back, expired or not, until it is swept away.
	Preview(ctx context.Context, tenant, id string) (Preview, error)
	// CountPreviews counts an agent's unexpired previews at now.
	CountPreviews(ctx context.Context, tenant, agent string, now time.Time) (int, error)
	// SweepPreviews deletes previews that expired before the time.
	SweepPreviews(ctx context.Context, before time.Time) error

	// Head reads the newest generation under a key; a zero Head when none.
	Head(ctx context.Context, tenant, tool, key string) (Head, error)
	// Generation reads the operation of one generation under a key, given as
	// KeyDigest: a commit token carries the digest, never the key.
	Generation(ctx context.Context, tenant, tool, keyDigest string, generation int) (Operation, error)
	// RejectedAsk finds the newest rejected operation, not reopened, with these
	// args by this agent.
	RejectedAsk(ctx context.Context, tenant, tool, argsDigest, agent string) (Operation, error)

	// Guard reads the tenant's guard row; epoch 0 when it was never written.
	Guard(ctx context.Context, tenant string) (Guard, error)
	// ChangeGuard writes it if its epoch is still the expected one, else
	// *Refused (EpochMoved). Once acknowledged, no Open or Apply that carries an
	// older epoch commits. It returns the operations that are running now.
	ChangeGuard(ctx context.Context, c GuardChange) ([]Operation, error)

	// Open writes new operations with everything born with them.
	Open(ctx context.Context, o Opening) error
	// Apply writes one transition.
	Apply(ctx context.Context, t Transition) error
	// AddEvidence appends evidence once by its id, in any state of the
	// operation; it is never refused by version or fence.
	AddEvidence(ctx context.Context, tenant string, e Evidence) error

	// ByWrite gives the operation that a write id touched, as it stands now.
	ByWrite(ctx context.Context, writeID string) (Operation, error)
	// Due claims up to limit operations of a kind that are due, for owner until
	// the time. Claims serve liveness only. Those come first that have waited
	// longest since they were due or, if later, since their last claim ended: what
	// can't be moved keeps nothing behind it from being looked at.
	Due(ctx context.Context, d DueQuery) ([]Operation, error)

	Operation(ctx context.Context, tenant, id string) (Operation, error)
	// Plan reads the plan of one round.
	Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error)
	Decisions(ctx context.Context, tenant, operation string) ([]Decision, error)
	Evidence(ctx context.Context, tenant, operation string) ([]Evidence, error)
	Events(ctx context.Context, tenant, operation string) ([]Event, error)
	// EventsAfter reads all events of the tenant behind seq, in commit order
	// without gaps, at most limit.
	EventsAfter(ctx context.Context, tenant string, seq int64, limit int) ([]Event, error)
	// List reads operations by keyset paging.
	List(ctx context.Context, f Filter) (Page, error)
	// Manifest reads a tool version that some operation was opened with.
	Manifest(ctx context.Context, version string) (Manifest, error)

	// Ping reads something small, for readiness.
	Ping(ctx context.Context) error
	Close() error
}

// Opening is the birth of operations, all or none.
type Opening struct {
	WriteID string
	// Epoch is the guard epoch that was evaluated; the row must still have it.
	Epoch int64
	New   []NewOperation
}

// NewOperation is one operation with what is born with it.
type NewOperation struct {
	Operation Operation
	Plan      tools.Plan
	Manifest  Manifest
	Event     Event
	Evidence  *Evidence // of an adoption
	// Head is the head that was evaluated, compared by id and version; zero for
	// the first generation.
	Head Head
	// Preview must exist and not be expired at the time of the write.
	Preview string
	// NotAfter refuses the write when the store's clock is past it; zero means
	// no limit. It carries the age limit of the guards' reads.
	NotAfter time.Time
}

// Transition is one compare-and-swap on an operation with exactly one event.
type Transition struct {
	WriteID string
	// Operation is the new row; its Version is Expect+1.
	Operation Operation
	Expect    int64
	Event     Event
	// Epoch, when set, must still be the guard row's.
	Epoch *int64
	// NotAfter as in NewOperation.
	NotAfter time.Time
	// What may come along.
	Decision *Decision
	Evidence *Evidence
	Plan     *tools.Plan // of a new round
	// Guard is an automatic freeze in the same write: the new row, compared by
	// Epoch-1.
	Guard *Guard
}

// GuardChange is a compare-and-swap on a guard row.
type GuardChange struct {
	WriteID string
	Expect  int64
	Guard   Guard
}

// DueKind is what a background loop looks for.
type DueKind string

const (
	// DueDispatch: pending, NotBefore reached.
	DueDispatch DueKind = "dispatch"
	// DueLease: running, lease over.
	DueLease DueKind = "lease"
	// DueExpiry: awaiting approval or pending, ExpiresAt reached.
	DueExpiry DueKind = "expiry"
)

// DueQuery asks for work.
type DueQuery struct {
	Kind  DueKind
	Now   time.Time
	Limit int
	Owner string
	Until time.Time
}

// Filter selects operations; empty fields select all. Tenant is required.
type Filter struct {
	Tenant string
	States []State
	Tool   string
	Key    string
	Agent  string
	Run    string
	Args   string // args digest
	OnList *bool
	// OldestFirst turns the order round; the default is newest first.
	OldestFirst bool
	Cursor      string
	Limit       int // 1 to 200; 0 means 50
}

// Page is one page of a list.
type Page struct {
	Operations []Operation
	// Next is the cursor of the next page, empty at the end.
	Next string
}

// ErrNotFound answers a read of what is not there.
var ErrNotFound = errors.New("ledger: not found")

// ErrDiskFull: nothing was written for want of space.
var ErrDiskFull = errors.New("ledger: disk full")

// ErrBadCursor: the cursor is not one of ours.
var ErrBadCursor = errors.New("ledger: bad cursor")

// Lost: another write was first.
type Lost struct{ Current Operation }

func (e *Lost) Error() string {
	return fmt.Sprintf("ledger: lost to version %d (%s)", e.Current.Version, e.Current.State)
}

// Why says which condition of a write did not hold.
type Why string

const (
	EpochMoved     Why = "epoch_moved"     // the guard row changed
	HeadMoved      Why = "head_moved"      // another generation, or the head's operation moved
	PreviewGone    Why = "preview_gone"    // never stored, or swept away
	PreviewExpired Why = "preview_expired" // past its life at the write
	TooLate        Why = "too_late"        // past NotAfter
	AlreadyDecided Why = "already_decided" // this person, this round
)

// Refused: a condition does not hold; nothing was written.
type Refused struct{ Why Why }

func (e *Refused) Error() string { return "ledger: refused: " + string(e.Why) }

// Ambiguous: the store's answer was lost.
type Ambiguous struct{ Err error }

func (e *Ambiguous) Error() string { return "ledger: ambiguous: " + e.Err.Error() }
func (e *Ambiguous) Unwrap() error { return e.Err }
