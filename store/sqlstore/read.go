package sqlstore

import (
	"context"
	"database/sql"

	"countersign/ledger"
)

// Head implements ledger.Store.
func (db *DB) Head(ctx context.Context, tenant, tool, key string) (ledger.Head, error) {
	op, err := one(db.reader(ctx), document[ledger.Operation],
		`SELECT doc FROM operations WHERE slot = $1 AND tool = $2 AND tenant = $3 AND key = $4
		ORDER BY generation DESC LIMIT 1`, slotRef(tenant, ledger.KeyDigest(key)), tool, tenant, key)
	if isNotFound(err) {
		return ledger.Head{}, nil
	}
	return ledger.Head{Operation: op}, err
}

// Generation implements ledger.Store.
func (db *DB) Generation(ctx context.Context, tenant, tool, keyDigest string, generation int) (ledger.Operation, error) {
	op, err := one(db.reader(ctx), document[ledger.Operation],
		`SELECT doc FROM operations WHERE slot = $1 AND tool = $2 AND generation = $3 AND tenant = $4`,
		slotRef(tenant, keyDigest), tool, generation, tenant)
	if err == nil && op.KeyDigest != keyDigest {
		return ledger.Operation{}, ledger.ErrNotFound
	}
	return op, err
}

// RejectedAsk implements ledger.Store.
func (db *DB) RejectedAsk(ctx context.Context, tenant, tool, argsDigest, agent string) (ledger.Operation, error) {
	return one(db.reader(ctx), document[ledger.Operation],
		`SELECT doc FROM operations WHERE asked = $1 ORDER BY n DESC LIMIT 1`,
		askedRef(tenant, tool, argsDigest, agent))
}

// Operation implements ledger.Store.
func (db *DB) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	return one(db.reader(ctx), document[ledger.Operation],
		`SELECT doc FROM operations WHERE id = $1 AND tenant = $2`, id, tenant)
}

// Decisions implements ledger.Store.
func (db *DB) Decisions(ctx context.Context, tenant, operation string) ([]ledger.Decision, error) {
	return allOf[ledger.Decision](ctx, db, tenant, operation,
		`SELECT d.doc FROM decisions d WHERE d.operation = $1 ORDER BY d.n`)
}

// Evidence implements ledger.Store.
func (db *DB) Evidence(ctx context.Context, tenant, operation string) ([]ledger.Evidence, error) {
	return allOf[ledger.Evidence](ctx, db, tenant, operation,
		`SELECT e.doc FROM evidence e WHERE e.operation = $1 ORDER BY e.n`)
}

// allOf reads documents that belong to one operation of the tenant;
// ledger.ErrNotFound when there is no such operation.
func allOf[T any](ctx context.Context, db *DB, tenant, operation, text string) ([]T, error) {
	q := db.reader(ctx)
	row, _, err := rowOf(q, tenant, operation)
	if err != nil {
		return nil, err
	}
	return all(q, document[T], text, row)
}

// Events implements ledger.Store.
func (db *DB) Events(ctx context.Context, tenant, operation string) ([]ledger.Event, error) {
	q := db.reader(ctx)
	row, _, err := rowOf(q, tenant, operation)
	if err != nil {
		return nil, err
	}
	return all(q, event, `SELECT seq, doc FROM events WHERE operation = $1 ORDER BY version`, row)
}

// EventsAfter implements ledger.Store.
func (db *DB) EventsAfter(ctx context.Context, tenant string, seq int64, limit int) ([]ledger.Event, error) {
	return all(db.reader(ctx), event,
		`SELECT seq, doc FROM events WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
		tenant, seq, max(limit, 0))
}

// AllEventsAfter implements ledger.Store.
func (db *DB) AllEventsAfter(ctx context.Context, seq int64, limit int) ([]ledger.Event, error) {
	return all(db.reader(ctx), event,
		`SELECT seq, doc FROM events WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, max(limit, 0))
}

func event(rows *sql.Rows) (e ledger.Event, err error) {
	var seq int64
	var doc string
	if err = rows.Scan(&seq, &doc); err == nil {
		err = decode(doc, &e)
	}
	e.Seq = seq
	return e, err
}

// Ping implements ledger.Store.
func (db *DB) Ping(ctx context.Context) error {
	_, err := one(db.reader(ctx), column[int], `SELECT count(*) FROM settings`)
	return err
}
