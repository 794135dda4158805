package commit_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// flights are two tools that book the same trip by different airlines, and the
// opposite of the first.
func flights(t testing.TB) *rig {
	var list []*tools.Tool
	var fakes []*tooltest.Fake
	add := func(tool *tools.Tool, group string) {
		fakes = append(fakes, tooltest.FakeOf(tool))
		if group != "" {
			tool.Connector = hooked{Connector: tool.Connector, preview: func(p *tools.Plan) error {
				p.Goal = &tools.Goal{Group: group, Value: p.Args["note"].(string)}
				return nil
			}}
		}
		list = append(list, tool)
	}
	add(tooltest.FakeTool("book_alpha", tooltest.WithUndo("cancel_alpha")), "trip")
	add(tooltest.FakeTool("book_beta"), "trip")
	add(tooltest.FakeTool("cancel_alpha"), "cancellation")
	r := newRigOf(t, fakes, list...)
	r.fakes = fakes
	return r
}

func (r *rig) book(tool, seat, trip string) (preview.Result, error) {
	return r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: args(seat, "note", trip)})
}

// TestGoal_OneOfSeveralTools: airline A timed out, so the model books airline B:
// not while it may have a seat at A (N6, R57).
func TestGoal_OneOfSeveralTools(t *testing.T) {
	r := flights(t)
	r.fakes[0].Script(tooltest.LoseReply())
	p, err := r.book("book_alpha", "a1", "trip_1")
	require.NoError(t, err)
	beta, err := r.book("book_beta", "b1", "trip_1") // previewed before A is committed
	require.NoError(t, err)
	first := r.mustCommit(agent, "book_alpha", p.Token).Operation
	require.Equal(t, ledger.Unknown, first.State)

	_, err = r.commit(agent, "book_beta", beta.Token)
	require.Equal(t, first.ID, requireCode(t, err, fault.GoalTaken).Operation)
	_, err = r.book("book_beta", "b1", "trip_1")
	requireCode(t, err, fault.GoalTaken)
	_, err = r.previews.Preview(context.Background(), preview.Request{Agent: other, Tool: "book_beta", Args: args("b1", "note", "trip_1")})
	require.Empty(t, requireCode(t, err, fault.GoalTaken).Operation, "another agent's operation is not named")
	_, err = r.book("book_beta", "b2", "trip_2")
	require.NoError(t, err, "another trip is another goal")
	same, err := r.book("book_alpha", "a1", "trip_1")
	require.NoError(t, err)
	require.Equal(t, first.ID, same.Operation.ID, "the same call is answered with the holder")

	// It did not happen: the goal is free.
	_, err = r.approvals.Resolve(context.Background(), bob, first.ID, ledger.Statement{Reason: "No booking there."})
	require.NoError(t, err)
	res := r.mustCommit(agent, "book_beta", beta.Token)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.Empty(t, r.fakes[0].Effects()[1:])
	require.Len(t, r.fakes[1].Effects(), 1)
}

// TestGoal_FreedByItsUndo: what was taken back no longer holds the goal, and the
// undo itself holds none.
func TestGoal_FreedByItsUndo(t *testing.T) {
	r := flights(t)
	p, err := r.book("book_alpha", "a1", "trip_1")
	require.NoError(t, err)
	first := r.mustCommit(agent, "book_alpha", p.Token).Operation
	_, err = r.book("book_beta", "b1", "trip_1")
	requireCode(t, err, fault.GoalTaken)

	r.fakes[2].Script(tooltest.LoseReply())
	undo := r.undo(asAgent(agent), first.ID).Operation
	require.Nil(t, undo.Goal)
	_, err = r.book("book_beta", "b1", "trip_1")
	requireCode(t, err, fault.GoalTaken) // its undo is in doubt
	_, err = r.approvals.Resolve(context.Background(), bob, undo.ID, ledger.Statement{Happened: true, EffectID: "can_1", Reason: "Cancelled."})
	require.NoError(t, err)
	beta, err := r.book("book_beta", "b1", "trip_1")
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, r.mustCommit(agent, "book_beta", beta.Token).Operation.State)
}

// TestGoal_Race: both tools are committed at once, many times; one takes effect.
func TestGoal_Race(t *testing.T) {
	r := flights(t)
	type try struct{ tool, token string }
	var tries []try
	for i := range 10 {
		tool, seat := "book_alpha", "a"
		if i%2 == 1 {
			tool, seat = "book_beta", "b"
		}
		p, err := r.book(tool, seat+string(rune('0'+i)), "trip_1")
		require.NoError(t, err)
		tries = append(tries, try{tool, p.Token})
	}
	results, errs := make([]commit.Result, len(tries)), make([]error, len(tries))
	var wg sync.WaitGroup
	for i, one := range tries {
		wg.Go(func() { results[i], errs[i] = r.commit(agent, one.tool, one.token) })
	}
	wg.Wait()
	won := 0
	for i := range tries {
		if errs[i] == nil {
			won++
			require.Equal(t, ledger.Succeeded, results[i].Operation.State)
			continue
		}
		requireCode(t, errs[i], fault.GoalTaken)
	}
	require.Equal(t, 1, won)
	require.Len(t, append(r.fakes[0].Effects(), r.fakes[1].Effects()...), 1)
}
