package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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
		if refused.Why == ledger.EpochMoved && (c.Verb == string(ledger.VerbDispatch) || strings.HasSuffix(c.Verb, ".running")) {
			s.count("a guard row won against a mark")
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
	choose := []string{"note", "charge", "book", "order", "order", "deliver", "post", "hold", "mail", "pay", "wire"}
	if s.lie == "keys" {
		choose = []string{"charge", "book"}
	}
	asks := false
	s.rush = likely(0.4)
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
			if in.run = "run1"; likely(0.4) && i == 0 { // something to be taken back
				in.tool = []string{"hold", "book"}[rng.IntN(2)]
				first, k = in, kindOf(in.tool)
			}
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
			if k := kindOf(in.tool); k.goal && likely(0.7) {
				in.tool = map[string]string{"order": "deliver", "deliver": "order"}[in.tool]
			}
			if likely(0.5) {
				in.agent = helper
			}
		}
		asks = asks || kindOf(in.tool).groups != nil || in.again > 0 || kindOf(in.tool).undo == "unbook"
		s.begin("agent", true, func(a *actor) { a.name = fmt.Sprintf("agent%d", i); a.pursue(in) })
		if in.run != "" && likely(0.5) {
			s.begin(fmt.Sprintf("undoer%d", i), true, func(a *actor) {
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
	if k := kindOf(first.tool); likely(0.3) || (k.drifts || k.done || k.groups != nil) && likely(0.6) {
		s.begin("meddler", true, func(a *actor) { a.meddle(first) })
	}
	list := mishaps(rand.New(rand.NewPCG(s.opts.Seed, 2))) //nolint:gosec // a simulation
	if kindOf(first.tool).groups != nil && likely(0.3) {   // past the end of the round
		list = append(list, Fault{Call: "Apply.dispatch", N: 1, Kind: Overdue})
	}
	if kindOf(first.tool).honoursKey && likely(0.3) { // two workers of one operation
		list = append(list, Fault{Call: "up.reply", N: 1, Kind: Slow, For: 9 * time.Second}, Fault{Call: "up.reply", N: 2, Kind: Slow, For: 5 * time.Second},
			Fault{Call: "up.send", N: 1, Kind: Reject})
	}
	switch s.lie {
	case "keys": // what is not answered is repeated
		list = append(list, Fault{Call: "up.reply", N: 1, Kind: LostAck}, Fault{Call: "up.reply", N: 3, Kind: LostAck})
	case "lookups", "people": // the truth comes to light when it is too late
		list = append(list, Fault{Call: "up.reply", N: 1, Kind: Delay, For: 50 * time.Second}, Fault{Call: "up.reply", N: 2, Kind: Delay, For: 50 * time.Second})
	}
	return list
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
		{"up.lookup", 4, []Kind{Refuse, Slow, Delay, CrashBefore, Down, Down}},
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
		{"loop.*", 3, []Kind{Delay, Slow, Slow, Refuse, CrashBefore, Down}},
		{"loop.sweep.*", 2, []Kind{Delay, Slow}},
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
	for range 10 + rng.IntN(5) {
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
	// And some that strike whatever is called.
	for range 2 {
		f := Fault{Call: "*", N: 8 + rng.IntN(50), Kind: []Kind{Slow, Delay, LostAck, Refuse, CrashAfter}[rng.IntN(5)]}
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
