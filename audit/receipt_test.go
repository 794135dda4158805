package audit_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

func (r *rig) receipts() audit.Receipts {
	return audit.Receipts{Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: r.now}
}

func TestReceipt_TellsTheWholeStory(t *testing.T) {
	r := newRig(t)
	all := r.life()
	r.seal()
	r.ask("more", true)
	r.seal()
	op := all["approved"]
	token, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
	require.NoError(t, err)
	got, kid, err := audit.VerifyReceipt(r.keys.PublicKeys(r.now()), token)
	require.NoError(t, err)
	require.Contains(t, r.keys.PublicKeys(r.now()), kid)

	require.Equal(t, r.ledger.ID(), got.Ledger)
	require.Equal(t, op.ID, got.Operation)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, "per_owner", got.Asked.Agent.Owner)
	require.Equal(t, "approved", got.Asked.Run.Step)
	require.Equal(t, op.PlanDigest, got.Shown.PlanDigest)
	require.Equal(t, "Hold order approved", got.Shown.Headline)
	require.Equal(t, "hold/approved", got.Shown.Effects[0].Target)
	require.Equal(t, []audit.ReceiptWord{{Round: 1, Person: ann.ID, Name: "Ann", Groups: []string{"finance"}, Word: ledger.VerbApprove, ShownDigest: "sha256:shown-approved", Reason: "looked at it", At: got.Decisions[0].At}}, got.Decisions)
	require.Equal(t, op.UpstreamKey, got.Sent.UpstreamKey)
	require.Len(t, got.Sent.Attempts, 1)
	require.Equal(t, "hold_approved", got.Proven.EffectID)
	require.Equal(t, tools.Succeeded, got.Proven.Evidence[0].Verdict)
	require.Equal(t, op.Chain, got.Chain.Hash)
	require.EqualValues(t, op.Version, got.Chain.Events)
	require.EqualValues(t, 1, got.Chain.Checkpoint.N, "the first checkpoint that covers it")
	require.NotContains(t, token, "call <Birch")
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	require.NoError(t, err)
	require.NotContains(t, string(payload), "Birch", "arguments are there as a digest only")

	// One that no checkpoint covers yet says so by having none.
	fresh := r.end(r.ask("fresh", false), tools.Succeeded)
	_, receipt, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, fresh.ID)
	require.NoError(t, err)
	require.Nil(t, receipt.Chain.Checkpoint)
}

func TestReceipt_OnlyOfWhatHasEnded(t *testing.T) {
	r := newRig(t)
	for name, op := range r.life() {
		_, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
		if op.State.Final() {
			require.NoError(t, err, name)
			continue
		}
		require.True(t, fault.Is(err, fault.InvalidState), "%s: %v", name, err)
	}
	_, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, "op_none")
	require.True(t, fault.Is(err, fault.OperationNotFound))
	_, _, err = r.receipts().Issue(r.ctx, r.ledger.Reader, "other", r.end(r.ask("x", false), tools.Succeeded).ID)
	require.True(t, fault.Is(err, fault.OperationNotFound), "another tenant's is not there (I17)")
}

// Nothing is stated about an operation whose record was changed.
func TestReceipt_NotOverABrokenChain(t *testing.T) {
	r := newRig(t)
	op := r.end(r.ask("k", false), tools.Succeeded)
	r.tamper(`UPDATE events SET doc = json_set(doc, '$.actor.id', 'per_eve') WHERE seq = 1`)
	_, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
	require.True(t, fault.Is(err, fault.InvalidState))
}

// Any field that is changed, alone, is found (N20).
func TestReceipt_AnyFieldChangedIsFound(t *testing.T) {
	r := newRig(t)
	op := r.life()["approved"]
	r.seal()
	token, receipt, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
	require.NoError(t, err)
	keys := r.keys.PublicKeys(r.now())
	parts := strings.Split(token, ".")
	var value any
	b, err := json.Marshal(receipt)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &value))
	changed := 0
	eachLeaf(value, func(set func(any), old any) {
		switch old := old.(type) {
		case string:
			set(old + "x")
		case float64:
			set(old + 1)
		case bool:
			set(!old)
		default:
			set("x")
		}
		spoilt, err := json.Marshal(value)
		require.NoError(t, err)
		set(old)
		_, _, err = audit.VerifyReceipt(keys, parts[0]+"."+base64.RawURLEncoding.EncodeToString(spoilt)+"."+parts[2])
		require.ErrorIs(t, err, tokens.ErrBadStatement)
		changed++
	})
	require.Greater(t, changed, 50)
}

// eachLeaf calls do for every value that holds no other.
func eachLeaf(v any, do func(set func(any), old any)) {
	visit := func(child any, set func(any)) {
		switch child.(type) {
		case map[string]any, []any:
			eachLeaf(child, do)
		default:
			do(set, child)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			visit(child, func(x any) { v[k] = x })
		}
	case []any:
		for i, child := range v {
			visit(child, func(x any) { v[i] = x })
		}
	}
}

// After a rotation an old receipt is verified by the retired key, which stays
// published; other statements are never taken for a receipt.
func TestReceipt_AfterRotation(t *testing.T) {
	r := newRig(t)
	op := r.end(r.ask("k", false), tools.Succeeded)
	token, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
	require.NoError(t, err)
	for range 3 {
		r.pass(24 * time.Hour)
		_, err = r.keys.Rotate(r.now())
		require.NoError(t, err)
	}
	published, err := tokens.ParseJWKS(r.keys.JWKS(r.now()))
	require.NoError(t, err)
	require.Len(t, published, 4)
	_, _, err = audit.VerifyReceipt(published, token)
	require.NoError(t, err)
	r.seal()
	_, _, err = audit.VerifyReceipt(published, r.checkpoints()[0].Signature)
	require.Error(t, err)
	again, _, err := r.receipts().Issue(r.ctx, r.ledger.Reader, tenant, op.ID)
	require.NoError(t, err)
	_, kid, err := audit.VerifyReceipt(published, again)
	require.NoError(t, err)
	require.NotEmpty(t, kid)
	odd, err := r.keys.Sign(audit.ReceiptType, []byte(`{"format":"countersign-receipt-9"}`))
	require.NoError(t, err)
	_, _, err = audit.VerifyReceipt(published, odd)
	require.ErrorContains(t, err, "of a form that this program does not know")
}
