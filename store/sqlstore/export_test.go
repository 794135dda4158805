package sqlstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Faults breaks a DB on demand; it is what storetest.Faults asks for.
type Faults struct {
	w *writer

	mu     sync.Mutex
	hold   chan struct{} // closed by release
	held   func() int
	lose   bool
	commit error
	writes map[string]*failure
	groups []int
}

type failure struct {
	err   error
	ends  bool
	times int
}

// Break puts faults under the DB's writer.
func Break(db *DB) *Faults {
	f := &Faults{w: db.writer, writes: map[string]*failure{}}
	db.writer.hooks.Store(&hooks{gather: f.gather, statement: f.statement, commit: f.beforeCommit, committed: f.afterCommit})
	return f
}

// Hold keeps the next writes waiting; those that wait when release is called
// are one group.
func (f *Faults) Hold() (wait func(n int), release func()) {
	hold := make(chan struct{})
	f.mu.Lock()
	f.hold = hold
	f.mu.Unlock()
	wait = func(n int) {
		for {
			f.mu.Lock()
			held := f.held
			f.mu.Unlock()
			if held != nil && held() >= n {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	release = sync.OnceFunc(func() {
		f.mu.Lock()
		f.hold, f.held = nil, nil
		f.mu.Unlock()
		close(hold)
	})
	return wait, release
}

// LoseNextAnswer lets the next commit happen and its answer get lost.
func (f *Faults) LoseNextAnswer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = true
}

// FailNextCommit makes the next commit fail in a way that says nothing.
func (f *Faults) FailNextCommit() { f.FailNextCommitWith(errors.New("injected: the disk said no")) }

// FailNextCommitWith makes the next commit fail with err.
func (f *Faults) FailNextCommitWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = err
}

// FailWrite makes a statement of the write fail as many times. endsTransaction
// makes it take the transaction with it, as a full disk or an interrupt may.
func (f *Faults) FailWrite(writeID string, err error, endsTransaction bool, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes[writeID] = &failure{err, endsTransaction, times}
}

// Groups gives the sizes of the groups that were committed or tried.
func (f *Faults) Groups() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.groups)
}

func (f *Faults) gather(waiting func() int) {
	f.mu.Lock()
	hold := f.hold
	if hold != nil {
		f.held = waiting
	}
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f.mu.Lock()
	f.groups = append(f.groups, waiting())
	f.mu.Unlock()
}

func (f *Faults) statement(_ string, args []any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range args {
		id, ok := a.(string)
		if !ok {
			continue
		}
		fail := f.writes[id]
		if fail == nil || fail.times == 0 {
			continue
		}
		fail.times--
		if fail.ends {
			if _, err := f.w.conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
				panic(err)
			}
		}
		return fail.err
	}
	return nil
}

func (f *Faults) beforeCommit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.commit
	f.commit = nil
	return err
}

func (f *Faults) afterCommit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lose {
		return nil
	}
	f.lose = false
	return errors.New("injected: the answer was lost")
}
