package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// checkpoint builds the one that follows prev.
func (w *world) checkpoint(prev ledger.Checkpoint) ledger.Checkpoint {
	c := ledger.Checkpoint{
		N: prev.N + 1, Ledger: "led_1", At: w.Clock.Now(), After: prev.Seq, Seq: prev.Seq + 10, Events: w.id("digest_"),
		Guards: map[string]ledger.GuardHead{acme: {Epoch: 3, Hash: "h"}, "ünï": {}}, Prev: prev.Hash,
	}
	c.Hash = c.Digest()
	c.Signature = "eyJ.<&>." + c.Hash
	return c
}

func (w *world) seal() ledger.Checkpoint {
	w.Helper()
	last, err := w.Store.LastCheckpoint(w.ctx)
	require.NoError(w, err)
	c := w.checkpoint(last)
	require.NoError(w, w.Store.Seal(w.ctx, c))
	return c
}

var sealCases = []testCase{
	{"none", func(w *world) {
		last, err := w.Store.LastCheckpoint(w.ctx)
		require.NoError(w, err)
		w.same(ledger.Checkpoint{}, last)
		list, err := w.Store.Checkpoints(w.ctx, 0, 10)
		require.NoError(w, err)
		require.Empty(w, list)
	}},
	{"come back as they were, oldest first, behind a number, up to a limit", func(w *world) {
		var all []ledger.Checkpoint
		for range 5 {
			c := w.seal()
			all = append(all, c)
			last, err := w.Store.LastCheckpoint(w.ctx)
			require.NoError(w, err)
			w.same(c, last)
			require.Equal(w, c.Hash, last.Digest(), "it can be checked")
			w.Clock.Advance(time.Minute + 1)
		}
		for _, q := range []struct{ n, limit, from, to int }{{0, 10, 0, 5}, {0, 2, 0, 2}, {2, 2, 2, 4}, {4, 9, 4, 5}, {5, 9, 5, 5}, {0, 0, 0, 0}, {-1, 1, 0, 1}} {
			got, err := w.Store.Checkpoints(w.ctx, int64(q.n), q.limit)
			require.NoError(w, err)
			w.same(all[q.from:q.to], got, fmt.Sprint(q))
		}
	}},
	{"only behind the newest", func(w *world) {
		first := w.seal()
		second := w.seal()
		for name, spoil := range map[string]func(*ledger.Checkpoint){
			"a gap":           func(c *ledger.Checkpoint) { c.N++ },
			"the first again": func(c *ledger.Checkpoint) { c.N = 1 },
			"none":            func(c *ledger.Checkpoint) { c.N = 0 },
			"another before":  func(c *ledger.Checkpoint) { c.Prev = first.Hash },
			"none before":     func(c *ledger.Checkpoint) { c.Prev = "" },
			"the newest with other contents": func(c *ledger.Checkpoint) {
				c.N, c.Prev = second.N, second.Prev
			},
		} {
			c := w.checkpoint(second)
			spoil(&c)
			w.untouched(func() {
				w.Log(name)
				w.refused(ledger.CheckpointMoved, w.Store.Seal(w.ctx, c))
			})
		}
	}},
	{"told twice it is applied and changes nothing, also when others followed", func(w *world) {
		first := w.seal()
		w.untouched(func() { require.NoError(w, w.Store.Seal(w.ctx, first)) })
		w.seal()
		w.seal()
		w.untouched(func() { require.NoError(w, w.Store.Seal(w.ctx, first)) })
	}},
	{"of racers one wins", func(w *world) {
		prev := w.seal()
		checkpoints := make([]ledger.Checkpoint, 16)
		for i := range checkpoints {
			checkpoints[i] = w.checkpoint(prev)
		}
		errs := together(len(checkpoints), func(i int) error { return w.Store.Seal(w.ctx, checkpoints[i]) })
		winner := winnerOf(w, errs, ledger.CheckpointMoved)
		last, err := w.Store.LastCheckpoint(w.ctx)
		require.NoError(w, err)
		w.same(checkpoints[winner], last)
	}},
}
