package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/strictjson"
)

// refusal is a text that Parse must refuse, and how.
type refusal struct {
	name    string
	text    string
	code    fault.Code
	pointer string
	// says is a part of the detail.
	says string
	// malformed is the mark that makes too_long a 400.
	malformed bool
}

// refusals are named after the rows of the corpus of bad inputs; a row has
// several lines where its kind has several members.
func refusals() []refusal {
	return []refusal{
		{name: "empty-body", text: "", code: fault.MalformedJSON, says: "the text is empty"},
		{name: "empty-body/space", text: " \t\r\n", code: fault.MalformedJSON, says: "line 2, column 1: the text is empty"},
		{name: "not-json", text: "hello", code: fault.MalformedJSON, says: `line 1, column 1: found "h" where a value is expected`},
		{name: "not-json/html", text: "<html>", code: fault.MalformedJSON, says: `found "<"`},
		{name: "not-json/single-quotes", text: `{'a':1}`, code: fault.MalformedJSON, says: `column 2: found "'" where a member name in double quotes is expected`},
		{name: "not-json/bare-name", text: `{a:1}`, code: fault.MalformedJSON, says: "a member name in double quotes"},
		{name: "not-json/comment", text: "{\"a\":/* x */1}", code: fault.MalformedJSON, pointer: "/a", says: `found "/"`},
		{name: "not-json/literal-case", text: `{"a":True}`, code: fault.MalformedJSON, pointer: "/a", says: `found "T"`},
		{name: "not-json/literal-cut", text: `{"a":nul}`, code: fault.MalformedJSON, pointer: "/a", says: "line 1, column 6: expected null"},
		{name: "not-json/literal-long", text: `[nullx]`, code: fault.MalformedJSON, says: `found "x" where a comma or ]`},
		{name: "not-json/no-colon", text: `{"a" 1}`, code: fault.MalformedJSON, pointer: "/a", says: "a colon"},
		{name: "not-json/no-comma", text: "{\"a\":1\n  \"b\":2}", code: fault.MalformedJSON, says: "line 2, column 3: found \"\\\"\" where a comma or } is expected"},
		{name: "not-json/no-space-character", text: "\u00a0{}", code: fault.MalformedJSON, says: `found "\u00a0"`},
		{name: "not-json/stray-byte", text: "{\xff}", code: fault.MalformedJSON, says: `found "\xff"`},
		{name: "not-json/nul", text: "{}\x00", code: fault.MalformedJSON, says: "after the end"},
		{name: "not-json/nul-inside", text: "[1,\x00]", code: fault.MalformedJSON, pointer: "/1", says: `found "\x00"`},
		{name: "not-json/mismatch", text: `{"a":[1}`, code: fault.MalformedJSON, pointer: "/a", says: "a comma or ]"},
		{name: "cut/object", text: `{"a":1`, code: fault.MalformedJSON, says: "the text ends where a comma or } is expected"},
		{name: "cut/name", text: `{"a`, code: fault.MalformedJSON, says: "the text ends inside a string"},
		{name: "cut/escape", text: `["a\`, code: fault.MalformedJSON, pointer: "/0", says: "the text ends inside a string"},
		{name: "cut/after-escape", text: `["a\n`, code: fault.MalformedJSON, pointer: "/0", says: "the text ends inside a string"},
		{name: "cut/value", text: `{"a":`, code: fault.MalformedJSON, pointer: "/a", says: "the text ends where a value"},
		{name: "cut/array", text: `[`, code: fault.MalformedJSON, pointer: "/0", says: "the text ends where a value"},
		{name: "escape/unknown", text: `["\x41"]`, code: fault.MalformedJSON, pointer: "/0", says: "column 3: a backslash must be followed"},
		{name: "escape/hex", text: `["\u00g0"]`, code: fault.MalformedJSON, pointer: "/0", says: "four hexadecimal digits"},
		{name: "escape/hex-cut", text: `["\u00`, code: fault.MalformedJSON, pointer: "/0", says: "four hexadecimal digits"},
		{name: "control/newline", text: "[\"a\nb\"]", code: fault.MalformedJSON, pointer: "/0", says: "U+000A must be escaped"},
		{name: "control/raw-nul", text: "[\"a\x00b\"]", code: fault.MalformedJSON, pointer: "/0", says: "U+0000 must be escaped"},
		{name: "control/after-escape", text: "[\"\\n\x1f\"]", code: fault.MalformedJSON, pointer: "/0", says: "U+001F must be escaped"},
		{name: "trailing-value", text: `{"a":1} {"a":2}`, code: fault.MalformedJSON, says: "column 9: there is text after the end"},
		{name: "trailing-value/word", text: `1 x`, code: fault.MalformedJSON, says: "there is text after the end"},
		{name: "trailing-comma", text: `{"a":1,}`, code: fault.MalformedJSON, says: `column 8: found "}" where a member name`},
		{name: "trailing-comma/array", text: `[1,]`, code: fault.MalformedJSON, pointer: "/1", says: `found "]" where a value`},
		{name: "trailing-comma/alone", text: `[,]`, code: fault.MalformedJSON, pointer: "/0", says: `found ","`},
		{name: "bom", text: "\xef\xbb\xbf{}", code: fault.MalformedJSON, says: "a byte order mark is not allowed"},
		{name: "bom/utf-16le", text: "\xff\xfe{\x00}\x00", code: fault.MalformedJSON, says: "must be UTF-8"},
		{name: "bom/utf-16be", text: "\xfe\xff\x00{\x00}", code: fault.MalformedJSON, says: "must be UTF-8"},
		{name: "bom/inside", text: "{\"a\":\xef\xbb\xbf1}", code: fault.MalformedJSON, pointer: "/a", says: `found "\ufeff"`},
		{name: "bad-utf8", text: "{\"args\":\"\xff\"}", code: fault.InvalidText, pointer: "/args", says: "line 1, column 10"},
		{name: "bad-utf8/cut", text: "{\"args\":\"\xe2\x82\"}", code: fault.InvalidText, pointer: "/args", says: "not valid UTF-8"},
		{name: "bad-utf8/name", text: "{\"a\":{\"\xff\":1}}", code: fault.InvalidText, pointer: "/a", says: "not valid UTF-8"},
		{name: "bad-utf8/after-escape", text: "{\"args\":\"\\n\xff\"}", code: fault.InvalidText, pointer: "/args", says: "not valid UTF-8"},
		{name: "bad-utf8/above", text: "[\"\xf4\x90\x80\x80\"]", code: fault.InvalidText, pointer: "/0", says: "not valid UTF-8"},
		{name: "overlong-utf8", text: "[\"\xc0\xaf\"]", code: fault.InvalidText, pointer: "/0", says: "not valid UTF-8"},
		{name: "overlong-utf8/three", text: "[\"\xe0\x80\xaf\"]", code: fault.InvalidText, pointer: "/0", says: "not valid UTF-8"},
		{name: "overlong-utf8/nul", text: "[\"\xc0\x80\"]", code: fault.InvalidText, pointer: "/0", says: "not valid UTF-8"},
		{name: "surrogate/high", text: `["\ud800"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/low", text: `["\uDC00"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/swapped", text: `["\udc00\ud800"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/twice", text: `["\ud800\ud800"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/two-lows", text: `["\udc00\udc01"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/then-letter", text: `["\ud800\u0041"]`, code: fault.InvalidText, pointer: "/0", says: "half of a surrogate pair"},
		{name: "surrogate/name", text: `{"\ud800":1}`, code: fault.InvalidText, says: "half of a surrogate pair"},
		{name: "surrogate/encoded", text: "[\"\xed\xa0\x80\"]", code: fault.InvalidText, pointer: "/0", says: "not valid UTF-8"},
		{name: "nul-in-string", text: `{"args":{"x":"a\u0000b"}}`, code: fault.ForbiddenText, pointer: "/args/x", says: "U+0000"},
		{name: "nul-in-key", text: `{"args\u0000":{}}`, code: fault.UnknownMember, says: "U+0000"},
		{name: "dup-key", text: `{"args":1,"args":2}`, code: fault.DuplicateKey, pointer: "/args", says: `"args"`},
		{name: "dup-key-escaped", text: `{"args":1,"\u0061rgs":2}`, code: fault.DuplicateKey, pointer: "/args", says: `"args"`},
		{name: "dup-key-escaped/pair", text: `{"😀":1,"\ud83d\ude00":2}`, code: fault.DuplicateKey, pointer: "/😀", says: `"\U0001f600"`},
		{name: "dup-key-nested", text: `{"args":[{"a/b":1,"a~":2,"a\/b":3}]}`, code: fault.DuplicateKey, pointer: "/args/0/a~1b", says: `"a/b"`},
		{name: "dup-key/empty", text: `{"":1,"":2}`, code: fault.DuplicateKey, pointer: "/", says: `""`},
		{name: "depth-33", text: strings.Repeat("[", 33) + strings.Repeat("]", 33), code: fault.TooDeep, pointer: strings.Repeat("/0", 32), says: "32 levels"},
		{name: "depth-33/mixed", text: `{"args":` + strings.Repeat(`{"a":[`, 16) + strings.Repeat(`]}`, 16) + `}`, code: fault.TooDeep, pointer: "/args" + strings.Repeat("/a/0", 15) + "/a", says: "32 levels"},
		{name: "depth-33/objects", text: strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat(`}`, 33), code: fault.TooDeep, pointer: strings.Repeat("/a", 32), says: "32 levels"},
		{name: "depth-100k", text: strings.Repeat("[", 100_000), code: fault.TooDeep, pointer: strings.Repeat("/0", 32), says: "32 levels"},
		{name: "nodes", text: "[" + strings.Repeat("1,", 9999) + "1]", code: fault.TooLong, malformed: true, pointer: "/9999", says: "more than 10000 values"},
		{name: "nodes/empty", text: "[" + strings.Repeat("[],", 9999) + "{}]", code: fault.TooLong, malformed: true, pointer: "/9999", says: "more than 10000 values"},
		{name: "long-key", text: `{"a":{"` + strings.Repeat("k", 257) + `":1}}`, code: fault.TooLong, malformed: true, pointer: "/a", says: `"` + strings.Repeat("k", 64) + `\u2026" has 257 bytes`},
		{name: "long-key/multibyte", text: `{"` + strings.Repeat("é", 129) + `":1}`, code: fault.TooLong, malformed: true, says: "has 258 bytes"},
		{name: "long-key/escaped", text: `{"` + strings.Repeat(`\u00e9`, 129) + `":1}`, code: fault.TooLong, malformed: true, says: "has 258 bytes"},
		{name: "long-string", text: `["` + strings.Repeat("s", 64<<10+1) + `"]`, code: fault.TooLong, pointer: "/0", says: "has 65537 bytes"},
		{name: "long-string/escaped", text: `["\n` + strings.Repeat("s", 64<<10) + `"]`, code: fault.TooLong, pointer: "/0", says: "has 65537 bytes"},
		{name: "big-body", text: `"` + strings.Repeat(" ", 256<<10-1) + `"`, code: fault.BodyTooLarge, says: "262145 bytes"},
		{name: "combining", text: `{"name":"a` + strings.Repeat("\u0301", 10_000) + `"}`, code: fault.TooLong, pointer: "/name", says: "more than 32 code points"},
		{name: "combining/escaped", text: `{"name":"a` + strings.Repeat(`\u0301`, 40) + `"}`, code: fault.TooLong, pointer: "/name", says: "more than 32 code points"},
		{name: "combining/name", text: `{"a` + strings.Repeat("\u0301", 40) + `":1}`, code: fault.TooLong, malformed: true, says: "more than 32 code points"},
		{name: "combining/jamo", text: `["` + strings.Repeat("\u1100", 33) + `"]`, code: fault.TooLong, pointer: "/0", says: "more than 32 code points"},
		{name: "combining/joined", text: `["` + strings.Repeat("👩\u200d", 20) + `👩"]`, code: fault.TooLong, pointer: "/0", says: "more than 32 code points"},
		{name: "combining/hidden-break", text: `["a` + strings.Repeat(strings.Repeat("\u0301", 30)+"\u200b", 20) + `"]`, code: fault.TooLong, pointer: "/0", says: "more than 32 code points"},
		{name: "combining/control-break", text: `["a` + strings.Repeat(strings.Repeat("\u0301", 30)+`\u0001`, 20) + `"]`, code: fault.TooLong, pointer: "/0", says: "more than 32 code points"},
		{name: "int-unsafe", text: `{"n":9007199254740993}`, code: fault.NumberOutOfRange, pointer: "/n", says: "9007199254740993 is an integer beyond"},
		{name: "float-huge", text: `[1e400]`, code: fault.NumberOutOfRange, pointer: "/0", says: "1e400"},
		{name: "digits", text: `[0.1000000000000000055511151231257827021181]`, code: fault.NumberOutOfRange, pointer: "/0", says: "more than 17 significant digits"},
		{name: "digits/long", text: "[0." + strings.Repeat("1", 1000) + "]", code: fault.NumberOutOfRange, pointer: "/0", says: "0." + strings.Repeat("1", 62) + "… has"},
		{name: "nan", text: `[NaN]`, code: fault.MalformedJSON, pointer: "/0", says: `found "N"`},
		{name: "nan/infinity", text: `[Infinity]`, code: fault.MalformedJSON, pointer: "/0", says: `found "I"`},
		{name: "nan/minus-infinity", text: `[-Infinity]`, code: fault.MalformedJSON, pointer: "/0", says: "column 3: a number needs a digit here"},
		{name: "nan/hex", text: `[0x10]`, code: fault.MalformedJSON, says: `found "x"`},
		{name: "nan/leading-zero", text: `[01]`, code: fault.MalformedJSON, pointer: "/0", says: "column 2: a number has no leading zeros"},
		{name: "nan/minus-leading-zero", text: `[-00]`, code: fault.MalformedJSON, pointer: "/0", says: "no leading zeros"},
		{name: "nan/plus", text: `[+1]`, code: fault.MalformedJSON, pointer: "/0", says: `found "+"`},
		{name: "nan/no-whole", text: `[.5]`, code: fault.MalformedJSON, pointer: "/0", says: `found "."`},
		{name: "nan/no-fraction", text: `[5.]`, code: fault.MalformedJSON, pointer: "/0", says: "after its point"},
		{name: "nan/no-exponent", text: `[5e]`, code: fault.MalformedJSON, pointer: "/0", says: "in its exponent"},
		{name: "nan/no-exponent-digit", text: `[5e+]`, code: fault.MalformedJSON, pointer: "/0", says: "in its exponent"},
		{name: "nan/separator", text: `[1_000]`, code: fault.MalformedJSON, says: `found "_"`},
		{name: "nan/other-digits", text: `[١]`, code: fault.MalformedJSON, pointer: "/0", says: `found "\u0661"`},
	}
}

func TestParse_refuses(t *testing.T) {
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(c.text), strictjson.DefaultLimits)
			require.Error(t, err)
			require.Nil(t, v)
			var f *fault.Error
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.code, f.Code, f.Detail)
			require.Equal(t, c.malformed, f.Malformed)
			require.Contains(t, f.Detail, c.says)
			if c.code == fault.BodyTooLarge {
				require.Empty(t, f.Pointers)
				return
			}
			require.Len(t, f.Pointers, 1)
			require.Equal(t, c.pointer, f.Pointers[0].Pointer)
			require.NotEmpty(t, f.Pointers[0].Detail)
			for _, r := range f.Detail {
				require.False(t, strictjson.Invisible(r), "the detail holds %U", r)
			}
			require.Less(t, len(f.Detail), 800)
		})
	}
}

// Rows whose input Parse accepts: what is wrong with them is found later, on
// the value that Parse keeps exactly.
func TestParse_accepts(t *testing.T) {
	n := func(s string) json.Number { return json.Number(s) }
	deep := any([]any{})
	for range 31 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		name, text string
		want       any
	}{
		{"top-null", `null`, nil},
		{"top/string", ` "x" `, "x"},
		{"top/number", "\n1", n("1")},
		{"top/true", `true`, true},
		{"top/false", `false`, false},
		{"top/empty-object", `{ }`, map[string]any{}},
		{"top/empty-array", `[ ]`, []any{}},
		{"all-space", "\t{\r\n \"a\" : [ 1 , true ] , \"b\" : null }\n", map[string]any{"a": []any{n("1"), true}, "b": nil}},
		{"empty-name", `{"":""}`, map[string]any{"": ""}},
		{"exact-case", `{"tool":"a","Tool":"b","TOOL":"c"}`, map[string]any{"tool": "a", "Tool": "b", "TOOL": "c"}},
		{"kelvin-key", `{"k":1,"\u212a":2,"ſ":3}`, map[string]any{"k": n("1"), "\u212a": n("2"), "\u017f": n("3")}},
		{"proto-key", `{"__proto__":{},"constructor":1}`, map[string]any{"__proto__": map[string]any{}, "constructor": n("1")}},
		{"not-normalised", "[\"e\u0301\",\"\u00e9\"]", []any{"e\u0301", "\u00e9"}},
		{"escapes", `["\"\\\/\b\f\n\r\tA\u00e9\u20AC\uD83D\uDE00"]`, []any{"\"\\/\b\f\n\r\tAé€😀"}},
		{"escape-in-the-middle", `["é\n日"]`, []any{"é\n日"}},
		{"highest", "[\"\U0010ffff\",\"\\udbff\\udfff\"]", []any{"\U0010ffff", "\U0010ffff"}},
		{"replacement-character", "[\"\ufffd\"]", []any{"\ufffd"}},
		{"delete-character", "[\"\x7f\"]", []any{"\x7f"}},
		{"number-as-string", `{"amount":"100"}`, map[string]any{"amount": "100"}},
		{"numbers-keep-their-text", `[1,1.0,1e0,1E+0,10e-1,0.5,-1.50,9007199254740991,-9007199254740991]`, []any{n("1"), n("1.0"), n("1e0"), n("1E+0"), n("10e-1"), n("0.5"), n("-1.50"), n("9007199254740991"), n("-9007199254740991")}},
		{"minus-zero", `[-0,-0.0,-0e7,0,0.0,0e7]`, []any{n("0"), n("0"), n("0"), n("0"), n("0.0"), n("0e7")}},
		{"template", `["{{.Secret}}","${7*7}","%s%n","<%= %>"]`, []any{"{{.Secret}}", "${7*7}", "%s%n", "<%= %>"}},
		{"zero-width", "[\"a\u200bb@x\"]", []any{"a\u200bb@x"}},
		{"homoglyph", `["раypal.com"]`, []any{"раypal.com"}},
		{"padding-lines", `["` + strings.Repeat(`\n`, 5000) + `x"]`, []any{strings.Repeat("\n", 5000) + "x"}},
		{"depth-32", strings.Repeat("[", 32) + strings.Repeat("]", 32), deep},
		{"key-256", `{"` + strings.Repeat("k", 256) + `":1}`, map[string]any{strings.Repeat("k", 256): n("1")}},
		{"key-256-escaped", `{"` + strings.Repeat(`\u00e9`, 128) + `":1}`, map[string]any{strings.Repeat("é", 128): n("1")}},
		{"string-64k", `["` + strings.Repeat("s", 64<<10) + `"]`, []any{strings.Repeat("s", 64<<10)}},
		{"combining-31", `["a` + strings.Repeat("\u0301", 31) + `"]`, []any{"a" + strings.Repeat("\u0301", 31)}},
		{"combining-many-letters", `["` + strings.Repeat("a\u0301", 1000) + `"]`, []any{strings.Repeat("a\u0301", 1000)}},
		{"other-scripts", `["` + strings.Repeat("日本語テキスト한국어हिन्दी👩‍👩‍👧‍👧", 40) + `"]`, []any{strings.Repeat("日本語テキスト한국어हिन्दी👩‍👩‍👧‍👧", 40)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := strictjson.Parse([]byte(c.text), strictjson.DefaultLimits)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestParse_limits(t *testing.T) {
	lim := strictjson.Limits{Bytes: 20, Depth: 2, Nodes: 3, NameBytes: 2, StringBytes: 4}
	for _, c := range []struct {
		text string
		code fault.Code // empty: accepted
	}{
		{`[[ 1 ]]            `, ""},
		{`[[ 1 ]]              `, fault.BodyTooLarge},
		{`[[[]]]`, fault.TooDeep},
		{`[[],[]]`, ""},
		{`[[],[],1]`, fault.TooLong},
		{`{"ab":1}`, ""},
		{`{"abc":1}`, fault.TooLong},
		{`"abcd"`, ""},
		{`"abcde"`, fault.TooLong},
	} {
		_, err := strictjson.Parse([]byte(c.text), lim)
		if c.code == "" {
			require.NoError(t, err, c.text)
			continue
		}
		require.Error(t, err, c.text)
		require.Equal(t, c.code, fault.Of(err).Code, c.text)
	}
}

func TestParse_limits_left_out_are_the_default(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 33), `["` + strings.Repeat("s", 64<<10+1) + `"]`, strings.Repeat(" ", 256<<10+1),
	} {
		_, want := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
		_, got := strictjson.Parse([]byte(text), strictjson.Limits{})
		require.Error(t, want)
		require.Equal(t, want, got)
		_, got = strictjson.Parse([]byte(text), strictjson.Limits{Bytes: -1, Depth: -1, Nodes: -1, NameBytes: -1, StringBytes: -1})
		require.Equal(t, want, got)
	}
}

func TestParse_reply_limits(t *testing.T) {
	long := `["` + strings.Repeat("s", 512<<10) + `"]`
	_, err := strictjson.Parse([]byte(long), strictjson.ReplyLimits)
	require.NoError(t, err)
	many := "[" + strings.Repeat("1,", 50_000) + "1]"
	_, err = strictjson.Parse([]byte(many), strictjson.ReplyLimits)
	require.NoError(t, err)
	_, err = strictjson.Parse([]byte(strings.Repeat("[", 33)), strictjson.ReplyLimits)
	require.True(t, fault.Is(err, fault.TooDeep))
	_, err = strictjson.Parse([]byte(strings.Repeat(" ", 1<<20+1)), strictjson.ReplyLimits)
	require.True(t, fault.Is(err, fault.BodyTooLarge))
}

// What Parse gives must not change when its caller reuses the buffer.
func TestParse_keeps_nothing_of_its_input(t *testing.T) {
	data := []byte(`{"name":["text","é\n",12.5]}`)
	v, err := strictjson.Parse(data, strictjson.DefaultLimits)
	require.NoError(t, err)
	clear(data)
	require.Equal(t, map[string]any{"name": []any{"text", "é\n", json.Number("12.5")}}, v)
}

func TestParseObject(t *testing.T) {
	object, err := strictjson.ParseObject([]byte(`{"a":1}`), strictjson.DefaultLimits)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": json.Number("1")}, object)

	for text, kind := range map[string]string{
		`null`: "null", `[]`: "an array", `"{}"`: "a string", `1`: "a number", `true`: "a boolean",
	} {
		t.Run("top-"+text, func(t *testing.T) {
			object, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
			require.Nil(t, object)
			require.True(t, fault.Is(err, fault.MalformedRequest))
			f := fault.Of(err)
			require.Equal(t, fmt.Sprintf("The body is %s. It must be a JSON object.", kind), f.Detail)
			require.Equal(t, []fault.Pointer{{Pointer: "", Detail: "must be an object"}}, f.Pointers)
		})
	}
	_, err = strictjson.ParseObject([]byte(`{`), strictjson.DefaultLimits)
	require.True(t, fault.Is(err, fault.MalformedJSON))
}
