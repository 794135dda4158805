package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/strictjson"
)

var (
	clerk  = identity.Agent{ID: "agt_1", Tenant: tenant, Name: "clerk", Owner: "per_owner", Tools: []string{"*"}}
	helper = identity.Agent{ID: "agt_2", Tenant: tenant, Name: "helper", Owner: "per_owner", Tools: []string{"*"}}

	owner = identity.Operator{ID: "per_owner", Tenant: tenant, Name: "owner", Groups: []string{"finance"}}
	ann   = identity.Operator{ID: "per_ann", Tenant: tenant, Name: "ann", Groups: []string{"finance"}}
	bob   = identity.Operator{ID: "per_bob", Tenant: tenant, Name: "bob", Groups: []string{"finance", "support"}}
	carl  = identity.Operator{ID: "per_carl", Tenant: tenant, Name: "carl", Groups: []string{"support"}}
)

// directory are the people as of now.
type directory struct {
	mu     sync.Mutex
	people map[string]policy.Person
}

func newDirectory() *directory {
	d := &directory{people: map[string]policy.Person{}}
	for _, o := range []identity.Operator{owner, ann, bob, carl} {
		d.people[o.ID] = approvals.PersonOf(o)
	}
	return d
}

func (s *sim) person(_ context.Context, _, id string) (policy.Person, error) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if p, ok := s.dir.people[id]; ok {
		return p, nil
	}
	return policy.Person{ID: id, Disabled: true}, nil
}

// actor is one who acts from outside, on a chance of its own.
type actor struct {
	s    *sim
	name string
	rng  *rand.Rand
	n    int // calls it made
}

// begin starts an actor; must says that the first phase lasts until it ends.
func (s *sim) begin(name string, must bool, run func(*actor)) {
	s.actors++
	a := &actor{s: s, name: name, rng: rand.New(rand.NewPCG(s.opts.Seed, 1000+uint64(s.actors)))} //nolint:gosec // a simulation
	if must {
		s.busy.Add(1)
	}
	s.alive.Add(1)
	go func() {
		defer s.alive.Add(-1)
		if must {
			defer s.busy.Add(-1)
		}
		run(a)
	}()
}

// act is a step of the actor: the driver says when.
func (a *actor) act(what string, do func()) {
	a.s.bus.do(&parked{
		node: -1, who: a.name, class: "act", on: what, ctx: context.Background(),
		made: func(Kind) error { do(); return nil }, unclear: func() error { return nil },
	})
}

// lurk waits until somebody is about to write a mark, or for some time.
func (a *actor) lurk() {
	a.s.bus.do(&parked{
		node: -1, who: a.name, class: "act", on: "lurks", ctx: context.Background(),
		made: func(Kind) error { return nil }, unclear: func() error { return nil },
		patience: time.Now().Add(time.Duration(3+a.rng.IntN(20)) * time.Second),
		when: func(queue []*parked) bool {
			return slices.ContainsFunc(queue, func(p *parked) bool {
				return p.class == "Apply.dispatch" || p.class == "Apply.retry" || p.class == "Open.open.running" || p.class == "up.guard"
			})
		},
	})
}

// rest lets time go by, at most about d.
func (a *actor) rest(d time.Duration) {
	time.Sleep(time.Duration(a.rng.Int64N(int64(d)))/7*7 + 1)
	a.s.bus.dies(&parked{})
}

func (a *actor) likely(p float64) bool { return a.rng.Float64() < p }

func (a *actor) node() *node { return a.s.nodes[a.rng.IntN(len(a.s.nodes))] }

// who names the next handler of this actor.
func (a *actor) who() string {
	a.n++
	return fmt.Sprintf("%s#%d", a.name, a.n)
}

// intent is something that an agent wants done once.
type intent struct {
	agent   identity.Agent
	tool    string
	order   string
	amount  string
	run     string
	again   float64 // how likely it wants it once more
	undo    float64
	cancel  float64
	change  float64 // how likely it changes its mind about the arguments
	commits int     // how many commits of a token race
	tries   int
}

func (in intent) args() map[string]any {
	return map[string]any{"order_id": in.order, "amount": in.amount}
}

// pursue previews and commits until it knows what became of it, or gives up.
func (a *actor) pursue(in intent) {
	for i := range in.tries {
		if i == 0 && a.s.rush {
			time.Sleep(100 * time.Millisecond) // all at once
		} else {
			a.rest(2 * time.Second)
		}
		if a.likely(in.change) {
			in.amount += "0"
		}
		op, ok := a.once(in, "")
		switch {
		case !ok:
			continue
		case op.State.Live() && a.likely(in.cancel):
			a.cancel(op)
		case op.State != ledger.Succeeded && a.likely(in.again/3): // it may not
			if again, ok := a.once(in, op.ID); ok {
				a.follow(again, 1)
			}
		case op.State != ledger.Succeeded && a.likely(in.undo/4): // nor this
			a.undo(op, nil)
		}
		if op, ok = a.follow(op, 4); !ok || op.State.Live() {
			continue
		}
		switch {
		case op.State == ledger.Succeeded && a.likely(in.again):
			in.again = 0
			if again, ok := a.once(in, op.ID); ok {
				a.follow(again, 3)
			}
		case op.State.Effective() && a.likely(in.undo):
			var by *ledger.Actor
			if a.likely(0.3) {
				by = &ledger.Actor{Kind: "operator", ID: bob.ID, Name: bob.Name}
			}
			a.undo(op, by)
		case op.State.Void() && a.likely(0.6):
			continue
		}
		if a.likely(0.4) { // the same once more, as a crashed agent would
			continue
		}
		return
	}
}

// once previews and commits once, the token perhaps at several places at a time.
func (a *actor) once(in intent, againOf string) (ledger.Operation, bool) {
	s := a.s
	req := preview.Request{Agent: in.agent, Tool: in.tool, Args: in.args(), AgainOf: againOf, RequestID: "req"}
	if in.run != "" {
		req.Run = &ledger.Run{ID: in.run}
	}
	res, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (preview.Result, error) { return l.previews.Preview(ctx, req) })
	switch {
	case err != nil:
		s.refusal("preview", err)
		return ledger.Operation{}, false
	case res.Operation != nil:
		s.received(*res.Operation, "preview")
		a.itsOwn(in, *res.Operation)
		return *res.Operation, true
	}
	switch {
	case a.likely(0.05):
		a.rest(90 * time.Second) // past the token's end
	case kindOf(in.tool).drifts && a.likely(0.4):
		a.rest(25 * time.Second) // the world goes on
	}
	return a.spend(in, res.Token)
}

// spend commits a token, at several gateways at a time when the intent says so.
func (a *actor) spend(in intent, token string) (ledger.Operation, bool) {
	s := a.s
	var mu sync.Mutex
	var got []ledger.Operation
	var wg sync.WaitGroup
	first := a.rng.IntN(len(s.nodes))
	for i := range max(in.commits, 1) {
		n, who, wait := s.nodes[(first+i)%len(s.nodes)], a.who(), time.Duration(a.rng.IntN(3))*1700*time.Millisecond
		agent := in.agent
		if i > 1 && a.likely(0.3) { // another agent got hold of it (I2)
			if agent = helper; in.agent.ID == helper.ID {
				agent = clerk
			}
		}
		var args map[string]any
		if a.likely(0.1) {
			args = map[string]any{"order_id": in.order, "amount": "other"} // not what was previewed
		}
		wg.Go(func() {
			res, err := ask(s, n, who, func(ctx context.Context, l *life) (commit.Result, error) {
				return l.commits.Commit(ctx, commit.Request{Agent: agent, Tool: in.tool, Token: token, Args: args, RequestID: "req", Wait: wait})
			})
			if err != nil {
				s.refusal("commit", err)
				return
			}
			if agent.ID != in.agent.ID {
				s.violate("I2", "a token of %s was spent by %s", in.agent.ID, agent.ID)
			}
			if args != nil {
				s.violate("I13", "a commit with other arguments was answered with %s", res.Operation.ID)
			}
			s.received(res.Operation, "commit")
			a.itsOwn(in, res.Operation)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, res.Operation)
		})
	}
	wg.Wait()
	a.s.bus.dies(&parked{})
	if len(got) == 0 {
		return ledger.Operation{}, false
	}
	for _, op := range got {
		if op.ID != got[0].ID {
			s.violate("I2", "one token gave %s and %s", op.ID, got[0].ID)
		}
	}
	return slices.MaxFunc(got, func(x, y ledger.Operation) int { return int(x.Version - y.Version) }), true
}

// itsOwn refuses an answer that is another intent's (R42).
func (a *actor) itsOwn(in intent, op ledger.Operation) {
	if op.ArgsDigest != strictjson.Digest(in.args()) || op.Tool != in.tool {
		a.s.violate("R42", "%s was answered with %s, which has other arguments", in.tool, op.ID)
	}
}

// follow looks at an operation until it has its answer, some times.
func (a *actor) follow(op ledger.Operation, looks int) (ledger.Operation, bool) {
	for range looks {
		if op.State.Final() {
			return op, true
		}
		a.rest(4 * time.Second)
		now, err := ask(a.s, a.node(), a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
			return l.ledger.Operation(ctx, tenant, op.ID)
		})
		if err != nil {
			a.s.refusal("look", err)
			if fault.Is(err, fault.OperationNotFound) {
				a.s.violate("I10", "%s was answered as %s and is not there", op.ID, op.State)
			}
			continue
		}
		a.s.received(now, "look")
		op = now
	}
	return op, op.ID != ""
}

func (a *actor) cancel(op ledger.Operation) {
	got, err := ask(a.s, a.node(), a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
		return l.commits.Cancel(ctx, tenant, op.ID, ledger.Actor{Kind: "agent", ID: op.Agent.ID}, "no longer wanted")
	})
	if err != nil {
		a.s.refusal("cancel", err)
		return
	}
	a.s.received(got, "cancel")
}

// undo takes an operation back, twice perhaps, and at two gateways.
func (a *actor) undo(op ledger.Operation, by *ledger.Actor) {
	s := a.s
	var agent *identity.Agent
	if by == nil {
		ag := clerk
		if op.Agent.ID == helper.ID {
			ag = helper
		}
		agent, by = &ag, &ledger.Actor{}
	}
	for range 1 + a.rng.IntN(3) {
		res, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (preview.Result, error) {
			return l.previews.Undo(ctx, preview.UndoRequest{Tenant: tenant, Operation: op.ID, Agent: agent, By: *by, RequestID: "req"})
		})
		switch {
		case err != nil:
			s.refusal("undo preview", err)
		case res.Operation != nil:
			s.received(*res.Operation, "undo")
			a.follow(*res.Operation, 2)
		default:
			n, who := a.rng.IntN(2), a.who()
			var wg sync.WaitGroup
			for i := range 1 + a.rng.IntN(2) {
				wg.Go(func() {
					got, err := ask(s, s.nodes[(n+i)%2], fmt.Sprint(who, "/", i), func(ctx context.Context, l *life) (commit.Result, error) {
						return l.commits.Undo(ctx, commit.UndoCommit{Tenant: tenant, Operation: op.ID, Token: res.Token, Agent: agent, By: *by, RequestID: "req", Wait: 1700 * time.Millisecond})
					})
					if err != nil {
						s.refusal("undo", err)
						return
					}
					s.received(got.Operation, "undo")
				})
			}
			wg.Wait()
		}
		a.rest(5 * time.Second)
	}
}

// undoRun takes back what a run did.
func (a *actor) undoRun(agent identity.Agent, run string) {
	s := a.s
	for range 4 {
		plan, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (preview.RunPlan, error) {
			return l.previews.UndoRun(ctx, preview.UndoRunRequest{Tenant: tenant, AgentID: agent.ID, Run: run, Agent: &agent, RequestID: "req"})
		})
		if err == nil && plan.Token != "" {
			switch {
			case a.likely(0.2):
				a.rest(10 * time.Second)
			case a.likely(0.4): // the run goes on
				more := intent{agent: agent, tool: "note", order: "o3", amount: "1", run: run}
				if op, ok := a.once(more, ""); ok {
					a.follow(op, 3)
				}
			}
			for range 1 + a.rng.IntN(2) {
				res, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (commit.RunResult, error) {
					return l.commits.UndoRun(ctx, commit.UndoRunCommit{Tenant: tenant, AgentID: agent.ID, Run: run, Token: plan.Token, Agent: &agent, RequestID: "req"})
				})
				if err != nil {
					s.refusal("undo run", err)
					continue
				}
				if s.count("run undone"); res.Run.Operations != plan.Run.Operations {
					s.violate("I15", "the undo of a run of %d operations was shown, and it closed one of %d", plan.Run.Operations, res.Run.Operations)
				}
				for _, op := range res.Operations {
					s.received(op, "undo run")
				}
			}
		}
		a.rest(10 * time.Second)
	}
}

// decide is a person's day: what waits is decided, and what is on the list is
// found out, as long as the run lasts.
func (a *actor) decide(who identity.Operator) {
	s := a.s
	for !s.over.Load() {
		a.rest(3 * time.Second)
		if !s.wanted() {
			continue // nobody calls them
		}
		n := a.node()
		queue, err := ask(s, n, a.who(), func(ctx context.Context, l *life) (ledger.Page, error) {
			return l.approvals.Queue(ctx, tenant, "", 10)
		})
		if err == nil {
			for _, op := range queue.Operations {
				a.say(who, op)
			}
		}
		a.find(who)
	}
}

// wanted reports that something waits for people.
func (s *sim) wanted() bool {
	return s.state.Any(func(op *ledger.Operation) bool {
		return op.State == ledger.AwaitingApproval || op.OnList
	})
}

// say decides on one operation by its card, sometimes late, sometimes twice.
func (a *actor) say(who identity.Operator, op ledger.Operation) {
	s := a.s
	card, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (approvals.Card, error) {
		p, _ := s.person(ctx, tenant, who.ID) // it never fails
		return l.approvals.Card(ctx, p, tenant, op.ID)
	})
	// Sometimes people try what they may not.
	if err != nil || !card.May && !a.likely(0.2) {
		return
	}
	if a.likely(0.25) {
		a.rest(8 * time.Second)
	}
	d := approvals.Decision{Word: "approve", ShownDigest: card.ShownDigest}
	if a.likely(0.15) {
		d.Word, d.Reason = "reject", "no"
	}
	who1, n := a.who(), a.rng.IntN(2)
	var wg sync.WaitGroup
	for i := range 1 + a.rng.IntN(2) {
		wg.Go(func() {
			got, err := ask(s, s.nodes[(n+i)%2], fmt.Sprint(who1, "/", i), func(ctx context.Context, l *life) (ledger.Operation, error) {
				return l.approvals.Decide(ctx, who, op.ID, d)
			})
			switch {
			case err == nil:
				s.received(got, "decide")
			case fault.Is(err, fault.AlreadyDecided):
				s.count("decided twice")
			case fault.Is(err, fault.ApprovalChanged):
				s.count("decided on what had changed")
			case fault.Is(err, fault.InvalidState):
				s.count("decided too late")
			}
		})
	}
	wg.Wait()
	if d.Word == "reject" && a.likely(0.3) {
		_, _ = ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
			return l.approvals.Reopen(ctx, who, op.ID, "asked again")
		})
	}
}

// find looks into what only people can find out. They speak the truth, when it can
// be known.
func (a *actor) find(who identity.Operator) {
	s := a.s
	onList := true
	list, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (ledger.Page, error) {
		return l.ledger.List(ctx, ledger.Filter{Tenant: tenant, OnList: &onList, OldestFirst: true})
	})
	if err != nil {
		return
	}
	for _, op := range list.Operations {
		st := ledger.Statement{Reason: "looked it up"}
		known := false
		a.act("looks up "+op.ID, func() {
			newest := op.Attempts[len(op.Attempts)-1]
			known = time.Now().After(newest.MarkedAt.Add(settle + 2*skewAllowed))
			for _, e := range s.up.under(op.UpstreamKey) {
				st.Happened, st.EffectID, known = true, e.id, true
			}
			if s.lies("people") {
				known, st.Happened, st.EffectID = true, false, ""
			}
		})
		if !known {
			continue
		}
		got, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (ledger.Operation, error) {
			return l.approvals.Resolve(ctx, who, op.ID, st)
		})
		if err == nil {
			s.received(got, "resolve")
		}
	}
}

// operate freezes and unfreezes.
func (a *actor) operate(tool string, level ledger.FreezeLevel) {
	s := a.s
	scope := ledger.Scope{Tenant: tenant, Tool: tool}
	if a.likely(0.2) {
		scope = ledger.Scope{Tenant: tenant, Everything: true}
	}
	by := ledger.Actor{Kind: "operator", ID: ann.ID}
	for i := range 3 {
		if a.rest(5 * time.Second); a.likely(0.7) {
			a.lurk()
		}
		if i > 0 && a.likely(0.5) { // the other level, on top
			level = map[ledger.FreezeLevel]ledger.FreezeLevel{ledger.FreezeAll: ledger.FreezeNew, ledger.FreezeNew: ledger.FreezeAll}[level]
		}
		marked, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) ([]ledger.Operation, error) {
			return l.ledger.Freeze(ctx, scope, level, by, "stop")
		})
		if err == nil {
			a.act("frozen", func() {
				s.freezes = append(s.freezes, frozen{scope: scope, level: level, from: s.bus.steps})
				s.count("frozen")
				if len(marked) > 0 {
					s.count("freeze lost against a mark")
				}
			})
			a.rest(8 * time.Second)
			if a.likely(0.2) {
				a.rest(50 * time.Second)
			}
		}
		if a.likely(0.4) {
			continue
		}
		a.act("unfreezes", func() { s.thawing(scope) })
		for range 5 {
			_, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (bool, error) {
				return true, l.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: scope, By: by, Reason: "go on", Override: true})
			})
			if err == nil {
				break
			}
			a.rest(3 * time.Second)
		}
	}
}

// meddle changes the world behind the gateways' backs, and people's rights.
func (a *actor) meddle(first intent) {
	s, tool, order := a.s, first.tool, first.order
	for range 1 + a.rng.IntN(3) {
		if a.rest(6 * time.Second); a.likely(0.2) {
			a.lurk()
		}
		k := kindOf(tool)
		switch n := a.rng.IntN(5); {
		case n < 2 && k.done && a.likely(0.4):
			a.act("does it itself", func() { s.up.happen(k, "", order, true) })
		case n < 2 && k.drifts:
			a.act("drift", func() { s.up.drift(tool) })
		case n < 4:
			if !a.likely(0.6) {
				continue
			}
			_, _ = ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (bool, error) { // it may fail
				_, _, err := l.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "revoke", By: ledger.Gateway("identity")}, func(g *ledger.Guard) {
					if !slices.Contains(g.Revoked, first.agent.ID) {
						g.Revoked = append(g.Revoked, first.agent.ID)
					}
				})
				return true, err
			})
		default:
			a.act("takes a right away", func() {
				s.dir.mu.Lock()
				defer s.dir.mu.Unlock()
				p := s.dir.people[bob.ID]
				p.Disabled = true
				s.dir.people[bob.ID] = p
			})
			for range 5 {
				_, err := ask(s, a.node(), a.who(), func(ctx context.Context, l *life) (bool, error) {
					return true, l.ledger.PeopleChanged(ctx, tenant)
				})
				if err == nil {
					a.act("right is gone", func() { s.disabled = min(s.disabled, s.bus.steps) })
					break
				}
				a.rest(time.Second)
			}
		}
	}
}
