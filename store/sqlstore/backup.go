package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"countersign/ledger"
	"countersign/tools"
)

// ErrExists: a backup never takes the place of a file.
var ErrExists = errors.New("the file exists already")

// ErrDamaged: SQLite finds that the file is not whole.
var ErrDamaged = errors.New("the file is damaged")

// Backup writes a copy of the ledger as it stands at one moment to a new file
// (0600), while everything goes on. The copy is flushed to the disk and checked
// before it gets its name, and it is the ledger alone: keys and secrets lie in
// files beside it. A file that is there is never replaced.
func (db *DB) Backup(ctx context.Context, path string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sqlstore: backup: %w: %s", firstOf(err, ErrExists), path)
	}
	// SQLite would make the file readable by everybody, and takes an empty one.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	part := f.Name()
	defer func() { _ = os.Remove(part) }() // a second name by then, or the rest of what failed
	if err := f.Close(); err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	if err := db.copyTo(ctx, part); err != nil {
		return err
	}
	if err := syncPath(part); err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	if err := CheckWhole(ctx, part); err != nil {
		return err
	}
	// A link, unlike a rename, fails where somebody else made the file meanwhile.
	if err := os.Link(part, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = ErrExists
		}
		return fmt.Errorf("sqlstore: backup: %w: %s", err, path)
	}
	if err := os.Remove(part); err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	if err := syncPath(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	return nil
}

// copyTo lets SQLite write the ledger into an empty file, on a connection of its
// own: a long copy holds up no reader.
func (db *DB) copyTo(ctx context.Context, path string) (err error) {
	pool, err := sql.Open("sqlite", dsn(db.path, []string{"busy_timeout(5000)"}))
	if err != nil {
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if _, err := pool.ExecContext(ctx, "VACUUM INTO ?", path); err != nil {
		if isFull(err) {
			err = errors.Join(ledger.ErrDiskFull, err)
		}
		return fmt.Errorf("sqlstore: backup: %w", err)
	}
	return nil
}

// CheckWhole reads a ledger's file that nobody writes to from end to end, and
// changes nothing: ErrDamaged unless SQLite's own check finds it whole.
func CheckWhole(ctx context.Context, path string) (err error) {
	pool, err := sql.Open("sqlite", dsn(path, []string{"query_only(1)"})+"&mode=ro")
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	var said string
	if err := pool.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&said); err != nil {
		return fmt.Errorf("sqlstore: check: %w: %s: %w", ErrDamaged, path, err)
	}
	if said != "ok" {
		return fmt.Errorf("sqlstore: check: %w: %s: %s", ErrDamaged, path, said)
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Snapshot is the ledger as it stood at one moment, for reading. It costs the
// ledger's write-ahead log the chance to shrink while it is open.
type Snapshot struct{ view *DB }

// Snapshot opens one; the caller closes it. Everything that it reads is of one
// and the same moment, whatever is written meanwhile.
func (db *DB) Snapshot(ctx context.Context) (*Snapshot, error) {
	pool, err := sql.Open("sqlite", dsn(db.path, readerPragmas))
	if err != nil {
		return nil, fmt.Errorf("sqlstore: snapshot: %w", err)
	}
	// The one connection stays in the one transaction, which begins to see with
	// its first read.
	pool.SetMaxOpenConns(1)
	pool.SetMaxIdleConns(1)
	view := &DB{path: db.path, now: db.now, log: db.log, readers: pool}
	if _, err := pool.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: snapshot: %w", err), pool.Close())
	}
	if err := view.Ping(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &Snapshot{view}, nil
}

// Close lets go of the moment.
func (s *Snapshot) Close() error { return s.view.readers.Close() }

// The reads are those of DB.

func (s *Snapshot) LedgerID(ctx context.Context) (string, error) {
	return one(s.view.reader(ctx), column[string], `SELECT value FROM settings WHERE name = 'ledger_id'`)
}

func (s *Snapshot) Tenants(ctx context.Context) ([]string, error) { return s.view.Tenants(ctx) }

func (s *Snapshot) GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]ledger.Guard, error) {
	return s.view.GuardHistory(ctx, tenant, after, limit)
}

func (s *Snapshot) AllEventsAfter(ctx context.Context, seq int64, limit int) ([]ledger.Event, error) {
	return s.view.AllEventsAfter(ctx, seq, limit)
}

func (s *Snapshot) Checkpoints(ctx context.Context, n int64, limit int) ([]ledger.Checkpoint, error) {
	return s.view.Checkpoints(ctx, n, limit)
}

func (s *Snapshot) LastCheckpoint(ctx context.Context) (ledger.Checkpoint, error) {
	return s.view.LastCheckpoint(ctx)
}

func (s *Snapshot) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	return s.view.List(ctx, f)
}

func (s *Snapshot) Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error) {
	return s.view.Plan(ctx, tenant, operation, round)
}

func (s *Snapshot) Decisions(ctx context.Context, tenant, operation string) ([]ledger.Decision, error) {
	return s.view.Decisions(ctx, tenant, operation)
}

func (s *Snapshot) Evidence(ctx context.Context, tenant, operation string) ([]ledger.Evidence, error) {
	return s.view.Evidence(ctx, tenant, operation)
}
