package audit

import (
	"fmt"
	"time"
)

// Kind says what is wrong with an entry.
type Kind string

const (
	// Altered: an entry is not what was written.
	Altered Kind = "altered"
	// Missing: an entry that must be there is not.
	Missing Kind = "missing"
	// Reordered: entries stand in another order than that in which they happened.
	Reordered Kind = "reordered"
	// TailCut: what came last is gone.
	TailCut Kind = "tail_cut"
	// Rewritten: entries are whole in themselves, but not those that a checkpoint or
	// an anchor vouches for.
	Rewritten Kind = "rewritten"
	// RolledBackKind: an anchor holds checkpoints that are newer than all here: it is
	// an old copy, or everything behind a point was cut off.
	RolledBackKind Kind = "rolled_back"
	// BadSignature: a signature is not that of a key that may sign.
	BadSignature Kind = "bad_signature"
	// Doubled: two events for one version of an operation, or one twice.
	Doubled Kind = "doubled"
	// Forbidden: a move that the table of states does not allow.
	Forbidden Kind = "forbidden"
	// RowDiffers: an operation's row is not what its last event says.
	RowDiffers Kind = "row_differs"
	// AnchorBroken: the anchor itself is not whole.
	AnchorBroken Kind = "anchor_broken"
)

// Finding is one bad entry.
type Finding struct {
	Kind Kind `json:"kind"`
	// In is where it stands: the export, or the anchor.
	In string `json:"in"`
	// Line of it, from 1.
	Line int `json:"line"`
	// Entry names it: "event 17 of op_…".
	Entry string `json:"entry"`
	// Text says what is wrong, in a sentence.
	Text string `json:"text"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s line %d, %s: %s", f.Kind, f.In, f.Line, f.Entry, f.Text)
}

// Where a finding stands. In this order they are listed.
const (
	inExport = "export"
	inAnchor = "anchor"
)

// Recovered tells of a recovery that the ledger or an anchor knows of.
type Recovered struct {
	Recovery
	// Anchored: it stands in the anchor that was given.
	Anchored bool `json:"anchored"`
}

// Report is what Verify found.
type Report struct {
	// OK: nothing is wrong. Findings are otherwise in the order of the file, the
	// anchor's behind them; at most MaxFindings.
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
	// More counts further findings that are not listed.
	More int `json:"more,omitempty"`

	Ledger string           `json:"ledger"`
	MadeAt time.Time        `json:"made_at"`
	Since  time.Time        `json:"since,omitzero"`
	Counts map[string]int64 `json:"counts"`
	// Sealed is the newest checkpoint of the export, and Newest the newest event.
	Sealed Mark  `json:"sealed"`
	Newest int64 `json:"newest_event"`
	// Unsealed counts events that no checkpoint covers yet: their order and their
	// number are not proven, each chain is.
	Unsealed int64 `json:"unsealed_events"`
	// Covered counts checkpoints whose key is not published any more. The hash of a
	// later one, whose signature was verified, covers them.
	Covered int `json:"checkpoints_covered_by_later"`
	// Trusted: the keys were given, and not taken from the export itself.
	Trusted bool `json:"keys_were_given"`
	// Anchored is the newest checkpoint of the anchor, when one was given.
	Anchored   *Mark       `json:"anchored,omitempty"`
	Recoveries []Recovered `json:"recoveries,omitempty"`
	// Notes are what a reader should know that is not wrong.
	Notes []string `json:"notes,omitempty"`
}

// Mark names a checkpoint.
type Mark struct {
	N    int64     `json:"n"`
	Seq  int64     `json:"seq"`
	Hash string    `json:"hash"`
	At   time.Time `json:"at,omitzero"`
}

// MaxFindings bounds the list of findings.
const MaxFindings = 100

// add puts a finding into the list and gives its place; below zero when the list
// is full.
func (r *Report) add(f Finding) int {
	if len(r.Findings) >= MaxFindings {
		r.More++
		return -1
	}
	r.Findings = append(r.Findings, f)
	return len(r.Findings) - 1
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// First is the first bad entry; false when nothing is wrong.
func (r Report) First() (Finding, bool) {
	if len(r.Findings) == 0 {
		return Finding{}, false
	}
	return r.Findings[0], true
}
