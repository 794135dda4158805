package tooltest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// Fake is a scripted connector with a small outside world of its own: it counts
// the requests that it received and the effects that took place, as a real
// upstream's log would. Without a script every dispatch succeeds with a new
// effect id. It is safe for concurrent use.
type Fake struct {
	// Now is the clock that stamps exchanges and guards; time.Now by default.
	Now func() time.Time

	mu         sync.Mutex
	steps      []Step
	answers    []tools.Answer
	world      map[string]any
	watched    []string
	requests   []Request
	effects    []FakeEffect
	honoursKey bool
	remembers  time.Duration // how long a key is really known
	lag        time.Duration
	lagSays    tools.AnswerKind
	hide       bool
	swallowed  chan struct{} // nil: lookups are answered
	previews   int
	guards     int
	lookups    int
	done       *tools.Done
	previewErr error
	guardErr   error
	arrived    chan struct{}
	asked      chan struct{}
	undo       string
	spec       *tools.Spec
	predict    func(args map[string]any) []tools.Effect
}

// Request is one dispatch as the fake received it.
type Request struct {
	Operation string
	Attempt   int
	Key       tools.Key
	Wire      json.RawMessage
}

// FakeEffect is one thing that really happened in the fake's world.
type FakeEffect struct {
	ID   string
	Key  string // the upstream key
	Args map[string]any
	At   time.Time
}

// Step scripts one dispatch. The zero Step succeeds.
type Step struct {
	// Verdict is what the caller is told; empty means Succeeded.
	Verdict tools.Verdict
	// Effect says whether the effect takes place although the verdict is not
	// Succeeded (a lost reply). A succeeded step always has one.
	Effect bool
	// EffectID overrides the generated id.
	EffectID string
	Result   map[string]any
	Because  string
	Status   int
	// Hold, when set, keeps the reply back until it is closed or receives. The
	// request counts as received, and the effect has taken place, before that.
	Hold <-chan struct{}
	// Do runs after the effect and before the reply, for tests that act in the
	// middle of a dispatch.
	Do func()
}

// Succeed is a step that takes effect and answers so.
func Succeed() Step { return Step{Verdict: tools.Succeeded, Status: 201} }

// SucceedAs is Succeed with a chosen effect id.
func SucceedAs(effectID string) Step {
	return Step{Verdict: tools.Succeeded, EffectID: effectID, Status: 201}
}

// Reject is a definite rejection: the request is received, nothing happens.
func Reject(because string) Step {
	return Step{Verdict: tools.NoEffect, Because: because, Status: 422}
}

// Unsent is a connection that was refused: nothing is received.
func Unsent() Step {
	return Step{Verdict: tools.NotSent, Because: "The connection was refused."}
}

// LoseReply takes effect, and the answer is lost.
func LoseReply() Step {
	return Step{Verdict: tools.Unknown, Effect: true, Because: "The connection closed before an answer."}
}

// LoseRequest is received and never takes effect, and the answer is lost: the
// caller can't tell it from LoseReply.
func LoseRequest() Step {
	return Step{Verdict: tools.Unknown, Because: "The connection closed before an answer."}
}

// Held is step with its reply kept back until release is closed or receives.
func Held(release <-chan struct{}, step Step) Step {
	step.Hold = release
	return step
}

// NewFake returns a fake with an empty script.
func NewFake() *Fake {
	return &Fake{
		Now:     time.Now,
		world:   map[string]any{},
		arrived: make(chan struct{}, 1<<12),
		asked:   make(chan struct{}, 1<<12),
	}
}

// Script appends steps: each dispatch takes the next one; when none is left
// dispatches succeed.
func (f *Fake) Script(steps ...Step) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, steps...)
	return f
}

// Answers appends scripted answers to lookups. When none is left a lookup
// answers from what really happened.
func (f *Fake) Answers(answers ...tools.Answer) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, answers...)
	return f
}

// SetWorld sets a value of the outside world. Once set, the field is part of
// every later plan's basis, and another change is drift.
func (f *Fake) SetWorld(field string, value any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.world[field]; !ok {
		f.watched = append(f.watched, field)
		slices.Sort(f.watched)
	}
	f.world[field] = value
}

// SetDone makes guards find the effect already there; nil takes that back.
func (f *Fake) SetDone(done *tools.Done) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = done
}

// FailPreview makes previews and reads answer err until it is called with nil.
func (f *Fake) FailPreview(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.previewErr = err
}

// FailGuard makes guards answer err until it is called with nil.
func (f *Fake) FailGuard(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guardErr = err
}

// Requests are the dispatches received so far, unsent ones not counted.
func (f *Fake) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Effects are what really happened so far.
func (f *Fake) Effects() []FakeEffect {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.effects)
}

// Previews, Guards and Lookups count the read-only calls.
func (f *Fake) Previews() int { f.mu.Lock(); defer f.mu.Unlock(); return f.previews }

// Guards counts calls of Guard.
func (f *Fake) Guards() int { f.mu.Lock(); defer f.mu.Unlock(); return f.guards }

// Lookups counts calls of Lookup.
func (f *Fake) Lookups() int { f.mu.Lock(); defer f.mu.Unlock(); return f.lookups }

// Arrived receives once for every dispatch that the fake has received, after
// its effect and before its reply: what a test waits for instead of sleeping.
func (f *Fake) Arrived() <-chan struct{} { return f.arrived }

// Read implements tools.Connector: it gives the arguments and the world back.
func (f *Fake) Read(ctx context.Context, call tools.Call) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readable(ctx); err != nil {
		return nil, err
	}
	f.previews++
	return map[string]any{"args": maps.Clone(call.Args), "world": maps.Clone(f.world)}, nil
}

// Preview implements tools.Connector.
func (f *Fake) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readable(ctx); err != nil {
		return tools.Plan{}, err
	}
	f.previews++
	wire, err := json.Marshal(map[string]any{"args": call.Args, "key": call.Key.Upstream})
	if err != nil {
		return tools.Plan{}, fault.Wrap(err, fault.Internal, "The plan could not be written down.")
	}
	plan := tools.Plan{
		Encoding:    1,
		Tool:        f.spec.Name,
		ToolVersion: f.spec.Version,
		Agent:       call.Agent,
		Key:         call.Key,
		Target:      "FAKE " + f.spec.UpstreamURL + "/" + f.spec.Name,
		Args:        call.Args,
		Headline:    fmt.Sprintf("%s %v", f.spec.Name, call.Args["order_id"]),
		Reversible:  f.spec.Reversible,
		Effects:     f.predict(call.Args),
		Wire:        wire,
	}
	if f.undo != "" {
		plan.UndoText = "Call " + f.undo + "."
	}
	for _, field := range f.watched {
		plan.Basis = append(plan.Basis, tools.BasisField{Field: field, Value: f.world[field]})
	}
	return plan, nil
}

func (f *Fake) readable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, fault.UpstreamTimeout, "The outside system did not answer in time.")
	}
	return f.previewErr
}

// Guard implements tools.Connector.
func (f *Fake) Guard(_ context.Context, plan tools.Plan) (tools.Guard, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guards++
	g := tools.Guard{ReadAt: f.Now()}
	if f.guardErr != nil {
		return g, f.guardErr
	}
	for _, b := range plan.Basis {
		// Compared as JSON text: a plan that was stored and read back holds
		// json.Number where the world holds int.
		if now := f.world[b.Field]; !sameJSON(b.Value, now) {
			g.Drift = append(g.Drift, tools.Drift{Field: b.Field, Was: b.Value, Now: now})
		}
	}
	if f.done != nil {
		d := *f.done
		g.Done = &d
	}
	return g, nil
}

func sameJSON(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// Dispatch implements tools.Connector. Past the deadline it sends nothing. A
// cancelled context does not stop it while it holds a reply back.
func (f *Fake) Dispatch(_ context.Context, plan tools.Plan, d tools.Dispatch) tools.Outcome {
	step, out, sent := f.receive(plan, d)
	if !sent {
		return out
	}
	f.arrived <- struct{}{}
	if step.Do != nil {
		step.Do()
	}
	if step.Hold != nil {
		<-step.Hold
	}
	out.Seen.AnsweredAt = f.Now()
	return out
}

// receive takes the next step and lets its effect take place.
func (f *Fake) receive(plan tools.Plan, d tools.Dispatch) (Step, tools.Outcome, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Now()
	if !d.Deadline.IsZero() && now.After(d.Deadline) {
		return Step{}, tools.Outcome{
			Verdict: tools.NotSent, Because: "The dispatch deadline had passed before the first byte.",
		}, false
	}
	var step Step
	if len(f.steps) > 0 {
		step, f.steps = f.steps[0], f.steps[1:]
	}
	if step.Verdict == "" {
		step.Verdict = tools.Succeeded
	}
	out := tools.Outcome{Verdict: step.Verdict, Because: step.Because}
	out.Seen.Target = plan.Target
	if step.Verdict == tools.NotSent {
		out.Seen.Error = step.Because
		return step, out, false
	}
	f.requests = append(f.requests, Request{
		Operation: d.Operation, Attempt: d.Attempt, Key: plan.Key, Wire: slices.Clone(plan.Wire),
	})
	out.Seen.SentBytes, out.Seen.SentAt, out.Seen.Status = int64(len(plan.Wire)), now, step.Status
	if step.Verdict == tools.Succeeded || step.Effect {
		id := f.takeEffect(plan, step.EffectID)
		if step.Verdict == tools.Succeeded {
			out.EffectID, out.Result = id, step.Result
		}
	}
	return step, out, true
}

// takeEffect changes the fake's world once: an upstream that honours keys gives
// the first effect back for a key that it still knows.
func (f *Fake) takeEffect(plan tools.Plan, id string) string {
	if first, ok := f.remembered(plan.Key.Upstream); ok && id == "" {
		return first
	}
	if id == "" {
		id = fmt.Sprintf("eff_%d", len(f.effects)+1)
	}
	f.effects = append(f.effects, FakeEffect{ID: id, Key: plan.Key.Upstream, Args: maps.Clone(plan.Args), At: f.Now()})
	return id
}

// Lookup implements tools.Connector: the next scripted answer, else what really
// happened, as far as lag and lies let it be seen. A tool without lookup answers
// failed.
func (f *Fake) Lookup(ctx context.Context, plan tools.Plan) tools.Answer {
	f.mu.Lock()
	f.lookups++
	f.mu.Unlock()
	f.asked <- struct{}{}
	if f.swallow(ctx) {
		return tools.Answer{Kind: tools.LookupFailed, Because: "The outside system did not answer in time."}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answers) > 0 {
		a := f.answers[0]
		f.answers = f.answers[1:]
		return a
	}
	if f.spec.Consistency == tools.NoLookup {
		return tools.Answer{Kind: tools.LookupFailed, Because: "The tool declares no lookup."}
	}
	a := tools.Answer{Kind: tools.Absent, Seen: tools.Exchange{Target: "FAKE lookup", SentAt: f.Now(), AnsweredAt: f.Now(), Status: 200}}
	var all int
	switch a.EffectIDs, all = f.shown(plan.Key.Upstream); {
	case len(a.EffectIDs) > 1:
		a.Kind = tools.BrokenPromise
	case len(a.EffectIDs) == 1:
		a.Kind = tools.Present
	case all > 0 && !f.hide:
		a.Kind = f.lagSays
	}
	return a
}

// Undo implements tools.Connector.
func (f *Fake) Undo(_ tools.Plan, effectID string, _ map[string]any) (tools.Undo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.undo == "" {
		return tools.Undo{Because: "The tool declares no undo."}, nil
	}
	return tools.Undo{Tool: f.undo, Args: map[string]any{"order_id": effectID}, Possible: true}, nil
}
