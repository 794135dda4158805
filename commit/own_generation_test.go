package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/preview"
	"countersign/tools/tooltest"
)

// between acts once, before the next read of a guard row.
type between struct {
	ledger.Store
	act func()
}

func (b *between) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	if act := b.act; act != nil {
		b.act = nil
		act()
	}
	return b.Store.Guard(ctx, tenant)
}

// TestCommit_TokenKeepsItsGeneration: while a commit was under way, the same token
// was spent elsewhere, and a wanted repeat opened the next generation. The token
// still stands for its own (I2).
func TestCommit_TokenKeepsItsGeneration(t *testing.T) {
	tool := tooltest.FakeTool("hold")
	r := newRig(t, tool)
	var store *between
	r.between = func(s ledger.Store) ledger.Store {
		store = &between{Store: s}
		return store
	}
	r.restart()
	token := r.preview(agent, "hold", args("1")).Token
	var first, second ledger.Operation
	store.act = func() {
		first = r.mustCommit(agent, "hold", token).Operation
		again, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold", Args: args("1"), AgainOf: first.ID})
		require.NoError(t, err)
		second = r.approve(ann, r.mustCommit(agent, "hold", again.Token).Operation)
		r.work()
		require.Equal(t, ledger.Succeeded, r.op(second.ID).State)
	}
	res := r.mustCommit(agent, "hold", token)
	require.NotEmpty(t, second.ID)
	require.Equal(t, first.ID, res.Operation.ID)
	require.True(t, res.Replayed)
	require.Len(t, tooltest.FakeOf(tool).Effects(), 2)
}
