// Package ledger keeps the record: one Operation for each intent, with
// everything that was decided, sent, seen or left in doubt.
//
// What lives here: the Operation and the rows around it, the table of states
// (state.go, pure), the verbs that move an operation (open.go, decide.go,
// dispatch.go, settle.go), the judgement of evidence (judge.go, pure), the rule of keys
// and generations (standing.go, pure), and Store, the contract of every store.
//
// How it flows: a verb reads the operation, lets the table and the pure
// functions decide, and hands the store one conditional write: compare version
// and fence, write the new row and exactly one event. If the store lost the
// race the verb looks again; if the store's answer was lost the verb looks for
// its write id, and never acts on a guess.
//
// What does not live here: HTTP, who may decide (approvals), what a tool's
// answer means (the connector's Outcome), SQL (store/sqlstore). No other
// package assigns a state, and no store knows a rule.
package ledger

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"countersign/fault"
)

// Config is what a Ledger is made of. Store is required; the other fields have
// defaults.
type Config struct {
	Store Store
	Now   func() time.Time
	NewID func(prefix string) string
	// LeaseMargin is added to a tool's time-out to make the lease of a dispatch;
	// half of it is the time a dispatch may take to write its first byte.
	// Default 5 s.
	LeaseMargin time.Duration
	// GuardMaxAge is how old the guards' reads may be at a dispatch mark.
	// Default 10 s.
	GuardMaxAge time.Duration
	// OnEvent is called once for each applied transition, after it is durable.
	// It must not block.
	OnEvent func(Operation, Event)
	// Sign makes a JWS over a statement with the gateway's published keys: the
	// override of an unfreeze. Nil leaves it unsigned.
	Sign func(statement []byte) (string, error)
}

// Ledger applies verbs to operations. It is safe for concurrent use.
type Ledger struct {
	Reader
	cfg Config
	id  string

	mu       sync.Mutex
	watchers map[string]map[chan struct{}]struct{}
	subs     []*subscription
}

// Open starts a ledger on a store. The ledger id, part of every upstream key,
// is made on first use and never changes.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = NewID
	}
	if cfg.LeaseMargin == 0 {
		cfg.LeaseMargin = 5 * time.Second
	}
	if cfg.GuardMaxAge == 0 {
		cfg.GuardMaxAge = 10 * time.Second
	}
	id, err := cfg.Store.LedgerID(ctx, cfg.NewID("led_"))
	if err != nil {
		return nil, err
	}
	return &Ledger{Reader: Reader{store: cfg.Store}, cfg: cfg, id: id, watchers: map[string]map[chan struct{}]struct{}{}}, nil
}

// ID is the ledger's own name, part of every upstream key and of the tokens'
// issuer.
func (l *Ledger) ID() string { return l.id }

// Now is the ledger's clock.
func (l *Ledger) Now() time.Time { return l.cfg.Now().UTC() }

// NewID makes an id of the form prefix + 26 lower-case base32 characters. The
// characters start with time, so that ids of one process sort by age.
func NewID(prefix string) string {
	u, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source is gone; nothing is safe
	}
	return prefix + strings.ToLower(idEncoding.EncodeToString(u[:]))
}

// idEncoding is Crockford's base32 in lower case: no i, l, o, u to misread.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newWriteID marks one durable write. It is looked for when the store's answer
// was lost.
func newWriteID() string { return "w_" + rand.Text() }

// upstreamNamespace is the UUID namespace of upstream keys.
var upstreamNamespace = uuid.MustParse("6d0c3a8e-3d5b-5c1e-9b57-2f1f5f0a7c11")

// UpstreamKey is the key on the wire: UUIDv5 over ledger id, tenant, tool, key
// and generation, each length-framed so that no two tuples share a text.
func (l *Ledger) UpstreamKey(tenant, tool, key string, generation int) string {
	return uuid.NewSHA1(upstreamNamespace, frame(l.id, tenant, tool, key, itoa(generation))).String()
}

// RunKey is the key of a {from: run} tool: UUIDv5 of tenant, agent, run, step
// and call.
func (l *Ledger) RunKey(tenant, agent string, run Run) string {
	return uuid.NewSHA1(upstreamNamespace, frame("run", tenant, agent, run.ID, run.Step, run.Call)).String()
}

// Watch returns a channel that receives after each change of the operation seen
// by this process, and a function that ends the watch. Changes made elsewhere
// are found by polling.
func (l *Ledger) Watch(operation string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers[operation] == nil {
		l.watchers[operation] = map[chan struct{}]struct{}{}
	}
	l.watchers[operation][ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers[operation], ch)
		if len(l.watchers[operation]) == 0 {
			delete(l.watchers, operation)
		}
	}
}

// Changes returns a channel that receives after an operation came into one of
// the states (any, when none is named) in this process, and a function that ends
// it. Loops wake by it before their next poll.
func (l *Ledger) Changes(states ...State) (<-chan struct{}, func()) {
	s := &subscription{ch: make(chan struct{}, 1), states: states}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs = append(l.subs, s)
	return s.ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.subs = slices.DeleteFunc(l.subs, func(o *subscription) bool { return o == s })
	}
}

// subscription is one receiver of Changes.
type subscription struct {
	ch     chan struct{}
	states []State
}

// announce tells watchers and loops. A full channel already holds a signal.
func (l *Ledger) announce(op Operation, ev Event) {
	l.mu.Lock()
	for ch := range l.watchers[op.ID] {
		signal(ch)
	}
	for _, s := range l.subs {
		if len(s.states) == 0 || slices.Contains(s.states, op.State) {
			signal(s.ch)
		}
	}
	l.mu.Unlock()
	if l.cfg.OnEvent != nil {
		l.cfg.OnEvent(op, ev)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Await waits until the operation is final, hands on what it knows after d, or
// returns early when ctx ends. It never fails because of the wait.
func (l *Ledger) Await(ctx context.Context, tenant, id string, d time.Duration, done func(Operation) bool) (Operation, error) {
	ch, stop := l.Watch(id)
	defer stop()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	poll := time.NewTicker(500 * time.Millisecond)
	defer poll.Stop()
	for {
		op, err := l.Operation(ctx, tenant, id)
		if err != nil || done(op) {
			return op, err
		}
		// What ends the wait comes first where several are ready.
		select {
		case <-ctx.Done():
			return op, nil
		case <-timeout.C:
			return l.Operation(ctx, tenant, id)
		default:
		}
		select {
		case <-ch:
		case <-poll.C:
		case <-timeout.C:
			return l.Operation(ctx, tenant, id)
		case <-ctx.Done():
			return op, nil
		}
	}
}

// StoreFault turns a store's error into what callers may see.
func StoreFault(err error) error {
	var amb *Ambiguous
	switch {
	case err == nil:
		return nil
	case errors.As(err, &amb):
		return fault.Wrap(err, fault.OutcomeUnclear, "The store did not confirm the write. Repeat the same request; it cannot take effect twice.")
	case errors.Is(err, ErrDiskFull):
		return fault.Wrap(err, fault.DiskFull, "The ledger's disk is full; nothing was written.")
	default:
		return fault.Wrap(err, fault.StoreUnavailable, "The ledger's store can't be reached; nothing was changed.")
	}
}

// readFault is StoreFault for reads by id or cursor.
func readFault(err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return fault.New(fault.OperationNotFound, "There is no such operation.")
	case errors.Is(err, ErrBadCursor):
		return fault.New(fault.ParameterInvalid, "The cursor is not one that this gateway gave.")
	default:
		return StoreFault(err)
	}
}
