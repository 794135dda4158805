package audit_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"countersign/audit"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
)

const tenant = "default"

var ann = ledger.Actor{Kind: "operator", ID: "per_ann", Name: "Ann"}

// rig is a ledger on a real file, with keys and a sealer over it.
type rig struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // a test's own
	dir  string
	path string

	mu sync.Mutex
	at time.Time

	db      *sqlstore.DB
	ledger  *ledger.Ledger
	keys    *tokens.KeySet
	anchors []audit.Anchor
	sealer  *audit.Sealer
	log     *bytes.Buffer
	// between, when set, stands between the sealer and the store.
	between func(ledger.Store) ledger.Store
	// settings change the sealer's.
	settings func(*audit.SealerConfig)
}

func newRig(t *testing.T, anchors ...audit.Anchor) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{
		t: t, ctx: t.Context(), dir: dir, path: filepath.Join(dir, "ledger.db"), anchors: anchors,
		at: time.Date(2026, 11, 5, 9, 30, 0, 123456789, time.UTC), log: &bytes.Buffer{},
	}
	r.open()
	t.Cleanup(func() { require.NoError(t, r.db.Close()) })
	_, _, err := r.ledger.ChangeGuard(r.ctx, tenant, ledger.Change{What: "tools", By: ledger.Gateway("configuration")}, func(g *ledger.Guard) { g.Tools = map[string]string{"hold_order": "v1"} })
	require.NoError(t, err)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.db, err = sqlstore.Open(r.ctx, sqlstore.Options{Path: r.path, Now: r.now})
	require.NoError(r.t, err)
	r.keys, err = tokens.LoadOrCreate(filepath.Join(r.dir, "keys.json"), r.now(), tokens.KeyOptions{})
	require.NoError(r.t, err)
	r.ledger, err = ledger.Open(r.ctx, ledger.Config{Store: r.db, Now: r.now, Sign: func(b []byte) (string, error) { return r.keys.Sign(audit.OverrideType, b) }})
	require.NoError(r.t, err)
	store := ledger.Store(r.db)
	if r.between != nil {
		store = r.between(store)
	}
	c := audit.SealerConfig{
		Store: store, Ledger: r.ledger.ID(), Keys: r.keys, Anchors: r.anchors, Now: r.now, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if r.settings != nil {
		r.settings(&c)
	}
	r.sealer = audit.NewSealer(c)
}

// closed runs f while the ledger's file is nobody's, and opens it again.
func (r *rig) closed(f func()) {
	r.t.Helper()
	require.NoError(r.t, r.db.Close())
	f()
	r.open()
}

// tamper changes the file by hand, as somebody could who has it.
func (r *rig) tamper(statements ...string) {
	r.t.Helper()
	r.closed(func() { edit(r.t, r.path, statements...) })
}

func edit(t *testing.T, path string, statements ...string) {
	t.Helper()
	raw, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	raw.SetMaxOpenConns(1)
	rows, err := raw.Query(`SELECT name FROM sqlite_master WHERE type = 'trigger'`)
	require.NoError(t, err)
	var triggers []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		triggers = append(triggers, `DROP TRIGGER `+name)
	}
	require.NoError(t, rows.Err())
	for _, s := range append(triggers, statements...) {
		res, err := raw.Exec(s)
		require.NoError(t, err, s)
		if !strings.HasPrefix(s, "DROP") {
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.Positive(t, n, "it changes something: %s", s)
		}
	}
	require.NoError(t, raw.Close())
}

func (r *rig) now() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.at }

// pass lets time pass between two steps, so that each has a time of its own.
func (r *rig) pass(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.at = r.at.Add(d) }

// ask previews and opens an operation under a key.
func (r *rig) ask(key string, approval bool) ledger.Operation {
	r.t.Helper()
	r.pass(time.Second)
	plan := tools.Plan{
		Encoding: 1, Tool: "hold_order", ToolVersion: "v1", Key: tools.Key{Value: key, Generation: 1, Upstream: r.ledger.UpstreamKey(tenant, "hold_order", key, 1)},
		Target: "POST https://shop.example/holds", Args: map[string]any{"order_id": key, "note": "call <Birch & Co>"}, Headline: "Hold order " + key, Wire: []byte(`{"order":"` + key + `"}`),
		Effects: []tools.Effect{{Verb: "create", Target: "hold/" + key, After: map[string]any{"state": "held"}, Count: 1}},
	}
	p := ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: tenant, Agent: "agt_1", Tool: plan.Tool, ToolVersion: "v1", Key: key, Generation: 1,
		ArgsDigest: "sha256:args-" + key, PlanDigest: plan.Digest(), Plan: plan, CreatedAt: r.now(), ExpiresAt: r.now().Add(time.Minute),
		Run: &ledger.Run{ID: "run_1", Step: key},
	}
	require.NoError(r.t, r.db.PutPreview(r.ctx, p))
	g, err := r.ledger.Guard(r.ctx, tenant)
	require.NoError(r.t, err)
	need := ledger.Requirement{Outcome: tools.OutcomeAuto, Rule: "small holds need nobody", Digest: "sha256:policy"}
	if approval {
		need = ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{"any": 1}, Expiry: time.Hour, Rule: "one operator", Digest: "sha256:policy"}
	}
	op, opened, err := r.ledger.OpenOperation(r.ctx, ledger.OpenRequest{
		Preview: p, Agent: tools.Agent{ID: "agt_1", Name: "clerk", Owner: "per_owner", Tenant: tenant}, TokenID: "jti", RequestID: "req-" + key,
		Requirement: need, Manifest: ledger.Manifest{Version: "v1", Text: []byte("tool: hold_order")}, Epoch: g.Epoch, Timeout: time.Second,
	})
	require.NoError(r.t, err)
	require.True(r.t, opened)
	return op
}

func (r *rig) decide(op ledger.Operation, verb ledger.Verb) ledger.Operation {
	r.t.Helper()
	r.pass(time.Second)
	d := ledger.Decision{Operation: op.ID, Round: op.Round, Person: ann.ID, Name: ann.Name, Verb: verb, Groups: []string{"finance"}, Digest: "sha256:shown-" + op.Key, Reason: "looked at it", At: r.now()}
	var err error
	if verb == ledger.VerbReject {
		op, err = r.ledger.Reject(r.ctx, op, d)
	} else {
		op, err = r.ledger.Approve(r.ctx, op, d, true)
	}
	require.NoError(r.t, err)
	return op
}

func (r *rig) send(op ledger.Operation) ledger.Operation {
	r.t.Helper()
	r.pass(time.Second)
	g, err := r.ledger.Guard(r.ctx, tenant)
	require.NoError(r.t, err)
	op, err = r.ledger.Mark(r.ctx, op, ledger.MarkRequest{Epoch: g.Epoch, Timeout: time.Second})
	require.NoError(r.t, err)
	return op
}

func (r *rig) end(op ledger.Operation, v tools.Verdict) ledger.Operation {
	r.t.Helper()
	r.pass(time.Second)
	o := tools.Outcome{Verdict: v, Because: "the shop said so", Seen: tools.Exchange{Status: 201, Headers: map[string]string{"x": "<&>"}}}
	if v == tools.Succeeded {
		o.EffectID, o.Result = "hold_"+op.Key, map[string]any{"id": "hold_" + op.Key, "n": int64(7)}
	}
	op, err := r.ledger.Conclude(r.ctx, op, o)
	require.NoError(r.t, err)
	return op
}

// life fills the ledger with every kind of end, some of them still open.
func (r *rig) life() map[string]ledger.Operation {
	r.t.Helper()
	all := map[string]ledger.Operation{}
	all["auto"] = r.end(r.ask("auto", false), tools.Succeeded)
	all["approved"] = r.end(r.send(r.decide(r.ask("approved", true), ledger.VerbApprove)), tools.Succeeded)
	all["rejected"] = r.decide(r.ask("rejected", true), ledger.VerbReject)
	all["failed"] = r.end(r.ask("failed", false), tools.NoEffect)
	doubt := r.end(r.ask("stated", false), tools.Unknown)
	_, err := r.ledger.Freeze(r.ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeNew, ann, "looking into it")
	require.NoError(r.t, err)
	require.NoError(r.t, r.ledger.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant}, By: ann, Reason: "it is one order", Override: true}))
	r.pass(time.Second)
	all["stated"], err = r.ledger.Resolve(r.ctx, tenant, doubt.ID, ann, ledger.Statement{Happened: true, EffectID: "hold_7", Reason: "seen in the shop"})
	require.NoError(r.t, err)
	all["unsent"] = r.end(r.ask("unsent", false), tools.NotSent)
	all["pending"] = r.decide(r.ask("pending", true), ledger.VerbApprove)
	all["waiting"] = r.ask("waiting", true)
	all["running"] = r.ask("running", false)
	all["unknown"] = r.end(r.ask("unknown", false), tools.Unknown)
	return all
}

// seal seals everything, which must go well.
func (r *rig) seal() {
	r.t.Helper()
	r.pass(time.Second)
	_, err := r.sealer.RunOnce(r.ctx)
	require.NoError(r.t, err)
}

func (r *rig) checkpoints() []ledger.Checkpoint {
	r.t.Helper()
	list, err := r.db.Checkpoints(r.ctx, 0, 1000)
	require.NoError(r.t, err)
	return list
}

func (r *rig) request() audit.ExportRequest {
	return audit.ExportRequest{Ledger: r.ledger.ID(), Keys: r.keys, Schema: sqlstore.SchemaVersion(), Program: "test", Now: r.now, Tenants: []string{tenant}}
}

// export exports a view of one moment.
func (r *rig) export(change ...func(*audit.ExportRequest)) string {
	r.t.Helper()
	r.pass(time.Second)
	s, err := r.db.Snapshot(r.ctx)
	require.NoError(r.t, err)
	q := r.request()
	q.Source = s
	for _, c := range change {
		c(&q)
	}
	var out bytes.Buffer
	require.NoError(r.t, audit.Export(r.ctx, &out, q))
	require.NoError(r.t, s.Close())
	return out.String()
}

// verify verifies a text with the published keys.
func (r *rig) verify(text string, anchor ...audit.Record) audit.Report {
	r.t.Helper()
	report, err := audit.Verify(strings.NewReader(text), audit.VerifyOptions{Keys: r.keys.PublicKeys(r.now()), Anchor: anchor})
	require.NoError(r.t, err)
	return report
}

// whole wants a report without a finding.
func whole(t *testing.T, report audit.Report) {
	t.Helper()
	require.True(t, report.OK, "%v", report.Findings)
	require.Empty(t, report.Findings)
}

// first wants the first finding to be of the kind, and to name the entry.
func first(t *testing.T, report audit.Report, kind audit.Kind, entry string) {
	t.Helper()
	require.False(t, report.OK)
	f, _ := report.First()
	require.Equal(t, kind, f.Kind, "%v", report.Findings)
	require.Contains(t, f.Entry, entry, "%v", report.Findings)
}

func (r *rig) anchorRecords(path string) []audit.Record {
	r.t.Helper()
	f, err := os.Open(path)
	require.NoError(r.t, err)
	defer f.Close()
	list, err := audit.ReadAnchor(f)
	require.NoError(r.t, err)
	return list
}
