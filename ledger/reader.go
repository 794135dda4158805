package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"countersign/tools"
)

// Reader is the read side of a store, for handlers and pages.
type Reader struct{ store Store }

// Operation reads one operation of the tenant.
func (r Reader) Operation(ctx context.Context, tenant, id string) (Operation, error) {
	op, err := r.store.Operation(ctx, tenant, id)
	return op, readFault(err)
}

// Plan reads the plan of one round.
func (r Reader) Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error) {
	p, err := r.store.Plan(ctx, tenant, operation, round)
	return p, readFault(err)
}

// Decisions reads what people said, oldest first.
func (r Reader) Decisions(ctx context.Context, tenant, operation string) ([]Decision, error) {
	d, err := r.store.Decisions(ctx, tenant, operation)
	return d, readFault(err)
}

// Evidence reads what is known of the operation's outcome, oldest first.
func (r Reader) Evidence(ctx context.Context, tenant, operation string) ([]Evidence, error) {
	e, err := r.store.Evidence(ctx, tenant, operation)
	return e, readFault(err)
}

// Events reads the operation's transitions, oldest first.
func (r Reader) Events(ctx context.Context, tenant, operation string) ([]Event, error) {
	e, err := r.store.Events(ctx, tenant, operation)
	return e, readFault(err)
}

// List reads operations by keyset paging.
func (r Reader) List(ctx context.Context, f Filter) (Page, error) {
	p, err := r.store.List(ctx, f)
	return p, readFault(err)
}

// Waiting counts the operations of one agent that wait for people, no further than
// to enough.
func (r Reader) Waiting(ctx context.Context, tenant, agent string, enough int) (n int, err error) {
	f := Filter{Tenant: tenant, Agent: agent, States: []State{AwaitingApproval}}
	for n < enough {
		f.Limit = min(enough-n, 200)
		page, err := r.List(ctx, f)
		if err != nil {
			return n, err
		}
		n += len(page.Operations)
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	return n, nil
}

// Head reads what stands under a key.
func (r Reader) Head(ctx context.Context, tenant, tool, key string) (Head, error) {
	h, err := r.store.Head(ctx, tenant, tool, key)
	if err != nil {
		return h, readFault(err)
	}
	if !h.Operation.State.Void() || h.Operation.Generation == 1 {
		return h, nil
	}
	return r.standing(ctx, h, Filter{Tenant: tenant, Tool: tool, Key: key, States: PossibleEffect()})
}

// standing puts the newest of what is live or effective in the place of a head
// that is not.
func (r Reader) standing(ctx context.Context, h Head, f Filter) (Head, error) {
	f.Limit = 1
	page, err := r.store.List(ctx, f)
	if err != nil || len(page.Operations) == 0 {
		return h, readFault(err)
	}
	newest := h.Operation
	return Head{Operation: page.Operations[0], Newest: &newest}, nil
}

// Generation reads the operation of one generation; ErrNotFound when it was
// never opened.
func (r Reader) Generation(ctx context.Context, tenant, tool, keyDigest string, generation int) (Operation, error) {
	op, err := r.store.Generation(ctx, tenant, tool, keyDigest, generation)
	if errors.Is(err, ErrNotFound) {
		return op, ErrNotFound
	}
	return op, StoreFault(err)
}

// RejectedAsk finds a rejected operation with the same args by the same agent
// that nobody reopened.
func (r Reader) RejectedAsk(ctx context.Context, tenant, tool, argsDigest, agent string) (Operation, bool, error) {
	op, err := r.store.RejectedAsk(ctx, tenant, tool, argsDigest, agent)
	if errors.Is(err, ErrNotFound) {
		return Operation{}, false, nil
	}
	return op, err == nil, StoreFault(err)
}

// Goal reads what stands for a goal.
func (r Reader) Goal(ctx context.Context, tenant string, goal tools.Goal) (Head, error) {
	h, err := r.store.Goal(ctx, tenant, goal)
	if err != nil || !h.Exists() || !frees(h.Operation.State) {
		return h, readFault(err)
	}
	return r.standing(ctx, h, Filter{Tenant: tenant, Goal: &goal, States: holds()})
}

// frees reports that an operation in that state leaves its goal to another: it
// has no effect, or none any more.
func frees(s State) bool { return s.Void() || s == Compensated }

// holds lists the states that don't.
func holds() []State { return slices.DeleteFunc(slices.Clone(States), frees) }

// RunHead reads how a run stands.
func (r Reader) RunHead(ctx context.Context, tenant, agent, run string) (RunHead, error) {
	h, err := r.store.RunHead(ctx, tenant, agent, run)
	return h, StoreFault(err)
}

// Runs lists a tenant's runs, newest first.
func (r Reader) Runs(ctx context.Context, f RunFilter) (RunPage, error) {
	p, err := r.store.Runs(ctx, f)
	return p, readFault(err)
}

// Tally counts the tenant's operations.
func (r Reader) Tally(ctx context.Context, tenant string) (Tally, error) {
	t, err := r.store.Tally(ctx, tenant)
	return t, StoreFault(err)
}

// GuardHistory reads the tenant's guard rows behind an epoch, oldest first.
func (r Reader) GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]Guard, error) {
	g, err := r.store.GuardHistory(ctx, tenant, after, limit)
	return g, StoreFault(err)
}

// Guard reads the tenant's guard row.
func (r Reader) Guard(ctx context.Context, tenant string) (Guard, error) {
	g, err := r.store.Guard(ctx, tenant)
	return g, StoreFault(err)
}

// Preview reads a stored preview; ErrNotFound when it is gone.
func (r Reader) Preview(ctx context.Context, tenant, id string) (Preview, error) {
	p, err := r.store.Preview(ctx, tenant, id)
	if errors.Is(err, ErrNotFound) {
		return p, ErrNotFound
	}
	return p, StoreFault(err)
}

// CountPreviews counts an agent's unexpired previews.
func (r Reader) CountPreviews(ctx context.Context, tenant, agent string, now time.Time) (int, error) {
	n, err := r.store.CountPreviews(ctx, tenant, agent, now)
	return n, StoreFault(err)
}

// EventsAfter reads the tenant's events behind seq, in commit order.
func (r Reader) EventsAfter(ctx context.Context, tenant string, seq int64, limit int) ([]Event, error) {
	e, err := r.store.EventsAfter(ctx, tenant, seq, limit)
	return e, StoreFault(err)
}

// Manifest reads a tool version that some operation was opened with.
func (r Reader) Manifest(ctx context.Context, version string) (Manifest, error) {
	m, err := r.store.Manifest(ctx, version)
	if errors.Is(err, ErrNotFound) {
		return m, ErrNotFound
	}
	return m, StoreFault(err)
}

// Ready reads something small from the store.
func (r Reader) Ready(ctx context.Context) error { return StoreFault(r.store.Ping(ctx)) }
