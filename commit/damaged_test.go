package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// damaging is a store that gives back something else than was written.
type damaging struct {
	ledger.Store
	preview func(*ledger.Preview)
	plan    func(*tools.Plan)
}

func (d *damaging) Preview(ctx context.Context, tenant, id string) (ledger.Preview, error) {
	p, err := d.Store.Preview(ctx, tenant, id)
	if d.preview != nil && err == nil {
		d.preview(&p)
	}
	return p, err
}

func (d *damaging) Plan(ctx context.Context, tenant, op string, round int) (tools.Plan, error) {
	p, err := d.Store.Plan(ctx, tenant, op, round)
	if d.plan != nil && err == nil {
		d.plan(&p)
	}
	return p, err
}

// damagedRig is a rig over such a store.
func damagedRig(t *testing.T, list ...*tools.Tool) (*rig, *damaging) {
	t.Helper()
	d := &damaging{}
	r := newRig(t, list...)
	r.between = func(s ledger.Store) ledger.Store {
		d.Store = s
		return d
	}
	r.restart()
	return r, d
}

// otherBytes puts other bytes on the wire than were shown.
func otherBytes(p *tools.Plan) { p.Wire = []byte(`{"amount":"1000000"}`) }

// TestDamaged_Previews: a stored preview that is not the one that the token names
// opens nothing (I13).
func TestDamaged_Previews(t *testing.T) {
	for name, damage := range map[string]func(*ledger.Preview){
		"another plan":                     func(p *ledger.Preview) { otherBytes(&p.Plan) },
		"the digest of another plan":       func(p *ledger.Preview) { p.PlanDigest = "sha256:other" },
		"another plan, its digest with it": func(p *ledger.Preview) { otherBytes(&p.Plan); p.PlanDigest = p.Plan.Digest() },
	} {
		t.Run(name, func(t *testing.T) {
			hold, release := undoable()
			r, store := damagedRig(t, hold, release)
			parent := r.do(agent, "hold_order", args("ord_1")).Operation
			token := r.preview(agent, "hold_order", args("ord_2")).Token
			undo, err := r.previewUndo(asAgent(agent), parent.ID)
			require.NoError(t, err)
			before := r.count()

			store.preview = damage
			_, err = r.commit(agent, "hold_order", token)
			requireCode(t, err, fault.Internal)
			_, err = r.commitUndo(asAgent(agent), parent.ID, undo.Token)
			requireCode(t, err, fault.Internal)
			require.Equal(t, before, r.count())
			require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
			require.Empty(t, tooltest.FakeOf(release).Requests())

			store.preview = nil
			require.Equal(t, ledger.Succeeded, r.mustCommit(agent, "hold_order", token).Operation.State)
		})
	}
}

// TestDamaged_PreviewsOfARunsUndo: one undo of the list is not the one that was
// shown: the run stays open, and nothing is taken back.
func TestDamaged_PreviewsOfARunsUndo(t *testing.T) {
	hold, release := undoable()
	r, store := damagedRig(t, hold, release)
	parent := r.inRun(1, "hold_order", args("ord_1")).Operation
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	store.preview = func(p *ledger.Preview) {
		if p.Parent != "" {
			otherBytes(&p.Plan)
		}
	}
	_, err = r.commitRun(asAgent(agent), plan.Token)
	requireCode(t, err, fault.Internal)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Empty(t, tooltest.FakeOf(release).Requests())
	head, err := r.ledger.RunHead(t.Context(), tenant, agent.ID, runID)
	require.NoError(t, err)
	require.False(t, head.Closed())
}

// TestDamaged_PlanBeforeItIsSent: a stored plan that is not the one that was
// decided on, or goes to another address, is not sent (I13).
func TestDamaged_PlanBeforeItIsSent(t *testing.T) {
	for name, damage := range map[string]func(*tools.Plan){
		"other bytes": otherBytes, "another address": func(p *tools.Plan) { p.Target += "/elsewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order")
			fake := tooltest.FakeOf(hold)
			fake.Script(tooltest.Unsent())
			r, store := damagedRig(t, hold)
			res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "hold_order", Token: r.preview(agent, "hold_order", args("ord_1")).Token})
			require.NoError(t, err)
			require.NoError(t, r.executor.Drain(t.Context()))
			op := r.op(res.Operation.ID)
			require.Equal(t, ledger.Pending, op.State)
			store.plan = damage
			r.work()
			got := r.op(op.ID)
			require.Equal(t, ledger.Expired, got.State)
			require.Equal(t, "plan_damaged", got.Reason.Code)
			require.Empty(t, fake.Effects())
		})
	}
}

// TestDamaged_PlanBeforeItIsSentAgain: a repeat is the same bytes, or a person's
// affair (I4).
func TestDamaged_PlanBeforeItIsSentAgain(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(24*time.Hour))
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	r, store := damagedRig(t, hold)
	r.endReconciling()
	op := r.inDoubt("hold_order")
	store.plan = otherBytes
	r.lookOften(1, 10*time.Second)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(op.ID)
	require.Equal(t, ledger.Unknown, got.State)
	require.True(t, got.OnList)
	require.Len(t, fake.Requests(), 1)
}
