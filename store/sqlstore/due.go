package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"countersign/ledger"
)

// dueColumns say which column tells since when a kind is due. It is NULL while
// the operation is none of that kind.
var dueColumns = map[ledger.DueKind]string{
	ledger.DueDispatch: "dispatch_at",
	ledger.DueLease:    "lease_at",
	ledger.DueExpiry:   "expire_at",
	ledger.DueDoubt:    "doubt_at",
}

// Due implements ledger.Store. A claim moves the column to its end; the next
// transition sets it anew. So the index holds what may be claimed in the order
// of waiting, however much of it can't be moved, and a claim belongs to the
// version that it was made on.
func (db *DB) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	column, ok := dueColumns[d.Kind]
	if !ok {
		return nil, fmt.Errorf("sqlstore: nothing is due as %q", d.Kind)
	}
	if d.Limit <= 0 {
		return nil, nil
	}
	except, args := "", []any{nanos(d.Now), d.Limit}
	for i, tool := range d.Except {
		except += fmt.Sprintf(" AND tool <> $%d", i+3)
		args = append(args, tool)
	}
	find := `SELECT n, doc FROM operations WHERE ` + column + ` <= $1` + except + ` ORDER BY ` + column + `, n LIMIT $2`
	claim := `UPDATE operations SET ` + column + ` = $1 WHERE n = $2`

	// Mostly there is nothing, and that needs no write.
	found, err := all(db.reader(ctx), due, find, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	err = db.write(ctx, func(t *tx) (err error) {
		if found, err = all(t, due, find, args...); err != nil {
			return err
		}
		for _, f := range found {
			if _, err = t.exec(claim, nanos(d.Until), f.row); err != nil {
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

// Defer implements ledger.Store.
func (db *DB) Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error {
	column, ok := dueColumns[kind]
	if !ok {
		return fmt.Errorf("sqlstore: nothing is due as %q", kind)
	}
	return db.write(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE operations SET `+column+` = $1
			WHERE id = $2 AND tenant = $3 AND version = $4 AND `+column+` IS NOT NULL`,
			nanos(until), op.ID, op.Tenant, op.Version)
		return err
	})
}

type dueRow struct {
	row int64
	op  ledger.Operation
}

func due(rows *sql.Rows) (d dueRow, err error) {
	var doc string
	if err = rows.Scan(&d.row, &doc); err == nil {
		err = decode(doc, &d.op)
	}
	return d, err
}
