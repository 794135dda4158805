package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"countersign/tools"
)

// When something seems to have happened twice there are four explanations, and
// they call for four different repairs (R138). Forensics holds each against what
// the ledger knows, and says which the record supports, which it excludes, and
// which it leaves open. It guesses nothing: what the ledger can't know (whether a
// reply reached the agent) is left open, with the place to look.

// Hypothesis is one explanation of a duplicate, real or feared.
type Hypothesis struct {
	Name    HypothesisName    `json:"name"`
	Verdict HypothesisVerdict `json:"verdict"`
	// Evidence are sentences, each with the ids and times that it rests on.
	Evidence []string `json:"evidence"`
}

// HypothesisName names an explanation.
type HypothesisName string

const (
	// TwoPlans: the agent planned two actions.
	TwoPlans HypothesisName = "two_plans"
	// NeverRan: the first call had no effect, so that there is no duplicate.
	NeverRan HypothesisName = "never_ran"
	// SubmittedTwice: the client submitted one call twice.
	SubmittedTwice HypothesisName = "submitted_twice"
	// LostReply: a reply was lost, and that led to a repeat.
	LostReply HypothesisName = "lost_reply"
)

// HypothesisVerdict is what the record says of an explanation.
type HypothesisVerdict string

const (
	HypothesisSupported HypothesisVerdict = "supported"
	HypothesisExcluded  HypothesisVerdict = "excluded"
	// HypothesisOpen: the record neither shows nor rules it out.
	HypothesisOpen HypothesisVerdict = "open"
)

// maxOthers bounds how many other operations are looked at for each reason to
// look at them; the newest come first.
const maxOthers = 50

// Forensics reads one operation with everything that Forensics, the function,
// looks at.
func (r Reader) Forensics(ctx context.Context, tenant, id string) (Operation, []Hypothesis, error) {
	op, err := r.Operation(ctx, tenant, id)
	if err != nil {
		return op, nil, err
	}
	evidence, err := r.Evidence(ctx, tenant, id)
	if err != nil {
		return op, nil, err
	}
	events, err := r.Events(ctx, tenant, id)
	if err != nil {
		return op, nil, err
	}
	asked := []Filter{
		{Tenant: tenant, Tool: op.Tool, Args: op.ArgsDigest},
		{Tenant: tenant, Tool: op.Tool, Key: op.Key},
	}
	if op.Goal != nil {
		asked = append(asked, Filter{Tenant: tenant, Goal: op.Goal})
	}
	var others []Operation
	for _, f := range asked {
		f.Limit = maxOthers
		page, err := r.List(ctx, f)
		if err != nil {
			return op, nil, err
		}
		for _, other := range page.Operations {
			if !slices.ContainsFunc(others, func(o Operation) bool { return o.ID == other.ID }) {
				others = append(others, other)
			}
		}
	}
	return op, Forensics(op, evidence, events, others), nil
}

// Forensics judges the four explanations for one operation: by its evidence and
// events, oldest first, and by other operations with its arguments, its key or its
// goal. The operation itself may be among those.
func Forensics(op Operation, evidence []Evidence, events []Event, others []Operation) []Hypothesis {
	f := forensics{op: op, evidence: evidence, events: events}
	for _, o := range others {
		if o.ID != op.ID {
			f.others = append(f.others, o)
		}
	}
	slices.SortFunc(f.others, func(a, b Operation) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return []Hypothesis{f.twoPlans(), f.neverRan(), f.submittedTwice(), f.lostReply()}
}

type forensics struct {
	op       Operation
	evidence []Evidence
	events   []Event
	others   []Operation // oldest first
}

// relation is how another operation stands to the one that is looked at.
type relation int

const (
	unrelated relation = iota
	wanted             // asked for once more on purpose
	sameCall           // one tool call of the agent under two keys
	otherCall          // two tool calls of the agent
	uncertain          // equal, and no tool calls to tell them apart
)

// relate tells what an equal operation under another key is. Keys stand for
// intents, but a client may make up a new one for a repeat: only the agent's tool
// calls tell the two apart.
func (f forensics) relate(o Operation) relation {
	equal := o.Tool == f.op.Tool && o.ArgsDigest == f.op.ArgsDigest
	goal := f.op.Goal != nil && o.Goal != nil && *f.op.Goal == *o.Goal
	switch {
	case !equal && !goal, o.Parent != f.op.Parent:
		return unrelated
	case o.AgainOf == f.op.ID, f.op.AgainOf == o.ID:
		return wanted
	case o.Tool == f.op.Tool && o.Key == f.op.Key:
		return unrelated // another generation; see submittedTwice
	case f.op.Run == nil || o.Run == nil || f.op.Run.Call == "" || o.Run.Call == "":
		return uncertain
	case o.Agent.ID == f.op.Agent.ID && *o.Run == *f.op.Run:
		return sameCall
	}
	return otherCall
}

func (f forensics) twoPlans() Hypothesis {
	h := Hypothesis{Name: TwoPlans, Verdict: HypothesisExcluded}
	for _, o := range f.others {
		rel := f.relate(o)
		switch {
		case rel == unrelated:
			continue
		case rel == sameCall:
			h.say("%s asked for the same too, as the very same tool call, which is no second plan.", o.ID)
		case o.State.Void():
			h.say("%s asked for the same%s; it is %s and had no effect.", o.ID, called(o), o.State)
		case rel == wanted:
			h.raise(HypothesisSupported, "%s and this operation are one asked for again on purpose (again_of), which people had to agree to; %s is %s%s.", o.ID, o.ID, o.State, effectOf(o))
		case rel == otherCall:
			h.raise(HypothesisSupported, "%s asked for the same%s, which is another tool call than this one's%s; it is %s%s.", o.ID, called(o), called(f.op), o.State, effectOf(o))
		default:
			h.raise(HypothesisOpen, "%s asked for the same under the key %s; without a tool call id on both nobody can tell whether the agent planned both. It is %s%s.", o.ID, o.Key, o.State, effectOf(o))
		}
	}
	if len(h.Evidence) == 0 {
		h.say("No other operation of the tool has these arguments%s.", orGoal(f.op))
	}
	return h
}

func (f forensics) neverRan() Hypothesis {
	h := Hypothesis{Name: NeverRan, Verdict: HypothesisOpen}
	for _, e := range f.evidence {
		if e.EffectID != "" && e.Verdict == tools.Succeeded {
			h.Verdict = HypothesisExcluded
			h.say("The effect %s is shown by a %s of %s.", e.EffectID, e.Kind, moment(e.At))
		}
	}
	if h.Verdict == HypothesisExcluded {
		return h
	}
	if len(f.op.Attempts) == 0 {
		h.Verdict = HypothesisSupported
		h.say("Nothing was ever sent; the operation is %s.", f.op.State)
		return h
	}
	proven := true
	for _, a := range f.op.Attempts {
		switch a.Proof {
		case tools.NotSent:
			h.say("Attempt %d is proven unsent.", a.N)
		case tools.NoEffect:
			h.say("Attempt %d is proven to have had no effect.", a.N)
		default:
			proven = false
			h.say("Of attempt %d, marked at %s, nothing is proven.", a.N, moment(a.MarkedAt))
		}
	}
	if proven {
		h.Verdict = HypothesisSupported
	}
	for _, e := range f.evidence {
		if e.Kind == "lookup" && e.EffectID == "" {
			h.say("The outside system was asked at %s: %s.", moment(e.At), e.Answer)
		}
	}
	return h
}

func (f forensics) submittedTwice() Hypothesis {
	h := Hypothesis{Name: SubmittedTwice, Verdict: HypothesisExcluded}
	for _, o := range f.others {
		switch {
		case f.relate(o) == sameCall && o.State.Void():
			h.say("%s is the same tool call%s under the key %s; it is %s and had no effect.", o.ID, called(o), o.Key, o.State)
		case f.relate(o) == sameCall:
			h.raise(HypothesisSupported, "%s is the same tool call%s under another key, %s; it is %s%s.", o.ID, called(o), o.Key, o.State, effectOf(o))
		case f.relate(o) == uncertain && !o.State.Void():
			h.raise(HypothesisOpen, "%s asked for the same under the key %s by request %s; without a tool call id on both it may be the same call.", o.ID, o.Key, o.RequestID)
		case o.Tool == f.op.Tool && o.Key == f.op.Key && o.AgainOf != f.op.ID && f.op.AgainOf != o.ID && !o.State.Void():
			h.raise(HypothesisSupported, "%s is generation %d of the same key, opened by request %s, and is %s%s.", o.ID, o.Generation, o.RequestID, o.State, effectOf(o))
		}
	}
	if ids := f.effects(); len(ids) > 1 {
		h.raise(HypothesisOpen, "The outside system shows %d effects for the one key that was sent, %s: somebody else used that key, or it does not honour keys.", len(ids), f.op.UpstreamKey)
	}
	h.say("The key %s, generation %d, has this one operation, opened by request %s at %s; whoever submitted it again was answered with it, and nothing was sent.",
		f.op.Key, f.op.Generation, f.op.RequestID, moment(f.op.CreatedAt))
	return h
}

// effects are the outside system's own ids that were seen for this operation.
func (f forensics) effects() []string {
	var ids []string
	for _, e := range f.evidence {
		if e.Verdict == tools.Succeeded && e.EffectID != "" && !slices.Contains(ids, e.EffectID) {
			ids = append(ids, e.EffectID)
		}
	}
	return ids
}

func (f forensics) lostReply() Hypothesis {
	h := Hypothesis{Name: LostReply, Verdict: HypothesisExcluded}
	if len(f.op.Attempts) == 0 {
		h.say("Nothing was sent, so no reply could be lost.")
		return h
	}
	var lost time.Time // the first mark without an answer
	for _, a := range f.op.Attempts {
		if !lost.IsZero() {
			h.raise(HypothesisSupported, "Attempt %d was marked at %s, after that.", a.N, moment(a.MarkedAt))
		}
		if f.lost(&h, a) && lost.IsZero() {
			lost = a.MarkedAt
		}
	}
	for _, o := range f.others {
		rel := f.relate(o)
		if rel == unrelated || rel == wanted || o.State.Void() || !o.CreatedAt.After(f.op.Attempts[0].MarkedAt) {
			continue
		}
		if !lost.IsZero() {
			h.raise(HypothesisSupported, "After that, at %s, %s asked for the same under the key %s.", moment(o.CreatedAt), o.ID, o.Key)
			continue
		}
		h.raise(HypothesisOpen, "Then, at %s, %s asked for the same under the key %s. Whether this operation's answer reached the agent is not in the ledger: look at the span of the reply%s.",
			moment(o.CreatedAt), o.ID, o.Key, traced(f.op))
	}
	if !lost.IsZero() && h.Verdict != HypothesisSupported {
		h.raise(HypothesisOpen, "Nothing was sent again since.")
	}
	return h
}

// lost tells what is known of the answer to one attempt, and whether it was lost.
func (f forensics) lost(h *Hypothesis, a Attempt) bool {
	switch {
	case a.Proof == tools.NotSent:
		h.say("Attempt %d is proven unsent; there was nothing to answer.", a.N)
		return false
	case f.op.State == Running && a.N == len(f.op.Attempts):
		h.raise(HypothesisOpen, "Attempt %d was marked at %s and is on its way.", a.N, moment(a.MarkedAt))
		return false
	}
	for _, e := range f.evidence {
		switch {
		case e.Kind != "response" || e.Attempt != a.N:
			continue
		case !e.Seen.AnsweredAt.IsZero():
			h.say("Attempt %d was sent at %s and answered at %s%s.", a.N, moment(e.Seen.SentAt), moment(e.Seen.AnsweredAt), status(e.Seen))
			return false
		case e.Verdict == tools.Succeeded || e.Verdict == tools.NoEffect:
			h.say("Attempt %d was answered by %s.", a.N, moment(e.At))
			return false
		}
		h.say("Attempt %d was sent at %s, and no answer came%s.", a.N, moment(firstOf(e.Seen.SentAt, a.MarkedAt)), bytesOf(e.Seen))
		return true
	}
	for _, e := range f.events {
		if e.Verb == VerbLoseLease && e.Attempt == a.N {
			h.say("Attempt %d was marked at %s; whoever sent it was not heard of again until %s.", a.N, moment(a.MarkedAt), moment(e.At))
			return true
		}
	}
	h.say("Attempt %d was marked at %s, and the ledger has no answer to it.", a.N, moment(a.MarkedAt))
	return true
}

func (h *Hypothesis) say(format string, args ...any) {
	h.Evidence = append(h.Evidence, fmt.Sprintf(format, args...))
}

// raise says what speaks for the explanation. What is supported stays so.
func (h *Hypothesis) raise(to HypothesisVerdict, format string, args ...any) {
	if h.Verdict != HypothesisSupported {
		h.Verdict = to
	}
	h.say(format, args...)
}

// called names an operation's place in a run.
func called(o Operation) string {
	switch {
	case o.Run == nil:
		return ""
	case o.Run.Call == "":
		return fmt.Sprintf(" in the run %s", o.Run.ID)
	}
	return fmt.Sprintf(" (run %s, step %s, call %s)", o.Run.ID, o.Run.Step, o.Run.Call)
}

func effectOf(o Operation) string {
	if o.EffectID == "" {
		return ""
	}
	return " with the effect " + o.EffectID
}

func orGoal(o Operation) string {
	if o.Goal == nil {
		return ""
	}
	return ", and none stands for its goal"
}

func traced(o Operation) string {
	if o.Trace == "" {
		return ""
	}
	return " in the trace " + o.Trace
}

func status(x tools.Exchange) string {
	if x.Status == 0 {
		return ""
	}
	return fmt.Sprintf(" with status %d", x.Status)
}

func bytesOf(x tools.Exchange) string {
	if x.SentBytes == 0 {
		return ""
	}
	return fmt.Sprintf("; %d bytes had been written", x.SentBytes)
}

func firstOf(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
