package sqlstore_test

import (
	"context"
	"database/sql"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

func TestOpen_OneProcess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	db := open(t, path, storetest.NewClock())

	link := filepath.Join(dir, "link.db")
	require.NoError(t, os.Symlink(path, link))
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.Symlink(dir, folder))
	for _, name := range []string{path, link, filepath.Join(folder, "ledger.db"), filepath.Join(folder, "link.db"), filepath.Join(dir, ".", "x", "..", "ledger.db")} {
		second, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: name})
		require.ErrorIs(t, err, sqlstore.ErrLocked, name)
		require.ErrorContains(t, err, "only one may have it", "the operator is told what to do")
		require.Nil(t, second)
	}
	require.NoError(t, db.Ping(t.Context()), "the first goes on")
	require.NoError(t, db.Close())
	require.NoError(t, open(t, link, storetest.NewClock()).Close(), "the lock ends with its owner")
}

func TestOpen_OddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "q?_pragma=synchronous(OFF).db", "hash#.db", "100%.db", "%41.db", "ünï.db", "a&b=c.db", "file:x.db", ":memory:", "'.db"} {
		dir := filepath.Join(t.TempDir(), "f ?#%")
		require.NoError(t, os.Mkdir(dir, 0o700))
		path := filepath.Join(dir, name)
		db := open(t, path, storetest.NewClock())
		_, err := db.LedgerID(t.Context(), "led_1")
		require.NoError(t, err)
		require.Equal(t, "2", sqlstore.Pragma(t, db, "synchronous"))
		info, err := os.Stat(path)
		require.NoError(t, err, "the file has the name that was asked for")
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "nobody else may read it")
		for _, side := range []string{"-wal", "-shm", ".lock"} {
			info, err := os.Stat(path + side)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), side)
		}
		require.NoError(t, db.Close())
	}
}

func TestOpen_Refused(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600))
	for name, path := range map[string]string{
		"no path":   "",
		"no folder": filepath.Join(dir, "none", "ledger.db"),
		"a folder":  dir,
		"garbage":   garbage,
	} {
		for range 2 { // the second time shows that nothing was left locked
			_, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
			require.Error(t, err, name)
			require.NotErrorIs(t, err, sqlstore.ErrLocked, name)
		}
	}
	kept, err := os.ReadFile(garbage)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(kept), "not a database"), "what is not ours stays as it is")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sqlstore.Open(ended, sqlstore.Options{Path: filepath.Join(dir, "ledger.db")})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpen_AnotherProgramsDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	pool := raw(t, path)
	_, err := pool.Exec("CREATE TABLE orders (id)")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.ErrorIs(t, err, sqlstore.ErrNotALedger)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "what is not ours stays as it is")
	require.NoFileExists(t, path+"-wal")
}

func TestOpen_Durable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := open(t, path, storetest.NewClock())
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000", "fullfsync": "1"} {
		require.Equal(t, want, sqlstore.Pragma(t, db, pragma), pragma)
	}
	require.NoError(t, db.Close())

	for pragma, value := range map[string]string{"synchronous": "NORMAL", "journal_mode": "DELETE", "foreign_keys": "OFF"} {
		pool := raw(t, path)
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		for _, p := range []string{"journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"} {
			_, err = conn.ExecContext(t.Context(), "PRAGMA "+p)
			require.NoError(t, err)
		}
		require.NoError(t, sqlstore.CheckDurable(t.Context(), conn))
		_, err = conn.ExecContext(t.Context(), "PRAGMA "+pragma+"="+value)
		require.NoError(t, err)
		err = sqlstore.CheckDurable(t.Context(), conn)
		require.ErrorIs(t, err, sqlstore.ErrNotDurable, pragma)
		require.ErrorContains(t, err, pragma)
		require.NoError(t, conn.Close())
		require.NoError(t, pool.Close())
	}
}

// A closed ledger is one file again, ready to be copied.
func TestClose_FoldsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := open(t, path, storetest.NewClock())
	fill(t, db)
	require.FileExists(t, path+"-wal")
	require.NoError(t, db.Close())
	require.NoFileExists(t, path+"-wal")
	require.NoFileExists(t, path+"-shm")
}

// raw opens the file with SQLite alone, as a shell would.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(0)")
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	return pool
}

// A file from elsewhere may be in rollback mode; it is brought to WAL.
func TestOpen_FromRollbackMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	require.NoError(t, open(t, path, storetest.NewClock()).Close())
	pool := raw(t, path)
	_, err := pool.Exec("PRAGMA journal_mode=DELETE")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	db := open(t, path, storetest.NewClock())
	require.Equal(t, "wal", sqlstore.Pragma(t, db, "journal_mode"))
	require.NoError(t, db.Close())
}

func TestOpen_NewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	require.NoError(t, open(t, path, storetest.NewClock()).Close())
	pool := raw(t, path)
	_, err := pool.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	_, err = sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.ErrorIs(t, err, sqlstore.ErrNewerSchema)
	require.ErrorContains(t, err, "99999")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "a refused file is not touched")
}

// S74: what happened can't be rewritten through SQL either.
func TestSchema_AppendOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := open(t, path, storetest.NewClock())
	fill(t, db)
	require.NoError(t, db.Close())
	pool := raw(t, path)
	defer pool.Close() //nolint:errcheck // a test's own
	for _, table := range []string{"events", "evidence", "decisions", "guards", "checkpoints"} {
		var n int
		require.NoError(t, pool.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
		require.Positive(t, n, table)
		for _, text := range []string{"UPDATE " + table + " SET doc = '{}'", "DELETE FROM " + table} {
			_, err := pool.Exec(text)
			require.ErrorContains(t, err, "append-only", text)
		}
	}
}
