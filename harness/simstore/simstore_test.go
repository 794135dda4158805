package simstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"countersign/harness/simstore"
	"countersign/ledger"
	"countersign/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		clock := storetest.NewClock()
		state := simstore.NewState(clock.Now, nil)
		f := newFaults()
		store := state.Open(f.hook)
		return storetest.Subject{
			Store: store, Clock: clock, Faults: f,
			Reopen: func() ledger.Store {
				_ = store.Close() // it never fails
				store = state.Open(f.hook)
				return store
			},
		}
	})
}

// faults is a hook that breaks the store as storetest asks: writes that wait
// together are one group, and have one commit.
type faults struct {
	mu     sync.Mutex
	more   *sync.Cond
	held   bool
	queue  []*waiting
	commit commit
	bad    map[string]*badWrite
}

type commit int

const (
	fine commit = iota
	lost
	failed
)

type badWrite struct {
	err   error
	times int
}

type waiting struct {
	call   simstore.Call
	effect func() error
	answer chan error
}

func newFaults() *faults {
	f := &faults{bad: map[string]*badWrite{}}
	f.more = sync.NewCond(&f.mu)
	return f
}

var errLost = &ledger.Ambiguous{Err: errors.New("the answer was lost")}

func (f *faults) hook(ctx context.Context, c simstore.Call, effect func() error) error {
	if !c.Write {
		return effect()
	}
	w := &waiting{call: c, effect: effect, answer: make(chan error, 1)}
	f.mu.Lock()
	f.queue = append(f.queue, w)
	f.more.Broadcast()
	if !f.held {
		f.runGroup()
	}
	f.mu.Unlock()
	select {
	case err := <-w.answer:
		return err
	default:
	}
	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
		return &ledger.Ambiguous{Err: ctx.Err()}
	}
}

// runGroup makes the waiting writes, what overtakes first, with one commit.
func (f *faults) runGroup() {
	group := f.queue
	f.queue = nil
	slices.SortStableFunc(group, func(a, b *waiting) int {
		switch {
		case a.call.First == b.call.First:
			return 0
		case a.call.First:
			return -1
		}
		return 1
	})
	how := f.commit
	f.commit = fine
	for _, w := range group {
		if b := f.bad[w.call.WriteID]; b != nil && w.call.WriteID != "" && b.times != 0 {
			b.times--
			// A member that failed beside others is made again, alone.
			if alone := len(group) == 1; alone || b.times != 0 {
				w.answer <- b.err
				continue
			}
		}
		var answer error
		if how != failed {
			answer = w.effect()
		}
		if how != fine {
			answer = errLost
		}
		w.answer <- answer
	}
}

func (f *faults) Hold() (wait func(int), release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = true
	wait = func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for len(f.queue) < n {
			f.more.Wait()
		}
	}
	return wait, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = false
		f.runGroup()
	}
}

func (f *faults) next(how commit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = how
}

func (f *faults) LoseNextAnswer() { f.next(lost) }
func (f *faults) FailNextCommit() { f.next(failed) }

func (f *faults) FailWrite(writeID string, err error, _ bool, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad[writeID] = &badWrite{err: err, times: times}
}
