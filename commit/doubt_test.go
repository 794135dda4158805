package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestDoubt_LostReply: the effect happened and the reply was lost: unknown,
// never sent again, a repeat says so (matrix row 2).
func TestDoubt_LostReply(t *testing.T) {
	ctx := context.Background()
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	tooltest.FakeOf(hold).Script(tooltest.LoseReply())
	p := r.preview(agent, "hold_order", args("ord_1"))
	res := r.mustCommit(agent, "hold_order", p.Token)
	require.Equal(t, ledger.Unknown, res.Operation.State)
	for range 5 {
		r.clock.Add(time.Minute)
		_, err := r.sweeper.RunOnce(ctx)
		require.NoError(t, err)
		r.work()
	}
	again := r.mustCommit(agent, "hold_order", p.Token)
	require.True(t, again.Replayed)
	require.Equal(t, ledger.Unknown, again.Operation.State)
	require.True(t, r.op(res.Operation.ID).OnList, "a tool that can't be asked goes to people at once")
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	_, err := r.commits.Cancel(ctx, tenant, res.Operation.ID, ledger.Gateway("test"), "")
	requireCode(t, err, fault.InvalidState)

	// A new preview of the key is answered with the doubt, not with a token.
	q, err := r.previews.Preview(ctx, previewRequest("hold_order", "ord_1"))
	require.NoError(t, err)
	require.Equal(t, res.Operation.ID, q.Operation.ID)
}

func TestDoubt_ResolvedByAPerson(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		say  ledger.Statement
		code fault.Code
		want ledger.State
	}{
		"happened":            {say: ledger.Statement{Happened: true, EffectID: "hold_9", Reason: "seen in the shop"}, want: ledger.Succeeded},
		"did not happen":      {say: ledger.Statement{Reason: "not in the shop's list"}, want: ledger.Failed},
		"no reason":           {say: ledger.Statement{}, code: fault.DecisionInvalid},
		"no effect id":        {say: ledger.Statement{Happened: true, Reason: "x"}, code: fault.DecisionInvalid},
		"effect id without":   {say: ledger.Statement{EffectID: "hold_9", Reason: "x"}, code: fault.DecisionInvalid},
		"reason far too long": {say: ledger.Statement{Reason: string(make([]byte, 3000))}, code: fault.TooLong},
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order")
			r := newRig(t, hold)
			tooltest.FakeOf(hold).Script(tooltest.LoseRequest())
			op := r.do(agent, "hold_order", args("ord_1")).Operation
			got, err := r.approvals.Resolve(ctx, ann, op.ID, c.say)
			if c.code != "" {
				requireCode(t, err, c.code)
				require.Equal(t, ledger.Unknown, r.op(op.ID).State)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.State)
			require.False(t, got.OnList)
			evidence, err := r.ledger.Evidence(ctx, tenant, op.ID)
			require.NoError(t, err)
			require.Equal(t, "statement", evidence[len(evidence)-1].Kind)
			require.Equal(t, ann.ID, evidence[len(evidence)-1].By.ID)
			_, err = r.approvals.Resolve(ctx, ann, op.ID, c.say)
			requireCode(t, err, fault.InvalidState)
		})
	}
}

// TestMatrix_Row22_SlowPastTheLease: the lease runs out while the tool is slow: no
// second send, and the late reply counts as evidence.
func TestMatrix_Row22_SlowPastTheLease(t *testing.T) {
	ctx := context.Background()
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, hold)
	r.endReconciling() // it would find the effect before the reply comes
	release := make(chan struct{})
	tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
	p := r.preview(agent, "hold_order", args("ord_1"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // its answer is not the point
	<-tooltest.FakeOf(hold).Arrived()
	page, err := r.ledger.List(ctx, ledger.Filter{Tenant: tenant})
	require.NoError(t, err)
	op := page.Operations[0]
	require.Equal(t, ledger.Running, op.State)
	n, err := r.sweeper.RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "a lease that is not over is left alone")

	r.clock.Add(time.Minute)
	n, err = r.sweeper.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.Equal(t, "lease_lost", r.op(op.ID).Reason.Code)

	close(release)
	require.NoError(t, r.executor.Drain(ctx))
	got := r.op(op.ID)
	require.Equal(t, ledger.Succeeded, got.State)
	require.NotEmpty(t, got.EffectID)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	require.Equal(t, []ledger.Verb{"open", "lose_lease", "resolve"}, r.verbs(op.ID))
}

// TestDoubt_Contradicted: a person said that nothing happened, and then the
// reply arrives after all: the operation comes back and the tool is frozen.
func TestDoubt_Contradicted(t *testing.T) {
	ctx := context.Background()
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	release := make(chan struct{})
	tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
	p := r.preview(agent, "hold_order", args("ord_1"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // its answer is not the point
	<-tooltest.FakeOf(hold).Arrived()
	r.clock.Add(time.Minute)
	_, err := r.sweeper.RunOnce(ctx)
	require.NoError(t, err)
	page, err := r.ledger.List(ctx, ledger.Filter{Tenant: tenant})
	require.NoError(t, err)
	op := page.Operations[0]
	_, err = r.approvals.Resolve(ctx, ann, op.ID, ledger.Statement{Reason: "nothing there"})
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, r.op(op.ID).State)
	second := r.do(agent, "hold_order", args("ord_1")) // generation 2, while the first effect hides
	require.Equal(t, 2, second.Operation.Generation)

	close(release)
	require.NoError(t, r.executor.Drain(ctx))
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Contains(t, r.verbs(op.ID), ledger.VerbContradict)
	g, err := r.ledger.Guard(ctx, tenant)
	require.NoError(t, err)
	f, frozen := g.Frozen("hold_order")
	require.True(t, frozen)
	require.Equal(t, ledger.FreezeAll, f.Level)
	_, err = r.commit(agent, "hold_order", r.preview(agent, "hold_order", args("ord_2")).Token)
	requireCode(t, err, fault.ToolFrozen)
}

// TestDoubt_Unsent: what was provably not sent is tried again, a bounded number
// of times, and then fails (matrix row 1).
func TestDoubt_Unsent(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	fake := tooltest.FakeOf(hold).Script(tooltest.Unsent())
	p := r.preview(agent, "hold_order", args("ord_1"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // waits for the retry
	require.Eventually(t, func() bool {
		page, err := r.ledger.List(context.Background(), ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Pending}})
		return err == nil && len(page.Operations) == 1
	}, 10*time.Second, 5*time.Millisecond)
	r.work()
	res := r.mustCommit(agent, "hold_order", p.Token)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.Equal(t, 1, res.Operation.Retries())
	require.Len(t, fake.Effects(), 1)

	for range ledger.MaxUnsent {
		fake.Script(tooltest.Unsent())
	}
	p = r.preview(agent, "hold_order", args("ord_2"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // waits for the end
	var op ledger.Operation
	require.Eventually(t, func() bool {
		r.clock.Add(time.Minute)
		_, err := r.executor.RunOnce(context.Background())
		require.NoError(t, err)
		page, err := r.ledger.List(context.Background(), ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Failed}})
		if err == nil && len(page.Operations) == 1 {
			op = page.Operations[0]
		}
		return op.ID != ""
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, "not_sent", op.Reason.Code)
	require.Len(t, op.Attempts, ledger.MaxUnsent)
	require.Len(t, fake.Effects(), 1)
}

// TestDoubt_RestartWhileRunning: a process that dies behind the mark leaves an
// honest doubt for the next one, which sends the same under the same key, since
// the tool honours it: one effect.
func TestDoubt_RestartWhileRunning(t *testing.T) {
	ctx := context.Background()
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(time.Hour))
	r := newRig(t, hold)
	release := make(chan struct{})
	tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
	p := r.preview(agent, "hold_order", args("ord_1"))
	go func() { _, _ = r.commit(agent, "hold_order", p.Token) }() // dies with the process
	<-tooltest.FakeOf(hold).Arrived()
	old := r.executor
	r.endReconciling()
	require.NoError(t, r.db.Close())
	r.start()
	r.clock.Add(time.Minute)
	_, err := r.sweeper.RunOnce(ctx)
	require.NoError(t, err)
	r.clock.Add(time.Minute)
	_, err = r.reconciler.RunOnce(ctx)
	require.NoError(t, err)
	again := r.mustCommit(agent, "hold_order", p.Token)
	require.True(t, again.Replayed)
	require.Equal(t, ledger.Succeeded, again.Operation.State)
	require.Len(t, tooltest.FakeOf(hold).Effects(), 1)
	for _, request := range tooltest.FakeOf(hold).Requests() {
		require.Equal(t, again.Operation.UpstreamKey, request.Key.Upstream)
	}
	close(release)
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	_ = old.Drain(stopped) // its store is gone; it gives up
}

// TestDoubt_ConnectorPanics: a connector that breaks off leaves a doubt and the
// process alive.
func TestDoubt_ConnectorPanics(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	tooltest.FakeOf(hold).Script(tooltest.Step{Do: func() { panic("broken") }})
	op := r.do(agent, "hold_order", args("ord_1")).Operation
	require.Equal(t, ledger.Unknown, op.State)
}
