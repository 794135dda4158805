package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"countersign/approvals"
	"countersign/commit"
	"countersign/harness/simstore"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/tokens"
	"countersign/tools"
)

const tenant = "acme"

// How patient the simulated gateways are; all of it short, so that a schedule is.
const (
	leaseMargin = 4 * time.Second
	toolTimeout = 2 * time.Second
	maxInFlight = 5 * time.Second
	skewAllowed = 4 * time.Second
	// lease is how long a dispatch holds its operation.
	lease = leaseMargin + toolTimeout
	// settle is when a packet has arrived or never will, from the mark on.
	settle = leaseMargin/2 + toolTimeout + maxInFlight + skewAllowed
	// guardMaxAge is how old the last look may be when the mark is made.
	guardMaxAge = 4 * time.Second
	// keyRetention is short, so that it is over sometimes.
	keyRetention = 25 * time.Second
	// poll is long, since most of a run's own time would be spent on looking.
	poll        = 2500 * time.Millisecond
	roundExpiry = 60 * time.Second
	yesMaxAge   = 12 * time.Second
)

var patience = reconcile.Settings{
	FirstPause: time.Second, MaxPause: 6 * time.Second, Budget: 45 * time.Second, Repeats: 2,
	Spacing: 2 * time.Second, RetentionMargin: 5 * time.Second, Skew: skewAllowed,
}

// node is one gateway, through all its lives.
type node struct {
	s    *sim
	n    int
	skew time.Duration
	life atomic.Pointer[life]
	ids  atomic.Int64
}

// life is a node from its start to its crash.
type life struct {
	node   *node
	owner  string
	ctx    context.Context //nolint:containedctx // the process's own
	cancel context.CancelFunc
	dead   atomic.Bool
	up     atomic.Bool

	downUntil atomic.Int64

	ledger    *ledger.Ledger
	previews  *preview.Service
	commits   *commit.Service
	approvals *approvals.Service
	executor  *commit.Executor
	reconcile *reconcile.Reconciler
}

func (n *node) now() time.Time { return time.Now().Add(n.skew).Round(0) }

// down reports that the store can't be reached from here.
func (l *life) down(class string) bool {
	return time.Now().UnixNano() < l.downUntil.Load() && !strings.HasPrefix(class, "up.") && class != "answer" && class != "act"
}

type whoKey struct{}

// as names the worker that makes the calls of a context.
func as(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, whoKey{}, who)
}

func whoOf(ctx context.Context) string {
	if who, ok := ctx.Value(whoKey{}).(string); ok {
		return who
	}
	return "work"
}

// start begins a new life of the node.
func (n *node) start() {
	l := &life{node: n, owner: fmt.Sprintf("node%d", n.n)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	n.life.Store(l)
	go l.boot()
}

// boot opens the ledger and everything over it, as a gateway does.
func (l *life) boot() {
	s := l.node.s
	ctx := as(l.ctx, "boot")
	store := s.state.Open(l.hook)
	for {
		err := l.open(ctx, store)
		if err == nil {
			break
		}
		time.Sleep(time.Second)
		s.bus.dies(&parked{life: l})
	}
	l.up.Store(true)
	for name, run := range map[string]func(context.Context) error{
		"exec":  l.executor.Run,
		"sweep": reconcile.New(reconcile.Config{Ledger: l.ledger, Store: store, Owner: l.owner, Poll: poll}).Run,
		"rec":   l.reconcile.Run,
	} {
		go func() { _ = run(as(l.ctx, name)) }() // they end with their context only
	}
	s.count("started")
}

func (l *life) open(ctx context.Context, store *simstore.Store) (err error) {
	s, n := l.node.s, l.node
	newID := func(prefix string) string { return fmt.Sprintf("%sn%d_%d", prefix, n.n, n.ids.Add(1)) }
	if l.ledger, err = ledger.Open(ctx, ledger.Config{Store: store, Now: n.now, NewID: newID, LeaseMargin: leaseMargin, GuardMaxAge: guardMaxAge}); err != nil {
		return err
	}
	signer, err := tokens.New(tokens.Config{Issuer: l.ledger.ID(), Keys: keys, TTL: time.Minute, Now: n.now})
	if err != nil {
		return err
	}
	registry := tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) { return nil, tools.ErrUpstreamGone })
	if err := registry.Set(l.tools()); err != nil {
		return err
	}
	if _, _, err := l.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "tools", By: ledger.Gateway("configuration")}, func(g *ledger.Guard) { g.Tools = registry.Versions() }); err != nil {
		return err
	}
	log := slog.New(alarm{s: s})
	l.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: l.ledger, Store: store, Registry: registry, Person: s.person, Owner: l.owner, Poll: poll, Parallel: 4, Logger: log})
	l.previews = preview.New(preview.Config{Ledger: l.ledger, Store: store, Registry: registry, Signer: signer})
	l.commits = commit.New(commit.Config{Ledger: l.ledger, Registry: registry, Signer: signer, Executor: l.executor})
	l.approvals = approvals.New(approvals.Config{Ledger: l.ledger, Person: s.person})
	l.reconcile = reconcile.NewReconciler(reconcile.ReconcilerConfig{
		Ledger: l.ledger, Store: store, Registry: registry, Executor: l.executor, Settings: patience, Owner: l.owner, Poll: poll, Logger: log,
		Rand: func() float64 { return 0.3 },
	})
	return nil
}

// class names a store's call for faults.
func class(c simstore.Call) string {
	if c.Verb != "" {
		return c.Method + "." + c.Verb
	}
	return c.Method
}

// hook is the door of this life to the store.
func (l *life) hook(ctx context.Context, c simstore.Call, effect func() error) error {
	s, n := l.node.s, l.node
	if l.dead.Load() || s.bus.ended.Load() {
		runtime.Goexit()
	}
	if c.Method == "Due" && !s.state.Pending(ledger.DueKind(c.Verb), n.now()) {
		return l.whenUp(nil) // nothing is due, which is no step
	}
	who, name := whoOf(ctx), class(c)
	if !c.Write {
		if name = "read." + c.Method; who == "sweep" || who == "rec" || who == "exec" {
			name = "loop." + who + "." + c.Method
		}
		if s.bus.chance("read", who, name, c.On, l.owner) >= s.bus.parks {
			return l.whenUp(effect)
		}
	}
	p := &parked{
		life: l, node: n.n, who: who, class: name, on: c.On, ctx: ctx, write: c.Write,
		made:    func(Kind) error { return s.seen(c, effect()) },
		unclear: func() error { return errStoreAway },
	}
	if c.Write {
		p.unclear = func() error { return &ledger.Ambiguous{Err: errLostAnswer} }
	}
	return s.bus.do(p).err
}

// whenUp makes a call that is no step of its own.
func (l *life) whenUp(effect func() error) error {
	switch {
	case l.down(""):
		return errStoreAway
	case effect == nil:
		return nil
	}
	return effect()
}

// crash ends a life: its parked calls are gone, some after they were made, and its
// memory is too. It starts again after a while.
func (s *sim) crash(l *life, span time.Duration) {
	if l.dead.Load() {
		return
	}
	l.dead.Store(true)
	b := s.bus
	b.mu.Lock()
	var dropped, kept []*parked
	for _, p := range b.queue {
		if p.life == l {
			dropped = append(dropped, p)
		} else {
			kept = append(kept, p)
		}
	}
	b.queue = kept
	b.mu.Unlock()
	for _, p := range dropped {
		if p.write && !p.slow && !p.gone && !b.orderly && b.rng.Float64() < 0.3 {
			_ = p.make(CrashAfter) // nobody hears it
		}
		b.answer(p, verdict{err: errLost}) // its goroutine ends
	}
	l.cancel()
	b.after(max(span, 100*time.Millisecond), "restart", func() {
		s.state.Any(func(op *ledger.Operation) bool {
			s.count("restart in " + string(op.State))
			return false
		})
		l.node.start()
	})
}

// handlerKey finds the handler whose context it is.
type handlerKey struct{}

type handler struct{ cancel context.CancelFunc }

var (
	// errLost: the connection broke before an answer came.
	errLost = errors.New("sim: the connection is gone")
	// errRefused: nobody listens there.
	errRefused = errors.New("sim: connection refused")
)

// ask lets a handler of a node answer; who waits for it does so for a while.
func ask[T any](s *sim, n *node, who string, fn func(context.Context, *life) (T, error)) (T, error) {
	var zero T
	l := n.life.Load()
	if l == nil || !l.up.Load() || l.dead.Load() {
		return zero, errRefused
	}
	type answer struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancel(as(l.ctx, who))
	ctx = context.WithValue(ctx, handlerKey{}, &handler{cancel: cancel})
	defer cancel()
	ch := make(chan answer, 1)
	go func() {
		a := answer{err: errLost}
		defer func() { ch <- a }()
		v, err := fn(ctx, l)
		told := s.bus.do(&parked{
			life: l, node: n.n, who: who, class: "answer", ctx: context.WithoutCancel(ctx),
			made: func(Kind) error { return nil }, unclear: func() error { return errLost },
		})
		if told.err == nil && ctx.Err() == nil {
			a = answer{v: v, err: err}
		}
	}()
	patience := time.NewTimer(31*time.Second + 333333*time.Nanosecond)
	defer patience.Stop()
	select {
	case a := <-ch:
		return a.v, a.err
	case <-patience.C:
		return zero, errLost
	}
}

// approve says yes to what the operation's card shows now.
func (l *life) approve(ctx context.Context, who identity.Operator, id string) (ledger.Operation, error) {
	card, err := l.approvals.Card(ctx, approvals.PersonOf(who), tenant, id)
	if err != nil {
		return ledger.Operation{}, err
	}
	return l.approvals.Decide(ctx, who, id, approvals.Decision{Word: "approve", ShownDigest: card.ShownDigest})
}

// alarm hears of panics, which the product survives.
type alarm struct {
	slog.Handler
	s *sim
}

func (alarm) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (a alarm) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(at slog.Attr) bool {
		if at.Key == "panic" {
			a.s.violate("panic", "%s: %v", r.Message, at.Value)
		}
		return true
	})
	return nil
}
