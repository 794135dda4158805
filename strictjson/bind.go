package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"countersign/fault"
)

// Bind fills the Go value behind the pointer dst from a value of the model. It
// is for small documents of a fixed shape, such as a request's envelope.
//
// Members match fields by the exact name in the json tag, or the field's own
// name where there is none; embedded structs without a tag lend their fields.
// An absent member leaves its field as it is, so dst may come with defaults.
// null is accepted only by pointers and by fields of type any: elsewhere it
// would quietly become empty. Fields may be strings, bools, integers, floats,
// json.Number, any (it takes the value itself, uncopied), structs, pointers,
// slices, maps with string keys, and what reads itself from a string by
// encoding.TextUnmarshaler. Other fields are an error that is no *fault.Error.
//
// A member that no field matches is unknown_member, and a value of the wrong
// type, or an integer that does not fit, is schema_violation, both with a JSON
// Pointer. After an error dst is unchanged.
func Bind(v, dst any) error {
	to := reflect.ValueOf(dst)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("strictjson: Bind needs a pointer, not %T", dst)
	}
	filled := reflect.New(to.Type().Elem()).Elem()
	filled.Set(to.Elem())
	if err := bind(v, filled, ""); err != nil {
		return err
	}
	to.Elem().Set(filled)
	return nil
}

var (
	numberType      = reflect.TypeFor[json.Number]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func bind(v any, dst reflect.Value, at string) error {
	t := dst.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		if v == nil {
			dst.SetZero()
			return nil
		}
		target := reflect.New(t.Elem())
		if err := bind(v, target.Elem(), at); err != nil {
			return err
		}
		dst.Set(target)
		return nil
	case t.Kind() == reflect.Interface && t.NumMethod() == 0:
		dst.SetZero()
		if v != nil {
			dst.Set(reflect.ValueOf(v))
		}
		return nil
	case t == numberType:
		n, ok := v.(json.Number)
		if !ok {
			return wrongType(v, "a number", at)
		}
		dst.SetString(string(n))
		return nil
	case reflect.PointerTo(t).Implements(unmarshalerType):
		s, ok := v.(string)
		if !ok {
			return wrongType(v, "a string", at)
		}
		if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			return fault.Wrap(err, fault.SchemaViolation, "The string at %s is not well formed.", place(at)).At(at, "is not well formed")
		}
		return nil
	}

	switch t.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return wrongType(v, "a string", at)
		}
		dst.SetString(s)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return wrongType(v, "a boolean", at)
		}
		dst.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := v.(json.Number)
		if !ok {
			return wrongType(v, "an integer", at)
		}
		i, ok := nativeOf(n).(int64)
		if !ok || dst.OverflowInt(i) {
			return notInteger(n, at)
		}
		dst.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, ok := v.(json.Number)
		if !ok {
			return wrongType(v, "an integer", at)
		}
		i, ok := nativeOf(n).(int64)
		if !ok || i < 0 || dst.OverflowUint(uint64(i)) {
			return notInteger(n, at)
		}
		dst.SetUint(uint64(i))
	case reflect.Float64:
		n, ok := v.(json.Number)
		if !ok {
			return wrongType(v, "a number", at)
		}
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil {
			return fault.Wrap(err, fault.SchemaViolation, "The number at %s does not fit.", place(at)).At(at, "does not fit")
		}
		dst.SetFloat(f)
	case reflect.Slice:
		return bindSlice(v, dst, at)
	case reflect.Map:
		return bindMap(v, dst, at)
	case reflect.Struct:
		return bindStruct(v, dst, at)
	default:
		return fmt.Errorf("strictjson: Bind can't fill a %s", t)
	}
	return nil
}

func bindSlice(v any, dst reflect.Value, at string) error {
	list, ok := v.([]any)
	if !ok {
		return wrongType(v, "an array", at)
	}
	filled := reflect.MakeSlice(dst.Type(), len(list), len(list))
	for i, element := range list {
		if err := bind(element, filled.Index(i), Join(at, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	dst.Set(filled)
	return nil
}

func bindMap(v any, dst reflect.Value, at string) error {
	t := dst.Type()
	if t.Key().Kind() != reflect.String {
		return fmt.Errorf("strictjson: Bind can't fill a %s", t)
	}
	members, ok := v.(map[string]any)
	if !ok {
		return wrongType(v, "an object", at)
	}
	filled := reflect.MakeMapWithSize(t, len(members))
	for _, name := range sortedNames(members) {
		member := reflect.New(t.Elem()).Elem()
		if err := bind(members[name], member, Join(at, name)); err != nil {
			return err
		}
		filled.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), member)
	}
	dst.Set(filled)
	return nil
}

func bindStruct(v any, dst reflect.Value, at string) error {
	members, ok := v.(map[string]any)
	if !ok {
		return wrongType(v, "an object", at)
	}
	fields := map[string][]int{}
	collectFields(dst.Type(), nil, fields)
	for _, name := range sortedNames(members) {
		index, known := fields[name]
		if !known {
			return fault.New(fault.UnknownMember, "The member %s is not known here.", Echo(name)).At(Join(at, name), "is not known")
		}
		if err := bind(members[name], dst.FieldByIndex(index), Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// collectFields finds the fields of t by name. An outer field wins over one
// that an embedded struct lends.
func collectFields(t reflect.Type, path []int, fields map[string][]int) {
	var embedded []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			embedded = append(embedded, f)
		case !f.IsExported():
		default:
			if name == "" {
				name = f.Name
			}
			if _, taken := fields[name]; !taken {
				fields[name] = append(slices.Clone(path), f.Index...)
			}
		}
	}
	for _, f := range embedded {
		collectFields(f.Type, append(slices.Clone(path), f.Index...), fields)
	}
}

// sortedNames makes the first refusal the same every time.
func sortedNames(members map[string]any) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func wrongType(v any, want, at string) error {
	return fault.New(fault.SchemaViolation, "The value at %s is %s. It must be %s.", place(at), kindOf(v), want).At(at, "must be "+want)
}

func notInteger(n json.Number, at string) error {
	return fault.New(fault.SchemaViolation, "The number %s at %s is not an integer that fits.", cut(string(n)), place(at)).At(at, "must be an integer that fits")
}

// place names a JSON Pointer in a detail.
func place(pointer string) string {
	if pointer == "" {
		return "the top"
	}
	return Echo(pointer)
}
