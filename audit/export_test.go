package audit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/ledger"
	"countersign/tokens"
)

var update = flag.Bool("update", false, "write the kept export anew")

// An export that begins at a later checkpoint is whole in itself, holds just the
// operations of its events, and shows what was changed in it.
func TestExport_Since(t *testing.T) {
	r, _ := sealedLife(t)
	full := r.verify(r.export())
	all := r.checkpoints()
	for _, c := range all {
		text := r.export(func(q *audit.ExportRequest) { q.Since = c.At.Add(1) })
		report := r.verify(text)
		whole(t, report)
		require.Equal(t, full.Newest-c.Seq, report.Counts["event"])
		require.LessOrEqual(t, report.Counts["operation"], full.Counts["operation"])
		require.Contains(t, strings.Join(report.Notes, " "), fmt.Sprintf("behind checkpoint %d", c.N))
		if c.N < all[len(all)-1].N {
			require.False(t, r.verify(strings.Replace(text, `"actor":{"kind":"agent","id":"agt_1"`, `"actor":{"kind":"agent","id":"agt_2"`, 1)).OK)
		}
	}
	before := r.export(func(q *audit.ExportRequest) { q.Since = all[0].At })
	require.Equal(t, full.Counts, r.verify(before).Counts, "no checkpoint lies before it: everything")
}

// Arguments leave the ledger only in plans, only when asked for, and redacted (S75).
func TestExport_Plans(t *testing.T) {
	r, all := sealedLife(t)
	require.NotContains(t, r.export(), "Birch", "no arguments without plans")
	text := r.export(func(q *audit.ExportRequest) {
		q.Redact = func(_ context.Context, op ledger.Operation, args map[string]any) (map[string]any, error) {
			return map[string]any{"order_id": args["order_id"], "note": "redacted:" + op.ToolVersion}, nil
		}
	})
	require.NotContains(t, text, "Birch", "neither in the arguments nor in the wire")
	require.Contains(t, text, `"note":"redacted:v1"`)
	report := r.verify(text)
	whole(t, report)
	require.Equal(t, report.Counts["operation"], report.Counts["plan"])
	other := strings.Replace(text, `"digest":"`+all["auto"].PlanDigest, `"digest":"`+all["failed"].PlanDigest, 1)
	require.NotEqual(t, text, other)
	require.False(t, r.verify(other).OK)

	s, err := r.db.Snapshot(r.ctx)
	require.NoError(t, err)
	q := r.request()
	q.Source = s
	q.Redact = func(context.Context, ledger.Operation, map[string]any) (map[string]any, error) {
		return nil, errors.New("the manifest is gone")
	}
	var out strings.Builder
	require.ErrorContains(t, audit.Export(r.ctx, &out, q), "can't be redacted")
	require.NoError(t, s.Close())
}

// Secrets of the gateway are in no export, and in no checkpoint (I18).
func TestExport_HoldsNoKeys(t *testing.T) {
	r, _ := sealedLife(t)
	seeds, err := os.ReadFile(r.dir + "/keys.json")
	require.NoError(t, err)
	_, seed, found := strings.Cut(string(seeds), `"seed": "`)
	require.True(t, found)
	require.NotContains(t, r.export(), seed[:40])
}

// An export of today is verified by every later program of this format.
func TestVerify_AKeptExport(t *testing.T) {
	const file, jwks = "testdata/export-1.jsonl", "testdata/export-1.jwks.json"
	if *update {
		r, _ := sealedLife(t)
		text := r.export(func(q *audit.ExportRequest) { q.Redact = keep })
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.WriteFile(jwks, r.keys.JWKS(r.now()), 0o600))
	}
	set, err := os.ReadFile(jwks)
	require.NoError(t, err)
	keys, err := tokens.ParseJWKS(set)
	require.NoError(t, err)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	report, err := audit.Verify(f, audit.VerifyOptions{Keys: keys})
	require.NoError(t, err)
	whole(t, report)
	require.Greater(t, report.Counts["event"], int64(20))
}

// What is no export is told from an export with a flaw.
func TestVerify_NotAnExport(t *testing.T) {
	r := newRig(t)
	text := r.export()
	for name, in := range map[string]string{
		"nothing":        "",
		"other JSON":     "{}\n",
		"no JSON":        "ledger.db\n",
		"another format": strings.Replace(text, audit.ExportFormat, "countersign-audit-9", 1),
		"no header":      text[strings.IndexByte(text, '\n')+1:],
		"an endless one": strings.Repeat("x", 40<<20),
	} {
		_, err := audit.Verify(strings.NewReader(in), audit.VerifyOptions{})
		require.ErrorIs(t, err, audit.ErrNotAnExport, name)
	}
}

// Whose keys are not trusted is found out, whatever they signed.
func TestVerify_KeysOfSomebodyElse(t *testing.T) {
	r, _ := sealedLife(t)
	other := newRig(t)
	report, err := audit.Verify(strings.NewReader(r.export()), audit.VerifyOptions{Keys: other.keys.PublicKeys(r.now())})
	require.NoError(t, err)
	first(t, report, audit.BadSignature, "checkpoint 1")
}

// FuzzVerify: whatever is put into an export, nothing breaks, and nothing but the
// export itself is called whole.
func FuzzVerify(f *testing.F) {
	text, err := os.ReadFile("testdata/export-1.jsonl")
	require.NoError(f, err)
	set, err := os.ReadFile("testdata/export-1.jwks.json")
	require.NoError(f, err)
	keys, err := tokens.ParseJWKS(set)
	require.NoError(f, err)
	f.Add(100, 200, []byte(`"seq":1`))
	f.Add(5000, 5001, []byte(`}`))
	f.Add(len(text)-300, len(text), []byte(nil))
	f.Fuzz(func(t *testing.T, from, to int, put []byte) {
		from, to = min(max(from, 0), len(text)), min(max(to, 0), len(text))
		if from > to {
			from, to = to, from
		}
		in := string(text[:from]) + string(put) + string(text[to:])
		report, err := audit.Verify(strings.NewReader(in), audit.VerifyOptions{Keys: keys})
		if err == nil && report.OK && in != string(text) {
			t.Fatalf("changed from %d to %d by %q, and called whole", from, to, put)
		}
	})
}
