package storetest

import (
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// Another tenant's data is as if it were not there (I17).
var tenantCases = []testCase{
	{"every read", func(w *world) {
		p := w.preview(acme, "k", 1)
		p.Run = &ledger.Run{ID: "run-1"}
		born := w.opening(w.put(p), ledger.Rejected)
		born.New[0].Operation.Goal = &tools.Goal{Group: "g", Value: "v"}
		require.NoError(w, w.Store.Open(w.ctx, born))
		op := born.New[0].Operation
		t := w.move(op, ledger.VerbReopen, func(*ledger.Operation) {})
		t.Decision, t.Evidence = decision(op, "ann", ledger.VerbReject), evidence(op, "evd_1")
		require.NoError(w, w.Store.Apply(w.ctx, t))
		w.freeze(acme)
		_, err := w.Store.RejectedAsk(w.ctx, acme, tool, op.ArgsDigest, op.Agent.ID)
		require.NoError(w, err, "the tenant's own")

		for _, tenant := range []string{other, "", "ACME", "acme ", "acme\x00", "acm_", "%"} {
			absent := func(what string, err error) {
				w.Helper()
				require.ErrorIs(w, err, ledger.ErrNotFound, "%s as %q", what, tenant)
			}
			_, err = w.Store.Preview(w.ctx, tenant, op.PreviewID)
			absent("Preview", err)
			n, err := w.Store.CountPreviews(w.ctx, tenant, op.Agent.ID, w.Clock.Now())
			require.NoError(w, err)
			require.Zero(w, n)
			h, err := w.Store.Head(w.ctx, tenant, tool, "k")
			require.NoError(w, err)
			require.False(w, h.Exists())
			_, err = w.Store.Generation(w.ctx, tenant, tool, ledger.KeyDigest("k"), 1)
			absent("Generation", err)
			_, err = w.Store.RejectedAsk(w.ctx, tenant, tool, op.ArgsDigest, op.Agent.ID)
			absent("RejectedAsk", err)
			g, err := w.Store.Guard(w.ctx, tenant)
			require.NoError(w, err)
			require.Zero(w, g.Epoch)
			_, err = w.Store.Operation(w.ctx, tenant, op.ID)
			absent("Operation", err)
			_, err = w.Store.Plan(w.ctx, tenant, op.ID, 1)
			absent("Plan", err)
			_, err = w.Store.Decisions(w.ctx, tenant, op.ID)
			absent("Decisions", err)
			_, err = w.Store.Evidence(w.ctx, tenant, op.ID)
			absent("Evidence", err)
			_, err = w.Store.Events(w.ctx, tenant, op.ID)
			absent("Events", err)
			evs, err := w.Store.EventsAfter(w.ctx, tenant, 0, 100)
			require.NoError(w, err)
			require.Empty(w, evs)
			h, err = w.Store.Goal(w.ctx, tenant, tools.Goal{Group: "g", Value: "v"})
			require.NoError(w, err)
			require.False(w, h.Exists())
			run, err := w.Store.RunHead(w.ctx, tenant, op.Agent.ID, "run-1")
			require.NoError(w, err)
			require.Zero(w, run.Operations)
			rows, err := w.Store.GuardHistory(w.ctx, tenant, 0, 100)
			require.NoError(w, err)
			require.Empty(w, rows)
			tally, err := w.Store.Tally(w.ctx, tenant)
			require.NoError(w, err)
			w.same(ledger.Tally{}, tally)
			if tenant == "" {
				continue
			}
			runs, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: tenant})
			require.NoError(w, err)
			require.Empty(w, runs.Runs)
			p, err := w.Store.List(w.ctx, ledger.Filter{Tenant: tenant})
			require.NoError(w, err)
			require.Empty(w, p.Operations)
		}
	}},
	{"every filter of a list", func(w *world) {
		w.populate()
		yes := true
		for _, f := range []ledger.Filter{
			{},
			{States: []ledger.State{ledger.Pending}},
			{States: []ledger.State{ledger.Pending, ledger.Failed}},
			{Tool: "tool_1"},
			{Key: "key-1"},
			{Key: "key-1", Tool: "tool_1"},
			{Agent: "agent-1"},
			{Run: "run-1"},
			{Agent: "agent-1", Place: &ledger.Run{ID: "run-1", Step: "17", Call: "18"}},
			{Args: "args-1"},
			{OnList: &yes},
			{Parent: "op_parent-1"},
			{Undo: &yes},
			{Goal: &tools.Goal{Group: "g", Value: "v1"}},
		} {
			f.Tenant = acme
			ops := w.listAll(f)
			require.NotEmpty(w, ops)
			for _, op := range ops {
				require.Equal(w, acme, op.Tenant)
			}
			f.Tenant = "third"
			require.Empty(w, w.listAll(f))
		}
	}},
	{"a cursor of another tenant shows only one's own", func(w *world) {
		w.populate()
		p, err := w.Store.List(w.ctx, ledger.Filter{Tenant: other, Limit: 5})
		require.NoError(w, err)
		p, err = w.Store.List(w.ctx, ledger.Filter{Tenant: acme, Limit: 200, Cursor: p.Next})
		if err != nil {
			require.ErrorIs(w, err, ledger.ErrBadCursor)
			return
		}
		for _, op := range p.Operations {
			require.Equal(w, acme, op.Tenant)
		}
	}},
	{"names are not glued together", func(w *world) {
		// ("ab", "c") and ("a", "bc") are two keys.
		w.open("ab", "c", ledger.Running)
		w.open("a", "bc", ledger.Running)
		w.open("a", "b", ledger.Running)
		w.open("abc", "", ledger.Running)
	}},
}
