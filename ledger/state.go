package ledger

import "slices"

// State is where an operation stands. The strings are the same in Go, SQL,
// JSON and the page.
type State string

const (
	// AwaitingApproval: people must say yes first.
	AwaitingApproval State = "awaiting_approval"
	// Pending: may be dispatched by anybody.
	Pending State = "pending"
	// Running: behind a dispatch mark; a request may be on the wire.
	Running State = "running"
	// Unknown: it may have happened; only evidence moves it.
	Unknown State = "unknown"
	// Succeeded: it happened, with proof.
	Succeeded State = "succeeded"
	// Compensating: its undo is under way.
	Compensating State = "compensating"
	// Compensated: its undo succeeded.
	Compensated State = "compensated"
	// Failed: every attempt is proven unsent or without effect.
	Failed State = "failed"
	// Rejected: a person said no.
	Rejected State = "rejected"
	// Expired: nobody decided in time, or the ground went away.
	Expired State = "expired"
	// Cancelled: the asker took it back.
	Cancelled State = "cancelled"
)

// unopened is the state before birth, written "–" in the docs.
const unopened State = ""

// States lists every state in the order of a life.
var States = []State{
	AwaitingApproval, Pending, Running, Unknown, Succeeded, Compensating,
	Compensated, Failed, Rejected, Expired, Cancelled,
}

// Effective reports that the effect exists or existed.
func (s State) Effective() bool { return s == Succeeded || s == Compensating || s == Compensated }

// Void reports that there is certainly no effect.
func (s State) Void() bool {
	return s == Failed || s == Rejected || s == Expired || s == Cancelled
}

// Final reports that the operation has its answer. Compensating counts: the
// operation itself succeeded, and its undo is an operation of its own.
func (s State) Final() bool { return s.Effective() || s.Void() }

// Live is not yet final.
func (s State) Live() bool { return !s.Final() }

// PossibleEffect lists the states that are live or effective: all but the void.
func PossibleEffect() []State {
	return slices.DeleteFunc(slices.Clone(States), State.Void)
}

// Verb is a move of an operation, the event's name.
type Verb string

const (
	VerbOpen         Verb = "open"
	VerbApprove      Verb = "approve"
	VerbReject       Verb = "reject"
	VerbReopen       Verb = "reopen"
	VerbWithdraw     Verb = "withdraw"
	VerbCancel       Verb = "cancel"
	VerbExpire       Verb = "expire"
	VerbRevise       Verb = "revise"
	VerbAdopt        Verb = "adopt"
	VerbDispatch     Verb = "dispatch"
	VerbRelease      Verb = "release"
	VerbFinish       Verb = "finish"
	VerbLoseLease    Verb = "lose_lease"
	VerbResolve      Verb = "resolve"
	VerbRetry        Verb = "retry"
	VerbHandOver     Verb = "hand_over"
	VerbCompensate   Verb = "compensate"
	VerbCompensated  Verb = "compensated"
	VerbGiveUp       Verb = "give_up"
	VerbContradict   Verb = "contradict"
	VerbRecompensate Verb = "recompensate"
	VerbRestored     Verb = "restored"
)

// Verbs lists every verb.
var Verbs = []Verb{
	VerbOpen, VerbApprove, VerbReject, VerbReopen, VerbWithdraw, VerbCancel, VerbExpire,
	VerbRevise, VerbAdopt, VerbDispatch, VerbRelease, VerbFinish, VerbLoseLease, VerbResolve,
	VerbRetry, VerbHandOver, VerbCompensate, VerbCompensated, VerbGiveUp, VerbContradict,
	VerbRecompensate, VerbRestored,
}

// condition says which history a row of the table needs.
type condition string

const (
	always condition = ""
	// untouched: no attempt, or every attempt is proven unsent. A touched
	// operation may have had an effect, and its key must not become free by a
	// side door.
	untouched condition = "untouched"
	// attempted: at least one attempt was made.
	attempted condition = "attempted"
)

// row is one line of the table: from these states this verb may lead to those.
type row struct {
	from []State
	verb Verb
	to   []State
	when condition
}

// same in a row's to-list stands for "stays where it is".
const same State = "same"

// table is the whole life of an operation. docs/state-machine.md is its
// hand-written twin; a test compares the two cell by cell.
var table = []row{
	{[]State{unopened}, VerbOpen, []State{AwaitingApproval, Pending, Running}, always},
	{[]State{AwaitingApproval}, VerbApprove, []State{AwaitingApproval, Pending}, untouched},
	{[]State{AwaitingApproval}, VerbReject, []State{Rejected}, untouched},
	{[]State{Rejected}, VerbReopen, []State{Rejected}, always},
	{[]State{AwaitingApproval, Pending}, VerbWithdraw, []State{same}, untouched},
	{[]State{AwaitingApproval, Pending}, VerbCancel, []State{Cancelled}, untouched},
	{[]State{AwaitingApproval, Pending}, VerbExpire, []State{Expired}, untouched},
	{[]State{Pending}, VerbRevise, []State{AwaitingApproval}, untouched},
	{[]State{unopened, Pending}, VerbAdopt, []State{Succeeded}, untouched},
	{[]State{Pending}, VerbDispatch, []State{Running}, untouched},
	{[]State{Running}, VerbRelease, []State{Pending, Unknown}, attempted},
	{[]State{Running}, VerbFinish, []State{Succeeded, Failed, Unknown}, attempted},
	{[]State{Running}, VerbLoseLease, []State{Unknown}, attempted},
	{[]State{Unknown}, VerbResolve, []State{Succeeded, Failed}, always},
	{[]State{Unknown}, VerbRetry, []State{Running}, attempted},
	{[]State{Unknown}, VerbHandOver, []State{Unknown}, always},
	{[]State{Succeeded}, VerbCompensate, []State{Compensating}, always},
	{[]State{Compensating}, VerbCompensated, []State{Compensated}, always},
	{[]State{Compensating}, VerbGiveUp, []State{Succeeded}, always},
	{[]State{AwaitingApproval, Pending, Failed, Rejected, Expired, Cancelled}, VerbContradict, []State{Unknown}, attempted},
	{[]State{Succeeded, Compensating}, VerbRecompensate, []State{Compensating}, always},
	{[]State{AwaitingApproval, Pending, Running}, VerbRestored, []State{Unknown}, always},
}

// Allowed gives the states that verb may lead to from a state, for an
// operation that was attempted and is touched as said. None means refused.
func Allowed(from State, verb Verb, isAttempted, isTouched bool) []State {
	for _, r := range table {
		if r.verb != verb || !slices.Contains(r.from, from) {
			continue
		}
		if r.when == untouched && isTouched || r.when == attempted && !isAttempted {
			return nil
		}
		if r.to[0] == same {
			return []State{from}
		}
		return r.to
	}
	return nil
}

// AllowedVerbs lists what may be done to an operation now, in table order.
// Pages and the API show buttons and actions from it.
func AllowedVerbs(op Operation) []Verb {
	var verbs []Verb
	for _, v := range Verbs {
		if len(Allowed(op.State, v, len(op.Attempts) > 0, op.Touched())) > 0 {
			verbs = append(verbs, v)
		}
	}
	return verbs
}
