package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"countersign/ledger"
)

// querier runs SELECTs: on the read connections (db.reader) or inside a write
// (*tx).
type querier interface {
	// each calls scan for every row.
	each(scan func(*sql.Rows) error, text string, args ...any) error
}

// one reads the one row that a statement gives; ledger.ErrNotFound when there
// is none.
func one[T any](q querier, scan func(*sql.Rows) (T, error), text string, args ...any) (T, error) {
	var got T
	found := false
	err := q.each(func(rows *sql.Rows) (err error) {
		got, err = scan(rows)
		found = true
		return err
	}, text, args...)
	if err == nil && !found {
		err = ledger.ErrNotFound
	}
	return got, err
}

// all reads every row; nil when there is none.
func all[T any](q querier, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	var list []T
	err := q.each(func(rows *sql.Rows) error {
		v, err := scan(rows)
		list = append(list, v)
		return err
	}, text, args...)
	return list, err
}

// column scans a row of one column.
func column[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// tx is what a write may use while the writer runs it. It must not be kept.
//
// A write may be run more than once (in a group, then alone), so it must set
// its results anew each time and have no other effect than through tx. To
// refuse, it returns an error of its own: all its statements are rolled back,
// and that error is the caller's answer. What must hold is best compared with a
// SELECT or with ON CONFLICT DO NOTHING and the number of rows. A broken
// constraint is an error that only rolls back this write; any other failing
// statement breaks the tx: nothing more reaches the database, and the writer
// takes over.
type tx struct {
	w *writer
	// broken is the first unexpected error; the transaction may be gone.
	broken error
}

// exec runs one statement and gives the number of rows it changed.
func (t *tx) exec(text string, args ...any) (int64, error) {
	stmt, err := t.prepare(text, args)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, t.failed(text, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, t.failed(text, err)
	}
	return n, nil
}

// each implements querier.
func (t *tx) each(scan func(*sql.Rows) error, text string, args ...any) error {
	stmt, err := t.prepare(text, args)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		return t.failed(text, err)
	}
	if err := drain(rows, scan); err != nil {
		return t.failed(text, err)
	}
	return nil
}

// drain reads to the end; an INSERT … RETURNING takes effect only then.
func drain(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close() //nolint:errcheck // rows.Err has what matters
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *tx) prepare(text string, args []any) (*sql.Stmt, error) {
	if t.broken != nil {
		return nil, t.broken
	}
	if h := t.w.hooks.Load(); h != nil {
		if err := h.statement(text, args); err != nil {
			return nil, t.failed(text, err)
		}
	}
	stmt, err := t.w.prepare(text)
	if err != nil {
		return nil, t.failed(text, err)
	}
	return stmt, nil
}

// failed marks the tx as broken, unless the error is one after which SQLite
// certainly keeps the transaction.
func (t *tx) failed(text string, err error) error {
	err = fmt.Errorf("sqlstore: %s: %w", firstWords(text), err)
	if !isConstraint(err) {
		t.broken = err
	}
	return err
}

// firstWords names a statement in an error.
func firstWords(text string) string {
	words := 0
	for i, r := range text {
		if r == ' ' || r == '\n' {
			if words++; words == 3 {
				return text[:i]
			}
		}
	}
	return text
}

// write hands do to the writer and waits for its answer: nil once it is
// durable, what do refused with, *ledger.Ambiguous when it can't be told
// whether it happened, or an error after which certainly nothing was written.
// See tx for what do may do. A ctx that ends while the write is queued or under
// way cancels only the waiting.
func (db *DB) write(ctx context.Context, do func(*tx) error) error {
	return db.writer.submit(ctx, db.writer.queue, do)
}

// writeFirst is write for what takes rights away or stops things: it overtakes
// everything that waits (S71).
func (db *DB) writeFirst(ctx context.Context, do func(*tx) error) error {
	return db.writer.submit(ctx, db.writer.urgent, do)
}

// reader runs SELECTs on the read connections until ctx ends. Each statement
// sees every answered write; two statements may see two states.
func (db *DB) reader(ctx context.Context) querier { return reader{db: db, ctx: ctx, keep: true} }

// readerOnce is reader for a text that is put together for one call: the
// statement is not kept.
func (db *DB) readerOnce(ctx context.Context) querier { return reader{db: db, ctx: ctx} }

type reader struct {
	db   *DB
	ctx  context.Context //nolint:containedctx // lives as long as one call
	keep bool
}

func (r reader) each(scan func(*sql.Rows) error, text string, args ...any) error {
	rows, err := r.query(text, args)
	if err == nil {
		err = drain(rows, scan)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: %s: %w", firstWords(text), err)
	}
	return nil
}

func (r reader) query(text string, args []any) (*sql.Rows, error) {
	if !r.keep {
		return r.db.readers.QueryContext(r.ctx, text, args...)
	}
	stmt, err := r.prepare(text)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(r.ctx, args...)
}

func (r reader) prepare(text string) (*sql.Stmt, error) {
	if stmt, ok := r.db.prepared.Load(text); ok {
		return stmt.(*sql.Stmt), nil
	}
	// Not the caller's context: the statement outlives the call.
	stmt, err := r.db.readers.PrepareContext(context.WithoutCancel(r.ctx), text)
	if err != nil {
		return nil, err
	}
	if first, loaded := r.db.prepared.LoadOrStore(text, stmt); loaded {
		return first.(*sql.Stmt), stmt.Close()
	}
	return stmt, nil
}
