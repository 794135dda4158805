package strictjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/strictjson"
)

func parse(t require.TestingT, text string) any {
	v, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
	require.NoError(t, err)
	return v
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"null", ` null `, `null`},
		{"empty", `[ { } , [ ] , "" ]`, `[{},[],""]`},
		{"RFC 8785 3.2.2", `{
			"numbers": [333333333.3333333, 4.50, 2e-3, 0.000000000000000000000000001],
			"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			"literals": [null, true, false]
		}`, `{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"RFC 8785 3.2.3", `{
			"\u20ac": "Euro Sign",
			"\r": "Carriage Return",
			"\ufb33": "Hebrew Letter Dalet With Dagesh",
			"1": "One",
			"\ud83d\ude00": "Emoji: Grinning Face",
			"\u0080": "Control",
			"\u00f6": "Latin Small Letter O With Diaeresis"
		}`, "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{"escapes", `"\u0001\b\t\n\u000b\f\r\u001f \u007f\u0080\u2028\u2029<>&/"`, "\"\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \x7f\u0080\u2028\u2029<>&/\""},
		{"prefix first", `{"ab":1,"a":2,"":3,"a\u0001":4}`, `{"":3,"a":2,"a\u0001":4,"ab":1}`},
		{"upper case first", `{"b":1,"B":2,"a":3,"A":4}`, `{"A":4,"B":2,"a":3,"b":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, string(strictjson.Canonical(parse(t, c.text))))
		})
	}
}

func TestCanonical_native(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{int(-1), "-1"},
		{int8(-128), "-128"},
		{int16(5), "5"},
		{int32(5), "5"},
		{int64(math.MinInt64), "-9223372036854775808"},
		{uint(1), "1"},
		{uint8(255), "255"},
		{uint16(5), "5"},
		{uint32(5), "5"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{float32(0.5), "0.5"},
		{1.0, "1"},
		{math.Copysign(0, -1), "0"},
		{1e20, "100000000000000000000"},
		{1e21, "1e+21"},
		{1.5e300, "1.5e+300"},
		{[]string{"b", "a"}, `["b","a"]`},
		{map[string]string{"b": "1", "a": "2"}, `{"a":"2","b":"1"}`},
		{[]map[string]any{{"b": 1, "a": nil}, nil}, `[{"a":null,"b":1},{}]`},
		{[]any(nil), "[]"},
		{map[string]any(nil), "{}"},
		// Not admitted by Parse, and still never rounded (trap 5).
		{json.Number("9007199254740993"), "9007199254740993"},
		{json.Number("1e400"), "1e+400"},
		{json.Number("-0.0"), "0"},
		{json.Number("0.1000000000000000055511151231257827021181583404541015625"), "0.1000000000000000055511151231257827021181583404541015625"},
		{int64(9007199254740993), "9007199254740993"},
		// Bytes that are no text, and that no text looks like.
		{"a\xff\xc0b", `"a\udcff\udcc0b"`},
		{map[string]any{"\x80": 1}, `{"\udc80":1}`},
		{"\ufffd", "\"\ufffd\""},
	} {
		require.Equal(t, c.want, string(strictjson.Canonical(c.value)), "%T %v", c.value, c.value)
	}
}

func TestCanonical_panics_on_what_is_not_JSON(t *testing.T) {
	for _, v := range []any{
		math.NaN(), math.Inf(1), math.Inf(-1), float32(math.Inf(1)), json.Number(""), json.Number("abc"), json.Number("01"),
		json.Number("1 "), json.Number("NaN"), json.Number("1e99999999999"),
		struct{}{},
		func() {}, new(int),
		[]int{1},
		map[int]any{},
		[]byte("x"),
	} {
		require.Panics(t, func() { strictjson.Canonical([]any{v}) }, "%T %v", v, v)
	}
}

func TestDigest(t *testing.T) {
	require.Equal(t, "countersign-json-1", strictjson.CanonicalVersion)
	// printf 'countersign-json-1\n{"a":1,"b":[]}' | sha256sum
	require.Equal(t, "sha256:4f6b130fedd82bf5bf464d563aec975af9f37bed6c00580610e662a99079eab1",
		strictjson.Digest(parse(t, `{"b":[],"a":1}`)))

	same := []string{`{"amount":1,"to":"a"}`, `{"to":"a","amount":1.0}`, `{ "\u0074o" : "\u0061", "amount" : 1e0 }`, `{"amount":10e-1,"to":"a"}`}
	for _, text := range same {
		require.Equal(t, strictjson.Digest(parse(t, same[0])), strictjson.Digest(parse(t, text)))
		require.True(t, strictjson.Equal(parse(t, same[0]), parse(t, text)))
	}
	// One change each: nothing else has the digest of the first.
	seen := map[string]string{}
	for _, text := range []string{
		same[0], `{"amount":2,"to":"a"}`, `{"amount":-1,"to":"a"}`, `{"amount":"1","to":"a"}`, `{"amount":[1],"to":"a"}`, `{"amount":1}`,
		`{"amount":1,"to":"а"}`, `{"amount":1,"to":"a "}`, `{"amount":1,"To":"a"}`, `{"amount":1,"to":"a","x":null}`,
		`{"amount":1,"to":null}`, `{"amount":true,"to":"a"}`, `{"amount":1.0000000000000002,"to":"a"}`, `{"amount":1,"to":"a\u200b"}`,
		`{"amount":9007199254740991,"to":"a"}`, `{"amount":9007199254740990,"to":"a"}`,
		`{"amount":1,"to":"é"}`, `{"amount":1,"to":"e\u0301"}`,
	} {
		d := strictjson.Digest(parse(t, text))
		require.NotContains(t, seen, d, "%s and %s", text, seen[d])
		seen[d] = text
	}
}

// name draws names and strings that sort differently by bytes and by UTF-16.
func textOf(alphabet string) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.OneOf(
		rapid.RuneFrom([]rune(alphabet)),
		rapid.Rune(),
	), 0, 6, -1).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
}

// value draws a value of the model, at most depth levels deep.
func value(depth int) *rapid.Generator[any] {
	text := textOf("ab\"\\/\b\f\n\r\t\x01\x7f\u0080é€\ud7ff\ue000\ufb33\uffff\U00010000😀\U0010ffff")
	number := rapid.OneOf(
		rapid.Map(rapid.Int64Range(-strictjson.MaxInteger, strictjson.MaxInteger), func(i int64) any { return i }),
		rapid.Map(rapid.Float64Range(-1<<53+1, 1<<53-1), func(f float64) any { return f }),
		rapid.Map(rapid.Float64Range(-1e-3, 1e-3), func(f float64) any { return f }),
	)
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any](false),
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(number, func(v any) any { return json.Number(strictjson.Canonical(v)) }),
	)
	if depth == 0 {
		return scalar
	}
	return rapid.OneOf(
		scalar,
		rapid.Map(rapid.SliceOfN(value(depth-1), 0, 5), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(text, value(depth-1), 0, 5), func(m map[string]any) any { return m }),
	)
}

// The canonical form is the one of two other implementations of RFC 8785, from
// whatever text they are given (S63), and reads back as the same value.
func TestCanonical_agrees_with_others(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		canonical := strictjson.Canonical(v)

		plain, err := json.Marshal(v)
		require.NoError(t, err)
		indented, err := json.MarshalIndent(v, " ", "\t")
		require.NoError(t, err)
		for _, text := range [][]byte{plain, indented, canonical} {
			byJCS, err := jcs.Transform(text)
			require.NoError(t, err)
			require.Equal(t, string(byJCS), string(canonical))

			byText := jsontext.Value(bytes.Clone(text))
			require.NoError(t, byText.Canonicalize())
			require.Equal(t, string(byText), string(canonical))

			back, err := strictjson.Parse(text, strictjson.DefaultLimits)
			require.NoError(t, err)
			require.Equal(t, string(canonical), string(strictjson.Canonical(back)))
		}
		var std any
		decoder := json.NewDecoder(bytes.NewReader(canonical))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&std))
		require.Equal(t, v, std)
	})
}

// Names are sorted by UTF-16 code units, whatever Go strings sort by.
func TestCanonical_sorts_names_by_UTF16(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := textOf("a\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		if a == b {
			t.Skip("one name")
		}
		first, second := a, b
		if less(utf16.Encode([]rune(b)), utf16.Encode([]rune(a))) {
			first, second = b, a
		}
		got := string(strictjson.Canonical(map[string]any{a: nil, b: nil}))
		require.Equal(t, "{"+string(strictjson.Canonical(first))+":null,"+string(strictjson.Canonical(second))+":null}", got)
	})
}

func less(a, b []uint16) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return len(a) < len(b)
}

// Objects with more members than fit the small buffer.
func TestCanonical_wide_object(t *testing.T) {
	wide := map[string]any{}
	for c := 'a'; c <= 'z'; c++ {
		wide[string(c)] = nil
	}
	require.Equal(t, `{"a":null,"b":null,"c":null,`, string(strictjson.Canonical(wide))[:28])
	byJCS, err := jcs.Transform(strictjson.Canonical(wide))
	require.NoError(t, err)
	require.Equal(t, string(byJCS), string(strictjson.Canonical(wide)))
}

func TestEqual(t *testing.T) {
	require.True(t, strictjson.Equal(parse(t, `[1,{"a":2,"b":null}]`), []any{1.0, map[string]any{"b": nil, "a": int64(2)}}))
	require.False(t, strictjson.Equal(parse(t, `[1,2]`), parse(t, `[2,1]`)))
	require.False(t, strictjson.Equal(nil, parse(t, `[]`)))
	require.False(t, strictjson.Equal(parse(t, `{"a":null}`), parse(t, `{}`)))
}
