package web

import (
	"strings"

	"countersign/approvals"
	"countersign/approvals/policy"
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
// tool, if any.
func (p *Pages) standingOf(c approvals.Card, frozen string) standing {
	op := c.Operation
	s := standing{badge: badgeOf(op.State)}
	if op.Reason != nil {
		s.Quote = op.Reason.Text
	}
	switch op.State {
	case ledger.AwaitingApproval:
		s.Meaning = "Nothing has been sent."
		s.Next = stillNeeded(c) + " Then the gateway sends it by itself. Without a decision it expires; silence is not consent."
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
		}
	case ledger.Succeeded:
		s.Meaning = "It happened, once, and there is proof."
		s.Next = "Nothing is left to do. Every repeat of this request is answered with this result."
		if op.Adopted {
			s.Meaning = "It had already been done outside; the gateway sent nothing."
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

// stillNeeded says how many more people must say yes.
func stillNeeded(c approvals.Card) string {
	total := places(c.Operation.Requirement)
	switch {
	case c.Missing == total && total == 1:
		return people(c.Operation.Requirement.Groups) + " must say yes."
	case c.Missing == total:
		return people(c.Operation.Requirement.Groups) + " must say yes."
	case c.Missing == 1:
		return "One more must say yes (asked: " + policy.Groups(c.Operation.Requirement.Groups) + ")."
	default:
		return count(c.Missing, "more must say yes", "more must say yes") + " (asked: " + policy.Groups(c.Operation.Requirement.Groups) + ")."
	}
}

// people puts a quorum as the beginning of a sentence.
func people(groups map[string]int) string {
	if n, any := groups[tools.AnyGroup]; any && len(groups) == 1 {
		return count(n, "approver", "approvers")
	}
	return policy.Groups(groups)
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

// proofs are verdicts of evidence in plain words.
var proofs = map[tools.Verdict]string{
	tools.NotSent:   "nothing was sent",
	tools.NoEffect:  "it had no effect",
	tools.Succeeded: "it happened",
	tools.Unknown:   "nothing either way",
}

// evidenceKinds are kinds of evidence in plain words.
var evidenceKinds = map[string]string{
	"response":  "the answer to the request",
	"lookup":    "a question to the outside system",
	"statement": "a person’s statement",
	"adoption":  "found before sending",
}

// gatewayParts are the gateway's own actors in plain words.
var gatewayParts = map[string]string{
	"executor": "sender", "guard": "check before sending", "reconciler": "reconciler", "expiry": "clock", "lease": "clock",
	"contradiction": "safeguard",
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
