package commit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// pending brings the next intent to where it waits to be sent.
func (l *life) pending() ledger.Operation {
	l.t.Helper()
	l.begin()
	for l.op == "" || l.now().State == ledger.AwaitingApproval {
		require.NoError(l.t, l.step(l.t.Context()))
	}
	require.Equal(l.t, ledger.Pending, l.now().State)
	return l.now()
}

// between runs something before the n-th store call of what follows, and says before
// which call it was; empty when there were fewer.
func (l *life) callBefore(n int, do func()) *string {
	var mu sync.Mutex
	seen, at := 0, ""
	l.store.set(func(call string) error {
		mu.Lock()
		seen++
		hit := seen == n
		if hit {
			at = call
		}
		mu.Unlock()
		if hit {
			do()
		}
		return nil
	})
	return &at
}

func (l *life) sent(op ledger.Operation) (n int) {
	for _, q := range tooltest.FakeOf(l.tool).Requests() {
		if q.Key.Upstream == op.UpstreamKey {
			n++
		}
	}
	return n
}

// TestMatrix_Row23_TwoGatewaysClaimTheSame: two gateways hold the same pending
// operation. One runs its whole dispatch before each of the other's store calls in
// turn: one mark, one request.
func TestMatrix_Row23_TwoGatewaysClaimTheSame(t *testing.T) {
	l := newLife(t)
	for n := 1; ; n++ {
		op := l.pending()
		other := l.beside(0)
		at := l.callBefore(n, func() {
			require.NoError(t, other.executor.Dispatch(context.Background(), op))
		})
		require.NoError(t, l.executor.Dispatch(t.Context(), op))
		l.store.set(nil)
		require.Equal(t, 1, l.sent(op), "before call %d, %s", n, *at)
		require.Len(t, l.now().Attempts, 1)
		l.finish("before " + *at)
		if *at == "" {
			require.Greater(t, n, 5, "the other came between")
			return
		}
	}
}

// TestMatrix_Row26_FreezeRacesWithDispatch: a freeze is acknowledged before each of
// the store calls of a dispatch in turn, and a dispatch runs before each of the store
// calls of a freeze: of each level, for one tool and for everything. Behind the
// acknowledgement there is no mark and no request; what was marked before is on the
// list that whoever freezes is given.
func TestMatrix_Row26_FreezeRacesWithDispatch(t *testing.T) {
	by := ledger.Actor{Kind: "operator", ID: ann.ID}
	for name, scope := range map[string]ledger.Scope{
		"one tool":   {Tenant: tenant, Tool: "refund_payment"},
		"everything": {Tenant: tenant, Everything: true},
	} {
		for _, level := range []ledger.FreezeLevel{ledger.FreezeNew, ledger.FreezeAll} {
			thaw := func(r *rig) {
				require.NoError(t, r.ledger.Unfreeze(context.Background(), ledger.Unfreezing{Scope: scope, By: by, Reason: "go on", Override: true}))
			}
			t.Run(fmt.Sprintf("in a dispatch, %s, %s", name, level), func(t *testing.T) {
				l := newLife(t)
				for n := 1; ; n++ {
					op := l.pending()
					person := l.beside(0)
					var listed []ledger.Operation
					at := l.callBefore(n, func() {
						var err error
						listed, err = person.ledger.Freeze(context.Background(), scope, level, by, "stop")
						require.NoError(t, err)
					})
					require.NoError(t, l.executor.Dispatch(t.Context(), op))
					l.store.set(nil)
					marked := len(l.now().Attempts)
					require.Equal(t, marked, l.sent(op), "%d %s", n, *at)
					if *at == "" { // fewer calls: it was all over
						require.Greater(t, n, 5)
						return
					}
					require.Equal(t, marked, len(listed), "%s: what is sent is listed, and what is not marked is not sent", *at)
					if marked == 0 {
						require.Equal(t, ledger.Pending, l.now().State)
					}
					thaw(person)
					l.finish("frozen before " + *at)
				}
			})
			t.Run(fmt.Sprintf("in a freeze, %s, %s", name, level), func(t *testing.T) {
				l := newLife(t)
				for n := 1; ; n++ {
					op := l.pending()
					other := l.beside(0)
					at := l.callBefore(n, func() { require.NoError(t, other.executor.Dispatch(context.Background(), op)) })
					_, err := l.ledger.Freeze(t.Context(), scope, level, by, "stop")
					require.NoError(t, err)
					before := l.sent(op)
					require.NoError(t, other.executor.Dispatch(t.Context(), l.now()))
					require.Equal(t, before, l.sent(op), "nothing behind the acknowledgement")
					l.store.set(nil)
					thaw(other)
					l.finish("dispatched before " + *at)
					if *at == "" {
						require.Greater(t, n, 1)
						return
					}
				}
			})
			t.Run(fmt.Sprintf("in a birth behind its mark, %s, %s", name, level), func(t *testing.T) {
				hold := tooltest.FakeTool("hold_order")
				r, store := newRig(t, hold), &sited{}
				r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
				r.restart()
				l := &life{rig: r, store: store, tool: hold}
				person := l.beside(0)
				scope := scope
				if scope.Tool != "" {
					scope.Tool = "hold_order"
				}
				for n := 1; ; n++ {
					p := r.preview(agent, "hold_order", args(fmt.Sprint("ord_", n)))
					had := len(tooltest.FakeOf(hold).Requests())
					var listed []ledger.Operation
					at := l.callBefore(n, func() {
						var err error
						listed, err = person.ledger.Freeze(context.Background(), scope, level, by, "stop")
						require.NoError(t, err)
					})
					_, err := r.commits.Commit(t.Context(), commitNow(p.Token))
					require.NoError(t, r.executor.Drain(t.Context()))
					store.set(nil)
					sent := len(tooltest.FakeOf(hold).Requests()) - had
					if *at == "" || !strings.HasPrefix(*at, "Generation") && err == nil {
						require.Equal(t, 1, sent)
					}
					if err != nil {
						requireCode(t, err, fault.ToolFrozen)
						require.Zero(t, sent)
						require.Empty(t, listed)
					}
					require.NoError(t, person.ledger.Unfreeze(context.Background(), ledger.Unfreezing{Scope: scope, By: by, Reason: "go on", Override: true}))
					if *at == "" || err == nil {
						return // from here on the mark stood before
					}
				}
			})
		}
	}
}

// TestMatrix_Row27_UnfreezeWithABacklog: many approved operations wait under a
// freeze, and the world of every third changes. When the freeze is lifted no more
// than the set number is sent at once, each is looked at again before, and people are
// asked again about what changed.
func TestMatrix_Row27_UnfreezeWithABacklog(t *testing.T) {
	const backlog, parallel = 150, 16
	tool := refund()
	r := newRig(t, tool)
	fake := tooltest.FakeOf(tool)
	slow := &counting{hooked: hooked{Connector: fake}}
	tool.Connector = slow
	ops := make([]ledger.Operation, backlog)
	var wg sync.WaitGroup
	work := make(chan int)
	failed := make(chan error, backlog)
	for range 16 {
		wg.Go(func() {
			for i := range work {
				op, err := r.approved(fmt.Sprint("pay_", i))
				ops[i] = op
				if err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range ops {
		work <- i
	}
	close(work)
	wg.Wait()
	close(failed)
	require.NoError(t, <-failed)
	r.freeze("", ledger.FreezeAll)
	r.work()
	require.Zero(t, slow.guards.Load(), "nothing is even looked at")
	slow.guard = func(ctx context.Context, p tools.Plan) (tools.Guard, error) {
		slow.guards.Add(1)
		g, err := slow.Connector.Guard(ctx, p)
		if n, _ := strconv.Atoi(strings.TrimPrefix(p.Args["order_id"].(string), "pay_")); n%3 == 0 {
			g.Drift = []tools.Drift{{Field: "refunded", Was: 0, Now: 1}}
		}
		return g, err
	}
	r.thawAll()
	ctx, stop := context.WithCancel(t.Context())
	executor := commit.NewExecutor(commit.ExecutorConfig{Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: r.person, Owner: "test", Parallel: parallel, Poll: time.Hour})
	r.clock.Add(11 * time.Second) // behind the claims
	ended := make(chan error, 1)
	go func() { ended <- executor.Run(ctx) }()
	require.Eventually(t, func() bool {
		page, err := r.ledger.List(ctx, ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Pending, ledger.Running}, Limit: 1})
		return err == nil && len(page.Operations) == 0
	}, time.Minute, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, executor.Drain(context.Background()))
	require.LessOrEqual(t, slow.most.Load(), int64(parallel), "bounded")
	require.Greater(t, slow.most.Load(), int64(1), "and not one by one")
	require.EqualValues(t, backlog, slow.guards.Load(), "each was looked at again")
	for i, op := range ops {
		if got := r.op(op.ID); i%3 == 0 {
			require.Equal(t, ledger.AwaitingApproval, got.State)
			require.Equal(t, 2, got.Round)
		} else {
			require.Equal(t, ledger.Succeeded, got.State)
		}
	}
	require.Len(t, fake.Requests(), backlog-backlog/3)
}

func (r *rig) thawAll() {
	r.t.Helper()
	require.NoError(r.t, r.ledger.Unfreeze(context.Background(), ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant}, By: ledger.Gateway("test"), Reason: "go on", Override: true}))
}

// approved asks for a refund and says yes to it, from any goroutine.
func (r *rig) approved(payment string) (ledger.Operation, error) {
	ctx := context.Background()
	p, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: "refund_payment", Args: args(payment, "amount", 100)})
	if err != nil {
		return ledger.Operation{}, err
	}
	res, err := r.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "refund_payment", Token: p.Token})
	if err != nil {
		return ledger.Operation{}, err
	}
	card, err := r.approvals.Card(ctx, approvals.PersonOf(carl), tenant, res.Operation.ID)
	if err != nil {
		return ledger.Operation{}, err
	}
	op, err := r.approvals.Decide(ctx, carl, res.Operation.ID, approvals.Decision{Word: "approve", ShownDigest: card.ShownDigest})
	if err == nil && op.State != ledger.Pending {
		err = errors.New("one yes is enough, and it is " + string(op.State))
	}
	return op, err
}

// counting counts looks, and how many dispatches are under way at most.
type counting struct {
	hooked
	guards, now, most atomic.Int64
}

func (c *counting) Dispatch(ctx context.Context, p tools.Plan, d tools.Dispatch) tools.Outcome {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(time.Millisecond) // so that they meet
	return c.Connector.Dispatch(ctx, p, d)
}
