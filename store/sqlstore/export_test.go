package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"countersign/ledger"
)

// Faults breaks a DB on demand; it is what storetest.Faults asks for.
type Faults struct {
	w *writer

	mu     sync.Mutex
	hold   chan struct{} // closed by release
	held   func() int
	lose   bool
	commit error
	writes map[string]*failure
	groups []int
}

type failure struct {
	err   error
	ends  bool
	times int
}

// Break puts faults under the DB's writer.
func Break(db *DB) *Faults {
	f := &Faults{w: db.writer, writes: map[string]*failure{}}
	db.writer.hooks.Store(&hooks{gather: f.gather, statement: f.statement, commit: f.beforeCommit, committed: f.afterCommit})
	return f
}

// Hold keeps the next writes waiting; those that wait when release is called
// are one group.
func (f *Faults) Hold() (wait func(n int), release func()) {
	hold := make(chan struct{})
	f.mu.Lock()
	f.hold = hold
	f.mu.Unlock()
	wait = func(n int) {
		for {
			f.mu.Lock()
			held := f.held
			f.mu.Unlock()
			if held != nil && held() >= n {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	release = sync.OnceFunc(func() {
		f.mu.Lock()
		f.hold, f.held = nil, nil
		f.mu.Unlock()
		close(hold)
	})
	return wait, release
}

// LoseNextAnswer lets the next commit happen and its answer get lost.
func (f *Faults) LoseNextAnswer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = true
}

// FailNextCommit makes the next commit fail in a way that says nothing.
func (f *Faults) FailNextCommit() { f.FailNextCommitWith(errors.New("injected: the disk said no")) }

// FailNextCommitWith makes the next commit fail with err.
func (f *Faults) FailNextCommitWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = err
}

// FailWrite makes a statement of the write fail as many times. endsTransaction
// makes it take the transaction with it, as a full disk or an interrupt may.
func (f *Faults) FailWrite(writeID string, err error, endsTransaction bool, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes[writeID] = &failure{err, endsTransaction, times}
}

// Groups gives the sizes of the groups that were committed or tried.
func (f *Faults) Groups() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.groups)
}

func (f *Faults) gather(waiting func() int) {
	f.mu.Lock()
	hold := f.hold
	if hold != nil {
		f.held = waiting
	}
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f.mu.Lock()
	f.groups = append(f.groups, waiting())
	f.mu.Unlock()
}

func (f *Faults) statement(_ string, args []any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range args {
		id, ok := a.(string)
		if !ok {
			continue
		}
		fail := f.writes[id]
		if fail == nil || fail.times == 0 {
			continue
		}
		fail.times--
		if fail.ends {
			if _, err := f.w.conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
				panic(err)
			}
		}
		return fail.err
	}
	return nil
}

func (f *Faults) beforeCommit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.commit
	f.commit = nil
	return err
}

func (f *Faults) afterCommit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lose {
		return nil
	}
	f.lose = false
	return errors.New("injected: the answer was lost")
}

// CheckDurable is what Open asks of the writer's connection.
var CheckDurable = checkDurable

// Pragma reads a setting of the writer's connection.
func Pragma(t testing.TB, db *DB, name string) (value string) {
	t.Helper()
	onWriter(t, db, func(conn *sql.Conn) error {
		return conn.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value)
	})
	return value
}

// Exec runs a statement on the writer's connection.
func Exec(t testing.TB, db *DB, text string) {
	t.Helper()
	onWriter(t, db, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(t.Context(), text)
		return err
	})
}

func onWriter(t testing.TB, db *DB, do func(*sql.Conn) error) {
	t.Helper()
	if err := db.write(t.Context(), func(t *tx) error { return do(t.w.conn) }); err != nil {
		t.Fatal(err)
	}
}

// Explain gives the plan of a statement, one line for each step.
func Explain(t testing.TB, db *DB, text string, args ...any) (steps []string) {
	t.Helper()
	rows, err := db.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	err = drain(rows, func(rows *sql.Rows) error {
		var id, parent, unused int
		var detail string
		err := rows.Scan(&id, &parent, &unused, &detail)
		steps = append(steps, detail)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// SlotRef is the indexed name of a key.
var SlotRef = slotRef

// Listing gives the statement of a list.
func Listing(f ledger.Filter) (string, []any) { return listing(f, 1<<40, 51) }

// RunListing gives the statement of a list of runs.
func RunListing(f ledger.RunFilter) (string, []any) { return runListing(f, 1<<40) }

// Statements gives every text that was prepared so far.
func Statements(t testing.TB, db *DB) (texts []string) {
	t.Helper()
	db.prepared.Range(func(text, _ any) bool {
		texts = append(texts, text.(string))
		return true
	})
	if err := db.write(t.Context(), func(t *tx) error {
		texts = slices.AppendSeq(texts, maps.Keys(t.w.stmts))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// MaxQueue is how many writes wait behind the one that is served.
const MaxQueue = maxQueue

// Panic runs a write that panics.
func Panic(db *DB) error {
	return db.write(context.Background(), func(*tx) error { panic("boom") })
}

// ForeignKeyViolations gives the tables with rows that point nowhere.
func ForeignKeyViolations(t testing.TB, db *DB) (tables []string) {
	t.Helper()
	onWriter(t, db, func(conn *sql.Conn) error {
		rows, err := conn.QueryContext(t.Context(), "SELECT \"table\" FROM pragma_foreign_key_check")
		if err != nil {
			return err
		}
		return drain(rows, func(rows *sql.Rows) error {
			table, err := column[string](rows)
			tables = append(tables, table)
			return err
		})
	})
	return tables
}

// Careless runs a write that goes on after a statement failed. The failure
// takes the transaction with it, so what follows would commit by itself.
func Careless(db *DB) error {
	return db.write(context.Background(), func(t *tx) error {
		if _, err := t.w.conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			return err
		}
		_, _ = t.exec("INSERT INTO settings (name) SELECT json_array(")
		_, _ = t.exec("INSERT INTO settings (name, value) VALUES ('careless', 'x')")
		return nil
	})
}

// Setting reads a setting; "" when there is none.
func Setting(t testing.TB, db *DB, name string) string {
	t.Helper()
	value, err := one(db.reader(t.Context()), column[string], "SELECT value FROM settings WHERE name = $1", name)
	if err != nil && !isNotFound(err) {
		t.Fatal(err)
	}
	return value
}
