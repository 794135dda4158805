package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"countersign/fault"
)

// Native gives v to an expression engine: every json.Number becomes an int64
// when its value is integral, else a float64. Objects and arrays are copied. A
// number that neither type holds stays a json.Number; Parse admits none.
func Native(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, member := range v {
			c[name] = Native(member)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, element := range v {
			c[i] = Native(element)
		}
		return c
	case json.Number:
		return nativeOf(v)
	}
	return v
}

func nativeOf(n json.Number) any {
	var buf [64]byte
	d, ok := decompose(string(n), buf[:0])
	if !ok {
		return n
	}
	if i, ok := d.integer(); ok {
		return i
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return n
	}
	return f
}

// FromNative is the way back: it copies what an expression or code made into a
// value of the model and holds it to the rules of Parse on numbers and text.
// It takes bool, strings, json.Number, nil, every Go integer and float, slices
// and arrays, and maps whose keys are strings (also map[any]any), to the depth
// of DefaultLimits and with as many values as ReplyLimits allows. The limits on
// bytes do not apply. The error is always a *fault.Error with a JSON Pointer:
//
//	number_out_of_range  what Parse would refuse, a NaN, an infinity
//	invalid_text         a string that is not UTF-8
//	forbidden_text       a string with U+0000
//	unknown_member       a name with U+0000
//	too_deep             deeper than DefaultLimits.Depth, as a cycle is
//	too_long             too many values, as a small graph can unfold to
//	duplicate_key        one name twice, under two Go types
//	schema_violation     anything that JSON does not have
func FromNative(v any) (any, error) {
	var in importer
	return in.value(v, "", 0)
}

// importer counts the values of one FromNative.
type importer struct{ nodes int }

func (in *importer) value(v any, at string, depth int) (any, error) {
	in.nodes++
	if in.nodes > ReplyLimits.Nodes {
		return nil, fault.New(fault.TooLong, "The value holds more than %d values.", ReplyLimits.Nodes).At(at, "one value too many")
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case bool:
		return v, nil
	case string:
		return nativeText(v, at)
	case json.Number:
		if n, bad := scanNumber(string(v)); bad != "" || n != len(v) {
			return nil, fault.New(fault.SchemaViolation, "%s is not a JSON number.", Echo(string(v))).At(at, "is not a number")
		}
		return admitNative(string(v), at)
	case float32, float64:
		text, ok := nativeNumber(v)
		if !ok {
			return nil, fault.New(fault.NumberOutOfRange, "A number is %v. It must be finite.", v).At(at, "is not finite")
		}
		return admitNative(string(appendNumber(nil, text)), at)
	}
	if text, ok := nativeNumber(v); ok {
		return admitNative(text, at)
	}

	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.String:
		return nativeText(r.String(), at)
	case reflect.Map, reflect.Slice, reflect.Array:
	default:
		return nil, notJSON(v, at)
	}
	if depth == DefaultLimits.Depth {
		return nil, fault.New(fault.TooDeep, "The value is nested more than %d levels deep.", DefaultLimits.Depth).At(at, "one level too deep")
	}
	depth++
	if r.Kind() == reflect.Map {
		return in.object(r, at, depth)
	}
	if r.Type().Elem().Kind() == reflect.Uint8 {
		// Bytes have no one text; whoever has them chooses the encoding.
		return nil, notJSON(v, at)
	}
	list := make([]any, r.Len())
	for i := range list {
		element, err := in.value(r.Index(i).Interface(), Join(at, strconv.Itoa(i)), depth)
		if err != nil {
			return nil, err
		}
		list[i] = element
	}
	return list, nil
}

// object goes through the members in the order of their names, so that
// the same value always gets the same refusal.
func (in *importer) object(r reflect.Value, at string, depth int) (any, error) {
	members := make(map[string]any, r.Len())
	keys := make(map[string]reflect.Value, r.Len())
	names := make([]string, 0, r.Len())
	for _, key := range r.MapKeys() {
		name := key
		if name.Kind() == reflect.Interface {
			name = name.Elem()
		}
		if name.Kind() != reflect.String {
			return nil, fault.New(fault.SchemaViolation, "A map has the key %s. The names of members must be strings.", Echo(fmt.Sprint(key))).At(at, "has a name that is no string")
		}
		// Two types of string in one map[any]any can spell one name.
		if _, twice := keys[name.String()]; twice {
			return nil, fault.New(fault.DuplicateKey, "The member %s stands twice in one object.", Echo(name.String())).At(at, "has a duplicate member")
		}
		keys[name.String()] = key
		names = append(names, name.String())
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !utf8.ValidString(name):
			return nil, fault.New(fault.InvalidText, "A member name is not valid UTF-8.").At(at, "has a member whose name is not valid UTF-8")
		case strings.Contains(name, "\x00"):
			return nil, fault.New(fault.UnknownMember, "A member name holds the character U+0000. No member has such a name.").At(at, "has a member whose name holds U+0000")
		}
		member, err := in.value(r.MapIndex(keys[name]).Interface(), Join(at, name), depth)
		if err != nil {
			return nil, err
		}
		members[name] = member
	}
	return members, nil
}

func nativeText(s, at string) (any, error) {
	switch {
	case !utf8.ValidString(s):
		return nil, fault.New(fault.InvalidText, "A string is not valid UTF-8.").At(at, "is not valid UTF-8")
	case strings.Contains(s, "\x00"):
		return nil, fault.New(fault.ForbiddenText, "A string holds the character U+0000, which is not allowed.").At(at, "holds U+0000")
	}
	return s, nil
}

func admitNative(text, at string) (any, error) {
	n, reason := admit(text)
	if reason != "" {
		return nil, outOfRange(text, reason).At(at, reason)
	}
	return n, nil
}

func notJSON(v any, at string) error {
	return fault.New(fault.SchemaViolation, "A value of the Go type %T has no JSON form.", v).At(at, "has no JSON form")
}
