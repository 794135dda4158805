package sqlstore_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
	"countersign/tools"
)

// older makes a database of the schema version before undos, doubts and runs.
func older(t *testing.T, path string) *sql.DB {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range []string{"00001_ledger.sql", "00002_identity.sql"} {
		text, err := os.ReadFile(filepath.Join("migrations", name))
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: text}
	}
	pool := raw(t, path)
	p, err := goose.NewProvider(goose.DialectSQLite3, pool, files, goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	_, err = p.Up(t.Context())
	require.NoError(t, err)
	return pool
}

// old writes rows as the program wrote them that knew schema version 2.
type old struct {
	t    *testing.T
	pool *sql.DB
	n    int64
}

func (o *old) exec(text string, args ...any) {
	o.t.Helper()
	_, err := o.pool.Exec(text, args...)
	require.NoError(o.t, err)
}

func (o *old) doc(v any) string {
	o.t.Helper()
	b, err := json.Marshal(v)
	require.NoError(o.t, err)
	return string(b)
}

func (o *old) operation(key string, state ledger.State, run string, change func(*ledger.Operation)) ledger.Operation {
	o.t.Helper()
	_, born := born(key)
	op := born.New[0].Operation
	op.State, op.Run = state, nil
	if run != "" {
		op.Run = &ledger.Run{ID: run}
	}
	op.CreatedAt = op.CreatedAt.Add(time.Duration(o.n) * time.Minute)
	change(&op)
	onList := 0
	if op.OnList {
		onList = 1
	}
	o.n++
	o.exec(`INSERT INTO operations (n, id, tenant, slot, tool, key, generation, agent, run, args, version, state, on_list, doc)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		o.n, op.ID, op.Tenant, sqlstore.SlotRef(op.Tenant, op.KeyDigest), op.Tool, key, op.Generation, op.Agent.ID,
		sql.NullString{String: run, Valid: run != ""}, []byte(key), op.Version, string(state), onList, o.doc(op))
	o.exec(`INSERT INTO events (operation, version, tenant, write_ref, write_id, doc) VALUES (?, ?, ?, ?, ?, ?)`,
		o.n, op.Version, op.Tenant, o.n, op.WriteID, o.doc(born.New[0].Event))
	return op
}

func (o *old) evidence(row int64, verdict tools.Verdict, effect string) {
	o.t.Helper()
	id := newID("evd_")
	o.exec(`INSERT INTO evidence (operation, id, doc) VALUES (?, ?, ?)`, row, id,
		o.doc(ledger.Evidence{ID: id, Kind: "response", Verdict: verdict, EffectID: effect, At: time.Now().UTC()}))
}

// TestUpgrade_FromBeforeDoubts: a ledger of the version before opens; what is
// unknown becomes due, and everything that is counted now counts what was there.
func TestUpgrade_FromBeforeDoubts(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	o := &old{t: t, pool: older(t, path)}
	clock := storetest.NewClock()
	since := clock.Now().Add(-time.Hour)
	nothing := func(*ledger.Operation) {}

	done := o.operation("done", ledger.Succeeded, "run-1", nothing)
	o.evidence(1, tools.Succeeded, "re_1")
	o.evidence(1, tools.Succeeded, "re_1")
	twice := o.operation("twice", ledger.Succeeded, "run-1", nothing)
	o.evidence(2, tools.Unknown, "re_0")
	o.evidence(2, tools.Succeeded, "re_1")
	o.evidence(2, tools.Succeeded, "re_2")
	o.evidence(2, tools.Succeeded, "re_3")
	unknown := o.operation("unknown", ledger.Unknown, "", func(op *ledger.Operation) { op.UnknownSince = since })
	o.evidence(3, tools.Unknown, "")
	o.operation("on the list", ledger.Unknown, "run-2", func(op *ledger.Operation) { op.OnList, op.UnknownSince = true, since.Add(time.Minute) })
	running := o.operation("running", ledger.Running, "run-1", nothing)
	o.exec(`INSERT INTO guards (tenant, epoch, write_id, doc) VALUES ('acme', 1, 'w_old', ?)`,
		o.doc(map[string]any{"tenant": "acme", "epoch": 1, "generation": 0, "freezes": []any{map[string]any{"level": "all", "reason": "old", "by": map[string]any{}, "at": since}}}))
	require.NoError(t, o.pool.Close())

	db := open(t, path, clock)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.Empty(t, sqlstore.ForeignKeyViolations(t, db))
	due, err := db.Due(ctx, ledger.DueQuery{Kind: ledger.DueDoubt, Now: clock.Now(), Limit: 9, Owner: "o", Until: clock.Now().Add(time.Minute)})
	require.NoError(t, err)
	require.Len(t, due, 1, "what waits for people already is not taken from them")
	require.Equal(t, unknown.ID, due[0].ID)

	tally, err := db.Tally(ctx, "acme")
	require.NoError(t, err)
	require.Equal(t, ledger.Tally{
		States: map[ledger.State]int64{ledger.Succeeded: 2, ledger.Unknown: 2, ledger.Running: 1}, OnList: 1,
		Effects: 2, Duplicates: 1, Doubts: 2, OldestUnknown: since.Truncate(time.Second),
	}, tally)
	require.NoError(t, db.AddEvidence(ctx, "acme", ledger.Evidence{ID: "evd_new", Operation: done.ID, Verdict: tools.Succeeded, EffectID: "re_9"}))
	tally, err = db.Tally(ctx, "acme")
	require.NoError(t, err)
	require.Equal(t, [2]int64{2, 2}, [2]int64{tally.Effects, tally.Duplicates}, "an old proof and a new one are told apart")

	runs, err := db.Runs(ctx, ledger.RunFilter{Tenant: "acme"})
	require.NoError(t, err)
	require.Len(t, runs.Runs, 2)
	require.Equal(t, ledger.RunHead{Tenant: "acme", Agent: "agent-1", ID: "run-1", Operations: 3, Newest: running.CreatedAt}, runs.Runs[0])
	next := ready(t, db, "next")
	next.Epoch, next.New[0].OpenRun = 1, true
	require.NoError(t, db.Open(ctx, next))
	head, err := db.RunHead(ctx, "acme", "agent-1", "run-1")
	require.NoError(t, err)
	require.Equal(t, 4, head.Operations, "and grows on")

	g, err := db.Guard(ctx, "acme")
	require.NoError(t, err)
	require.Len(t, g.Freezes, 1)
	require.Equal(t, "old", g.Freezes[0].Reason)
	for _, want := range []ledger.Operation{done, twice, unknown, running} {
		got, err := db.Operation(ctx, "acme", want.ID)
		require.NoError(t, err)
		require.Equal(t, want.State, got.State)
		require.Equal(t, want.Version, got.Version)
	}

	// The account of the doubt goes on where the old program kept none.
	l, err := ledger.Open(ctx, ledger.Config{Store: db, Now: clock.Now})
	require.NoError(t, err)
	resolved, err := l.Resolve(ctx, "acme", unknown.ID, ledger.Gateway("test"), ledger.Statement{Reason: "looked"})
	require.NoError(t, err)
	require.Equal(t, ledger.DoubtElsewhere, resolved.Doubt)
	tally, err = db.Tally(ctx, "acme")
	require.NoError(t, err)
	require.EqualValues(t, 2, tally.Doubts)
	require.True(t, tally.OldestUnknown.Equal(since.Add(time.Minute).Truncate(time.Second)), "%s", tally.OldestUnknown)
	require.NoError(t, l.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: "acme"}, By: ledger.Gateway("test"), Reason: "x", Override: true}))
	rows, err := db.GuardHistory(ctx, "acme", 1, 9)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.True(t, rows[0].Intact(""), "the chain begins at the first row that has a hash")
	pool := raw(t, path)
	_, err = pool.Exec("UPDATE evidence SET doc = '{}'")
	require.ErrorContains(t, err, "append-only", "the triggers are back")
	require.NoError(t, pool.Close())
}
