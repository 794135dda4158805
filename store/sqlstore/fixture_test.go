package sqlstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

var lastID atomic.Int64

// newID makes an id that no other call of this process makes.
func newID(prefix string) string { return fmt.Sprintf("%s%08d", prefix, lastID.Add(1)) }

// born gives a preview and the opening of its operation, running.
func born(key string) (ledger.Preview, ledger.Opening) {
	now := time.Date(2026, 11, 5, 9, 30, 0, 123456789, time.UTC)
	p := ledger.Preview{
		ID: newID("prv_"), Tenant: "acme", Agent: "agent-1", Tool: "refund", ToolVersion: "v1", Key: key, Generation: 1,
		ArgsDigest: ledger.KeyDigest("args of " + key), PlanDigest: "plan", CreatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
		Plan: tools.Plan{
			Encoding: 1, Tool: "refund", ToolVersion: "v1", Headline: "Refund 12.50 EUR for order " + key,
			Args: map[string]any{"order": key, "amount": 1250}, Wire: []byte(`{"order":"` + key + `","amount":1250}`),
			Effects: []tools.Effect{{Verb: "create", Target: "refund", After: map[string]any{"amount": 1250}, Count: 1}},
		},
	}
	op := ledger.Operation{
		ID: newID("op_"), Tenant: p.Tenant, Tool: p.Tool, ToolVersion: p.ToolVersion, Key: key, KeyDigest: ledger.KeyDigest(key),
		Generation: 1, UpstreamKey: "wire-" + key, State: ledger.Running, Version: 1, Fence: 1, Agent: tools.Agent{ID: p.Agent, Tenant: p.Tenant},
		Run: &ledger.Run{ID: "run-1"}, PreviewID: p.ID, ArgsDigest: p.ArgsDigest, PlanDigest: p.PlanDigest, Headline: p.Plan.Headline,
		Round: 1, Attempts: []ledger.Attempt{{N: 1, Fence: 1, MarkedAt: now, Deadline: now}}, LeaseUntil: now.Add(time.Minute),
		EvidenceBoundary: "live", CreatedAt: now, UpdatedAt: now, WriteID: newID("w_"),
	}
	return p, ledger.Opening{WriteID: op.WriteID, New: []ledger.NewOperation{{
		Operation: op, Plan: p.Plan, Preview: p.ID, Manifest: ledger.Manifest{Version: "v1", Text: []byte("name: refund")},
		Event: ledger.Event{Operation: op.ID, Tenant: op.Tenant, Tool: op.Tool, At: now, Verb: ledger.VerbOpen, To: op.State, Version: 1, WriteID: op.WriteID},
	}}}
}

// ready stores the preview and gives the opening.
func ready(t testing.TB, db *sqlstore.DB, key string) ledger.Opening {
	t.Helper()
	p, o := born(key)
	require.NoError(t, db.PutPreview(t.Context(), p))
	return o
}

// finish gives the transition that ends a running operation.
func finish(op ledger.Operation) ledger.Transition {
	next := op
	next.Version, next.State, next.WriteID, next.EffectID = op.Version+1, ledger.Succeeded, newID("w_"), "re_1"
	return ledger.Transition{
		WriteID: next.WriteID, Operation: next, Expect: op.Version,
		Evidence: &ledger.Evidence{ID: newID("evd_"), Operation: op.ID, Attempt: 1, Kind: "response", Verdict: tools.Succeeded, EffectID: "re_1", At: op.UpdatedAt},
		Event:    ledger.Event{Operation: op.ID, Tenant: op.Tenant, Tool: op.Tool, At: op.UpdatedAt, Verb: ledger.VerbFinish, From: op.State, To: next.State, Version: next.Version, WriteID: next.WriteID},
	}
}

// fill uses every method of the ledger's store once.
func fill(t testing.TB, db *sqlstore.DB) {
	t.Helper()
	ctx := t.Context()
	_, err := db.LedgerID(ctx, "led_1")
	require.NoError(t, err)
	o := ready(t, db, "k")
	require.NoError(t, db.Open(ctx, o))
	op := o.New[0].Operation
	tr := finish(op)
	tr.Decision = &ledger.Decision{Operation: op.ID, Round: 1, Person: "ann", Verb: ledger.VerbApprove, At: op.UpdatedAt}
	tr.Operation.Round, tr.Plan, tr.Epoch = 2, &o.New[0].Plan, new(int64)
	tr.Guard = &ledger.Guard{Tenant: "acme", Epoch: 1}
	require.NoError(t, db.Apply(ctx, tr))
	require.NoError(t, db.Apply(ctx, tr), "the same write id again")
	late := finish(op)
	require.Error(t, db.Apply(ctx, late))
	require.NoError(t, db.AddEvidence(ctx, "acme", *tr.Evidence))
	change := ledger.GuardChange{WriteID: newID("w_"), Expect: 1, Guard: ledger.Guard{Tenant: "acme", Epoch: 2}}
	for range 2 {
		_, err = db.ChangeGuard(ctx, change)
		require.NoError(t, err)
	}
	for _, kind := range []ledger.DueKind{ledger.DueDispatch, ledger.DueLease, ledger.DueExpiry, ledger.DueDoubt} {
		second := ready(t, db, string(kind))
		second.Epoch = 2
		row := &second.New[0].Operation
		row.NotBefore, row.LeaseUntil, row.ExpiresAt, row.AskAt = row.CreatedAt, row.CreatedAt, row.CreatedAt, row.CreatedAt
		row.State = map[ledger.DueKind]ledger.State{ledger.DueDispatch: ledger.Pending, ledger.DueLease: ledger.Running, ledger.DueExpiry: ledger.AwaitingApproval, ledger.DueDoubt: ledger.Unknown}[kind]
		require.NoError(t, db.Open(ctx, second))
		found, err := db.Due(ctx, ledger.DueQuery{Kind: kind, Now: row.CreatedAt, Limit: 1, Owner: "o", Until: row.CreatedAt.Add(time.Minute)})
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, db.Defer(ctx, kind, found[0], row.CreatedAt))
	}
	undo := ready(t, db, "undo")
	undo.Epoch, undo.New[0].Operation.Parent = 2, op.ID
	undo.New[0].Operation.Goal, undo.New[0].OpenRun = &tools.Goal{Group: "g", Value: "v"}, true
	head, err := db.RunHead(ctx, "acme", "agent-1", "run-1")
	require.NoError(t, err)
	head.ClosedAt, undo.CloseRun = op.CreatedAt, &head
	beside := finish(tr.Operation)
	undo.Moves = []ledger.Move{{Operation: beside.Operation, Expect: beside.Expect, Event: beside.Event}}
	require.NoError(t, db.Open(ctx, undo))
	require.Error(t, db.Open(ctx, ledger.Opening{WriteID: newID("w_"), Epoch: 2, New: undo.New, Moves: undo.Moves}))
	ends := finish(undo.New[0].Operation)
	beside = finish(beside.Operation)
	ends.Also = []ledger.Move{{Operation: beside.Operation, Expect: beside.Expect, Event: beside.Event}}
	require.NoError(t, db.Apply(ctx, ends))
	_, err = db.Goal(ctx, "acme", tools.Goal{Group: "g", Value: "v"})
	require.NoError(t, err)
	for _, agent := range []string{"", "agent-1"} {
		_, err = db.Runs(ctx, ledger.RunFilter{Tenant: "acme", Agent: agent})
		require.NoError(t, err)
	}
	for range 2 {
		require.NoError(t, db.Seal(ctx, ledger.Checkpoint{N: 1, Hash: "h"}))
	}
	_, err = db.Checkpoints(ctx, 0, 10)
	require.NoError(t, err)
	_, err = db.GuardHistory(ctx, "acme", 0, 10)
	require.NoError(t, err)
	_, err = db.Tenants(ctx)
	require.NoError(t, err)
	_, err = db.Tally(ctx, "acme")
	require.NoError(t, err)
	_, err = db.AllEventsAfter(ctx, 0, 10)
	require.NoError(t, err)
	require.NoError(t, db.SweepPreviews(ctx, op.CreatedAt))
	_, err = db.Preview(ctx, "acme", op.PreviewID)
	require.NoError(t, err)
	_, err = db.CountPreviews(ctx, "acme", "agent-1", op.CreatedAt)
	require.NoError(t, err)
	_, err = db.Head(ctx, "acme", "refund", "k")
	require.NoError(t, err)
	_, err = db.Generation(ctx, "acme", "refund", op.KeyDigest, 1)
	require.NoError(t, err)
	_, err = db.RejectedAsk(ctx, "acme", "refund", op.ArgsDigest, "agent-1")
	require.ErrorIs(t, err, ledger.ErrNotFound)
	_, err = db.Guard(ctx, "acme")
	require.NoError(t, err)
	_, err = db.ByWrite(ctx, op.WriteID)
	require.NoError(t, err)
	_, err = db.Operation(ctx, "acme", op.ID)
	require.NoError(t, err)
	_, err = db.Plan(ctx, "acme", op.ID, 1)
	require.NoError(t, err)
	_, err = db.Decisions(ctx, "acme", op.ID)
	require.NoError(t, err)
	_, err = db.Evidence(ctx, "acme", op.ID)
	require.NoError(t, err)
	_, err = db.Events(ctx, "acme", op.ID)
	require.NoError(t, err)
	_, err = db.EventsAfter(ctx, "acme", 0, 10)
	require.NoError(t, err)
	_, err = db.List(ctx, ledger.Filter{Tenant: "acme"})
	require.NoError(t, err)
	_, err = db.Manifest(ctx, "v1")
	require.NoError(t, err)
	require.NoError(t, db.Ping(ctx))
}
