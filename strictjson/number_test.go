package strictjson_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/fault"
	"countersign/strictjson"
)

// S61: every admitted spelling and its one canonical form (RFC 8785).
func TestParse_numbers_canonical(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "-0.000": "0", "0e0": "0", "0E+400": "0", "-0e-5": "0",
		"1": "1", "1.0": "1", "1e0": "1", "10e-1": "1", "0.1e1": "1", "100e-2": "1", "1.000": "1",
		"-1": "-1", "-1.0": "-1", "1e3": "1000", "1E+3": "1000", "1.5e3": "1500", "120": "120", "1e15": "1000000000000000",
		"9007199254740991": "9007199254740991", "-9007199254740991": "-9007199254740991", "9007199254740991.0": "9007199254740991",
		"9.007199254740991e15": "9007199254740991", "90071992547409910e-1": "9007199254740991",
		"0.1": "0.1", "0.10": "0.1", "1e-1": "0.1", "-0.5": "-0.5", "123.456": "123.456",
		"0.000001": "0.000001", "1e-6": "0.000001", "0.0000001": "1e-7", "1e-7": "1e-7", "12e-8": "1.2e-7",
		"1.25e-9": "1.25e-9", "-1.25E-10": "-1.25e-10", "1e-300": "1e-300", "5e-324": "5e-324",
		"2.2250738585072014e-308": "2.2250738585072014e-308", "1.5e-323": "1.5e-323",
		"0.30000000000000004": "0.30000000000000004", "1.7976931348623157": "1.7976931348623157",
		"4503599627370495.5": "4503599627370495.5", "333333333.3333333": "333333333.3333333",
	} {
		t.Run(text, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
			require.NoError(t, err)
			require.Equal(t, want, string(strictjson.Canonical(v)))
			again, err := strictjson.Parse([]byte(want), strictjson.DefaultLimits)
			require.NoError(t, err)
			require.Equal(t, json.Number(want), again)
		})
	}
}

func TestParse_numbers_refused(t *testing.T) {
	for text, says := range map[string]string{
		"9007199254740992":           "is an integer beyond",
		"-9007199254740992":          "is an integer beyond",
		"9007199254740993":           "is an integer beyond",
		"9007199254740992.0":         "is an integer beyond",
		"9.007199254740992e15":       "is an integer beyond",
		"1e16":                       "is an integer beyond",
		"123456789012345678":         "more than 17 significant digits",
		"18446744073709551616":       "more than 17 significant digits",
		"1e20":                       "is an integer beyond",
		"1e308":                      "is an integer beyond",
		"1e309":                      "is an integer beyond",
		"-1e400":                     "is an integer beyond",
		"1e401":                      "exponent",
		"1e-401":                     "exponent",
		"0e401":                      "exponent",
		"1e99999999999999999999":     "exponent",
		"1e-99999999999999999999":    "exponent",
		"2e-324":                     "is not exact",
		"1e-400":                     "is not exact",
		"4e-324":                     "is not exact",
		"1.23456789e-320":            "is not exact",
		"0.1234567890123456789":      "more than 17 significant digits",
		"0.1000000000000000000":      "more than 17 significant digits",
		"1.00000000000000000":        "more than 17 significant digits",
		"0.000000000000000000":       "more than 17 significant digits",
		"-0.000000000000000000":      "more than 17 significant digits",
		"0.10000000000000001":        "is not exact",
		"9007199254740990.5":         "is not exact",
		"4503599627370495.4":         "is not exact",
		"9007199254.740901":          "is not exact",
		"-2.2250738585072011e-308":   "is not exact",
		strings.Repeat("9", 100_000): "more than 17 significant digits",
	} {
		t.Run(strictjson.Echo(text), func(t *testing.T) {
			_, err := strictjson.Parse([]byte(`{"n":`+text+`}`), strictjson.DefaultLimits)
			require.True(t, fault.Is(err, fault.NumberOutOfRange), "%v", err)
			f := fault.Of(err)
			require.Contains(t, f.Detail, says)
			require.Equal(t, "/n", f.Pointers[0].Pointer)
			require.Less(t, len(f.Detail), 250)
		})
	}
}

// numberText draws numbers of every spelling, many of them near a border.
func numberText() *rapid.Generator[string] {
	digits := func(min, max int) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), min, max, -1)
	}
	return rapid.OneOf(
		rapid.Map(rapid.Float64(), func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }),
		rapid.Map(rapid.Float64Range(-10, 10), func(f float64) string { return strconv.FormatFloat(f, 'e', 16, 64) }),
		rapid.Map(rapid.Int64(), func(i int64) string { return strconv.FormatInt(i, 10) }),
		rapid.Map(rapid.Int64Range(-20, 20), func(i int64) string { return strconv.FormatInt(1<<53+i, 10) }),
		rapid.Custom(func(t *rapid.T) string {
			text := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
			text += strconv.Itoa(rapid.IntRange(0, 1000).Draw(t, "whole"))
			if rapid.Bool().Draw(t, "has fraction") {
				text += "." + digits(1, 18).Draw(t, "fraction")
			}
			if rapid.Bool().Draw(t, "has exponent") {
				text += rapid.SampledFrom([]string{"e", "E", "e+", "E-"}).Draw(t, "e") + strconv.Itoa(rapid.IntRange(0, 330).Draw(t, "exponent"))
			}
			return text
		}),
	)
}

// The admitted numbers are those whose canonical form is exactly their own
// value, within the bounds of S61; and that form is the one of RFC 8785. The
// oracle is math/big.
func TestParse_numbers_are_exact(t *testing.T) {
	admitted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := numberText().Draw(t, "number")
		if strings.ContainsAny(text, "IN") {
			t.Skip("not a number")
		}
		value, ok := new(big.Rat).SetString(text)
		require.True(t, ok)
		f, overflow := strconv.ParseFloat(text, 64)
		shortest := new(big.Rat)
		if overflow == nil {
			shortest.SetString(strconv.FormatFloat(f, 'g', -1, 64))
		}
		mantissa, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
		written := len(strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "0"))
		want := overflow == nil && shortest.Cmp(value) == 0 && written <= 17 &&
			(!value.IsInt() || math.Abs(f) <= 1<<53-1)

		v, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
		if value.Sign() == 0 && err != nil {
			t.Skip("zeros are counted in full")
		}
		require.Equal(t, want, err == nil, "%s: %v", text, err)
		if err != nil {
			refused++
			require.True(t, fault.Is(err, fault.NumberOutOfRange))
			return
		}
		admitted++
		form, err := jcs.NumberToJSON(f)
		require.NoError(t, err)
		require.Equal(t, form, string(strictjson.Canonical(v)))
	})
	require.Positive(t, admitted)
	require.Positive(t, refused)
}

// Every double that S61 admits can be sent as any serialiser writes it.
func TestParse_admits_shortest_doubles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64Range(-1<<53+1, 1<<53-1).Draw(t, "f")
		for _, text := range []string{
			strconv.FormatFloat(f, 'e', -1, 64),
			strconv.FormatFloat(f, 'g', -1, 64),
			string(strictjson.Canonical(f)),
		} {
			v, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
			require.NoError(t, err)
			require.True(t, strictjson.Equal(v, f))
		}
	})
}
