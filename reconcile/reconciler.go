package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// ReconcilerConfig is what a Reconciler is made of.
type ReconcilerConfig struct {
	Ledger   *ledger.Ledger
	Store    DoubtStore
	Registry *tools.Registry
	Executor *commit.Executor
	Settings Settings
	Owner    string
	// Poll is the time between two looks when nothing is announced; 0 means 1 s.
	Poll time.Duration
	// EachTool bounds how many questions to one tool are open at once, so that a
	// slow one holds up nobody else; 0 means 4.
	EachTool int
	// AskFor bounds one question with its repeats; 0 means 40 s, which is less than
	// a doubt is claimed for.
	AskFor time.Duration
	// OnLookup is told of every answer and how long it took, for alerts and
	// counters.
	OnLookup func(op ledger.Operation, a tools.Answer, took time.Duration)
	// Asking opens a span around a lookup; nil leaves it out.
	Asking func(ctx context.Context, op ledger.Operation) (context.Context, func(tools.Answer))
	// Rand gives a number in [0,1) for jitter.
	Rand   func() float64
	Logger *slog.Logger
}

// DoubtStore is the part of ledger.Store that doubts are taken from.
type DoubtStore interface {
	commit.DueStore
	Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error
}

// Reconciler finds out what became of unknown operations. It is safe for
// concurrent use; several may work on one store.
type Reconciler struct {
	cfg ReconcilerConfig
	wg  sync.WaitGroup

	mu   sync.Mutex
	busy map[string]int // open questions by tool
	// freed tells Run that a tool which had no room has some again.
	freed chan struct{}
}

// NewReconciler returns a Reconciler.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	cfg.Settings = cfg.Settings.withDefaults()
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.EachTool == 0 {
		cfg.EachTool = 4
	}
	if cfg.AskFor == 0 {
		cfg.AskFor = 40 * time.Second
	}
	if cfg.OnLookup == nil {
		cfg.OnLookup = func(ledger.Operation, tools.Answer, time.Duration) {}
	}
	if cfg.Asking == nil {
		cfg.Asking = func(ctx context.Context, _ ledger.Operation) (context.Context, func(tools.Answer)) {
			return ctx, func(tools.Answer) {}
		}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{cfg: cfg, busy: map[string]int{}, freed: make(chan struct{}, 1)}
}

// Run looks at doubts until ctx ends, and waits for the questions that are open
// then.
func (r *Reconciler) Run(ctx context.Context) error {
	wake, end := r.cfg.Ledger.Changes(ledger.Unknown)
	defer end()
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	defer r.wg.Wait()
	for {
		if _, err := r.take(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("looking for unknown outcomes failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-r.freed:
		case <-tick.C:
		}
	}
}

// RunOnce looks at the doubts that are due now, of each tool as many as there is
// room for, and waits for what comes of it. It says how many it looked at.
func (r *Reconciler) RunOnce(ctx context.Context) (int, error) {
	n, err := r.take(ctx)
	r.wg.Wait()
	return n, err
}

// doubtClaim is how long a doubt stays with the process that looks at it; longer
// than a question with its repeats takes.
const doubtClaim = time.Minute

// take starts to look at the doubts that are due, each tool's a few at once, so
// that one that answers slowly holds up nobody else. It claims no more than there
// is room for: after an outage there may be thousands of one tool, and to claim and
// put off all of them again and again would be all that the store does.
func (r *Reconciler) take(ctx context.Context) (looked int, err error) {
	defer fault.Recovered(&err)
	for {
		now := r.cfg.Ledger.Now()
		due, err := r.cfg.Store.Due(ctx, ledger.DueQuery{
			Kind: ledger.DueDoubt, Now: now, Limit: r.cfg.EachTool, Owner: r.cfg.Owner, Until: now.Add(doubtClaim), Except: r.full(),
		})
		if err != nil {
			return looked, err
		}
		for _, op := range due {
			if !r.enter(op.Tool) {
				r.postpone(ctx, op, now)
				continue
			}
			looked++
			r.wg.Go(func() {
				defer r.leave(op.Tool)
				defer r.recovered(op)
				if err := r.look(ctx, op); err != nil && ctx.Err() == nil {
					r.cfg.Logger.Warn("an unknown outcome could not be looked at", "operation", op.ID, "tool", op.Tool, "error", err)
				}
			})
		}
		if len(due) < r.cfg.EachTool || ctx.Err() != nil {
			return looked, nil
		}
	}
}

// recovered keeps the process alive when something breaks off around a doubt: it
// stays unknown, and is looked at again after its claim.
func (r *Reconciler) recovered(op ledger.Operation) {
	if p := recover(); p != nil {
		r.cfg.Logger.Error("the look at an unknown outcome broke off", "operation", op.ID, "tool", op.Tool, "panic", p, "stack", string(debug.Stack()))
	}
}

func (r *Reconciler) enter(tool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[tool] >= r.cfg.EachTool {
		return false
	}
	r.busy[tool]++
	return true
}

func (r *Reconciler) leave(tool string) {
	r.mu.Lock()
	full := r.busy[tool] >= r.cfg.EachTool
	if r.busy[tool]--; r.busy[tool] == 0 {
		delete(r.busy, tool)
	}
	r.mu.Unlock()
	if full {
		select {
		case r.freed <- struct{}{}:
		default: // Run is told already
		}
	}
}

// full are the tools that have as many questions open as they may.
func (r *Reconciler) full() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tools []string
	for tool, n := range r.busy {
		if n >= r.cfg.EachTool {
			tools = append(tools, tool)
		}
	}
	slices.Sort(tools)
	return tools
}

// postpone moves the claim; a failure only costs a look too early or too late.
func (r *Reconciler) postpone(ctx context.Context, op ledger.Operation, until time.Time) {
	if err := r.cfg.Store.Defer(ctx, ledger.DueDoubt, op, until); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("a doubt could not be put off", "operation", op.ID, "error", err)
	}
}

// look does what Next says until it says wait, or the doubt is over.
func (r *Reconciler) look(ctx context.Context, op ledger.Operation) error {
	for range steps {
		if op.State != ledger.Unknown || op.OnList {
			return nil
		}
		t, err := r.cfg.Registry.Version(ctx, op.ToolVersion)
		if err != nil {
			return r.withoutTool(ctx, op, err)
		}
		evidence, err := r.cfg.Ledger.Evidence(ctx, op.Tenant, op.ID)
		if err != nil {
			return err
		}
		step, epoch, err := r.next(ctx, op, evidence, t)
		if err != nil {
			return err
		}
		switch step.Do {
		case Wait:
			r.postpone(ctx, op, r.jittered(step.At))
			return nil
		case HandOver:
			return r.handOver(ctx, op, step.Why)
		case Retry:
			return r.retry(ctx, op, t, step, epoch)
		case Absent:
			op, err = r.concludeAbsent(ctx, op, evidence, step.Why)
		default:
			op, err = r.ask(ctx, op, t, len(lookupsOf(op, evidence)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// steps bounds the steps of one look.
const steps = 8

// next is Next, with the guard row read for a retry: while dispatches are frozen,
// or when the agent's rights were taken away, nothing is sent again, and the doubt
// is treated as one of a tool that honours no key. What then can't be asked is
// for a person at once, also under a freeze, which is only lifted when no outcome
// is unknown.
func (r *Reconciler) next(ctx context.Context, op ledger.Operation, evidence []ledger.Evidence, t *tools.Tool) (Step, int64, error) {
	now := r.cfg.Ledger.Now()
	step := Next(op, evidence, &t.Spec, now, r.cfg.Settings)
	if step.Do != Retry {
		return step, 0, nil
	}
	guard, err := r.cfg.Ledger.Guard(ctx, op.Tenant)
	if err != nil {
		return step, 0, err
	}
	subject := op.Subject()
	subject.Undo = true // a freeze of new work lets a repeat through, as it does an undo
	if stands := guard.Check(subject); stands != nil {
		step = Next(op, evidence, &t.Spec, now, r.cfg.Settings.withoutRetries())
		if step.Do == HandOver {
			step.Why += " " + fault.Of(stands).Detail
		}
	}
	return step, guard.Epoch, nil
}

// withoutTool treats a doubt whose tool version can't be had.
func (r *Reconciler) withoutTool(ctx context.Context, op ledger.Operation, why error) error {
	switch {
	case ctx.Err() != nil, fault.Is(why, fault.StoreUnavailable):
		return why // after the claim
	case errors.Is(why, tools.ErrUpstreamGone):
		return r.handOver(ctx, op, "The upstream is no longer configured at the address that it was sent to; nobody else is asked.")
	}
	r.cfg.Logger.Error("the tool of an unknown outcome can't be read", "operation", op.ID, "tool", op.Tool, "error", why)
	return r.handOver(ctx, op, "The tool that it was sent with can't be read any more, so that nobody can be asked.")
}

// jittered adds up to a fifth of the wait, so that doubts that began together
// don't ask together (R115).
func (r *Reconciler) jittered(at time.Time) time.Time {
	wait := at.Sub(r.cfg.Ledger.Now())
	return at.Add(time.Duration(r.cfg.Rand() * float64(max(0, wait)) / 5))
}

func (r *Reconciler) handOver(ctx context.Context, op ledger.Operation, why string) error {
	_, err := r.cfg.Ledger.HandOver(ctx, op.Tenant, op.ID, why)
	if errors.Is(err, ledger.ErrMoved) || fault.Is(err, fault.InvalidState) {
		return nil // somebody was first
	}
	return err
}

// concludeAbsent ends a doubt by the answers that are there already.
func (r *Reconciler) concludeAbsent(ctx context.Context, op ledger.Operation, evidence []ledger.Evidence, why string) (ledger.Operation, error) {
	return r.cfg.Ledger.AddEvidence(ctx, op.Tenant, ledger.Evidence{
		ID: askID(op, len(lookupsOf(op, evidence)), "concluded", ""), Operation: op.ID, Covers: len(op.Attempts), Kind: "lookup", Verdict: tools.NoEffect,
		Answer: tools.Absent, Because: why, By: ledger.Reconciler, At: r.cfg.Ledger.Now(),
	})
}

// retry makes the dispatch mark of a repeat, which fails when the guard row has
// moved since its epoch was read, and lets the executor send it.
func (r *Reconciler) retry(ctx context.Context, op ledger.Operation, t *tools.Tool, step Step, epoch int64) error {
	plan, err := r.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	switch {
	case err != nil:
		return err
	case plan.Digest() != op.PlanDigest || plan.Target != op.Target:
		return r.handOver(ctx, op, "The stored plan is not the one that was sent; nothing is sent again.")
	case ctx.Err() != nil:
		return ctx.Err() // a stop sends nothing more
	}
	// A mark that its maker leaves would be made all the same, and nobody would
	// send what it marks.
	marked, err := r.cfg.Ledger.Retry(context.WithoutCancel(ctx), op, ledger.RetryRequest{
		Epoch: epoch, Timeout: t.Timeout, NotAfter: step.NotAfter, Why: step.Why,
	})
	var lost *ledger.Lost
	switch {
	case errors.As(err, &lost), errors.Is(err, ledger.ErrMoved), fault.Is(err, fault.InvalidState):
		r.postpone(ctx, op, r.cfg.Ledger.Now().Add(r.cfg.Poll)) // evaluated again
		return nil
	case err != nil:
		return err
	}
	r.cfg.Executor.Resend(marked, plan, t, func() { r.verify(ctx, marked, plan, t) })
	return nil
}
