package sim_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
)

// The twelve scripts of the sweep: the rows of the crash table and the core of the
// fault matrix, each short and always the same. Whoever meets a fault tries again,
// as an agent does. Each names what must happen in it when nothing fails.
var scripts = map[string]script{
	// A tool that can neither be asked nor repeated.
	"plain": {func(s *sim) { s.agents(simple("note")) }, []string{"verb finish"}},
	// A tool that honours keys: the repeat.
	"key": {func(s *sim) { s.agents(simple("charge")) }, []string{"verb finish"}},
	// A tool that can be asked: the lookup.
	"lookup": {func(s *sim) { s.agents(simple("order")) }, []string{"verb finish"}},
	// A tool that can be asked, and shows things late.
	"eventual": {func(s *sim) { s.agents(simple("post")) }, []string{"verb finish"}},
	// Not to be taken back: one person says yes.
	"approval": {func(s *sim) { s.agents(simple("mail")); s.people(ann) }, []string{"verb approve", "verb dispatch", "verb finish"}},
	// Two must say yes, and the world changes under them.
	"quorum": {func(s *sim) {
		s.agents(simple("pay"))
		s.people(ann, bob)
		s.begin("world", true, func(a *actor) {
			time.Sleep(1200 * time.Millisecond)
			a.act("drift", func() { s.up.drift("pay") })
		})
	}, []string{"verb approve", "drift", "verb revise", "verb finish"}},
	// Two agents, one key, two gateways.
	"race": {func(s *sim) {
		one, two := simple("book"), simple("book")
		two.agent, two.at = helper, 1
		s.agents(one, two)
	}, []string{"store refused Open head_moved", "verb finish"}},
	// One token, committed at both gateways at once.
	"token": {func(s *sim) {
		in := simple("charge")
		in.commits = 3
		s.agents(in)
	}, []string{"store refused Open head_moved", "verb finish"}},
	// The outside system says no; the next generation goes through.
	"again": {func(s *sim) {
		s.bus.faults = append(s.bus.faults, &Fault{Call: "up.send", N: 1, Kind: Reject, own: true})
		s.agents(simple("order"))
	}, []string{"verb finish", "effects of order"}},
	// The connection is refused; it is sent when it is tried again.
	"unsent": {func(s *sim) {
		s.bus.faults = append(s.bus.faults, &Fault{Call: "up.send", N: 1, Kind: Refuse, own: true})
		s.agents(simple("hold"))
	}, []string{"verb release", "verb dispatch", "verb finish"}},
	// An effect is taken back, by two at once.
	"undo": {func(s *sim) {
		in := simple("hold")
		in.undo = 1
		s.agents(in)
	}, []string{"verb compensate", "verb compensated"}},
	// A run of two effects is taken back while somebody freezes.
	"run": {func(s *sim) {
		one, two := simple("hold"), simple("hold")
		two.order = "o2"
		one.run, two.run = "run1", "run1"
		s.begin("agent", true, func(a *actor) {
			a.steady(one)
			a.steady(two)
			a.undoRunSteadily("run1")
		})
		s.begin("operator", true, func(a *actor) { a.freezeOnce("release", ledger.FreezeNew) })
	}, []string{"frozen", "run undone", "verb compensated"}},
}

// script is what happens, and what must have happened when nothing failed.
type script struct {
	begin func(*sim)
	meets []string
}

// plan is an intent of a script.
type plan struct {
	intent
	at int // the gateway that is asked first
}

func simple(tool string) plan {
	return plan{intent: intent{agent: clerk, tool: tool, order: "o1", amount: "1", tries: 4, commits: 1}}
}

func (s *sim) script(name string) {
	s.bus.orderly, s.bus.parks = true, 1
	sc, ok := scripts[name]
	if !ok {
		panic("no such script: " + name)
	}
	sc.begin(s)
}

func (s *sim) agents(list ...plan) {
	for i, p := range list {
		s.begin(fmt.Sprintf("agent%d", i), true, func(a *actor) { a.steady(p) })
	}
}

func (s *sim) people(list ...identity.Operator) {
	for _, who := range list {
		s.begin(who.Name, false, func(a *actor) {
			for !s.over.Load() {
				time.Sleep(1300*time.Millisecond + time.Duration(len(who.Name))*7)
				s.bus.dies(&parked{})
				if s.wanted() {
					a.decideSteadily(who)
				}
			}
		})
	}
}

// decideSteadily says yes to what waits, and finds out what is in doubt.
func (a *actor) decideSteadily(who identity.Operator) {
	for _, op := range a.s.state.Operations() {
		if op.State == ledger.AwaitingApproval {
			a.yes(who, op)
		}
	}
	a.find(who)
}

func (a *actor) yes(who identity.Operator, op ledger.Operation) {
	got, err := ask(a.s, a.s.nodes[a.n%2], a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
		return l.approve(ctx, who, op.ID)
	})
	if err == nil {
		a.s.received(got, "decide")
	}
}

// steady previews and commits, each time at the other gateway, until it has its
// answer.
func (a *actor) steady(p plan) {
	s := a.s
	for i := range p.tries {
		time.Sleep(1100 * time.Millisecond * time.Duration(i+1))
		s.bus.dies(&parked{})
		n := s.nodes[(p.at+i)%2]
		req := preview.Request{Agent: p.agent, Tool: p.tool, Args: p.args(), RequestID: "req"}
		if p.run != "" {
			req.Run = &ledger.Run{ID: p.run}
		}
		res, err := ask(s, n, a.who(), func(ctx context.Context, l *life) (preview.Result, error) { return l.previews.Preview(ctx, req) })
		if err != nil {
			s.refusal("preview", err)
			continue
		}
		op := ledger.Operation{}
		if res.Operation != nil {
			op = *res.Operation
			s.received(op, "preview")
		} else if op = a.spendSteadily(p, n, res.Token); op.ID == "" {
			continue
		}
		for k := 0; k < 4 && op.State.Live(); k++ {
			time.Sleep(3100 * time.Millisecond)
			s.bus.dies(&parked{})
			now, err := ask(s, s.nodes[(p.at+i+k)%2], a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
				return l.ledger.Operation(ctx, tenant, op.ID)
			})
			if err == nil {
				s.received(now, "look")
				op = now
			}
		}
		switch {
		case op.State == ledger.Succeeded && p.undo > 0:
			a.undoSteadily(op)
			return
		case op.State.Effective():
			return
		}
	}
}

func (a *actor) spendSteadily(p plan, n *node, token string) (op ledger.Operation) {
	s := a.s
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range p.commits {
		at, who := s.nodes[(n.n+i)%2], a.who()
		wg.Go(func() {
			res, err := ask(s, at, who, func(ctx context.Context, l *life) (commit.Result, error) {
				return l.commits.Commit(ctx, commit.Request{Agent: p.agent, Tool: p.tool, Token: token, RequestID: "req", Wait: 1700 * time.Millisecond})
			})
			if err != nil {
				s.refusal("commit", err)
				return
			}
			s.received(res.Operation, "commit")
			mu.Lock()
			defer mu.Unlock()
			if op.ID != "" && op.ID != res.Operation.ID {
				s.violate("I2", "one token gave %s and %s", op.ID, res.Operation.ID)
			}
			if op.Version < res.Operation.Version {
				op = res.Operation
			}
		})
	}
	wg.Wait()
	return op
}

func (a *actor) undoSteadily(op ledger.Operation) {
	s := a.s
	for i := range 3 {
		n := s.nodes[i%2]
		res, err := ask(s, n, a.who(), func(ctx context.Context, l *life) (preview.Result, error) {
			return l.previews.Undo(ctx, preview.UndoRequest{Tenant: tenant, Operation: op.ID, Agent: &clerk, RequestID: "req"})
		})
		if err != nil || res.Token == "" {
			time.Sleep(2100 * time.Millisecond)
			s.bus.dies(&parked{})
			continue
		}
		var wg sync.WaitGroup
		for k := range 2 {
			who := a.who()
			wg.Go(func() {
				got, err := ask(s, s.nodes[(i+k)%2], who, func(ctx context.Context, l *life) (commit.Result, error) {
					return l.commits.Undo(ctx, commit.UndoCommit{Tenant: tenant, Operation: op.ID, Token: res.Token, Agent: &clerk, RequestID: "req", Wait: 1700 * time.Millisecond})
				})
				if err == nil {
					s.received(got.Operation, "undo")
				}
			})
		}
		wg.Wait()
		time.Sleep(2100 * time.Millisecond)
		s.bus.dies(&parked{})
	}
}

func (a *actor) undoRunSteadily(run string) {
	s := a.s
	for i := range 3 {
		plan, err := ask(s, s.nodes[i%2], a.who(), func(ctx context.Context, l *life) (preview.RunPlan, error) {
			return l.previews.UndoRun(ctx, preview.UndoRunRequest{Tenant: tenant, AgentID: clerk.ID, Run: run, Agent: &clerk, RequestID: "req"})
		})
		if err == nil && plan.Token != "" {
			for k := range 2 {
				res, err := ask(s, s.nodes[(i+k)%2], a.who(), func(ctx context.Context, l *life) (commit.RunResult, error) {
					return l.commits.UndoRun(ctx, commit.UndoRunCommit{Tenant: tenant, AgentID: clerk.ID, Run: run, Token: plan.Token, Agent: &clerk, RequestID: "req"})
				})
				if err != nil {
					continue
				}
				s.count("run undone")
				for _, op := range res.Operations {
					s.received(op, "undo run")
				}
			}
		}
		time.Sleep(4100 * time.Millisecond)
		s.bus.dies(&parked{})
	}
}

// freezeOnce freezes a tool for a while.
func (a *actor) freezeOnce(tool string, level ledger.FreezeLevel) {
	s, scope, by := a.s, ledger.Scope{Tenant: tenant, Tool: tool}, ledger.Actor{Kind: "operator", ID: ann.ID}
	time.Sleep(2900 * time.Millisecond)
	for i := range 3 {
		_, err := ask(s, s.nodes[i%2], a.who(), func(ctx context.Context, l *life) ([]ledger.Operation, error) {
			return l.ledger.Freeze(ctx, scope, level, by, "stop")
		})
		if err == nil {
			a.act("frozen", func() {
				s.freezes = append(s.freezes, frozen{scope: scope, level: level, from: s.bus.steps})
				s.count("frozen")
			})
			time.Sleep(2300 * time.Millisecond)
			break
		}
		time.Sleep(900 * time.Millisecond)
	}
	s.bus.dies(&parked{})
	a.thaw()
}
