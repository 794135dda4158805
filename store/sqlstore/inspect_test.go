package sqlstore_test

import (
	"crypto/sha256"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/store/sqlstore"
)

// A look at a ledger reports its schema and changes no byte of it.
func TestInspect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	_, err := sqlstore.Inspect(t.Context(), path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoFileExists(t, path, "a look makes no file")

	db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.NoError(t, err)
	_, err = sqlstore.Inspect(t.Context(), path)
	require.ErrorIs(t, err, sqlstore.ErrLocked)
	require.NoError(t, db.Close())

	before := digest(t, path)
	found, err := sqlstore.Inspect(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, sqlstore.SchemaVersion(), found.SchemaVersion)
	require.Equal(t, "wal", found.JournalMode)
	require.Positive(t, found.Bytes)
	require.Equal(t, before, digest(t, path))

	db, err = sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.NoError(t, err, "the lock was given back")
	require.NoError(t, db.Close())
}

// A file that an older program left is reported as it is, not migrated; one of a
// newer program is refused; what is no ledger is said to be none.
func TestInspect_OtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		change string
		want   int64
		err    error
	}{
		"older": {"DELETE FROM goose_db_version WHERE version_id > 1", 1, nil},
		"newer": {"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)", 9999, sqlstore.ErrNewerSchema},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
			require.NoError(t, err)
			require.NoError(t, db.Close())
			raw, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			_, err = raw.ExecContext(t.Context(), c.change)
			require.NoError(t, err)
			require.NoError(t, raw.Close())

			found, err := sqlstore.Inspect(t.Context(), path)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, found.SchemaVersion)
		})
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	require.NoError(t, os.WriteFile(path, []byte("no database at all, but long enough to be looked at as one"), 0o600))
	_, err := sqlstore.Inspect(t.Context(), path)
	require.ErrorContains(t, err, "can't be read as a ledger")
}

func digest(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return sha256.Sum256(b)
}
