package simstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

const (
	defaultPage = 50
	maxPage     = 200
)

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// cursor is a place in a list.
type cursor struct {
	Row    int64 `json:"n"`
	Oldest bool  `json:"o,omitempty"`
}

func (c cursor) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // a number and a bool always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// place gives the row behind which a page begins.
func place(text string, oldest bool) (int64, error) {
	if text == "" {
		if oldest {
			return math.MinInt64, nil
		}
		return math.MaxInt64, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return 0, ledger.ErrBadCursor
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var c cursor
	if err := d.Decode(&c); err != nil || c.Row <= 0 || c.Oldest != oldest {
		return 0, ledger.ErrBadCursor
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || c.text() != text {
		return 0, ledger.ErrBadCursor
	}
	return c.Row, nil
}

// List implements ledger.Store.
func (s *Store) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	if f.Tenant == "" {
		return ledger.Page{}, errors.New("simstore: a list needs a tenant")
	}
	after, err := place(f.Cursor, f.OldestFirst)
	if err != nil {
		return ledger.Page{}, err
	}
	limit := pageSize(f.Limit)
	about := f.Tool + f.Key + f.Parent + f.Run + f.Args
	if f.Goal != nil {
		about += f.Goal.Value
	}
	return get(ctx, s, Call{Method: "List", On: about}, func(st *State) (ledger.Page, error) {
		var page ledger.Page
		last := int64(0)
		visit := func(r *row) bool {
			if !beyond(r.n, after, f.OldestFirst) || !matches(f, r.op) {
				return true
			}
			if len(page.Operations) == limit {
				page.Next = cursor{Row: last, Oldest: f.OldestFirst}.text()
				return false
			}
			page.Operations = append(page.Operations, cloneOperation(r.op))
			last = r.n
			return true
		}
		walk(st.order, f.OldestFirst, visit)
		return page, nil
	})
}

func beyond(n, after int64, oldest bool) bool {
	if oldest {
		return n > after
	}
	return n < after
}

func walk(rows []*row, oldest bool, visit func(*row) bool) {
	for i := range rows {
		r := rows[len(rows)-1-i]
		if oldest {
			r = rows[i]
		}
		if !visit(r) {
			return
		}
	}
}

func matches(f ledger.Filter, op ledger.Operation) bool {
	run := ""
	if op.Run != nil {
		run = op.Run.ID
	}
	same := func(want, have string) bool { return want == "" || want == have }
	return op.Tenant == f.Tenant && same(f.Tool, op.Tool) && same(f.Key, op.Key) && same(f.Agent, op.Agent.ID) &&
		same(f.Run, run) && same(f.Args, op.ArgsDigest) && same(f.Parent, op.Parent) &&
		(len(f.States) == 0 || slices.Contains(f.States, op.State)) &&
		(f.OnList == nil || *f.OnList == op.OnList) && (f.Undo == nil || *f.Undo == (op.Parent != "")) &&
		(f.Goal == nil || op.Goal != nil && *op.Goal == *f.Goal) && (f.Place == nil || atPlace(op, *f.Place))
}

// atPlace reports that an operation is at a place of a run.
func atPlace(op ledger.Operation, place ledger.Run) bool {
	return op.Parent == "" && op.Run.Complete() && *op.Run == place
}

// placeTaken reports that another call stands at an operation's place in its run.
func (t *tx) placeTaken(op ledger.Operation) bool {
	return op.Run.Complete() && op.Parent == "" && slices.ContainsFunc(t.order, func(r *row) bool {
		o := r.op
		return o.Tenant == op.Tenant && o.Agent.ID == op.Agent.ID && atPlace(o, *op.Run) && (o.Tool != op.Tool || o.Key != op.Key) && !o.State.Void()
	})
}

// RunHead implements ledger.Store.
func (s *Store) RunHead(ctx context.Context, tenant, agent, id string) (ledger.RunHead, error) {
	return get(ctx, s, Call{Method: "RunHead", On: id}, func(st *State) (ledger.RunHead, error) {
		if r := st.runs[frame(tenant, agent, id)]; r != nil {
			return r.head, nil
		}
		return ledger.RunHead{Tenant: tenant, Agent: agent, ID: id}, nil
	})
}

// growRun counts a new operation in its run.
func (t *tx) growRun(op ledger.Operation, n int64) {
	h := ledger.RunHead{Tenant: op.Tenant, Agent: op.Agent.ID, ID: op.Run.ID}
	if r := t.runs[frame(h.Tenant, h.Agent, h.ID)]; r != nil {
		h = r.head
	}
	h.Operations++
	h.Newest = op.CreatedAt
	t.putRun(h, n)
}

// closeRun closes a run that stands as it was evaluated.
func (t *tx) closeRun(want ledger.RunHead) error {
	r := t.runs[frame(want.Tenant, want.Agent, want.ID)]
	switch {
	case r == nil:
		return &ledger.Refused{Why: ledger.RunMoved}
	case r.head.Closed():
		return &ledger.Refused{Why: ledger.RunClosed}
	case r.head.Operations != want.Operations:
		return &ledger.Refused{Why: ledger.RunMoved}
	}
	h := r.head
	h.ClosedAt, h.ClosedBy, h.Closing = want.ClosedAt, want.ClosedBy, want.Closing
	t.putRun(h, r.newest)
	return nil
}

func (t *tx) putRun(h ledger.RunHead, n int64) {
	key := frame(h.Tenant, h.Agent, h.ID)
	was, there := t.runs[key]
	t.runs[key] = &run{head: h, newest: n}
	t.onUndo(func() {
		if delete(t.runs, key); there {
			t.runs[key] = was
		}
	})
}

// Runs implements ledger.Store.
func (s *Store) Runs(ctx context.Context, f ledger.RunFilter) (ledger.RunPage, error) {
	if f.Tenant == "" {
		return ledger.RunPage{}, errors.New("simstore: a list needs a tenant")
	}
	after, err := place(f.Cursor, false)
	if err != nil {
		return ledger.RunPage{}, err
	}
	limit := pageSize(f.Limit)
	return get(ctx, s, Call{Method: "Runs", On: f.Agent}, func(st *State) (ledger.RunPage, error) {
		var found []*run
		for _, r := range st.runs {
			if r.head.Tenant == f.Tenant && (f.Agent == "" || r.head.Agent == f.Agent) && r.newest < after {
				found = append(found, r)
			}
		}
		slices.SortFunc(found, func(a, b *run) int { return cmp.Compare(b.newest, a.newest) })
		var page ledger.RunPage
		if len(found) > limit {
			found = found[:limit]
			page.Next = cursor{Row: found[limit-1].newest}.text()
		}
		for _, r := range found {
			page.Runs = append(page.Runs, r.head)
		}
		return page, nil
	})
}

var dueKinds = []ledger.DueKind{ledger.DueDispatch, ledger.DueLease, ledger.DueExpiry, ledger.DueDoubt}

// Due implements ledger.Store.
func (s *Store) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	if !slices.Contains(dueKinds, d.Kind) {
		return nil, fmt.Errorf("simstore: nothing is due as %q", d.Kind)
	}
	var ops []ledger.Operation
	err := s.write(ctx, Call{Method: "Due", Verb: string(d.Kind), On: d.Owner}, func(t *tx) error {
		var found []*row
		for _, r := range t.order {
			if at, ok := r.due[d.Kind]; ok && at <= nanos(d.Now) && !slices.Contains(d.Except, r.op.Tool) {
				found = append(found, r)
			}
		}
		slices.SortStableFunc(found, func(a, b *row) int { return cmp.Compare(a.due[d.Kind], b.due[d.Kind]) })
		ops = nil
		for _, r := range found[:min(len(found), max(d.Limit, 0))] {
			r.due[d.Kind] = nanos(d.Until)
			ops = append(ops, cloneOperation(r.op))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ops, nil
}

// Defer implements ledger.Store.
func (s *Store) Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error {
	if !slices.Contains(dueKinds, kind) {
		return fmt.Errorf("simstore: nothing is due as %q", kind)
	}
	return s.write(ctx, Call{Method: "Defer", Verb: string(kind), On: op.ID}, func(t *tx) error {
		r, err := t.ofTenant(op.Tenant, op.ID)
		if err != nil || r.op.Version != op.Version {
			return nil
		}
		if _, ok := r.due[kind]; ok {
			r.due[kind] = nanos(until)
		}
		return nil
	})
}

// Tally implements ledger.Store.
func (s *Store) Tally(ctx context.Context, tenant string) (ledger.Tally, error) {
	return get(ctx, s, Call{Method: "Tally", On: tenant}, func(st *State) (ledger.Tally, error) {
		t := ledger.Tally{States: map[ledger.State]int64{}}
		count := func(n *int64, when bool) {
			if when {
				*n++
			}
		}
		for _, r := range st.order {
			op := r.op
			if op.Tenant != tenant {
				continue
			}
			t.States[op.State]++
			effects := map[string]bool{}
			for _, e := range r.evidence {
				if e.Verdict == tools.Succeeded && e.EffectID != "" {
					effects[e.EffectID] = true
				}
			}
			count(&t.OnList, op.OnList)
			count(&t.Doubts, op.Doubt != ledger.DoubtNone)
			count(&t.Reconciled, op.Doubt == ledger.DoubtReconciled)
			count(&t.Effects, len(effects) > 0)
			count(&t.Duplicates, len(effects) > 1)
			since := op.FirstUnknownAt
			if since.IsZero() {
				since = op.UnknownSince
			}
			if op.State == ledger.Unknown && !since.IsZero() && (t.OldestUnknown.IsZero() || since.Before(t.OldestUnknown)) {
				t.OldestUnknown = since.UTC()
			}
		}
		return t, nil
	})
}

// Guard implements ledger.Store.
func (s *Store) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	return get(ctx, s, Call{Method: "Guard", On: tenant}, func(st *State) (ledger.Guard, error) { return cloneGuard(st.guardOf(tenant)), nil })
}

// GuardHistory implements ledger.Store.
func (s *Store) GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]ledger.Guard, error) {
	return get(ctx, s, Call{Method: "GuardHistory", On: tenant}, func(st *State) ([]ledger.Guard, error) {
		var out []ledger.Guard
		for _, g := range st.guards[tenant] {
			if g.guard.Epoch > after && len(out) < limit {
				out = append(out, cloneGuard(g.guard))
			}
		}
		return out, nil
	})
}

// Tenants implements ledger.Store.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	return get(ctx, s, Call{Method: "Tenants"}, func(st *State) ([]string, error) {
		var out []string
		for tenant := range st.guards {
			out = append(out, tenant)
		}
		slices.Sort(out)
		return out, nil
	})
}
