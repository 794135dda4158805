package sim_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"countersign/harness/simstore"
	"countersign/identity"
	"countersign/ledger"
)

// counted counts why a write was not applied.
func (s *sim) counted(c simstore.Call, err error) {
	var refused *ledger.Refused
	var lost *ledger.Lost
	switch {
	case errors.As(err, &refused):
		s.count("store refused " + c.Method + " " + string(refused.Why))
		if refused.Why == ledger.EpochMoved && c.Verb == string(ledger.VerbDispatch) {
			s.count("a guard won against a mark")
		}
	case errors.As(err, &lost):
		s.count("lost race of " + c.Verb)
	}
}

// thaw lifts every freeze that stands; true when none does.
func (a *actor) thaw() bool {
	s := a.s
	var stand []ledger.Freeze
	a.act("looks at freezes", func() { stand = s.guard.Freezes })
	by := ledger.Actor{Kind: "operator", ID: ann.ID}
	for _, f := range stand {
		scope := ledger.Scope{Tenant: tenant, Tool: f.Tool, Everything: f.Everything}
		a.act("unfreezes", func() { s.thawing(scope) })
		_, _ = ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (bool, error) { // looked at again
			return true, l.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: scope, By: by, Reason: "go on", Override: true})
		})
	}
	return len(stand) == 0 && s.nodes[0].life.Load().up.Load() && s.nodes[1].life.Load().up.Load()
}

// imagine makes the scenario of a seed, and gives its faults.
func (s *sim) imagine() []Fault {
	rng := rand.New(rand.NewPCG(s.opts.Seed, 1)) //nolint:gosec // a simulation
	likely := func(p float64) bool { return rng.Float64() < p }
	if likely(0.08) {
		s.liar, s.lie = true, []string{"keys", "lookups", "people"}[rng.IntN(3)]
	}
	s.bus.sticky = []float64{0, 0.5, 0.8}[rng.IntN(3)]
	s.bus.parks = []float64{0.1, 0.3, 1}[rng.IntN(3)]
	if likely(0.3) {
		s.nodes[rng.IntN(2)].skew = time.Duration(rng.IntN(2)*3-1) * 1300 * time.Millisecond
	}
	choose := []string{"note", "charge", "book", "order", "deliver", "post", "hold", "mail", "pay"}
	if s.lie == "keys" {
		choose = []string{"charge", "book"}
	}
	asks := false
	var first intent
	for i := range 1 + rng.IntN(3) {
		in := intent{
			agent: clerk, tool: choose[rng.IntN(len(choose))], order: []string{"o1", "o2"}[rng.IntN(2)], amount: "1",
			commits: 1 + rng.IntN(3), tries: 2 + rng.IntN(4),
		}
		if i == 0 {
			first = in
		}
		k := kindOf(in.tool)
		if likely(0.4) {
			in.run = "run1"
		}
		if likely(0.25) {
			in.again = 0.7
		}
		if k.undo != "" && likely(0.7) {
			in.undo = 0.9
		}
		if likely(0.2) {
			in.cancel = 0.6
		}
		if likely(0.15) {
			in.change = 0.4
		}
		if likely(0.35) && i > 0 { // the same intent, by another
			in.tool, in.order = first.tool, first.order
			if k := kindOf(in.tool); k.goal && likely(0.4) {
				in.tool = map[string]string{"order": "deliver", "deliver": "order"}[in.tool]
			}
			if likely(0.5) {
				in.agent = helper
			}
		}
		asks = asks || kindOf(in.tool).groups != nil || in.again > 0 || kindOf(in.tool).undo == "unbook"
		s.begin("agent", true, func(a *actor) { a.name += in.agent.ID + in.tool + in.order; a.pursue(in) })
		if in.run != "" && likely(0.5) {
			s.begin("undoer", true, func(a *actor) {
				a.rest(20 * time.Second)
				a.undoRun(in.agent, in.run)
			})
		}
	}
	people := []identity.Operator{ann, bob}
	if asks {
		people = append(people, []identity.Operator{carl, owner}[rng.IntN(2)])
	}
	for _, who := range people {
		s.begin(who.Name, false, func(a *actor) { a.decide(who) })
	}
	if likely(0.35) {
		tool := ""
		if likely(0.6) {
			tool = first.tool
		}
		level := []ledger.FreezeLevel{ledger.FreezeNew, ledger.FreezeAll}[rng.IntN(2)]
		s.begin("operator", true, func(a *actor) { a.operate(tool, level) })
	}
	if likely(0.35) {
		s.begin("meddler", true, func(a *actor) { a.meddle(first.tool, first.order) })
	}
	return mishaps(rand.New(rand.NewPCG(s.opts.Seed, 2))) //nolint:gosec // a simulation
}

// target is a class of calls with what may befall it, and how often it is hit.
type target struct {
	call   string
	weight int
	kinds  []Kind
}

var (
	storeKinds = []Kind{LostAck, LostAck, LostRequest, Late, CrashBefore, CrashAfter, CrashAfter, Delay, Slow, Slow, Refuse, Down, HangUp}
	targets    = []target{
		{"up.send", 14, []Kind{Refuse, LostAck, LostAck, LostAck, LostRequest, Late, Late, Reject, RejectLost, CrashBefore, CrashAfter, Delay, Slow}},
		{"up.reply", 5, []Kind{LostAck, Slow, Delay, Delay, CrashBefore}},
		{"up.lookup", 3, []Kind{Refuse, Slow, Delay, CrashBefore}},
		{"up.guard", 2, []Kind{Refuse, Delay, Slow, CrashBefore}},
		{"up.preview", 1, []Kind{Refuse, Delay, CrashBefore}},
		{"Open.*", 8, storeKinds},
		{"Open.undo*", 3, storeKinds},
		{"Apply.dispatch", 6, storeKinds},
		{"Apply.retry", 3, storeKinds},
		{"Apply.finish", 8, storeKinds},
		{"Apply.release", 2, storeKinds},
		{"Apply.lose_lease", 2, storeKinds},
		{"Apply.resolve", 4, storeKinds},
		{"Apply.hand_over", 1, storeKinds},
		{"Apply.approve", 3, storeKinds},
		{"Apply.reject", 1, storeKinds},
		{"Apply.revise", 1, storeKinds},
		{"Apply.cancel", 1, storeKinds},
		{"Apply.expire", 1, storeKinds},
		{"AddEvidence*", 3, storeKinds},
		{"ChangeGuard*", 3, storeKinds},
		{"PutPreview", 1, storeKinds},
		{"Due.*", 1, []Kind{Refuse, Delay, CrashBefore, CrashAfter, LostAck}},
		{"read.*", 4, []Kind{Refuse, Delay, CrashBefore, Down, Slow, HangUp}},
		{"answer", 2, []Kind{LostAck, CrashBefore, Delay}},
		{"*", 4, []Kind{CrashBefore, CrashAfter, Delay, Slow, LostAck, Down, HangUp}},
	}
)

// mishaps draws faults; about half of them find their call.
func mishaps(rng *rand.Rand) []Fault {
	sum := 0
	for _, t := range targets {
		sum += t.weight
	}
	var list []Fault
	for range 7 + rng.IntN(4) {
		n := rng.IntN(sum)
		t := targets[0]
		for _, t = range targets {
			if n -= t.weight; n < 0 {
				break
			}
		}
		f := Fault{Call: t.call, N: 1, Kind: t.kinds[rng.IntN(len(t.kinds))]}
		for f.N < 5 && rng.Float64() < 0.4 {
			f.N++
		}
		if t.call == "*" || t.call == "read.*" {
			f.N = 1 + rng.IntN(120)
		}
		f.For = howLong(rng, f)
		list = append(list, f)
	}
	return list
}

func howLong(rng *rand.Rand, f Fault) time.Duration {
	ms := func(list ...int) time.Duration {
		return time.Duration(list[rng.IntN(len(list))])*time.Millisecond + 11*time.Microsecond
	}
	switch f.Kind {
	case Late:
		if f.Call == "up.send" {
			return ms(400, 2500, 4900)
		}
		return ms(300, 5000, 9000)
	case Delay, Slow:
		return ms(300, 2700, 7100, 7100, 12000, 25000)
	case CrashBefore, CrashAfter:
		return ms(200, 3000, 3000, 15000, 40000)
	case Down:
		return ms(2500, 8000, 30000)
	}
	return 0
}
