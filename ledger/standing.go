package ledger

import (
	"context"
	"fmt"

	"countersign/fault"
)

// Head is what stands under one (tenant, tool, key), or for one goal: the newest
// operation. Where that one is void, and an older one took effect after all (late
// evidence contradicted it, or it was repeated and the repeat failed), the older
// one stands.
type Head struct {
	Operation Operation
	// Newest is the newest operation where that is not the one that stands.
	Newest *Operation
}

// Exists reports that some generation was opened.
func (h Head) Exists() bool { return h.Operation.ID != "" }

// newest is the newest operation, which a store compares at an open.
func (h Head) newest() Operation {
	if h.Newest != nil {
		return *h.Newest
	}
	return h.Operation
}

// Advice is what Standing says of a key.
type Advice string

const (
	// AdviceOpen: generation Standing.Generation may be opened.
	AdviceOpen Advice = "open"
	// AdviceReplay: the head's operation is the answer.
	AdviceReplay Advice = "replay"
)

// Standing says what a call under a key may become.
type Standing struct {
	Advice     Advice
	Generation int
	// Asks: an opened generation needs approval whatever the policy says (a
	// wanted repeat).
	Asks bool
}

// Stand is the one rule of keys and generations; preview uses it as advice,
// open as law. A live or effective head with the same arguments is the answer;
// with others it is refused (R42); a void head frees the next generation, which
// may carry other arguments; againOf opens a wanted repeat behind an effective,
// final head that it names.
func Stand(h Head, argsDigest, againOf string) (Standing, error) {
	op := h.Operation
	if againOf != "" {
		switch {
		case !h.Exists() || op.ID != againOf:
			return Standing{}, fault.New(fault.AgainOfInvalid, "again_of must name the operation that stands under this key.")
		case !op.State.Final() || !op.State.Effective():
			return Standing{}, withOperation(fault.New(fault.AgainOfInvalid, "again_of needs an operation that took effect; this one is %s.", op.State), op)
		}
		return Standing{Advice: AdviceOpen, Generation: h.newest().Generation + 1, Asks: true}, nil
	}
	switch {
	case !h.Exists():
		return Standing{Advice: AdviceOpen, Generation: 1}, nil
	case op.State.Void():
		return Standing{Advice: AdviceOpen, Generation: op.Generation + 1}, nil
	case op.ArgsDigest != argsDigest:
		return Standing{}, withOperation(fault.New(fault.IdempotencyKeyReused,
			"The idempotency key %q was used with other arguments. One key stands for one intent.", cut(op.Key, 64)), op)
	default:
		return Standing{Advice: AdviceReplay, Generation: op.Generation}, nil
	}
}

// HideForeign removes the operation from a refusal when it is another agent's.
func HideForeign(err error, op Operation, agent string) error {
	e := *fault.Of(err)
	if op.Agent.ID != agent {
		e.Operation = ""
	}
	return &e
}

// RefuseRejected refuses an ask that a person rejected and nobody reopened.
func (r Reader) RefuseRejected(ctx context.Context, tenant, agent, tool, argsDigest string) error {
	op, found, err := r.RejectedAsk(ctx, tenant, tool, argsDigest, agent)
	if err != nil || !found {
		return err
	}
	return withOperation(fault.New(fault.RejectedBefore,
		"A person rejected exactly this action: %s. It can't be asked again unless a person reopens it.", op.Reason.Text), op)
}

func withOperation(e *fault.Error, op Operation) *fault.Error {
	e.Operation = op.ID
	return e
}

// cut shortens an echo of input to n bytes at a character border (S78).
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return fmt.Sprintf("%s…", s[:n])
}
