package sqlstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

// crashPath makes the test binary a writer that is to be killed.
const crashPath = "SQLSTORE_CRASH_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashPath); path != "" {
		if err := writeUntilKilled(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// writeUntilKilled opens and finishes operations from several callers and
// prints each id after its acknowledgement.
func writeUntilKilled(path string) error {
	ctx := context.Background()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: path, Now: storetest.NewClock().Now})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for caller := range 8 {
		go func() {
			failed <- func() error {
				for i := 0; ; i++ {
					p, o := born(fmt.Sprintf("%d-%d-%d", os.Getpid(), caller, i))
					op := &o.New[0].Operation
					op.ID = fmt.Sprintf("op_%d_%d_%d", os.Getpid(), caller, i)
					o.New[0].Event.Operation = op.ID
					if err := db.PutPreview(ctx, p); err != nil {
						return err
					}
					if err := db.Open(ctx, o); err != nil {
						return err
					}
					fmt.Println(op.ID, 1)
					if err := db.Apply(ctx, finish(*op)); err != nil {
						return err
					}
					fmt.Println(op.ID, 2)
				}
			}()
		}()
	}
	return <-failed
}

// A process that is killed at any moment loses nothing that it acknowledged,
// and leaves nothing half (I10, I16).
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	acknowledged := map[string]int64{}
	for round := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), crashPath+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 0 { // under load from here on
				time.AfterFunc(time.Duration(15+7*round)*time.Millisecond, func() { _ = child.Process.Kill() })
			}
			id, version, ok := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseInt(version, 10, 64)
			if !ok || err != nil {
				continue // cut off in the middle
			}
			acknowledged[id] = max(acknowledged[id], v)
		}
		require.Error(t, child.Wait(), "it ends only by being killed")
		require.NoError(t, ctx.Err())
		cancel()
		checkAfterCrash(t, path, acknowledged)
	}
	t.Logf("%d operations were acknowledged over 10 kills", len(acknowledged))
}

func checkAfterCrash(t *testing.T, path string, acknowledged map[string]int64) {
	t.Helper()
	require.NotEmpty(t, acknowledged)
	db := open(t, path, storetest.NewClock())
	require.Equal(t, "ok", sqlstore.Pragma(t, db, "integrity_check"))
	require.Empty(t, sqlstore.ForeignKeyViolations(t, db))
	for id, version := range acknowledged {
		op, err := db.Operation(t.Context(), "acme", id)
		require.NoError(t, err, "acknowledged and lost")
		require.GreaterOrEqual(t, op.Version, version)
	}
	// Everything that is there is whole, acknowledged or not.
	f := ledger.Filter{Tenant: "acme", Limit: 200}
	events := 0
	for {
		page, err := db.List(t.Context(), f)
		require.NoError(t, err)
		for _, op := range page.Operations {
			evs, err := db.Events(t.Context(), "acme", op.ID)
			require.NoError(t, err)
			require.Len(t, evs, int(op.Version))
			events += len(evs)
			_, err = db.Plan(t.Context(), "acme", op.ID, 1)
			require.NoError(t, err)
			evd, err := db.Evidence(t.Context(), "acme", op.ID)
			require.NoError(t, err)
			require.Len(t, evd, int(op.Version-1))
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	evs, err := db.EventsAfter(t.Context(), "acme", 0, events+1)
	require.NoError(t, err)
	require.Len(t, evs, events)
	require.EqualValues(t, events, evs[len(evs)-1].Seq, "no gaps")
	require.NoError(t, db.Close())
}
