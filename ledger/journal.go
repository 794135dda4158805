package ledger

import (
	"context"
	"slices"
	"strconv"

	"countersign/fault"
)

// The journal of a run is the list of what it did to the world: effects, not
// intentions (R105). An agent that comes back after a crash reads it, or simply
// calls its steps again: each is answered with its first result, and what a
// later step needs of it (an id, a number) is handed on from here, never made a
// second time (R104, R176).

// Journal is what a run did, oldest first.
type Journal struct {
	Run     RunHead
	Entries []JournalEntry
}

// JournalEntry is one operation of a run. What and when stand in Operation:
// its headline, its effect id, its result, its times.
type JournalEntry struct {
	Operation Operation
	// Stale says why a later step should not build on the result as it stands:
	// Stale* words; empty when nothing speaks against it (R56).
	Stale []string
	// Undoes are the operations that took it back, or tried to, oldest first.
	Undoes []Operation
}

// What makes a recorded result stale. It is still the first result, and is
// answered as such; but whoever goes on from it must look first (R56).
const (
	// StaleBeingUndone: its undo is under way.
	StaleBeingUndone = "being_undone"
	// StaleUndone: it was taken back.
	StaleUndone = "undone"
	// StaleRunClosed: its run was closed; nothing more is opened in it.
	StaleRunClosed = "run_closed"
	// StaleToolChanged: the tool in force is not the one that did it.
	StaleToolChanged = "tool_changed"
	// StaleToolWithdrawn: the tool is no longer there.
	StaleToolWithdrawn = "tool_withdrawn"
	// StaleAbsentOutside: the outside system was asked, and doesn't show it.
	StaleAbsentOutside = "absent_outside"
)

// PlaceFree refuses a call at a place of a run (run, step and call) where another
// call stands that may have an effect, has one, or had one: whoever replays a run
// gets its first results, and never a second effect because its arguments changed
// (R42, R57, R104). What is void frees the place.
func (r Reader) PlaceFree(ctx context.Context, p Preview) error {
	if !p.Run.Complete() || p.Parent != "" {
		return nil
	}
	page, err := r.store.List(ctx, Filter{Tenant: p.Tenant, Agent: p.Agent, Place: p.Run, States: standing()})
	if err != nil {
		return readFault(err)
	}
	for _, op := range page.Operations {
		if op.Tool != p.Tool || op.Key != p.Key {
			return withOperation(fault.New(fault.RunCallChanged,
				"In this run, step %s, call %s was %s and is %s. A call of a run stands for one intent: repeat it with the arguments that it had, or name a new call.",
				cut(p.Run.Step, 64), cut(p.Run.Call, 64), op.Tool, op.State), op)
		}
	}
	return nil
}

// standing lists the states that are not void.
func standing() []State { return slices.DeleteFunc(slices.Clone(States), State.Void) }

// Effects are the entries that had an effect, or may have one: what is live,
// effective or unknown. Void ones changed nothing.
func (j Journal) Effects() []JournalEntry {
	var out []JournalEntry
	for _, e := range j.Entries {
		if !e.Operation.State.Void() {
			out = append(out, e)
		}
	}
	return out
}

// Live gives the first operation of the run, or undo of one, that has no answer
// yet.
func (j Journal) Live() (Operation, bool) {
	for _, e := range j.Entries {
		if e.Operation.State.Live() {
			return e.Operation, true
		}
		for _, u := range e.Undoes {
			if u.State.Live() {
				return u, true
			}
		}
	}
	return Operation{}, false
}

// Undoable refuses the undo of a run in which nothing was opened, that is closed,
// or in which something has no answer yet: what is live or unknown is never
// undone, nor anything around it.
func (j Journal) Undoable() error {
	switch {
	case j.Run.Operations == 0:
		return fault.New(fault.RunNotFound, "There is no such run.")
	case j.Run.Closed():
		return RunIsClosed()
	}
	if op, live := j.Live(); live {
		return withOperation(fault.New(fault.RunLive, "An operation in this run is %s. A run is taken back when everything in it has its answer.", op.State), op)
	}
	return nil
}

// Journal reads what a run did. A run in which nothing was opened has no
// entries; its RunHead then counts no operations.
func (r Reader) Journal(ctx context.Context, tenant, agent, run string) (Journal, error) {
	head, err := r.RunHead(ctx, tenant, agent, run)
	if err != nil {
		return Journal{}, err
	}
	guard, err := r.Guard(ctx, tenant)
	if err != nil {
		return Journal{}, err
	}
	j := Journal{Run: head}
	place := map[string]int{}
	f := Filter{Tenant: tenant, Agent: agent, Run: run, OldestFirst: true, Limit: 200}
	for {
		page, err := r.List(ctx, f)
		if err != nil {
			return Journal{}, err
		}
		for _, op := range page.Operations {
			// An undo stands behind its parent in the order of opening.
			if i, ok := place[op.Parent]; ok && op.Parent != "" {
				j.Entries[i].Undoes = append(j.Entries[i].Undoes, op)
				continue
			}
			place[op.ID] = len(j.Entries)
			j.Entries = append(j.Entries, JournalEntry{Operation: op, Stale: stale(op, head, guard)})
		}
		if page.Next == "" {
			return j, nil
		}
		f.Cursor = page.Next
	}
}

// Stale says why the result of an operation that is answered again should not be
// built upon without a look; empty when nothing speaks against it.
func (r Reader) Stale(ctx context.Context, op Operation) ([]string, error) {
	guard, err := r.Guard(ctx, op.Tenant)
	if err != nil {
		return nil, err
	}
	var head RunHead
	if op.Run != nil {
		if head, err = r.RunHead(ctx, op.Tenant, op.Agent.ID, op.Run.ID); err != nil {
			return nil, err
		}
	}
	return stale(op, head, guard), nil
}

func stale(op Operation, run RunHead, guard Guard) []string {
	if op.State.Void() || op.Parent != "" {
		return nil // there is no result that a later step builds upon
	}
	var why []string
	switch op.State {
	case Compensating:
		why = append(why, StaleBeingUndone)
	case Compensated:
		why = append(why, StaleUndone)
	}
	if run.Closed() {
		why = append(why, StaleRunClosed)
	}
	switch version, there := guard.Tools[op.Tool]; {
	case !there:
		why = append(why, StaleToolWithdrawn)
	case version != op.ToolVersion:
		why = append(why, StaleToolChanged)
	}
	return why
}

// RunUndoTool stands in the commit token of a run's undo in place of a tool; no
// tool can have this name, so that the token commits nothing else.
const RunUndoTool = undoPrefix + "run"

// RunUndoKey stands in that token in place of an idempotency key; no operation
// has it.
func RunUndoKey(agent, run string) string { return RunUndoTool + string(frame(agent, run)) }

// RunPlanDigest names the undo of a run as it was shown: the run as it stood,
// and the undos with the versions of what they take back, in the order of their
// dispatch.
func RunPlanDigest(run RunHead, undoes []Preview) string {
	parts := []string{"countersign-run-undo-1", run.Tenant, run.Agent, run.ID, itoa(run.Operations)}
	for _, p := range undoes {
		parts = append(parts, p.Parent, strconv.FormatInt(p.ParentVersion, 10), p.Tool, p.ToolVersion, itoa(p.Generation), p.PlanDigest)
	}
	return KeyDigest(string(frame(parts...)))
}

// SameArgs counts operations of a tool with these arguments, under another key,
// that are live or took effect: two keys are two intents, but often it is one
// that was asked for twice (N7).
func (r Reader) SameArgs(ctx context.Context, tenant, tool, key, argsDigest string) (int, error) {
	page, err := r.List(ctx, Filter{Tenant: tenant, Tool: tool, Args: argsDigest, States: PossibleEffect(), Limit: 20})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, op := range page.Operations {
		if op.Key != key {
			n++
		}
	}
	return n, nil
}

// StandingUndo finds the undo of an operation that is live, in doubt or done:
// there is at most one, and it is the answer to whoever asks for another (I15).
func (r Reader) StandingUndo(ctx context.Context, tenant, parent string) (Operation, bool, error) {
	page, err := r.List(ctx, Filter{Tenant: tenant, Parent: parent, States: PossibleEffect(), Limit: 1})
	if err != nil || len(page.Operations) == 0 {
		return Operation{}, false, err
	}
	return page.Operations[0], true, nil
}
