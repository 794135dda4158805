package tools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The keywords of draft 2020-12, by what stands under them.
var (
	schemaMaps    = []string{"properties", "patternProperties", "$defs", "dependentSchemas"}
	schemaLists   = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaSingles = []string{
		"items", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
		"not", "if", "then", "else", "propertyNames",
	}
	schemaPlain = []string{
		"type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
		"maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
		"maxProperties", "minProperties", "required", "dependentRequired", "format",
		"title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples",
		"$schema", "$ref", "$anchor", "$comment",
	}
	// ownKeywords are the annotations that this package reads.
	ownKeywords = []string{"x-sensitive", "x-nfc", "x-allow-private"}
)

// knownFormats are the formats that are asserted. Any other is refused: a
// format that nobody checks promises what is not kept.
var knownFormats = []string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer",
	"regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid",
}

// walkSchema visits every schema object under n, n first.
func walkSchema(n *node, visit func(*node)) {
	if n == nil || n.kind != mapNode {
		return
	}
	visit(n)
	for _, m := range n.members {
		switch {
		case slices.Contains(schemaMaps, m.name):
			for _, p := range m.node.members {
				walkSchema(p.node, visit)
			}
		case slices.Contains(schemaLists, m.name):
			for _, item := range m.node.items {
				walkSchema(item, visit)
			}
		case slices.Contains(schemaSingles, m.name):
			walkSchema(m.node, visit)
		}
	}
}

// lintSchema finds what the compiler would accept or report without a place:
// misspelt keywords, references that leave the document, patterns that are not
// RE2, unknown formats.
func lintSchema(n *node, ps *problems) {
	if n.kind != mapNode {
		ps.at(n.pos, "Write `properties:` with one entry for each argument.", "A JSON Schema is a mapping.")
		return
	}
	known := slices.Concat(schemaMaps, schemaLists, schemaSingles, schemaPlain, ownKeywords)
	walkSchema(n, func(s *node) {
		for _, m := range s.members {
			lintKeyword(n, m, known, ps)
		}
		if properties := s.get("properties"); properties != nil {
			lintRequired(s, properties, ps)
		}
	})
}

func lintKeyword(root *node, m member, known []string, ps *problems) {
	value := m.node.text()
	switch m.name {
	case "$ref":
		if !strings.HasPrefix(value, "#") {
			ps.at(m.node.pos, "Put the schema under `$defs` here and write `$ref: \"#/$defs/name\"`.", "A $ref can't leave the document.")
		} else if (value == "#" || strings.HasPrefix(value, "#/")) && localRef(root, value) == nil {
			ps.at(m.node.pos, "Put the schema there, under `$defs`.", "There is nothing at %s.", value)
		}
	case "$schema":
		if strings.TrimSuffix(value, "#") != "https://json-schema.org/draft/2020-12/schema" {
			ps.at(m.node.pos, "Leave `$schema` out.", "Schemas are draft 2020-12 here.")
		}
	case "pattern":
		lintPattern(m.node.pos, value, ps)
	case "patternProperties":
		for _, p := range m.node.members {
			lintPattern(p.keyPos, p.name, ps)
		}
	case "format":
		if !slices.Contains(knownFormats, value) {
			ps.at(m.node.pos, "Use "+oneOf(knownFormats)+", or a `pattern`.", "%s", guess(fmt.Sprintf("The format %q is not known", value), value, knownFormats))
		}
	case "x-sensitive", "x-nfc", "x-allow-private":
		if _, ok := m.node.value.(bool); !ok {
			ps.at(m.node.pos, "Write `"+m.name+": true`.", "`%s` is true or false.", m.name)
		}
	default:
		if !slices.Contains(known, m.name) && !strings.HasPrefix(m.name, "x-") {
			ps.at(m.keyPos, "Use a keyword of JSON Schema draft 2020-12, or a name that begins with `x-`.",
				"%s", guess("`"+m.name+"` is not a keyword of JSON Schema", m.name, known))
		}
	}
}

// lintRequired finds names in `required` that no property declares.
func lintRequired(s, properties *node, ps *problems) {
	required := s.get("required")
	if required == nil || required.kind != listNode {
		return
	}
	var names []string
	for _, p := range properties.members {
		names = append(names, p.name)
	}
	for _, item := range required.items {
		if name, ok := item.asText(); ok && !slices.Contains(names, name) {
			ps.at(item.pos, "Declare it under `properties`, or take it out of `required`.",
				"%s", guess("`"+name+"` is required but not declared", name, names))
		}
	}
}

func lintPattern(at position, pattern string, ps *problems) {
	if _, err := regexp.Compile(pattern); err != nil {
		text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		ps.at(at, "Write it in RE2 syntax: no look-around, no back-references.", "This pattern does not compile: %s.", text)
	}
}

// guess ends a sentence, and adds what the writer probably meant.
func guess(sentence, word string, candidates []string) string {
	if c := closest(word, candidates); c != "" {
		return sentence + ". Did you mean `" + c + "`?"
	}
	return sentence + "."
}

// typeObjects adds `type: object` where properties are declared without a type:
// expressions take such a value for an object, so nothing else may pass.
func typeObjects(n *node) {
	walkSchema(n, func(s *node) {
		if s.has("properties") && !s.has("type") && !strings.Contains(strings.TrimPrefix(s.pointer, n.pointer)+"/", "/not/") {
			s.members = append(s.members, member{"type", s.pos, &node{pos: s.pos, value: "object", pointer: s.pointer + "/type", doc: s.doc}})
		}
	})
}

// closeObjects adds `additionalProperties: false` to every object schema that
// declares properties and says nothing about others. Where an object is also
// described by alternatives or references, `unevaluatedProperties: false` is
// what has that meaning. The alternatives and definitions themselves are left
// open: whoever refers to them closes them.
func closeObjects(n *node) { closeObject(n, n, false) }

func closeObject(n, root *node, inPlace bool) {
	if n == nil || n.kind != mapNode {
		return
	}
	open := !n.has("additionalProperties") && !n.has("unevaluatedProperties") && !n.has("patternProperties")
	if open && !inPlace && declaresProperties(n, root, map[*node]bool{}) {
		name := "additionalProperties"
		for _, composing := range []string{"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"} {
			if n.has(composing) {
				name = "unevaluatedProperties"
			}
		}
		n.members = append(n.members, member{name, n.pos, &node{pos: n.pos, value: false, pointer: n.pointer + "/" + name, doc: n.doc}})
	}
	for _, m := range n.members {
		switch m.name {
		case "properties", "patternProperties":
			for _, p := range m.node.members {
				closeObject(p.node, root, false)
			}
		case "$defs", "dependentSchemas":
			for _, p := range m.node.members {
				closeObject(p.node, root, true)
			}
		case "allOf", "anyOf", "oneOf":
			for _, item := range m.node.items {
				closeObject(item, root, true)
			}
		case "if", "then", "else", "not":
			closeObject(m.node, root, true)
		case "prefixItems":
			for _, item := range m.node.items {
				closeObject(item, root, false)
			}
		case "items", "contains", "additionalProperties":
			closeObject(m.node, root, false)
		}
	}
}

// declaresProperties says whether a schema, or one that it is made of, names
// the members of an object.
func declaresProperties(n, root *node, seen map[*node]bool) bool {
	if n == nil || n.kind != mapNode || seen[n] {
		return false
	}
	seen[n] = true
	if n.has("properties") {
		return true
	}
	if ref, ok := n.get("$ref").asText(); ok && declaresProperties(localRef(root, ref), root, seen) {
		return true
	}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if list := n.get(name); list != nil {
			for _, item := range list.items {
				if declaresProperties(item, root, seen) {
					return true
				}
			}
		}
	}
	return declaresProperties(n.get("then"), root, seen) || declaresProperties(n.get("else"), root, seen)
}

// localRef gives the schema that a "#/…" reference names, or nil.
func localRef(root *node, ref string) *node {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	target := root.find(pointer)
	if strings.TrimPrefix(target.pointer, root.pointer) != pointer {
		return nil
	}
	return target
}

// appendJSON writes the node as JSON in the order of the text.
func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case listNode:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	case mapNode:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONText(dst, m.name), ':')
			dst = m.node.appendJSON(dst)
		}
		return append(dst, '}')
	}
	switch v := n.value.(type) {
	case string:
		return appendJSONText(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case json.Number:
		return append(dst, v...)
	}
	return append(dst, "null"...)
}

func appendJSONText(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(dst, text...)
}
