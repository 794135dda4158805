package sqlstore_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := storetest.NewClock()
		path := filepath.Join(t.TempDir(), "ledger.db")
		db := open(t, path, clock)
		return storetest.Subject{
			Store: db, Clock: clock, Faults: sqlstore.Break(db),
			Reopen: func() ledger.Store {
				require.NoError(t, db.Close())
				db = open(t, path, clock)
				return db
			},
		}
	})
}

func open(t testing.TB, path string, clock *storetest.Clock) *sqlstore.DB {
	t.Helper()
	db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: path, Now: clock.Now})
	require.NoError(t, err)
	return db
}
