package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"countersign/ledger"
)

// Exit statuses of preview and commit: what a script may do next.
const (
	exitDone     = 0 // it happened
	exitFailure  = 1 // no answer, or one that no other status stands for
	exitWaiting  = 2 // it may still happen, and nothing is wrong
	exitRejected = 3 // somebody, or a rule, said no; or it was taken back
	exitExpired  = 4 // out of date; preview again
	exitUnknown  = 5 // it may have happened
	exitFailed   = 6 // it was tried and certainly had no effect
)

// exitTable is the same in words, for the help.
const exitTable = `Exit status:
  0  done: it happened (succeeded)
  2  waiting: for people, or for its turn (awaiting_approval, pending, running,
     compensating)
  3  rejected: a person said no (rejected, rejected_before), the policy does
     (policy_denied), or it was taken back (cancelled, compensated)
  4  expired: nothing was sent; preview again (expired, token_expired,
     token_invalid, preview_stale, tool_changed)
  5  unknown: it may have happened (unknown, outcome_unclear, or the answer to
     the commit was lost). Never ask for it by other means; repeat the commit
  6  failed: tried, and certainly without effect (failed)
  1  anything else: wrong arguments, no rights, a frozen tool, no gateway`

// exitOfState is the status for an operation.
func exitOfState(state string) int {
	switch ledger.State(state) {
	case ledger.Succeeded:
		return exitDone
	case ledger.AwaitingApproval, ledger.Pending, ledger.Running, ledger.Compensating:
		return exitWaiting
	case ledger.Rejected, ledger.Cancelled, ledger.Compensated:
		return exitRejected
	case ledger.Expired:
		return exitExpired
	case ledger.Unknown:
		return exitUnknown
	case ledger.Failed:
		return exitFailed
	default:
		return exitFailure
	}
}

// exitOfProblem is the status for a refusal.
func exitOfProblem(p *problemDoc) int {
	switch {
	case p.Code == "rejected_before", p.Code == "policy_denied":
		return exitRejected
	case p.Code == "outcome_unclear":
		return exitUnknown
	case p.Next.Action == "preview_again":
		return exitExpired
	default:
		return exitFailure
	}
}

// done ends a command with a status.
func done(status int) error {
	if status == exitDone {
		return nil
	}
	return exitError{status}
}

// showProblem prints a refusal and ends the command.
func (p *program) showProblem(r reply) error {
	if p.json() {
		if err := p.answer(r.body, nil); err != nil {
			return err
		}
		return exitError{exitOfProblem(r.problem)}
	}
	no := r.problem
	p.note("countersign: %s says: %s: %s", r.from, no.Code, safe(no.Detail))
	for _, at := range no.Pointers {
		p.note("  %s: %s", safe(at.Pointer), safe(at.Detail))
	}
	if no.Next.Text != "" {
		p.note("next: %s: %s", no.Next.Action, safe(no.Next.Text))
	}
	if no.RequestID != "" {
		p.note("request: %s", safe(no.RequestID))
	}
	if no.Operation != nil {
		if err := p.answer(nil, func(w io.Writer) { operationRows(w, *no.Operation) }); err != nil {
			return err
		}
	}
	return exitError{exitOfProblem(no)}
}

// showOperation prints an operation and ends the command by its state.
func (p *program) showOperation(body json.RawMessage) error {
	var op operationDoc
	if err := json.Unmarshal(body, &op); err != nil || op.ID == "" {
		return fmt.Errorf("the gateway's answer is no operation: %w", err)
	}
	if err := p.answer(body, func(w io.Writer) { operationRows(w, op) }); err != nil {
		return err
	}
	return done(exitOfState(op.State))
}

func operationRows(w io.Writer, op operationDoc) {
	state := op.State
	if op.Replayed {
		state += " (the first result; nothing was sent now)"
	}
	row(w, "operation", op.ID)
	row(w, "state", state)
	row(w, "what", safe(op.Headline))
	if op.EffectID != "" {
		row(w, "effect", safe(op.EffectID))
	}
	for _, name := range slices.Sorted(maps.Keys(op.Result)) {
		row(w, "result", safe(name)+" = "+value(op.Result[name]))
	}
	if op.Reason != nil {
		row(w, "reason", strings.TrimSuffix(op.Reason.Code+": "+safe(op.Reason.Text), ": "))
	}
	if a := op.Approval; a != nil && op.State == string(ledger.AwaitingApproval) {
		row(w, "asks", safe(a.Rule)+", until "+when(a.ExpiresAt))
		row(w, "decide at", safe(a.URL))
	}
	row(w, "next", op.Next.Action+": "+safe(op.Next.Text))
}

// value writes a JSON value on one line; text goes without quotes.
func value(v any) string {
	if text, ok := v.(string); ok {
		return safe(text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?" // it came out of JSON
	}
	return safe(string(b))
}
