package strictjson_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/strictjson"
)

// S44, range by range.
func TestInvisible(t *testing.T) {
	for name, ranges := range map[string][][2]rune{
		"control":            {{0x00, 0x08}, {0x0B, 0x0C}, {0x0E, 0x1F}, {0x7F, 0x9F}},
		"bidi":               {{0x061C, 0x061C}, {0x200E, 0x200F}, {0x202A, 0x202E}, {0x2066, 0x2069}},
		"zero-width":         {{0x200B, 0x200D}, {0x2060, 0x2064}, {0xFEFF, 0xFEFF}, {0x180E, 0x180E}},
		"tag":                {{0xE0000, 0xE007F}},
		"variation selector": {{0xFE00, 0xFE0F}, {0xE0100, 0xE01EF}, {0x180B, 0x180D}, {0x180F, 0x180F}},
		"soft hyphen":        {{0xAD, 0xAD}},
		"private use":        {{0xE000, 0xF8FF}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD}},
		"unassigned":         {{0x0378, 0x0379}, {0xFDD0, 0xFDEF}, {0xFFFE, 0xFFFF}, {0x1FFFE, 0x1FFFF}, {0x10FFFE, 0x10FFFF}, {0x40000, 0x4FFFF}},
		"surrogate":          {{0xD800, 0xDFFF}},
		"line separator":     {{0x2028, 0x2029}},
		"deprecated format":  {{0x206A, 0x206F}, {0xFFF9, 0xFFFB}},
		"filler":             {{0x115F, 0x1160}, {0x3164, 0x3164}, {0xFFA0, 0xFFA0}, {0x034F, 0x034F}, {0x17B4, 0x17B5}, {0x2800, 0x2800}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range ranges {
				for c := r[0]; c <= r[1]; c++ {
					require.True(t, strictjson.Invisible(c), "%U", c)
				}
			}
		})
	}
}

func TestInvisible_not(t *testing.T) {
	for c := rune(0x20); c < 0x7F; c++ {
		require.False(t, strictjson.Invisible(c), "%U", c)
	}
	for _, s := range []string{
		"\n\r\t", "äöüßéçñåøæœłđžș", "абвгдеёжз", "αβγδ", "אבגד", "العربية", "हिन्दी", "ไทย", "日本語テキスト", "한국어",
		"€£¥₹", "…—–‘’“”«»", "→←≤≥≠∞", "😀👍🎉", "e\u0301", "\u00a0\u3000", "\ufffd", "⟨⟩", "\u0600\u06dd",
	} {
		for _, r := range s {
			require.False(t, strictjson.Invisible(r), "%U", r)
		}
	}
}

func TestHasInvisible(t *testing.T) {
	for s, want := range map[string]struct {
		index int
		r     rune
	}{
		"a\u200bb@x":   {1, 0x200B},
		"\u202eabc":    {0, 0x202E},
		"é日\U000e0041": {5, 0xE0041},
		"a\x00":        {1, 0},
		"é\xffb\u200b": {2, utf8.RuneError},
		"\xed\xa0\x80": {0, utf8.RuneError},
	} {
		index, r, ok := strictjson.HasInvisible(s)
		require.True(t, ok, "%q", s)
		require.Equal(t, want.index, index, "%q", s)
		require.Equal(t, want.r, r, "%q", s)
	}
	for _, s := range []string{"", "plain", "line\nline\ttab\r", "日本語 \ufffd"} {
		_, _, ok := strictjson.HasInvisible(s)
		require.False(t, ok, "%q", s)
	}
}

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "",
		"plain ⟨text⟩\n":          "plain ⟨text⟩\n",
		"a\u202eb":                "a⟨U+202E⟩b",
		"\u0000\u001b[31m":        "⟨U+0000⟩⟨U+001B⟩[31m",
		"x\U000e0041y":            "x⟨U+E0041⟩y",
		"pay\u00adpal\ufeff":      "pay⟨U+00AD⟩pal⟨U+FEFF⟩",
		"❤\ufe0f":                 "❤⟨U+FE0F⟩",
		"\xff\xe2\x82z":           "⟨0xFF⟩⟨0xE2⟩⟨0x82⟩z",
		"⟨U+202E⟩":                "⟨U+27E8⟩U+202E⟩",
		"⟨0xFF⟩":                  "⟨U+27E8⟩0xFF⟩",
		"{{.Secret}}<b>&amp;</b>": "{{.Secret}}<b>&amp;</b>",
	} {
		require.Equal(t, want, strictjson.Visible(s), "%q", s)
	}
}

// deceptive draws text with much of what the rules are about.
func deceptive() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "é", "⟨", "⟩", "U+", "0x", "27E8", "FF", "202E", "\u202e", "\u200b", "\xff", "\xe2", "\n", "\x00", "日", "@", ".", "а", "⟨U+202E⟩",
		})).Draw(t, "parts")
		return strings.Join(parts, "")
	})
}

// Nothing hidden is left, and what is shown stands for one text only.
func TestVisible_is_complete_and_unambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := deceptive().Draw(t, "a"), deceptive().Draw(t, "b")
		_, _, found := strictjson.HasInvisible(strictjson.Visible(a))
		require.False(t, found)
		require.Equal(t, a == b, strictjson.Visible(a) == strictjson.Visible(b))
		require.Equal(t, a, unescape(strictjson.Visible(a)))
		require.Equal(t, a+"/", unescape(strictjson.ASCIIForm(a+"/"))) // the slash: no host
	})
}

// unescape undoes Visible, which shows that nothing was lost.
func unescape(s string) string {
	var b strings.Builder
	for s != "" {
		if body, ok := strings.CutPrefix(s, "⟨U+"); ok {
			code, rest, _ := strings.Cut(body, "⟩")
			b.WriteRune(rune(hex(code)))
			s = rest
			continue
		}
		if body, ok := strings.CutPrefix(s, "⟨0x"); ok {
			code, rest, _ := strings.Cut(body, "⟩")
			b.WriteByte(byte(hex(code)))
			s = rest
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

func hex(digits string) (n int) {
	for _, c := range digits {
		n = n<<4 + strings.IndexRune("0123456789ABCDEF", c)
	}
	return n
}

func TestEcho(t *testing.T) {
	require.Equal(t, `"plain"`, strictjson.Echo("plain"))
	require.Equal(t, `"\u212aey \"x\"\n\u202e\xff"`, strictjson.Echo("\u212aey \"x\"\n\u202e\xff"))
	require.Equal(t, `"`+strings.Repeat("a", 64)+`"`, strictjson.Echo(strings.Repeat("a", 64)))
	require.Equal(t, `"`+strings.Repeat(`\u00e9`, 64)+`\u2026"`, strictjson.Echo(strings.Repeat("é", 65)))
}

func TestIsNFC(t *testing.T) {
	require.True(t, strictjson.IsNFC("é ascii 日本"))
	require.False(t, strictjson.IsNFC("e\u0301"))
	require.False(t, strictjson.IsNFC("\u212b"))
}
