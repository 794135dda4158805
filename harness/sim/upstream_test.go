package sim_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// upstream is the outside world: what reached it, and what happened there. Only
// the driver changes it.
type upstream struct {
	s        *sim
	requests []request
	effects  []effect
	// version is what a tool's plans are read from; a change is drift.
	version map[string]int
	changed map[string]time.Time // when it last did
	// lookupsAway: until then nobody answers questions.
	lookupsAway time.Time
	n           int
}

// request is one dispatch that reached the wire.
type request struct {
	tool, op, upKey string
	attempt         int
	wire            string
	at              time.Time
	step            int
}

// effect is one thing that really happened.
type effect struct {
	id, tool, upKey, order string
	at                     time.Time
	step                   int
	outside                bool // not by a gateway
}

func newUpstream(s *sim) *upstream {
	return &upstream{s: s, version: map[string]int{}, changed: map[string]time.Time{}}
}

// happen lets an effect take place; a tool that honours keys gives the first one
// back for a key that it remembers.
func (u *upstream) happen(k *kindOfTool, upKey, order string, outside bool) string {
	if k.honoursKey && upKey != "" && !u.s.lies("keys") {
		for _, e := range u.effects {
			if e.upKey == upKey && time.Since(e.at) < keyRetention {
				return e.id
			}
		}
	}
	u.n++
	id := fmt.Sprintf("eff_%d", u.n)
	u.effects = append(u.effects, effect{id: id, tool: k.name, upKey: upKey, order: order, at: time.Now(), step: u.s.bus.steps, outside: outside})
	return id
}

// drift changes what a tool's plans were read from.
func (u *upstream) drift(tool string) {
	u.version[tool]++
	u.changed[tool] = time.Now()
}

// under are the effects under a wire key.
func (u *upstream) under(upKey string) []effect {
	var out []effect
	for _, e := range u.effects {
		if e.upKey == upKey {
			out = append(out, e)
		}
	}
	return out
}

// connector is how one life of a node talks to the outside world.
type connector struct {
	l *life
	k *kindOfTool
}

// park waits for the driver, and gives what became of a call.
func (c connector) park(ctx context.Context, class, on string, made func(Kind)) verdict {
	return c.l.node.s.bus.do(c.parked(ctx, class, on, made))
}

func (c connector) parked(ctx context.Context, class, on string, made func(Kind)) *parked {
	return &parked{
		life: c.l, node: c.l.node.n, who: whoOf(ctx), class: class, on: on, ctx: ctx,
		made:    func(k Kind) error { made(k); return nil },
		unclear: func() error { return errLostAnswer }, write: class == "up.send",
	}
}

func (c connector) now() time.Time { return c.l.node.now() }

func (c connector) Read(context.Context, tools.Call) (any, error) {
	return nil, fault.New(fault.Internal, "The simulated tools only write.")
}

func (c connector) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	u := c.l.node.s.up
	version := 0
	if v := c.park(ctx, "up.preview", call.Key.Value, func(Kind) { version = u.version[c.k.name] }); v.err != nil {
		return tools.Plan{}, fault.Wrap(v.err, fault.UpstreamTimeout, "The outside system did not answer in time.")
	}
	order, _ := call.Args["order_id"].(string)
	wire, err := json.Marshal(map[string]any{"args": call.Args, "key": call.Key.Upstream})
	if err != nil {
		return tools.Plan{}, fault.Wrap(err, fault.Internal, "The plan could not be written down.")
	}
	p := tools.Plan{
		Encoding: 1, Tool: c.k.name, ToolVersion: c.k.version(), Agent: call.Agent, Key: call.Key, Target: "SIM " + c.k.name,
		Args: call.Args, Headline: c.k.name + " " + order, Reversible: !c.k.irreversible, Wire: wire,
		Effects: []tools.Effect{{Verb: "do", Target: order, After: map[string]any{"done": true}, Count: 1}},
	}
	if c.k.drifts {
		p.Basis = []tools.BasisField{{Field: "version", Value: json.Number(fmt.Sprint(version))}}
	}
	if c.k.goal {
		p.Goal = &tools.Goal{Group: "sim", Value: order}
	}
	return p, nil
}

func (c connector) Guard(ctx context.Context, plan tools.Plan) (tools.Guard, error) {
	u := c.l.node.s.up
	if !c.k.drifts && !c.k.done {
		return tools.Guard{}, nil // it has none
	}
	g := tools.Guard{ReadAt: c.now()}
	order, _ := plan.Args["order_id"].(string)
	v := c.park(ctx, "up.guard", plan.Key.Value, func(Kind) {
		if now := json.Number(fmt.Sprint(u.version[c.k.name])); len(plan.Basis) > 0 && plan.Basis[0].Value != now {
			g.Drift = []tools.Drift{{Field: "version", Was: plan.Basis[0].Value, Now: now}}
		}
		for _, e := range u.effects {
			if c.k.done && e.outside && e.tool == c.k.name && e.order == order {
				g.Done = &tools.Done{EffectID: e.id}
			}
		}
	})
	if v.err != nil {
		return g, fault.Wrap(v.err, fault.UpstreamTimeout, "The outside system did not answer in time.")
	}
	if len(g.Drift) > 0 {
		c.l.node.s.count("drift")
	}
	return g, nil
}

// Dispatch sends once. Whoever wakes up behind the deadline sends nothing.
func (c connector) Dispatch(ctx context.Context, plan tools.Plan, d tools.Dispatch) tools.Outcome {
	s := c.l.node.s
	out := tools.Outcome{Verdict: tools.Unknown, Because: "The connection closed before an answer."}
	order, _ := plan.Args["order_id"].(string)
	on := fmt.Sprintf("%s/%d", d.Operation, d.Attempt)
	lost := out
	reached := false
	reach := func() bool {
		if !reached && c.now().After(d.Deadline) {
			out = tools.Outcome{Verdict: tools.NotSent, Because: "The dispatch deadline had passed before the first byte."}
			s.count("late waker sends nothing")
			return false
		}
		if !reached {
			s.up.requests = append(s.up.requests, request{
				tool: c.k.name, op: d.Operation, upKey: plan.Key.Upstream, attempt: d.Attempt, wire: string(plan.Wire), at: time.Now(), step: s.bus.steps,
			})
		}
		reached = true
		return true
	}
	p := c.parked(ctx, "up.send", on, func(k Kind) {
		if !reach() {
			return
		}
		switch k {
		case Reject:
			out = tools.Outcome{Verdict: tools.NoEffect, Because: "No."}
		case RejectLost:
		default:
			id := s.up.happen(c.k, plan.Key.Upstream, order, false)
			out = tools.Outcome{Verdict: tools.Succeeded, EffectID: id}
		}
	})
	p.leaves = reach
	v := s.bus.do(p)
	switch {
	case v.kind == Refuse:
		return tools.Outcome{Verdict: tools.NotSent, Because: "The connection was refused."}
	case v.err != nil || v.kind == RejectLost:
		if !reached {
			return out
		}
		return lost
	}
	if !reached {
		return out
	}
	if v := c.park(ctx, "up.reply", on, func(Kind) {}); v.err != nil {
		return lost
	}
	out.Seen.AnsweredAt = c.now()
	s.told(c.l, d, out)
	return out
}

// Lookup asks whether the plan's effect exists. What is answered late was read
// when it was asked.
func (c connector) Lookup(ctx context.Context, plan tools.Plan) tools.Answer {
	s := c.l.node.s
	a := tools.Answer{Kind: tools.Absent, Seen: tools.Exchange{SentAt: c.now()}}
	v := c.park(ctx, "up.lookup", plan.Key.Value, func(Kind) {
		a.EffectIDs = nil
		hidden := false
		for _, e := range s.up.under(plan.Key.Upstream) {
			if c.k.consistency == tools.Eventual && time.Since(e.at) < c.k.lag || s.lies("lookups") {
				hidden = true
				continue
			}
			a.EffectIDs = append(a.EffectIDs, e.id)
		}
		switch {
		case len(a.EffectIDs) > 1:
			a.Kind = tools.BrokenPromise
		case len(a.EffectIDs) == 1:
			a.Kind = tools.Present
		case hidden && c.k.honest:
			a.Kind = tools.NotVisibleYet
		}
	})
	if v.err != nil {
		return tools.Answer{Kind: tools.LookupFailed, Because: "No answer came."}
	}
	a.Seen.AnsweredAt = c.now()
	return a
}

func (c connector) Undo(_ tools.Plan, effectID string, _ map[string]any) (tools.Undo, error) {
	if c.k.undo == "" {
		return tools.Undo{Because: "The tool declares no undo."}, nil
	}
	return tools.Undo{Tool: c.k.undo, Args: map[string]any{"order_id": effectID}, Possible: true}, nil
}

// kindOfTool is one simulated tool.
type kindOfTool struct {
	name         string
	honoursKey   bool
	consistency  tools.Consistency
	lag          time.Duration
	honest       bool // says that it can't say yet
	irreversible bool
	drifts       bool
	done         bool // its guard finds what was done outside
	goal         bool
	undo         string
	groups       map[string]int // who must say yes; nil asks nobody
	expiry       time.Duration  // of a round; 0 means roundExpiry
}

// The tools, one for each thing that a tool can do.
var kinds = []*kindOfTool{
	{name: "note", consistency: tools.NoLookup},
	{name: "charge", honoursKey: true, consistency: tools.NoLookup},
	{name: "book", honoursKey: true, consistency: tools.Strong, undo: "unbook"},
	{name: "order", consistency: tools.Strong, goal: true},
	{name: "deliver", consistency: tools.Eventual, lag: 25 * time.Second, goal: true},
	{name: "post", consistency: tools.Eventual, lag: 25 * time.Second, honest: true},
	{name: "hold", consistency: tools.Strong, undo: "release", done: true, drifts: true},
	{name: "mail", consistency: tools.NoLookup, irreversible: true, groups: map[string]int{"any": 1}, drifts: true},
	{name: "pay", consistency: tools.Strong, irreversible: true, groups: map[string]int{"finance": 2}, drifts: true, done: true, expiry: 30 * time.Second},
	{name: "wire", consistency: tools.Strong, groups: map[string]int{"any": 1}, expiry: 16 * time.Second},
	{name: "release", consistency: tools.Strong},
	{name: "unbook", consistency: tools.NoLookup, groups: map[string]int{"any": 1}},
}

func kindOf(name string) *kindOfTool {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic("no such tool: " + name)
}

func (k *kindOfTool) version() string { return "sha256:sim-" + k.name }

// tools compiles the tools for one life of a node.
func (l *life) tools() []*tools.Tool {
	list := make([]*tools.Tool, len(kinds))
	for i, k := range kinds {
		rule := tools.ApprovalRule{Name: "default", Outcome: tools.OutcomeAuto, Match: always}
		if k.groups != nil {
			rule = tools.ApprovalRule{Name: "default", Outcome: tools.OutcomeApprove, Groups: k.groups, Match: always}
		}
		t := &tools.Tool{
			Spec: tools.Spec{
				Name: k.name, Access: tools.Write, Version: k.version(), Manifest: []byte("tool: " + k.name), Upstream: "sim", UpstreamURL: "sim:",
				Reversible: !k.irreversible, KeySource: tools.KeyTemplate, HonoursKey: k.honoursKey, Consistency: k.consistency,
				UndoTool: k.undo, Timeout: toolTimeout, Approval: []tools.ApprovalRule{rule}, ApprovalExpiry: cmp.Or(k.expiry, roundExpiry), ApprovalMaxAge: yesMaxAge,
			},
			Connector: connector{l: l, k: k},
			CheckArgs: checkArgs,
			BusinessKey: func(args map[string]any, _ tools.Agent) (string, error) {
				return fmt.Sprintf("%s/%v", k.name, args["order_id"]), nil
			},
			Redact: func(args map[string]any) map[string]any { return args },
		}
		if k.honoursKey {
			t.KeyRetention = keyRetention
		}
		if k.consistency != tools.NoLookup {
			t.Spec.MaxInFlight = maxInFlight
		}
		list[i] = t
	}
	return list
}

func always(map[string]any, []tools.Effect, tools.Agent) (bool, error) { return true, nil }

func checkArgs(args map[string]any) (map[string]any, []tools.Warning, error) {
	out := map[string]any{}
	for name, v := range args {
		if _, ok := v.(string); !ok || name != "order_id" && name != "amount" {
			return nil, nil, fault.New(fault.SchemaViolation, "The arguments do not fit the tool's schema.").At("/"+name, "is not an argument of this tool")
		}
		out[name] = v
	}
	return out, nil, nil
}
