package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"countersign/ledger"
)

// dueColumns say which column tells when a kind is due. It is NULL while the
// operation is none of that kind.
var dueColumns = map[ledger.DueKind]string{
	ledger.DueDispatch: "dispatch_at",
	ledger.DueLease:    "lease_at",
	ledger.DueExpiry:   "expire_at",
}

// Due implements ledger.Store. A claim belongs to the version that it was made
// on: an operation that moved may be claimed again at once.
func (db *DB) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	column, ok := dueColumns[d.Kind]
	if !ok {
		return nil, fmt.Errorf("sqlstore: nothing is due as %q", d.Kind)
	}
	if d.Limit <= 0 {
		return nil, nil
	}
	text := `SELECT o.n, o.version, o.doc FROM operations o
		WHERE o.` + column + ` <= $1 AND NOT EXISTS (SELECT 1 FROM claims c
			WHERE c.operation = o.n AND c.kind = $2 AND c.version = o.version AND c.until > $1)
		ORDER BY o.` + column + `, o.n LIMIT $3`
	args := []any{nanos(d.Now), string(d.Kind), d.Limit}

	// Mostly there is nothing, and that needs no write.
	found, err := all(db.reader(ctx), due, text, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	err = db.write(ctx, func(t *tx) (err error) {
		if _, err = t.exec(`DELETE FROM claims WHERE until <= $1`, nanos(d.Now)); err != nil {
			return err
		}
		if found, err = all(t, due, text, args...); err != nil {
			return err
		}
		for _, f := range found {
			if _, err = t.exec(`INSERT INTO claims (operation, kind, version, owner, until) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (operation, kind) DO UPDATE
				SET version = excluded.version, owner = excluded.owner, until = excluded.until`,
				f.row, string(d.Kind), f.version, d.Owner, nanos(d.Until)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ops := make([]ledger.Operation, len(found))
	for i, f := range found {
		ops[i] = f.op
	}
	return ops, nil
}

type dueRow struct {
	row, version int64
	op           ledger.Operation
}

func due(rows *sql.Rows) (d dueRow, err error) {
	var doc string
	if err = rows.Scan(&d.row, &d.version, &doc); err == nil {
		err = decode(doc, &d.op)
	}
	return d, err
}
