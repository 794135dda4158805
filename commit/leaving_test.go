package commit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/ledger"
	"countersign/tools/tooltest"
)

// commitNow is a commit that does not wait for its outcome.
func commitNow(token string) commit.Request {
	return commit.Request{Agent: agent, Tool: "hold_order", Token: token, RequestID: "req"}
}

// TestLeaving_CommitIsStillSent: an agent that hangs up while its operation is
// opened does not leave an operation behind its mark that nobody sends.
func TestLeaving_CommitIsStillSent(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	p := r.preview(agent, "hold_order", args("ord_1"))
	ctx, cancel := context.WithCancel(t.Context())
	store.open = func(ctx context.Context, _ *ledger.Operation) error {
		cancel()
		if ctx.Err() != nil {
			return &ledger.Ambiguous{Err: errors.New("the caller left")}
		}
		return nil
	}
	res, err := r.commits.Commit(ctx, commitNow(p.Token))
	require.NoError(t, err)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
}

// TestLeaving_StopLeavesPendingOrSends: a stop of the gateway in the middle of
// a dispatch mark leaves the operation pending or sends it; it makes no doubt
// (matrix row 42).
func TestLeaving_StopLeavesPendingOrSends(t *testing.T) {
	tool := refund()
	r := newRig(t, tool)
	store := &acting{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	op := r.approve(carl, r.do(agent, "refund_payment", args("pay_1", "amount", 100)).Operation)
	ctx, stop := context.WithCancel(t.Context())
	store.apply = func(ctx context.Context, tr ledger.Transition) error {
		if tr.Event.Verb != ledger.VerbDispatch {
			return nil
		}
		stop()
		if ctx.Err() != nil {
			// The write was queued: its caller leaves, it goes on.
			require.NoError(t, store.Store.Apply(context.WithoutCancel(ctx), tr))
			store.Store = forgetting{store.Store}
			return &ledger.Ambiguous{Err: errors.New("the caller left")}
		}
		return nil
	}
	_, err := r.executor.RunOnce(ctx)
	require.NoError(t, err)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(op.ID)
	require.Contains(t, []ledger.State{ledger.Pending, ledger.Succeeded}, got.State)
	require.Len(t, tooltest.FakeOf(tool).Requests(), len(got.Attempts), "what is marked is sent")
}

// forgetting is a store that does not find a write yet.
type forgetting struct{ ledger.Store }

func (forgetting) ByWrite(context.Context, string) (ledger.Operation, error) {
	return ledger.Operation{}, ledger.ErrNotFound
}
