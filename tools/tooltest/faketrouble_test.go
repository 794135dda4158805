package tooltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tools"
	"countersign/tools/tooltest"
)

// troubled is a tool with one effect, a clock that tests set, and its plan.
func troubled(t *testing.T, opts ...tooltest.Option) (tool *tools.Tool, fake *tooltest.Fake, plan tools.Plan, pass func(time.Duration)) {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tool = tooltest.FakeTool("a", append(opts, tooltest.WithClock(func() time.Time { return now }))...)
	plan, err := tool.Preview(context.Background(), call("ord_1"))
	require.NoError(t, err)
	tool.Dispatch(context.Background(), plan, tools.Dispatch{})
	return tool, tooltest.FakeOf(tool), plan, func(d time.Duration) { now = now.Add(d) }
}

func TestFake_LagLookups(t *testing.T) {
	for _, kind := range []tools.AnswerKind{tools.Absent, tools.NotVisibleYet} {
		tool, fake, plan, pass := troubled(t, tooltest.WithLookup(tools.Eventual))
		fake.LagLookups(time.Minute, kind)
		require.Equal(t, kind, tool.Lookup(t.Context(), plan).Kind)
		require.Len(t, fake.Effects(), 1, "it is there all the same")
		pass(time.Minute)
		require.Equal(t, tools.Present, tool.Lookup(t.Context(), plan).Kind)

		// What never happened is absent, however late.
		never, err := tool.Preview(t.Context(), call("ord_2"))
		require.NoError(t, err)
		require.Equal(t, tools.Absent, tool.Lookup(t.Context(), never).Kind)
	}
}

func TestFake_HideFromLookups(t *testing.T) {
	tool, fake, plan, pass := troubled(t, tooltest.WithLookup(tools.Strong))
	fake.HideFromLookups(true)
	pass(24 * time.Hour)
	require.Equal(t, tools.Absent, tool.Lookup(t.Context(), plan).Kind)
	fake.HideFromLookups(false)
	require.Equal(t, tools.Present, tool.Lookup(t.Context(), plan).Kind)
}

func TestFake_SwallowLookups(t *testing.T) {
	tool, fake, plan, _ := troubled(t, tooltest.WithLookup(tools.Strong))
	fake.SwallowLookups(true)
	got := make(chan tools.Answer)
	ask := func(ctx context.Context) { got <- tool.Lookup(ctx, plan) }
	leaves, leave := context.WithCancel(t.Context())
	go ask(leaves)
	<-fake.Asked()
	select {
	case <-got:
		t.Fatal("answered although swallowed")
	default:
	}
	leave()
	require.Equal(t, tools.LookupFailed, (<-got).Kind)

	go ask(t.Context())
	<-fake.Asked()
	fake.SwallowLookups(false)
	require.Contains(t, []tools.AnswerKind{tools.LookupFailed, tools.Present}, (<-got).Kind)
	require.Equal(t, tools.Present, tool.Lookup(t.Context(), plan).Kind)
	require.Equal(t, 3, fake.Lookups())
}

// A key is known until the retention is over, and not longer; one that is
// forgotten too early is a broken promise that a lookup shows.
func TestFake_KeyRetention(t *testing.T) {
	tool, fake, plan, pass := troubled(t, tooltest.HonoursKey(time.Hour), tooltest.WithLookup(tools.Strong))
	pass(time.Hour - time.Nanosecond)
	require.Equal(t, "eff_1", tool.Dispatch(t.Context(), plan, tools.Dispatch{}).EffectID)
	pass(time.Nanosecond)
	require.Equal(t, "eff_2", tool.Dispatch(t.Context(), plan, tools.Dispatch{}).EffectID)
	require.Len(t, fake.Effects(), 2)

	tool, fake, plan, _ = troubled(t, tooltest.HonoursKey(time.Hour), tooltest.WithLookup(tools.Strong))
	fake.ForgetKeysAfter(0)
	tool.Dispatch(t.Context(), plan, tools.Dispatch{})
	a := tool.Lookup(t.Context(), plan)
	require.Equal(t, tools.BrokenPromise, a.Kind)
	require.Equal(t, []string{"eff_1", "eff_2"}, a.EffectIDs)
}
