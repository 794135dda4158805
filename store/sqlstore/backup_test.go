package sqlstore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

// A backup is the ledger as it stands, whole, private, and a file of its own.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	db := opened(t, filepath.Join(dir, "ledger.db"))
	fill(t, db)
	path := filepath.Join(dir, "it's a ?#% backup.db")
	require.NoError(t, db.Backup(t.Context(), path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	entries, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, entries, "nothing half done is left")

	before, err := db.AllEventsAfter(t.Context(), 0, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, before)
	require.NoError(t, db.Open(t.Context(), again(t, db, "later")))
	copied := opened(t, path)
	events, err := copied.AllEventsAfter(t.Context(), 0, 1000)
	require.NoError(t, err)
	require.Equal(t, before, events)
	id, err := copied.LedgerID(t.Context(), "led_other")
	require.NoError(t, err)
	require.Equal(t, "led_1", id)
	require.NoError(t, copied.Open(t.Context(), again(t, copied, "in the copy")), "it is a ledger that works")
}

// again is an opening under the guard row that stands now.
func again(t *testing.T, db *sqlstore.DB, key string) ledger.Opening {
	t.Helper()
	o := ready(t, db, key)
	g, err := db.Guard(t.Context(), "acme")
	require.NoError(t, err)
	o.Epoch = g.Epoch
	return o
}

func TestBackup_ReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	db := opened(t, filepath.Join(dir, "ledger.db"))
	there := filepath.Join(dir, "there.db")
	require.NoError(t, os.WriteFile(there, []byte("mine"), 0o600))
	link := filepath.Join(dir, "link.db")
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), link))
	for _, path := range []string{there, link, dir, filepath.Join(dir, "ledger.db")} {
		require.ErrorIs(t, db.Backup(t.Context(), path), sqlstore.ErrExists, path)
	}
	kept, err := os.ReadFile(there)
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))
	require.ErrorIs(t, db.Backup(t.Context(), filepath.Join(dir, "no", "folder.db")), fs.ErrNotExist)
}

func TestCheckWhole(t *testing.T) {
	dir := t.TempDir()
	db := opened(t, filepath.Join(dir, "ledger.db"))
	fill(t, db)
	path := filepath.Join(dir, "copy.db")
	require.NoError(t, db.Backup(t.Context(), path))
	require.NoError(t, sqlstore.CheckWhole(t.Context(), path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 4096; i < len(text); i += 512 {
		text[i] ^= 0xff
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.ErrorIs(t, sqlstore.CheckWhole(t.Context(), path), sqlstore.ErrDamaged)
	require.NoError(t, os.WriteFile(path, []byte("no database at all, but long enough to look like one ......................................................"), 0o600))
	require.ErrorIs(t, sqlstore.CheckWhole(t.Context(), path), sqlstore.ErrDamaged)
}

// A snapshot sees one moment, whatever is written behind it, and never writes.
func TestSnapshot(t *testing.T) {
	db := opened(t, filepath.Join(t.TempDir(), "ledger.db"))
	fill(t, db)
	s, err := db.Snapshot(t.Context())
	require.NoError(t, err)
	before, err := s.AllEventsAfter(t.Context(), 0, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, before)
	for range 20 {
		require.NoError(t, db.Open(t.Context(), again(t, db, newID("k"))))
	}
	last, err := db.LastCheckpoint(t.Context())
	require.NoError(t, err)
	next := ledger.Checkpoint{N: last.N + 1, Prev: last.Hash, At: time.Now()}
	next.Hash = next.Digest()
	require.NoError(t, db.Seal(t.Context(), next))
	for range 2 {
		events, err := s.AllEventsAfter(t.Context(), 0, 1000)
		require.NoError(t, err)
		require.Equal(t, before, events)
		c, err := s.LastCheckpoint(t.Context())
		require.NoError(t, err)
		require.Equal(t, last.N, c.N)
		list, err := s.List(t.Context(), ledger.Filter{Tenant: "acme", Limit: 200})
		require.NoError(t, err)
		require.NotEmpty(t, list.Operations)
		for _, op := range list.Operations {
			_, err = s.Plan(t.Context(), "acme", op.ID, 1)
			require.NoError(t, err)
			_, err = s.Decisions(t.Context(), "acme", op.ID)
			require.NoError(t, err)
			_, err = s.Evidence(t.Context(), "acme", op.ID)
			require.NoError(t, err)
		}
		tenants, err := s.Tenants(t.Context())
		require.NoError(t, err)
		require.Contains(t, tenants, "acme")
		rows, err := s.GuardHistory(t.Context(), "acme", 0, 10)
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		id, err := s.LedgerID(t.Context())
		require.NoError(t, err)
		require.Equal(t, "led_1", id)
	}
	require.NoError(t, s.Close())
	now, err := db.AllEventsAfter(t.Context(), 0, 1000)
	require.NoError(t, err)
	require.Greater(t, len(now), len(before))
}

// opened opens a ledger until the test ends.
func opened(t *testing.T, path string) *sqlstore.DB {
	t.Helper()
	db := open(t, path, storetest.NewClock())
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
