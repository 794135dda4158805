package web_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"countersign/audit"
	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools/tooltest"
	"countersign/web"
)

// tamper changes the ledger by hand, as somebody could who has its file.
func (r *rig) tamper(statements ...string) {
	r.t.Helper()
	raw, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(5000)")
	require.NoError(r.t, err)
	defer raw.Close()
	raw.SetMaxOpenConns(1)
	rows, err := raw.Query(`SELECT name FROM sqlite_master WHERE type = 'trigger'`)
	require.NoError(r.t, err)
	var all []string
	for rows.Next() {
		var name string
		require.NoError(r.t, rows.Scan(&name))
		all = append(all, `DROP TRIGGER `+name)
	}
	require.NoError(r.t, rows.Err())
	for _, s := range append(all, statements...) {
		res, err := raw.Exec(s)
		require.NoError(r.t, err, s)
		if !strings.HasPrefix(s, "DROP") {
			n, err := res.RowsAffected()
			require.NoError(r.t, err)
			require.Positive(r.t, n, "it changes something: %s", s)
		}
	}
}

func (r *rig) seal() {
	r.t.Helper()
	_, err := r.sealer.RunOnce(context.Background())
	require.NoError(r.t, err)
}

// The newest checkpoints, what they cover, and when the next is due.
func TestAudit_Checkpoints(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("send_gift", tooltest.WithApproval(tooltest.Auto())))
	mara := r.as("mara", "support")
	require.Contains(t, mara.get("/audit").Body, "There is none yet.")
	for i := range 13 {
		r.ask(r.agent, "send_gift", args("order_id", fmt.Sprint(i)))
		r.seal()
		r.clock.Add(time.Minute)
	}
	p := mara.get("/audit")
	wellMade(t, p)
	require.Contains(t, p.one(t, "badges"), "All sealed")
	newest, err := r.db.LastCheckpoint(t.Context())
	require.NoError(t, err)
	rows := p.rows(t, "ledger")
	require.Len(t, rows, 1+10, "one anchor and ten checkpoints")
	require.True(t, strings.HasPrefix(rows[1], fmt.Sprint(newest.N)), rows[1])
	require.Contains(t, rows[1], newest.Hash[:16])
	require.Contains(t, rows[1], "1 minute ago")

	r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	require.Contains(t, mara.get("/audit").one(t, "badges"), "A checkpoint is due")
	r.clock.Add(2*time.Minute + time.Second)
	late := mara.get("/audit")
	require.Contains(t, late.one(t, "badges"), "Sealing is late")
	require.Contains(t, late.Body, "The gateway’s log says what is wrong")

	r.seal()
	r.tamper(fmt.Sprintf(`UPDATE checkpoints SET doc = json_set(doc, '$.seq', 1) WHERE n = %d`, newest.N-3))
	require.Equal(t, 1, strings.Count(mara.get("/audit").Body, "not what was written</span>"))
}

// An anchor that keeps up, and one that fails, with the error and since when.
func TestAudit_Anchors(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	folder := t.TempDir() // no file can be written in its place
	sealer := audit.NewSealer(audit.SealerConfig{
		Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: r.clock.Now,
		Anchors: []audit.Anchor{audit.NewFileAnchor(filepath.Join(t.TempDir(), "a <b>.jsonl")), audit.NewFileAnchor(folder)},
	})
	r.audit.Anchors = sealer.Anchors
	_, err := sealer.RunOnce(context.Background())
	require.NoError(t, err)
	r.clock.Add(9 * time.Minute)
	p := mara.get("/audit")
	wellMade(t, p)
	rows := p.rows(t, "ledger")
	require.Contains(t, rows[0], "a <b>.jsonl")
	require.Contains(t, rows[0], "Up to date")
	require.Contains(t, rows[0], "made 9 minutes ago")
	require.Contains(t, rows[1], folder)
	require.Contains(t, rows[1], "Fails since 9 minutes ago")
	require.Contains(t, rows[1], "directory", "the error itself")
	require.Contains(t, p.one(t, "badges"), "1 anchor fails")

	r.audit.Anchors = func() []audit.AnchorState { return []audit.AnchorState{{Name: "syslog", Anchored: 0}} }
	require.Contains(t, mara.get("/audit").rows(t, "ledger")[0], "1 checkpoint behind")
	r.audit.Anchors = func() []audit.AnchorState { return nil }
	none := mara.get("/audit")
	require.Contains(t, none.one(t, "badges"), "No anchor")
	require.Contains(t, none.Body, "anchors:")
}

// A gateway without an audit shows none of it.
func TestAudit_None(t *testing.T) {
	r := newRigWith(t, func(c *web.Config) { c.Audit = nil })
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	for _, path := range []string{"/audit", at(op.ID) + "/audit", at(op.ID) + "/receipt"} {
		require.Equal(t, http.StatusNotFound, mara.get(path).Status, path)
	}
	p := mara.get(at(op.ID))
	require.NotContains(t, p.Body, "/audit")
	audited := newRig(t)
	for _, path := range []string{"/audit", "/operations/op_0/audit", "/operations/op_0/receipt"} {
		require.Equal(t, http.StatusSeeOther, audited.browser().get(path).Status, "nobody looks without signing in")
	}
}

// The trail of an operation: each event with its link, the checkpoint that covers
// it, and the receipt once it has ended.
func TestTrail(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	waiting := mara.get(at(op.ID) + "/audit")
	require.Contains(t, waiting.one(t, "badges"), "Not sealed yet")
	require.Contains(t, waiting.Body, "There is one once the operation has ended")
	refused := mara.get(at(op.ID) + "/receipt")
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.Body, "there is a receipt once it has ended")

	r.seal()
	r.decide(r.people["mara"], op.ID, "approve", "")
	r.seal()
	r.work()
	require.Contains(t, mara.get(at(op.ID)+"/audit").one(t, "badges"), "Not sealed yet", "the newest events are not covered")
	r.seal()
	r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	r.seal()
	p := mara.get(at(op.ID) + "/audit")
	wellMade(t, p)
	require.Contains(t, p.one(t, "badges"), "Chain whole")
	require.Contains(t, p.one(t, "badges"), "Sealed")
	events, err := r.ledger.Events(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Len(t, events, 4)
	require.Contains(t, p.Body, "4 events are exactly what was written")
	require.Contains(t, p.Body, "Checkpoint 3, made")
	for _, e := range events {
		require.Contains(t, p.Body, e.Hash)
	}
	require.Contains(t, mara.get(at(op.ID)).Body, at(op.ID)+"/audit")
}

// The receipt is a file that verifies with the published keys alone.
func TestReceipt(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
	got := mara.get(at(op.ID) + "/receipt")
	require.Equal(t, http.StatusOK, got.Status)
	wantHeaders(t, got.Header)
	require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
	require.Equal(t, "application/jose", got.Header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="receipt-`+op.ID+`.jws"`, got.Header.Get("Content-Disposition"))
	keys, err := tokens.ParseJWKS(r.keys.JWKS(r.clock.Now()))
	require.NoError(t, err)
	receipt, _, err := audit.VerifyReceipt(keys, strings.TrimSpace(got.Body))
	require.NoError(t, err)
	require.Equal(t, op.ID, receipt.Operation)
	require.Equal(t, ledger.Succeeded, receipt.State)
	require.Equal(t, 1, bytes.Count([]byte(got.Body), []byte("\n")), "one line")
	require.Equal(t, http.StatusNotFound, mara.get("/operations/op_0/receipt").Status)
	require.Equal(t, http.StatusNotFound, mara.get("/operations/op_0/audit").Status)
}

// What was changed by hand is marked, on the event and above.
func TestTrail_Tampered(t *testing.T) {
	for name, c := range map[string]struct{ statement, badge, says string }{
		"an event":      {`UPDATE events SET doc = json_set(doc, '$.to', 'failed') WHERE version = 2`, "Chain broken", "The event 2 is not what was written, or not in its place."},
		"the last gone": {`DELETE FROM events WHERE version = 2`, "Chain broken", "the operation’s row names another last event"},
		"its evidence":  {`UPDATE evidence SET doc = json_set(doc, '$.seen.status', 299)`, "Evidence changed", "1 event names evidence that is gone, or says something else"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			mara := r.as("mara", "support")
			op := r.ask(r.agent, "hold_order", args("order_id", "ord_1001"))
			require.NotContains(t, content(mara.get(at(op.ID)+"/audit").tree(t)), c.says)
			r.tamper(c.statement)
			p := mara.get(at(op.ID) + "/audit")
			require.Equal(t, http.StatusOK, p.Status)
			require.Contains(t, content(p.tree(t)), c.says)
			require.Contains(t, p.one(t, "badges"), c.badge)
		})
	}
}
