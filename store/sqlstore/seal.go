package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"countersign/ledger"
)

// Seal implements ledger.Store.
func (db *DB) Seal(ctx context.Context, c ledger.Checkpoint) error {
	doc, err := encode(c)
	if err != nil {
		return err
	}
	return db.write(ctx, func(t *tx) error {
		there, err := one(t, document[ledger.Checkpoint], `SELECT doc FROM checkpoints WHERE n = $1`, c.N)
		if err == nil && there.Hash == c.Hash {
			return nil // this very checkpoint, told twice
		}
		if err != nil && !isNotFound(err) {
			return err
		}
		newest, err := lastCheckpoint(t)
		switch {
		case err != nil:
			return err
		case newest.N+1 != c.N || newest.Hash != c.Prev:
			return &ledger.Refused{Why: ledger.CheckpointMoved}
		}
		_, err = t.exec(`INSERT INTO checkpoints (n, doc) VALUES ($1, $2)`, c.N, doc)
		return err
	})
}

// Checkpoints implements ledger.Store.
func (db *DB) Checkpoints(ctx context.Context, n int64, limit int) ([]ledger.Checkpoint, error) {
	return all(db.reader(ctx), document[ledger.Checkpoint],
		`SELECT doc FROM checkpoints WHERE n > $1 ORDER BY n LIMIT $2`, n, max(limit, 0))
}

// LastCheckpoint implements ledger.Store.
func (db *DB) LastCheckpoint(ctx context.Context) (ledger.Checkpoint, error) {
	return lastCheckpoint(db.reader(ctx))
}

func lastCheckpoint(q querier) (ledger.Checkpoint, error) {
	c, err := one(q, document[ledger.Checkpoint], `SELECT doc FROM checkpoints ORDER BY n DESC LIMIT 1`)
	if isNotFound(err) {
		return ledger.Checkpoint{}, nil
	}
	return c, err
}

// Tally implements ledger.Store.
func (db *DB) Tally(ctx context.Context, tenant string) (ledger.Tally, error) {
	tally := ledger.Tally{States: map[ledger.State]int64{}}
	q := db.reader(ctx)
	type group struct {
		state, doubt string
		onList, n    int64
	}
	groups, err := all(q, func(rows *sql.Rows) (g group, err error) {
		err = rows.Scan(&g.state, &g.doubt, &g.onList, &g.n)
		return g, err
	}, `SELECT state, doubt, on_list, count(*) FROM operations WHERE tenant = $1 GROUP BY state, doubt, on_list`, tenant)
	if err != nil {
		return tally, err
	}
	for _, g := range groups {
		tally.States[ledger.State(g.state)] += g.n
		if g.onList == 1 {
			tally.OnList += g.n
		}
		if g.doubt != "" {
			tally.Doubts += g.n
		}
		if g.doubt == string(ledger.DoubtReconciled) {
			tally.Reconciled += g.n
		}
	}
	for place, into := range map[int]*int64{1: &tally.Effects, 2: &tally.Duplicates} {
		if *into, err = one(q, column[int64],
			`SELECT count(*) FROM evidence WHERE tenant = $1 AND place = $2`, tenant, place); err != nil {
			return tally, err
		}
	}
	oldest, err := one(q, column[int64], `SELECT first_unknown FROM operations
		WHERE tenant = $1 AND first_unknown IS NOT NULL ORDER BY first_unknown LIMIT 1`, tenant)
	switch {
	case isNotFound(err):
		return tally, nil
	case err != nil:
		return tally, err
	}
	tally.OldestUnknown = time.Unix(0, oldest).UTC()
	return tally, nil
}
