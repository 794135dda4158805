package ledger_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

// rig is a ledger on a real store whose clock moves when told to and whose
// answers get lost when told to.
type rig struct {
	*ledger.Ledger
	t     *testing.T
	ctx   context.Context //nolint:containedctx // a test's own
	store *forgetful

	mu   sync.Mutex
	at   time.Time
	sign func([]byte) (string, error)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: t.Context(), at: time.Date(2026, 11, 5, 9, 30, 0, 123456789, time.UTC)}
	db, err := sqlstore.Open(r.ctx, sqlstore.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Now: r.now})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r.store = &forgetful{Store: db}
	r.Ledger, err = ledger.Open(r.ctx, ledger.Config{Store: r.store, Now: r.now, Sign: func(b []byte) (string, error) {
		if r.sign == nil {
			return "", nil
		}
		return r.sign(b)
	}})
	require.NoError(t, err)
	return r
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

func (r *rig) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = r.at.Add(d)
}

const tenant = "default"

var person = ledger.Actor{Kind: "operator", ID: "per_1", Name: "Ann"}

// ask is an open request on a stored preview: key, and what else is changed.
func (r *rig) ask(key string, change func(*ledger.OpenRequest)) ledger.OpenRequest {
	r.t.Helper()
	q := request(r.t, r.Ledger, r.store, key)
	q.Preview.ID, q.Epoch = ledger.NewID("prv_"), r.epoch()
	if change != nil {
		change(&q)
	}
	head, err := r.Head(r.ctx, q.Preview.Tenant, q.Preview.Tool, q.Preview.Key)
	require.NoError(r.t, err)
	q.Head = head
	if q.Preview.Generation == 1 && head.Exists() {
		q.Preview.Generation = head.Operation.Generation + 1
		if head.Newest != nil {
			q.Preview.Generation = head.Newest.Generation + 1
		}
	}
	if goal := q.Preview.Plan.Goal; goal != nil {
		q.GoalHead, err = r.Goal(r.ctx, q.Preview.Tenant, *goal)
		require.NoError(r.t, err)
	}
	require.NoError(r.t, r.store.PutPreview(r.ctx, q.Preview))
	return q
}

// asks makes the request one that people are asked about.
func asks(q *ledger.OpenRequest) {
	q.Requirement = ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{"any": 1}, Expiry: time.Hour}
}

func (r *rig) epoch() int64 {
	r.t.Helper()
	g, err := r.Guard(r.ctx, tenant)
	require.NoError(r.t, err)
	return g.Epoch
}

func (r *rig) born(q ledger.OpenRequest) ledger.Operation {
	r.t.Helper()
	op, opened, err := r.OpenOperation(r.ctx, q)
	require.NoError(r.t, err)
	require.True(r.t, opened)
	return op
}

func (r *rig) concluded(op ledger.Operation, o tools.Outcome) ledger.Operation {
	r.t.Helper()
	op, err := r.Conclude(r.ctx, op, o)
	require.NoError(r.t, err)
	return op
}

// done opens an operation that succeeded.
func (r *rig) done(key string) ledger.Operation {
	r.t.Helper()
	return r.concluded(r.born(r.ask(key, nil)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e_" + key})
}

// undo asks for the undo of an operation.
func (r *rig) undo(parent ledger.Operation, change func(*ledger.OpenRequest)) ledger.OpenRequest {
	r.t.Helper()
	return r.ask(ledger.UndoKey(parent.ID), func(q *ledger.OpenRequest) {
		q.Preview.Tool, q.Preview.Parent, q.Preview.ParentVersion, q.Preview.Run = "release_order", parent.ID, parent.Version, parent.Run
		q.Parent = &parent
		if change != nil {
			change(q)
		}
	})
}

func (r *rig) read(op ledger.Operation) ledger.Operation {
	r.t.Helper()
	op, err := r.Operation(r.ctx, op.Tenant, op.ID)
	require.NoError(r.t, err)
	return op
}

// last is the newest event of an operation, whose whole chain is intact.
func (r *rig) last(op ledger.Operation) ledger.Event {
	r.t.Helper()
	events, err := r.Events(r.ctx, op.Tenant, op.ID)
	require.NoError(r.t, err)
	prev := ""
	for i, e := range events {
		require.True(r.t, e.Intact(prev), "%s, event %d", op.ID, i)
		require.EqualValues(r.t, i+1, e.Version)
		prev = e.Hash
	}
	last := events[len(events)-1]
	now := r.read(op)
	require.Equal(r.t, now.Chain, last.Hash)
	require.Equal(r.t, now.State, last.To)
	require.Equal(r.t, now.Version, last.Version)
	return last
}

// together requires that both moved in one write, and how the parent moved.
func (r *rig) together(child, parent ledger.Operation, verb ledger.Verb, state ledger.State) {
	r.t.Helper()
	c, p := r.last(child), r.last(parent)
	require.Equal(r.t, c.WriteID, p.WriteID, "one write")
	require.Equal(r.t, verb, p.Verb)
	require.Equal(r.t, state, p.To)
}

// proof is evidence of an effect of one attempt.
func (r *rig) proof(op ledger.Operation, attempt int, effect string) ledger.Evidence {
	return ledger.Evidence{
		ID: ledger.NewID("evd_"), Operation: op.ID, Attempt: attempt, Kind: "lookup", Verdict: tools.Succeeded,
		EffectID: effect, By: ledger.Gateway("test"), At: r.Now(),
	}
}

func (r *rig) proven(op ledger.Operation, attempt int, effect string) ledger.Operation {
	r.t.Helper()
	next, err := r.AddEvidence(r.ctx, op.Tenant, r.proof(op, attempt, effect))
	require.NoError(r.t, err)
	return next
}

// stopped reports that a tool is frozen at all.
func (r *rig) stopped(tool string) bool {
	r.t.Helper()
	g, err := r.Guard(r.ctx, tenant)
	require.NoError(r.t, err)
	f, ok := g.Frozen(tool)
	return ok && f.Level == ledger.FreezeAll
}

// intact requires that the tenant's guard rows form a chain, and gives them.
func (r *rig) intact(tenant string) []ledger.Guard {
	r.t.Helper()
	rows, err := r.GuardHistory(r.ctx, tenant, 0, 1000)
	require.NoError(r.t, err)
	prev := ""
	for i, g := range rows {
		require.EqualValues(r.t, i+1, g.Epoch)
		require.Equal(r.t, tenant, g.Tenant)
		require.True(r.t, g.Intact(prev), "row %d", i)
		require.NotEmpty(r.t, g.Change.What)
		prev = g.Hash
	}
	return rows
}

// lostAnswers are the ways in which a store's answer gets lost and the write is
// found; lostForGood is one in which it is not.
var (
	lostAnswers = map[string][]bool{"applied": {true}, "never arrived": {false}, "never arrived, then lost": {false, true}}
	lostForGood = []bool{true, false, false, false} // of a change of the guard row, which no operation's event tells of
)
