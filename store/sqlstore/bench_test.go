package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/store/storetest"
)

// BenchmarkOpen opens operations from 1, 16 and 64 callers, durably. Only the
// ratios between the three mean anything beyond one machine: what group commit
// gains.
func BenchmarkOpen(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "ledger.db"), storetest.NewClock())
			b.Cleanup(func() { require.NoError(b, db.Close()) })
			each(b, callers, func() error {
				p, o := born(newID("key-"))
				if err := db.PutPreview(b.Context(), p); err != nil {
					return err
				}
				return db.Open(b.Context(), o)
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "opens/s")
		})
	}
}

// BenchmarkLife opens and finishes operations: the two durable writes around an
// effect.
func BenchmarkLife(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "ledger.db"), storetest.NewClock())
			b.Cleanup(func() { require.NoError(b, db.Close()) })
			p, _ := born("k")
			require.NoError(b, db.PutPreview(b.Context(), p))
			each(b, callers, func() error {
				_, o := born(newID("key-"))
				o.New[0].Preview = p.ID
				if err := db.Open(b.Context(), o); err != nil {
					return err
				}
				return db.Apply(b.Context(), finish(o.New[0].Operation))
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lives/s")
		})
	}
}

// each shares b.N calls among callers.
func each(b *testing.B, callers int, do func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	failed := make([]error, callers)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 && failed[i] == nil {
				failed[i] = do()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	for _, err := range failed {
		require.NoError(b, err)
	}
}
