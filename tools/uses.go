package tools

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// usage is what an expression reads.
type usage struct {
	vars []string // variables, such as args
	args []argUse
	// reads are the names of reads; allReads when it uses `reads` as a whole.
	reads    []string
	allReads bool
	// methods are the functions that it calls.
	methods []string
	// keyUpstream is set when it uses key.upstream (or key as a whole).
	keyUpstream bool
}

// argUse is one way into the arguments: args.address.?city has two steps.
type argUse struct {
	steps        []argStep
	test         bool // has(…)
	line, column int
}

type argStep struct {
	name     string
	optional bool
}

// tested says whether the expression asks has(…) for exactly this way.
func (u usage) tested(steps []argStep) bool {
	return slices.ContainsFunc(u.args, func(a argUse) bool {
		return a.test && slices.EqualFunc(a.steps, steps, func(x, y argStep) bool { return x.name == y.name })
	})
}

// add joins what several expressions read.
func (u usage) add(other usage) usage {
	u.vars = append(slices.Clone(u.vars), other.vars...)
	u.args = append(slices.Clone(u.args), other.args...)
	u.reads = append(slices.Clone(u.reads), other.reads...)
	u.allReads = u.allReads || other.allReads
	u.methods = append(slices.Clone(u.methods), other.methods...)
	u.keyUpstream = u.keyUpstream || other.keyUpstream
	return u
}

// argNames are the arguments that are read, by their first name and sorted.
func (u usage) argNames() []string {
	var names []string
	for _, a := range u.args {
		if len(a.steps) > 0 {
			names = append(names, a.steps[0].name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findUses reads off the checked tree which variables an expression uses, and
// how far into them it goes.
func findUses(checked *cel.Ast) usage {
	var u usage
	native := checked.NativeRep()
	root := ast.NavigateAST(native)
	for _, call := range ast.MatchDescendants(root, ast.KindMatcher(ast.CallKind)) {
		u.methods = append(u.methods, call.AsCall().FunctionName())
	}
	for _, ident := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		name := ident.AsIdent()
		u.vars = append(u.vars, name)
		use := climb(ident)
		loc := native.SourceInfo().GetStartLocation(ident.ID())
		use.line, use.column = loc.Line(), loc.Column()
		switch {
		case name == "args":
			u.args = append(u.args, use)
		case name == "reads" && len(use.steps) == 0:
			u.allReads = true
		case name == "reads":
			u.reads = append(u.reads, use.steps[0].name)
		case name == "key" && (len(use.steps) == 0 || use.steps[0].name == "upstream"):
			u.keyUpstream = true
		}
	}
	return u
}

// climb follows field selections upwards from a variable.
func climb(from ast.NavigableExpr) argUse {
	var use argUse
	for node := from; ; {
		parent, ok := node.Parent()
		if !ok {
			return use
		}
		switch {
		case parent.Kind() == ast.SelectKind && parent.AsSelect().Operand().ID() == node.ID():
			sel := parent.AsSelect()
			use.steps = append(use.steps, argStep{name: sel.FieldName()})
			if sel.IsTestOnly() {
				use.test = true
				return use
			}
		case parent.Kind() == ast.CallKind && parent.AsCall().FunctionName() == operators.OptSelect &&
			parent.AsCall().Args()[0].ID() == node.ID():
			field, ok := parent.AsCall().Args()[1].AsLiteral().(types.String)
			if !ok {
				return use
			}
			use.steps = append(use.steps, argStep{name: string(field), optional: true})
		default:
			return use
		}
		node = parent
	}
}
