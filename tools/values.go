package tools

import (
	"encoding/json"
	"errors"
	"strconv"

	"cel.dev/cel-go/common/types"

	"countersign/fault"
)

// Reply is an upstream's answer as expressions see it.
type Reply struct {
	Status int
	// Headers by lower-case name; several fields of one name are joined by ", ".
	Headers map[string]string
	// Body is the parsed value: JSON, a string for plain text, nil for no body.
	Body any
	// Unreadable says why the body could not be parsed although it was received
	// whole; Body is nil then.
	Unreadable string
	// Incomplete says why the answer was not received whole. Such an answer
	// proves nothing.
	Incomplete string
}

// asRead is the reply as it is stored in Plan.Reads.
func (r Reply) asRead() map[string]any {
	headers := make(map[string]any, len(r.Headers))
	for name, v := range r.Headers {
		headers[name] = v
	}
	return map[string]any{"status": json.Number(strconv.Itoa(r.Status)), "headers": headers, "body": r.Body}
}

// values are what the variables of expressions stand for; what is nil or empty
// is not in scope.
type values struct {
	args     map[string]any
	agent    Agent
	reads    map[string]any
	key      *Key
	effects  []Effect
	reply    *Reply
	body     *types.Type // of reply.Body
	result   map[string]any
	effectID string
}

// vars gives the values to the engine, in the types that the checker was told.
func (m *Manifest) vars(v values) map[string]any {
	out := map[string]any{
		"args":      m.types.toCEL(nonNil(v.args), m.varTypes["args"]),
		"agent":     map[string]any{"id": v.agent.ID, "name": v.agent.Name, "owner": v.agent.Owner, "tenant": v.agent.Tenant},
		"effects":   m.effectValues(v.effects),
		"effect_id": v.effectID,
	}
	if v.reads != nil {
		out["reads"] = m.types.toCEL(v.reads, m.varTypes["reads"])
	}
	if v.key != nil {
		out["key"] = map[string]any{"value": v.key.Value, "generation": int64(v.key.Generation), "upstream": v.key.Upstream}
	}
	if v.reply != nil {
		headers := make(map[string]any, len(v.reply.Headers))
		for name, h := range v.reply.Headers {
			headers[name] = h
		}
		out["status"], out["headers"] = int64(v.reply.Status), headers
		out["body"] = m.types.toCEL(v.reply.Body, v.body)
	}
	out["result"] = m.types.toCEL(nonNil(v.result), m.varTypes["result"])
	return out
}

func nonNil(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// effectValues are effects as expressions see them. What an effect does not have
// is absent, so that has(…) tells.
func (m *Manifest) effectValues(effects []Effect) []any {
	out := make([]any, len(effects))
	for i, e := range effects {
		v := map[string]any{
			"verb": e.Verb, "target": e.Target, "summary": e.Summary,
			"count": int64(e.Count), "outside": int64(e.Outside),
		}
		if e.Before != nil {
			v["before"] = m.types.toCEL(e.Before, nil)
		}
		if e.After != nil {
			v["after"] = m.types.toCEL(e.After, nil)
		}
		if e.Money != nil {
			v["money"] = map[string]any{"amount": e.Money.Amount, "currency": e.Money.Currency}
		}
		out[i] = v
	}
	return out
}

// unexpected turns the failure of an expression into what a caller may see.
func unexpected(err error) error {
	if err == nil {
		return nil
	}
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	var eval *evalError
	if errors.As(err, &eval) {
		return fault.Wrap(err, fault.UpstreamUnexpected,
			"The outside system's answer is not what the tool expects (at %s of its manifest).", eval.where)
	}
	return fault.Wrap(err, fault.UpstreamUnexpected, "The outside system's answer is not what the tool expects.")
}
