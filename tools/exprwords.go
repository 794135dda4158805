package tools

import (
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// typeWant is what the place of an expression needs.
type typeWant struct {
	words, instead string
	kinds          []types.Kind // empty: anything
}

// The wants of a manifest's places. dyn is accepted everywhere: then the value
// itself is checked when it is there.
var (
	wantAny  = typeWant{}
	wantBool = typeWant{"a condition", "Write a comparison, such as reads.order.body.status == \"open\".", []types.Kind{types.BoolKind}}
	wantInt  = typeWant{"a whole number", "Convert it with int(…), or use a field of type integer.", []types.Kind{types.IntKind, types.UintKind}}
	wantList = typeWant{"a list", "Write a list, such as reads.order.body.items.", []types.Kind{types.ListKind}}
	wantMap  = typeWant{"an object", "Write an expression that gives an object.", []types.Kind{types.MapKind, types.StructKind}}
	// wantInside is a value inside a text: an optional would leave a hole there.
	wantInside = typeWant{
		"text, a number or true/false", "Choose one field of it, or give it a value with .orValue(…).",
		[]types.Kind{types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind},
	}
	// wantPairs is a value of a query or form: null and absent leave the pair out,
	// a list repeats it.
	wantPairs = typeWant{
		"text, a number, true/false or a list of them", "Choose one field of it, or build the text in the expression.",
		[]types.Kind{
			types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind,
			types.OpaqueKind, types.ListKind, types.NullTypeKind,
		},
	}
	wantID = typeWant{
		"text or a whole number", "Choose the field that holds the outside system's own id, such as body.id.",
		[]types.Kind{types.StringKind, types.IntKind, types.UintKind},
	}
)

func (w typeWant) accepts(t *types.Type) bool {
	if len(w.kinds) == 0 || t.Kind() == types.DynKind || t.Kind() == types.AnyKind {
		return true
	}
	return slices.Contains(w.kinds, t.Kind())
}

// celTypeWords names a type for people.
func celTypeWords(t *types.Type) string {
	switch t.Kind() {
	case types.StringKind:
		return "text"
	case types.IntKind, types.UintKind:
		return "a whole number"
	case types.DoubleKind:
		return "a number"
	case types.BoolKind:
		return "true or false"
	case types.ListKind:
		return "a list"
	case types.MapKind, types.StructKind:
		return "an object"
	case types.NullTypeKind:
		return "null"
	}
	return "of type " + cel.FormatCELType(t)
}

var (
	undefinedField = regexp.MustCompile(`^undefined field '([^']*)'`)
	undeclared     = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	noOverload     = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
)

// celProblem says in plain words what the type checker found, at its place.
func (c *exprCompiler) celProblem(n *node, offset int, text string, sc scope, e *cel.Error) {
	start := byteOffset(text, e.Location.Line(), e.Location.Column())
	message := e.Message
	switch {
	case undefinedField.MatchString(message):
		field := undefinedField.FindStringSubmatch(message)[1]
		if i := strings.Index(text[start:], field); i >= 0 && i <= 3 {
			start += i
		}
		path := leftOf(text[:start])
		fields := c.fieldsOf(path)
		instead := "Declare it in the schema, or use a field that is there."
		if path == "reads" {
			instead = "Add it under `reads` of the preview."
		}
		if len(fields) > 0 {
			instead = "Here there is " + oneOf(fields) + "."
		}
		c.ps.at(n.at(offset+start), instead, "%s", guess("There is no `"+field+"` in `"+path+"`", field, fields))
	case undeclared.MatchString(message):
		name := undeclared.FindStringSubmatch(message)[1]
		instead := "In " + sc.where + " there is " + oneOf(sc.vars) + "."
		if slices.Contains(allVars, name) {
			c.ps.at(n.at(offset+start), instead, "`%s` can't be used in %s.", name, sc.where)
			return
		}
		if strings.HasPrefix(text[start:], "(") {
			start -= len(name)
			c.ps.at(n.at(offset+start), "Use a standard function of CEL, its string functions, or money(minor, currency).", "There is no function `%s`.", name)
			return
		}
		c.ps.at(n.at(offset+start), instead+" Text stands in quotes.", "%s", guess("There is no variable `"+name+"`", name, sc.vars))
	case noOverload.MatchString(message):
		m := noOverload.FindStringSubmatch(message)
		c.ps.at(n.at(offset+start), "Make both sides the same type, for example with int(…), double(…) or string(…).",
			"%s does not go with %s.", operatorWords(m[1]), operandWords(m[2]))
	case strings.HasPrefix(message, "Syntax error"):
		c.ps.at(n.at(offset+start), "Check brackets, quotes and operators; the language is CEL.", "The expression can't be read: %s.", syntaxWords(message))
	default:
		c.ps.at(n.at(offset+start), "See the CEL language definition.", "The expression is wrong: %s.", message)
	}
}

// fieldsOf lists what stands under a path such as args.address.
func (c *exprCompiler) fieldsOf(path string) []string {
	parts := strings.Split(strings.ReplaceAll(path, "?", ""), ".")
	t, ok := c.vars[parts[0]]
	if !ok {
		return nil
	}
	for _, p := range parts[1:] {
		fields := c.types.objects[t.TypeName()]
		if t, ok = fields[p]; !ok {
			return nil
		}
	}
	names, _ := c.types.FindStructFieldNames(t.TypeName())
	return names
}

// leftOf is the path that ends before a field: "args.address" of "x + args.address.".
func leftOf(text string) string {
	text = strings.TrimRight(text, ".?`")
	i := strings.LastIndexFunc(text, func(r rune) bool {
		return !(r == '.' || r == '?' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
	return text[i+1:]
}

func operatorWords(name string) string {
	if name == "_?_:_" {
		return "`? :`"
	}
	if name == "_[_]" {
		return "`[ ]`"
	}
	return "`" + strings.Trim(name, "_@") + "`"
}

// operandWords names the types of "(string, list(int))", or of a method's
// "string.(int)".
func operandWords(list string) string {
	var words []string
	if on, with, method := strings.Cut(list, ".("); method {
		words = append(words, typeWord(on))
		list = "(" + with
	}
	depth, from := 0, 1
	for i, r := range list {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if r == ',' && depth == 1 || i == len(list)-1 {
			words = append(words, typeWord(strings.TrimSpace(list[from:i])))
			from = i + 1
		}
	}
	return strings.Join(words, " and ")
}

// typeWord names one type as the engine writes it.
func typeWord(name string) string {
	switch {
	case strings.HasPrefix(name, "wrapper("):
		return typeWord(strings.TrimSuffix(strings.TrimPrefix(name, "wrapper("), ")")) + " or null"
	case strings.HasPrefix(name, "optional_type("):
		return "an optional value"
	case strings.HasPrefix(name, "list("):
		return "a list"
	case strings.HasPrefix(name, "map("), strings.HasSuffix(name, " object"), strings.Contains(name, " object "):
		return "an object"
	}
	if words, ok := map[string]string{
		"string": "text", "int": "a whole number", "uint": "a whole number", "double": "a number", "bool": "true or false",
	}[name]; ok {
		return words
	}
	return name
}

func syntaxWords(message string) string {
	message = strings.TrimPrefix(message, "Syntax error: ")
	if i := strings.Index(message, " expecting "); i >= 0 {
		message = message[:i]
	}
	return strings.NewReplacer("'<EOF>'", "end", "<EOF>", "end", "mismatched input", "unexpected", "extraneous input", "unexpected",
		"no viable alternative at input", "unexpected").Replace(message)
}
