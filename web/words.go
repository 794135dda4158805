package web

import (
	"maps"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/ledger"
	"countersign/tools"
)

// badge is a state as pages show it: a word, an icon and a tone, so that colour
// never stands alone.
type badge struct {
	State ledger.State
	Label string
	Icon  string // of icons.svg
	Tone  string // wait, go, doubt, good, bad or still
}

var badges = map[ledger.State]badge{
	ledger.AwaitingApproval: {Label: "Waiting for approval", Icon: "clock", Tone: "wait"},
	ledger.Pending:          {Label: "About to be sent", Icon: "chevron-right", Tone: "go"},
	ledger.Running:          {Label: "Being sent", Icon: "chevron-right", Tone: "go"},
	ledger.Unknown:          {Label: "Outcome unknown", Icon: "circle-help", Tone: "doubt"},
	ledger.Succeeded:        {Label: "Done", Icon: "check", Tone: "good"},
	ledger.Compensating:     {Label: "Being undone", Icon: "rotate-ccw", Tone: "go"},
	ledger.Compensated:      {Label: "Undone", Icon: "rotate-ccw", Tone: "still"},
	ledger.Failed:           {Label: "Failed, no effect", Icon: "x", Tone: "bad"},
	ledger.Rejected:         {Label: "Rejected", Icon: "x", Tone: "bad"},
	ledger.Expired:          {Label: "Expired", Icon: "clock", Tone: "still"},
	ledger.Cancelled:        {Label: "Cancelled", Icon: "x", Tone: "still"},
}

func badgeOf(s ledger.State) badge {
	b := badges[s]
	b.State = s
	return b
}

// standing says where an operation stands: what its state means, and what
// happens next.
type standing struct {
	badge
	Meaning string
	Next    string
	// Quote is what the person, the upstream or the gateway gave as the reason, and
	// From whose words these are.
	Quote, From string
}

// standingOf puts a state in plain words. frozen is the freeze that holds the
// tool, if any; me is the viewer.
func standingOf(c approvals.Card, frozen string, events []ledger.Event, evidence []ledger.Evidence, me string) standing {
	op := c.Operation
	s := standing{badge: badgeOf(op.State)}
	if op.Reason != nil {
		s.Quote = op.Reason.Text
	}
	switch op.State {
	case ledger.AwaitingApproval:
		s.Meaning = "Nothing has been sent."
		if again := lastRevise(events); again != nil && op.Round > 1 {
			s.Meaning = "Nothing has been sent. It was approved, and then something changed, so people are asked anew."
			s.Quote, s.From = again.Text, "what changed"
		}
		s.Next = stillNeeded(c) + " Then the gateway sends it by itself. Without a decision it expires."
	case ledger.Pending:
		s.Meaning = "Everybody who must say yes has. Nothing has been sent yet."
		s.Next = "The gateway checks once more that nothing has changed, and sends it."
		switch {
		case !op.Requirement.Asks():
			s.Meaning = "Nobody needs to approve it. Nothing has been sent yet."
		case op.Withdrawn:
			s.Next = "A yes was taken back, so people are asked again before anything is sent."
		}
	case ledger.Running:
		s.Meaning = "The request is on its way to the outside system."
		s.Next = "The outcome is written here when the answer comes. If no answer comes, the outcome is unknown and nothing is sent again on a guess."
	case ledger.Unknown:
		s.Meaning = "It was sent, and no answer proves what became of it: it may have happened, or not."
		s.From = "what the gateway saw"
		s.Next = "The gateway does not guess and does not send it again on a guess."
		if op.OnList {
			s.Next += " Somebody has to look in the outside system and say here what happened."
		} else {
			s.Next += " It is finding out in the outside system."
		}
	case ledger.Succeeded:
		s.Meaning = "It happened, once, and there is proof."
		s.Next = "Nothing is left to do. Every repeat of this request is answered with this result."
		if op.Adopted {
			s.Meaning = "It had already been done outside; the gateway sent nothing."
		}
		if st, ok := statedEnd(op, "stated_happened", tools.Succeeded, evidence); ok {
			s.said("A person says that it happened.", st, me)
		}
	case ledger.Compensating:
		s.Meaning = "It happened, and its undo is under way."
		s.Next = "The undo is an operation of its own."
	case ledger.Compensated:
		s.Meaning = "It happened, and was undone afterwards."
		s.Next = "Nothing is left to do."
	case ledger.Failed:
		s.Meaning = "It certainly had no effect."
		s.From = "why"
		s.Next = "The agent may preview it again, also with other arguments."
		if st, ok := statedEnd(op, "stated_no_effect", tools.NoEffect, evidence); ok {
			s.said("A person says that it did not happen.", st, me)
		}
	case ledger.Rejected:
		s.Meaning = "A person said no. Nothing was sent."
		s.From = "the reason, which the agent reads"
		s.Next = "The same request by the same agent is refused until a person lets it be asked again."
		if op.Reopened {
			s.Next = "A person has since let it be asked again; this operation itself stays rejected."
		}
	case ledger.Expired:
		s.Meaning = "It ended without a decision that still held. Nothing was sent."
		s.From = "why"
		s.Next = "If it is still wanted, the agent previews it again."
	case ledger.Cancelled:
		s.Meaning = "It was taken back before anything was sent."
		s.From = "the reason"
		s.Next = "If it is wanted after all, the agent previews it again."
	}
	if frozen != "" && (op.State == ledger.AwaitingApproval || op.State == ledger.Pending) {
		s.Next += " The tool is frozen: nothing is sent before somebody ends the freeze."
	}
	if s.From == "" {
		s.Quote = ""
	}
	return s
}

// statedEnd reports that a person's statement is what ended the operation, with
// the statement as far as it is known.
func statedEnd(op ledger.Operation, code string, proves tools.Verdict, evidence []ledger.Evidence) (ledger.Evidence, bool) {
	var st ledger.Evidence
	for _, e := range slices.Backward(evidence) {
		if e.Kind == "statement" && e.Verdict == proves {
			st = e
			break
		}
	}
	coded := op.Reason != nil && op.Reason.Code == code
	if st.Because == "" && coded {
		st.Because = op.Reason.Text
	}
	newest := len(evidence) > 0 && evidence[len(evidence)-1].Kind == "statement" && evidence[len(evidence)-1].Verdict == proves
	return st, coded || newest
}

// said puts a person's word in the place of proof: who says so, and why.
func (s *standing) said(meaning string, st ledger.Evidence, me string) {
	s.Meaning, s.Quote, s.From = meaning, st.Because, "how this person knows"
	if st.By.ID != "" {
		s.From = actorName(st.By, me) + ", on how it is known"
	}
}

// heads are headings that depend on whether it is still ahead, has happened, may
// have, or never will.
type heads struct{ Effects, Rule, Sent string }

func headsOf(op ledger.Operation) heads {
	s := op.State
	switch {
	case s.Void() && op.Touched():
		return heads{"What would have changed", "Who had to say yes", "Exactly what was sent, and refused"}
	case s.Void():
		return heads{"What would have changed", "Who had to say yes", "Exactly what would have been sent"}
	case s.Effective():
		return heads{"What changed, as predicted", "Who had to say yes", "Exactly what was sent"}
	case s == ledger.Unknown:
		return heads{"What may have changed", "Who had to say yes", "Exactly what was sent"}
	case s == ledger.AwaitingApproval:
		return heads{"What changes", "Who must say yes", "Exactly what is sent"}
	default:
		return heads{"What changes", "Who had to say yes", "Exactly what is sent"}
	}
}

// lastRevise is why people were asked again, if they were.
func lastRevise(events []ledger.Event) *ledger.Reason {
	for _, e := range slices.Backward(events) {
		if e.Verb == ledger.VerbRevise {
			return e.Reason
		}
	}
	return nil
}

// stillNeeded says how many more people must say yes.
func stillNeeded(c approvals.Card) string {
	asked := quorum(c.Operation.Requirement.Groups)
	switch {
	case c.Missing == places(c.Operation.Requirement):
		return asked + " must say yes."
	case c.Missing == 1:
		return "One more must say yes, of " + asked + "."
	default:
		return count(c.Missing, "", "more must say yes, of ") + asked + "."
	}
}

// quorum puts who is asked in words: "2 people from finance and 1 person from
// support".
func quorum(groups map[string]int) string {
	parts := make([]string, 0, len(groups))
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		if g == tools.AnyGroup {
			parts = append(parts, count(groups[g], "approver", "approvers"))
			continue
		}
		parts = append(parts, count(groups[g], "person", "people")+" from "+g)
	}
	return strings.Join(parts, " and ")
}

func places(r ledger.Requirement) int {
	n := 0
	for _, k := range r.Groups {
		n += k
	}
	return n
}

// happened are the verbs of events in plain words.
var happened = map[ledger.Verb]string{
	ledger.VerbOpen:         "asked for it",
	ledger.VerbApprove:      "approved",
	ledger.VerbReject:       "rejected",
	ledger.VerbReopen:       "let it be asked again",
	ledger.VerbWithdraw:     "took a yes back",
	ledger.VerbCancel:       "cancelled it",
	ledger.VerbExpire:       "let it expire",
	ledger.VerbRevise:       "asked people again with a new plan",
	ledger.VerbAdopt:        "found it already done",
	ledger.VerbDispatch:     "began to send it",
	ledger.VerbRelease:      "could not send it",
	ledger.VerbFinish:       "recorded the outcome",
	ledger.VerbLoseLease:    "lost the sender before an answer",
	ledger.VerbResolve:      "settled the doubt",
	ledger.VerbRetry:        "began to send it again under the same key",
	ledger.VerbHandOver:     "handed it to people",
	ledger.VerbCompensate:   "began its undo",
	ledger.VerbCompensated:  "finished its undo",
	ledger.VerbGiveUp:       "gave up its undo",
	ledger.VerbContradict:   "found evidence against the outcome",
	ledger.VerbRecompensate: "began its undo again",
	ledger.VerbRestored:     "marked it doubtful after a restore",
}

// proofs say what a piece of evidence proves, by its kind and verdict.
var proofs = map[string]map[tools.Verdict]string{
	"response": {
		tools.Succeeded: "The answer says that it happened", tools.NoEffect: "The outside system refused it, without effect",
		tools.NotSent: "Nothing was sent", tools.Unknown: "No answer that proves anything",
	},
	"lookup": {
		tools.Succeeded: "The outside system says that it is there", tools.NoEffect: "The outside system says that it is not there",
		tools.NotSent: "The outside system says that it is not there", tools.Unknown: "The outside system could not say",
	},
	"statement": {
		tools.Succeeded: "A person says that it happened", tools.NoEffect: "A person says that it did not happen",
		tools.NotSent: "A person says that it was never sent", tools.Unknown: "A person could not say",
	},
	"adoption": {tools.Succeeded: "It was already there before anything was sent"},
}

// answers say what a lookup answered that proves nothing by itself.
var answers = map[tools.AnswerKind]string{
	tools.Absent:        "The outside system does not show it",
	tools.NotVisibleYet: "The outside system can’t say yet",
	tools.LookupFailed:  "The outside system gave no answer to the question",
}

// proofOf says what a piece of evidence proves.
func proofOf(e ledger.Evidence) string {
	if said := answers[e.Answer]; said != "" && e.Verdict == tools.Unknown {
		return said
	}
	return proofs[e.Kind][e.Verdict]
}

// gatewayParts are the gateway's own actors in plain words.
var gatewayParts = map[string]string{
	"executor": "sender", "guard": "check before sending", "reconciler": "reconciler", "expiry": "clock", "lease": "clock",
	"contradiction": "safeguard", "undo": "undo", "recover": "recovery", "identity": "rights", "configuration": "configuration",
}

// actorName says who made a move.
func actorName(a ledger.Actor, own string) string {
	switch a.Kind {
	case "gateway":
		if part, ok := gatewayParts[a.ID]; ok {
			return "The gateway’s " + part
		}
		return "The gateway"
	case "operator":
		if a.ID == own {
			return "You"
		}
		return nameOr(a)
	default:
		return "Agent " + nameOr(a)
	}
}

func nameOr(a ledger.Actor) string {
	if strings.TrimSpace(a.Name) == "" {
		return a.ID
	}
	return a.Name
}
