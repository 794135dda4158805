package httptool

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// connector speaks for one compiled manifest.
type connector struct {
	client *Client
	m      *tools.Manifest
}

// Connector makes the connector of a manifest that is bound to this upstream.
// Its signature is that of tools.CompileEnv.NewConnector.
func (c *Client) Connector(m *tools.Manifest) (tools.Connector, error) {
	return &connector{client: c, m: m}, nil
}

// Read implements tools.Connector.
func (c *connector) Read(ctx context.Context, call tools.Call) (any, error) {
	req, err := c.m.ReadRequest(call)
	if err != nil {
		return nil, err
	}
	reply, _, err := c.client.read(ctx, req, c.m.Spec.Timeout, c.client.up.Limits.ReadBudget)
	if err != nil {
		return nil, err
	}
	result, err := c.m.ReadResult(call, reply)
	return result, noObject(err, req, reply)
}

// noObject turns an answer that says "there is none" into a refusal of the
// arguments: the same request would be answered the same for ever.
func noObject(err error, req tools.Request, reply tools.Reply) error {
	if !errors.Is(err, tools.ErrNoObject) {
		return err
	}
	return fault.Wrap(err, fault.ToolRefused, "The outside system has no such object: %s %s answered %d. Check the ids among the arguments.",
		req.Method, shownPath(req.Path), reply.Status)
}

// maxPath is how many bytes of a request's path a refusal shows.
const maxPath = 120

// shownPath is a path for a sentence: in ASCII, with escapes, and cut.
func shownPath(path string) string {
	quoted := strconv.QuoteToASCII(cleanText(path, maxPath))
	shown := quoted[1 : len(quoted)-1]
	if len(path) > maxPath {
		shown += "…"
	}
	return shown
}

// Preview implements tools.Connector.
func (c *connector) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	replies, err := c.readAll(ctx, call.Args, call.Agent, c.client.up.Limits.ReadBudget, noObject)
	if err != nil {
		return tools.Plan{}, err
	}
	plan, req, err := c.m.Plan(call, replies)
	if err != nil {
		return tools.Plan{}, err
	}
	w := c.client.render(req)
	if plan.Wire, err = json.Marshal(w); err != nil {
		return tools.Plan{}, fault.Wrap(err, fault.Internal, "The request could not be written down.")
	}
	plan.Target = w.Method + " " + w.URL
	return plan, nil
}

// readAll makes the reads of a preview side by side; only those named, when
// names are given. The first error in the manifest's order is the answer, in the words of
// say.
func (c *connector) readAll(ctx context.Context, args map[string]any, agent tools.Agent, budget time.Duration,
	say func(error, tools.Request, tools.Reply) error, names ...string,
) (map[string]tools.Reply, error) {
	requests, err := c.m.Reads(args, agent, names...)
	if err != nil {
		return nil, err
	}
	replies, errs := make([]tools.Reply, len(requests)), make([]error, len(requests))
	var wait sync.WaitGroup
	for i, r := range requests {
		wait.Go(func() {
			replies[i], _, errs[i] = c.client.read(ctx, r.Request, c.m.Spec.Timeout, budget)
			if errs[i] == nil {
				errs[i] = say(c.m.AcceptRead(r.Name, replies[i]), r.Request, replies[i])
			}
		})
	}
	wait.Wait()
	out := make(map[string]tools.Reply, len(requests))
	for i, r := range requests {
		if errs[i] != nil {
			return nil, errs[i]
		}
		out[r.Name] = replies[i]
	}
	return out, nil
}

// Guard implements tools.Connector. An answer that is not clear is an error, and
// then nothing may be sent.
func (c *connector) Guard(ctx context.Context, plan tools.Plan) (tools.Guard, error) {
	g := tools.Guard{ReadAt: c.client.up.Now()}
	budget := c.client.up.Limits.GuardBudget
	if c.m.HasDone() {
		req, err := c.m.DoneRequest(plan)
		if err != nil {
			return g, err
		}
		reply, seen, err := c.client.read(ctx, req, c.m.Spec.Timeout, budget)
		if err != nil {
			return g, err
		}
		switch a := c.m.JudgeDone(plan, reply); a.Kind {
		case tools.Present:
			g.Done = &tools.Done{EffectID: a.EffectIDs[0], Seen: seen}
			return g, nil
		case tools.Absent:
		default:
			return g, fault.New(fault.UpstreamUnexpected, "Whether it is already done is not clear: %s", a.Because)
		}
	}
	names := c.m.BasisReads()
	if len(names) == 0 {
		return g, nil
	}
	// What is gone by now was there at preview: that is no mistake of the caller.
	asItIs := func(err error, _ tools.Request, _ tools.Reply) error { return err }
	replies, err := c.readAll(ctx, plan.Args, plan.Agent, budget, asItIs, names...)
	if err != nil {
		return g, err
	}
	g.Drift, err = c.m.Drift(plan, replies)
	return g, err
}

// Lookup implements tools.Connector.
func (c *connector) Lookup(ctx context.Context, plan tools.Plan) tools.Answer {
	if !c.m.HasLookup() {
		return tools.Answer{Kind: tools.LookupFailed, Because: "The tool declares no lookup."}
	}
	req, err := c.m.LookupRequest(plan)
	if err != nil {
		return tools.Answer{Kind: tools.LookupFailed, Because: fault.Of(err).Detail}
	}
	reply, seen, err := c.client.read(ctx, req, c.m.Spec.Timeout, c.client.up.Limits.ReadBudget)
	if err != nil {
		return tools.Answer{Kind: tools.LookupFailed, Because: fault.Of(err).Detail, Seen: seen}
	}
	a := c.m.JudgeLookup(plan, reply)
	a.Seen = seen
	return a
}

// Undo implements tools.Connector. It asks nobody.
func (c *connector) Undo(plan tools.Plan, effectID string, result map[string]any) (tools.Undo, error) {
	return c.m.UndoOf(plan, effectID, result)
}
