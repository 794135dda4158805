package commit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// TestFairness_WhatCannotBeSentStarvesNobody: pending operations that are
// looked at again and again (frozen, or behind a guard that does not answer)
// never keep one behind them from being sent (I21).
func TestFairness_WhatCannotBeSentStarvesNobody(t *testing.T) {
	ctx := t.Context()
	for name, stop := range map[string]func(r *rig, tool *tools.Tool){
		"frozen": func(r *rig, _ *tools.Tool) {
			_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: "stuck"}, ledger.FreezeAll, ledger.Gateway("test"), "stop")
			require.NoError(r.t, err)
		},
		"guard fails": func(_ *rig, tool *tools.Tool) {
			tooltest.FakeOf(tool).FailGuard(fault.New(fault.UpstreamTimeout, "no answer"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			stuck, free := tooltest.FakeTool("stuck", tooltest.Irreversible()), tooltest.FakeTool("free", tooltest.Irreversible())
			r := newRig(t, stuck, free)
			r.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: r.person, Owner: "test", Parallel: 2})
			for i := range 9 {
				r.approve(ann, r.do(agent, "stuck", args(fmt.Sprint(i))).Operation)
			}
			op := r.approve(ann, r.do(agent, "free", args("1")).Operation)
			stop(r, stuck)
			for range 5 { // eight places each, each pass past the claims of the one before
				r.work()
			}
			require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
			require.Empty(t, tooltest.FakeOf(stuck).Requests())
		})
	}
}

// TestFairness_BacklogIsTakenUpAtOnce: what waits is taken up without a pause
// between batches, as many at once as may run.
func TestFairness_BacklogIsTakenUpAtOnce(t *testing.T) {
	free := tooltest.FakeTool("free", tooltest.Irreversible())
	r := newRig(t, free)
	executor := commit.NewExecutor(commit.ExecutorConfig{Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: r.person, Owner: "test", Parallel: 2, Poll: time.Hour})
	for i := range 9 {
		r.approve(ann, r.do(agent, "free", args(fmt.Sprint(i))).Operation)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- executor.Run(ctx) }()
	for range 9 {
		<-tooltest.FakeOf(free).Arrived()
	}
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, executor.Drain(t.Context()))
}
