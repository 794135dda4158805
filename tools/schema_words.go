package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign/fault"
	"countersign/strictjson"
)

// leaves says for every single failure where it is and what would be right, in
// the order of the pointers. Values are never repeated: they may be secret.
func (s *Schema) leaves(invalid *jsonschema.ValidationError, v any) []fault.Pointer {
	var out []fault.Pointer
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		keyword := lastToken(e.AbsoluteKeywordLocation)
		if len(e.Causes) > 0 && keyword != "anyOf" && keyword != "oneOf" && keyword != "minContains" {
			for _, c := range e.Causes {
				collect(c)
			}
			return
		}
		out = append(out, s.leaf(e, keyword, v)...)
	}
	collect(invalid)
	// A member that some alternative declares is left over only because that
	// alternative failed; then its failure is the reason.
	if reasons := slices.DeleteFunc(slices.Clone(out), func(p fault.Pointer) bool { return p.Detail == leftOver }); len(reasons) > 0 {
		out = reasons
	}
	slices.SortFunc(out, func(a, b fault.Pointer) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Detail, b.Detail))
	})
	return slices.Compact(out)
}

// firstWords is the first failure as half a sentence, for problems of a
// manifest's own values.
func firstWords(s *Schema, err error, v any) string {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	if all := s.leaves(invalid, v); len(all) > 0 {
		return strings.TrimSpace(all[0].Pointer + " " + all[0].Detail)
	}
	return invalid.Message
}

func lastToken(location string) string { return location[strings.LastIndexByte(location, '/')+1:] }

// plainPointer undoes the percent-encoding that the library adds to pointers.
func plainPointer(p string) string {
	if plain, err := url.PathUnescape(p); err == nil {
		return plain
	}
	return p
}

// leaf words one failure; a failed `required` is one pointer for each name.
func (s *Schema) leaf(e *jsonschema.ValidationError, keyword string, v any) []fault.Pointer {
	at := plainPointer(e.InstanceLocation)
	_, fragment, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	place := plainPointer(fragment)
	want, _ := strictjson.Get(s.doc, place)
	instance, _ := strictjson.Get(v, at)
	one := func(format string, args ...any) []fault.Pointer {
		return []fault.Pointer{{Pointer: at, Detail: fmt.Sprintf(format, args...)}}
	}
	switch keyword {
	case "required":
		return missing(at, want, instance)
	case "additionalProperties":
		return s.extra(at, instance)
	case "unevaluatedProperties": // reported at the member itself
		i := strings.LastIndexByte(at, '/')
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(at[i+1:])
		if known, declared := s.membersAt(at[:i]); !declared(name) {
			return one("%s", unknownWords(name, known))
		}
		return one(leftOver)
	case "type":
		return one("must be %s", typeWords(want))
	case "enum":
		return one("must be one of %s", valueWords(want))
	case "const":
		return one("must be %s", valueWords([]any{want}))
	case "pattern":
		return one("must match the pattern %v", want)
	case "format":
		return one("must be %s", formatWords(fmt.Sprint(want)))
	case "anyOf", "oneOf":
		return one("fits none of the allowed forms, or more than one")
	case "not":
		return one("is not allowed to be this")
	case "uniqueItems":
		return one("must not hold the same value twice")
	case "minContains", "maxContains", "contains":
		return one("does not hold the elements that it must hold")
	}
	if words, ok := limitWords[keyword]; ok {
		if keyword == "minLength" && fmt.Sprint(want) == "1" {
			return one("must not be empty")
		}
		return one(words, want)
	}
	if _, rest, ok := strings.Cut(place, "/dependentRequired/"); ok {
		trigger, _, _ := strings.Cut(rest, "/")
		return []fault.Pointer{{Pointer: strictjson.Join(at, fmt.Sprint(want)), Detail: "is required when " + trigger + " is given"}}
	}
	return one("is not allowed here")
}

// missing is one pointer for each required name that is absent.
func missing(at string, want, instance any) []fault.Pointer {
	object, _ := instance.(map[string]any)
	names, _ := want.([]any)
	var out []fault.Pointer
	for _, name := range names {
		name, _ := name.(string)
		if _, there := object[name]; !there {
			out = append(out, fault.Pointer{Pointer: strictjson.Join(at, name), Detail: "is required"})
		}
	}
	return out
}

// limitWords are the keywords that compare with one number.
var limitWords = map[string]string{
	"minimum":          "must be at least %v",
	"maximum":          "must be at most %v",
	"exclusiveMinimum": "must be more than %v",
	"exclusiveMaximum": "must be less than %v",
	"multipleOf":       "must be a multiple of %v",
	"minLength":        "must have at least %v characters",
	"maxLength":        "must have at most %v characters",
	"minItems":         "must have at least %v elements",
	"maxItems":         "must have at most %v elements",
	"minProperties":    "must have at least %v members",
	"maxProperties":    "must have at most %v members",
}

// leftOver words a member that is declared somewhere, but not in a way that
// applies here.
const leftOver = "does not go together with the other members"

// extra words members that the schema does not know.
func (s *Schema) extra(at string, instance any) []fault.Pointer {
	known, declared := s.membersAt(at)
	object, _ := instance.(map[string]any)
	var out []fault.Pointer
	for name := range object {
		if !declared(name) {
			out = append(out, fault.Pointer{Pointer: strictjson.Join(at, name), Detail: unknownWords(name, known)})
		}
	}
	if out == nil {
		out = []fault.Pointer{{Pointer: at, Detail: leftOver}}
	}
	return out
}

// membersAt gives the names that an object at a place may have, and whether one
// is declared there in any way.
func (s *Schema) membersAt(at string) (known []string, declared func(name string) bool) {
	list := inPlace([]*shape{s.shape}, true)
	for _, token := range strings.Split(strings.TrimPrefix(at, "/"), "/") {
		if at == "" {
			break
		}
		next := memberShapes(list, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
		if len(next) == 0 {
			next = itemShapes(list, 0)
		}
		list = inPlace(next, true)
	}
	for _, sh := range list {
		known = append(known, sh.names...)
	}
	return known, func(name string) bool {
		return slices.Contains(known, name) || len(memberShapes(list, name)) > 0
	}
}

func unknownWords(name string, known []string) string {
	if c := closest(name, known); c != "" {
		return "is not known here (did you mean " + c + "?)"
	}
	return "is not known here"
}

var typeNames = map[string]string{
	"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
	"object": "an object", "array": "a list", "null": "null",
}

func typeWords(want any) string {
	switch want := want.(type) {
	case string:
		return typeNames[want]
	case []any:
		words := make([]string, 0, len(want))
		for _, t := range want {
			words = append(words, typeNames[fmt.Sprint(t)])
		}
		return strings.Join(words, " or ")
	}
	return "of another type"
}

// valueWords lists at most ten values of the schema's own text.
func valueWords(want any) string {
	list, _ := want.([]any)
	words := make([]string, 0, len(list))
	for i, v := range list {
		if i == 10 {
			words = append(words, "…")
			break
		}
		text, err := json.Marshal(v)
		if err != nil {
			continue
		}
		words = append(words, string(text))
	}
	return strings.Join(words, ", ")
}

func formatWords(format string) string {
	switch format {
	case "uri":
		return "an absolute http or https address without a user name"
	case "email":
		return "one mail address, such as name@example.org"
	case "hostname":
		return "a host name, such as www.example.org"
	case "date":
		return "a date, such as 2026-01-31"
	case "date-time":
		return "a date and time with zone, such as 2026-01-31T10:00:00Z"
	case "time":
		return "a time with zone, such as 10:00:00Z"
	case "uuid":
		return "a UUID"
	case "ipv4", "ipv6":
		return "an " + strings.Replace(format, "ip", "IP", 1) + " address"
	}
	return "of the format " + format
}
