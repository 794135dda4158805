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
	text := `WITH waiting AS (
			SELECT o.n, CASE WHEN c.until > o.` + column + ` THEN c.until ELSE o.` + column + ` END AS since
			FROM operations o
			LEFT JOIN claims c ON c.operation = o.n AND c.kind = $2 AND c.version = o.version
			WHERE o.` + column + ` <= $1 AND (c.until IS NULL OR c.until <= $1)
			ORDER BY since, o.n LIMIT $3)
		SELECT o.n, o.version, o.doc FROM waiting w JOIN operations o ON o.n = w.n ORDER BY w.since, w.n`
	args := []any{nanos(d.Now), string(d.Kind), d.Limit}

	// Mostly there is nothing, and that needs no write.
	found, err := all(db.reader(ctx), due, text, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	err = db.write(ctx, func(t *tx) (err error) {
		// A claim that is over still gives its operation its place, until it moves.
		if _, err = t.exec(`DELETE FROM claims WHERE NOT EXISTS
			(SELECT 1 FROM operations o WHERE o.n = claims.operation AND o.version = claims.version)`); err != nil {
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
