package measure

import (
	"context"

	"countersign/fault"
	"countersign/tools"
)

// Connector puts a stop-watch around a tool's connector. What the connector
// says passes unchanged.
func (m *Metrics) Connector(tool string, inner tools.Connector) tools.Connector {
	return &timed{Connector: inner, m: m, name: tool}
}

// timed is a connector under a stop-watch. Undo asks nobody, so it is not timed.
type timed struct {
	tools.Connector
	m    *Metrics
	name string
}

// The effect-free calls that are timed together.
const (
	callRead    = "read"
	callPreview = "preview"
	callGuard   = "guard"
)

// readDone times an effect-free call.
func (t *timed) readDone(call string, stop func() float64, err error) {
	result := "ok"
	if err != nil {
		result = string(fault.Of(err).Code)
	}
	t.m.reads.WithLabelValues(t.m.tool(t.name), call, result).Observe(stop())
}

// lookupAnswers are all that a lookup can say.
var lookupAnswers = []tools.AnswerKind{tools.Present, tools.Absent, tools.NotVisibleYet, tools.LookupFailed, tools.BrokenPromise}

// watch starts the watch; the function gives the seconds since.
func (m *Metrics) watch() func() float64 {
	began := m.cfg.Now()
	return func() float64 { return m.cfg.Now().Sub(began).Seconds() }
}

// Read implements tools.Connector.
func (t *timed) Read(ctx context.Context, call tools.Call) (any, error) {
	stop := t.m.watch()
	v, err := t.Connector.Read(ctx, call)
	t.readDone(callRead, stop, err)
	return v, err
}

// Preview implements tools.Connector.
func (t *timed) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	stop := t.m.watch()
	p, err := t.Connector.Preview(ctx, call)
	t.readDone(callPreview, stop, err)
	return p, err
}

// Guard implements tools.Connector.
func (t *timed) Guard(ctx context.Context, plan tools.Plan) (tools.Guard, error) {
	stop := t.m.watch()
	g, err := t.Connector.Guard(ctx, plan)
	t.readDone(callGuard, stop, err)
	return g, err
}

// Dispatch implements tools.Connector.
func (t *timed) Dispatch(ctx context.Context, plan tools.Plan, d tools.Dispatch) tools.Outcome {
	stop := t.m.watch()
	o := t.Connector.Dispatch(ctx, plan, d)
	t.m.dispatch.WithLabelValues(t.m.tool(t.name), string(o.Verdict)).Observe(stop())
	return o
}

// Lookup implements tools.Connector.
func (t *timed) Lookup(ctx context.Context, plan tools.Plan) tools.Answer {
	stop := t.m.watch()
	a := t.Connector.Lookup(ctx, plan)
	tool := t.m.tool(t.name)
	t.m.lookups.WithLabelValues(tool, string(a.Kind)).Inc()
	t.m.lookupFor.WithLabelValues(tool).Observe(stop())
	return a
}
