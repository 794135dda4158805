package simstore

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// What goes in and what comes out is copied, so that nobody changes what is
// stored by changing what they hold.

func cloneEach[T any](list []T, clone func(T) T) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(list))
	for i, v := range list {
		out[i] = clone(v)
	}
	return out
}

func cloneRef[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func cloneOperation(op ledger.Operation) ledger.Operation {
	op.Run, op.Reason, op.Goal, op.AskedBy = cloneRef(op.Run), cloneRef(op.Reason), cloneRef(op.Goal), cloneRef(op.AskedBy)
	op.Attempts = slices.Clone(op.Attempts)
	op.Result = cloneMap(op.Result)
	op.Requirement = cloneRequirement(op.Requirement)
	return op
}

func cloneRequirement(r ledger.Requirement) ledger.Requirement {
	r.Groups = maps.Clone(r.Groups)
	return r
}

func cloneDecision(d ledger.Decision) ledger.Decision {
	d.Groups = slices.Clone(d.Groups)
	return d
}

func cloneEvidence(e ledger.Evidence) ledger.Evidence {
	e.Result = cloneMap(e.Result)
	e.Seen.Headers = maps.Clone(e.Seen.Headers)
	return e
}

func cloneEvent(e ledger.Event) ledger.Event {
	e.Reason = cloneRef(e.Reason)
	return e
}

func cloneGuard(g ledger.Guard) ledger.Guard {
	g.Freezes, g.Revoked, g.Tools = slices.Clone(g.Freezes), slices.Clone(g.Revoked), maps.Clone(g.Tools)
	return g
}

func clonePreview(p ledger.Preview) ledger.Preview {
	p.Plan = clonePlan(p.Plan)
	p.Requirement = cloneRequirement(p.Requirement)
	p.Run = cloneRef(p.Run)
	p.Undoes = slices.Clone(p.Undoes)
	return p
}

func cloneCheckpoint(c ledger.Checkpoint) ledger.Checkpoint {
	c.Guards = maps.Clone(c.Guards)
	return c
}

func clonePlan(p tools.Plan) tools.Plan {
	p.Args, p.Reads = cloneMap(p.Args), cloneMap(p.Reads)
	p.Effects = cloneEach(p.Effects, func(e tools.Effect) tools.Effect {
		e.Before, e.After, e.Money = cloneMap(e.Before), cloneMap(e.After), cloneRef(e.Money)
		return e
	})
	p.Basis = cloneEach(p.Basis, func(b tools.BasisField) tools.BasisField {
		b.Value = cloneValue(b.Value)
		return b
	})
	p.Wire = slices.Clone(p.Wire)
	p.Goal = cloneRef(p.Goal)
	p.Warnings = slices.Clone(p.Warnings)
	return p
}

func cloneMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = cloneValue(v)
	}
	return out
}

// cloneValue copies a free value. Whole numbers come back as json.Number, as they
// do from a store that keeps text.
func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneMap(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cloneValue(v[i])
		}
		return out
	case int:
		return json.Number(strconv.Itoa(v))
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	}
	return v
}

// frame joins texts so that no two lists give the same.
func frame(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

// nanos is a time as the columns of due work hold it; the zero time is before
// every other.
func nanos(t time.Time) int64 {
	switch y := t.Year(); {
	case y < 1678:
		return -1 << 63
	case y > 2261:
		return 1<<63 - 1
	}
	return t.UnixNano()
}
