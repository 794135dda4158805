package sim_test

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"countersign/ledger"
)

// Kind is what becomes of one call.
type Kind string

const (
	// Fine: the call is made and answered.
	Fine Kind = ""
	// Refuse: it is not made, and its caller is told so.
	Refuse Kind = "refuse"
	// LostAck: it is made, and the answer is lost.
	LostAck Kind = "lost_ack"
	// LostRequest: it is not made, and its caller can't tell.
	LostRequest Kind = "lost_request"
	// Late: its caller can't tell, and it is made later (For).
	Late Kind = "late"
	// CrashBefore, CrashAfter: the node dies without or with the call made, and is
	// started again after For.
	CrashBefore Kind = "crash_before"
	CrashAfter  Kind = "crash_after"
	// Delay: it is made For later. Slow: it is made, and answered For later.
	Delay Kind = "delay"
	Slow  Kind = "slow"
	// Overdue: it is made when the round of its operation is over.
	Overdue Kind = "overdue"
	// HangUp: who waits for the node's answer leaves.
	HangUp Kind = "hang_up"
	// Down: from this call on, all store calls of the node are refused, for For.
	Down Kind = "down"
	// Reject, RejectLost: the outside system refuses definitely, and its answer
	// comes or is lost.
	Reject     Kind = "reject"
	RejectLost Kind = "reject_lost"
)

// Fault strikes the N-th call, counted from 1, that Call names: a class like
// "Apply.finish", a beginning like "Open*", or "*".
type Fault struct {
	Call string        `json:"call"`
	N    int           `json:"n"`
	Kind Kind          `json:"kind"`
	For  time.Duration `json:"for,omitempty"`

	seen int
	own  bool // a part of the script
}

func (f *Fault) strikes(class string) bool {
	if prefix, ok := strings.CutSuffix(f.Call, "*"); ok && !strings.HasPrefix(class, prefix) || !ok && class != f.Call {
		return false
	}
	f.seen++
	return f.seen == f.N
}

// parked is a call that waits for the driver.
type parked struct {
	life  *life // whose node's; nil for an actor's own step
	node  int
	who   string // the worker or handler that makes it
	class string
	on    string          // what it is about
	ctx   context.Context //nolint:containedctx // lives as long as the call
	// made makes the call and gives its own answer.
	made func(Kind) error
	// unclear is what its caller is told when the answer is lost.
	unclear func() error
	// leaves, where there is one, sends a request that is lost or late on its way;
	// false when it is not sent.
	leaves func() bool
	// when, where there is one, must hold before it goes on, until the moment of
	// patience.
	when     func([]*parked) bool
	patience time.Time
	write    bool

	window int // of the driver, in which it came
	until  time.Time
	answer error // of a slow call
	slow   bool
	gone   bool // the caller left
	reply  chan verdict
}

type verdict struct {
	kind Kind
	err  error
}

func (p *parked) same(q *parked) bool {
	return p.node == q.node && p.who == q.who && p.class == q.class && p.on == q.on && p.life == q.life
}

func (p *parked) compare(q *parked) int {
	return cmp.Or(cmp.Compare(p.node, q.node), cmp.Compare(p.who, q.who), cmp.Compare(p.class, q.class), cmp.Compare(p.on, q.on), cmp.Compare(p.window, q.window))
}

// bus lets one call at a time go on.
type bus struct {
	s   *sim
	rng *rand.Rand // the driver's alone

	mu    sync.Mutex
	queue []*parked
	wake  chan struct{}

	ended  atomic.Bool // everything that wakes up now ends
	window atomic.Int64
	steps  int
	faults []*Fault
	// orderly: what came first goes on first; a script's runs.
	orderly bool
	sticky  float64
	last    string
	parks   float64 // which part of the reads is parked
	flights []flight

	log   uint64
	trace func(string)
}

// flight is something that happens at a time: a late packet, a restart.
type flight struct {
	at   time.Time
	n    int
	what string
	do   func()
}

func newBus(s *sim, rng *rand.Rand) *bus {
	return &bus{s: s, rng: rng, wake: make(chan struct{}, 1), log: 14695981039346656037}
}

// errStoreAway: certainly nothing was written.
var errStoreAway = errors.New("sim: the store can't be reached")

var errLostAnswer = errors.New("sim: the answer was lost")

// do parks a call until the driver lets it go on.
func (b *bus) do(p *parked) verdict {
	p.reply = make(chan verdict, 1)
	b.dies(p)
	b.mu.Lock()
	p.window = int(b.window.Load())
	b.queue = append(b.queue, p)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	select {
	case v := <-p.reply:
		b.dies(p)
		return v
	case <-p.ctx.Done():
	}
	b.dies(p)
	b.mu.Lock()
	p.gone = true
	b.mu.Unlock()
	err := p.ctx.Err()
	if p.write {
		err = &ledger.Ambiguous{Err: err}
	}
	return verdict{kind: HangUp, err: err}
}

// dies ends a goroutine of a node that crashed, and everything at the end.
func (b *bus) dies(p *parked) {
	if b.ended.Load() || p.life != nil && p.life.dead.Load() {
		runtime.Goexit()
	}
}

// after lets something happen later.
func (b *bus) after(d time.Duration, what string, do func()) {
	b.flights = append(b.flights, flight{at: time.Now().Add(d), n: b.steps, what: what, do: do})
	slices.SortStableFunc(b.flights, func(x, y flight) int { return x.at.Compare(y.at) })
}

// drive lets calls go on until done says so, or the time or the steps are over.
func (b *bus) drive(limit time.Duration, steps int, done func() bool) {
	end := time.Now().Add(limit)
	for most := b.steps + steps; b.steps < most; {
		synctest.Wait()
		now := time.Now()
		for len(b.flights) > 0 && !b.flights[0].at.After(now) {
			f := b.flights[0]
			b.flights = b.flights[1:]
			b.note("flight", f.what, "", "", Fine)
			f.do()
			synctest.Wait()
		}
		if done() || !now.Before(end) {
			return
		}
		b.window.Add(1)
		group, next := b.choose(now)
		if group == nil {
			if len(b.flights) > 0 && b.flights[0].at.Before(next) {
				next = b.flights[0].at
			}
			if end.Before(next) {
				next = end
			}
			b.idle(next)
			continue
		}
		b.steps++
		b.release(group)
	}
}

// idle lets time go by until something parks or the moment comes.
func (b *bus) idle(until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-b.wake:
	case <-t.C:
	}
}

// choose picks the call that goes on, with those that can't be told from it. next
// is when a delayed one is ready.
func (b *bus) choose(now time.Time) (group []*parked, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = now.Add(1000 * time.Hour)
	var ready []*parked
	for _, p := range b.queue {
		if p.until.After(now) {
			if p.until.Before(next) {
				next = p.until
			}
			continue
		}
		if p.when != nil && now.Before(p.patience) && !p.when(b.queue) {
			if p.patience.Before(next) {
				next = p.patience
			}
			continue
		}
		ready = append(ready, p)
	}
	if len(ready) == 0 {
		return nil, next
	}
	slices.SortStableFunc(ready, (*parked).compare)
	pick := ready[0]
	switch {
	case b.orderly:
		for _, p := range ready {
			if p.window < pick.window {
				pick = p
			}
		}
	default:
		heads := ready[:0:0]
		for _, p := range ready {
			if len(heads) == 0 || !heads[len(heads)-1].same(p) {
				heads = append(heads, p)
			}
		}
		pick = heads[b.rng.IntN(len(heads))]
		if b.rng.Float64() < b.sticky {
			for _, p := range heads {
				if p.who == b.last {
					pick = p
				}
			}
		}
	}
	b.last = pick.who
	for _, p := range ready {
		if p.same(pick) {
			group = append(group, p)
		}
	}
	b.queue = slices.DeleteFunc(b.queue, func(p *parked) bool { return slices.Contains(group, p) })
	return group, next
}

// release makes a call as the next fault says and answers it.
func (b *bus) release(group []*parked) {
	first := group[0]
	if first.slow { // it was made already
		b.note(first.who, first.class, first.on, "answered", Fine)
		for _, p := range group {
			b.answer(p, verdict{err: p.answer})
		}
		return
	}
	kind, span := Fine, time.Duration(0)
	if first.until.IsZero() { // a delayed one had its fault
		b.s.calls = append(b.s.calls, first.class)
		kind, span = b.fault(first)
	}
	b.note(first.who, first.class, first.on, strconv.Itoa(first.node), kind)
	switch kind {
	case CrashBefore, CrashAfter:
		if first.life == nil {
			break
		}
		if kind == CrashAfter {
			for _, p := range group {
				p.make(Fine)
			}
		}
		b.s.crash(first.life, span)
		for _, p := range group {
			b.answer(p, verdict{err: errLost}) // its goroutine ends
		}
		return
	case HangUp:
		if h, ok := first.ctx.Value(handlerKey{}).(*handler); ok {
			b.s.count("hung up")
			b.hangUp(h, group)
			return
		}
	}
	for _, p := range group {
		b.one(p, kind, span)
	}
}

// hangUp makes the calls of a handler whose caller leaves, before their answers
// are read or after. Never while they are read: what came first would be chance.
func (b *bus) hangUp(h *handler, group []*parked) {
	first := group[0]
	before := first.class == "answer" || b.chance("hang up", first.who, first.class, first.on) < 0.5
	verdicts := make([]verdict, len(group))
	for i, p := range group {
		verdicts[i] = verdict{kind: HangUp, err: p.make(HangUp)}
	}
	if before {
		h.cancel()
		synctest.Wait()
	}
	for i, p := range group {
		b.answer(p, verdicts[i])
	}
	if !before {
		synctest.Wait()
		h.cancel()
	}
}

// make makes a call; its own answer counts what happens sometimes.
func (p *parked) make(kind Kind) error { return p.made(kind) }

func (b *bus) one(p *parked, kind Kind, span time.Duration) {
	switch kind {
	case Refuse:
		b.answer(p, verdict{kind: kind, err: errStoreAway})
	case LostAck:
		_ = p.make(kind) // nobody hears it
		b.answer(p, verdict{kind: kind, err: p.unclear()})
	case LostRequest:
		if p.leaves != nil {
			p.leaves()
		}
		b.answer(p, verdict{kind: kind, err: p.unclear()})
	case Late:
		if p.leaves == nil || p.leaves() {
			b.after(span, p.class+" "+p.on, func() { _ = p.make(kind) }) // nobody hears it
		}
		b.answer(p, verdict{kind: kind, err: p.unclear()})
	case Delay:
		p.until = time.Now().Add(span)
		b.again(p)
	case Slow:
		p.answer, p.slow, p.until = p.make(kind), true, time.Now().Add(span)
		b.again(p)
	default:
		b.answer(p, verdict{kind: kind, err: p.make(kind)})
	}
}

func (b *bus) again(p *parked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, p)
}

func (b *bus) answer(p *parked, v verdict) {
	if !p.gone {
		p.reply <- v
	}
}

// fault gives what becomes of a call.
func (b *bus) fault(p *parked) (Kind, time.Duration) {
	if p.life != nil && p.life.down(p.class) || p.class == "up.lookup" && time.Now().Before(b.s.up.lookupsAway) {
		return Refuse, 0
	}
	var struck *Fault
	for _, f := range b.faults {
		if f.strikes(p.class) && (struck == nil || struck.own) {
			struck = f
		}
	}
	if struck == nil || !fits(struck.Kind, p) {
		return Fine, 0
	}
	b.s.struck(struck, p)
	if struck.Kind == Overdue {
		if end := b.s.state.Now(p.on).ExpiresAt; time.Now().Before(end) {
			return Delay, time.Until(end) + 300*time.Millisecond
		}
		return Fine, 0
	}
	if struck.Kind == Down && p.class == "up.lookup" {
		b.s.up.lookupsAway = time.Now().Add(struck.For)
		return Refuse, 0
	}
	if struck.Kind == Down {
		p.life.downUntil.Store(time.Now().Add(struck.For).UnixNano())
		return Refuse, 0
	}
	return struck.Kind, struck.For
}

// fits says whether a kind of fault makes sense for a call.
func fits(k Kind, p *parked) bool {
	switch k {
	case Reject, RejectLost:
		return p.class == "up.send"
	case CrashBefore, CrashAfter, Down:
		return p.life != nil
	case LostRequest, Late:
		return p.write
	case Refuse, LostAck, HangUp:
		return p.life != nil
	}
	return true
}

// note adds a line to the log of steps.
func (b *bus) note(who, class, on, more string, kind Kind) {
	h := fnv.New64a()
	at := time.Since(b.s.began).String()
	for _, part := range []string{who, class, on, more, string(kind), at} {
		_, _ = io.WriteString(h, part) // it never fails
		_, _ = h.Write([]byte{0})
	}
	b.log = (b.log ^ h.Sum64()) * 1099511628211
	if b.trace != nil {
		b.trace(strings.Join([]string{strconv.Itoa(b.steps), at, who, class, on, more, string(kind)}, " "))
	}
}

// chance is a number in [0,1) that is the same for the same call in the same
// window.
func (b *bus) chance(parts ...string) float64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strconv.FormatUint(b.s.opts.Seed, 10)+"/"+strconv.FormatInt(b.window.Load(), 10)) // it never fails
	for _, part := range parts {
		_, _ = io.WriteString(h, part+"\x00")
	}
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
