package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign/fault"
	"countersign/strictjson"
)

// Schema is one compiled JSON Schema (draft 2020-12): of a tool's arguments, or
// of an upstream's body. It is immutable and safe for concurrent use.
type Schema struct {
	// Text is the schema as agents see it: in the manifest's order, closed.
	Text json.RawMessage
	doc  any
	root *jsonschema.Schema
	// shape is the same schema as a tree of what matters beyond validity.
	shape *shape
	// sensitive are the JSON Pointers of properties marked x-sensitive.
	sensitive []string
}

// schemaURL is the base of every schema of a manifest. It names no place:
// nothing is ever loaded.
const schemaURL = "urn:countersign:schema"

// noLoading refuses every document that the compiler asks for (S66): the
// library's own loader would open files.
func noLoading(s string) (io.ReadCloser, error) {
	return nil, fmt.Errorf("%s is outside the document", s)
}

// newCompiler is the only way in which this package compiles a schema.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = noLoading
	c.Formats = ownFormats
	return c
}

// compileSchema checks and compiles the schema at n. The result is nil when
// something is wrong with it, and then a problem says what. A closed schema
// refuses members that it does not declare (S66).
func compileSchema(n *node, closed bool, ps *problems) *Schema {
	before := len(ps.list)
	lintSchema(n, ps)
	if len(ps.list) > before {
		return nil
	}
	typeObjects(n)
	if closed {
		closeObjects(n)
	}
	s := &Schema{Text: n.appendJSON(nil), doc: n.generic()}
	c := newCompiler()
	if err := c.AddResource(schemaURL, bytes.NewReader(s.Text)); err != nil {
		ps.at(n.pos, "Write a JSON Schema, draft 2020-12.", "This is not a JSON Schema: %s.", err)
		return nil
	}
	root, err := c.Compile(schemaURL)
	if err != nil {
		schemaProblem(n, err, ps)
		return nil
	}
	s.root = root
	s.shape = newShapes(s.doc).at("")
	s.checkDefaults(n, c, ps)
	s.sensitive = findSensitive(n, "", true, ps)
	if len(ps.list) > before {
		return nil
	}
	return s
}

// schemaProblem turns what the compiler says into a problem at its place.
func schemaProblem(n *node, err error, ps *problems) {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		text := strings.TrimPrefix(err.Error(), "jsonschema "+schemaURL+" compilation failed: ")
		ps.at(n.pos, "Write a JSON Schema, draft 2020-12.", "This JSON Schema does not compile: %s.", strings.ReplaceAll(text, schemaURL, ""))
		return
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	at := n.find(invalid.InstanceLocation)
	ps.at(at.pos, "See the JSON Schema specification, draft 2020-12.", "This part of the JSON Schema is wrong: %s.", invalid.Message)
}

// checkDefaults makes sure that a default fits its own schema.
func (s *Schema) checkDefaults(n *node, c *jsonschema.Compiler, ps *problems) {
	walkSchema(n, func(sub *node) {
		def := sub.get("default")
		if def == nil {
			return
		}
		pointer := strings.TrimPrefix(sub.pointer, n.pointer)
		compiled, err := c.Compile(schemaURL + "#" + pointer)
		if err != nil {
			schemaProblem(n, err, ps)
			return
		}
		value := def.generic()
		if err := compiled.Validate(value); err != nil {
			ps.at(def.pos, "Change the default or the schema around it.", "The default does not fit its own schema: %s.", firstWords(s, err, value))
		}
	})
}

// findSensitive collects the pointers of properties marked x-sensitive. The mark
// must name one place: not one inside a list or an alternative.
func findSensitive(n *node, pointer string, fixed bool, ps *problems) []string {
	if n == nil || n.kind != mapNode {
		return nil
	}
	var found []string
	if mark := n.get("x-sensitive"); mark.truth() {
		if !fixed || pointer == "" {
			ps.at(n.keyPos("x-sensitive"), "Mark the whole argument that holds it, directly under `properties`.",
				"x-sensitive can't be used here: it must name exactly one place.")
		}
		return []string{pointer}
	}
	for _, m := range n.members {
		switch {
		case m.name == "properties" && m.node.kind == mapNode:
			for _, p := range m.node.members {
				found = append(found, findSensitive(p.node, strictjson.Join(pointer, p.name), fixed, ps)...)
			}
		case slices.Contains(schemaMaps, m.name):
			for _, p := range m.node.members {
				found = append(found, findSensitive(p.node, pointer, false, ps)...)
			}
		case slices.Contains(schemaLists, m.name):
			for _, item := range m.node.items {
				found = append(found, findSensitive(item, pointer, false, ps)...)
			}
		case slices.Contains(schemaSingles, m.name):
			found = append(found, findSensitive(m.node, pointer, false, ps)...)
		}
	}
	return found
}

// Validate checks a value and says in plain words, with a JSON Pointer each,
// what does not fit. The result is nil when everything fits.
func (s *Schema) Validate(v any) *fault.Error {
	err := s.root.Validate(v)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return fault.Wrap(err, fault.SchemaViolation, "The value could not be checked against the schema.")
	}
	e := fault.New(fault.SchemaViolation, "")
	e.Pointers = s.leaves(invalid, v)
	e.Detail = summary(e.Pointers)
	return e
}

// summary is one sentence over all pointers.
func summary(ps []fault.Pointer) string {
	if len(ps) == 0 {
		return "The arguments do not fit the tool's schema."
	}
	name := ps[0].Pointer
	if name == "" {
		name = "The whole"
	}
	text := fmt.Sprintf("The arguments do not fit the tool's schema: %s %s.", name, strings.TrimSuffix(ps[0].Detail, "."))
	if len(ps) > 1 {
		text += fmt.Sprintf(" And %d more.", len(ps)-1)
	}
	return text
}

// CheckArgs applies defaults and checks args. The result is a new object; args
// are not changed.
func (s *Schema) CheckArgs(args map[string]any) (map[string]any, []Warning, error) {
	if args == nil {
		args = map[string]any{}
	}
	out := withDefaults(args, []*shape{s.shape}).(map[string]any)
	// Text that can't be seen is named as such, not as a failed format.
	warnings, err := checkText(out, s.shape)
	if err != nil {
		return nil, nil, err
	}
	if err := s.Validate(out); err != nil {
		return nil, nil, err
	}
	return out, warnings, nil
}

// Redact replaces the values at the sensitive pointers by what digest says of
// them. args are not changed.
func (s *Schema) redact(args map[string]any, digest func(pointer string, v any) string) map[string]any {
	out := args
	for i, pointer := range s.sensitive {
		if _, ok := strictjson.Get(args, pointer); !ok {
			continue
		}
		if i == 0 || len(out) == 0 {
			out = maps.Clone(args)
		}
		out = replaceAt(out, strings.Split(pointer[1:], "/"), func(v any) any { return digest(pointer, v) }).(map[string]any)
	}
	return out
}

// replaceAt copies the objects on the way to a place and changes the value there.
func replaceAt(v any, path []string, change func(any) any) any {
	if len(path) == 0 {
		return change(v)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	if _, ok := object[name]; !ok {
		return v
	}
	c := maps.Clone(object)
	c[name] = replaceAt(c[name], path[1:], change)
	return c
}

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
