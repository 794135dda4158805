package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

// Writes that wait together are committed together; one that comes alone is
// committed alone.
func TestWriter_Groups(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	f := sqlstore.Break(db)
	openings := make([]ledger.Opening, 300)
	for i := range openings {
		openings[i] = ready(t, db, fmt.Sprint("k", i))
	}
	require.Equal(t, slices.Repeat([]int{1}, len(openings)), f.Groups())
	wait, release := f.Hold()
	var wg sync.WaitGroup
	for _, o := range openings {
		wg.Go(func() { _ = db.Open(t.Context(), o) })
	}
	wait(len(openings))
	release()
	wg.Wait()
	// 300 waited, a group holds 256.
	require.Equal(t, []int{300, 44}, f.Groups()[len(openings):])
	evs, err := db.EventsAfter(t.Context(), "acme", 0, 1000)
	require.NoError(t, err)
	require.Len(t, evs, len(openings))
}

// A queue that is full makes callers wait, each as long as it likes.
func TestWriter_FullQueue(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	f := sqlstore.Break(db)
	wait, release := f.Hold()
	var wg sync.WaitGroup
	put := func(ctx context.Context) error {
		p, _ := born(newID("k"))
		return db.PutPreview(ctx, p)
	}
	for range 1 + sqlstore.MaxQueue {
		wg.Go(func() { _ = put(t.Context()) })
	}
	wait(1 + sqlstore.MaxQueue)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- put(ctx) }()
	leave()
	err := <-left
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*ledger.Ambiguous), "it was not queued")
	// The lane of what stops things has its own room.
	changed := make(chan error)
	go func() {
		_, err := db.ChangeGuard(t.Context(), ledger.GuardChange{WriteID: newID("w_"), Guard: ledger.Guard{Tenant: "acme", Epoch: 1}})
		changed <- err
	}()
	wait(2 + sqlstore.MaxQueue)
	release()
	require.NoError(t, <-changed)
	wg.Wait()
	_, o := born("k")
	n, err := db.CountPreviews(t.Context(), "acme", "agent-1", o.New[0].Operation.CreatedAt)
	require.NoError(t, err)
	require.Equal(t, 1+sqlstore.MaxQueue, n)
}

// Close answers what is queued.
func TestWriter_CloseServesTheQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := open(t, path, storetest.NewClock())
	f := sqlstore.Break(db)
	openings := make([]ledger.Opening, 20)
	for i := range openings {
		openings[i] = ready(t, db, fmt.Sprint("k", i))
	}
	wait, release := f.Hold()
	answers := make(chan error, len(openings))
	for _, o := range openings {
		go func() { answers <- db.Open(t.Context(), o) }()
	}
	wait(len(openings))
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	release()
	require.NoError(t, <-closed)
	acknowledged := 0
	for range openings {
		if err := <-answers; err == nil {
			acknowledged++
		} else {
			require.ErrorIs(t, err, sqlstore.ErrClosed)
		}
	}
	require.Equal(t, len(openings), acknowledged, "all were queued before the close")
	db = open(t, path, storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	evs, err := db.EventsAfter(t.Context(), "acme", 0, 100)
	require.NoError(t, err)
	require.Len(t, evs, acknowledged)
}

// A full disk is told as such, writes nothing, and is over when there is room
// (matrix row 17).
func TestWriter_DiskFull(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	f := sqlstore.Break(db)
	openings := make([]ledger.Opening, 64)
	for i := range openings {
		openings[i] = ready(t, db, fmt.Sprint("k", i))
	}
	pages := sqlstore.Pragma(t, db, "page_count")
	sqlstore.Exec(t, db, "PRAGMA max_page_count="+pages)
	wait, release := f.Hold()
	answers := make([]error, len(openings))
	var wg sync.WaitGroup
	for i, o := range openings {
		wg.Go(func() { answers[i] = db.Open(t.Context(), o) })
	}
	wait(len(openings))
	release()
	wg.Wait()
	full := 0
	for i, err := range answers {
		_, found := db.ByWrite(t.Context(), openings[i].WriteID)
		if err == nil {
			require.NoError(t, found, "it still fitted")
			continue
		}
		full++
		require.ErrorIs(t, err, ledger.ErrDiskFull)
		require.NotErrorAs(t, err, new(*ledger.Ambiguous))
		require.ErrorIs(t, found, ledger.ErrNotFound)
	}
	require.Positive(t, full)
	require.NoError(t, db.Ping(t.Context()), "reading goes on")

	sqlstore.Exec(t, db, "PRAGMA max_page_count=1000000")
	for _, o := range openings {
		require.NoError(t, db.Open(t.Context(), o))
	}
	evs, err := db.EventsAfter(t.Context(), "acme", 0, 1000)
	require.NoError(t, err)
	require.Len(t, evs, len(openings))
}

// sqliteError provokes a real error of SQLite, to be injected elsewhere.
func sqliteError(t *testing.T, provoke func(pool *sql.DB, path string) error) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broken.db")
	pool := raw(t, path)
	defer pool.Close() //nolint:errcheck // a test's own
	_, err := pool.Exec("CREATE TABLE a (b)")
	require.NoError(t, err)
	err = provoke(pool, path)
	require.Error(t, err)
	return err
}

func fullError(t *testing.T) error {
	return sqliteError(t, func(pool *sql.DB, _ string) error {
		_, err := pool.Exec("PRAGMA max_page_count=2")
		require.NoError(t, err)
		_, err = pool.Exec("INSERT INTO a VALUES (zeroblob(100000))")
		return err
	})
}

func busyError(t *testing.T) error {
	return sqliteError(t, func(pool *sql.DB, path string) error {
		other := raw(t, path)
		defer other.Close() //nolint:errcheck // a test's own
		_, err := other.Exec("BEGIN IMMEDIATE")
		require.NoError(t, err)
		_, err = pool.Exec("INSERT INTO a VALUES (1)")
		return err
	})
}

// The answer to a commit that fails depends on what is certain.
func TestWriter_CommitFails(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	f := sqlstore.Break(db)

	o := ready(t, db, "full")
	f.FailNextCommitWith(fullError(t))
	err := db.Open(t.Context(), o)
	require.ErrorIs(t, err, ledger.ErrDiskFull)
	_, err = db.ByWrite(t.Context(), o.WriteID)
	require.ErrorIs(t, err, ledger.ErrNotFound)
	require.NoError(t, db.Open(t.Context(), o))

	// Busy leaves the transaction open: the commit is tried again.
	o = ready(t, db, "busy")
	f.FailNextCommitWith(busyError(t))
	require.NoError(t, db.Open(t.Context(), o))

	o = ready(t, db, "broken")
	f.FailNextCommit()
	require.ErrorAs(t, db.Open(t.Context(), o), new(*ledger.Ambiguous))
	require.NoError(t, db.Open(t.Context(), o), "on a new connection")
	require.Equal(t, "2", sqlstore.Pragma(t, db, "synchronous"), "which is as durable")
}

// A shell that writes for a while is waited for; one that never ends makes the
// write fail with nothing written.
func TestWriter_Busy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := open(t, path, storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	o := ready(t, db, "k")
	sqlstore.Exec(t, db, "PRAGMA busy_timeout=20")
	shell := raw(t, path)
	defer shell.Close() //nolint:errcheck // a test's own
	_, err := shell.Exec("BEGIN IMMEDIATE")
	require.NoError(t, err)
	err = db.Open(t.Context(), o)
	require.ErrorContains(t, err, "SQLITE_BUSY")
	require.NotErrorAs(t, err, new(*ledger.Ambiguous))
	_, err = db.ByWrite(t.Context(), o.WriteID)
	require.ErrorIs(t, err, ledger.ErrNotFound)

	_, err = shell.Exec("COMMIT")
	require.NoError(t, err)
	sqlstore.Exec(t, db, "PRAGMA busy_timeout=60000")
	answer := make(chan error)
	_, err = shell.Exec("BEGIN IMMEDIATE")
	require.NoError(t, err)
	go func() { answer <- db.Open(t.Context(), o) }()
	_, err = shell.Exec("COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-answer)
}

// A write that panics fails alone.
func TestWriter_Panic(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	require.ErrorContains(t, sqlstore.Panic(db), "boom")
	require.NoError(t, db.Open(t.Context(), ready(t, db, "k")))
}

// After a statement failed unexpectedly nothing more of that write reaches the
// database, whatever the write does.
func TestWriter_BrokenIsClosed(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	require.ErrorContains(t, sqlstore.Careless(db), "incomplete input")
	require.Empty(t, sqlstore.Setting(t, db, "careless"))
	require.NoError(t, db.Open(t.Context(), ready(t, db, "k")))
}
