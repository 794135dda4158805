package commit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools/tooltest"
)

// deaf is a store that makes every birth and can neither say so nor be asked for
// it, until it is well again.
type deaf struct {
	ledger.Store
	births atomic.Int32
	// heal, when set, is called before the key is read behind an unclear birth.
	heal func()
	ill  atomic.Bool
}

func (d *deaf) Open(ctx context.Context, o ledger.Opening) error {
	if err := d.Store.Open(ctx, o); err != nil || !d.ill.Load() {
		return err
	}
	d.births.Add(1)
	return &ledger.Ambiguous{Err: errors.New("the connection broke")}
}

func (d *deaf) ByWrite(ctx context.Context, id string) (ledger.Operation, error) {
	if d.ill.Load() {
		return ledger.Operation{}, errors.New("the connection broke")
	}
	return d.Store.ByWrite(ctx, id)
}

func (d *deaf) Generation(ctx context.Context, tenant, tool, digest string, n int) (ledger.Operation, error) {
	if d.births.Load() > 0 && d.ill.Load() && d.heal != nil {
		d.heal()
	}
	return d.Store.Generation(ctx, tenant, tool, digest, n)
}

// TestUnclearBirth_IsOnesOwn: a commit whose birth was left unclear, and which then
// finds the operation after all, has opened it: it is answered as the first, not as
// a repeat of nobody's, and it is sent, once.
func TestUnclearBirth_IsOnesOwn(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	store := &deaf{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	p := r.preview(agent, "hold_order", args("ord_1"))
	store.ill.Store(true)
	res, err := r.commit(agent, "hold_order", p.Token)
	require.NoError(t, err)
	require.False(t, res.Replayed)
	require.NoError(t, r.executor.Drain(context.Background()))
	require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	require.True(t, r.mustCommit(agent, "hold_order", p.Token).Replayed)
}

// TestUnclearBirth_OfAnUndo: the same holds for what takes an effect back.
func TestUnclearBirth_OfAnUndo(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	store := &deaf{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	store.ill.Store(true)
	res, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
	require.NoError(t, err)
	require.False(t, res.Replayed)
	require.NoError(t, r.executor.Drain(context.Background()))
	require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
}

// TestUnclearBirth_TakenUpByOthers: meanwhile the lease was lost and the doubt was
// taken up again: whoever finds their own operation there sends nothing more.
func TestUnclearBirth_TakenUpByOthers(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(48*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	store := &deaf{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	r.endReconciling()
	ctx := context.Background()
	p := r.preview(agent, "hold_order", args("ord_1"))
	store.ill.Store(true)
	store.heal = func() {
		store.ill.Store(false)
		page, err := r.ledger.List(ctx, ledger.Filter{Tenant: tenant})
		require.NoError(t, err)
		op := page.Operations[0]
		r.clock.Add(time.Hour)
		op, err = r.ledger.LoseLease(ctx, op.Tenant, op.ID)
		require.NoError(t, err)
		g, err := r.ledger.Guard(ctx, tenant)
		require.NoError(t, err)
		_, err = r.ledger.Retry(ctx, op, ledger.RetryRequest{Epoch: g.Epoch, Timeout: hold.Timeout, NotAfter: r.clock.Now().Add(time.Hour), Why: "test"})
		require.NoError(t, err)
	}
	res, err := r.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "hold_order", Token: p.Token})
	require.NoError(t, err)
	require.False(t, res.Replayed)
	require.Len(t, res.Operation.Attempts, 2)
	require.NoError(t, r.executor.Drain(ctx))
	require.Empty(t, tooltest.FakeOf(hold).Requests(), "the second attempt is another's to send")
}

// TestUnclearBirth_StaysUnclear: what can't be found is not called opened.
func TestUnclearBirth_StaysUnclear(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	store := &mute{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	p := r.preview(agent, "hold_order", args("ord_1"))
	store.ill.Store(true)
	_, err := r.commit(agent, "hold_order", p.Token)
	requireCode(t, err, fault.OutcomeUnclear)
	require.NoError(t, r.executor.Drain(context.Background()))
	require.Empty(t, tooltest.FakeOf(hold).Requests())
}

// mute is a deaf store that makes no birth.
type mute struct {
	ledger.Store
	ill atomic.Bool
}

func (m *mute) Open(ctx context.Context, o ledger.Opening) error {
	if m.ill.Load() {
		return &ledger.Ambiguous{Err: errors.New("the connection broke")}
	}
	return m.Store.Open(ctx, o)
}
