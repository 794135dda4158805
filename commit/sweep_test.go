package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/ledger"
	"countersign/reconcile"
	"countersign/tools/tooltest"
)

// listing is a due list that a test changes, or acts behind.
type listing struct {
	commit.DueStore
	change func(ledger.DueKind, []ledger.Operation) []ledger.Operation
}

func (l listing) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	due, err := l.DueStore.Due(ctx, d)
	return l.change(d.Kind, due), err
}

func (r *rig) sweeperOver(change func(ledger.DueKind, []ledger.Operation) []ledger.Operation) *reconcile.Sweeper {
	return reconcile.New(reconcile.Config{
		Ledger: r.ledger, Store: listing{r.db, change}, Owner: "test",
	})
}

// TestSweep_NewRoundIsNotOverdue: a round that was overdue when it was listed,
// and was revised before it was moved, is left alone: its people have just been
// asked.
func TestSweep_NewRoundIsNotOverdue(t *testing.T) {
	r := newRig(t, refund())
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	r.clock.Add(time.Hour)
	listed := false
	s := r.sweeperOver(func(kind ledger.DueKind, due []ledger.Operation) []ledger.Operation {
		if kind == ledger.DueExpiry && len(due) == 1 {
			listed = true
			plan, err := r.ledger.Plan(t.Context(), tenant, op.ID, 1)
			require.NoError(t, err)
			_, err = r.ledger.Revise(t.Context(), op, plan, plan.Digest(), op.Requirement, ledger.Reason{Code: "drift"})
			require.NoError(t, err)
		}
		return due
	})
	_, err := s.RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, listed)
	require.Equal(t, ledger.AwaitingApproval, r.op(op.ID).State)
}

// TestSweep_ReasonIsThatOfTheMove: what was approved in the last moment, while it
// was listed as waiting, is not said to be undecided.
func TestSweep_ReasonIsThatOfTheMove(t *testing.T) {
	r := newRig(t, refund())
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	listed := false
	s := r.sweeperOver(func(kind ledger.DueKind, due []ledger.Operation) []ledger.Operation {
		if kind != ledger.DueExpiry || listed {
			return due
		}
		listed = true
		r.approve(carl, op)
		r.clock.Add(time.Hour)
		return []ledger.Operation{op}
	})
	_, err := s.RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, listed)
	require.Equal(t, ledger.Expired, r.op(op.ID).State)
	require.Contains(t, r.op(op.ID).Reason.Text, "approved")
}

// TestSweep_OneThatCannotBeMovedStopsNoOther.
func TestSweep_OneThatCannotBeMovedStopsNoOther(t *testing.T) {
	r := newRig(t, refund())
	op := r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation
	r.clock.Add(time.Hour)
	s := r.sweeperOver(func(_ ledger.DueKind, due []ledger.Operation) []ledger.Operation {
		return append([]ledger.Operation{{ID: "op_nobody", Tenant: tenant}}, due...)
	})
	n, err := s.RunOnce(t.Context())
	require.Error(t, err, "it is said")
	require.Equal(t, 1, n)
	require.Equal(t, ledger.Expired, r.op(op.ID).State)
}

// TestSweep_DoubtThatACrashKeptOffTheList: between the outcome and the hand-over
// a process can die; the next look gives the doubt to people.
func TestSweep_DoubtThatACrashKeptOffTheList(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	release := make(chan struct{})
	tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
	p := r.preview(agent, "hold_order", args("ord_1"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // its answer is not the point
	<-tooltest.FakeOf(hold).Arrived()
	page, err := r.ledger.List(t.Context(), ledger.Filter{Tenant: tenant})
	require.NoError(t, err)
	op := page.Operations[0]
	r.clock.Add(time.Minute)
	op, err = r.ledger.LoseLease(t.Context(), tenant, op.ID) // and no more: the process died
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.op(op.ID).OnList }, 10*time.Second, 5*time.Millisecond)
	close(release)
}
