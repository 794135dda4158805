package history_test

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/anishathalye/porcupine"

	"countersign/fault"
)

// partition gives each key its calls. What freezes a tool is a call about each of
// its keys; that an outcome of the tool is not known can't be told from one key.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	type name struct {
		tool  string
		order int
	}
	by := map[name][]porcupine.Operation{}
	var names []name
	for _, op := range history {
		c := op.Input.(call)
		if n := (name{c.Tool, c.Order}); c.Order > 0 && by[n] == nil {
			names = append(names, n)
			by[n] = []porcupine.Operation{}
		}
	}
	for _, op := range history {
		c, a := op.Input.(call), op.Output.(answer)
		for _, n := range names {
			if c.Tool == n.tool && (c.Order == n.order || c.Order == 0 && a.Code != fault.UnknownsOpen) {
				by[n] = append(by[n], op)
			}
		}
	}
	var parts [][]porcupine.Operation
	for _, n := range names {
		parts = append(parts, by[n])
	}
	return parts
}

var seedOfHashes = maphash.MakeSeed()

// model is the key for the checker.
func model() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{key{}} },
		Step: func(state, input, output any) []any {
			var after []any
			for _, k := range step(state.(key), input.(call), output.(answer)) {
				after = append(after, k)
			}
			return after
		},
		Hash:              func(state any) uint64 { return maphash.Comparable(seedOfHashes, state.(key)) },
		DescribeOperation: func(input, output any) string { return describe(input.(call), output.(answer)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state.(key)) },
	}
	return nm.ToModel()
}

// describe tells a call and its answer in a line.
func describe(c call, a answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/o%d %s", c.Tool, c.Order, c.What)
	switch c.What {
	case "preview":
		fmt.Fprintf(&b, " %s args %d", c.Agent, c.Args)
	case "commit":
		fmt.Fprintf(&b, " %s args %d generation %d", c.Agent, c.Args, c.Generation)
	case "approve", "reject":
		fmt.Fprintf(&b, " %s person %d", c.Operation, c.Person)
	case "resolve":
		fmt.Fprintf(&b, " %s says %q", c.Operation, c.Said)
	default:
		fmt.Fprintf(&b, " %s", c.Operation)
	}
	switch {
	case a.Lost:
		b.WriteString(" -> ?")
	case a.Code != "":
		fmt.Fprintf(&b, " -> %s", a.Code)
	case a.Generation > 0:
		fmt.Fprintf(&b, " -> token for generation %d", a.Generation)
	case c.What == "outside":
		fmt.Fprintf(&b, " -> effects %q", a.Effects)
	case a.Op == (seen{}):
		b.WriteString(" -> done")
	default:
		fmt.Fprintf(&b, " -> %s generation %d %s %s", a.Op.ID, a.Op.Generation, a.Op.State, a.Op.Effect)
		if a.Fresh {
			b.WriteString(" (opened)")
		}
	}
	return b.String()
}
