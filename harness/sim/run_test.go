package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/harness/simstore"
	"countersign/ledger"
	"countersign/tokens"
)

// keys sign the tokens of all runs.
var keys *tokens.KeySet

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		panic(err)
	}
	if keys, err = tokens.LoadOrCreate(filepath.Join(dir, "keys.json"), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), tokens.KeyOptions{}); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // little is alive at a time
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

// options are everything that a schedule depends on.
type options struct {
	Seed uint64 `json:"seed"`
	// Script names a script of the sweep; empty is a random schedule.
	Script string `json:"script,omitempty"`
	// Faults, where given, stand in place of the seed's own.
	Faults []Fault `json:"faults"`
	Note   string  `json:"note,omitempty"`
}

// result is what became of a schedule.
type result struct {
	violations []string
	faults     []Fault // as they were planned
	struck     int
	steps      int
	log        uint64
	counts     map[string]int
	calls      []string // while faults were on, the classes in their order
}

// sim is one schedule under way.
type sim struct {
	opts  options
	bus   *bus
	state *simstore.State
	nodes [2]*node
	up    *upstream
	dir   *directory
	began time.Time
	liar  bool
	lie   string
	// honest: the lies are over.
	honest bool

	rush        bool // agents begin at the same moment
	actors      int
	busy, alive atomic.Int64
	over        atomic.Bool // people may go

	mu         sync.Mutex
	violations []string
	answers    []answered
	replies    []reply
	counts     map[string]int

	// The driver's.
	guard       ledger.Guard
	decisions   []ledger.Decision
	marks       []mark
	ends        []end
	compensated []end
	freezes     []frozen
	stopped     map[string]bool // tools that were frozen by what was found out
	disabled    int             // the step behind which bob's yes is none
	hits        int
	calls       []string
}

func (s *sim) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// lies reports that the world lies about something now.
func (s *sim) lies(about string) bool { return s.liar && !s.honest && s.lie == about }

// run runs one schedule in a bubble of its own. trace, unless nil, is told every
// step.
func run(t *testing.T, o options, trace func(string)) (res result) {
	s := &sim{opts: o, counts: map[string]int{}, stopped: map[string]bool{}, disabled: 1 << 30}
	defer func() {
		if p := recover(); p != nil {
			res = s.result()
			res.violations = append(res.violations, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	synctest.Test(t, func(*testing.T) { s.run(trace) })
	return s.result()
}

func (s *sim) result() result {
	r := result{violations: s.violations, struck: s.hits, steps: s.bus.steps, log: s.bus.log, counts: s.counts, calls: s.calls}
	for _, f := range s.bus.faults {
		if f.own {
			continue
		}
		r.faults = append(r.faults, Fault{Call: f.Call, N: f.N, Kind: f.Kind, For: f.For})
	}
	return r
}

// Limits of one schedule, in its own time.
const (
	troubled = 4 * time.Minute
	quiet    = 10 * time.Minute
	maxSteps = 6000
)

func (s *sim) run(trace func(string)) {
	s.began = time.Now()
	s.bus = newBus(s, rand.New(rand.NewPCG(s.opts.Seed, 3))) //nolint:gosec // a simulation
	s.bus.trace = trace
	s.state = simstore.NewState(time.Now, s.observe)
	s.up, s.dir = newUpstream(s), newDirectory()
	for i := range s.nodes {
		s.nodes[i] = &node{s: s, n: i}
	}
	var faults []Fault
	if s.opts.Script != "" {
		s.script(s.opts.Script)
	} else {
		faults = s.imagine()
	}
	if s.opts.Faults != nil {
		faults = s.opts.Faults
	}
	for _, f := range faults {
		f.seen = 0
		s.bus.faults = append(s.bus.faults, &f)
	}
	for _, n := range s.nodes {
		n.start()
	}
	// First with faults: nothing may happen twice, nothing is lost.
	s.bus.drive(troubled, maxSteps, func() bool { return s.busy.Load() == 0 || len(s.violations) > 0 })
	planned, calls := s.bus.faults, s.calls
	s.bus.faults = nil
	// Then without: everything has its end, or waits for a person.
	s.calm()
	s.bus.drive(quiet, maxSteps, func() bool { return s.atRest() || len(s.violations) > 0 })
	s.bus.faults, s.calls = planned, calls
	s.judge(len(s.violations) == 0)
	s.tally()
	s.end()
}

// calm ends all trouble that lasts.
func (s *sim) calm() {
	s.honest = true
	s.up.lookupsAway = time.Time{}
	for _, n := range s.nodes {
		if l := n.life.Load(); l != nil {
			l.downUntil.Store(0)
		}
	}
	s.begin("calm", true, func(a *actor) {
		for {
			done := a.thaw()
			a.rest(time.Second)
			if done {
				return
			}
		}
	})
}

// atRest reports that nothing moves any more.
func (s *sim) atRest() bool {
	if s.busy.Load() > 0 || len(s.bus.flights) > 0 {
		return false
	}
	for _, n := range s.nodes {
		if l := n.life.Load(); l == nil || !l.up.Load() {
			return false
		}
	}
	s.bus.mu.Lock()
	waiting := len(s.bus.queue)
	s.bus.mu.Unlock()
	if _, lost := s.unwritten(); lost {
		return false
	}
	return waiting == 0 && !s.state.Any(func(op *ledger.Operation) bool { return !s.rests(op) })
}

// tally counts what happened outside, for the scripts.
func (s *sim) tally() {
	for _, e := range s.up.effects {
		s.count("effects of " + e.tool)
	}
}

// end lets every goroutine of the bubble end.
func (s *sim) end() {
	s.over.Store(true)
	s.bus.ended.Store(true)
	for _, n := range s.nodes {
		if l := n.life.Load(); l != nil {
			l.dead.Store(true)
			l.cancel()
		}
	}
	for range 4 {
		s.bus.mu.Lock()
		queue := s.bus.queue
		s.bus.queue = nil
		s.bus.mu.Unlock()
		for _, p := range queue {
			s.bus.answer(p, verdict{err: errLost})
		}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
	}
}

// seen counts what a store's answer tells.
func (s *sim) seen(c simstore.Call, err error) error {
	if err != nil {
		s.counted(c, err)
	}
	return err
}

// struck notes that a fault struck.
func (s *sim) struck(f *Fault, p *parked) {
	if !f.own {
		s.hits++
	}
	name := writeName(s, p)
	switch f.Kind {
	case LostAck:
		s.count("lost answer of " + name)
	case Delay, Slow:
		if f.For > lease {
			s.count(string(f.Kind) + " past the lease at " + name)
		}
	case CrashBefore, CrashAfter:
		s.count(string(f.Kind) + " at " + name)
	case Down:
		s.count("store down at " + name)
	case Refuse:
		s.count("refused at " + name)
	case Late:
		s.count("late " + name)
	}
}

// writeName is a durable write in the words of the crash table.
func writeName(s *sim, p *parked) string {
	verb := ledger.Verb(strings.TrimPrefix(p.class, "Apply."))
	isUndo := false
	if v := s.state.Versions(p.on); len(v) > 0 {
		isUndo = v[0].Parent != ""
	}
	switch {
	case p.class == "PutPreview":
		return "put"
	case strings.HasPrefix(p.class, "Open.undo"):
		return "undo"
	case strings.HasPrefix(p.class, "Open."):
		return "open"
	case strings.HasPrefix(p.class, "AddEvidence"):
		return "evidence"
	case strings.HasPrefix(p.class, "ChangeGuard"):
		return "guard"
	case verb == ledger.VerbApprove, verb == ledger.VerbReject:
		return "decide"
	case verb == ledger.VerbDispatch:
		return "mark"
	case verb == ledger.VerbFinish && isUndo:
		return "end"
	case strings.HasPrefix(p.class, "Apply."):
		return string(verb)
	}
	return p.class
}
