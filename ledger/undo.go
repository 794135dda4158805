package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/fault"
)

// An undo is an operation of its own, the child. Its birth moves the parent to
// compensating, and its end moves the parent on, each in the child's own write:
// there is no moment in which the two tell different stories (I15).

// UndoKey is the key under which the undos of an operation live.
func UndoKey(parent string) string { return undoPrefix + parent }

// undoPrefix is reserved: no key of a caller or a template begins with it.
const undoPrefix = "undo:"

// Undoable refuses what can't be taken back as it stands: an undo, an effect
// that was only found, or an operation that did not succeed. What is unknown is
// never undone: nobody knows whether there is anything to undo.
func Undoable(op Operation) error {
	switch {
	case op.Parent != "":
		return withOperation(fault.New(fault.UndoImpossible, "This operation is an undo itself; an undo is not undone."), op)
	case op.Adopted:
		return withOperation(fault.New(fault.UndoImpossible, "The effect was found already there; this gateway did not make it and does not take it back."), op)
	case op.State == Unknown:
		return withOperation(fault.New(fault.UndoImpossible, "Its outcome is not known; it must be found out before anything is taken back."), op)
	case op.State != Succeeded:
		return withOperation(fault.New(fault.UndoImpossible, "Only what succeeded can be taken back; this operation is %s.", op.State), op)
	}
	return nil
}

// itsParent refuses an undo that does not come with what it takes back, and
// whatever else comes under a key that is an undo's: no parent would follow it.
func itsParent(op Operation, parent *Operation) error {
	switch {
	case parent == nil && op.Parent == "" && !strings.HasPrefix(op.Key, undoPrefix):
		return nil
	case parent != nil && op.Parent == parent.ID && op.Key == UndoKey(parent.ID) && op.Tenant == parent.Tenant:
		return nil
	}
	return fault.New(fault.Internal, "The ledger refused an undo without its operation under the key %q.", cut(op.Key, 64))
}

// Subject is what the guard row is asked about before the operation is sent.
// What an operator asked for doesn't hang on the agent's rights; what another
// agent asked for hangs on that one's.
func (op Operation) Subject() Subject {
	s := Subject{Tool: op.Tool, Agent: op.Agent.ID, Undo: op.Parent != ""}
	switch {
	case op.AskedBy == nil:
	case op.AskedBy.Kind == "agent":
		s.Agent = op.AskedBy.ID
	default:
		s.ByOperator = true
	}
	return s
}

// beginUndo is the parent's move in the write that opens its undo.
func (l *Ledger) beginUndo(parent, child Operation, writeID string) (Move, error) {
	if err := Undoable(parent); err != nil {
		return Move{}, err
	}
	next := parent
	next.State, next.Child = Compensating, child.ID
	return l.beside(parent, next, VerbCompensate, Event{Actor: Gateway("undo"), Reason: &Reason{Code: "undo_opened", Text: child.ID}}, writeID)
}

// beside makes the move of another operation in a write.
func (l *Ledger) beside(op, next Operation, verb Verb, ev Event, writeID string) (Move, error) {
	if !slices.Contains(Allowed(op.State, verb, len(op.Attempts) > 0, op.Touched()), next.State) {
		return Move{}, invalidState(op, verb)
	}
	if err := consistent(next); err != nil {
		return Move{}, err
	}
	next.Version, next.UpdatedAt, next.WriteID = op.Version+1, l.Now(), writeID
	ev.Verb = verb
	e := l.event(op.State, next, ev)
	next.Chain = e.Hash
	return Move{Operation: next, Expect: op.Version, Event: e}, nil
}

// endUndo is the parent's move, if any, in the write that moves its undo.
func (l *Ledger) endUndo(ctx context.Context, child, next Operation, writeID string) ([]Move, error) {
	ends, contradicted := undoEnds(child.State, next.State)
	if child.Parent == "" || !ends && !contradicted {
		return nil, nil
	}
	parent, err := l.Operation(ctx, child.Tenant, child.Parent)
	if err != nil {
		return nil, err
	}
	others := false
	if ends && next.State.Void() && parent.State == Compensating {
		if others, err = l.otherUndo(ctx, parent, child.ID); err != nil {
			return nil, err
		}
	}
	verb, moved := followUndo(parent, child.ID, child.State, next.State, others)
	ev := Event{Actor: Gateway("undo")}
	switch verb {
	case "":
		return nil, nil
	case VerbRecompensate:
		ev.Reason = &Reason{Code: "undo_contradicted", Text: "Its undo had ended without effect, and then an effect of it was seen."}
	case VerbCompensated:
		ev.Reason = &Reason{Code: "undone", Text: child.ID}
	default:
		ev.Reason = &Reason{Code: "undo_" + string(next.State), Text: "The undo ended without effect; the effect is still there."}
	}
	m, err := l.beside(parent, moved, verb, ev, writeID)
	if err != nil {
		return nil, err
	}
	return []Move{m}, nil
}

// undoEnds reports what a move of an undo is to its parent.
func undoEnds(from, to State) (ends, contradicted bool) {
	return to.Final() && !from.Final(), from.Void() && to == Unknown
}

// followUndo says how a parent moves when one of its undos moves; no verb when it
// doesn't. An effect of any undo counts; an end without one only where no other
// undo of the parent is live or in doubt. That takes a contradiction, so the other
// one is proven to have taken place and will say so.
func followUndo(parent Operation, child string, from, to State, others bool) (Verb, Operation) {
	ends, contradicted := undoEnds(from, to)
	switch {
	case contradicted && parent.State == Succeeded:
		parent.State, parent.Child = Compensating, child
		return VerbRecompensate, parent
	case contradicted && parent.State == Compensating:
		// Its row moves, so that the newer undo does not end by what was so before.
		return VerbRecompensate, parent
	case ends && parent.State == Compensating && to == Succeeded:
		parent.State = Compensated
		return VerbCompensated, parent
	case ends && parent.State == Compensating && !others:
		parent.State = Succeeded
		return VerbGiveUp, parent
	}
	return "", parent
}

// otherUndo reports that an undo of the parent besides this one is live, in doubt
// or done.
func (l *Ledger) otherUndo(ctx context.Context, parent Operation, child string) (bool, error) {
	page, err := l.List(ctx, Filter{Tenant: parent.Tenant, Parent: parent.ID, States: PossibleEffect(), Limit: 2})
	return slices.ContainsFunc(page.Operations, func(op Operation) bool { return op.ID != child }), err
}

// speaks reports that the parent is being taken back by that undo and no other:
// only then may it be sent.
func speaks(parent Operation, child string, others bool) bool {
	return parent.State == Compensating && parent.Child == child && !others
}

// RunUndo is the undo of a run as it was evaluated.
type RunUndo struct {
	// Run as evaluated; it must not have grown since.
	Run RunHead
	// Preview is the preview that the caller committed.
	Preview string
	By      Actor
	// Children in the order of their dispatch: the newest effect first.
	Children []OpenRequest
	Epoch    int64
}

// MaxRunUndo is how many effects one undo of a run may take back.
const MaxRunUndo = 100

// OpenRunUndo closes the run and opens the undos of its effects in one write.
// Each is dispatched only when the one before it has succeeded. A run that is
// closed is refused, also where this very preview closed it: RunHead.Closing tells
// the caller, who then answers with what stands. ErrMoved asks the caller to
// evaluate again.
func (l *Ledger) OpenRunUndo(ctx context.Context, u RunUndo) ([]Operation, error) {
	if len(u.Children) == 0 || len(u.Children) > MaxRunUndo {
		return nil, fault.New(fault.UndoImpossible, "The undo of a run takes back 1 to %d effects; this one has %d.", MaxRunUndo, len(u.Children))
	}
	head := u.Run
	head.ClosedAt, head.ClosedBy, head.Closing = l.Now(), u.By, u.Preview
	o := Opening{WriteID: newWriteID(), Epoch: u.Epoch, CloseRun: &head}
	births := make([]newborn, len(u.Children))
	for i, r := range u.Children {
		b, err := l.birth(r, o.WriteID)
		if err != nil {
			return nil, err
		}
		if b.op.State == Running { // its turn comes with the executor
			b.op.State = Pending
		}
		if b.op.ExpiresAt.IsZero() {
			b.op.ExpiresAt = b.op.CreatedAt.Add(cmp.Or(r.Requirement.Expiry, undoExpiry))
		}
		if i > 0 {
			b.op.After = births[i-1].op.ID
			births[i-1].op.Next = b.op.ID
		}
		births[i] = b
	}
	for _, b := range births {
		if err := l.bear(&o, b); err != nil {
			return nil, err
		}
	}
	err := l.write(ctx, o)
	if err == nil {
		ops := make([]Operation, len(o.New))
		for i, n := range o.New {
			ops[i] = n.Operation
		}
		return ops, nil
	}
	var refused *Refused
	var lost *Lost
	switch {
	case errors.As(err, &lost):
		return nil, ErrMoved
	case !errors.As(err, &refused):
		return nil, StoreFault(err)
	case refused.Why == RunClosed:
		return nil, RunIsClosed()
	case refused.Why == PreviewGone || refused.Why == PreviewExpired:
		return nil, fault.New(fault.TokenExpired, "The commit token has expired; nothing was opened.")
	}
	return nil, ErrMoved
}

// undoExpiry bounds how long an undo in a row waits for its turn, where its
// tool says nothing.
const undoExpiry = 24 * time.Hour

// RunIsClosed refuses what would open something in a run that was closed.
func RunIsClosed() error {
	return fault.New(fault.RunClosed, "This run was closed by its undo; nothing more is opened in it.")
}

// GoalFree refuses a goal that another operation holds: one that may have, or
// has, an effect. againOf may name the holder itself.
func GoalFree(h Head, agent, againOf string) error {
	op := h.Operation
	if !h.Exists() || op.State.Void() || op.State == Compensated || op.ID == againOf {
		return nil
	}
	e := fault.New(fault.GoalTaken, "Another operation already stands for this goal and is %s; at most one may take effect.", op.State)
	if op.Agent.ID == agent {
		e.Operation = op.ID
	}
	return e
}
