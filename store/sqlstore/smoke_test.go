package sqlstore_test

import (
	"context"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
	"github.com/stretchr/testify/require"
	"path/filepath"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir())
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(dir, "a ?#%41.db")})
	require.NoError(t, err)
	_, err = sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(dir, "a ?#%41.db")})
	require.ErrorIs(t, err, sqlstore.ErrLocked)
	t.Log(err)
	l, err := ledger.Open(ctx, ledger.Config{Store: db})
	require.NoError(t, err)
	p := ledger.Preview{ID: "prv_1", Tenant: "t", Agent: "a", Tool: "x", Key: "k", Generation: 1, ExpiresAt: time.Now().Add(time.Hour)}
	require.NoError(t, db.PutPreview(ctx, p))
	p2, err := db.Preview(ctx, "t", "prv_1")
	require.NoError(t, err)
	require.Equal(t, p.ID, p2.ID)
	op, opened, err := l.OpenOperation(ctx, ledger.OpenRequest{Preview: p, Requirement: ledger.Requirement{Outcome: "auto"}})
	require.NoError(t, err)
	require.True(t, opened)
	_, m, err := l.ChangeGuard(ctx, "t", func(g *ledger.Guard) { g.Revoked = append(g.Revoked, "x") })
	require.NoError(t, err)
	require.Len(t, m, 1)
	_, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e"})
	require.NoError(t, err)
	pg, err := db.List(ctx, ledger.Filter{Tenant: "t"})
	require.NoError(t, err)
	require.Len(t, pg.Operations, 1)
	evs, err := db.Events(ctx, "t", op.ID)
	require.NoError(t, err)
	require.Len(t, evs, 2)
	require.True(t, evs[0].Intact("") && evs[1].Intact(evs[0].Hash))
	require.NoError(t, db.Close())
}
