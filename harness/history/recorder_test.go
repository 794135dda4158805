package history_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/anishathalye/porcupine"

	"countersign/fault"
)

// recorder notes calls and answers with their places in time. It is the clients'
// own account: what they did not receive does not stand in it.
type recorder struct {
	tick atomic.Int64

	mu         sync.Mutex
	calls      []porcupine.Operation
	unexpected []string
}

// observes reports that a call changes nothing.
func observes(what string) bool {
	return what == "preview" || what == "get" || what == "find" || what == "outside"
}

// do makes a call and notes it. What changes nothing and was not answered is left
// out.
func (r *recorder) do(client int, c call, ask func() answer) answer {
	begin := r.tick.Add(1)
	a := ask()
	end := r.tick.Add(1)
	switch {
	case observes(c.What) && (a.Lost || a.Code == fault.StoreUnavailable):
		return a
	case a.Lost:
		end = 0 // it may happen until the end
	}
	r.note(client, c, a, begin, end)
	if c.What == "approve" || c.What == "reject" || a.Fresh {
		r.read(client, c, a, begin, end)
	}
	return a
}

// read notes what the answer to a birth or to a decision shows as a look at the
// operation within the same time. That much the contract leaves open: a commit may
// wait for the outcome, or find what it has opened only later, and the card behind a
// decision is read when the decision is written. Others may move the operation
// between.
func (r *recorder) read(client int, c call, a answer, begin, end int64) {
	if a.Lost || a.Code != "" {
		return
	}
	c.What, c.Operation = "get", a.Op.ID
	r.note(client, c, answer{Op: a.Op}, begin, end)
}

func (r *recorder) note(client int, c call, a answer, begin, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, porcupine.Operation{ClientId: client, Input: c, Call: begin, Output: a, Return: end})
}

// history gives what was noted; a call without an answer lasts until the end.
func (r *recorder) history() []porcupine.Operation {
	end := r.tick.Add(1)
	list := slices.Clone(r.calls)
	for i := range list {
		if list[i].Return == 0 {
			list[i].Return = end
		}
	}
	return list
}

// definite are the refusals after which nothing may have changed, by call; 503
// store_unavailable is one for every call.
var definite = map[string][]fault.Code{
	"preview":  {fault.IdempotencyKeyReused, fault.RejectedBefore},
	"commit":   {fault.TokenExpired, fault.ToolFrozen, fault.IdempotencyKeyReused, fault.PreviewStale, fault.RejectedBefore},
	"get":      {fault.OperationNotFound},
	"approve":  {fault.AlreadyDecided, fault.InvalidState},
	"reject":   {fault.AlreadyDecided, fault.InvalidState},
	"cancel":   {fault.InvalidState},
	"resolve":  {fault.InvalidState},
	"unfreeze": {fault.UnknownsOpen, fault.ToolFrozen, fault.FreezeNotFound},
}

// refused makes an answer of a refusal.
func (r *recorder) refused(c call, p problem) answer {
	switch {
	case p.Code == fault.StoreUnavailable, slices.Contains(definite[c.What], p.Code):
		return answer{Code: p.Code}
	case p.Code == fault.OutcomeUnclear:
		return answer{Lost: true}
	}
	r.odd(c, fmt.Sprintf("%s: %s", p.Code, p.Detail))
	return answer{Lost: true}
}

// odd notes an answer that no call may have.
func (r *recorder) odd(c call, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unexpected = append(r.unexpected, fmt.Sprintf("%s %s: %s", c.Tool, c.What, what))
}
