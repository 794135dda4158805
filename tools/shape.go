package tools

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"countersign/strictjson"
)

// shape is a schema as a tree of what matters beyond validity: defaults, how
// text may look, and the types of expressions.
type shape struct {
	// types are the JSON types that the schema itself names.
	types      []string
	properties map[string]*shape
	// names are the properties in a stable order; required the ones that are
	// always there once defaults are applied.
	names       []string
	required    map[string]bool
	items       *shape
	prefix      []*shape
	additional  *shape
	byPattern   []*shape
	format      string
	constrained bool // has a format, pattern, enum or const
	nfc         bool
	private     bool // x-allow-private
	def         any
	hasDefault  bool
	composed    bool // described by more than its own keywords
	// sure are schemas that always apply at the same place ($ref, allOf);
	// maybe those that may (anyOf, oneOf, if, then, else).
	sure, maybe []*shape
	pointer     string
}

// shapes reads the shapes of one document once each, so that recursive schemas
// end.
type shapes struct {
	doc  any
	memo map[string]*shape
}

func newShapes(doc any) *shapes { return &shapes{doc: doc, memo: map[string]*shape{}} }

// at gives the shape of the schema at a JSON Pointer, or nil for true, false
// and whatever is not a schema.
func (ss *shapes) at(pointer string) *shape {
	if s, ok := ss.memo[pointer]; ok {
		return s
	}
	v, _ := strictjson.Get(ss.doc, pointer)
	doc, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	s := &shape{pointer: pointer}
	ss.memo[pointer] = s
	s.readPlain(doc)
	under := func(keyword string) string { return strictjson.Join(pointer, keyword) }
	if props, ok := doc["properties"].(map[string]any); ok {
		s.properties = map[string]*shape{}
		for name := range props {
			s.names = append(s.names, name)
			if p := ss.at(strictjson.Join(under("properties"), name)); p != nil {
				s.properties[name] = p
				if p.hasDefault {
					s.required[name] = true
				}
			} else {
				s.properties[name] = &shape{}
			}
		}
		slices.Sort(s.names)
	}
	if props, ok := doc["patternProperties"].(map[string]any); ok {
		for name := range props {
			s.byPattern = appendShape(s.byPattern, ss.at(strictjson.Join(under("patternProperties"), name)))
		}
	}
	s.items = ss.at(under("items"))
	s.additional = ss.at(under("additionalProperties"))
	s.prefix = ss.list(under("prefixItems"))
	s.sure = ss.list(under("allOf"))
	for _, keyword := range []string{"anyOf", "oneOf"} {
		s.maybe = append(s.maybe, ss.list(under(keyword))...)
	}
	for _, keyword := range []string{"if", "then", "else"} {
		s.maybe = appendShape(s.maybe, ss.at(under(keyword)))
	}
	if deps, ok := doc["dependentSchemas"].(map[string]any); ok {
		for name := range deps {
			s.maybe = appendShape(s.maybe, ss.at(strictjson.Join(under("dependentSchemas"), name)))
		}
	}
	if ref, ok := doc["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
		s.sure = appendShape(s.sure, ss.at(ref[1:]))
	}
	return s
}

func (s *shape) readPlain(doc map[string]any) {
	switch t := doc["type"].(type) {
	case string:
		s.types = []string{t}
	case []any:
		for _, name := range t {
			if name, ok := name.(string); ok {
				s.types = append(s.types, name)
			}
		}
	}
	s.required = map[string]bool{}
	if list, ok := doc["required"].([]any); ok {
		for _, name := range list {
			if name, ok := name.(string); ok {
				s.required[name] = true
			}
		}
	}
	for _, keyword := range []string{"format", "pattern", "enum", "const"} {
		if _, ok := doc[keyword]; ok {
			s.constrained = true
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "if", "not", "$ref"} {
		if _, ok := doc[keyword]; ok {
			s.composed = true
		}
	}
	s.format, _ = doc["format"].(string)
	s.nfc, _ = doc["x-nfc"].(bool)
	s.private, _ = doc["x-allow-private"].(bool)
	s.def, s.hasDefault = doc["default"]
	if len(s.types) == 0 {
		s.types = inferTypes(doc)
	}
}

// inferTypes reads the type off an enum or const where `type` is left out.
func inferTypes(doc map[string]any) []string {
	values, _ := doc["enum"].([]any)
	if c, ok := doc["const"]; ok {
		values = []any{c}
	}
	var types []string
	for _, v := range values {
		name := "null"
		switch v := v.(type) {
		case string:
			name = "string"
		case bool:
			name = "boolean"
		case json.Number:
			name = "number"
			if !strings.ContainsAny(string(v), ".eE") {
				name = "integer"
			}
		case []any, map[string]any:
			return nil
		}
		if !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return types
}

func appendShape(list []*shape, s *shape) []*shape {
	if s == nil {
		return list
	}
	return append(list, s)
}

func (ss *shapes) list(pointer string) []*shape {
	v, _ := strictjson.Get(ss.doc, pointer)
	items, _ := v.([]any)
	var out []*shape
	for i := range items {
		out = appendShape(out, ss.at(strictjson.Join(pointer, strconv.Itoa(i))))
	}
	return out
}

// inPlace adds to list every schema that describes the same place: those that
// always do and, when asked for, those that may.
func inPlace(list []*shape, alternatives bool) []*shape {
	var out []*shape
	var add func(*shape)
	add = func(s *shape) {
		if s == nil || slices.Contains(out, s) {
			return
		}
		out = append(out, s)
		for _, sub := range s.sure {
			add(sub)
		}
		if alternatives {
			for _, sub := range s.maybe {
				add(sub)
			}
		}
	}
	for _, s := range list {
		add(s)
	}
	return out
}

// member gives the shapes of a member of an object that list describes.
func memberShapes(list []*shape, name string) []*shape {
	var out []*shape
	for _, s := range list {
		if p, ok := s.properties[name]; ok {
			out = appendShape(out, p)
			continue
		}
		out = append(out, s.byPattern...)
		out = appendShape(out, s.additional)
	}
	return out
}

// itemShapes gives the shapes of the i-th element of a list that list describes.
func itemShapes(list []*shape, i int) []*shape {
	var out []*shape
	for _, s := range list {
		if i < len(s.prefix) {
			out = appendShape(out, s.prefix[i])
		} else {
			out = appendShape(out, s.items)
		}
	}
	return out
}

// withDefaults copies v and fills in the defaults of members that are absent.
// Defaults that stand only in an alternative are not applied: which of them
// holds is known only afterwards.
func withDefaults(v any, list []*shape) any {
	list = inPlace(list, false)
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, m := range v {
			out[name] = withDefaults(m, memberShapes(list, name))
		}
		for _, s := range list {
			for _, name := range s.names {
				p := s.properties[name]
				if _, there := out[name]; !there && p.hasDefault {
					out[name] = withDefaults(strictjson.Clone(p.def), []*shape{p})
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = withDefaults(item, itemShapes(list, i))
		}
		return out
	}
	return v
}
