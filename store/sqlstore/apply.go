package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"countersign/ledger"
)

// Apply implements ledger.Store. Of several conditions that don't hold, a lost
// race is named first.
func (db *DB) Apply(ctx context.Context, tr ledger.Transition) error {
	m, err := moveRows(tr)
	if err != nil {
		return err
	}
	return db.write(ctx, func(t *tx) error { return db.apply(t, tr, m) })
}

// moved is a transition as it goes into the tables.
type moved struct {
	doc, event, decision, evidence, plan string
	also                                 []moved
}

func moveRows(tr ledger.Transition) (m moved, err error) {
	op := tr.Operation
	if tr.WriteID == "" || op.Version != tr.Expect+1 {
		return m, fmt.Errorf("sqlstore: version %d of %s can't follow %d", op.Version, op.ID, tr.Expect)
	}
	var errs [6]error
	m.doc, errs[0] = encode(op)
	m.event, errs[1] = encode(tr.Event)
	if tr.Decision != nil {
		m.decision, errs[2] = encode(tr.Decision)
	}
	if tr.Evidence != nil {
		m.evidence, errs[3] = encode(tr.Evidence)
	}
	if tr.Plan != nil {
		m.plan, errs[4] = encode(newPlanDoc(*tr.Plan))
	}
	m.also, errs[5] = besides(tr.Also)
	return m, errors.Join(errs[:]...)
}

func (db *DB) apply(t *tx, tr ledger.Transition, m moved) error {
	op := tr.Operation
	row, version, err := rowOf(t, op.Tenant, op.ID)
	if err != nil {
		return err
	}
	if version != tr.Expect {
		return lost(t, row, tr.WriteID)
	}
	if tr.Epoch != nil {
		if err := checkEpoch(t, op.Tenant, *tr.Epoch); err != nil {
			return err
		}
	}
	if err := db.checkTime(tr.NotAfter); err != nil {
		return err
	}
	if tr.Guard != nil {
		if err := putGuard(t, tr.WriteID, tr.Guard.Epoch-1, *tr.Guard); err != nil {
			return err
		}
	}
	if tr.Decision != nil {
		if err := putDecision(t, row, *tr.Decision, m.decision); err != nil {
			return err
		}
	}
	if tr.Evidence != nil {
		if err := putEvidence(t, row, op.Tenant, *tr.Evidence, m.evidence); err != nil {
			return err
		}
	}
	if tr.Plan != nil {
		if err := putPlan(t, row, op.Round, m.plan); err != nil {
			return err
		}
	}
	if err := putRow(t, row, op, tr.Expect, tr.WriteID, m); err != nil {
		return err
	}
	for i, b := range tr.Also {
		if err := moveBeside(t, tr.WriteID, b, m.also[i]); err != nil {
			return err
		}
	}
	return nil
}

// putRow replaces an operation's row and writes its event.
func putRow(t *tx, row int64, op ledger.Operation, expect int64, writeID string, m moved) error {
	n, err := t.exec(`UPDATE operations SET version = $1, state = $2, on_list = $3, asked = $4,
		dispatch_at = $5, lease_at = $6, expire_at = $7, doubt_at = $8, doubt = $9, first_unknown = $10,
		doc = $11 WHERE n = $12 AND version = $13`,
		append(moving(op), m.doc, row, expect)...)
	if err != nil {
		return err
	}
	if n != 1 {
		return lost(t, row, writeID)
	}
	return putEvent(t, row, op, writeID, m.event)
}

// besides encodes the moves of other operations in a write.
func besides(list []ledger.Move) ([]moved, error) {
	out := make([]moved, len(list))
	for i, b := range list {
		if b.Operation.Version != b.Expect+1 {
			return nil, fmt.Errorf("sqlstore: version %d of %s can't follow %d", b.Operation.Version, b.Operation.ID, b.Expect)
		}
		var errs [2]error
		out[i].doc, errs[0] = encode(b.Operation)
		out[i].event, errs[1] = encode(b.Event)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moveBeside moves another operation in a write. One that is lost undoes all of
// the write.
func moveBeside(t *tx, writeID string, b ledger.Move, m moved) error {
	row, version, err := rowOf(t, b.Operation.Tenant, b.Operation.ID)
	if err != nil {
		return err
	}
	if version != b.Expect { // also where this very write has moved it already
		op, err := one(t, document[ledger.Operation], `SELECT doc FROM operations WHERE n = $1`, row)
		if err != nil {
			return err
		}
		return &ledger.Lost{Current: op}
	}
	return putRow(t, row, b.Operation, b.Expect, writeID, m)
}

// rowOf finds an operation's row number and version.
func rowOf(q querier, tenant, id string) (row, version int64, err error) {
	row, err = one(q, func(rows *sql.Rows) (n int64, err error) {
		err = rows.Scan(&n, &version)
		return n, err
	}, `SELECT n, version FROM operations WHERE id = $1 AND tenant = $2`, id, tenant)
	return row, version, err
}

// lost answers a transition that came too late: with what stands there now, or
// as applied when it was this very write that moved the row.
func lost(t *tx, row int64, writeID string) error {
	n, err := one(t, column[int],
		`SELECT count(*) FROM events WHERE write_ref = $1 AND write_id = $2 AND operation = $3`,
		writeRef(writeID), writeID, row)
	if err != nil || n > 0 {
		return err
	}
	op, err := one(t, document[ledger.Operation], `SELECT doc FROM operations WHERE n = $1`, row)
	if err != nil {
		return err
	}
	return &ledger.Lost{Current: op}
}

// putDecision writes a person's word, once for each round; taking a yes back
// is a second word.
func putDecision(t *tx, row int64, d ledger.Decision, doc string) error {
	word := "decide"
	if d.Verb == ledger.VerbWithdraw {
		word = "withdraw"
	}
	n, err := t.exec(`INSERT INTO decisions (operation, round, person, word, doc) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (operation, round, person, word) DO NOTHING`, row, d.Round, d.Person, word, doc)
	if err != nil {
		return err
	}
	if n == 0 {
		return &ledger.Refused{Why: ledger.AlreadyDecided}
	}
	return nil
}

// AddEvidence implements ledger.Store.
func (db *DB) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	doc, err := encode(e)
	if err != nil {
		return err
	}
	return db.write(ctx, func(t *tx) error {
		row, _, err := rowOf(t, tenant, e.Operation)
		if err != nil {
			return err
		}
		return putEvidence(t, row, tenant, e, doc)
	})
}
