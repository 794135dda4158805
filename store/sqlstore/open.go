package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"countersign/ledger"
)

// Errors of Open. Each comes wrapped in a sentence for the operator.
var (
	// ErrLocked: another process, or another DB in this one, has the file open.
	ErrLocked = errors.New("the ledger is in use")
	// ErrNetworkFileSystem: the file lies where locks and flushes can't be
	// relied on.
	ErrNetworkFileSystem = errors.New("the ledger can't live on a network file system")
	// ErrNewerSchema: a newer program has written the file.
	ErrNewerSchema = errors.New("the ledger was written by a newer version")
	// ErrNotALedger: the file is a database of something else.
	ErrNotALedger = errors.New("the file is not a ledger")
	// ErrNotDurable: SQLite did not take a setting without which acknowledged
	// writes could be lost (assumption A1).
	ErrNotDurable = errors.New("the ledger would not be durable")
)

// ErrClosed answers a write after Close; nothing was written.
var ErrClosed = errors.New("sqlstore: closed")

// Options say where the ledger is. Only Path is required.
type Options struct {
	// Path is the SQLite file. Its folder must exist; the file is made when it
	// is missing, readable by its owner only. Beside it stand SQLite's -wal and
	// -shm files and the lock file, Path + ".lock".
	Path string
	// Now is the clock below the store's own (DB.Now), which is asked at each write
	// for the life of a preview and for NotAfter. Default time.Now.
	Now func() time.Time
	// Logger gets what an operator should know about the file. Default none.
	Logger *slog.Logger
	// VFS names a disk that a test has registered with SQLite, to cut its power;
	// the database then lies there, and at Path only its lock. The program never
	// sets it.
	VFS string
}

// DB is a ledger.Store on one SQLite file. It is safe for concurrent use.
type DB struct {
	path string
	vfs  string
	now  func() time.Time // never goes back
	log  *slog.Logger
	// written is the latest time that the file knew when it was opened.
	written time.Time

	lock    io.Closer
	pool    *sql.DB // the writer's one connection
	writer  *writer
	readers *sql.DB
	// prepared holds the readers' statements by their text, a constant of this
	// package.
	prepared sync.Map

	closing  sync.Once
	closeErr error
}

var _ ledger.Store = (*DB)(nil)

// Open locks the file, brings its schema up to date and starts the writer. A
// file that is in use, lies on a network file system, was written by a newer
// version or belongs to another program is refused and stays as it is.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	path, err := realPath(o.Path)
	if err != nil {
		return nil, err
	}
	if err := checkFileSystem(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	db := &DB{path: path, vfs: o.VFS, log: o.Logger, lock: lock}
	if err := db.start(ctx, o.Now); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// realPath follows links, so that one file has one lock however it is named.
func realPath(path string) (string, error) {
	if path == "" {
		return "", errors.New("sqlstore: no path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlstore: %w", err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("sqlstore: the folder of the ledger: %w", err)
	}
	path = filepath.Join(dir, filepath.Base(path))
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("sqlstore: the ledger file: %w", err)
	}
	return path, nil
}

func (db *DB) start(ctx context.Context, now func() time.Time) error {
	// SQLite would make the file readable by everybody; its -wal and -shm files
	// take their mode from it.
	f, err := os.OpenFile(db.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("sqlstore: the ledger file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("sqlstore: the ledger file: %w", err)
	}
	if err := db.checkOurs(ctx); err != nil {
		return err
	}
	if db.pool, err = sql.Open("sqlite", db.dsn(writerPragmas)); err != nil {
		return fmt.Errorf("sqlstore: open: %w", err)
	}
	db.pool.SetMaxOpenConns(1)
	if err := db.migrate(ctx); err != nil {
		return err
	}
	if db.readers, err = sql.Open("sqlite", db.dsn(readerPragmas)); err != nil {
		return fmt.Errorf("sqlstore: open: %w", err)
	}
	n := max(4, 2*runtime.GOMAXPROCS(0))
	db.readers.SetMaxOpenConns(n)
	db.readers.SetMaxIdleConns(n)
	if err := db.readers.PingContext(ctx); err != nil {
		return fmt.Errorf("sqlstore: open for reading: %w", err)
	}
	if err := db.startClock(ctx, now); err != nil {
		return err
	}
	w := newWriter(db.pool, db.log, db.now)
	if err := w.connect(); err != nil {
		return err
	}
	db.writer = w
	go w.run()
	return nil
}

var (
	writerPragmas = []string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		// On macOS fsync alone does not reach the platter.
		"fullfsync(1)", "checkpoint_fullfsync(1)",
		"cache_size(-65536)", "temp_store(MEMORY)",
	}
	readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "temp_store(MEMORY)"}
)

// dsn names a file to the driver. The path is escaped: a ? or # in it is part
// of the name.
func dsn(path string, pragmas []string) string {
	q := url.Values{"_pragma": pragmas, "_txlock": {"immediate"}, "_dqs": {"0"}}
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + q.Encode()
}

// dsn names the ledger's own file to the driver.
func (db *DB) dsn(pragmas []string) string {
	if db.vfs == "" {
		return dsn(db.path, pragmas)
	}
	return dsn(db.path, pragmas) + "&vfs=" + url.QueryEscape(db.vfs)
}

// checkOurs refuses a database that holds tables but none of ours, before
// anything in it is changed. An empty file will be ours.
func (db *DB) checkOurs(ctx context.Context) (err error) {
	pool, err := sql.Open("sqlite", db.dsn([]string{"busy_timeout(5000)", "query_only(1)"}))
	if err != nil {
		return fmt.Errorf("sqlstore: open: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	var ours, others int
	err = pool.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE name = 'operations'),
		count(*) FILTER (WHERE name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version')
		FROM sqlite_master WHERE type = 'table'`).Scan(&ours, &others)
	if err != nil {
		return fmt.Errorf("sqlstore: %s can't be read: %w", db.path, err)
	}
	if ours == 0 && others > 0 {
		return fmt.Errorf("sqlstore: %w: %s holds the tables of another program; name another file", ErrNotALedger, db.path)
	}
	return nil
}

// checkDurable reads back what must be in force on the writer's connection.
func checkDurable(ctx context.Context, conn *sql.Conn) error {
	for _, must := range []struct{ pragma, value, words string }{
		{"journal_mode", "wal", "write-ahead logging"},
		{"synchronous", "2", "a flush at each commit (synchronous=FULL)"},
		{"foreign_keys", "1", "the check of foreign keys"},
	} {
		var got string
		if err := conn.QueryRowContext(ctx, "PRAGMA "+must.pragma).Scan(&got); err != nil {
			return fmt.Errorf("sqlstore: read %s: %w", must.pragma, err)
		}
		if got != must.value {
			return fmt.Errorf("sqlstore: %w: %s could not be switched on (%s is %q, must be %q)", ErrNotDurable, must.words, must.pragma, got, must.value)
		}
	}
	return nil
}

// Close answers what is queued, then lets go of the file. Writes that come
// later get ErrClosed.
func (db *DB) Close() error {
	db.closing.Do(func() {
		var errs []error
		if db.writer != nil {
			errs = append(errs, db.writer.close())
		}
		if db.readers != nil {
			errs = append(errs, db.readers.Close())
		}
		// Last of all: the last connection folds the WAL into the file.
		if db.pool != nil {
			errs = append(errs, db.pool.Close())
		}
		if db.lock != nil {
			errs = append(errs, db.lock.Close())
		}
		db.closeErr = errors.Join(errs...)
	})
	return db.closeErr
}
