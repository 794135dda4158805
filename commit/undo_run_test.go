package commit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

const runID = "run_1"

// step is one call of the run.
func step(n int) *ledger.Run {
	return &ledger.Run{ID: runID, Step: fmt.Sprint(n), Call: "1"}
}

// inRun previews and commits one step of the run.
func (r *rig) inRun(n int, tool string, in map[string]any) commit.Result {
	r.t.Helper()
	p, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: in, Run: step(n)})
	require.NoError(r.t, err)
	require.NotEmpty(r.t, p.Token)
	return r.mustCommit(agent, tool, p.Token)
}

func (r *rig) previewRun(who undoAsked) (preview.RunPlan, error) {
	return r.previews.UndoRun(context.Background(), preview.UndoRunRequest{Tenant: tenant, AgentID: agent.ID, Run: runID, Agent: who.agent, By: who.by, RequestID: "req"})
}

func (r *rig) commitRun(who undoAsked, token string) (commit.RunResult, error) {
	return r.commits.UndoRun(context.Background(), commit.UndoRunCommit{
		Tenant: tenant, AgentID: agent.ID, Run: runID, Token: token, Agent: who.agent, By: who.by, RequestID: "req",
	})
}

// states are the states of operations as they stand now.
func (r *rig) states(ops []ledger.Operation) []ledger.State {
	out := make([]ledger.State, len(ops))
	for i, op := range ops {
		out[i] = r.op(op.ID).State
	}
	return out
}

// undone are the effects that a fake took back, in order: its argument is the
// effect id of what is undone.
func undone(release *tools.Tool) []string {
	var out []string
	for _, e := range tooltest.FakeOf(release).Effects() {
		out = append(out, fmt.Sprint(e.Args["order_id"]))
	}
	return out
}

// TestRunUndo_SevenSteps: seven effects are taken back in reverse order, each
// sent when the one before it has succeeded, in one pass of the executor.
func TestRunUndo_SevenSteps(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	var parents []ledger.Operation
	for n := range 7 {
		parents = append(parents, r.inRun(n+1, "hold_order", args(fmt.Sprintf("ord_%d", n+1))).Operation)
	}
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	require.Len(t, plan.Items, 7)
	require.Empty(t, plan.Stopped)
	for i, item := range plan.Items {
		require.Equal(t, parents[6-i].ID, item.Operation.ID, "newest first")
		require.True(t, item.Possible)
		require.Equal(t, "release_hold", item.Preview.Tool)
		require.Equal(t, plan.ExpiresAt, item.Preview.ExpiresAt)
	}
	require.False(t, plan.Run.Closed())
	require.Equal(t, 7, r.count(), "a preview opens nothing")

	res, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	require.False(t, res.Replayed)
	require.True(t, res.Run.Closed())
	require.Equal(t, ledger.Actor{Kind: "agent", ID: agent.ID, Name: agent.Name}, res.Run.ClosedBy)
	require.Len(t, res.Operations, 7)
	for i, op := range res.Operations {
		require.Equal(t, ledger.Pending, op.State)
		require.Equal(t, parents[6-i].ID, op.Parent)
		require.Equal(t, ledger.Compensating, r.op(op.Parent).State)
	}
	r.work()
	for i, op := range res.Operations {
		require.Equal(t, ledger.Succeeded, r.op(op.ID).State, "undo %d", i)
		require.Equal(t, ledger.Compensated, r.op(op.Parent).State)
	}
	require.Equal(t, []string{"eff_7", "eff_6", "eff_5", "eff_4", "eff_3", "eff_2", "eff_1"}, undone(release))

	r.clock.Add(time.Hour)
	again, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, ids(res.Operations), ids(again.Operations))
	require.Len(t, tooltest.FakeOf(release).Requests(), 7)

	// The run is closed: nothing is opened in it, and what was done is answered
	// with what became of it.
	_, err = r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_8"), Run: step(8)})
	requireCode(t, err, fault.RunClosed)
	_, err = r.previewRun(asOperator(ann))
	requireCode(t, err, fault.RunClosed)
	first, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), Run: step(1)})
	require.NoError(t, err)
	require.Equal(t, parents[0].ID, first.Operation.ID)
	require.Equal(t, []string{ledger.StaleUndone, ledger.StaleRunClosed}, first.Stale)

	journal, err := r.ledger.Journal(context.Background(), tenant, agent.ID, runID)
	require.NoError(t, err)
	require.Len(t, journal.Entries, 7)
	for i, e := range journal.Entries {
		require.Equal(t, parents[i].ID, e.Operation.ID, "oldest first")
		require.Len(t, e.Undoes, 1)
		require.Equal(t, e.Operation.ID, e.Undoes[0].Parent)
	}
}

func ids(ops []ledger.Operation) []string {
	var out []string
	for _, op := range ops {
		out = append(out, op.ID)
	}
	return out
}

// TestMatrix_Row48_SagaStopsAtTheUnknownOne: step 5 of 7 fails; the four effects
// before it are taken back in reverse; the undo of the third has no known
// outcome. Nothing older moves until a person has found out; then the rest goes
// on, and everything was undone once (R94, R99).
func TestMatrix_Row48_SagaStopsAtTheUnknownOne(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	for n := 1; n <= 4; n++ {
		r.inRun(n, "hold_order", args(fmt.Sprintf("ord_%d", n)))
	}
	tooltest.FakeOf(hold).Script(tooltest.Reject("The order is shipped."))
	require.Equal(t, ledger.Failed, r.inRun(5, "hold_order", args("ord_5")).Operation.State)

	tooltest.FakeOf(release).Script(tooltest.Succeed(), tooltest.LoseReply())
	plan, err := r.previewRun(asOperator(ann))
	require.NoError(t, err)
	require.Len(t, plan.Items, 4, "what failed had no effect")
	res, err := r.commitRun(asOperator(ann), plan.Token)
	require.NoError(t, err)
	r.work()
	r.work()
	want := []ledger.State{ledger.Succeeded, ledger.Unknown, ledger.Pending, ledger.Pending}
	require.Equal(t, want, r.states(res.Operations))
	require.Equal(t, []ledger.State{ledger.Compensated, ledger.Compensating, ledger.Compensating, ledger.Compensating}, r.parents(res.Operations))
	require.Eventually(t, func() bool { return r.op(res.Operations[1].ID).OnList }, 10*time.Second, 5*time.Millisecond, "a person is asked")
	require.Len(t, tooltest.FakeOf(release).Requests(), 2)
	r.restart() // and nothing moves by a crash either
	r.work()
	require.Equal(t, want, r.states(res.Operations))

	_, err = r.approvals.Resolve(context.Background(), bob, res.Operations[1].ID, ledger.Statement{Happened: true, EffectID: "rel_3", Reason: "Seen in the shop."})
	require.NoError(t, err)
	r.executor.Follow(context.Background(), r.op(res.Operations[1].ID))
	require.NoError(t, r.executor.Drain(context.Background()))
	for _, op := range res.Operations {
		require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
		require.Equal(t, ledger.Compensated, r.op(op.Parent).State)
	}
	require.Equal(t, []string{"eff_4", "eff_3", "eff_2", "eff_1"}, undone(release))
}

// parents are the states of what the undos take back.
func (r *rig) parents(undoes []ledger.Operation) []ledger.State {
	out := make([]ledger.State, len(undoes))
	for i, op := range undoes {
		out[i] = r.op(op.Parent).State
	}
	return out
}

// TestRunUndo_AFailureStopsIt: those behind a failed undo stay pending until
// their time is over; then their effects stand as before, and each can still be
// taken back alone.
func TestRunUndo_AFailureStopsIt(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	for n := 1; n <= 3; n++ {
		r.inRun(n, "hold_order", args(fmt.Sprintf("ord_%d", n)))
	}
	tooltest.FakeOf(release).Script(tooltest.Succeed(), tooltest.Reject("It was shipped."))
	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	res, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	r.work()
	r.work()
	require.Equal(t, []ledger.State{ledger.Succeeded, ledger.Failed, ledger.Pending}, r.states(res.Operations))
	require.Equal(t, []ledger.State{ledger.Compensated, ledger.Succeeded, ledger.Compensating}, r.parents(res.Operations))

	r.clock.Add(48 * time.Hour)
	_, err = r.sweeper.RunOnce(context.Background())
	require.NoError(t, err)
	require.Equal(t, []ledger.State{ledger.Succeeded, ledger.Failed, ledger.Expired}, r.states(res.Operations))
	require.Equal(t, []ledger.State{ledger.Compensated, ledger.Succeeded, ledger.Succeeded}, r.parents(res.Operations))
	require.Len(t, tooltest.FakeOf(release).Requests(), 2)

	alone := r.undo(asOperator(ann), res.Operations[2].Parent).Operation
	require.Equal(t, ledger.Succeeded, alone.State)
	require.Equal(t, 2, alone.Generation)
	require.Empty(t, alone.After, "it waits for nothing")
}

// TestRunUndo_SaysWhatStays: what can't be taken back is in the plan with its
// reason, and the plan goes on behind it; a doubt ends the plan.
func TestRunUndo_SaysWhatStays(t *testing.T) {
	hold, release := undoable()
	letter := tooltest.FakeTool("send_letter")
	move, back := tooltest.FakeTool("move_order", tooltest.WithUndo("move_back")), tooltest.FakeTool("move_back")
	r := newRig(t, hold, release, letter, move, back)
	first := r.inRun(1, "hold_order", args("ord_1")).Operation
	moved := r.inRun(2, "move_order", args("ord_1")).Operation
	sent := r.inRun(3, "send_letter", args("ord_1")).Operation
	gone := r.inRun(4, "hold_order", args("ord_2")).Operation
	r.undo(asAgent(agent), gone.ID)

	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	require.Len(t, plan.Items, 4)
	require.Equal(t, []string{gone.ID, sent.ID, moved.ID, first.ID}, []string{
		plan.Items[0].Operation.ID, plan.Items[1].Operation.ID, plan.Items[2].Operation.ID, plan.Items[3].Operation.ID,
	})
	require.False(t, plan.Items[0].Possible)
	require.Contains(t, plan.Items[0].Because, "taken back already")
	require.False(t, plan.Items[1].Possible)
	require.Contains(t, plan.Items[1].Because, "declares no undo")
	require.True(t, plan.Items[2].Possible)
	require.True(t, plan.Items[3].Possible)
	require.Empty(t, plan.Stopped)

	// Whether the move can be taken back can't be told: nothing older either.
	tooltest.FakeOf(back).FailPreview(fault.New(fault.UpstreamTimeout, "The outside system did not answer in time."))
	doubt, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	require.Contains(t, doubt.Stopped, moved.ID)
	require.Empty(t, doubt.Token, "nothing newer can be taken back")
	require.False(t, doubt.Items[3].Possible)
	require.Contains(t, doubt.Items[3].Because, "stops before it")

	res, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	require.Equal(t, []string{moved.ID, first.ID}, []string{res.Operations[0].Parent, res.Operations[1].Parent})
	r.work()
	require.Equal(t, []ledger.State{ledger.Compensated, ledger.Compensated}, r.parents(res.Operations))
	require.Equal(t, ledger.Succeeded, r.op(sent.ID).State)
}

// TestRunUndo_Refused: while something in the run has no answer, for strangers,
// and when the run is not as it was shown.
func TestRunUndo_Refused(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	r := newRig(t, hold, release)
	_, err := r.previewRun(asAgent(agent))
	requireCode(t, err, fault.RunNotFound)
	one := r.inRun(1, "hold_order", args("ord_1")).Operation
	_, err = r.previewRun(asAgent(other))
	requireCode(t, err, fault.RunNotFound)

	tooltest.FakeOf(hold).Script(tooltest.LoseReply())
	lost := r.inRun(2, "hold_order", args("ord_2")).Operation
	require.Equal(t, ledger.Unknown, lost.State)
	_, err = r.previewRun(asAgent(agent))
	require.Equal(t, lost.ID, requireCode(t, err, fault.RunLive).Operation)
	_, err = r.approvals.Resolve(ctx, bob, lost.ID, ledger.Statement{Reason: "Not there."})
	require.NoError(t, err)

	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	_, err = r.commitRun(asOperator(ann), plan.Token)
	requireCode(t, err, fault.TokenSubjectMismatch)
	_, err = r.commit(agent, "release_hold", plan.Token)
	requireCode(t, err, fault.ArgsMismatch)
	_, err = r.commitUndo(asAgent(agent), one.ID, plan.Token)
	requireCode(t, err, fault.ArgsMismatch)
	_, err = r.commits.UndoRun(ctx, commit.UndoRunCommit{Tenant: tenant, AgentID: agent.ID, Run: "run_2", Token: plan.Token, Agent: &agent})
	requireCode(t, err, fault.ArgsMismatch)

	// The run went on meanwhile.
	three := r.inRun(3, "hold_order", args("ord_3")).Operation
	_, err = r.commitRun(asAgent(agent), plan.Token)
	requireCode(t, err, fault.PreviewStale)
	// One of its effects is being taken back, then was.
	plan, err = r.previewRun(asAgent(agent))
	require.NoError(t, err)
	held := make(chan struct{})
	tooltest.FakeOf(release).Script(tooltest.Held(held, tooltest.Succeed()))
	p, err := r.previewUndo(asAgent(agent), three.ID)
	require.NoError(t, err)
	_, err = r.commits.Undo(ctx, commit.UndoCommit{Tenant: tenant, Operation: three.ID, Token: p.Token, Agent: &agent})
	require.NoError(t, err)
	<-tooltest.FakeOf(release).Arrived()
	_, err = r.commitRun(asAgent(agent), plan.Token)
	requireCode(t, err, fault.RunLive)
	close(held)
	require.NoError(t, r.executor.Drain(ctx))
	require.Equal(t, ledger.Compensated, r.op(three.ID).State)
	_, err = r.commitRun(asAgent(agent), plan.Token)
	requireCode(t, err, fault.UndoImpossible)
	require.Equal(t, ledger.Succeeded, r.op(one.ID).State, "all or nothing")

	plan, err = r.previewRun(asAgent(agent))
	require.NoError(t, err)
	r.clock.Add(time.Hour)
	_, err = r.commitRun(asAgent(agent), plan.Token)
	requireCode(t, err, fault.TokenExpired)
	head, err := r.ledger.RunHead(ctx, tenant, agent.ID, runID)
	require.NoError(t, err)
	require.False(t, head.Closed())
}

// TestRunUndo_Parallel: the agent and two operators, each with a plan of their
// own, each twice: one closes the run, and each effect is taken back once.
func TestRunUndo_Parallel(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	for n := 1; n <= 3; n++ {
		r.inRun(n, "hold_order", args(fmt.Sprintf("ord_%d", n)))
	}
	askers := []undoAsked{asAgent(agent), asOperator(ann), asOperator(bob)}
	tokens := make([]string, len(askers))
	for i, who := range askers {
		plan, err := r.previewRun(who)
		require.NoError(t, err)
		tokens[i] = plan.Token
	}
	results, errs := make([]commit.RunResult, 6), make([]error, 6)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i], errs[i] = r.commitRun(askers[i%3], tokens[i%3]) })
	}
	wg.Wait()
	fresh, answered := 0, 0
	for i, err := range errs {
		if err != nil {
			require.Contains(t, []fault.Code{fault.RunClosed, fault.RunLive, fault.UndoImpossible, fault.PreviewStale}, fault.Of(err).Code, "%v", err)
			continue
		}
		answered++
		if !results[i].Replayed {
			fresh++
		}
		require.Len(t, results[i].Operations, 3)
	}
	require.Equal(t, 1, fresh)
	require.Equal(t, 2, answered, "the winner's token is answered both times")
	r.work()
	require.Equal(t, []string{"eff_3", "eff_2", "eff_1"}, undone(release))
	require.Equal(t, 6, r.count())
}

// TestRunUndo_WithPeople: undos that people must agree to wait for them, and for
// their turn.
func TestRunUndo_WithPeople(t *testing.T) {
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	for n := 1; n <= 2; n++ {
		r.inRun(n, "hold_order", args(fmt.Sprintf("ord_%d", n)))
	}
	plan, err := r.previewRun(asOperator(ann))
	require.NoError(t, err)
	res, err := r.commitRun(asOperator(ann), plan.Token)
	require.NoError(t, err)
	require.Equal(t, []ledger.State{ledger.AwaitingApproval, ledger.AwaitingApproval}, r.states(res.Operations))
	r.approve(bob, r.op(res.Operations[1].ID)) // the later one first
	r.work()
	require.Equal(t, []ledger.State{ledger.AwaitingApproval, ledger.Pending}, r.states(res.Operations))
	_, err = r.decide(ann, r.op(res.Operations[0].ID), "approve", "")
	requireCode(t, err, fault.SeparationOfDuties)
	r.approve(bob, r.op(res.Operations[0].ID))
	r.work()
	require.Equal(t, []ledger.State{ledger.Succeeded, ledger.Succeeded}, r.states(res.Operations))
	require.Equal(t, []string{"eff_2", "eff_1"}, undone(release))
}
