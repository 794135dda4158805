package ledger

import "context"

// FreezeMeasures compare the scope of a freeze as it stood when it was frozen with
// how it stands now (R130). All of it is counted from the record when it is asked
// for; nothing was filled in beforehand.
type FreezeMeasures struct {
	Before, Now ScopeCount
	// What happened in the scope since: dispatch marks, doubts that began, doubts
	// that ended, and ends that evidence contradicted.
	Dispatched, Doubted, Settled, Contradicted int
}

// ScopeCount counts operations of a scope at one moment.
type ScopeCount struct{ Running, Unknown int }

const (
	// maxSince bounds the events, and maxCounted the operations, that are read for
	// one comparison.
	maxSince   = 20_000
	maxCounted = 5_000
)

// FreezeMeasures compares one freeze of the tenant. It answers false where more
// happened than is counted for one look, or so much goes on that no two reads
// agree: a figure that may be wrong is none. Events are placed by the clocks of the
// gateways that wrote them, so that a mark that was made while the freeze was being
// written counts as one since.
func (r Reader) FreezeMeasures(ctx context.Context, tenant string, f Freeze) (FreezeMeasures, bool, error) {
	for range maxTries {
		m, change, last, ok, err := r.eventsSince(ctx, tenant, f)
		if err != nil || !ok {
			return m, false, err
		}
		if m.Now.Running, ok, err = r.countIn(ctx, tenant, f.Tool, Running); err != nil || !ok {
			return m, false, err
		}
		if m.Now.Unknown, ok, err = r.countIn(ctx, tenant, f.Tool, Unknown); err != nil || !ok {
			return m, false, err
		}
		// What moved between the reads would be counted on one side only.
		later, err := r.EventsAfter(ctx, tenant, last, 1)
		if err != nil {
			return m, false, err
		}
		if len(later) == 0 {
			m.Before = ScopeCount{Running: m.Now.Running - change.Running, Unknown: m.Now.Unknown - change.Unknown}
			return m, true, nil
		}
	}
	return FreezeMeasures{}, false, nil
}

// eventsSince counts what happened in the scope since the freeze, and by how much
// that changed the counts. last is the newest event that was read.
func (r Reader) eventsSince(ctx context.Context, tenant string, f Freeze) (m FreezeMeasures, change ScopeCount, last int64, ok bool, err error) {
	last, err = r.newestUntil(ctx, tenant, f)
	if err != nil {
		return m, change, last, false, err
	}
	const page = 500
	for read := 0; read < maxSince; read += page {
		events, err := r.EventsAfter(ctx, tenant, last, page)
		if err != nil {
			return m, change, last, false, err
		}
		for _, e := range events {
			last = e.Seq
			if f.Tool == "" || e.Tool == f.Tool {
				m.add(e)
				change.Running += one(e.To == Running) - one(e.From == Running)
				change.Unknown += one(e.To == Unknown) - one(e.From == Unknown)
			}
		}
		if len(events) < page {
			return m, change, last, true, nil
		}
	}
	return m, change, last, false, nil
}

func (m *FreezeMeasures) add(e Event) {
	switch {
	case e.To == Running:
		m.Dispatched++
	case e.Verb == VerbContradict:
		m.Contradicted++
	}
	switch {
	case e.From != Unknown && e.To == Unknown:
		m.Doubted++
	case e.From == Unknown && e.To.Final():
		m.Settled++
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// newestUntil finds the newest event that is not younger than the freeze, by
// doubling and halving: events have numbers, and only a number finds them.
func (r Reader) newestUntil(ctx context.Context, tenant string, f Freeze) (int64, error) {
	// next is the first event behind a number, and whether it came before the
	// freeze.
	next := func(seq int64) (int64, bool, error) {
		events, err := r.EventsAfter(ctx, tenant, seq, 1)
		if err != nil || len(events) == 0 {
			return 0, false, err
		}
		return events[0].Seq, !events[0].At.After(f.At), nil
	}
	known, beyond := int64(0), int64(1)
	for {
		seq, before, err := next(beyond)
		if err != nil {
			return 0, err
		}
		if !before {
			break
		}
		known, beyond = seq, 2*seq
	}
	for known < beyond {
		middle := known + (beyond-known)/2
		seq, before, err := next(middle)
		switch {
		case err != nil:
			return 0, err
		case before:
			known = seq
		default:
			beyond = middle
		}
	}
	return known, nil
}

// countIn counts operations of a scope in a state.
func (r Reader) countIn(ctx context.Context, tenant, tool string, s State) (int, bool, error) {
	f := Filter{Tenant: tenant, Tool: tool, States: []State{s}, OldestFirst: true, Limit: 200}
	for n := 0; n < maxCounted; {
		page, err := r.List(ctx, f)
		if err != nil {
			return 0, false, err
		}
		n += len(page.Operations)
		if page.Next == "" {
			return n, true, nil
		}
		f.Cursor = page.Next
	}
	return 0, false, nil
}
