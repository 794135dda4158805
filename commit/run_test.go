package commit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// agentRun is an agent that does five steps, each with what the step before gave
// it, and remembers nothing: it gets every id from the gateway.
func (r *rig) agentRun(tool string, until int) (ops []ledger.Operation, replayed int) {
	r.t.Helper()
	order := "ord_1"
	for n := 1; n <= until; n++ {
		p, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: args(order), Run: step(n)})
		require.NoError(r.t, err)
		var op ledger.Operation
		if p.Operation != nil {
			replayed++
			require.Empty(r.t, p.Token)
			require.Empty(r.t, p.Stale, "nothing has changed since")
			op = *p.Operation
		} else {
			op = r.mustCommit(agent, tool, p.Token).Operation
		}
		require.Equal(r.t, ledger.Succeeded, op.State)
		ops = append(ops, op)
		order = op.EffectID // handed on to the next step
	}
	return ops, replayed
}

// TestRun_ReplayAfterACrash: five steps, a crash behind the third, and the whole
// run again: the first three are answered from the journal with the first ids,
// the others build on exactly these, and each effect exists once (R59, R104,
// R110, R176).
func TestRun_ReplayAfterACrash(t *testing.T) {
	for _, source := range []tools.KeySource{tools.KeyFromRun, tools.KeyTemplate} {
		t.Run(string(source), func(t *testing.T) {
			book := tooltest.FakeTool("book_trip", tooltest.KeyFrom(source), tooltest.NeedsRun())
			r := newRig(t, book)
			before, replayed := r.agentRun("book_trip", 3)
			require.Zero(t, replayed)

			r.restart() // the agent is gone with everything that it knew
			after, replayed := r.agentRun("book_trip", 5)
			require.Equal(t, 3, replayed)
			for i, op := range before {
				require.Equal(t, op.ID, after[i].ID)
				require.Equal(t, op.EffectID, after[i].EffectID)
			}
			require.Len(t, tooltest.FakeOf(book).Requests(), 5)
			require.Len(t, tooltest.FakeOf(book).Effects(), 5)
			require.Equal(t, "eff_3", tooltest.FakeOf(book).Effects()[3].Args["order_id"], "step 4 builds on step 3's first id")

			journal, err := r.ledger.Journal(context.Background(), tenant, agent.ID, runID)
			require.NoError(t, err)
			require.Equal(t, 5, journal.Run.Operations)
			require.False(t, journal.Run.Closed())
			for i, e := range journal.Entries {
				require.Equal(t, after[i].ID, e.Operation.ID)
				require.Equal(t, fmt.Sprintf("eff_%d", i+1), e.Operation.EffectID)
				require.Equal(t, fmt.Sprint(i+1), e.Operation.Run.Step)
				require.Empty(t, e.Stale)
				require.Empty(t, e.Undoes)
			}
			again, replayed := r.agentRun("book_trip", 5)
			require.Equal(t, 5, replayed)
			require.Equal(t, ids(after), ids(again))
			require.Len(t, tooltest.FakeOf(book).Requests(), 5)
		})
	}
}

// TestRun_ReplayWithOtherArguments: a step that is planned anew under the same
// place in the run is refused, not done a second time (R42, R61).
func TestRun_ReplayWithOtherArguments(t *testing.T) {
	book := tooltest.FakeTool("book_trip", tooltest.KeyFrom(tools.KeyFromRun))
	r := newRig(t, book)
	ops, _ := r.agentRun("book_trip", 2)
	_, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "book_trip", Args: args("ord_other"), Run: step(1)})
	require.Equal(t, ops[0].ID, requireCode(t, err, fault.IdempotencyKeyReused).Operation)
	require.Len(t, tooltest.FakeOf(book).Requests(), 2)

	// The same names in another agent's run are another run.
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: other, Tool: "book_trip", Args: args("ord_other"), Run: step(1)})
	require.NoError(t, err)
	require.NotEmpty(t, res.Token)
}

// TestRun_CallChanged: whatever a tool's key is made of, at one place of a run
// stands one intent: other arguments, another tool and another key are refused, at
// the preview and at the commit, while the first may have had an effect (R42, R57).
func TestRun_CallChanged(t *testing.T) {
	ctx := context.Background()
	book, hold, own := tooltest.FakeTool("book_trip"), tooltest.FakeTool("hold_order"), tooltest.FakeTool("own_key", tooltest.KeyFrom(tools.KeyFromCaller))
	r := newRig(t, book, hold, own)
	ask := func(tool, order string, run *ledger.Run) (preview.Result, error) {
		q := preview.Request{Agent: agent, Tool: tool, Args: args(order), Run: run}
		if tool == "own_key" {
			q.IdempotencyKey = order + "-of-mine"
		}
		return r.previews.Preview(ctx, q)
	}
	may := func(tool, order string, run *ledger.Run) preview.Result {
		t.Helper()
		res, err := ask(tool, order, run)
		require.NoError(t, err)
		return res
	}
	early := may("book_trip", "ord_2", step(1))
	elsewhere := may("own_key", "ord_3", step(1))
	first := r.mustCommit(agent, "book_trip", may("book_trip", "ord_1", step(1)).Token).Operation
	require.NoError(t, r.executor.Drain(ctx))

	for _, q := range [][2]string{{"book_trip", "ord_2"}, {"hold_order", "ord_1"}, {"own_key", "ord_1"}} {
		_, err := ask(q[0], q[1], step(1))
		require.Equal(t, first.ID, requireCode(t, err, fault.RunCallChanged).Operation, q)
	}
	_, err := r.commit(agent, "book_trip", early.Token)
	require.Equal(t, first.ID, requireCode(t, err, fault.RunCallChanged).Operation)
	_, err = r.commit(agent, "own_key", elsewhere.Token)
	requireCode(t, err, fault.RunCallChanged)
	require.Equal(t, first.ID, may("book_trip", "ord_1", step(1)).Operation.ID, "the same is answered with the first result")

	// The next call, no place, another agent's place.
	may("book_trip", "ord_2", step(2))
	may("book_trip", "ord_2", &ledger.Run{ID: runID, Step: "1"})
	_, err = r.previews.Preview(ctx, preview.Request{Agent: other, Tool: "book_trip", Args: args("ord_2"), Run: step(1)})
	require.NoError(t, err)
	require.Len(t, tooltest.FakeOf(book).Requests(), 1)

	// What certainly had no effect frees its place.
	tooltest.FakeOf(hold).Script(tooltest.Reject("no"))
	failed := r.mustCommit(agent, "hold_order", may("hold_order", "ord_1", step(3)).Token).Operation
	require.NoError(t, r.executor.Drain(ctx))
	require.Equal(t, ledger.Failed, r.op(failed.ID).State)
	may("book_trip", "ord_3", step(3))
}

// TestRun_CallChanged_Race: two commits at one place at once open one operation.
func TestRun_CallChanged_Race(t *testing.T) {
	book := tooltest.FakeTool("book_trip")
	r := newRig(t, book)
	for n := range 10 {
		var tokens []string
		for i := range 4 {
			res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "book_trip", Args: args(fmt.Sprintf("ord_%d_%d", n, i)), Run: step(n + 1)})
			require.NoError(t, err)
			tokens = append(tokens, res.Token)
		}
		errs := make([]error, len(tokens))
		var all sync.WaitGroup
		for i, token := range tokens {
			all.Go(func() { _, errs[i] = r.commit(agent, "book_trip", token) })
		}
		all.Wait()
		opened := 0
		for _, err := range errs {
			if err == nil {
				opened++
				continue
			}
			requireCode(t, err, fault.RunCallChanged)
		}
		require.Equal(t, 1, opened)
	}
	require.NoError(t, r.executor.Drain(context.Background()))
	require.Len(t, tooltest.FakeOf(book).Requests(), 10)
}

func TestRun_Needed(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("book_trip", tooltest.NeedsRun()), tooltest.FakeTool("run_key", tooltest.KeyFrom(tools.KeyFromRun)))
	_, err := r.previews.Preview(context.Background(), previewRequest("book_trip", "ord_1"))
	requireCode(t, err, fault.RunNeeded)
	_, err = r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "run_key", Args: args("ord_1"), Run: &ledger.Run{ID: runID, Step: "1"}})
	requireCode(t, err, fault.RunNeeded)
}

// TestRun_ClosedBetweenPreviewAndCommit: the token opens nothing any more, and
// no second run undo is needed to know it.
func TestRun_ClosedBetweenPreviewAndCommit(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	r.inRun(1, "hold_order", args("ord_1"))
	late, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_2"), Run: step(2)})
	require.NoError(t, err)
	plan, err := r.previewRun(asOperator(ann))
	require.NoError(t, err)
	_, err = r.commitRun(asOperator(ann), plan.Token)
	require.NoError(t, err)
	_, err = r.commit(agent, "hold_order", late.Token)
	requireCode(t, err, fault.RunClosed)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
}

// TestRun_StaleContext: what changed since a step was done is said with its
// first result, at preview, at commit and in the journal (R56).
func TestRun_StaleContext(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	r := newRig(t, hold, release)
	p, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), Run: step(1)})
	require.NoError(t, err)
	first := r.mustCommit(agent, "hold_order", p.Token)
	require.Empty(t, first.Stale, "a first answer is not stale")
	stale := func() []string {
		t.Helper()
		res, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), Run: step(1)})
		require.NoError(t, err)
		again := r.mustCommit(agent, "hold_order", p.Token)
		require.True(t, again.Replayed)
		require.Equal(t, res.Stale, again.Stale)
		journal, err := r.ledger.Journal(ctx, tenant, agent.ID, runID)
		require.NoError(t, err)
		require.Equal(t, res.Stale, journal.Entries[0].Stale)
		return res.Stale
	}
	require.Empty(t, stale())

	tooltest.FakeOf(release).Script(tooltest.LoseReply())
	child := r.undo(asAgent(agent), first.Operation.ID).Operation
	require.Equal(t, []string{ledger.StaleBeingUndone}, stale())
	_, err = r.approvals.Resolve(ctx, bob, child.ID, ledger.Statement{Happened: true, EffectID: "rel_1", Reason: "Seen."})
	require.NoError(t, err)
	require.Equal(t, []string{ledger.StaleUndone}, stale())

	changed := tooltest.FakeTool("hold_order", tooltest.WithUndo("release_hold"), tooltest.Versioned(2))
	require.NoError(t, r.registry.Set([]*tools.Tool{changed, release}))
	r.inForce()
	require.Equal(t, []string{ledger.StaleUndone, ledger.StaleToolChanged}, stale())

	// A withdrawn tool takes no previews; its commits and the journal still answer.
	require.NoError(t, r.registry.Set([]*tools.Tool{release}))
	r.inForce()
	again := r.mustCommit(agent, "hold_order", p.Token)
	require.Equal(t, []string{ledger.StaleUndone, ledger.StaleToolWithdrawn}, again.Stale)
}

// TestRun_VerifiedOutside: on request the outside system itself is asked whether
// the effects are still there.
func TestRun_VerifiedOutside(t *testing.T) {
	ctx := context.Background()
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	blind := tooltest.FakeTool("send_letter")
	r := newRig(t, hold, blind)
	r.inRun(1, "hold_order", args("ord_1"))
	r.inRun(2, "hold_order", args("ord_2"))
	r.inRun(3, "send_letter", args("ord_3"))
	tooltest.FakeOf(hold).Answers(tools.Answer{Kind: tools.Absent}, tools.Answer{Kind: tools.LookupFailed})
	journal, err := r.ledger.Journal(ctx, tenant, agent.ID, runID)
	require.NoError(t, err)
	journal, err = r.previews.Verify(ctx, journal)
	require.NoError(t, err)
	require.Equal(t, []string{ledger.StaleAbsentOutside}, journal.Entries[0].Stale)
	require.Empty(t, journal.Entries[1].Stale, "a lookup that fails proves nothing")
	require.Empty(t, journal.Entries[2].Stale, "it can't be asked")
	require.Equal(t, ledger.Succeeded, r.op(journal.Entries[0].Operation.ID).State, "the record stays what it is")
}
