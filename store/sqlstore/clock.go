package sqlstore

import (
	"context"
	"fmt"
	"time"

	"countersign/ledger"
)

// The store's clock never goes back, also over a restart: the time is written into
// the file with the writes, at most once a second. A gateway that only sweeps
// previews writes each minute, so that a file knows the time of its last use.

// stampEvery is how far the file's time may be behind its newest write.
const stampEvery = time.Second

// Now is the store's clock. It never shows less than it, or the file, has shown.
func (db *DB) Now() time.Time { return db.now() }

// Written is the latest time that the file knew when it was opened; zero when it is
// new.
func (db *DB) Written() time.Time { return db.written }

// ResetClock makes the file know an earlier time, which a recovery may when nothing
// in it hangs on its time any more. It holds from the next Open on; this DB writes no
// time any more.
func (db *DB) ResetClock(ctx context.Context, now time.Time) error {
	return db.write(ctx, func(t *tx) error {
		t.w.stamped = time.Unix(1<<40, 0)
		return putClock(t, now)
	})
}

// startClock begins behind what the file knows to be over.
func (db *DB) startClock(ctx context.Context, now func() time.Time) error {
	n, err := one(db.reader(ctx), column[int64], `SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'clock'`)
	switch {
	case isNotFound(err):
	case err != nil:
		return fmt.Errorf("sqlstore: read the clock: %w", err)
	default:
		db.written = time.Unix(0, n).UTC()
	}
	db.now = ledger.NewClock(now, db.written).Now
	return nil
}

// stamp writes the time beside the writes of a transaction.
func (w *writer) stamp() error {
	now := w.now()
	if now.Sub(w.stamped) < stampEvery {
		return nil
	}
	if err := putClock(&tx{w: w}, now); err != nil {
		return err
	}
	w.stamped = now // early if the commit fails: the next second writes it again
	return nil
}

func putClock(t *tx, now time.Time) error {
	_, err := t.exec(`INSERT INTO settings (name, value) VALUES ('clock', CAST($1 AS TEXT))
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, nanos(now))
	return err
}
