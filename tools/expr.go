package tools

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"countersign/strictjson"
)

// Limits of one expression: its text, and what one evaluation may cost in the
// engine's own units (about one for each step).
const (
	maxExprChars = 4096
	exprCost     = 500_000
	maxRegexSize = 1_000
)

// scope says where an expression stands and which variables it may use.
type scope struct {
	// where completes the sentence "`x` can't be used in …".
	where string
	vars  []string
	// public texts are shown, stored or sent in places where a sensitive
	// argument must not appear.
	public bool
}

// The scopes of a manifest. After a reply the commit's scope is wider by the
// reply itself.
var (
	scopeReads    = scope{"a read", []string{"args", "agent"}, false}
	scopeKey      = scope{"a key", []string{"args", "agent"}, true}
	scopePreview  = scope{"a preview", []string{"args", "agent", "reads"}, true}
	scopeApproval = scope{"an approval rule", []string{"args", "agent", "effects"}, false}
	scopeCommit   = scope{"a request", []string{"args", "agent", "reads", "key"}, false}
	scopeReply    = scope{"an answer", []string{"args", "agent", "reads", "key", "status", "headers", "body"}, true}
	scopeUndo     = scope{"undo", []string{"args", "effects", "result", "effect_id"}, false}
	scopeResult   = scope{"a result", []string{"args", "agent", "status", "headers", "body"}, false}
)

// allVars are the names that mean something in some scope.
var allVars = []string{"args", "agent", "reads", "key", "effects", "status", "headers", "body", "result", "effect_id"}

func (s scope) in(where string) scope { s.where = where; return s }

func (s scope) secret() scope { s.public = false; return s }

func (s scope) shown() scope { s.public = true; return s }

// with adds a variable, such as the element of `each`.
func (s scope) with(name string) scope {
	s.vars = append(slices.Clone(s.vars), name)
	return s
}

// expr is one compiled expression.
type expr struct {
	text string
	// where is the JSON Pointer of the manifest member that it stands in.
	where   string
	program cel.Program
	out     *types.Type
	uses    usage
}

// eval gives the value as JSON, absent{} for an empty optional.
func (e *expr) eval(vars map[string]any) (any, error) {
	out, _, err := e.program.Eval(vars)
	if err != nil {
		return nil, &evalError{e.where, e.text, err}
	}
	v, err := fromCEL(out)
	if err != nil {
		return nil, &evalError{e.where, e.text, err}
	}
	return v, nil
}

// truth gives a boolean and takes nothing else for one.
func (e *expr) truth(vars map[string]any) (bool, error) {
	v, err := e.eval(vars)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, &evalError{e.where, e.text, errors.New("the value is neither true nor false")}
	}
	return b, nil
}

// evalError is an expression that has no value now: the outside system's answer
// is not what the manifest expects.
type evalError struct {
	where, text string
	cause       error
}

func (e *evalError) Error() string {
	return fmt.Sprintf("%s: `%s`: %v", e.where, e.text, e.cause)
}

func (e *evalError) Unwrap() error { return e.cause }

// exprCompiler type-checks the expressions of one manifest.
type exprCompiler struct {
	ps        *problems
	env       *cel.Env
	types     *typeProvider
	input     *Schema
	readNames []string
	vars      map[string]*types.Type
	envs      map[string]*cel.Env
}

// newExprCompiler builds the environment: args and read bodies are typed from
// their schemas, other bodies are dyn.
func newExprCompiler(ps *problems) (*exprCompiler, error) {
	base, err := cel.NewEnv(
		ext.Strings(ext.StringsVersion(4)),
		cel.OptionalTypes(),
		cel.EnableIdentifierEscapeSyntax(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExprChars),
		cel.RegexProgramSizeLimit(maxRegexSize),
	)
	if err != nil {
		return nil, err
	}
	c := &exprCompiler{ps: ps, vars: map[string]*types.Type{}, envs: map[string]*cel.Env{}}
	c.types = &typeProvider{Provider: base.CELTypeProvider(), objects: map[string]map[string]*types.Type{}}
	c.types.fixedTypes()
	c.vars["args"] = types.DynType
	c.vars["agent"] = types.NewObjectType(agentType)
	c.vars["key"] = types.NewObjectType(keyType)
	c.vars["reads"] = types.DynType
	c.vars["effects"] = types.NewListType(types.NewObjectType(effectType))
	c.vars["status"] = types.IntType
	c.vars["headers"] = types.NewMapType(types.StringType, types.StringType)
	c.vars["body"] = types.DynType
	c.vars["result"] = types.DynType
	c.vars["effect_id"] = types.StringType
	c.env, err = base.Extend(append(ownFunctions(), cel.CustomTypeProvider(c.types))...)
	return c, err
}

// bind sets the type of a variable for what is compiled from now on.
func (c *exprCompiler) bind(name string, t *types.Type) (restore func()) {
	before, had := c.vars[name]
	c.vars[name] = t
	return func() {
		if had {
			c.vars[name] = before
		} else {
			delete(c.vars, name)
		}
	}
}

// compile checks one expression that begins at offset of n's text. It gives nil
// after it reported a problem.
func (c *exprCompiler) compile(n *node, offset int, text string, sc scope, want typeWant) *expr {
	if strings.TrimSpace(text) == "" {
		c.ps.at(n.at(offset), "Write an expression, such as args.amount.", "The expression is empty.")
		return nil
	}
	env, err := c.scoped(sc)
	if err != nil {
		c.ps.at(n.pos, "", "The expression could not be prepared: %v.", err)
		return nil
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		for _, e := range issues.Errors() {
			c.celProblem(n, offset, text, sc, e)
		}
		return nil
	}
	e := &expr{text: text, where: n.pointer, out: ast.OutputType()}
	e.uses = findUses(ast)
	if !c.checkUses(n, offset, text, sc, e) {
		return nil
	}
	if !want.accepts(e.out) {
		c.ps.at(n.at(offset), want.instead, "`%s` is %s, but %s is needed here.", shortText(text), celTypeWords(e.out), want.words)
		return nil
	}
	e.program, err = env.Program(ast, cel.CostLimit(exprCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		c.ps.at(n.at(offset), "Check the constants in the expression.", "The expression can't be run: %v.", err)
		return nil
	}
	return e
}

// scoped is the environment with exactly the variables of a scope, made once for
// each set of variables and types.
func (c *exprCompiler) scoped(sc scope) (*cel.Env, error) {
	opts := make([]cel.EnvOption, 0, len(sc.vars))
	key := ""
	for _, name := range sc.vars {
		opts = append(opts, cel.Variable(name, c.vars[name]))
		key += fmt.Sprintf("%s %p;", name, c.vars[name])
	}
	if env, ok := c.envs[key]; ok {
		return env, nil
	}
	env, err := c.env.Extend(opts...)
	if err == nil {
		c.envs[key] = env
	}
	return env, err
}

// checkUses refuses arguments that may be absent and, in public places,
// sensitive ones.
func (c *exprCompiler) checkUses(n *node, offset int, text string, sc scope, e *expr) bool {
	if c.input == nil {
		return true
	}
	for _, u := range e.uses.args {
		at := n.at(offset + byteOffset(text, u.line, u.column))
		if name, guard := c.mayBeAbsent(u, e.uses); name != "" {
			c.ps.at(at, "Write "+guard+" to leave it out when it is absent, or "+guard+".orValue(…); or give it a `default`, or list it in `required`.",
				"`%s` may be absent.", name)
			return false
		}
		if pointer := c.sensitiveUse(u); sc.public && pointer != "" {
			c.ps.at(at, "Use an argument that is not marked x-sensitive.", "The sensitive argument %s can't be used in %s: it would be shown or stored.", pointer, sc.where)
			return false
		}
	}
	return true
}

// mayBeAbsent names the first argument on the way that need not be there.
func (c *exprCompiler) mayBeAbsent(u argUse, all usage) (name, guard string) {
	list, path := []*shape{c.input.shape}, "args"
	for i, step := range u.steps {
		list = inPlace(list, false)
		if step.optional {
			return "", ""
		}
		declared, required := false, false
		for _, s := range list {
			if _, ok := s.properties[step.name]; ok {
				declared = true
			}
			required = required || s.required[step.name]
		}
		last := i == len(u.steps)-1
		if declared && !required && !(last && u.test) && !all.tested(u.steps[:i+1]) {
			return path + "." + step.name, path + ".?" + step.name
		}
		list = memberShapes(list, step.name)
		path += "." + step.name
	}
	return "", ""
}

// sensitiveUse gives the pointer of a sensitive argument that the use reads: the
// argument itself, something in it, or something around it.
func (c *exprCompiler) sensitiveUse(u argUse) string {
	if u.test {
		return ""
	}
	pointer := ""
	for _, step := range u.steps {
		pointer = strictjson.Join(pointer, step.name)
	}
	for _, s := range c.input.sensitive {
		if pointer == s || strings.HasPrefix(pointer, s+"/") || strings.HasPrefix(s, pointer+"/") {
			return s
		}
	}
	return ""
}

// byteOffset turns the engine's line (from 1) and column (from 0, in characters)
// into an offset in the text.
func byteOffset(text string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(text[offset:], '\n')
		if i < 0 {
			break
		}
		offset += i + 1
	}
	for ; column > 0 && offset < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	return offset
}

// shortText is an expression as a message repeats it.
func shortText(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > 60 {
		return string([]rune(text)[:57]) + "…"
	}
	return text
}
