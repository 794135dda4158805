package sqlstore

import (
	"context"
	"fmt"

	"countersign/ledger"
)

// LedgerID implements ledger.Store.
func (db *DB) LedgerID(ctx context.Context, candidate string) (string, error) {
	const read = `SELECT value FROM settings WHERE name = 'ledger_id'`
	id, err := one(db.reader(ctx), column[string], read)
	if !isNotFound(err) {
		return id, err
	}
	err = db.write(ctx, func(t *tx) (err error) {
		if _, err = t.exec(`INSERT INTO settings (name, value) VALUES ('ledger_id', $1)
			ON CONFLICT (name) DO NOTHING`, candidate); err != nil {
			return err
		}
		id, err = one(t, column[string], read)
		return err
	})
	return id, err
}

// Guard implements ledger.Store.
func (db *DB) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	g, err := one(db.reader(ctx), document[ledger.Guard],
		`SELECT doc FROM guards WHERE tenant = $1 ORDER BY epoch DESC LIMIT 1`, tenant)
	if isNotFound(err) {
		return ledger.Guard{Tenant: tenant}, nil
	}
	return g, err
}

// GuardHistory implements ledger.Store.
func (db *DB) GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]ledger.Guard, error) {
	return all(db.reader(ctx), document[ledger.Guard],
		`SELECT doc FROM guards WHERE tenant = $1 AND epoch > $2 ORDER BY epoch LIMIT $3`, tenant, after, max(limit, 0))
}

// Tenants implements ledger.Store.
func (db *DB) Tenants(ctx context.Context) ([]string, error) {
	// From one name to the next along the index: a tenant may have many rows.
	return all(db.reader(ctx), column[string],
		`WITH RECURSIVE names (tenant) AS (
			SELECT min(tenant) FROM guards
			UNION ALL SELECT (SELECT min(g.tenant) FROM guards g WHERE g.tenant > names.tenant) FROM names
			WHERE names.tenant IS NOT NULL)
		SELECT tenant FROM names WHERE tenant IS NOT NULL`)
}

// ChangeGuard implements ledger.Store. It overtakes all waiting writes. The one
// writer makes it exclude every Open and Apply, also those that evaluated epoch
// 0, the row that is not there yet.
func (db *DB) ChangeGuard(ctx context.Context, c ledger.GuardChange) ([]ledger.Operation, error) {
	var running []ledger.Operation
	err := db.writeFirst(ctx, func(t *tx) (err error) {
		if err := putGuard(t, c.WriteID, c.Expect, c.Guard); err != nil {
			if again, e := guardWritten(t, c.Guard.Tenant, c.WriteID); e != nil || !again {
				return firstOf(e, err)
			}
		}
		running, err = all(t, document[ledger.Operation],
			`SELECT doc FROM operations WHERE tenant = $1 AND state = $2 ORDER BY n`,
			c.Guard.Tenant, string(ledger.Running))
		return err
	})
	if err != nil {
		return nil, err
	}
	return running, nil
}

// putGuard writes the tenant's next guard row if the one in force still has the
// expected epoch.
func putGuard(t *tx, writeID string, expect int64, g ledger.Guard) error {
	if g.Epoch != expect+1 {
		return fmt.Errorf("sqlstore: a guard row of epoch %d can't follow %d", g.Epoch, expect)
	}
	if err := checkEpoch(t, g.Tenant, expect); err != nil {
		return err
	}
	doc, err := encode(g)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO guards (tenant, epoch, write_id, doc) VALUES ($1, $2, $3, $4)`,
		g.Tenant, g.Epoch, writeID, doc)
	return err
}

// checkEpoch refuses unless the tenant's guard row has the epoch.
func checkEpoch(t *tx, tenant string, epoch int64) error {
	now, err := one(t, column[int64],
		`SELECT coalesce(max(epoch), 0) FROM guards WHERE tenant = $1`, tenant)
	if err != nil {
		return err
	}
	if now != epoch {
		return &ledger.Refused{Why: ledger.EpochMoved}
	}
	return nil
}

// guardWritten reports whether a change of the tenant's guard row carried the
// write id.
func guardWritten(t *tx, tenant, writeID string) (bool, error) {
	n, err := one(t, column[int],
		`SELECT count(*) FROM guards WHERE tenant = $1 AND write_id = $2`, tenant, writeID)
	return n > 0, err
}

// firstOf gives the first error that is one.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
