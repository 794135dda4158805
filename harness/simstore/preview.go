package simstore

import (
	"context"
	"time"

	"countersign/ledger"
)

// PutPreview implements ledger.Store. The same id a second time leaves the first
// as it is.
func (s *Store) PutPreview(ctx context.Context, p ledger.Preview) error {
	return s.write(ctx, Call{Method: "PutPreview", On: p.Key}, func(t *tx) error {
		key := frame(p.Tenant, p.ID)
		if _, there := t.previews[key]; !there {
			t.previews[key] = clonePreview(p)
		}
		return nil
	})
}

// Preview implements ledger.Store.
func (s *Store) Preview(ctx context.Context, tenant, id string) (ledger.Preview, error) {
	return get(ctx, s, Call{Method: "Preview"}, func(st *State) (ledger.Preview, error) {
		p, ok := st.previews[frame(tenant, id)]
		if !ok {
			return p, ledger.ErrNotFound
		}
		return clonePreview(p), nil
	})
}

// CountPreviews implements ledger.Store.
func (s *Store) CountPreviews(ctx context.Context, tenant, agent string, now time.Time) (int, error) {
	return get(ctx, s, Call{Method: "CountPreviews", On: agent}, func(st *State) (int, error) {
		n := 0
		for _, p := range st.previews {
			if p.Tenant == tenant && p.Agent == agent && nanos(p.ExpiresAt) > nanos(now) {
				n++
			}
		}
		return n, nil
	})
}

// SweepPreviews implements ledger.Store.
func (s *Store) SweepPreviews(ctx context.Context, before time.Time) error {
	return s.write(ctx, Call{Method: "SweepPreviews"}, func(t *tx) error {
		for key, p := range t.previews {
			if nanos(p.ExpiresAt) < nanos(before) {
				delete(t.previews, key)
			}
		}
		return nil
	})
}

// Seal implements ledger.Store.
func (s *Store) Seal(ctx context.Context, c ledger.Checkpoint) error {
	return s.write(ctx, Call{Method: "Seal"}, func(t *tx) error {
		for _, there := range t.checkpoints {
			if there.N == c.N && there.Hash == c.Hash {
				return nil
			}
		}
		newest := t.lastCheckpoint()
		if newest.N+1 != c.N || newest.Hash != c.Prev {
			return &ledger.Refused{Why: ledger.CheckpointMoved}
		}
		t.checkpoints = append(t.checkpoints, cloneCheckpoint(c))
		return nil
	})
}

func (s *State) lastCheckpoint() ledger.Checkpoint {
	if n := len(s.checkpoints); n > 0 {
		return s.checkpoints[n-1]
	}
	return ledger.Checkpoint{}
}

// Checkpoints implements ledger.Store.
func (s *Store) Checkpoints(ctx context.Context, n int64, limit int) ([]ledger.Checkpoint, error) {
	return get(ctx, s, Call{Method: "Checkpoints"}, func(st *State) ([]ledger.Checkpoint, error) {
		var out []ledger.Checkpoint
		for _, c := range st.checkpoints {
			if c.N > n && len(out) < limit {
				out = append(out, cloneCheckpoint(c))
			}
		}
		return out, nil
	})
}

// LastCheckpoint implements ledger.Store.
func (s *Store) LastCheckpoint(ctx context.Context) (ledger.Checkpoint, error) {
	return get(ctx, s, Call{Method: "LastCheckpoint"}, func(st *State) (ledger.Checkpoint, error) { return cloneCheckpoint(st.lastCheckpoint()), nil })
}
