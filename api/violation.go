package api

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign/fault"
	"countersign/strictjson"
)

// check holds a parsed body to its schema. Members that the contract does not
// know come first: they make the request unreadable, not its content wrong.
func (b *bodySchema) check(body map[string]any) error {
	if at, name, ok := unknown(b.schema, body, ""); ok {
		return fault.New(fault.UnknownMember, "The member %s is not known here.", strictjson.Echo(name)).At(at, "is not known")
	}
	err := b.schema.Validate(body)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	found := b.violations(invalid, body)
	slices.SortFunc(found, func(x, y violation) int { return strings.Compare(x.pointer, y.pointer) })
	e := fault.New(found[0].code, "The value at %s %s.", place(found[0].pointer), found[0].text)
	for _, v := range found {
		if v.code == e.Code {
			e = e.At(v.pointer, v.text)
		}
	}
	return e
}

func place(pointer string) string {
	if pointer == "" {
		return "the top"
	}
	return pointer
}

// unknown finds a member that a closed object does not have, in the order of
// names.
func unknown(schema *jsonschema.Schema, v any, at string) (pointer, name string, found bool) {
	schema = resolve(schema)
	object, ok := v.(map[string]any)
	if !ok || schema.AdditionalProperties != false {
		return "", "", false
	}
	names := make([]string, 0, len(object))
	for n := range object {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		member, known := schema.Properties[n]
		if !known {
			return strictjson.Join(at, n), n, true
		}
		if pointer, name, found = unknown(member, object[n], strictjson.Join(at, n)); found {
			return pointer, name, true
		}
	}
	return "", "", false
}

// resolve follows references to the schema that says something.
func resolve(s *jsonschema.Schema) *jsonschema.Schema {
	for s.Ref != nil {
		s = s.Ref
	}
	return s
}

// violation is one place that does not fit.
type violation struct {
	pointer, text string
	code          fault.Code
}

// violations lists the leaves of a validation error in plain words.
func (b *bodySchema) violations(e *jsonschema.ValidationError, body any) []violation {
	var found []violation
	for _, cause := range e.Causes {
		found = append(found, b.violations(cause, body)...)
	}
	if len(e.Causes) > 0 {
		return found
	}
	at := e.InstanceLocation
	schema := b.at(at)
	if strings.HasSuffix(e.KeywordLocation, "/required") {
		object, _ := strictjson.Get(body, at)
		members, _ := object.(map[string]any)
		for _, name := range schema.Required {
			if _, ok := members[name]; !ok {
				pointer := strictjson.Join(at, name)
				found = append(found, violation{pointer, "is missing", b.code(pointer)})
			}
		}
		return found
	}
	return []violation{{at, demand(schema), b.code(at)}}
}

// at gives the schema of a place in the body.
func (b *bodySchema) at(pointer string) *jsonschema.Schema {
	schema := resolve(b.schema)
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if member, ok := schema.Properties[token]; ok {
			schema = resolve(member)
		}
	}
	return schema
}

// code gives the code of a violation at a place, by the member of the body that
// it is in.
func (b *bodySchema) code(pointer string) fault.Code {
	name, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if code, ok := b.codes[name]; ok {
		return code
	}
	return b.codes[""]
}

// demand says in words what a schema of the contract asks for.
func demand(schema *jsonschema.Schema) string {
	schema = resolve(schema)
	var words []string
	switch {
	case len(schema.Enum) > 0:
		names := make([]string, len(schema.Enum))
		for i, v := range schema.Enum {
			names[i] = fmt.Sprint(v)
		}
		return "must be one of " + strings.Join(names, ", ")
	case slices.Contains(schema.Types, "integer"):
		words = append(words, "must be a whole number")
		if schema.Minimum != nil && schema.Maximum != nil {
			words = append(words, "from "+schema.Minimum.RatString()+" to "+schema.Maximum.RatString())
		}
	case slices.Contains(schema.Types, "string"):
		words = append(words, "must be a string")
		switch {
		case schema.Pattern != nil:
			words = append(words, "of the form "+schema.Pattern.String())
		case schema.MinLength >= 0 && schema.MaxLength >= 0:
			words = append(words, "of "+strconv.Itoa(schema.MinLength)+" to "+strconv.Itoa(schema.MaxLength)+" characters")
		}
	case slices.Contains(schema.Types, "object"):
		words = append(words, "must be an object")
	case slices.Contains(schema.Types, "array"):
		words = append(words, "must be a list")
	}
	return strings.Join(words, " ")
}
