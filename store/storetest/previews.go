package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

var ledgerIDCases = []testCase{
	{"the first candidate stays", func(w *world) {
		first, err := w.Store.LedgerID(w.ctx, "led_a")
		require.NoError(w, err)
		require.Equal(w, "led_a", first)
		again, err := w.Store.LedgerID(w.ctx, "led_b")
		require.NoError(w, err)
		require.Equal(w, "led_a", again)
		w.Store = w.Reopen()
		again, err = w.Store.LedgerID(w.ctx, "led_c")
		require.NoError(w, err)
		require.Equal(w, "led_a", again)
	}},
	{"racers agree", func(w *world) {
		got := make([]string, 16)
		errs := together(len(got), func(i int) (err error) {
			got[i], err = w.Store.LedgerID(w.ctx, w.id("led_"))
			return err
		})
		for i := range got {
			require.NoError(w, errs[i])
			require.Equal(w, got[0], got[i])
		}
	}},
}

var previewCases = []testCase{
	{"comes back as it was", func(w *world) {
		p := w.preview(acme, "k", 1)
		p.AgainOf, p.Run = "op_before", &ledger.Run{ID: "run-1", Step: "2", Call: "3"}
		p.Requirement = ledger.Requirement{Outcome: "approve", Groups: map[string]int{"support": 1}, Rule: "over 500", Expiry: time.Hour}
		w.put(p)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		w.same(p, got)
	}},
	{"is read after it expired", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		w.Clock.Advance(time.Hour)
		_, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
	}},
	{"is not there", func(w *world) {
		_, err := w.Store.Preview(w.ctx, acme, "prv_none")
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"never changes", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		q := p
		q.Key = "another"
		w.put(q)
		got, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err)
		require.Equal(w, "k", got.Key)
	}},
	{"one id in two tenants is two previews", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		q := w.preview(other, "its own", 1)
		q.ID = p.ID
		w.put(q)
		got, err := w.Store.Preview(w.ctx, other, p.ID)
		require.NoError(w, err)
		require.Equal(w, "its own", got.Key)
	}},
	{"counts the agent's unexpired", func(w *world) {
		now := w.Clock.Now()
		for i, agent := range []string{"a", "a", "a", "b"} {
			p := w.preview(acme, "k", 1)
			p.Agent, p.ExpiresAt = agent, now.Add(time.Duration(i)*time.Minute)
			w.put(p)
		}
		foreign := w.preview(other, "k", 1)
		foreign.Agent = "a"
		w.put(foreign)
		for _, c := range []struct {
			agent string
			at    time.Time
			want  int
		}{
			{"a", now.Add(-1), 3},
			{"a", now, 2}, // at its end a preview is expired
			{"a", now.Add(time.Minute - 1), 2},
			{"a", now.Add(time.Minute), 1},
			{"b", now, 1},
			{"none", now, 0},
		} {
			n, err := w.Store.CountPreviews(w.ctx, acme, c.agent, c.at)
			require.NoError(w, err)
			require.Equal(w, c.want, n, "%s at %s", c.agent, c.at)
		}
	}},
	{"sweeps what expired before", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		later := w.preview(acme, "l", 1)
		later.ExpiresAt = p.ExpiresAt.Add(1)
		w.put(later)
		require.NoError(w, w.Store.SweepPreviews(w.ctx, p.ExpiresAt))
		_, err := w.Store.Preview(w.ctx, acme, p.ID)
		require.NoError(w, err, "it did not expire before its end")
		require.NoError(w, w.Store.SweepPreviews(w.ctx, p.ExpiresAt.Add(1)))
		_, err = w.Store.Preview(w.ctx, acme, p.ID)
		require.ErrorIs(w, err, ledger.ErrNotFound)
		_, err = w.Store.Preview(w.ctx, acme, later.ID)
		require.NoError(w, err)
	}},
	{"sweeps many", func(w *world) {
		errs := together(8, func(int) error {
			for range 150 {
				if err := w.Store.PutPreview(w.ctx, w.preview(acme, "k", 1)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, err := range errs {
			require.NoError(w, err)
		}
		now := w.Clock.Now()
		n, err := w.Store.CountPreviews(w.ctx, acme, "agent-1", now)
		require.NoError(w, err)
		require.Equal(w, 1200, n)
		require.NoError(w, w.Store.SweepPreviews(w.ctx, now.Add(time.Hour)))
		n, err = w.Store.CountPreviews(w.ctx, acme, "agent-1", now)
		require.NoError(w, err)
		require.Zero(w, n)
	}},
}
