package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/strictjson"
)

// refusalCodes are all that Parse may answer.
var refusalCodes = map[fault.Code]bool{
	fault.BodyTooLarge: true, fault.MalformedJSON: true, fault.InvalidText: true, fault.DuplicateKey: true, fault.UnknownMember: true,
	fault.TooDeep: true, fault.TooLong: true, fault.ForbiddenText: true, fault.NumberOutOfRange: true,
}

// FuzzParse compares with three other parsers (S63). Parse never panics; what
// it accepts they accept, with the same meaning; what it calls malformed they
// call malformed; and the canonical form is theirs and stays as it is.
func FuzzParse(f *testing.F) {
	for _, c := range refusals() {
		if len(c.text) < 1000 {
			f.Add([]byte(c.text))
		}
	}
	for _, text := range []string{
		`{"args":{"amount":12.50,"to":"a@example.com","lines":[1,2e3,-0,5e-324]},"run":{"id":"r","step":1},"dry":false,"x":null}`,
		`["\ud83d\ude00","\u00e9é","\"\\\/\b\f\n\r\t","日本語","a\u200bb"]`, `{"\ufb33":1,"😀":2,"":{"":[]}}`, " [ { } , [ ] ]\r\n", `-0.0`, `"x"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := strictjson.Parse(data, strictjson.DefaultLimits)
		if err != nil {
			var refused *fault.Error
			require.ErrorAs(t, err, &refused)
			require.True(t, refusalCodes[refused.Code], refused.Code)
			require.True(t, utf8.ValidString(refused.Detail))
			if refused.Code == fault.MalformedJSON {
				require.False(t, json.Valid(data))
			}
			return
		}

		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var std any
		require.NoError(t, decoder.Decode(&std))
		_, err = decoder.Token()
		require.True(t, errors.Is(err, io.EOF))
		requireSame(t, std, v)

		canonical := strictjson.Canonical(v)
		byText := jsontext.Value(bytes.Clone(data))
		require.NoError(t, byText.Canonicalize())
		require.Equal(t, string(byText), string(canonical))
		byJCS, err := jcs.Transform(data)
		require.NoError(t, err)
		require.Equal(t, string(byJCS), string(canonical))

		again, err := strictjson.Parse(canonical, strictjson.DefaultLimits)
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(strictjson.Canonical(again)))

		back, err := strictjson.FromNative(strictjson.Native(v))
		require.NoError(t, err)
		require.True(t, strictjson.Equal(v, back))
		require.True(t, strictjson.Equal(v, strictjson.Clone(v)))
	})
}

// requireSame compares by meaning: numbers by their exact value.
func requireSame(t *testing.T, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case json.Number:
		require.IsType(t, want, got)
		a, ok := new(big.Rat).SetString(string(want))
		require.True(t, ok)
		b, ok := new(big.Rat).SetString(string(got.(json.Number)))
		require.True(t, ok)
		require.Zero(t, a.Cmp(b))
	case []any:
		list, ok := got.([]any)
		require.True(t, ok)
		require.Len(t, list, len(want))
		for i := range want {
			requireSame(t, want[i], list[i])
		}
	case map[string]any:
		members, ok := got.(map[string]any)
		require.True(t, ok)
		require.Len(t, members, len(want))
		for name := range want {
			require.Contains(t, members, name)
			requireSame(t, want[name], members[name])
		}
	default:
		require.Equal(t, want, got)
	}
}

// FuzzCanonical builds values from native parts. What the rules admit has the
// form of RFC 8785 and reads back; what they refuse still has a form of its own
// wherever JSON has one at all.
func FuzzCanonical(f *testing.F) {
	f.Add("a", "b", 1.5, int64(1))
	f.Add("", "\x00", math.Copysign(0, -1), int64(9007199254740993))
	f.Add("\ufb33", "😀", 1e21, int64(-9007199254740991))
	f.Add("\xff", "\xfe", 5e-324, int64(0))
	f.Add("\\udcff", "\xff", 0.1, int64(10))
	f.Fuzz(func(t *testing.T, s1, s2 string, number float64, integer int64) {
		require.Equal(t, s1 == s2, strictjson.Equal(s1, s2))
		require.Equal(t, s1 == s2, strictjson.Equal(map[string]any{s1: nil}, map[string]any{s2: nil}))
		require.Equal(t, big.NewInt(integer).String(), string(strictjson.Canonical(integer)))
		if number != number || number-number != 0 {
			require.Panics(t, func() { strictjson.Canonical(number) })
			number = 0
		}
		form, err := jcs.NumberToJSON(number)
		require.NoError(t, err)
		require.Equal(t, form, string(strictjson.Canonical(number)))

		native := map[string]any{s1: []any{number, s2, map[string]any{s2: integer, s1: nil}}, s2: true}
		v, err := strictjson.FromNative(native)
		if err != nil {
			return
		}
		canonical := strictjson.Canonical(v)
		require.Equal(t, string(strictjson.Canonical(native)), string(canonical))
		std, err := json.Marshal(native)
		require.NoError(t, err)
		for _, text := range [][]byte{canonical, std} {
			byJCS, err := jcs.Transform(text)
			require.NoError(t, err)
			require.Equal(t, string(byJCS), string(canonical))
			back, err := strictjson.Parse(text, strictjson.ReplyLimits)
			if fault.Is(err, fault.TooLong) {
				continue // FromNative has no limits on bytes
			}
			require.NoError(t, err)
			require.True(t, strictjson.Equal(native, back))
		}
	})
}
