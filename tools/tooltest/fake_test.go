package tooltest_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
	"countersign/tools/tooltest"
)

func call(order string) tools.Call {
	return tools.Call{
		Args: map[string]any{"order_id": order, "note": ""},
		Key:  tools.Key{Value: "k/" + order, Generation: 1, Upstream: "u-" + order},
	}
}

func dispatch(t *testing.T, tool *tools.Tool, order string) tools.Outcome {
	t.Helper()
	plan, err := tool.Preview(context.Background(), call(order))
	require.NoError(t, err)
	return tool.Dispatch(context.Background(), plan, tools.Dispatch{Operation: "op_1", Attempt: 1})
}

func TestFake_Dispatch(t *testing.T) {
	tests := map[string]struct {
		step              tooltest.Step
		verdict           tools.Verdict
		requests, effects int
	}{
		"succeed":      {tooltest.Succeed(), tools.Succeeded, 1, 1},
		"zero step":    {tooltest.Step{}, tools.Succeeded, 1, 1},
		"reject":       {tooltest.Reject("no"), tools.NoEffect, 1, 0},
		"unsent":       {tooltest.Unsent(), tools.NotSent, 0, 0},
		"lose reply":   {tooltest.LoseReply(), tools.Unknown, 1, 1},
		"lose request": {tooltest.LoseRequest(), tools.Unknown, 1, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tool := tooltest.FakeTool("hold_order")
			fake := tooltest.FakeOf(tool).Script(tt.step)
			out := dispatch(t, tool, "ord_1")
			require.Equal(t, tt.verdict, out.Verdict)
			require.Len(t, fake.Requests(), tt.requests)
			require.Len(t, fake.Effects(), tt.effects)
			require.Equal(t, tt.verdict == tools.Succeeded, out.EffectID != "")
			require.Equal(t, tools.Succeeded, dispatch(t, tool, "ord_2").Verdict, "an empty script succeeds")
		})
	}
}

func TestFake_HonoursKey(t *testing.T) {
	plain := tooltest.FakeTool("a")
	dispatch(t, plain, "ord_1")
	dispatch(t, plain, "ord_1")
	require.Len(t, tooltest.FakeOf(plain).Effects(), 2)

	keyed := tooltest.FakeTool("a", tooltest.HonoursKey(time.Hour))
	first := dispatch(t, keyed, "ord_1")
	again := dispatch(t, keyed, "ord_1")
	require.Equal(t, first.EffectID, again.EffectID)
	require.Len(t, tooltest.FakeOf(keyed).Requests(), 2)
	require.Len(t, tooltest.FakeOf(keyed).Effects(), 1)
}

func TestFake_Hold(t *testing.T) {
	tool := tooltest.FakeTool("a")
	release := make(chan struct{})
	fake := tooltest.FakeOf(tool).Script(tooltest.Held(release, tooltest.Succeed()))
	got := make(chan tools.Outcome)
	go func() { got <- dispatch(t, tool, "ord_1") }()
	<-fake.Arrived()
	require.Len(t, fake.Effects(), 1, "the effect is there while the reply is held")
	select {
	case <-got:
		t.Fatal("answered while held")
	default:
	}
	close(release)
	require.Equal(t, tools.Succeeded, (<-got).Verdict)
}

func TestFake_DeadlinePassed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tool := tooltest.FakeTool("a", tooltest.WithClock(func() time.Time { return now }))
	out := tool.Dispatch(context.Background(), tools.Plan{}, tools.Dispatch{Deadline: now.Add(-time.Nanosecond)})
	require.Equal(t, tools.NotSent, out.Verdict)
	require.Empty(t, tooltest.FakeOf(tool).Requests())
}

func TestFake_DriftAndDone(t *testing.T) {
	tool := tooltest.FakeTool("a")
	fake := tooltest.FakeOf(tool)
	fake.SetWorld("order.status", "open")
	plan, err := tool.Preview(context.Background(), call("ord_1"))
	require.NoError(t, err)
	g, err := tool.Guard(context.Background(), plan)
	require.NoError(t, err)
	require.Empty(t, g.Drift)

	fake.SetWorld("order.status", "paid")
	fake.SetDone(&tools.Done{EffectID: "eff_9"})
	g, err = tool.Guard(context.Background(), plan)
	require.NoError(t, err)
	require.Equal(t, []tools.Drift{{Field: "order.status", Was: "open", Now: "paid"}}, g.Drift)
	require.Equal(t, "eff_9", g.Done.EffectID)
}

func TestFake_Lookup(t *testing.T) {
	tool := tooltest.FakeTool("a")
	require.Equal(t, tools.LookupFailed, tool.Lookup(context.Background(), tools.Plan{}).Kind)

	tool = tooltest.FakeTool("a", tooltest.WithLookup(tools.Strong))
	plan, err := tool.Preview(context.Background(), call("ord_1"))
	require.NoError(t, err)
	require.Equal(t, tools.Absent, tool.Lookup(context.Background(), plan).Kind)
	tooltest.FakeOf(tool).Script(tooltest.LoseReply())
	tool.Dispatch(context.Background(), plan, tools.Dispatch{})
	a := tool.Lookup(context.Background(), plan)
	require.Equal(t, tools.Present, a.Kind)
	require.Equal(t, []string{"eff_1"}, a.EffectIDs)
	tool.Dispatch(context.Background(), plan, tools.Dispatch{})
	require.Equal(t, tools.BrokenPromise, tool.Lookup(context.Background(), plan).Kind)
}

func TestFake_Preview(t *testing.T) {
	tool := tooltest.FakeTool("a", tooltest.Irreversible())
	fake := tooltest.FakeOf(tool)
	c := call("ord_1")
	c.Args["amount"] = json.Number("1200")
	plan, err := tool.Preview(context.Background(), c)
	require.NoError(t, err)
	require.False(t, plan.Reversible)
	require.Equal(t, &tools.Money{Amount: 1200, Currency: "EUR"}, plan.Effects[0].Money)
	require.Empty(t, fake.Requests())
	require.Equal(t, 1, fake.Previews())

	fake.FailPreview(fault.New(fault.ToolRefused, "Not this one."))
	_, err = tool.Preview(context.Background(), c)
	require.True(t, fault.Is(err, fault.ToolRefused))
}

func TestFake_CheckArgs(t *testing.T) {
	tool := tooltest.FakeTool("a")
	args, _, err := tool.CheckArgs(map[string]any{"order_id": "ord_1"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"order_id": "ord_1", "note": ""}, args, "defaults are applied")
	for name, bad := range map[string]map[string]any{
		"/order_id": {},
		"/nope":     {"order_id": "x", "nope": "y"},
		"/amount":   {"order_id": "x", "amount": "1"},
	} {
		_, _, err := tool.CheckArgs(bad)
		require.True(t, fault.Is(err, fault.SchemaViolation), name)
		require.Equal(t, name, fault.Of(err).Pointers[0].Pointer)
	}
}
