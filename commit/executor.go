package commit

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// ExecutorConfig is what an Executor is made of.
type ExecutorConfig struct {
	Ledger   *ledger.Ledger
	Store    DueStore
	Registry *tools.Registry
	// Person gives an operator as of now, for the check before dispatch that
	// the quorum still stands.
	Person func(ctx context.Context, tenant, id string) (policy.Person, error)
	// Owner names this process in soft claims.
	Owner string
	// Poll is how often to look for work that nobody announced; 0 means 1 s.
	Poll time.Duration
	// Spool keeps outcomes while the store is away; nil keeps them in memory only.
	Spool *Spool
	// Parallel bounds how many approved operations are sent at once; 0 means 16.
	Parallel int
	// Dispatching is called behind each dispatch mark, before anything is sent:
	// the context goes to the connector, and the function is told what was seen.
	// For traces.
	Dispatching func(context.Context, ledger.Operation) (context.Context, func(tools.Outcome))
	Logger      *slog.Logger
}

// DueStore is the part of ledger.Store that background loops take work from.
type DueStore interface {
	Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error)
}

// Executor sends what may be sent. It is safe for concurrent use.
type Executor struct {
	cfg   ExecutorConfig
	slots chan struct{}
	wg    sync.WaitGroup
	// stop ends the patience with a store that is away.
	stop   chan struct{}
	closed sync.Once
}

// NewExecutor returns an Executor. Run takes up pending operations; Start sends
// one that was born behind its mark.
func NewExecutor(cfg ExecutorConfig) *Executor {
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 16
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dispatching == nil {
		cfg.Dispatching = func(ctx context.Context, _ ledger.Operation) (context.Context, func(tools.Outcome)) {
			return ctx, func(tools.Outcome) {}
		}
	}
	return &Executor{cfg: cfg, slots: make(chan struct{}, cfg.Parallel), stop: make(chan struct{})}
}

// Start sends an operation that is behind its dispatch mark, in the background:
// the agent may hang up, the request goes on.
func (e *Executor) Start(op ledger.Operation, plan tools.Plan, t *tools.Tool) {
	e.wg.Go(func() {
		defer e.recovered(op)
		e.send(context.Background(), op, plan, t)
		e.follow(context.Background(), op)
	})
}

// Resend is Start for the repeat of an unknown operation: the same plan, so the
// same bytes under the same key, behind a mark that ledger.Retry made. then is
// called when its outcome is written, or was given up.
func (e *Executor) Resend(op ledger.Operation, plan tools.Plan, t *tools.Tool, then func()) {
	e.wg.Go(func() {
		defer e.recovered(op)
		e.send(context.Background(), op, plan, t)
		e.follow(context.Background(), op)
		then()
	})
}

// Run takes up pending operations until ctx ends, and what the spool holds.
func (e *Executor) Run(ctx context.Context) error {
	wake, end := e.cfg.Ledger.Changes(ledger.Pending)
	defer end()
	tick := time.NewTicker(e.cfg.Poll)
	defer tick.Stop()
	spool := time.NewTicker(spoolPoll)
	defer spool.Stop()
	e.replayAll(ctx)
	for {
		n, err := e.RunOnce(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.cfg.Logger.Warn("looking for pending operations failed", "error", err)
		case n == e.batch() && ctx.Err() == nil:
			continue // there may be more; the slots bound the pace
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		case <-spool.C:
			e.replayAll(ctx)
		}
	}
}

// spoolPoll is how often the spool is looked at for outcomes that nobody in this
// process holds.
const spoolPoll = 15 * time.Second

func (e *Executor) replayAll(ctx context.Context) {
	if _, err := e.Replay(ctx); err != nil && ctx.Err() == nil {
		e.cfg.Logger.Warn("not all of the spool could be told to the ledger", "error", err)
	}
}

// claimFor is how long a pending operation stays with the process that looked
// at it; a crash delays it by that long, nothing else.
const claimFor = 10 * time.Second

// batch bounds how many operations are claimed at once. Most of many can't be
// sent (a freeze, an upstream that is away) and take no time.
func (e *Executor) batch() int { return 4 * e.cfg.Parallel }

// RunOnce takes up what is pending now and says how many operations it looked
// at. It returns when all were started; Drain waits for their ends.
func (e *Executor) RunOnce(ctx context.Context) (looked int, err error) {
	defer fault.Recovered(&err)
	now := e.cfg.Ledger.Now()
	due, err := e.cfg.Store.Due(ctx, ledger.DueQuery{
		Kind: ledger.DueDispatch, Now: now, Limit: e.batch(), Owner: e.cfg.Owner, Until: now.Add(claimFor),
	})
	if err != nil {
		return 0, err
	}
	for _, op := range due {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return len(due), nil
		}
		e.wg.Go(func() {
			defer func() { <-e.slots }()
			defer e.recovered(op)
			if err := e.Dispatch(ctx, op); err != nil && ctx.Err() == nil {
				e.cfg.Logger.Warn("a pending operation was not dispatched", "operation", op.ID, "tool", op.Tool, "error", err)
			}
		})
	}
	return len(due), nil
}

// Drain waits until everything that was started has ended, or ctx ends; what
// then still runs is left as an honest doubt to its lease.
func (e *Executor) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		e.closed.Do(func() { close(e.stop) })
		return ctx.Err()
	}
}

// send lets the connector send what the mark stands for and writes what was
// seen. It is never cancelled by a caller.
func (e *Executor) send(ctx context.Context, op ledger.Operation, plan tools.Plan, t *tools.Tool) {
	attempt := op.Attempts[len(op.Attempts)-1]
	sending, seen := e.cfg.Dispatching(ctx, op)
	outcome := e.dispatch(sending, t, plan, tools.Dispatch{
		Operation: op.ID, Attempt: attempt.N, Deadline: attempt.Deadline, Timeout: t.Timeout,
	})
	seen(outcome)
	ledger.CrashPoint("after_reply")
	if err := e.conclude(ctx, op, outcome); err != nil {
		e.cfg.Logger.Error("an outcome was not written; until it is, the lease makes it unknown",
			"operation", op.ID, "tool", op.Tool, "verdict", outcome.Verdict, "effect_id", outcome.EffectID, "error", err)
	}
}

// recovered keeps the process alive when something breaks off around an
// operation: it stays pending, or its lease makes it unknown.
func (e *Executor) recovered(op ledger.Operation) {
	if p := recover(); p != nil {
		e.cfg.Logger.Error("the work on an operation broke off", "operation", op.ID, "tool", op.Tool, "panic", p, "stack", string(debug.Stack()))
	}
}

// dispatch shields the process from a connector that panics: what it may have
// sent is in doubt.
func (e *Executor) dispatch(ctx context.Context, t *tools.Tool, plan tools.Plan, d tools.Dispatch) (o tools.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("a connector panicked", "tool", t.Name, "operation", d.Operation, "panic", p)
			o = tools.Outcome{Verdict: tools.Unknown, Because: "The connector broke off; it may have happened."}
		}
	}()
	return t.Connector.Dispatch(ctx, plan, d)
}

// conclude writes an outcome, patiently: while the store is away the evidence
// is kept here and in the spool, and the operation is answered as running or
// unknown, never as done (I10).
func (e *Executor) conclude(ctx context.Context, op ledger.Operation, o tools.Outcome) error {
	file := "" // in the spool
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		_, err := e.cfg.Ledger.Conclude(ctx, op, o)
		if !storeAway(err) {
			e.unhold(file, err == nil)
			return err
		}
		if file == "" {
			file = e.hold(op, o)
		}
		select {
		case <-time.After(wait):
		case <-e.stop:
			return err
		}
	}
}

// hold puts an outcome into the spool. Where that fails, on a full disk perhaps,
// memory holds it alone, and it is tried again.
func (e *Executor) hold(op ledger.Operation, o tools.Outcome) string {
	if e.cfg.Spool == nil {
		return ""
	}
	file, err := e.cfg.Spool.hold(op, o)
	if err != nil {
		e.cfg.Logger.Error("an outcome could be written neither to the ledger nor to the spool yet; it is held in memory", "operation", op.ID, "error", err)
		return ""
	}
	e.cfg.Logger.Warn("the ledger can't be written; an outcome waits in the spool", "operation", op.ID, "file", file)
	return file
}

// unhold ends the holding of a file, if there is one: it goes when the ledger has
// what it says, and else is left to a later replay.
func (e *Executor) unhold(file string, told bool) {
	if file == "" {
		return
	}
	if !told {
		e.cfg.Spool.release(file)
	} else if err := e.cfg.Spool.drop(file); err != nil {
		e.cfg.Logger.Warn("an outcome that the ledger has was not removed from the spool", "file", file, "error", err)
	}
}
