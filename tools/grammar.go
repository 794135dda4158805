package tools

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign/strictjson"
)

// ManifestSchema is the published JSON Schema of manifests: editors complete and
// check with it, and ParseManifest begins with it.
//
//go:embed manifest.schema.json
var ManifestSchema []byte

// grammar is ManifestSchema, compiled once.
var grammar = sync.OnceValue(func() *Schema {
	v, err := strictjson.Parse(ManifestSchema, strictjson.ReplyLimits)
	if err != nil {
		panic(err)
	}
	s := &Schema{Text: ManifestSchema, doc: v}
	c := newCompiler()
	if err := c.AddResource("urn:countersign:manifest", bytes.NewReader(ManifestSchema)); err != nil {
		panic(err)
	}
	s.root = c.MustCompile("urn:countersign:manifest")
	s.shape = newShapes(s.doc).at("")
	return s
})

// checkGrammar compares the document with the published schema. What the schema
// says with oneOf, if and not is said in better words by the code that compiles
// the part in question.
func checkGrammar(doc *document, ps *problems) {
	g := grammar()
	var invalid *jsonschema.ValidationError
	if err := g.root.Validate(doc.root.generic()); !errors.As(err, &invalid) {
		return
	}
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		keyword := lastToken(e.AbsoluteKeywordLocation)
		if keyword == "oneOf" || strings.Contains(e.KeywordLocation, "/allOf/") {
			return
		}
		for _, c := range e.Causes {
			collect(c)
		}
		if len(e.Causes) == 0 {
			g.grammarProblem(doc, e, keyword, ps)
		}
	}
	collect(invalid)
}

// grammarProblem words one failure at its place.
func (s *Schema) grammarProblem(doc *document, e *jsonschema.ValidationError, keyword string, ps *problems) {
	pointer := plainPointer(e.InstanceLocation)
	n := doc.root.find(pointer)
	name := memberName(pointer)
	_, fragment, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	place := plainPointer(fragment)
	want, _ := strictjson.Get(s.doc, place)
	owner, _ := strictjson.Get(s.doc, strings.TrimSuffix(place, "/"+keyword))
	schema, _ := owner.(map[string]any)
	switch keyword {
	case "required":
		for _, missing := range want.([]any) {
			if missing := missing.(string); !n.has(missing) && !misspelt(n, schema, missing) {
				ps.at(n.pos, s.exampleOf(schema, missing), "`%s` is missing%s.", missing, inside(name))
			}
		}
	case "additionalProperties":
		s.unknownKeys(n, schema, ps)
	case "type":
		ps.at(n.pos, exampleLine(name, schema), "%s must be %s, not %s.", title(name), typeWords(want), nodeWords(n))
	case "enum":
		ps.at(n.pos, "Write "+valueList(want)+".", "%s", guess(fmt.Sprintf("%s can't be %s", title(name), strictjson.Echo(n.text())), n.text(), texts(want)))
	case "const":
		ps.at(n.pos, fmt.Sprintf("Write `%s: %v`, or leave it out.", name, want), "%s can only be %v.", title(name), want)
	case "pattern":
		instead := exampleLine(name, schema)
		if strings.Contains(e.KeywordLocation, "/propertyNames/") {
			ps.at(n.keyPos(name), "Use lower case letters, digits and _.", "`%s` can't be a name here.", name)
			return
		}
		ps.at(n.pos, instead, "%s can't be %s.", title(name), strictjson.Echo(n.text()))
	case "uniqueItems":
		ps.at(n.pos, "Keep one of the two.", "%s holds the same value twice.", title(name))
	default:
		if words, ok := limitWords[keyword]; ok {
			if n.kind == mapNode {
				words = strings.ReplaceAll(words, "%v members", "%v entry")
			}
			ps.at(n.pos, exampleLine(name, schema), "%s "+strings.TrimSuffix(words, ".")+".", title(name), want)
			return
		}
		ps.at(n.pos, exampleLine(name, schema), "%s is not allowed here.", title(name))
	}
}

// misspelt says whether a member is probably there under a wrong name, which is
// reported as such.
func misspelt(n *node, schema map[string]any, name string) bool {
	properties, _ := schema["properties"].(map[string]any)
	known := sortedNames(properties)
	return slices.ContainsFunc(n.members, func(m member) bool {
		return !slices.Contains(known, m.name) && closest(m.name, known) == name
	})
}

// unknownKeys reports each member that the grammar does not know.
func (s *Schema) unknownKeys(n *node, schema map[string]any, ps *problems) {
	properties, _ := schema["properties"].(map[string]any)
	known := sortedNames(properties)
	for _, m := range n.members {
		if !slices.Contains(known, m.name) {
			ps.at(m.keyPos, "Here there is "+oneOf(known)+".", "%s", guess("The key `"+m.name+"` is not known here", m.name, known))
		}
	}
}

// memberName is the last name of a pointer, list indexes left out.
func memberName(pointer string) string {
	parts := strings.Split(pointer, "/")
	for i := len(parts) - 1; i > 0; i-- {
		if !isIndex.MatchString(parts[i]) {
			return strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
		}
	}
	return ""
}

var isIndex = regexp.MustCompile(`^[0-9]+$`)

func title(name string) string {
	if name == "" {
		return "The manifest"
	}
	return "`" + name + "`"
}

func inside(name string) string {
	if name == "" {
		return ""
	}
	return " in `" + name + "`"
}

func nodeWords(n *node) string {
	switch {
	case n.kind == listNode:
		return "a list"
	case n.kind == mapNode:
		return "a mapping"
	}
	switch n.value.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	}
	return "empty"
}

// exampleOf is the example line of a member of a schema, through its $ref.
func (s *Schema) exampleOf(schema map[string]any, name string) string {
	properties, _ := schema["properties"].(map[string]any)
	member, _ := properties[name].(map[string]any)
	if ref, ok := member["$ref"].(string); ok {
		target, _ := strictjson.Get(s.doc, strings.TrimPrefix(ref, "#"))
		member, _ = target.(map[string]any)
	}
	return exampleLine(name, member)
}

// exampleLine is what to write, from the schema's own examples and description.
func exampleLine(name string, schema map[string]any) string {
	text := ""
	if examples, ok := schema["examples"].([]any); ok && len(examples) > 0 {
		line := flowYAML(examples[0], true)
		if name != "" {
			line = name + ": " + line
		}
		text = "For example `" + line + "`. "
	}
	description, _ := schema["description"].(string)
	return strings.TrimSpace(text + description)
}

// flowYAML writes a value on one line as a person would.
func flowYAML(v any, top bool) string {
	switch v := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range sortedNames(v) {
			parts = append(parts, name+": "+flowYAML(v[name], false))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, 0, len(v))
		for _, item := range v {
			parts = append(parts, flowYAML(item, false))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if plainText.MatchString(v) || top && !strings.ContainsAny(v, "{}[]\"'#&*!|>%@`:,") {
			return v
		}
		if strings.Contains(v, `"`) {
			return "'" + strings.ReplaceAll(v, "'", "''") + "'"
		}
		return `"` + v + `"`
	}
	return fmt.Sprint(v)
}

var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./ -]*$`)

func texts(want any) []string {
	var out []string
	if list, ok := want.([]any); ok {
		for _, v := range list {
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}

func valueList(want any) string { return oneOf(texts(want)) }
