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
	// Goal reads the newest operation that was opened with a goal; a zero Head
	// when none.
	Goal(ctx context.Context, tenant string, goal tools.Goal) (Head, error)
	// RunHead reads how a run stands; a zero RunHead with its names when nothing
	// was opened in it.
	RunHead(ctx context.Context, tenant, agent, run string) (RunHead, error)
	// Runs lists a tenant's runs, newest operation first, by keyset paging.
	Runs(ctx context.Context, f RunFilter) (RunPage, error)
	// RejectedAsk finds the newest rejected operation, not reopened, with these
	// args by this agent.
	RejectedAsk(ctx context.Context, tenant, tool, argsDigest, agent string) (Operation, error)

	// Guard reads the tenant's guard row; epoch 0 when it was never written.
	Guard(ctx context.Context, tenant string) (Guard, error)
	// ChangeGuard writes it if its epoch is still the expected one, else
	// *Refused (EpochMoved). Once acknowledged, no Open or Apply that carries an
	// older epoch commits. It returns the operations that are running now.
	ChangeGuard(ctx context.Context, c GuardChange) ([]Operation, error)
	// GuardHistory reads every guard row of the tenant behind an epoch, oldest
	// first, at most limit.
	GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]Guard, error)
	// Tenants lists the tenants that have a guard row, in order.
	Tenants(ctx context.Context) ([]string, error)

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
	// Defer moves the claim on an operation, if it still stands at that version,
	// to another end. It serves liveness only and fails in silence.
	Defer(ctx context.Context, kind DueKind, op Operation, until time.Time) error

	Operation(ctx context.Context, tenant, id string) (Operation, error)
	// Plan reads the plan of one round.
	Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error)
	Decisions(ctx context.Context, tenant, operation string) ([]Decision, error)
	Evidence(ctx context.Context, tenant, operation string) ([]Evidence, error)
	Events(ctx context.Context, tenant, operation string) ([]Event, error)
	// EventsAfter reads all events of the tenant behind seq, in commit order
	// without gaps, at most limit.
	EventsAfter(ctx context.Context, tenant string, seq int64, limit int) ([]Event, error)
	// AllEventsAfter is EventsAfter over all tenants, for seals and exports.
	AllEventsAfter(ctx context.Context, seq int64, limit int) ([]Event, error)
	// Seal appends a checkpoint; *Refused (CheckpointMoved) unless it follows the
	// newest one. One that is there already is answered as applied.
	Seal(ctx context.Context, c Checkpoint) error
	// Checkpoints reads those behind n, oldest first, at most limit.
	Checkpoints(ctx context.Context, n int64, limit int) ([]Checkpoint, error)
	// LastCheckpoint reads the newest; a zero Checkpoint when there is none.
	LastCheckpoint(ctx context.Context) (Checkpoint, error)
	// Tally counts the tenant's operations for the measures.
	Tally(ctx context.Context, tenant string) (Tally, error)
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
	// Moves are transitions of operations that are there already, in the same
	// write: the parents of undos.
	Moves []Move
	// CloseRun closes a run, if it stands as it was evaluated; nothing is opened
	// in it afterwards.
	CloseRun *RunHead
}

// Move is one compare-and-swap with its event, beside the main row of a write.
// One that is lost fails the write with *Lost, whose Current is its row.
type Move struct {
	// Operation is the new row; its Version is Expect+1.
	Operation Operation
	Expect    int64
	Event     Event
}

// RunHead is how a run stands. Runs belong to (tenant, agent).
type RunHead struct {
	Tenant string `json:"tenant"`
	Agent  string `json:"agent"`
	ID     string `json:"id"`
	// Operations counts what was opened in it, undos not counted.
	Operations int `json:"operations"`
	// Newest is when the newest of them was opened.
	Newest time.Time `json:"newest,omitzero"`
	// ClosedAt is set by the undo of the run; Closing names the preview of that
	// undo.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	ClosedBy Actor     `json:"closed_by,omitzero"`
	Closing  string    `json:"closing,omitempty"`
}

// Closed reports that nothing is opened in it any more.
func (r RunHead) Closed() bool { return !r.ClosedAt.IsZero() }

// RunFilter selects runs; Tenant is required.
type RunFilter struct {
	Tenant string
	Agent  string
	Cursor string
	Limit  int // 1 to 200; 0 means 50
}

// RunPage is one page of runs.
type RunPage struct {
	Runs []RunHead
	Next string
}

// Tally counts a tenant's operations.
type Tally struct {
	// States counts by state, OnList what waits on the people's list.
	States map[State]int64
	OnList int64
	// Effects counts operations, each one (key, generation), with a confirmed
	// effect; Duplicates those with more than one effect id.
	Effects    int64
	Duplicates int64
	// Doubts counts operations that ever entered reconciliation, Reconciled those
	// that the reconciler brought to their end.
	Doubts     int64
	Reconciled int64
	// OldestUnknown is the earliest FirstUnknownAt of what is unknown now; zero
	// when nothing is.
	OldestUnknown time.Time
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
	// GoalHead is the newest holder of the operation's goal that was evaluated,
	// compared like Head; only where the operation has a goal.
	GoalHead Head
	// OpenRun refuses the write when the operation's run is closed, or when
	// something that is not void stands under another tool or key at its place
	// there (Run.Complete).
	OpenRun bool
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
	// Also are moves of other operations in the same write: the parent of an
	// undo that ends.
	Also []Move
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
	// DueDoubt: unknown and not on the people's list, AskAt reached.
	DueDoubt DueKind = "doubt"
)

// DueQuery asks for work.
type DueQuery struct {
	Kind  DueKind
	Now   time.Time
	Limit int
	Owner string
	Until time.Time
	// Except names tools whose operations are left alone: whoever asks can't take
	// up more of them now, and what is claimed in vain waits for its claim's end.
	Except []string
}

// Filter selects operations; empty fields select all. Tenant is required.
type Filter struct {
	Tenant string
	States []State
	Tool   string
	Key    string
	Agent  string
	Run    string
	// Place selects what an agent (Agent is required) opened at one place of a run;
	// undos are at none.
	Place  *Run
	Args   string // args digest
	OnList *bool
	// Parent selects the undos of one operation, Undo all undos (true) or none
	// (false).
	Parent string
	Undo   *bool
	// Goal selects what was opened with a goal.
	Goal *tools.Goal
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
	EpochMoved      Why = "epoch_moved"      // the guard row changed
	HeadMoved       Why = "head_moved"       // another generation, or the head's operation moved
	GoalMoved       Why = "goal_moved"       // another holder, or the holder moved
	RunClosed       Why = "run_closed"       // the run takes nothing more
	RunMoved        Why = "run_moved"        // the run grew or was closed since
	PlaceTaken      Why = "place_taken"      // another call stands at that place of the run
	CheckpointMoved Why = "checkpoint_moved" // another checkpoint was first
	PreviewGone     Why = "preview_gone"     // never stored, or swept away
	PreviewExpired  Why = "preview_expired"  // past its life at the write
	TooLate         Why = "too_late"         // past NotAfter
	AlreadyDecided  Why = "already_decided"  // this person, this round
)

// Refused: a condition does not hold; nothing was written.
type Refused struct{ Why Why }

func (e *Refused) Error() string { return "ledger: refused: " + string(e.Why) }

// Ambiguous: the store's answer was lost.
type Ambiguous struct{ Err error }

func (e *Ambiguous) Error() string { return "ledger: ambiguous: " + e.Err.Error() }
func (e *Ambiguous) Unwrap() error { return e.Err }
