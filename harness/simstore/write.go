package simstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// tx is a write under way: what it did so far can be taken back, and the observer
// is told only when all of it is done.
type tx struct {
	*State
	undo    []func()
	changes []Change
}

// atomic runs a write, all or nothing.
func (s *State) atomic(fn func(*tx) error) error {
	s.now() // each write leaves its time behind
	t := &tx{State: s}
	if err := fn(t); err != nil {
		for _, undo := range slices.Backward(t.undo) {
			undo()
		}
		return err
	}
	s.changes = append(s.changes, t.changes...)
	return nil
}

func (t *tx) onUndo(f func()) { t.undo = append(t.undo, f) }

func (s *Store) write(ctx context.Context, c Call, fn func(*tx) error) error {
	c.Write = true
	return s.call(ctx, c, func(st *State) error { return st.atomic(fn) })
}

// Open implements ledger.Store. Of several conditions that don't hold, the head is
// named first: an operation that exists is the answer, whatever else is wrong.
func (s *Store) Open(ctx context.Context, o ledger.Opening) error {
	if err := wellFormed(o); err != nil {
		return err
	}
	first := o.New[0]
	c := Call{Method: "Open", Verb: string(first.Event.Verb) + "." + string(first.Operation.State), On: first.Operation.ID, WriteID: o.WriteID}
	if first.Operation.Parent != "" {
		c.Verb = "undo." + string(first.Operation.State)
	}
	return s.write(ctx, c, func(t *tx) error {
		for i, n := range o.New {
			err := t.mayOpen(n, o.Epoch)
			var refused *ledger.Refused
			if i == 0 && errors.As(err, &refused) && t.writes[o.WriteID] != nil {
				return nil // a repeat of an applied write
			}
			if err != nil {
				return err
			}
			t.bear(o.WriteID, n)
		}
		for _, m := range o.Moves {
			if err := t.beside(o.WriteID, m); err != nil {
				return err
			}
		}
		if o.CloseRun != nil {
			return t.closeRun(*o.CloseRun)
		}
		return nil
	})
}

func wellFormed(o ledger.Opening) error {
	if len(o.New) == 0 || o.WriteID == "" {
		return errors.New("simstore: an opening needs operations and a write id")
	}
	for _, n := range o.New {
		op := n.Operation
		if op.ID == "" || op.Tenant == "" || op.Version != 1 {
			return fmt.Errorf("simstore: %q of tenant %q, version %d, can't be opened", op.ID, op.Tenant, op.Version)
		}
		if op.KeyDigest != ledger.KeyDigest(op.Key) {
			return fmt.Errorf("simstore: %s carries the digest of another key", op.ID)
		}
	}
	return follow(o.Moves)
}

// follow refuses moves whose versions are not one apart.
func follow(moves []ledger.Move) error {
	for _, m := range moves {
		if m.Operation.Version != m.Expect+1 {
			return fmt.Errorf("simstore: version %d of %s can't follow %d", m.Operation.Version, m.Operation.ID, m.Expect)
		}
	}
	return nil
}

// mayOpen refuses unless everything that was evaluated still holds.
func (t *tx) mayOpen(n ledger.NewOperation, epoch int64) error {
	op := n.Operation
	head, was := newest(t.slots[frame(op.Tenant, op.Tool, op.KeyDigest)]).Operation, n.Head.Operation
	if head.ID != was.ID || head.Version != was.Version || op.Generation != head.Generation+1 {
		return &ledger.Refused{Why: ledger.HeadMoved}
	}
	if err := t.checkEpoch(op.Tenant, epoch); err != nil {
		return err
	}
	if op.Goal != nil {
		holder, was := newest(t.goals[frame(op.Tenant, op.Goal.Group, op.Goal.Value)]).Operation, n.GoalHead.Operation
		if holder.ID != was.ID || holder.Version != was.Version {
			return &ledger.Refused{Why: ledger.GoalMoved}
		}
	}
	if n.OpenRun && op.Run != nil {
		if r := t.runs[frame(op.Tenant, op.Agent.ID, op.Run.ID)]; r != nil && r.head.Closed() {
			return &ledger.Refused{Why: ledger.RunClosed}
		}
		if t.placeTaken(op) {
			return &ledger.Refused{Why: ledger.PlaceTaken}
		}
	}
	p, ok := t.previews[frame(op.Tenant, n.Preview)]
	switch {
	case !ok:
		return &ledger.Refused{Why: ledger.PreviewGone}
	case nanos(t.now()) >= nanos(p.ExpiresAt):
		return &ledger.Refused{Why: ledger.PreviewExpired}
	}
	return t.checkTime(n.NotAfter)
}

func (t *tx) checkEpoch(tenant string, epoch int64) error {
	if t.guardOf(tenant).Epoch != epoch {
		return &ledger.Refused{Why: ledger.EpochMoved}
	}
	return nil
}

func (t *tx) checkTime(notAfter time.Time) error {
	if !notAfter.IsZero() && t.now().After(notAfter) {
		return &ledger.Refused{Why: ledger.TooLate}
	}
	return nil
}

// bear writes one operation with everything born with it.
func (t *tx) bear(writeID string, n ledger.NewOperation) {
	op := cloneOperation(n.Operation)
	r := &row{n: int64(len(t.order)) + 1, plans: map[int]tools.Plan{op.Round: clonePlan(n.Plan)}}
	t.order = append(t.order, r)
	t.byID[op.ID] = r
	slot := frame(op.Tenant, op.Tool, op.KeyDigest)
	t.slots[slot] = append(t.slots[slot], r)
	t.onUndo(func() {
		t.order = t.order[:len(t.order)-1]
		delete(t.byID, op.ID)
		t.slots[slot] = t.slots[slot][:len(t.slots[slot])-1]
	})
	if op.Goal != nil {
		goal := frame(op.Tenant, op.Goal.Group, op.Goal.Value)
		t.goals[goal] = append(t.goals[goal], r)
		t.onUndo(func() { t.goals[goal] = t.goals[goal][:len(t.goals[goal])-1] })
	}
	if _, there := t.manifests[n.Manifest.Version]; !there {
		m := n.Manifest
		m.Text = append([]byte(nil), m.Text...)
		t.manifests[m.Version] = m
		t.onUndo(func() { delete(t.manifests, m.Version) })
	}
	if n.Evidence != nil {
		t.putEvidence(r, *n.Evidence)
	}
	if op.Run != nil && op.Parent == "" {
		t.growRun(op, r.n)
	}
	t.put(r, writeID, op, n.Event)
}

// put replaces a row and writes its event.
func (t *tx) put(r *row, writeID string, op ledger.Operation, ev ledger.Event) {
	was, versions, due, events, all := r.op, r.versions, r.due, r.events, t.events
	_, known := t.writes[writeID]
	ev = cloneEvent(ev)
	ev.Seq = int64(len(t.events)) + 1
	r.op, r.versions, r.due = op, append(r.versions[:len(r.versions):len(r.versions)], op), dueOf(op)
	r.events = append(r.events[:len(r.events):len(r.events)], ev)
	t.events = append(t.events, ev)
	if !known {
		t.writes[writeID] = r
	}
	t.onUndo(func() {
		r.op, r.versions, r.due, r.events, t.events = was, versions, due, events, all
		if !known {
			delete(t.writes, writeID)
		}
	})
	t.changes = append(t.changes, Change{Operation: &op, Event: &ev, WriteID: writeID})
}

// dueOf says since when an operation is due, by kind.
func dueOf(op ledger.Operation) map[ledger.DueKind]int64 {
	due := map[ledger.DueKind]int64{}
	switch op.State {
	case ledger.Pending:
		due[ledger.DueDispatch] = nanos(op.NotBefore)
		if !op.ExpiresAt.IsZero() {
			due[ledger.DueExpiry] = nanos(op.ExpiresAt)
		}
	case ledger.AwaitingApproval:
		if !op.ExpiresAt.IsZero() {
			due[ledger.DueExpiry] = nanos(op.ExpiresAt)
		}
	case ledger.Running:
		due[ledger.DueLease] = nanos(op.LeaseUntil)
	case ledger.Unknown:
		if !op.OnList {
			due[ledger.DueDoubt] = nanos(op.AskAt)
		}
	}
	return due
}

// beside moves another operation in a write.
func (t *tx) beside(writeID string, m ledger.Move) error {
	r, err := t.ofTenant(m.Operation.Tenant, m.Operation.ID)
	if err != nil {
		return err
	}
	if r.op.Version != m.Expect {
		return &ledger.Lost{Current: cloneOperation(r.op)}
	}
	t.put(r, writeID, cloneOperation(m.Operation), m.Event)
	return nil
}

// Apply implements ledger.Store. Of several conditions that don't hold, a lost
// race is named first.
func (s *Store) Apply(ctx context.Context, tr ledger.Transition) error {
	if tr.WriteID == "" || tr.Operation.Version != tr.Expect+1 {
		return fmt.Errorf("simstore: version %d of %s can't follow %d", tr.Operation.Version, tr.Operation.ID, tr.Expect)
	}
	if err := follow(tr.Also); err != nil {
		return err
	}
	c := Call{Method: "Apply", Verb: string(tr.Event.Verb), On: tr.Operation.ID, WriteID: tr.WriteID}
	return s.write(ctx, c, func(t *tx) error { return t.apply(tr) })
}

func (t *tx) apply(tr ledger.Transition) error {
	r, err := t.ofTenant(tr.Operation.Tenant, tr.Operation.ID)
	if err != nil {
		return err
	}
	if r.op.Version != tr.Expect {
		if slices.ContainsFunc(r.events, func(e ledger.Event) bool { return e.WriteID == tr.WriteID }) {
			return nil // this very write moved it
		}
		return &ledger.Lost{Current: cloneOperation(r.op)}
	}
	if tr.Epoch != nil {
		if err := t.checkEpoch(tr.Operation.Tenant, *tr.Epoch); err != nil {
			return err
		}
	}
	if err := t.checkTime(tr.NotAfter); err != nil {
		return err
	}
	if tr.Guard != nil {
		if err := t.putGuard(tr.WriteID, tr.Guard.Epoch-1, *tr.Guard); err != nil {
			return err
		}
	}
	if tr.Decision != nil {
		if err := t.putDecision(r, tr.WriteID, *tr.Decision); err != nil {
			return err
		}
	}
	if tr.Evidence != nil {
		t.putEvidence(r, *tr.Evidence)
	}
	if tr.Plan != nil {
		round := tr.Operation.Round
		was, there := r.plans[round]
		if there {
			return fmt.Errorf("simstore: %s has a plan of round %d", tr.Operation.ID, round)
		}
		r.plans[round] = clonePlan(*tr.Plan)
		t.onUndo(func() {
			if delete(r.plans, round); there {
				r.plans[round] = was
			}
		})
	}
	t.put(r, tr.WriteID, cloneOperation(tr.Operation), tr.Event)
	for _, m := range tr.Also {
		if err := t.beside(tr.WriteID, m); err != nil {
			return err
		}
	}
	return nil
}

// putDecision keeps a person's word, once for each round; taking a yes back is a
// second word.
func (t *tx) putDecision(r *row, writeID string, d ledger.Decision) error {
	for _, o := range r.decisions {
		if o.Round == d.Round && o.Person == d.Person && (o.Verb == ledger.VerbWithdraw) == (d.Verb == ledger.VerbWithdraw) {
			return &ledger.Refused{Why: ledger.AlreadyDecided}
		}
	}
	was := r.decisions
	d = cloneDecision(d)
	r.decisions = append(was[:len(was):len(was)], d)
	t.onUndo(func() { r.decisions = was })
	t.changes = append(t.changes, Change{Decision: &d, WriteID: writeID})
	return nil
}

// putEvidence appends evidence once by its id.
func (t *tx) putEvidence(r *row, e ledger.Evidence) {
	if slices.ContainsFunc(r.evidence, func(o ledger.Evidence) bool { return o.ID == e.ID }) {
		return
	}
	was := r.evidence
	r.evidence = append(was[:len(was):len(was)], cloneEvidence(e))
	t.onUndo(func() { r.evidence = was })
}

// AddEvidence implements ledger.Store.
func (s *Store) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	return s.write(ctx, Call{Method: "AddEvidence", Verb: e.Kind, On: e.Operation}, func(t *tx) error {
		r, err := t.ofTenant(tenant, e.Operation)
		if err == nil {
			t.putEvidence(r, e)
		}
		return err
	})
}

func (s *State) guardOf(tenant string) ledger.Guard {
	if rows := s.guards[tenant]; len(rows) > 0 {
		return rows[len(rows)-1].guard
	}
	return ledger.Guard{Tenant: tenant}
}

func (t *tx) putGuard(writeID string, expect int64, g ledger.Guard) error {
	if g.Epoch != expect+1 {
		return fmt.Errorf("simstore: a guard row of epoch %d can't follow %d", g.Epoch, expect)
	}
	if err := t.checkEpoch(g.Tenant, expect); err != nil {
		return err
	}
	was := t.guards[g.Tenant]
	g = cloneGuard(g)
	t.guards[g.Tenant] = append(was[:len(was):len(was)], guardRow{guard: g, writeID: writeID})
	t.onUndo(func() {
		if t.guards[g.Tenant] = was; len(was) == 0 {
			delete(t.guards, g.Tenant)
		}
	})
	t.changes = append(t.changes, Change{Guard: &g, WriteID: writeID})
	return nil
}

// ChangeGuard implements ledger.Store.
func (s *Store) ChangeGuard(ctx context.Context, c ledger.GuardChange) ([]ledger.Operation, error) {
	var running []ledger.Operation
	call := Call{Method: "ChangeGuard", Verb: c.Guard.Change.What, On: c.Guard.Tenant, WriteID: c.WriteID, First: true}
	err := s.write(ctx, call, func(t *tx) error {
		if err := t.putGuard(c.WriteID, c.Expect, c.Guard); err != nil {
			again := slices.ContainsFunc(t.guards[c.Guard.Tenant], func(g guardRow) bool { return g.writeID == c.WriteID })
			if !again {
				return err
			}
		}
		running = nil
		for _, r := range t.order {
			if r.op.Tenant == c.Guard.Tenant && r.op.State == ledger.Running {
				running = append(running, cloneOperation(r.op))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return running, nil
}
