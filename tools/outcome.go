package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"countersign/fault"
	"countersign/strictjson"
)

// maxEffectID is the length of an outside system's id in characters.
const maxEffectID = 512

// Judge says what an answer to the plan's request proves. It never guesses:
// what is neither the declared success nor a declared rejection is Unknown.
func (m *Manifest) Judge(plan Plan, reply Reply) Outcome {
	if reply.Incomplete != "" {
		return Outcome{Verdict: Unknown, Because: "The answer was not received whole: " + reply.Incomplete}
	}
	v := values{args: plan.Args, agent: plan.Agent, reads: plan.Reads, key: &plan.Key, reply: &reply}
	rejected, because := m.matchRejection(v)
	succeeded, id, result, why := m.matchSuccess(v)
	switch {
	case rejected && succeeded:
		return Outcome{Verdict: Unknown, Because: "The answer matches both the declared success and a declared rejection."}
	case rejected:
		return Outcome{Verdict: NoEffect, Because: because}
	case succeeded:
		return Outcome{Verdict: Succeeded, EffectID: id, Result: result}
	}
	return Outcome{Verdict: Unknown, Because: why}
}

// matchRejection finds the first declared rejection that the answer is. One
// whose expressions fail is not the declared one.
func (m *Manifest) matchRejection(v values) (bool, string) {
	for _, r := range m.commit.rejected {
		if !slices.Contains(r.status, v.reply.Status) {
			continue
		}
		vars := m.vars(v)
		if r.when != nil {
			if holds, err := r.when.truth(vars); err != nil || !holds {
				continue
			}
		}
		if r.because == nil {
			return true, fmt.Sprintf("The outside system refused with status %d.", v.reply.Status)
		}
		because, err := r.because.text(vars)
		if err != nil {
			continue
		}
		return true, shortReason(because)
	}
	return false, ""
}

// matchSuccess checks status, form, effect id and result; why says what is
// missing.
func (m *Manifest) matchSuccess(v values) (ok bool, id string, result map[string]any, why string) {
	s := m.commit.succeeded
	if !slices.Contains(s.status, v.reply.Status) {
		return false, "", nil, fmt.Sprintf("The outside system answered %d, which the tool does not declare.", v.reply.Status)
	}
	if v.reply.Unreadable != "" {
		return false, "", nil, fmt.Sprintf("The outside system answered %d, but its answer can't be read: %s", v.reply.Status, v.reply.Unreadable)
	}
	if s.schema != nil {
		if bad := s.schema.Validate(v.reply.Body); bad != nil {
			return false, "", nil, fmt.Sprintf("The outside system answered %d, but its answer does not have the declared form.", v.reply.Status)
		}
	}
	v.body = s.body
	vars := m.vars(v)
	if s.when != nil {
		if holds, err := s.when.truth(vars); err != nil || !holds {
			return false, "", nil, fmt.Sprintf("The outside system answered %d, but the declared condition does not hold.", v.reply.Status)
		}
	}
	value, err := s.effectID.value(vars)
	if err != nil {
		return false, "", nil, fmt.Sprintf("The outside system answered %d without the declared effect id.", v.reply.Status)
	}
	if id, ok = effectIDOf(value); !ok {
		return false, "", nil, fmt.Sprintf("The outside system answered %d, but its effect id is neither text nor a whole number.", v.reply.Status)
	}
	if s.result != nil {
		value, err := s.result.value(vars)
		if err == nil {
			value, err = storable(value)
		}
		if err != nil {
			return false, "", nil, fmt.Sprintf("The outside system answered %d without the declared result.", v.reply.Status)
		}
		result = value.(map[string]any)
	}
	return true, id, result, ""
}

// effectIDOf takes a text that is not empty and can be shown, or a whole number.
func effectIDOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		_, _, invisible := strictjson.HasInvisible(v)
		if strings.TrimSpace(v) == "" || invisible || strings.ContainsAny(v, "\r\n\t") || utf8.RuneCountInString(v) > maxEffectID {
			return "", false
		}
		return v, true
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			return "", false
		}
		return string(v), true
	}
	return "", false
}

// HasLookup and HasDone report whether the manifest can ask by key, and by
// business reference.
func (m *Manifest) HasLookup() bool { return m.lookup != nil }

// HasDone reports whether the manifest declares already_done.
func (m *Manifest) HasDone() bool { return m.done != nil }

// LookupRequest renders the question whether the plan's effect exists.
func (m *Manifest) LookupRequest(plan Plan) (Request, error) {
	return m.questionRequest(m.lookup, plan)
}

// DoneRequest renders the question whether the plan's business reference is
// done already.
func (m *Manifest) DoneRequest(plan Plan) (Request, error) { return m.questionRequest(m.done, plan) }

func (m *Manifest) questionRequest(q *question, plan Plan) (Request, error) {
	if q == nil {
		return Request{}, fault.New(fault.Internal, "The manifest declares no such question.")
	}
	req, err := q.request.render(m.vars(values{args: plan.Args, agent: plan.Agent, reads: plan.Reads, key: &plan.Key}), plan.Key.Upstream)
	return req, unexpected(err)
}

// JudgeLookup says what an answer to LookupRequest means.
func (m *Manifest) JudgeLookup(plan Plan, reply Reply) Answer { return m.judge(m.lookup, plan, reply) }

// JudgeDone says what an answer to DoneRequest means.
func (m *Manifest) JudgeDone(plan Plan, reply Reply) Answer { return m.judge(m.done, plan, reply) }

func (m *Manifest) judge(q *question, plan Plan, reply Reply) Answer {
	failed := func(format string, args ...any) Answer {
		return Answer{Kind: LookupFailed, Because: fmt.Sprintf(format, args...)}
	}
	if reply.Incomplete != "" {
		return failed("The answer was not received whole: %s", reply.Incomplete)
	}
	v := values{args: plan.Args, agent: plan.Agent, reads: plan.Reads, key: &plan.Key, reply: &reply, body: q.body}
	if q.notYet != nil && reply.Unreadable == "" {
		if holds, err := q.notYet.truth(m.vars(v)); err == nil && holds {
			return Answer{Kind: NotVisibleYet, Because: "The outside system can't say yet."}
		}
	}
	switch {
	case !slices.Contains(q.answers, reply.Status):
		return failed("The outside system answered %d, which is no answer to the question.", reply.Status)
	case reply.Unreadable != "":
		return failed("The answer can't be read: %s", reply.Unreadable)
	}
	if q.schema != nil {
		if bad := q.schema.Validate(reply.Body); bad != nil {
			return failed("The answer does not have the declared form.")
		}
	}
	found, err := q.found.eval(m.vars(v))
	if err != nil {
		return failed("The answer is not what the tool expects (at %s of its manifest).", q.found.where)
	}
	items, ok := found.([]any)
	if !ok {
		return failed("The answer does not give a list of ids.")
	}
	a := Answer{Kind: Absent}
	for _, item := range items {
		id, ok := effectIDOf(item)
		if !ok {
			return failed("The answer holds an id that is neither text nor a whole number.")
		}
		if !slices.Contains(a.EffectIDs, id) {
			a.EffectIDs = append(a.EffectIDs, id)
		}
	}
	switch {
	case len(a.EffectIDs) == 1:
		a.Kind = Present
	case len(a.EffectIDs) > 1:
		a.Kind, a.Because = BrokenPromise, "The outside system shows several effects for one key."
	}
	return a
}

// UndoOf works out the opposite call of a finished operation.
func (m *Manifest) UndoOf(plan Plan, effectID string, result map[string]any) (Undo, error) {
	u := m.undo
	if u == nil {
		return Undo{Because: "The tool declares no undo."}, nil
	}
	vars := m.vars(values{args: plan.Args, effects: plan.Effects, result: result, effectID: effectID})
	if u.while != nil {
		holds, err := u.while.truth(vars)
		if err != nil {
			return Undo{Tool: u.tool, Because: fmt.Sprintf("Whether it can be taken back is not known: %s can't be worked out.", u.while.text)}, nil
		}
		if !holds {
			return Undo{Tool: u.tool, Because: fmt.Sprintf("It can be taken back only while %s.", u.while.text)}, nil
		}
	}
	v, err := u.args.value(vars)
	if err == nil {
		v, err = storable(v)
	}
	args, ok := v.(map[string]any)
	if err != nil || !ok {
		return Undo{}, fault.Wrap(err, fault.UpstreamUnexpected, "The arguments of the undo can't be worked out from what was recorded.")
	}
	return Undo{Tool: u.tool, Args: args, Possible: true}, nil
}

// Key evaluates the key template. Errors are *fault.Error.
func (m *Manifest) keyOf(args map[string]any, agent Agent) (string, error) {
	if m.key == nil {
		return "", fault.New(fault.Internal, "The tool's key does not come from its arguments.")
	}
	key, err := m.key.text(m.vars(values{args: args, agent: agent}))
	if err != nil {
		return "", fault.Wrap(err, fault.SchemaViolation, "The idempotency key can't be made from these arguments.")
	}
	if len(key) > maxKeyLength {
		return "", fault.New(fault.TooLong, "The idempotency key made from these arguments is longer than %d characters.", maxKeyLength)
	}
	if key == "" {
		return "", fault.New(fault.SchemaViolation, "The idempotency key made from these arguments is empty.")
	}
	return key, nil
}

// maxKeyLength is the length of an idempotency key in characters.
const maxKeyLength = 255
