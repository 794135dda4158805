package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Inspection is what a look at a ledger's file found.
type Inspection struct {
	// SchemaVersion is the file's; when it is below SchemaVersion(), the next
	// Open brings it up to date.
	SchemaVersion int64
	// JournalMode is the one that the file is kept in: "wal" once Open had it.
	JournalMode string
	// Bytes is the size of the file with its write-ahead log.
	Bytes int64
}

// SchemaVersion is the newest schema version that this program knows, and the
// one that every file has after Open.
func SchemaVersion() int64 {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		panic(err) // they are embedded
	}
	var newest int64
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}

// Inspect looks at a ledger that no process has open, and changes nothing in
// it: no migration, no new file. It holds the file's lock while it looks. The
// errors are those of Open, and fs.ErrNotExist when there is no such file.
func Inspect(ctx context.Context, path string) (found Inspection, err error) {
	if path, err = realPath(path); err != nil {
		return found, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return found, fmt.Errorf("sqlstore: the ledger file: %w", err)
	}
	found.Bytes = info.Size()
	if wal, err := os.Stat(path + "-wal"); err == nil {
		found.Bytes += wal.Size()
	}
	if err := checkFileSystem(filepath.Dir(path)); err != nil {
		return found, err
	}
	lock, err := lockFile(path)
	if err != nil {
		return found, err
	}
	pool, err := sql.Open("sqlite", dsn(path, []string{"busy_timeout(5000)", "query_only(1)"}))
	if err != nil {
		return found, errors.Join(fmt.Errorf("sqlstore: open: %w", err), lock.Close())
	}
	defer func() { err = errors.Join(err, pool.Close(), lock.Close()) }()
	if err := pool.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&found.JournalMode); err != nil {
		return found, fmt.Errorf("sqlstore: %s can't be read as a ledger: %w", path, err)
	}
	err = pool.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied = 1").Scan(&found.SchemaVersion)
	if err != nil {
		return found, fmt.Errorf("sqlstore: %s can't be read as a ledger: %w", path, err)
	}
	if known := SchemaVersion(); found.SchemaVersion > known {
		return found, fmt.Errorf("sqlstore: %w: %s has schema version %d, this program knows %d", ErrNewerSchema, path, found.SchemaVersion, known)
	}
	return found, nil
}
