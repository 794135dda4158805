package simstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// Call names one call of a store, for hooks.
type Call struct {
	// Method is the method's name.
	Method string
	// Verb is the event's verb of an Open or Apply, the kind of a Due.
	Verb string
	// On is what the call is about: an operation, a preview, a tenant.
	On string
	// WriteID is that of a write that has one.
	WriteID string
	// Write says that the effect may change something.
	Write bool
	// First: it overtakes what waits, as a change of a guard row does.
	First bool
}

// Hook stands around each call. It returns nil when effect was run and its own
// answer is the caller's; any error it returns is the caller's answer, whether
// or not effect was or will be run. An effect may be run more than once; it
// gives the store's own answer.
type Hook func(ctx context.Context, c Call, effect func() error) error

// Change is one applied write, as an observer sees it.
type Change struct {
	// Operation and Event of a birth or a move; nil of a guard row.
	Operation *ledger.Operation
	Event     *ledger.Event
	// Guard is a guard row that was written.
	Guard *ledger.Guard
	// Decision that came along.
	Decision *ledger.Decision
	// WriteID of the write that it is part of.
	WriteID string
}

// errClosed: the handle was closed; nothing was written.
var errClosed = errors.New("simstore: closed")

// Store is one handle on a State. Its methods are safe for concurrent use.
type Store struct {
	state *State
	hook  Hook

	mu     sync.Mutex
	closed bool
}

// State is what handles share.
type State struct {
	now func() time.Time

	mu          sync.Mutex
	observe     func(Change)
	changes     []Change // not told yet
	ledgerID    string
	previews    map[string]ledger.Preview // by tenant and id
	order       []*row                    // operations in the order of birth
	byID        map[string]*row
	slots       map[string][]*row // by tenant, tool and key digest, oldest first
	goals       map[string][]*row // by tenant, group and value, oldest first
	runs        map[string]*run   // by tenant, agent and run
	guards      map[string][]guardRow
	writes      map[string]*row // the first operation that a write touched
	events      []ledger.Event  // Seq is the index + 1
	manifests   map[string]ledger.Manifest
	checkpoints []ledger.Checkpoint
}

// row is one operation with what belongs to it.
type row struct {
	n         int64 // the order of birth, from 1
	op        ledger.Operation
	versions  []ledger.Operation // all that it was, version 1 first
	plans     map[int]tools.Plan
	decisions []ledger.Decision
	evidence  []ledger.Evidence
	events    []ledger.Event
	due       map[ledger.DueKind]int64
}

type run struct {
	head   ledger.RunHead
	newest int64
}

type guardRow struct {
	guard   ledger.Guard
	writeID string
}

// NewState returns an empty state. now is the store's own clock; observe, unless
// nil, is told of every applied write behind it, by whoever ran its effect.
func NewState(now func() time.Time, observe func(Change)) *State {
	return &State{
		now: ledger.NewClock(now, time.Time{}).Now, observe: observe,
		previews: map[string]ledger.Preview{}, byID: map[string]*row{}, slots: map[string][]*row{}, goals: map[string][]*row{},
		runs: map[string]*run{}, guards: map[string][]guardRow{}, writes: map[string]*row{}, manifests: map[string]ledger.Manifest{},
	}
}

// Open gives a handle whose calls go through hook; nil lets them pass.
func (s *State) Open(hook Hook) *Store {
	if hook == nil {
		hook = func(_ context.Context, _ Call, effect func() error) error { return effect() }
	}
	return &Store{state: s, hook: hook}
}

// Versions gives everything that an operation was, version 1 first.
func (s *State) Versions(id string) []ledger.Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		return r.versions
	}
	return nil
}

// Operations gives all operations of all tenants as they stand, oldest first.
// They must not be changed.
func (s *State) Operations() []ledger.Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]ledger.Operation, len(s.order))
	for i, r := range s.order {
		out[i] = r.op
	}
	return out
}

// Any reports whether the function says so of some operation, while nothing is
// written. It must not change it.
func (s *State) Any(says func(*ledger.Operation) bool) bool {
	for _, r := range s.rows() {
		if says(&r.op) {
			return true
		}
	}
	return false
}

func (s *State) rows() []*row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order
}

// Now gives an operation as it stands; a zero one when there is none. It must not
// be changed.
func (s *State) Now(id string) *ledger.Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		return &r.op
	}
	return &ledger.Operation{}
}

// Evidence gives what is known of an operation; it must not be changed.
func (s *State) Evidence(id string) []ledger.Evidence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		return r.evidence
	}
	return nil
}

// Preview gives a stored preview; a zero one when there is none. It must not be
// changed.
func (s *State) Preview(tenant, id string) ledger.Preview {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.previews[frame(tenant, id)]
}

// Plan gives the plan of one round, as it is kept; it must not be changed.
func (s *State) Plan(id string, round int) tools.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		return r.plans[round]
	}
	return tools.Plan{}
}

// Pending reports whether anything is due as kind at now, without claiming it.
func (s *State) Pending(kind ledger.DueKind, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.order {
		if at, ok := r.due[kind]; ok && at <= nanos(now) {
			return true
		}
	}
	return false
}

// call runs one call through the hook. fn runs while the state is locked.
func (s *Store) call(ctx context.Context, c Call, fn func(*State) error) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var answer error
	told := s.hook(ctx, c, func() error {
		answer = s.state.run(fn)
		return answer
	})
	if told != nil {
		return told // the effect may still be run: answer is not looked at
	}
	return answer
}

// run runs one effect and tells the observer what it changed.
func (s *State) run(fn func(*State) error) error {
	s.mu.Lock()
	err := fn(s)
	changes := s.changes
	s.changes = nil
	s.mu.Unlock()
	if s.observe != nil {
		for _, c := range changes {
			s.observe(c)
		}
	}
	return err
}

// Close implements ledger.Store; it closes this handle only.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Ping implements ledger.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, Call{Method: "Ping"}, func(*State) error { return nil })
}

// LedgerID implements ledger.Store.
func (s *Store) LedgerID(ctx context.Context, candidate string) (string, error) {
	var id string
	err := s.call(ctx, Call{Method: "LedgerID", Write: true}, func(st *State) error {
		if st.ledgerID == "" {
			st.ledgerID = candidate
		}
		id = st.ledgerID
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// get is a read that gives one value.
func get[T any](ctx context.Context, s *Store, c Call, fn func(*State) (T, error)) (T, error) {
	var got T
	err := s.call(ctx, c, func(st *State) (err error) {
		got, err = fn(st)
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return got, nil
}

// ofTenant finds an operation of the tenant.
func (s *State) ofTenant(tenant, id string) (*row, error) {
	r := s.byID[id]
	if r == nil || r.op.Tenant != tenant {
		return nil, ledger.ErrNotFound
	}
	return r, nil
}

func pick[T any](ctx context.Context, s *Store, method, tenant, operation string, fn func(*row) (T, error)) (T, error) {
	return get(ctx, s, Call{Method: method, On: operation}, func(st *State) (T, error) {
		r, err := st.ofTenant(tenant, operation)
		if err != nil {
			var zero T
			return zero, err
		}
		return fn(r)
	})
}

// Operation implements ledger.Store.
func (s *Store) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	return pick(ctx, s, "Operation", tenant, id, func(r *row) (ledger.Operation, error) { return cloneOperation(r.op), nil })
}

// Plan implements ledger.Store.
func (s *Store) Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error) {
	return pick(ctx, s, "Plan", tenant, operation, func(r *row) (tools.Plan, error) {
		p, ok := r.plans[round]
		if !ok {
			return p, ledger.ErrNotFound
		}
		return clonePlan(p), nil
	})
}

// Decisions implements ledger.Store.
func (s *Store) Decisions(ctx context.Context, tenant, operation string) ([]ledger.Decision, error) {
	return pick(ctx, s, "Decisions", tenant, operation, func(r *row) ([]ledger.Decision, error) { return cloneEach(r.decisions, cloneDecision), nil })
}

// Evidence implements ledger.Store.
func (s *Store) Evidence(ctx context.Context, tenant, operation string) ([]ledger.Evidence, error) {
	return pick(ctx, s, "Evidence", tenant, operation, func(r *row) ([]ledger.Evidence, error) { return cloneEach(r.evidence, cloneEvidence), nil })
}

// Events implements ledger.Store.
func (s *Store) Events(ctx context.Context, tenant, operation string) ([]ledger.Event, error) {
	return pick(ctx, s, "Events", tenant, operation, func(r *row) ([]ledger.Event, error) { return cloneEach(r.events, cloneEvent), nil })
}

// EventsAfter implements ledger.Store.
func (s *Store) EventsAfter(ctx context.Context, tenant string, seq int64, limit int) ([]ledger.Event, error) {
	return s.eventsAfter(ctx, "EventsAfter", seq, limit, func(e ledger.Event) bool { return e.Tenant == tenant })
}

// AllEventsAfter implements ledger.Store.
func (s *Store) AllEventsAfter(ctx context.Context, seq int64, limit int) ([]ledger.Event, error) {
	return s.eventsAfter(ctx, "AllEventsAfter", seq, limit, func(ledger.Event) bool { return true })
}

func (s *Store) eventsAfter(ctx context.Context, method string, seq int64, limit int, keep func(ledger.Event) bool) ([]ledger.Event, error) {
	return get(ctx, s, Call{Method: method}, func(st *State) ([]ledger.Event, error) {
		var out []ledger.Event
		for _, e := range st.events {
			if e.Seq > seq && keep(e) && len(out) < limit {
				out = append(out, cloneEvent(e))
			}
		}
		return out, nil
	})
}

// Head implements ledger.Store.
func (s *Store) Head(ctx context.Context, tenant, tool, key string) (ledger.Head, error) {
	return get(ctx, s, Call{Method: "Head", On: key}, func(st *State) (ledger.Head, error) {
		return newest(st.slots[frame(tenant, tool, ledger.KeyDigest(key))]), nil
	})
}

func newest(rows []*row) ledger.Head {
	if len(rows) == 0 {
		return ledger.Head{}
	}
	return ledger.Head{Operation: cloneOperation(rows[len(rows)-1].op)}
}

// Goal implements ledger.Store.
func (s *Store) Goal(ctx context.Context, tenant string, goal tools.Goal) (ledger.Head, error) {
	return get(ctx, s, Call{Method: "Goal", On: goal.Value}, func(st *State) (ledger.Head, error) {
		return newest(st.goals[frame(tenant, goal.Group, goal.Value)]), nil
	})
}

// Generation implements ledger.Store.
func (s *Store) Generation(ctx context.Context, tenant, tool, keyDigest string, generation int) (ledger.Operation, error) {
	return get(ctx, s, Call{Method: "Generation", On: keyDigest}, func(st *State) (ledger.Operation, error) {
		for _, r := range st.slots[frame(tenant, tool, keyDigest)] {
			if r.op.Generation == generation {
				return cloneOperation(r.op), nil
			}
		}
		return ledger.Operation{}, ledger.ErrNotFound
	})
}

// RejectedAsk implements ledger.Store.
func (s *Store) RejectedAsk(ctx context.Context, tenant, tool, argsDigest, agent string) (ledger.Operation, error) {
	return get(ctx, s, Call{Method: "RejectedAsk", On: argsDigest}, func(st *State) (ledger.Operation, error) {
		for i := len(st.order) - 1; i >= 0; i-- {
			op := st.order[i].op
			if op.State == ledger.Rejected && !op.Reopened && op.Tenant == tenant && op.Tool == tool && op.ArgsDigest == argsDigest && op.Agent.ID == agent {
				return cloneOperation(op), nil
			}
		}
		return ledger.Operation{}, ledger.ErrNotFound
	})
}

// ByWrite implements ledger.Store.
func (s *Store) ByWrite(ctx context.Context, writeID string) (ledger.Operation, error) {
	return get(ctx, s, Call{Method: "ByWrite", WriteID: writeID}, func(st *State) (ledger.Operation, error) {
		if r := st.writes[writeID]; r != nil {
			return cloneOperation(r.op), nil
		}
		return ledger.Operation{}, ledger.ErrNotFound
	})
}

// Manifest implements ledger.Store.
func (s *Store) Manifest(ctx context.Context, version string) (ledger.Manifest, error) {
	return get(ctx, s, Call{Method: "Manifest", On: version}, func(st *State) (ledger.Manifest, error) {
		m, ok := st.manifests[version]
		if !ok {
			return m, ledger.ErrNotFound
		}
		m.Text = append([]byte(nil), m.Text...)
		return m, nil
	})
}
