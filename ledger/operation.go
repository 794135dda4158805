package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"countersign/tools"
)

// Operation is the ledger's record of one intent, born at commit and unique by
// (tenant, tool, key, generation). Args, tool version and target are fixed at
// open; plan, basis and effects belong to the round.
type Operation struct {
	ID          string `json:"id"`
	Tenant      string `json:"tenant"`
	Tool        string `json:"tool"`
	ToolVersion string `json:"tool_version"`
	Key         string `json:"key"`
	KeyDigest   string `json:"key_digest"`
	Generation  int    `json:"generation"`
	UpstreamKey string `json:"upstream_key"`
	State       State  `json:"state"`
	// Version is raised by one with each transition; every write compares it.
	Version int64 `json:"version"`
	// Fence is raised with each dispatch; a late worker fails on it.
	Fence int64 `json:"fence"`

	Agent tools.Agent `json:"agent"`
	// RequestID is that of the commit that opened the operation.
	RequestID string `json:"request_id"`
	Run       *Run   `json:"run,omitempty"`
	PreviewID string `json:"preview_id"`
	TokenID   string `json:"token_id"`

	ArgsDigest string `json:"args_digest"`
	Target     string `json:"target"`
	Headline   string `json:"headline"`
	Reversible bool   `json:"reversible"`

	// Round counts the plans that people were asked about, from 1.
	Round      int    `json:"round"`
	PlanDigest string `json:"plan_digest"`
	// Requirement is what people must say before dispatch, as pinned for this
	// round.
	Requirement Requirement `json:"requirement"`
	// ExpiresAt is when the round ends, decided or not, if it was not sent by
	// then. Where nobody is asked it is zero, until a try was not sent.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// ApprovedAt is when the quorum became full.
	ApprovedAt time.Time `json:"approved_at,omitzero"`
	// Withdrawn: somebody took a yes back; dispatch is refused until revised.
	Withdrawn bool `json:"withdrawn,omitempty"`

	Attempts   []Attempt `json:"attempts,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// NotBefore delays the next try of a pending operation.
	NotBefore time.Time `json:"not_before,omitzero"`

	EffectID string         `json:"effect_id,omitempty"`
	Result   map[string]any `json:"result,omitempty"`
	Reason   *Reason        `json:"reason,omitempty"`
	Adopted  bool           `json:"adopted,omitempty"`
	// OnList: only a person can move it on.
	OnList       bool      `json:"on_list,omitempty"`
	UnknownSince time.Time `json:"unknown_since,omitzero"`
	// Reopened: a rejected ask that may be asked again.
	Reopened bool   `json:"reopened,omitempty"`
	AgainOf  string `json:"again_of,omitempty"`
	// Goal is what several alternative tools would achieve; at most one
	// operation that carries it takes effect.
	Goal *tools.Goal `json:"goal,omitempty"`

	// Parent is the operation that this one takes back; set for an undo only.
	Parent string `json:"parent,omitempty"`
	// After is the undo that must have succeeded before this one is dispatched,
	// Next the one that waits for this one; set in the undo of a run.
	After string `json:"after,omitempty"`
	Next  string `json:"next,omitempty"`
	// Child is the newest undo of this operation.
	Child string `json:"child,omitempty"`
	// AskedBy is who asked for it, when it was not the agent: an operator who
	// wants an effect taken back.
	AskedBy *Actor `json:"asked_by,omitempty"`

	// AskAt is when the doubt of an unknown operation is looked at next; zero
	// once only people can move it.
	AskAt time.Time `json:"ask_at,omitzero"`
	// FirstUnknownAt is the first time that it was in doubt (R143).
	FirstUnknownAt time.Time `json:"first_unknown_at,omitzero"`
	// Doubt says how a doubt about it went on (R144).
	Doubt Doubt `json:"doubt,omitempty"`
	// Trace is the W3C traceparent of the commit that opened it.
	Trace string `json:"trace,omitempty"`
	// EvidenceBoundary is "live", or "drill" for synthetic data (R139).
	EvidenceBoundary string `json:"evidence_boundary"`

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	FinalAt   time.Time `json:"final_at,omitzero"`

	// Chain is the hash of the newest event; WriteID the newest write's.
	Chain   string `json:"chain"`
	WriteID string `json:"write_id"`
}

// Run places a call within an agent's run. The agent's own words: scoped to
// (tenant, agent), never trusted for rights (S17).
type Run struct {
	ID   string `json:"id"`
	Step string `json:"step,omitempty"`
	Call string `json:"call,omitempty"`
}

// Complete reports that it names one call of a run: a place at which one intent
// stands.
func (r *Run) Complete() bool { return r != nil && r.ID != "" && r.Step != "" && r.Call != "" }

// Requirement is the policy's verdict on one plan.
type Requirement struct {
	Outcome string         `json:"outcome"` // auto, approve, deny
	Groups  map[string]int `json:"groups,omitempty"`
	Rule    string         `json:"rule"`   // which rule spoke, in words
	Digest  string         `json:"digest"` // of the rules that were read
	// Expiry is how long a round waits; MaxAge how old the last yes may be at
	// dispatch.
	Expiry time.Duration `json:"expiry,omitempty"`
	MaxAge time.Duration `json:"max_age,omitempty"`
}

// Asks reports that people must say yes before dispatch.
func (r Requirement) Asks() bool { return r.Outcome == tools.OutcomeApprove }

// Attempt is one numbered dispatch.
type Attempt struct {
	N     int   `json:"n"`
	Fence int64 `json:"fence"`
	// MarkedAt is when the dispatch mark was made; Deadline the latest moment
	// for the first byte.
	MarkedAt time.Time `json:"marked_at"`
	Deadline time.Time `json:"deadline"`
	// Proof is what is proven about this attempt; empty while nothing is.
	Proof tools.Verdict `json:"proof,omitempty"`
	// Presumed: after a restore, an attempt that the lost part of the ledger may
	// have made.
	Presumed bool `json:"presumed,omitempty"`
}

// Doubt is how a doubt about an operation went on.
type Doubt string

const (
	// DoubtNone: it was never in reconciliation.
	DoubtNone Doubt = ""
	// DoubtEntered: the reconciler asks, or asked and gave up.
	DoubtEntered Doubt = "entered"
	// DoubtReconciled: the reconciler brought it to its end.
	DoubtReconciled Doubt = "reconciled"
	// DoubtElsewhere: late evidence or a person ended it.
	DoubtElsewhere Doubt = "elsewhere"
)

// Touched reports that some attempt is not proven unsent: the operation may
// have had an effect.
func (o Operation) Touched() bool {
	for _, a := range o.Attempts {
		if a.Proof != tools.NotSent {
			return true
		}
	}
	return false
}

// Overdue reports that the operation waits and its time is over.
func (o Operation) Overdue(now time.Time) bool {
	return (o.State == AwaitingApproval || o.State == Pending) && !o.ExpiresAt.IsZero() && !now.Before(o.ExpiresAt)
}

// Retries is the number of dispatches after the first (the trace's
// retry_count).
func (o Operation) Retries() int { return max(0, len(o.Attempts)-1) }

// Reason says why an operation ended or is in doubt: a stable code and one
// sentence.
type Reason struct {
	Code string `json:"code"` // not_sent, refused_upstream, no_answer, lease_lost, rejected, expired, …
	Text string `json:"text,omitempty"`
}

// Actor is who made a move.
type Actor struct {
	Kind string `json:"kind"` // agent, operator, gateway
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Gateway is the actor of moves that no principal made.
func Gateway(part string) Actor { return Actor{Kind: "gateway", ID: part, Name: part} }

// Decision is one person's word on one round, append-only.
type Decision struct {
	Operation string `json:"operation"`
	Round     int    `json:"round"`
	Person    string `json:"person"`
	Name      string `json:"name"`
	Verb      Verb   `json:"verb"` // approve, reject, withdraw
	// Groups are the person's groups when deciding.
	Groups []string `json:"groups,omitempty"`
	// Digest is what the person was shown.
	Digest string    `json:"digest"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Evidence is what proves an outcome. It is appended in any state and never
// refused.
type Evidence struct {
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Attempt   int    `json:"attempt,omitempty"` // 0: about all attempts that Covers counts
	// Covers is how many attempts there were when evidence about all of them was
	// given; it says nothing of a later one. 0 means all there are.
	Covers int    `json:"covers,omitempty"`
	Kind   string `json:"kind"` // response, lookup, statement, adoption
	// Verdict is what it proves.
	Verdict tools.Verdict `json:"verdict"`
	// Answer is what a lookup said, word for word; only for lookups.
	Answer   tools.AnswerKind `json:"answer,omitempty"`
	EffectID string           `json:"effect_id,omitempty"`
	Result   map[string]any   `json:"result,omitempty"`
	Because  string           `json:"because,omitempty"`
	By       Actor            `json:"by"`
	Seen     tools.Exchange   `json:"seen,omitzero"`
	At       time.Time        `json:"at"`
}

// Manifest is a tool version kept with the operations that finish on it.
type Manifest struct {
	Version     string `json:"version"`
	Text        []byte `json:"text"`
	Upstream    string `json:"upstream"`
	UpstreamURL string `json:"upstream_url"`
}

// Preview is the stored answer of phase one.
type Preview struct {
	ID          string      `json:"id"`
	Tenant      string      `json:"tenant"`
	Agent       string      `json:"agent"`
	Tool        string      `json:"tool"`
	ToolVersion string      `json:"tool_version"`
	Key         string      `json:"key"`
	Generation  int         `json:"generation"`
	AgainOf     string      `json:"again_of,omitempty"`
	ArgsDigest  string      `json:"args_digest"`
	PlanDigest  string      `json:"plan_digest"`
	Plan        tools.Plan  `json:"plan"`
	Requirement Requirement `json:"requirement"`
	Run         *Run        `json:"run,omitempty"`
	// Parent is the operation that this preview would take back, with its
	// version as previewed.
	Parent        string `json:"parent,omitempty"`
	ParentVersion int64  `json:"parent_version,omitempty"`
	// Undoes are the previews of a run's undo, in the order of their dispatch;
	// such a preview has no plan of its own, and PlanDigest names the list.
	Undoes    []string  `json:"undoes,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// KeyDigest is how a key appears in tokens and indexes.
func KeyDigest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// frame joins texts so that no two lists give the same bytes: each is preceded
// by its length.
func frame(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func itoa(n int) string { return strconv.Itoa(n) }
