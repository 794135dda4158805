package sqlstore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/identity"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
)

func TestIdentity(t *testing.T) {
	storetest.RunIdentity(t, func(t *testing.T) identity.Store {
		db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}

// What was acknowledged is there after the file was closed and opened again.
func TestIdentity_Reopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.NoError(t, err)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o := identity.Operator{ID: "per_1", Tenant: "default", Name: "ada", Groups: []string{}, CreatedAt: now}
	require.NoError(t, db.CreateOperator(t.Context(), o, identity.SetupLink{
		CodeHash: []byte("code"), Tenant: "default", Operator: "per_1", ExpiresAt: now.Add(time.Hour),
	}))
	_, err = db.UseSetupLink(t.Context(), []byte("code"), now, "set")
	require.NoError(t, err)
	require.NoError(t, db.Close())

	db, err = sqlstore.Open(t.Context(), sqlstore.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	got, err := db.Operator(t.Context(), "default", "per_1")
	require.NoError(t, err)
	require.Equal(t, "set", got.Password)
	_, err = db.UseSetupLink(t.Context(), []byte("code"), now, "again")
	require.ErrorIs(t, err, identity.ErrNotFound)
}
