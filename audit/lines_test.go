package audit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/ledger"
)

// resealed gives an event the hash of what it says now: the work of somebody who
// knows the form.
func resealed(t *testing.T, e ledger.Event) ledger.Event {
	t.Helper()
	seq := e.Seq
	e.Seq, e.Hash = 0, ""
	b, err := json.Marshal(e)
	require.NoError(t, err)
	sum := sha256.Sum256(append([]byte("countersign-event-1\n"), b...))
	e.Seq, e.Hash = seq, hex.EncodeToString(sum[:])
	require.True(t, e.Intact(e.Prev))
	return e
}

func eventLine(t *testing.T, e ledger.Event) string {
	t.Helper()
	b, err := json.Marshal(e)
	require.NoError(t, err)
	return `{"kind":"event","event":` + string(b) + "}\n"
}

// replaceEvent puts an event in the place of the one of its number.
func replaceEvent(t *testing.T, text string, e ledger.Event) string {
	t.Helper()
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		var in struct{ Event *ledger.Event }
		if strings.HasPrefix(l, `{"kind":"event"`) {
			require.NoError(t, json.Unmarshal([]byte(l), &in))
			if in.Event.Seq == e.Seq {
				lines[i] = eventLine(t, e)
				return strings.Join(lines, "")
			}
		}
	}
	t.Fatalf("no event %d", e.Seq)
	return ""
}

// keep redacts nothing.
func keep(_ context.Context, _ ledger.Operation, args map[string]any) (map[string]any, error) {
	return args, nil
}

// putBack copies an old file over the ledger's.
func putBack(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b, 0o600))
	for _, side := range []string{"-wal", "-shm"} {
		if err := os.Remove(to + side); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
	}
}

func (r *rig) op(id string) ledger.Operation {
	r.t.Helper()
	op, err := r.ledger.Operation(r.ctx, tenant, id)
	require.NoError(r.t, err)
	return op
}

func (r *rig) guard() ledger.Guard {
	r.t.Helper()
	g, err := r.ledger.Guard(r.ctx, tenant)
	require.NoError(r.t, err)
	return g
}

func (r *rig) recovery(reason string) audit.RecoverConfig {
	return audit.RecoverConfig{Ledger: r.ledger, Store: r.db, Keys: r.keys, Sealer: r.sealer, Tenants: []string{tenant}, Reason: reason}
}
