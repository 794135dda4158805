package ledger_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// TestLoseLease_WhileItHolds: whoever looked at an operation a while ago does not
// take the lease of the worker that has it now.
func TestLoseLease_WhileItHolds(t *testing.T) {
	r := newRig(t)
	op := r.born(r.ask("k", nil))
	r.advance(op.LeaseUntil.Sub(r.Now()) - 1)
	_, err := r.LoseLease(r.ctx, tenant, op.ID)
	require.ErrorIs(t, err, ledger.ErrMoved)
	require.Equal(t, op, r.read(op))
	r.advance(1)
	lost, err := r.LoseLease(r.ctx, tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, lost.State)
}

// departing is a store whose caller goes away while its write is made.
type departing struct {
	ledger.Store
	leave context.CancelFunc
}

func (l *departing) Apply(ctx context.Context, t ledger.Transition) error {
	if l.leave == nil {
		return l.Store.Apply(ctx, t)
	}
	err := l.Store.Apply(ctx, t)
	l.leave()
	if err == nil {
		err = &ledger.Ambiguous{Err: errLost}
	}
	return err
}

// TestAmbiguous_CallerGone: what became of a write is found out also when its
// caller has left meanwhile (row 43).
func TestAmbiguous_CallerGone(t *testing.T) {
	r := newRig(t)
	op := r.born(r.ask("k", asks))
	ctx, cancel := context.WithCancel(r.ctx)
	store := &departing{Store: r.store}
	l, err := ledger.Open(r.ctx, ledger.Config{Store: store, Now: r.now})
	require.NoError(t, err)
	store.leave = cancel
	got, err := l.Cancel(ctx, tenant, op.ID, person, "no longer wanted")
	require.NoError(t, err)
	require.Equal(t, ledger.Cancelled, got.State)
	require.Equal(t, got, r.read(op))
}

// TestContradiction_MovesTheEpochEachTime: what was evaluated before a
// contradiction does not commit, also where the tool was frozen by an earlier one:
// under another tool the same goal may wait (N6).
func TestContradiction_MovesTheEpochEachTime(t *testing.T) {
	r := newRig(t)
	one := r.concluded(r.born(r.ask("k1", nil)), tools.Outcome{Verdict: tools.NoEffect})
	two := r.concluded(r.born(r.ask("k2", nil)), tools.Outcome{Verdict: tools.NoEffect})
	r.proven(one, 1, "e_1")
	require.True(t, r.stopped("hold_order"))
	before := r.epoch()
	r.proven(two, 1, "e_2")
	require.Greater(t, r.epoch(), before)
	r.intact(tenant)
}

// TestSubject_OfAnUndo: an undo hangs on the rights of who asked for it, not of who
// did what it takes back.
func TestSubject_OfAnUndo(t *testing.T) {
	op := ledger.Operation{Tool: "release_order", Parent: "op_1", Agent: tools.Agent{ID: "agt_1"}}
	require.Equal(t, ledger.Subject{Tool: "release_order", Agent: "agt_1", Undo: true}, op.Subject())
	op.AskedBy = &ledger.Actor{Kind: "agent", ID: "agt_2"}
	require.Equal(t, ledger.Subject{Tool: "release_order", Agent: "agt_2", Undo: true}, op.Subject())
	op.AskedBy = &ledger.Actor{Kind: "operator", ID: "per_1"}
	require.Equal(t, ledger.Subject{Tool: "release_order", Agent: "agt_1", Undo: true, ByOperator: true}, op.Subject())
}
