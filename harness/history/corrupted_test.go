package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
)

// entry is a call with its answer, where it can be changed.
type entry struct {
	*porcupine.Operation
	c call
	a answer
}

// same reports that two entries are about the same operation.
func (e entry) same(o entry) bool { return e.a.Op.ID == o.a.Op.ID && e.c.Tool == o.c.Tool }

// corruptions each change one entry into one that can't be, and report whether they
// could: all are what somebody saw, against what somebody else saw for certain.
var corruptions = map[string]func(e entry, all []entry) bool{
	"what succeeded has failed": func(e entry, all []entry) bool {
		if e.c.What != "get" || e.a.Op.State != ledger.Succeeded || !others(e, all, func(o entry) bool { return o.a.Op.State == ledger.Succeeded }) {
			return false
		}
		e.a.Op.State, e.a.Op.Effect = ledger.Failed, ""
		return e.set()
	},
	"another effect": func(e entry, all []entry) bool {
		if !e.a.Op.State.Effective() || !others(e, all, func(o entry) bool { return o.a.Op.Effect != "" }) {
			return false
		}
		e.a.Op.Effect += "x"
		return e.set()
	},
	"another operation": func(e entry, all []entry) bool {
		if e.a.Op.ID == "" || !others(e, all, func(entry) bool { return true }) {
			return false
		}
		e.a.Op.ID = "op_other"
		return e.set()
	},
	"another generation": func(e entry, _ []entry) bool {
		if e.a.Op.ID == "" {
			return false
		}
		e.a.Op.Generation += 70
		return e.set()
	},
	"a repeat as the first": func(e entry, all []entry) bool {
		if e.c.What != "commit" || e.a.Op.ID == "" || e.a.Fresh || !others(e, all, func(o entry) bool { return o.a.Fresh }) {
			return false
		}
		e.a.Fresh = true
		return e.set()
	},
	"the first as a repeat": func(e entry, all []entry) bool {
		if !e.a.Fresh || slices.ContainsFunc(all, func(o entry) bool {
			return o.c.What == "commit" && o.a.Lost && o.c.Tool == e.c.Tool && o.c.Order == e.c.Order
		}) {
			return false
		}
		e.a.Fresh = false
		return e.set()
	},
	"an answer from before": func(e entry, all []entry) bool {
		before := func(o entry) bool { return o.a.Op.State == ledger.Succeeded && o.Return < e.Call }
		if e.c.What != "get" || e.a.Op.State != ledger.Succeeded || !others(e, all, before) {
			return false
		}
		e.a.Op.State, e.a.Op.Effect = ledger.Running, ""
		return e.set()
	},
	"refused, and done all the same": func(e entry, all []entry) bool {
		if !e.a.Fresh || slices.ContainsFunc(all, func(o entry) bool {
			return o.c.What == "commit" && o.a.Lost && o.c.Tool == e.c.Tool && o.c.Order == e.c.Order
		}) ||
			!others(e, all, func(entry) bool { return true }) {
			return false
		}
		e.a = answer{Code: fault.StoreUnavailable}
		return e.set()
	},
	"a yes that was not given": func(e entry, all []entry) bool {
		yes := func(o entry) bool {
			return o.Operation != e.Operation && o.c.What == "approve" && o.c.Operation == e.c.Operation && (o.a.Lost || o.a.Code == "")
		}
		sent := func(o entry) bool {
			return o.a.Op.ID == e.a.Op.ID && slices.Contains([]ledger.State{ledger.Pending, ledger.Running, ledger.Unknown, ledger.Succeeded, ledger.Failed}, o.a.Op.State)
		}
		if e.c.What != "approve" || e.c.Quorum != 1 || e.a.Op.ID == "" || slices.ContainsFunc(all, yes) || !slices.ContainsFunc(all, func(o entry) bool { return o.Operation != e.Operation && sent(o) }) {
			return false
		}
		e.a = answer{Code: fault.StoreUnavailable}
		return e.set()
	},
	"a second effect outside": func(e entry, _ []entry) bool {
		if e.a.Effects == "" {
			return false
		}
		e.a.Effects += " " + e.a.Effects + "x"
		return e.set()
	},
	"an effect that is gone": func(e entry, all []entry) bool {
		before := func(o entry) bool {
			return o.a.Op.ID == e.c.Operation && o.a.Op.State == ledger.Succeeded && o.Return < e.Call
		}
		if e.a.Effects == "" || !slices.ContainsFunc(all, before) {
			return false
		}
		e.a.Effects = ""
		return e.set()
	},
	"an effect of what has none": func(e entry, all []entry) bool {
		ended := func(o entry) bool { return o.a.Op.ID == e.c.Operation && o.a.Op.State.Void() }
		if e.c.What != "outside" || e.a.Effects != "" || !slices.ContainsFunc(all, ended) {
			return false
		}
		e.a.Effects = "eff_x"
		return e.set()
	},
}

// others reports that another entry about the same operation is so.
func others(e entry, all []entry, is func(entry) bool) bool {
	return slices.ContainsFunc(all, func(o entry) bool { return o.Operation != e.Operation && o.same(e) && is(o) })
}

func (e entry) set() bool { e.Output = e.a; return true }

// TestHistory_CorruptedIsFound: a history of the gateway itself in which one single
// answer is changed is found illegal, whatever kind of change it is.
func TestHistory_CorruptedIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes several histories")
	}
	done := map[string]int{}
	for seed := uint64(1); seed <= 40 && (seed <= 3 || len(done) < len(corruptions)); seed++ {
		w, r := record(t, seed, nil)
		history := r.history()
		w.close()
		rng := rand.New(rand.NewPCG(seed, 200))
		for kind, corrupt := range corruptions {
			// A few of each kind, at places that the seed chooses.
			for found, places := 0, rng.Perm(len(history)); found < 3 && len(places) > 0; places = places[1:] {
				place := history[places[0]]
				// What one answer shows is noted once more as a look; that would tell.
				bad := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool {
					return o.Call == place.Call && o.Input != place.Input
				})
				at := slices.IndexFunc(bad, func(o porcupine.Operation) bool { return o.Call == place.Call })
				all := make([]entry, len(bad))
				for i := range bad {
					all[i] = entry{&bad[i], bad[i].Input.(call), bad[i].Output.(answer)}
				}
				if !corrupt(all[at], all) {
					continue
				}
				require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(model(), bad, patience), "seed %d: %s, and it was not found: %s", seed, kind,
					describe(all[at].c, bad[at].Output.(answer)))
				found++
				done[kind]++
			}
		}
	}
	for kind := range corruptions {
		require.NotZero(t, done[kind], "no place for it: %s", kind)
	}
	t.Log(sorted(done))
}

// The planted mistakes: each is a store that does one thing wrong, between a gateway
// and its real one.

// stale answers some reads with what an operation was when it was read before.
type stale struct {
	ledger.Store
	mu   sync.Mutex
	read map[string]ledger.Operation
	n    int
}

func (s *stale) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	op, err := s.Store.Operation(ctx, tenant, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.read[id]
	if s.n++; ok && err == nil && s.n%4 == 0 {
		return before, nil
	}
	s.read[id] = op
	return op, err
}

// forgetful acknowledges some decisions without writing them.
type forgetful struct {
	ledger.Store
	mu sync.Mutex
	n  int
}

func (f *forgetful) Apply(ctx context.Context, t ledger.Transition) error {
	f.mu.Lock()
	forget := false
	if t.Decision != nil {
		f.n++
		forget = f.n%3 == 0
	}
	f.mu.Unlock()
	if forget {
		return nil
	}
	return f.Store.Apply(ctx, t)
}

// cached keeps the guard row for some reads, and does not look at its epoch in the
// write: a freeze that was acknowledged elsewhere is not seen.
type cached struct {
	ledger.Store
	mu  sync.Mutex
	row ledger.Guard
	n   int
}

func (c *cached) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n%10 != 1 && c.row.Epoch != 0 {
		return c.row, nil
	}
	row, err := c.Store.Guard(ctx, tenant)
	if err == nil {
		c.row = row
	}
	return row, err
}

func (c *cached) Open(ctx context.Context, o ledger.Opening) error {
	now, err := c.Store.Guard(ctx, tenant)
	if err != nil {
		return err
	}
	o.Epoch = now.Epoch
	return c.Store.Open(ctx, o)
}

// believing takes a lost answer for a yes.
type believing struct{ ledger.Store }

func (b believing) Open(ctx context.Context, o ledger.Opening) error {
	err := b.Store.Open(ctx, o)
	if unclear := (*ledger.Ambiguous)(nil); errors.As(err, &unclear) {
		return nil
	}
	return err
}

// denying takes a lost answer for a no.
type denying struct{ ledger.Store }

func (d denying) Open(ctx context.Context, o ledger.Opening) error {
	err := d.Store.Open(ctx, o)
	if unclear := (*ledger.Ambiguous)(nil); errors.As(err, &unclear) {
		return errAway
	}
	return err
}

// TestHistory_PlantedIsFound: a gateway over a store that does one thing wrong gives
// an illegal history soon.
func TestHistory_PlantedIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes several histories")
	}
	for name, spoil := range map[string]func(ledger.Store) ledger.Store{
		"reads from before":                func(s ledger.Store) ledger.Store { return &stale{Store: s, read: map[string]ledger.Operation{}} },
		"decisions that are not written":   func(s ledger.Store) ledger.Store { return &forgetful{Store: s} },
		"freezes that are not seen":        func(s ledger.Store) ledger.Store { return &cached{Store: s} },
		"a lost answer is taken for a yes": func(s ledger.Store) ledger.Store { return believing{s} },
		"a lost answer is taken for a no":  func(s ledger.Store) ledger.Store { return denying{s} },
	} {
		t.Run(name, func(t *testing.T) {
			const within = 60
			for seed := uint64(1); seed <= within; seed++ {
				w, r := record(t, seed, spoil)
				history := r.history()
				w.close()
				if porcupine.CheckOperationsTimeout(model(), history, patience) == porcupine.Illegal {
					t.Logf("found by the history of seed %d:\n%s", seed, strings.TrimSpace(told(smallest(history))))
					return
				}
			}
			t.Errorf("not found by %d histories", within)
		})
	}
}
