package commit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools/tooltest"
)

// losing is a store whose answer to one write is lost: the write was made, or
// it was not.
type losing struct {
	ledger.Store
	open, apply atomic.Int32 // 1: lose the next answer, 2: lose the next write
}

var errLost = &ledger.Ambiguous{Err: errors.New("the connection broke")}

func (l *losing) lose(kind *atomic.Int32, write func() error) error {
	switch kind.Swap(0) {
	case 1:
		if err := write(); err != nil {
			return err
		}
		return errLost
	case 2:
		return errLost
	}
	return write()
}

func (l *losing) Open(ctx context.Context, o ledger.Opening) error {
	return l.lose(&l.open, func() error { return l.Store.Open(ctx, o) })
}

func (l *losing) Apply(ctx context.Context, t ledger.Transition) error {
	return l.lose(&l.apply, func() error { return l.Store.Apply(ctx, t) })
}

// TestUndo_StoreAnswerLost: at the birth of an undo and at its end; both rows are
// old, or both new, and the undo is sent once.
func TestUndo_StoreAnswerLost(t *testing.T) {
	for name, set := range map[string]func(*losing){
		"open was made":     func(l *losing) { l.open.Store(1) },
		"open was not made": func(l *losing) { l.open.Store(2) },
		"end was made":      func(l *losing) { l.apply.Store(1) },
		"end was not made":  func(l *losing) { l.apply.Store(2) },
	} {
		t.Run(name, func(t *testing.T) {
			hold, release := undoable()
			r := newRig(t, hold, release)
			var store *losing
			r.between = func(s ledger.Store) ledger.Store { store = &losing{Store: s}; return store }
			r.restart()
			parent := r.do(agent, "hold_order", args("ord_1")).Operation
			p, err := r.previewUndo(asAgent(agent), parent.ID)
			require.NoError(t, err)
			set(store)
			res, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
			require.NoError(t, err)
			require.NoError(t, r.executor.Drain(context.Background()))
			require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
			require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
			require.Equal(t, []ledger.Verb{"open", "finish", "compensate", "compensated"}, r.verbs(parent.ID))
			require.Equal(t, []ledger.Verb{"open", "finish"}, r.verbs(res.Operation.ID))
			require.Len(t, tooltest.FakeOf(release).Requests(), 1)
		})
	}
}

// TestUndo_StoreGone: an undo that can't be written opens nothing and moves
// nothing.
func TestUndo_StoreGone(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	down := &broken{}
	r.between = func(s ledger.Store) ledger.Store { down.Store = s; return down }
	r.restart()
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	down.away = true
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.StoreUnavailable)
	down.away = false
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Equal(t, 1, r.count())
	res, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
	require.NoError(t, err)
	require.False(t, res.Replayed)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
}

// broken is a store that takes no births while it is away.
type broken struct {
	ledger.Store
	away bool
}

func (b *broken) Open(ctx context.Context, o ledger.Opening) error {
	if b.away {
		return errors.New("connection refused")
	}
	return b.Store.Open(ctx, o)
}
