package approvals_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/identity"
	"countersign/store/sqlstore"
)

// TestDirectory: people are as the identity store has them now: who was disabled,
// and who is not there, counts for nothing (S30).
func TestDirectory(t *testing.T) {
	ctx := t.Context()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	require.NoError(t, db.CreateOperator(ctx,
		identity.Operator{ID: "per_1", Tenant: "default", Name: "ada", Groups: []string{"finance"}, CreatedAt: now},
		identity.SetupLink{CodeHash: []byte("code"), Tenant: "default", Operator: "per_1", ExpiresAt: now.Add(time.Hour)},
	))
	person := approvals.Directory(db)

	p, err := person(ctx, "default", "per_1")
	require.NoError(t, err)
	require.False(t, p.Disabled)
	require.Equal(t, []string{"finance"}, p.Groups)

	for _, stranger := range [][2]string{{"default", "per_2"}, {"elsewhere", "per_1"}} {
		p, err = person(ctx, stranger[0], stranger[1])
		require.NoError(t, err)
		require.True(t, p.Disabled, "%v", stranger)
		require.Empty(t, p.Groups)
	}

	require.NoError(t, db.DisableOperator(ctx, "default", "per_1", now.Add(time.Minute)))
	p, err = person(ctx, "default", "per_1")
	require.NoError(t, err)
	require.True(t, p.Disabled)
}
