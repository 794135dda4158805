package sqlstore

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"countersign/ledger"
)

// primary gives SQLite's primary result code, or 0.
func primary(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

func isBusy(err error) bool {
	code := primary(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
}

// isNotFound: the statement gave no row.
func isNotFound(err error) bool { return errors.Is(err, ledger.ErrNotFound) }

func isFull(err error) bool { return primary(err) == sqlite3.SQLITE_FULL }

// isConstraint: the statement alone was undone; the transaction goes on.
func isConstraint(err error) bool { return primary(err) == sqlite3.SQLITE_CONSTRAINT }

// nothingWritten gives the answer to a write that was certainly rolled back.
func nothingWritten(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ledger.ErrDiskFull, err)
	}
	return err
}
