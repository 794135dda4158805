package api

import (
	"fmt"
	"strings"
	"time"

	"countersign/approvals/policy"
	"countersign/ledger"
)

// nextOf says what a caller should do about an operation. mine is false for an
// operation that another agent's equal ask is answered with: its address is not
// for this caller, who asks again by repeating the commit.
func (s *Server) nextOf(op ledger.Operation, mine bool) Next {
	n := s.nextByState(op)
	if mine {
		return n
	}
	n.URL = ""
	if n.Action == NextActionPoll || n.Action == NextActionWaitForPeople {
		n.Action = NextActionRepeatCommit
		n.Text += " Another agent asked for it: repeat your commit to learn more."
	}
	return n
}

// byOtherMeans is what nobody must do while an outcome is open.
const byOtherMeans = " Do not repeat the action by other means."

func (s *Server) nextByState(op ledger.Operation) Next {
	later := func(action NextAction, after int, text string) Next {
		return Next{Action: action, AfterSeconds: after, URL: operationURL(op) + "?wait=30", Text: text}
	}
	now := func(action NextAction, text string) Next { return Next{Action: action, Text: text} }
	switch op.State {
	case ledger.AwaitingApproval:
		return later(NextActionWaitForPeople, 30, "People are asked: "+policy.Groups(op.Requirement.Groups)+
			". The gateway sends it after the last yes; you need not be there. Ask again now and then."+byOtherMeans)
	case ledger.Pending:
		after := 1
		if d := op.NotBefore.Sub(s.cfg.Now()); d > time.Second {
			after = seconds(d)
		}
		return later(NextActionPoll, after, "It will be sent. Ask again."+byOtherMeans)
	case ledger.Running:
		return later(NextActionPoll, 1, "It is being sent. Ask again."+byOtherMeans)
	case ledger.Unknown:
		if op.OnList {
			return later(NextActionWaitForPeople, 60, "It may have happened"+because(op)+". A person must find out. Ask again now and then."+byOtherMeans)
		}
		return later(NextActionPoll, 30, "It may have happened"+because(op)+". The gateway finds out, or a person does. Ask again."+byOtherMeans)
	case ledger.Succeeded:
		if op.Adopted {
			return now(NextActionDone, fmt.Sprintf("It was found already done outside, as %s; nothing was sent. Nothing is left to do.", op.EffectID))
		}
		if op.Reason != nil && op.Reason.Code == statedHappened {
			return now(NextActionDone, fmt.Sprintf("A person stated that it happened%s; %s is the outside system's own id. Nothing is left to do.", because(op), op.EffectID))
		}
		return now(NextActionDone, fmt.Sprintf("It happened; %s is the outside system's own id. Nothing is left to do.", op.EffectID))
	case ledger.Compensating:
		return now(NextActionDone, "It happened, and is being taken back. Nothing is left to do.")
	case ledger.Compensated:
		return now(NextActionDone, "It happened and was taken back. Nothing is left to do.")
	case ledger.Failed:
		return now(NextActionPreviewAgain, "It certainly had no effect"+because(op)+
			". Preview again if it is still wanted, with other arguments where the reason asks for them.")
	case ledger.Rejected:
		if op.Reopened {
			return now(NextActionPreviewAgain, "A person said no"+because(op)+", and later that it may be asked again. Preview again if it is still wanted.")
		}
		return now(NextActionStop, saidNo(op)+" Do not ask for the same again or reach the same end by other means. If the reason asks for something else, preview that.")
	case ledger.Expired:
		return now(NextActionPreviewAgain, "It ended without being sent"+because(op)+". Preview again if it is still wanted.")
	case ledger.Cancelled:
		return now(NextActionStop, "It was taken back and certainly had no effect"+because(op)+". Preview again only if it is wanted after all.")
	default:
		return now(NextActionStop, "Its state is not known to this version of the gateway.")
	}
}

// statedHappened is the code of the reason when a person's word, and no answer
// of the outside system, is the evidence.
const statedHappened = "stated_happened"

// saidNo quotes a person's no as sentences.
func saidNo(op ledger.Operation) string {
	if op.Reason == nil || op.Reason.Text == "" {
		return "A person said no."
	}
	return "A person said no: " + strings.TrimRight(op.Reason.Text, ". ") + "."
}

// because quotes the reason of an end or a doubt, without its full stop.
func because(op ledger.Operation) string {
	if op.Reason == nil || op.Reason.Text == "" {
		return ""
	}
	return " (" + strings.TrimRight(op.Reason.Text, ". ") + ")"
}

func operationURL(op ledger.Operation) string { return operationPath(op.ID) }

func operationPath(id string) string { return "/v1/operations/" + id }
