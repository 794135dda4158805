package strictjson_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/fault"
	"countersign/strictjson"
)

func TestNative(t *testing.T) {
	v := parse(t, `{"i":[0,-0,1,1.0,1e3,-9007199254740991],"f":[0.5,1e-7,-2.25],"o":{"s":"1","b":true,"n":null}}`)
	require.Equal(t, map[string]any{
		"i": []any{int64(0), int64(0), int64(1), int64(1), int64(1000), int64(-9007199254740991)},
		"f": []any{0.5, 1e-7, -2.25},
		"o": map[string]any{"s": "1", "b": true, "n": nil},
	}, strictjson.Native(v))
	// Numbers that Parse would not have given.
	require.Equal(t, int64(math.MaxInt64), strictjson.Native(json.Number("9223372036854775807")))
	require.Equal(t, int64(math.MinInt64), strictjson.Native(json.Number("-9223372036854775808")))
	require.Equal(t, 9223372036854775808.0, strictjson.Native(json.Number("9223372036854775808")))
	require.Equal(t, 1e300, strictjson.Native(json.Number("1e300")))
	require.Equal(t, json.Number("1e400"), strictjson.Native(json.Number("1e400")))
	require.Equal(t, json.Number("x"), strictjson.Native(json.Number("x")))
}

func TestNative_copies(t *testing.T) {
	v := parse(t, `{"a":[{"b":1}]}`)
	spoil(strictjson.Native(v))
	require.Equal(t, `{"a":[{"b":1}]}`, string(strictjson.Canonical(v)))
}

func TestNative_and_back(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		back, err := strictjson.FromNative(strictjson.Native(v))
		require.NoError(t, err)
		require.Equal(t, v, back)
	})
}

type colour string

func TestFromNative(t *testing.T) {
	n := func(s string) json.Number { return json.Number(s) }
	for _, c := range []struct{ native, want any }{
		{nil, nil},
		{true, true},
		{"x", "x"},
		{colour("red"), "red"},
		{1, n("1")},
		{int8(1), n("1")},
		{int64(-strictjson.MaxInteger), n("-9007199254740991")},
		{uint64(strictjson.MaxInteger), n("9007199254740991")},
		{1.0, n("1")},
		{0.1, n("0.1")},
		{math.Copysign(0, -1), n("0")},
		{float32(0.5), n("0.5")},
		{1e-7, n("1e-7")},
		{n("1.50"), n("1.50")},
		{n("-0"), n("0")},
		{[]any{1, "a", nil}, []any{n("1"), "a", nil}},
		{[]int64{1, 2}, []any{n("1"), n("2")}},
		{[2]bool{true}, []any{true, false}},
		{[]any(nil), []any{}},
		{map[string]any(nil), map[string]any{}},
		{map[string]any{"a": []string{"x"}}, map[string]any{"a": []any{"x"}}},
		{map[any]any{"a": map[any]any{"b": uint64(1)}}, map[string]any{"a": map[string]any{"b": n("1")}}},
		{map[colour]int{"red": 1}, map[string]any{"red": n("1")}},
	} {
		got, err := strictjson.FromNative(c.native)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func TestFromNative_refuses(t *testing.T) {
	deep, wide := any(nil), any("x")
	for range 33 {
		deep = []any{deep}
	}
	for range 30 {
		wide = []any{wide, wide}
	}
	cycle := map[string]any{}
	cycle["again"] = cycle
	for name, c := range map[string]struct {
		native  any
		code    fault.Code
		pointer string
	}{
		"int-unsafe":        {map[string]any{"n": int64(strictjson.MaxInteger + 1)}, fault.NumberOutOfRange, "/n"},
		"int-unsafe/minus":  {[]any{1, int64(-strictjson.MaxInteger - 1)}, fault.NumberOutOfRange, "/1"},
		"int-unsafe/uint":   {uint64(math.MaxUint64), fault.NumberOutOfRange, ""},
		"int-unsafe/float":  {float64(1 << 53), fault.NumberOutOfRange, ""},
		"int-unsafe/number": {[]any{json.Number("9007199254740993")}, fault.NumberOutOfRange, "/0"},
		"float-huge":        {1e300, fault.NumberOutOfRange, ""},
		"digits":            {json.Number("0.12345678901234567890"), fault.NumberOutOfRange, ""},
		"nan":               {[]any{math.NaN()}, fault.NumberOutOfRange, "/0"},
		"infinity":          {math.Inf(-1), fault.NumberOutOfRange, ""},
		"number-text":       {json.Number("1x"), fault.SchemaViolation, ""},
		"number-empty":      {json.Number(""), fault.SchemaViolation, ""},
		"bad-utf8":          {map[string]any{"a/b": []any{"\xff"}}, fault.InvalidText, "/a~1b/0"},
		"bad-utf8-name":     {map[string]any{"a": map[string]any{"\xff": 1}}, fault.InvalidText, "/a"},
		"nul-in-string":     {[]any{"a\x00b"}, fault.ForbiddenText, "/0"},
		"nul-in-key":        {map[string]any{"a\x00": 1}, fault.UnknownMember, ""},
		"depth-33":          {deep, fault.TooDeep, strings.Repeat("/0", 32)},
		"cycle":             {cycle, fault.TooDeep, strings.Repeat("/again", 32)},
		"unfolding":         {wide, fault.TooLong, ""},
		"dup-key":           {map[any]any{"a": 1, colour("a"): 2}, fault.DuplicateKey, ""},
		"key-number":        {map[any]any{1: 1}, fault.SchemaViolation, ""},
		"key-int-map":       {map[int]any{1: 1}, fault.SchemaViolation, ""},
		"bytes":             {[]byte("x"), fault.SchemaViolation, ""},
		"time":              {map[string]any{"t": time.Unix(0, 0)}, fault.SchemaViolation, "/t"},
		"duration":          {time.Second, fault.SchemaViolation, ""},
		"pointer":           {new(int), fault.SchemaViolation, ""},
		"func":              {func() {}, fault.SchemaViolation, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.FromNative(c.native)
			require.Nil(t, got)
			require.Error(t, err)
			require.Equal(t, c.code, fault.Of(err).Code)
			if name != "unfolding" {
				require.Equal(t, []string{c.pointer}, []string{fault.Of(err).Pointers[0].Pointer})
			}
		})
	}
}

// The schema library reads the parsed value itself, numbers included (S63).
func TestParse_value_fits_the_schema_library(t *testing.T) {
	schema := jsonschema.MustCompileString("schema.json", `{"type":"object","additionalProperties":false,"required":["args"],
		"properties":{"args":{"type":"object","properties":{"amount":{"type":"integer","maximum":9007199254740991},"rate":{"type":"number","multipleOf":0.1},"note":{"type":"string"},"ids":{"type":"array","items":{"enum":[1,2]}}}}}}`)
	require.NoError(t, schema.Validate(parse(t, `{"args":{"amount":9007199254740991,"rate":0.3,"note":"x","ids":[1.0,2e0]}}`)))
	for name, text := range map[string]string{
		"number-as-string": `{"args":{"amount":"100"}}`,
		"wrong-type":       `{"args":"{}"}`,
		"null-required":    `{"args":null}`,
		"fraction":         `{"args":{"amount":1.5}}`,
		"kelvin-key":       `{"args":{},"arg\u017f":1}`,
	} {
		require.Error(t, schema.Validate(parse(t, text)), name)
	}
}
