package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"countersign/ledger"
)

const (
	// maxGroup bounds one transaction; more brings little and makes everybody
	// wait longer.
	maxGroup = 256
	// maxQueue bounds what waits (S70); further callers wait for room, each as
	// long as its context lets it.
	maxQueue = 1024
	// maxBusy bounds how often a write is tried again after SQLITE_BUSY, on top
	// of busy_timeout. Nobody but a shell or a backup tool can be in the way.
	maxBusy = 3
)

// job is one write on its way through the writer.
type job struct {
	do func(*tx) error
	// answer is what do returned; it counts only once the group is committed.
	answer error
	done   chan error // takes one answer without waiting
}

// writer owns the one connection that writes.
type writer struct {
	pool *sql.DB
	log  *slog.Logger
	now  func() time.Time
	// stamped is the time that the file knows (clock.go).
	stamped time.Time

	conn  *sql.Conn // nil after it was dropped
	stmts map[string]*sql.Stmt

	queue, urgent  chan *job
	stop, finished chan struct{}
	stopping       sync.Once

	// hooks are faults for tests; nil otherwise.
	hooks atomic.Pointer[hooks]
}

// hooks let tests break things where a disk would. All run on the writer's
// goroutine.
type hooks struct {
	gather    func(waiting func() int)            // when a first write has come
	statement func(text string, args []any) error // before a statement; an error stands for its failure
	commit    func() error                        // before COMMIT; an error stands for its failure
	committed func() error                        // after COMMIT; an error loses the answer
}

func newWriter(pool *sql.DB, log *slog.Logger, now func() time.Time) *writer {
	return &writer{
		pool: pool, log: log, now: now, stmts: map[string]*sql.Stmt{},
		queue: make(chan *job, maxQueue), urgent: make(chan *job, maxQueue),
		stop: make(chan struct{}), finished: make(chan struct{}),
	}
}

// submit queues a write and waits for its answer.
func (w *writer) submit(ctx context.Context, lane chan<- *job, do func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{do: do, done: make(chan error, 1)}
	select {
	case <-w.stop:
		return ErrClosed
	default:
	}
	select {
	case lane <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stop:
		return ErrClosed
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return &ledger.Ambiguous{Err: fmt.Errorf("sqlstore: the caller left: %w", ctx.Err())}
	case <-w.finished:
	}
	// The writer is gone. Either it answered before, or the job came too late
	// and nobody will run it.
	select {
	case err := <-j.done:
		return err
	default:
		return ErrClosed
	}
}

// run is the writer's goroutine.
func (w *writer) run() {
	defer close(w.finished)
	for group := w.next(); group != nil; group = w.next() {
		w.serve(group)
	}
}

// next waits for a write and takes everything else that waits already, the
// urgent first. nil means that the writer was stopped and nothing is left.
func (w *writer) next() []*job {
	first := w.poll()
	if first == nil {
		select {
		case first = <-w.urgent:
		case first = <-w.queue:
		case <-w.stop:
			if first = w.poll(); first == nil {
				return nil
			}
		}
	}
	if h := w.hooks.Load(); h != nil {
		h.gather(func() int { return 1 + len(w.urgent) + len(w.queue) })
	}
	group := []*job{first}
	for len(group) < maxGroup {
		j := w.poll()
		if j == nil {
			break
		}
		group = append(group, j)
	}
	return group
}

func (w *writer) poll() *job {
	select {
	case j := <-w.urgent:
		return j
	default:
	}
	select {
	case j := <-w.queue:
		return j
	default:
		return nil
	}
}

// serve commits a group, or, when one of it spoiled the transaction, each
// member alone.
func (w *writer) serve(group []*job) {
	err := w.patiently(group)
	if err == nil {
		return
	}
	if len(group) == 1 || errors.Is(err, errNotBegun) {
		for _, j := range group {
			j.done <- nothingWritten(err)
		}
		return
	}
	w.log.Warn("a group of writes was rolled back; each is tried alone", "size", len(group), "error", err)
	for _, j := range group {
		if err := w.patiently([]*job{j}); err != nil {
			j.done <- nothingWritten(err)
		}
	}
}

// patiently is attempt with further tries while the file is busy.
func (w *writer) patiently(group []*job) error {
	for try := 1; ; try++ {
		err := w.attempt(group)
		if err == nil || !isBusy(err) || try == maxBusy {
			return err
		}
		time.Sleep(time.Duration(try) * 10 * time.Millisecond)
	}
}

// errNotBegun: no member was run.
var errNotBegun = errors.New("sqlstore: the transaction could not begin")

// attempt runs a group in one transaction. When it returns nil, every member
// was answered; otherwise nobody was, and certainly nothing was written.
func (w *writer) attempt(group []*job) error {
	if err := w.connect(); err != nil {
		return fmt.Errorf("%w: %w", errNotBegun, err)
	}
	if err := w.control("BEGIN IMMEDIATE"); err != nil {
		if !isBusy(err) {
			w.drop() // whatever is wrong with it, a new connection has it not
		}
		return fmt.Errorf("%w: %w", errNotBegun, err)
	}
	for _, j := range group {
		if err := w.member(j, len(group) > 1); err != nil {
			w.rollback()
			return err
		}
	}
	if len(group) == 1 && group[0].answer != nil {
		w.rollback()
		group[0].done <- group[0].answer
		return nil
	}
	if err := w.stamp(); err != nil {
		w.rollback()
		return err
	}
	return w.commit(group)
}

// member runs one write in a savepoint; alone, the transaction is its
// savepoint. An error means that the transaction can't be trusted any more.
func (w *writer) member(j *job, savepoint bool) error {
	if savepoint {
		if err := w.control("SAVEPOINT member"); err != nil {
			return err
		}
	}
	t := &tx{w: w}
	j.answer = protect(j.do, t)
	if t.broken != nil {
		return t.broken
	}
	if !savepoint {
		return nil
	}
	if j.answer != nil {
		if err := w.control("ROLLBACK TO member"); err != nil {
			return err
		}
	}
	return w.control("RELEASE member")
}

// protect turns a panic of one write into a failure of that write.
func protect(do func(*tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sqlstore: a write panicked: %v", p)
			t.broken = err
		}
	}()
	return do(t)
}

// commit ends the transaction and answers the group. Refused members wait for
// it too: what they saw may have been written by their neighbours.
func (w *writer) commit(group []*job) error {
	err := w.end()
	for try := 1; err != nil && isBusy(err) && try < maxBusy; try++ {
		err = w.end() // the transaction is still open
	}
	switch {
	case err == nil:
		for _, j := range group {
			j.done <- j.answer
		}
		return nil
	case isBusy(err), isFull(err):
		// Busy leaves the transaction open. Full means that the last frame, the
		// one that makes the others count, was not written whole. Either way
		// there was no commit.
		w.rollback()
		return fmt.Errorf("sqlstore: commit: %w", err)
	default:
		w.log.Error("a commit failed; whether it happened is not known", "size", len(group), "error", err)
		w.rollback()
		w.drop()
		for _, j := range group {
			j.done <- &ledger.Ambiguous{Err: fmt.Errorf("sqlstore: commit: %w", err)}
		}
		return nil
	}
}

// end is COMMIT.
func (w *writer) end() error {
	h := w.hooks.Load()
	if h != nil {
		if err := h.commit(); err != nil {
			return err
		}
	}
	if err := w.control("COMMIT"); err != nil {
		return err
	}
	if h != nil {
		return h.committed()
	}
	return nil
}

// rollback ends the transaction, if it is still there.
func (w *writer) rollback() {
	if err := w.control("ROLLBACK"); err != nil {
		w.drop() // closing the connection rolls back
	}
}

// control runs a statement that steers the transaction.
func (w *writer) control(text string) error {
	stmt, err := w.prepare(text)
	if err == nil {
		_, err = stmt.ExecContext(context.Background())
	}
	if err != nil {
		return fmt.Errorf("sqlstore: %s: %w", text, err)
	}
	return nil
}

// prepare gives the statement of a text, which is always a constant of this
// package, prepared once for each connection.
func (w *writer) prepare(text string) (*sql.Stmt, error) {
	if stmt, ok := w.stmts[text]; ok {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	w.stmts[text] = stmt
	return stmt, nil
}

// connect takes a connection, if there is none, and checks that it is durable.
func (w *writer) connect() error {
	if w.conn != nil {
		return nil
	}
	ctx := context.Background()
	conn, err := w.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlstore: connect: %w", err)
	}
	w.conn = conn
	if err := checkDurable(ctx, conn); err != nil {
		w.drop()
		return err
	}
	return nil
}

// drop closes the connection for good, with any transaction on it.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	w.closeStatements()
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = w.conn.Close()
	w.conn = nil
}

// closeStatements ends what was prepared; a statement that stays open keeps
// SQLite from closing its connection, and database/sql does not do it for us.
func (w *writer) closeStatements() {
	for _, stmt := range w.stmts {
		_ = stmt.Close()
	}
	w.stmts = map[string]*sql.Stmt{}
}

// close answers what is queued and ends the goroutine.
func (w *writer) close() error {
	w.stopping.Do(func() { close(w.stop) })
	<-w.finished
	w.closeStatements()
	if w.conn == nil {
		return nil
	}
	return w.conn.Close()
}
