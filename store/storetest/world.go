package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// world is one case: a store and the means to write rows into it as the ledger
// would.
type world struct {
	testing.TB
	Subject
	ctx context.Context //nolint:containedctx // a case's own
	ids *atomic.Int64
}

func newWorld(t *testing.T, s Subject) *world {
	w := &world{TB: t, Subject: s, ctx: t.Context(), ids: new(atomic.Int64)}
	t.Cleanup(func() { require.NoError(t, w.Store.Close()) })
	return w
}

// id makes a fresh id.
func (w *world) id(prefix string) string { return fmt.Sprintf("%s%06d", prefix, w.ids.Add(1)) }

// acme and other are the tenants of most cases.
const (
	acme  = "acme"
	other = "other"
	tool  = "refund"
)

// preview builds a preview that lives for five minutes, without storing it.
func (w *world) preview(tenant, key string, generation int) ledger.Preview {
	now := w.Clock.Now()
	return ledger.Preview{
		ID: w.id("prv_"), Tenant: tenant, Agent: "agent-1", Tool: tool, ToolVersion: "v1",
		Key: key, Generation: generation, ArgsDigest: "digest-of-" + key, PlanDigest: "plan-of-" + key,
		Plan: plan(key), CreatedAt: now, ExpiresAt: now.Add(5 * time.Minute),
	}
}

// plan builds a small plan.
func plan(key string) tools.Plan {
	return tools.Plan{
		Encoding: 1, Tool: tool, ToolVersion: "v1", Target: "POST http://127.0.0.1/refunds",
		Key: tools.Key{Value: key, Generation: 1}, Headline: "Refund for " + key,
		Args:    map[string]any{"order": key},
		Effects: []tools.Effect{{Verb: "create", Target: "refund", After: map[string]any{"order": key}, Count: 1}},
		Wire:    json.RawMessage(`{"order":"` + key + `"}`),
	}
}

// opening builds the birth of one operation in a state, on a stored preview.
// Its head must be set when it is not the first generation.
func (w *world) opening(p ledger.Preview, state ledger.State) ledger.Opening {
	now := w.Clock.Now()
	op := ledger.Operation{
		ID: w.id("op_"), Tenant: p.Tenant, Tool: p.Tool, ToolVersion: p.ToolVersion, Key: p.Key, KeyDigest: ledger.KeyDigest(p.Key), Generation: p.Generation,
		UpstreamKey: "wire-" + p.Key, State: state, Version: 1, Agent: tools.Agent{ID: p.Agent, Tenant: p.Tenant},
		Run: p.Run, PreviewID: p.ID, TokenID: w.id("tok_"), ArgsDigest: p.ArgsDigest, PlanDigest: p.PlanDigest,
		Target: p.Plan.Target, Headline: p.Plan.Headline, Round: 1, EvidenceBoundary: "live",
		CreatedAt: now, UpdatedAt: now, WriteID: w.id("w_"),
	}
	switch state {
	case ledger.Running:
		op.Fence, op.LeaseUntil = 1, now.Add(time.Minute)
		op.Attempts = []ledger.Attempt{{N: 1, Fence: 1, MarkedAt: now, Deadline: now.Add(time.Second)}}
	case ledger.AwaitingApproval:
		op.ExpiresAt = now.Add(time.Hour)
	}
	ev := event(op, ledger.VerbOpen, "")
	op.Chain = ev.Hash
	return ledger.Opening{WriteID: op.WriteID, New: []ledger.NewOperation{{
		Operation: op, Plan: p.Plan, Event: ev, Preview: p.ID,
		Manifest: ledger.Manifest{Version: p.ToolVersion, Text: []byte("name: " + p.Tool), Upstream: "shop", UpstreamURL: "http://127.0.0.1"},
	}}}
}

// event builds the event of the move that made op what it is.
func event(op ledger.Operation, verb ledger.Verb, from ledger.State) ledger.Event {
	return ledger.Event{
		Operation: op.ID, Tenant: op.Tenant, Tool: op.Tool, At: op.UpdatedAt, Verb: verb, From: from, To: op.State,
		Actor: ledger.Gateway("test"), Version: op.Version, Fence: op.Fence, Round: op.Round, Attempt: len(op.Attempts),
		WriteID: op.WriteID, Prev: op.Chain, Hash: fmt.Sprintf("hash-of-%s-%d", op.ID, op.Version),
	}
}

// move builds the transition of op by a verb; change makes the new row.
func (w *world) move(op ledger.Operation, verb ledger.Verb, change func(*ledger.Operation)) ledger.Transition {
	next := op
	next.Version, next.WriteID, next.UpdatedAt = op.Version+1, w.id("w_"), w.Clock.Now()
	change(&next)
	ev := event(next, verb, op.State)
	next.Chain = ev.Hash
	return ledger.Transition{WriteID: next.WriteID, Operation: next, Expect: op.Version, Event: ev}
}

func to(s ledger.State) func(*ledger.Operation) {
	return func(op *ledger.Operation) { op.State = s }
}

// put stores a preview.
func (w *world) put(p ledger.Preview) ledger.Preview {
	w.Helper()
	require.NoError(w, w.Store.PutPreview(w.ctx, p))
	return p
}

// open stores a preview and opens the first generation under a key.
func (w *world) open(tenant, key string, state ledger.State) ledger.Operation {
	w.Helper()
	return w.openAs(w.put(w.preview(tenant, key, 1)), state, ledger.Head{})
}

func (w *world) openAs(p ledger.Preview, state ledger.State, head ledger.Head) ledger.Operation {
	w.Helper()
	o := w.opening(p, state)
	o.New[0].Head = head
	g, err := w.Store.Guard(w.ctx, p.Tenant)
	require.NoError(w, err)
	o.Epoch = g.Epoch
	require.NoError(w, w.Store.Open(w.ctx, o))
	return o.New[0].Operation
}

// apply moves op and gives the new row.
func (w *world) apply(op ledger.Operation, verb ledger.Verb, change func(*ledger.Operation)) ledger.Operation {
	w.Helper()
	t := w.move(op, verb, change)
	require.NoError(w, w.Store.Apply(w.ctx, t))
	return t.Operation
}

// freeze changes the tenant's guard row and gives the new one.
func (w *world) freeze(tenant string) ledger.Guard {
	w.Helper()
	g, err := w.Store.Guard(w.ctx, tenant)
	require.NoError(w, err)
	c := w.change(g)
	_, err = w.Store.ChangeGuard(w.ctx, c)
	require.NoError(w, err)
	return c.Guard
}

// change builds the next guard row after g.
func (w *world) change(g ledger.Guard) ledger.GuardChange {
	next := g
	next.Epoch++
	next.Freezes = append(append([]ledger.Freeze(nil), g.Freezes...), ledger.Freeze{
		Tool: w.id("tool_"), Level: ledger.FreezeAll, By: ledger.Gateway("test"), Reason: "test", At: w.Clock.Now(),
	})
	return ledger.GuardChange{WriteID: w.id("w_"), Expect: g.Epoch, Guard: next}
}

func (w *world) read(tenant, id string) ledger.Operation {
	w.Helper()
	op, err := w.Store.Operation(w.ctx, tenant, id)
	require.NoError(w, err)
	return op
}

// refused requires that a write was refused for a reason.
func (w *world) refused(why ledger.Why, err error) {
	w.Helper()
	var r *ledger.Refused
	require.ErrorAs(w, err, &r)
	require.Equal(w, why, r.Why)
}

// lost requires that a write lost, and gives what stands there now.
func (w *world) lost(err error) ledger.Operation {
	w.Helper()
	var l *ledger.Lost
	require.ErrorAs(w, err, &l)
	return l.Current
}

func (w *world) ambiguous(err error) {
	w.Helper()
	var a *ledger.Ambiguous
	require.ErrorAs(w, err, &a)
}

// untouched requires that do leaves no trace in the store.
func (w *world) untouched(do func()) {
	w.Helper()
	before := w.dump()
	do()
	require.Empty(w, cmp.Diff(before, w.dump()), "a write that was not applied left a trace")
}

// same compares values as documents are compared: an empty list is an absent
// one.
func (w *world) same(want, got any, words ...any) {
	w.Helper()
	require.Empty(w, cmp.Diff(want, got, cmpopts.EquateEmpty()), words...)
}

// dump tells everything that the store holds of both tenants.
func (w *world) dump() string {
	w.Helper()
	var b strings.Builder
	for _, tenant := range []string{acme, other} {
		b.WriteString(w.dumpTenant(tenant))
	}
	tenants, err := w.Store.Tenants(w.ctx)
	require.NoError(w, err)
	events, err := w.Store.AllEventsAfter(w.ctx, 0, 1<<20)
	require.NoError(w, err)
	seals, err := w.Store.Checkpoints(w.ctx, 0, 1<<20)
	require.NoError(w, err)
	j, err := json.Marshal([]any{tenants, events, seals})
	require.NoError(w, err)
	return b.String() + string(j)
}

func (w *world) dumpTenant(tenant string) string {
	w.Helper()
	var b strings.Builder
	line := func(what string, v any, err error) {
		w.Helper()
		if !errors.Is(err, ledger.ErrNotFound) {
			require.NoError(w, err)
		}
		j, err := json.Marshal(v)
		require.NoError(w, err)
		fmt.Fprintf(&b, "%s %s %s\n", tenant, what, j)
	}
	g, err := w.Store.Guard(w.ctx, tenant)
	line("guard", g, err)
	rows, err := w.Store.GuardHistory(w.ctx, tenant, 0, 1<<20)
	line("history", rows, err)
	runs, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: tenant, Limit: 200})
	line("runs", runs.Runs, err)
	tally, err := w.Store.Tally(w.ctx, tenant)
	line("tally", tally, err)
	for _, op := range w.listAll(ledger.Filter{Tenant: tenant, OldestFirst: true}) {
		line("operation", op, nil)
		for round := 1; round <= op.Round+1; round++ {
			p, err := w.Store.Plan(w.ctx, tenant, op.ID, round)
			line("plan", p, err)
		}
		d, err := w.Store.Decisions(w.ctx, tenant, op.ID)
		line("decisions", d, err)
		e, err := w.Store.Evidence(w.ctx, tenant, op.ID)
		line("evidence", e, err)
		ev, err := w.Store.Events(w.ctx, tenant, op.ID)
		line("events", ev, err)
		m, err := w.Store.Manifest(w.ctx, op.ToolVersion)
		line("manifest", m, err)
		h, err := w.Store.Head(w.ctx, tenant, op.Tool, op.Key)
		line("head", h.Operation.ID, err)
		if op.Goal != nil {
			h, err := w.Store.Goal(w.ctx, tenant, *op.Goal)
			line("goal", h.Operation.ID, err)
		}
		if op.Run != nil {
			h, err := w.Store.RunHead(w.ctx, tenant, op.Agent.ID, op.Run.ID)
			line("run", h, err)
		}
	}
	all, err := w.Store.EventsAfter(w.ctx, tenant, 0, 1<<20)
	line("events", all, err)
	return b.String()
}

// listAll pages through a list.
func (w *world) listAll(f ledger.Filter) []ledger.Operation {
	w.Helper()
	var ops []ledger.Operation
	for {
		p, err := w.Store.List(w.ctx, f)
		require.NoError(w, err)
		ops = append(ops, p.Operations...)
		if p.Next == "" {
			return ops
		}
		require.NotEmpty(w, p.Operations, "an empty page that has a next one")
		f.Cursor = p.Next
	}
}

func ids(ops []ledger.Operation) []string {
	list := []string{}
	for _, op := range ops {
		list = append(list, op.ID)
	}
	return list
}

// together runs n functions that start together and gives their errors.
func together(n int, do func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}
