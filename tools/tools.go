// Package tools says what a tool is: what it declares (Spec), what a call of
// it would do (Plan, Effect), and what became of it (Outcome, Answer).
//
// What lives here: those types; the manifest, its JSON Schema and its CEL
// expressions; the schema check of arguments; the Registry of the tools that
// are in force and of the older versions that operations still finish on; and
// the Connector door that every kind of upstream stands behind.
//
// How it flows: a YAML manifest is parsed and compiled once into a Tool. A
// connector turns checked arguments into a Plan without changing anything; the
// plan is stored, shown, approved and later handed back, byte for byte, to the
// same connector, which dispatches it and says what it saw as an Outcome. A
// plan is never rebuilt from arguments that were sent a second time.
//
// What does not live here: HTTP, SQL or mail (one connector each, in the
// folders below), states and keys' generations (ledger), who must approve
// (approvals/policy).
package tools

import (
	"context"
	"encoding/json"
	"time"
)

// Access says whether a tool changes anything outside.
type Access string

const (
	Read  Access = "read"
	Write Access = "write"
)

// Spec is what a tool declares about itself, compiled and checked. It never
// changes after it was built; a changed manifest is a new Spec with a new
// Version.
type Spec struct {
	Name        string
	Description string
	Access      Access
	// Version is the digest of the parsed manifest (comments don't count) and
	// the upstream's URL. Operations are pinned to it.
	Version string
	// Manifest is the YAML text that Version stands for, kept with operations
	// so that they finish on it.
	Manifest []byte
	Upstream string
	// UpstreamURL is the base address at which this version was compiled. An
	// operation is never sent to another.
	UpstreamURL string
	Reversible  bool
	// InputSchema is the JSON Schema of the arguments as shown to agents.
	InputSchema json.RawMessage
	// KeySource says where the idempotency key comes from.
	KeySource KeySource
	// KeyArgs are the arguments that the key template reads, by name and sorted;
	// only for KeyTemplate.
	KeyArgs []string
	// HonoursKey: the upstream promises at most one effect for one key, for
	// KeyRetention after the first request. Unknown counts as no.
	HonoursKey   bool
	KeyRetention time.Duration
	// Consistency says whether and how reliably the outcome of a dispatch can be
	// looked up.
	Consistency Consistency
	// MaxInFlight is how long a request that was sent may still be applied; behind
	// it "absent" can be believed. Only where the outcome can be looked up.
	MaxInFlight time.Duration
	// UndoTool is the name of the tool that reverses this one, or empty.
	UndoTool string
	// NeedsRun: the tool depends on earlier steps; calls without a run are
	// refused.
	NeedsRun bool
	// Duplicates says what a call is met with whose arguments were used under
	// another key: DuplicatesWarn (the default) or DuplicatesApprove.
	Duplicates string
	// Timeout bounds one dispatch from the first byte written to the last byte
	// read.
	Timeout time.Duration
	// Approval are the manifest's rules, first match wins; never empty for a
	// write tool (defaults are written out at load).
	Approval []ApprovalRule
	// ApprovalExpiry is how long a round waits for people; ApprovalMaxAge how
	// old the last yes may be at dispatch.
	ApprovalExpiry time.Duration
	ApprovalMaxAge time.Duration
	// Sensitive are JSON Pointers of arguments marked x-sensitive.
	Sensitive []string
	// Lacks lists, in words, what the tool does not declare (key support,
	// lookup, undo), for pages and `tool validate`.
	Lacks []string
	// Warnings are what `tool validate` says about a manifest that loads.
	Warnings []string
}

// What a tool wants done about possible duplicates.
const (
	DuplicatesWarn    = "warn"
	DuplicatesApprove = "approve"
)

// KeySource names where an idempotency key comes from.
type KeySource string

const (
	KeyTemplate   KeySource = "template" // a template over the args; the default
	KeyFromCaller KeySource = "caller"   // Idempotency-Key header or idempotency_key
	KeyFromRun    KeySource = "run"      // UUIDv5 of tenant, agent, run, step, call
)

// Consistency says whether and how reliably the upstream can be asked for an
// outcome.
type Consistency string

const (
	NoLookup Consistency = "none"
	Eventual Consistency = "eventual"
	Strong   Consistency = "strong"
)

// ApprovalRule is one compiled rule of a manifest.
type ApprovalRule struct {
	Name    string `json:"name,omitempty"`
	When    string `json:"when,omitempty"` // CEL text; empty means always
	Outcome string `json:"outcome"`        // auto, approve, deny
	// Groups: how many members of each group must say yes. The reserved group
	// "any" stands for every operator who may approve.
	Groups map[string]int `json:"groups,omitempty"`
	Reason string         `json:"reason,omitempty"` // for deny
	// Match evaluates When. An error denies.
	Match func(args map[string]any, effects []Effect, agent Agent) (bool, error) `json:"-"`
}

// Outcomes of an approval rule, from lenient to strict.
const (
	OutcomeAuto    = "auto"
	OutcomeApprove = "approve"
	OutcomeDeny    = "deny"
)

// AnyGroup stands for every operator who may approve.
const AnyGroup = "any"

// Agent is the authenticated caller as expressions see it.
type Agent struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Owner  string `json:"owner"`
	Tenant string `json:"tenant"`
}

// Key is the idempotency key of a call and what it looks like on the wire.
type Key struct {
	// Value is the business key, unique with the generation within (tenant, tool).
	Value      string `json:"value"`
	Generation int    `json:"generation"`
	// Upstream is UUIDv5(ledger id, tenant, tool, key, generation): equal on
	// every attempt, different between tenants, deployments and generations.
	Upstream string `json:"upstream"`
}

// Call is one checked call: arguments that passed the schema, with defaults
// applied.
type Call struct {
	Args  map[string]any
	Agent Agent
	Key   Key
}

// Plan is what a call would do. A connector makes it, the policy reads it, the
// ledger stores it once, the token and the decisions carry its digest, and the
// same connector takes it back to dispatch it.
type Plan struct {
	Encoding    int            `json:"encoding"` // version of this encoding; now 1
	Tool        string         `json:"tool"`
	ToolVersion string         `json:"tool_version"`
	Agent       Agent          `json:"agent"`
	Key         Key            `json:"key"`
	Target      string         `json:"target"` // "POST http://127.0.0.1:8421/refunds", without secrets
	Args        map[string]any `json:"args"`
	Headline    string         `json:"headline"`
	Reversible  bool           `json:"reversible"`
	// UndoText says in words what taking it back would be; empty when the tool
	// declares no undo.
	UndoText string   `json:"undo_text,omitempty"`
	Effects  []Effect `json:"effects"`
	// Basis are the fields that the prediction was read from. A changed one is
	// drift.
	Basis []BasisField `json:"basis,omitempty"`
	// Reads are the upstream's answers that expressions use after preview, by
	// name: status, headers, body.
	Reads map[string]any `json:"reads,omitempty"`
	// Wire is the connector's own rendering of exactly what will be sent,
	// without credentials.
	Wire json.RawMessage `json:"wire"`
	// Goal is what several alternative tools would achieve, if the manifest
	// names one: at most one of them takes effect.
	Goal     *Goal     `json:"goal,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
}

// Goal names what alternative tools share; unique per tenant while an operation
// that carries it may have an effect.
type Goal struct {
	Group string `json:"group"`
	Value string `json:"value"`
}

// BasisField is one field that the prediction depends on, with the value read.
type BasisField struct {
	Field string `json:"field"` // the CEL expression of the manifest
	Value any    `json:"value"`
}

// Effect is one predicted change outside. Created things have no Before,
// deleted things no After; both are flat maps with the same names.
type Effect struct {
	Verb    string         `json:"verb"`
	Target  string         `json:"target"`
	Before  map[string]any `json:"before,omitempty"`
	After   map[string]any `json:"after,omitempty"`
	Summary string         `json:"summary,omitempty"`
	Money   *Money         `json:"money,omitempty"`
	Count   int            `json:"count"`   // objects touched; default 1
	Outside int            `json:"outside"` // recipients outside; default 0
}

// Money is integer minor units of one currency (ISO 4217).
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Warning is something the reader should know that stops nothing.
type Warning struct {
	Code    string `json:"code"` // confusable, invisible_text, possible_duplicate, …
	Pointer string `json:"pointer,omitempty"`
	Text    string `json:"text"`
}

// Verdict is what an attempt's answer proves (design: "What the tool's answer
// means").
type Verdict string

const (
	// NotSent: not one byte of the request was written. Proof of no effect.
	NotSent Verdict = "not_sent"
	// NoEffect: a rejection that the manifest declares definite. Proves this
	// attempt only.
	NoEffect Verdict = "no_effect"
	// Succeeded: the declared result, with its effect id.
	Succeeded Verdict = "succeeded"
	// Unknown: anything else after the first byte.
	Unknown Verdict = "unknown"
)

// Outcome is what a dispatch saw.
type Outcome struct {
	Verdict  Verdict        `json:"verdict"`
	EffectID string         `json:"effect_id,omitempty"`
	Result   map[string]any `json:"result,omitempty"`
	// Because is one sentence for agents and people, from the upstream or the
	// connector; untrusted text.
	Because string   `json:"because,omitempty"`
	Seen    Exchange `json:"seen"`
}

// Exchange is the trace of one request to the upstream, kept as evidence. No
// credentials, bodies only as an excerpt and a digest.
type Exchange struct {
	Target     string            `json:"target,omitempty"`
	SentBytes  int64             `json:"sent_bytes"`
	SentAt     time.Time         `json:"sent_at,omitzero"`
	AnsweredAt time.Time         `json:"answered_at,omitzero"`
	Status     int               `json:"status,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"` // request ids, content type, date
	BodyBytes  int64             `json:"body_bytes,omitempty"`
	BodyDigest string            `json:"body_digest,omitempty"`
	Excerpt    string            `json:"excerpt,omitempty"` // at most 2 KiB
	Error      string            `json:"error,omitempty"`   // host names and secrets removed
}

// Guard is what a read-only check just before dispatch found.
type Guard struct {
	// ReadAt is when the first of the reads began.
	ReadAt time.Time
	// Drift lists basis fields whose value is no longer the plan's.
	Drift []Drift
	// Done is set when the business reference shows that it already happened.
	Done *Done
}

// Drift is one field that changed under the plan.
type Drift struct {
	Field string `json:"field"`
	Was   any    `json:"was"`
	Now   any    `json:"now"`
}

// Done is an effect that was found already there.
type Done struct {
	EffectID string         `json:"effect_id"`
	Result   map[string]any `json:"result,omitempty"`
	Seen     Exchange       `json:"seen"`
}

// AnswerKind is what a lookup said.
type AnswerKind string

const (
	Present       AnswerKind = "present"
	Absent        AnswerKind = "absent"
	NotVisibleYet AnswerKind = "not_visible_yet"
	LookupFailed  AnswerKind = "failed"
	// BrokenPromise: two or more effects for one key.
	BrokenPromise AnswerKind = "broken_promise"
)

// Answer is a lookup's answer with what it was read from.
type Answer struct {
	Kind      AnswerKind
	EffectIDs []string
	Because   string
	Seen      Exchange
}

// Dispatch is what the executor adds to a plan at the dispatch mark.
type Dispatch struct {
	Operation string
	Attempt   int
	// Deadline is the latest moment at which the first byte may be written; a
	// late waker must not send (compared on the wall and the monotonic clock).
	Deadline time.Time
	// Timeout bounds the whole exchange.
	Timeout time.Duration
}

// Undo is how an effect could be taken back, worked out from a finished
// operation.
type Undo struct {
	Tool string
	Args map[string]any
	// Possible is false when the manifest's `while` does not hold; Because says
	// why.
	Possible bool
	Because  string
}

// Connector talks to one kind of upstream on behalf of one compiled tool. All
// methods but Dispatch are effect-free and use read-only credentials where
// given; errors they return are *fault.Error (tool_refused,
// upstream_unexpected, upstream_timeout, schema_violation, …).
type Connector interface {
	// Read calls a read tool and gives its result.
	Read(ctx context.Context, call Call) (any, error)
	// Preview works out what the call would do. It changes nothing.
	Preview(ctx context.Context, call Call) (Plan, error)
	// Guard re-reads the plan's basis and, when declared, asks whether it is
	// already done.
	Guard(ctx context.Context, plan Plan) (Guard, error)
	// Dispatch sends the plan's Wire, once. It never returns an error: what it
	// saw is the Outcome. It must not be cancelled by an agent that hangs up.
	Dispatch(ctx context.Context, plan Plan, d Dispatch) Outcome
	// Lookup asks whether the plan's effect exists.
	Lookup(ctx context.Context, plan Plan) Answer
	// Undo works out the opposite call.
	Undo(plan Plan, effectID string, result map[string]any) (Undo, error)
}

// Tool is a compiled tool: what it declares and the connector that speaks for
// it.
type Tool struct {
	Spec
	Connector
	// CheckArgs applies defaults and checks args against the input schema; the
	// result is the canonical argument object, args are not changed. Errors are
	// *fault.Error with pointers that begin at the arguments: "/amount".
	CheckArgs func(args map[string]any) (map[string]any, []Warning, error)
	// BusinessKey evaluates the key template over checked args; only for
	// KeyTemplate.
	BusinessKey func(args map[string]any, agent Agent) (string, error)
	// Redact returns a copy of args in which sensitive values are replaced by
	// "redacted", with a keyed digest that tells equal values from different ones.
	Redact func(args map[string]any) map[string]any
}
