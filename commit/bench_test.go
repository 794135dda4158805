package commit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/preview"
	"countersign/tools/tooltest"
)

// BenchmarkOperation is one whole write: preview, token, commit, outcome, on a
// real ledger with a fake upstream. Compare the callers of one run with each
// other; the figures of two machines say nothing.
func BenchmarkOperation(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			r := newRig(b, tooltest.FakeTool("hold_order"))
			r.previews = preview.New(preview.Config{Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: r.signer, Quota: 1 << 30})
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						order := fmt.Sprintf("ord_%d", n)
						p, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args(order)})
						if err == nil {
							_, err = r.commits.Commit(context.Background(), commit.Request{Agent: agent, Tool: "hold_order", Token: p.Token, Wait: 10 * time.Second})
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			require.False(b, b.Failed())
		})
	}
}
