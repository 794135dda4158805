package tools

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"countersign/fault"
	"countersign/strictjson"
)

// NamedRequest is one read that a preview makes, by the name under which
// expressions use its answer.
type NamedRequest struct {
	Name    string
	Request Request
}

// Reads renders the reads of a preview. Only the names given are rendered, all
// when there are none.
func (m *Manifest) Reads(args map[string]any, agent Agent, names ...string) ([]NamedRequest, error) {
	vars := m.vars(values{args: args, agent: agent})
	var out []NamedRequest
	for _, r := range m.reads {
		if len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		req, err := r.request.render(vars, "")
		if err != nil {
			return nil, unexpected(err)
		}
		out = append(out, NamedRequest{r.name, req})
	}
	return out, nil
}

// ErrNoObject is the cause of a refused answer when a request that names
// arguments was answered 404 or 410 and the tool does not expect that: before
// anything is opened, it is the arguments that are wrong.
var ErrNoObject = errors.New("tools: the outside system has no such object")

// AcceptRead checks the answer of a read: its status, that its body can be
// read, and the schema where one is declared. Errors are *fault.Error; see also
// ErrNoObject.
func (m *Manifest) AcceptRead(name string, reply Reply) error {
	for _, r := range m.reads {
		if r.name == name {
			return r.accept(reply)
		}
	}
	return fault.New(fault.Internal, "The manifest has no read of that name.")
}

func (r readPart) accept(reply Reply) error {
	what := "The outside system"
	switch {
	case reply.Incomplete != "":
		return fault.New(fault.UpstreamUnexpected, "%s did not answer completely: %s", what, reply.Incomplete)
	case !slices.Contains(r.status, reply.Status):
		e := fault.New(fault.UpstreamUnexpected, "%s answered %d where the tool expects %s.", what, reply.Status, statusWords(r.status))
		gone := reply.Status == http.StatusNotFound || reply.Status == http.StatusGone
		if gone && len(r.request.uses.args) > 0 {
			e.Cause = ErrNoObject
		}
		return e
	case reply.Unreadable != "":
		return fault.New(fault.UpstreamUnexpected, "%s's answer can't be read: %s", what, reply.Unreadable)
	}
	if r.schema != nil {
		if bad := r.schema.Validate(reply.Body); bad != nil {
			return fault.Wrap(bad, fault.UpstreamUnexpected, "%s's answer does not have the form that the tool declares.", what)
		}
	}
	return nil
}

func statusWords(list []int) string {
	words := ""
	for i, s := range list {
		if i > 0 {
			words += " or "
		}
		words += fmt.Sprint(s)
	}
	return words
}

// ReadRequest renders the one request of a read tool.
func (m *Manifest) ReadRequest(call Call) (Request, error) {
	req, err := m.read.request.render(m.vars(values{args: call.Args, agent: call.Agent}), "")
	return req, unexpected(err)
}

// ReadResult is what a read tool gives for the upstream's answer.
func (m *Manifest) ReadResult(call Call, reply Reply) (any, error) {
	if err := m.read.accept(reply); err != nil {
		return nil, err
	}
	if m.read.result == nil {
		return reply.Body, nil
	}
	v, err := m.read.result.value(m.vars(values{args: call.Args, agent: call.Agent, reply: &reply, body: m.read.body}))
	if err != nil {
		return nil, unexpected(err)
	}
	if _, none := v.(absent); none {
		return nil, nil
	}
	return storable(v)
}

// storable holds a value that expressions made to the rules of every value.
func storable(v any) (any, error) {
	v, err := strictjson.FromNative(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.UpstreamUnexpected, "The outside system's answer holds a value that can't be stored.")
	}
	return v, nil
}

// Plan works out what a call would do from the answers of its reads, and
// renders the request that would do it. Wire and Target are the connector's to
// fill in. Errors are *fault.Error: tool_refused, upstream_unexpected, or what
// the arguments can't mean in their place.
func (m *Manifest) Plan(call Call, replies map[string]Reply) (Plan, Request, error) {
	reads := make(map[string]any, len(replies))
	for name, r := range replies {
		reads[name] = r.asRead()
	}
	vars := m.vars(values{args: call.Args, agent: call.Agent, reads: reads, key: &call.Key})
	if err := m.refuse(vars); err != nil {
		return Plan{}, Request{}, err
	}
	p := Plan{
		Encoding: PlanEncoding, Tool: m.Spec.Name, ToolVersion: m.Spec.Version,
		Agent: call.Agent, Key: call.Key, Args: call.Args, Reversible: m.Spec.Reversible,
	}
	var err error
	if p.Effects, err = m.storedEffects(vars); err != nil {
		return Plan{}, Request{}, err
	}
	if len(p.Effects) == 0 {
		return Plan{}, Request{}, fault.New(fault.ToolRefused, "Nothing would change: the tool predicts no effect of this call.")
	}
	if p.Headline, err = m.headlineOf(vars, p.Effects); err != nil {
		return Plan{}, Request{}, unexpected(err)
	}
	if p.Basis, err = m.basisOf(vars); err != nil {
		return Plan{}, Request{}, unexpected(err)
	}
	if p.Goal, err = m.goalOf(vars); err != nil {
		return Plan{}, Request{}, unexpected(err)
	}
	p.UndoText = m.undoText()
	for name := range m.kept {
		if p.Reads == nil {
			p.Reads = map[string]any{}
		}
		p.Reads[name] = reads[name]
	}
	req, err := m.commit.request.render(vars, call.Key.Upstream)
	if err != nil {
		return Plan{}, Request{}, unexpected(err)
	}
	return p, req, nil
}

// refuse gives the first reason of the manifest that holds.
func (m *Manifest) refuse(vars map[string]any) error {
	for _, r := range m.refusals {
		holds, err := r.when.truth(vars)
		if err != nil {
			return unexpected(err)
		}
		if !holds {
			continue
		}
		because, err := r.because.text(vars)
		if err != nil {
			return unexpected(err)
		}
		return fault.New(fault.ToolRefused, "%s", shortReason(because))
	}
	return nil
}

func (m *Manifest) storedEffects(vars map[string]any) ([]Effect, error) {
	effects, err := m.predict(vars)
	if err != nil {
		return nil, unexpected(err)
	}
	for i := range effects {
		for _, side := range []*map[string]any{&effects[i].Before, &effects[i].After} {
			if *side == nil {
				continue
			}
			v, err := storable(*side)
			if err != nil {
				return nil, err
			}
			*side = v.(map[string]any)
		}
	}
	return effects, nil
}

// headlineOf is the manifest's headline, or what the first effect says.
func (m *Manifest) headlineOf(vars map[string]any, effects []Effect) (string, error) {
	if m.headline != nil {
		return m.headline.text(vars)
	}
	text := effects[0].Summary
	if len(effects) > 1 {
		text = fmt.Sprintf("%s, and %d more", text, len(effects)-1)
	}
	return text, nil
}

func (m *Manifest) basisOf(vars map[string]any) ([]BasisField, error) {
	var out []BasisField
	for _, e := range m.basis {
		v, err := e.eval(vars)
		if err != nil {
			return nil, err
		}
		if _, none := v.(absent); none {
			v = nil
		}
		if v, err = storable(v); err != nil {
			return nil, err
		}
		out = append(out, BasisField{Field: e.text, Value: v})
	}
	return out, nil
}

func (m *Manifest) goalOf(vars map[string]any) (*Goal, error) {
	if m.goal == nil {
		return nil, nil
	}
	value, err := m.goal.value.text(vars)
	if err != nil {
		return nil, err
	}
	return &Goal{Group: m.goal.group, Value: value}, nil
}

func (m *Manifest) undoText() string {
	u := m.undo
	switch {
	case u == nil:
		return ""
	case u.says != "":
		return u.says
	case u.while != nil:
		return fmt.Sprintf("Taken back by %s, while %s.", u.tool, u.while.text)
	}
	return fmt.Sprintf("Taken back by %s.", u.tool)
}

// BasisReads are the names of the reads that the plan's basis comes from.
func (m *Manifest) BasisReads() []string {
	var names []string
	for _, e := range m.basis {
		if e.uses.allReads {
			names = names[:0]
			for _, r := range m.reads {
				names = append(names, r.name)
			}
			return names
		}
		for _, name := range e.uses.reads {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Drift compares the plan's basis with fresh answers of BasisReads.
func (m *Manifest) Drift(plan Plan, replies map[string]Reply) ([]Drift, error) {
	reads := make(map[string]any, len(replies))
	for name, r := range replies {
		reads[name] = r.asRead()
	}
	now, err := m.basisOf(m.vars(values{args: plan.Args, agent: plan.Agent, reads: reads}))
	if err != nil {
		return nil, unexpected(err)
	}
	var out []Drift
	for i, field := range now {
		if i >= len(plan.Basis) || plan.Basis[i].Field != field.Field {
			return nil, fault.New(fault.Internal, "The plan's basis is not the manifest's.")
		}
		if was := plan.Basis[i].Value; !strictjson.Equal(was, field.Value) {
			out = append(out, Drift{Field: field.Field, Was: was, Now: field.Value})
		}
	}
	return out, nil
}

// shortReason cuts a text from outside to what a detail may hold.
func shortReason(s string) string {
	const most = 500
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
