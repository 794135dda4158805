package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	// OnLookup is told of every answer, for alerts and counters.
	OnLookup func(op ledger.Operation, a tools.Answer)
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
	if cfg.OnLookup == nil {
		cfg.OnLookup = func(ledger.Operation, tools.Answer) {}
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
	return &Reconciler{cfg: cfg, busy: map[string]int{}}
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
		case <-tick.C:
		}
	}
}

// RunOnce looks at the doubts that are due now and waits for what comes of it. It
// says how many it looked at.
func (r *Reconciler) RunOnce(ctx context.Context) (int, error) {
	n, err := r.take(ctx)
	r.wg.Wait()
	return n, err
}

// claimFor is how long a doubt stays with the process that looks at it; longer
// than a question with its repeats takes.
const doubtClaim = time.Minute

// take starts to look at the doubts that are due.
func (r *Reconciler) take(ctx context.Context) (int, error) {
	now := r.cfg.Ledger.Now()
	due, err := r.cfg.Store.Due(ctx, ledger.DueQuery{Kind: ledger.DueDoubt, Now: now, Limit: batch, Owner: r.cfg.Owner, Until: now.Add(doubtClaim)})
	if err != nil {
		return 0, err
	}
	for _, op := range due {
		if !r.enter(op.Tool) {
			r.postpone(ctx, op, now.Add(r.cfg.Poll))
			continue
		}
		r.wg.Go(func() {
			defer r.leave(op.Tool)
			if err := r.look(ctx, op); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("an unknown outcome could not be looked at", "operation", op.ID, "tool", op.Tool, "error", err)
			}
		})
	}
	return len(due), nil
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
	defer r.mu.Unlock()
	r.busy[tool]--
}

// postpone moves the claim; a failure only costs a look too early or too late.
func (r *Reconciler) postpone(ctx context.Context, op ledger.Operation, until time.Time) {
	if err := r.cfg.Store.Defer(ctx, ledger.DueDoubt, op, until); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("a doubt could not be put off", "operation", op.ID, "error", err)
	}
}

// look does what Next says until it says wait, or the doubt is over.
func (r *Reconciler) look(ctx context.Context, op ledger.Operation) error {
	for range attempts {
		if op.State != ledger.Unknown || op.OnList {
			return nil
		}
		t, err := r.cfg.Registry.Version(ctx, op.ToolVersion)
		switch {
		case fault.Is(err, fault.StoreUnavailable):
			return err
		case err != nil:
			return r.handOver(ctx, op, "The upstream is no longer configured at the address that it was sent to, or its tool can't be read any more; nobody else is asked.")
		}
		evidence, err := r.cfg.Ledger.Evidence(ctx, op.Tenant, op.ID)
		if err != nil {
			return err
		}
		step := Next(op, evidence, &t.Spec, r.cfg.Ledger.Now(), r.cfg.Settings)
		switch step.Do {
		case Wait:
			r.postpone(ctx, op, r.jittered(step.At))
			return nil
		case HandOver:
			return r.handOver(ctx, op, step.Why)
		case Retry:
			return r.retry(ctx, op, t, step)
		case Absent:
			op, err = r.concludeAbsent(ctx, op, step.Why)
		default:
			op, err = r.ask(ctx, op, t, len(lookupsOf(op, evidence)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attempts bounds the steps of one look.
const attempts = 8

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

// AskNow asks about an unknown operation at a person's wish, also one that is on
// the people's list; what the answer proves settles it, and everything else is
// kept as evidence.
func (r *Reconciler) AskNow(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	op, err := r.cfg.Ledger.Operation(ctx, tenant, id)
	switch {
	case err != nil:
		return op, err
	case op.State != ledger.Unknown:
		e := fault.New(fault.InvalidState, "Its outcome is known: the operation is %s.", op.State)
		e.Operation = op.ID
		return op, e
	}
	t, err := r.cfg.Registry.Version(ctx, op.ToolVersion)
	if fault.Is(err, fault.StoreUnavailable) {
		return op, err
	}
	if err != nil || t.Consistency == tools.NoLookup {
		e := fault.New(fault.InvalidState, "The tool %s can't be asked; only a person can find out.", op.Tool)
		e.Operation = op.ID
		return op, e
	}
	evidence, err := r.cfg.Ledger.Evidence(ctx, tenant, id)
	if err != nil {
		return op, err
	}
	return r.ask(ctx, op, t, len(lookupsOf(op, evidence)))
}

// ask asks the outside system and writes down what it said. n is how often it was
// asked before.
func (r *Reconciler) ask(ctx context.Context, op ledger.Operation, t *tools.Tool, n int) (ledger.Operation, error) {
	plan, err := r.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return op, err
	}
	asking, done := r.cfg.Asking(ctx, op)
	answer := r.lookup(asking, t, plan)
	done(answer)
	if ctx.Err() != nil {
		return op, ctx.Err() // a stop is no answer
	}
	r.cfg.OnLookup(op, answer)
	if answer.Kind == tools.LookupFailed {
		r.cfg.Logger.Warn("a lookup failed; the outcome stays unknown", "operation", op.ID, "tool", op.Tool, "because", answer.Because)
	}
	ids := answer.EffectIDs
	if len(ids) == 0 {
		ids = []string{""}
	}
	for i, id := range ids {
		ev := ledger.Evidence{
			ID: askID(op, n, i), Operation: op.ID, Covers: len(op.Attempts), Kind: "lookup", Verdict: tools.Unknown,
			Answer: answer.Kind, EffectID: id, Because: answer.Because, By: ledger.Reconciler, Seen: answer.Seen, At: r.cfg.Ledger.Now(),
		}
		if id != "" {
			ev.Verdict = tools.Succeeded
		}
		next, err := r.cfg.Ledger.AddEvidence(ctx, op.Tenant, ev)
		if err != nil {
			return op, err
		}
		if next.ID != "" {
			op = next
		}
	}
	return r.cfg.Ledger.Operation(ctx, op.Tenant, op.ID)
}

// askID names the n-th answer about the attempts that there are, so that an answer
// written twice is kept once.
func askID(op ledger.Operation, n, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d\n%d\n%d", op.ID, len(op.Attempts), op.UnknownSince.UnixNano(), n, i))
	return "evd_" + hex.EncodeToString(sum[:16])
}

// lookup shields the process from a connector that panics: that is no answer.
func (r *Reconciler) lookup(ctx context.Context, t *tools.Tool, plan tools.Plan) (a tools.Answer) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("a connector panicked in a lookup", "tool", t.Name, "panic", p)
			a = tools.Answer{Kind: tools.LookupFailed, Because: "The connector broke off."}
		}
	}()
	return t.Connector.Lookup(ctx, plan)
}

// concludeAbsent ends a doubt by the answers that are there already.
func (r *Reconciler) concludeAbsent(ctx context.Context, op ledger.Operation, why string) (ledger.Operation, error) {
	return r.cfg.Ledger.AddEvidence(ctx, op.Tenant, ledger.Evidence{
		ID: askID(op, -1, 0), Operation: op.ID, Covers: len(op.Attempts), Kind: "lookup", Verdict: tools.NoEffect,
		Answer: tools.Absent, Because: why, By: ledger.Reconciler, At: r.cfg.Ledger.Now(),
	})
}

// retry sends the same again, unless everything is frozen or the agent's rights
// were taken away: then it is only asked about, in the end by a person.
func (r *Reconciler) retry(ctx context.Context, op ledger.Operation, t *tools.Tool, step Step) error {
	guard, err := r.cfg.Ledger.Guard(ctx, op.Tenant)
	if err != nil {
		return err
	}
	subject := op.Subject()
	subject.Undo = true // a freeze of new work lets a repeat through, as it does an undo
	if _, stopped := guard.Stops(subject); stopped {
		r.postpone(ctx, op, r.cfg.Ledger.Now().Add(doubtClaim))
		return nil
	}
	if guard.Check(subject) != nil {
		return r.handOver(ctx, op, "The agent's rights were taken away, so nothing is sent for it again: a person must find out in the outside system.")
	}
	plan, err := r.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	switch {
	case err != nil:
		return err
	case plan.Digest() != op.PlanDigest || plan.Target != op.Target:
		return r.handOver(ctx, op, "The stored plan is not the one that was sent; nothing is sent again.")
	}
	marked, err := r.cfg.Ledger.Retry(context.WithoutCancel(ctx), op, ledger.RetryRequest{
		Epoch: guard.Epoch, Timeout: t.Timeout, NotAfter: step.NotAfter, Why: step.Why,
	})
	var lost *ledger.Lost
	switch {
	case errors.As(err, &lost), errors.Is(err, ledger.ErrMoved), fault.Is(err, fault.InvalidState):
		r.postpone(ctx, op, r.cfg.Ledger.Now().Add(r.cfg.Poll))
		return nil
	case err != nil:
		return err
	}
	r.cfg.Executor.Start(marked, plan, t)
	return nil
}
