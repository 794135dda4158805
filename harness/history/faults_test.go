package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"countersign/ledger"
)

// faults say what goes wrong with the next call of the store.
type faults struct {
	mu    sync.Mutex
	rng   *rand.Rand
	calm  bool
	storm int // calls that all go wrong
	// deaf: the storm takes only answers to writes, and the search for them.
	deaf bool
	done map[string]int
}

// fate of one write.
type fate int

const (
	fine    fate = iota
	refused      // certainly not written
	lost         // not written, and nobody can tell
	unheard      // written, and nobody can tell
)

var (
	errAway = errors.New("injected: the store is away")
	errLost = errors.New("injected: the answer is lost")
	errDead = errors.New("injected: the process is dead")
)

// begin lets faults come.
func (f *faults) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm = false
}

// stop ends all faults.
func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm = true
}

// next draws a fate: one write in twelve goes wrong alone, and one in sixty begins
// a storm in which all do, and mostly reads too.
func (f *faults) next() fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm {
		return fine
	}
	if f.storm == 0 && f.rng.IntN(60) == 0 {
		f.storm, f.deaf = 8+f.rng.IntN(24), f.rng.IntN(2) == 0
	}
	kind := fate(1 + f.rng.IntN(3))
	switch {
	case f.storm > 0 && f.deaf:
		kind = fate(2 + f.rng.IntN(2))
		f.storm--
	case f.storm > 0:
		f.storm--
	case f.rng.IntN(12) > 0:
		return fine
	}
	f.count(map[fate]string{refused: "commits that failed", lost: "answers lost, not written", unheard: "answers lost, written"}[kind])
	return kind
}

// read draws whether a read fails: one in a hundred, and all in a storm.
func (f *faults) read() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.calm:
		return nil
	case f.storm > 0 && !f.deaf:
		f.storm--
	case f.rng.IntN(100) > 0:
		return nil
	}
	f.count("reads that failed")
	return errAway
}

// search draws whether the search for a write fails: in every storm it does.
func (f *faults) search() error {
	f.mu.Lock()
	if f.storm > 0 && !f.calm {
		f.storm--
		f.mu.Unlock()
		return errAway
	}
	f.mu.Unlock()
	return f.read()
}

// look draws whether a look of a background loop for work fails, without using up
// a storm.
func (f *faults) look() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm || (f.storm == 0 || f.deaf) && f.rng.IntN(100) > 0 {
		return nil
	}
	return errAway
}

// met counts what was done.
func (f *faults) met(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(what)
}

// count is met with the lock held.
func (f *faults) count(what string) {
	if f.done == nil {
		f.done = map[string]int{}
	}
	f.done[what]++
}

// shaky is a gateway's store, whose answers get lost and whose commits fail. Who is
// dead reaches it no more.
type shaky struct {
	ledger.Store
	faults *faults
	g      *gateway
}

// write runs a write with its fate.
func (s *shaky) write(do func() error) error {
	if s.g.dead.Load() {
		return errDead
	}
	switch s.faults.next() {
	case refused:
		return errAway
	case lost:
		return &ledger.Ambiguous{Err: errLost}
	case unheard:
		if err := do(); err != nil {
			return err
		}
		return &ledger.Ambiguous{Err: errLost}
	default:
		return do()
	}
}

// look is a look for work.
func (s *shaky) look() error {
	if s.g.dead.Load() {
		return errDead
	}
	return s.faults.look()
}

// read is any other read.
func (s *shaky) read() error {
	if s.g.dead.Load() {
		return errDead
	}
	return s.faults.read()
}

func (s *shaky) PutPreview(ctx context.Context, p ledger.Preview) error {
	return s.write(func() error { return s.Store.PutPreview(ctx, p) })
}

func (s *shaky) Open(ctx context.Context, o ledger.Opening) error {
	return s.write(func() error { return s.Store.Open(ctx, o) })
}

func (s *shaky) Apply(ctx context.Context, t ledger.Transition) error {
	return s.write(func() error { return s.Store.Apply(ctx, t) })
}

func (s *shaky) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	return s.write(func() error { return s.Store.AddEvidence(ctx, tenant, e) })
}

func (s *shaky) ChangeGuard(ctx context.Context, c ledger.GuardChange) (ops []ledger.Operation, err error) {
	err = s.write(func() error {
		ops, err = s.Store.ChangeGuard(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ops, nil
}

func (s *shaky) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	return s.Store.Due(ctx, d)
}

func (s *shaky) ByWrite(ctx context.Context, id string) (ledger.Operation, error) {
	if s.g.dead.Load() {
		return ledger.Operation{}, errDead
	}
	if err := s.faults.search(); err != nil {
		return ledger.Operation{}, err
	}
	return s.Store.ByWrite(ctx, id)
}

func (s *shaky) Head(ctx context.Context, tenant, tool, key string) (ledger.Head, error) {
	if err := s.read(); err != nil {
		return ledger.Head{}, err
	}
	return s.Store.Head(ctx, tenant, tool, key)
}

func (s *shaky) Generation(ctx context.Context, tenant, tool, digest string, n int) (ledger.Operation, error) {
	if err := s.read(); err != nil {
		return ledger.Operation{}, err
	}
	return s.Store.Generation(ctx, tenant, tool, digest, n)
}

func (s *shaky) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	if err := s.read(); err != nil {
		return ledger.Guard{}, err
	}
	return s.Store.Guard(ctx, tenant)
}

func (s *shaky) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	if err := s.read(); err != nil {
		return ledger.Operation{}, err
	}
	return s.Store.Operation(ctx, tenant, id)
}

func (s *shaky) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	if err := s.read(); err != nil {
		return ledger.Page{}, err
	}
	return s.Store.List(ctx, f)
}

func (s *shaky) Evidence(ctx context.Context, tenant, op string) ([]ledger.Evidence, error) {
	if err := s.read(); err != nil {
		return nil, err
	}
	return s.Store.Evidence(ctx, tenant, op)
}

func (s *shaky) Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error {
	if err := s.look(); err != nil {
		return err
	}
	return s.Store.Defer(ctx, kind, op, until)
}

// holds are replies that are kept back until somebody lets them go.
type holds struct {
	mu   sync.Mutex
	kept []chan struct{}
}

func (h *holds) add() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{})
	h.kept = append(h.kept, ch)
	return ch
}

// letGo lets one reply go, the oldest first.
func (h *holds) letGo() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) == 0 {
		return false
	}
	close(h.kept[0])
	h.kept = h.kept[1:]
	return true
}

// end lets all go.
func (h *holds) end() {
	for h.letGo() {
	}
}
