package policy

import (
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
)

// Asker is who asks for something to be taken back: an agent, or an operator.
type Asker struct {
	// Tenant of who asks.
	Tenant string
	// Agent is nil when an operator asks; By is then the operator.
	Agent *identity.Agent
	By    ledger.Actor
}

// ID is the agent's or the operator's, and the subject of their tokens.
func (a Asker) ID() string {
	if a.Agent != nil {
		return a.Agent.ID
	}
	return a.By.ID
}

// Check refuses an asker who is nobody: neither an agent of the tenant nor an
// operator.
func (a Asker) Check() error {
	if a.Agent != nil && a.Agent.Tenant == a.Tenant || a.Agent == nil && a.By.Kind == "operator" && a.By.ID != "" {
		return nil
	}
	return fault.New(fault.NotAllowed, "Only an agent or an operator of this tenant may ask for an undo.")
}

// MayUndo refuses the undo of an operation. An operator may ask for any. An
// agent may for its own, and for another's when it may use the tool and has the
// same owner: else the owner of who asks could not be kept from approving it
// (S31). What it may not ask for is not there for it.
func (a Asker) MayUndo(op ledger.Operation) error {
	if a.Agent == nil || op.Agent.ID == a.Agent.ID || a.Agent.May(op.Tool) && a.Agent.Owner == op.Agent.Owner {
		return nil
	}
	return fault.New(fault.OperationNotFound, "There is no such operation.")
}

// MayUse refuses an agent that has no grant for the tool that takes it back.
func (a Asker) MayUse(tool string) error {
	if a.Agent == nil || a.Agent.May(tool) {
		return nil
	}
	return fault.New(fault.ToolNotGranted, "This agent has no grant for the tool %s, which takes it back.", tool)
}

// MaySee refuses an undo that exists, and stands for parent, to an agent that
// neither asked for it nor did what it takes back, and could not ask for it now.
func (a Asker) MaySee(parent, undo ledger.Operation) error {
	if a.Agent == nil || undo.Agent.ID == a.Agent.ID || undo.AskedBy != nil && undo.AskedBy.ID == a.Agent.ID {
		return nil
	}
	if err := a.MayUndo(parent); err != nil {
		return err
	}
	return a.MayUse(undo.Tool)
}

// MayUndoRun refuses the undo of a run that is not the agent's own.
func (a Asker) MayUndoRun(agent string) error {
	if a.Agent == nil || a.Agent.ID == agent {
		return nil
	}
	return fault.New(fault.RunNotFound, "There is no such run.")
}

// AskedBy is what the undo of an operation keeps of who asked: nil when it is
// the very agent that did it.
func (a Asker) AskedBy(op ledger.Operation) *ledger.Actor {
	switch {
	case a.Agent == nil:
		by := a.By
		return &by
	case a.Agent.ID == op.Agent.ID:
		return nil
	}
	return &ledger.Actor{Kind: "agent", ID: a.Agent.ID, Name: a.Agent.Name}
}

// Actor is the asker as events name them.
func (a Asker) Actor() ledger.Actor {
	if a.Agent != nil {
		return ledger.Actor{Kind: "agent", ID: a.Agent.ID, Name: a.Agent.Name}
	}
	return a.By
}

// Concerned reports that the operation is the person's own affair, on which
// somebody else must decide, and why: they asked for it, or own the agent that
// did (separation of duties).
func Concerned(op ledger.Operation, person string) (why string, concerned bool) {
	switch {
	case person == op.Agent.Owner:
		return "You own the agent that asks; somebody else must decide.", true
	case person == op.Agent.ID, op.AskedBy != nil && person == op.AskedBy.ID:
		return "You asked for this; somebody else must decide.", true
	}
	return "", false
}
