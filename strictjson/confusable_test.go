package strictjson_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/strictjson"
)

// S45 and the row homoglyph.
func TestConfusable(t *testing.T) {
	for name, s := range map[string]string{
		"cyrillic a in a host":             "p\u0430ypal.com",
		"cyrillic label under com":         "сосо.com",
		"cyrillic whole script":            "\u0430\u0440\u0440\u04cf\u0435.com",
		"cyrillic in mail local":           "аnna@example.com",
		"cyrillic in mail host":            "anna@exаmple.com",
		"cyrillic whole local":             "сосо@example.com",
		"greek omicron":                    "g\u03bf\u03bfgle.com",
		"greek whole script":               "\u03bf\u03c1.example",
		"cyrillic with greek":              "бλ.example",
		"armenian":                         "\u057dser",
		"cherokee":                         "\u13aa\u13e2.example",
		"latin with arabic":                "abcاب",
		"dotless i":                        "l\u0131nk",
		"latin alpha":                      "p\u0251ypal",
		"click as exclamation":             "a\u01c3",
		"fraction slash":                   "example.com\u2044x",
		"division slash":                   "example.com\u2215.evil.example",
		"en dash":                          "a\u2013b",
		"minus":                            "a\u2212b",
		"colon":                            "a\ua789443",
		"ideographic full stop":            "例え\u3002example",
		"full-width letter":                "\uff41bc",
		"full-width dot":                   "a\uff0eb",
		"one-dot leader":                   "a\u2024b",
		"mathematical letter":              "\U0001d41abc",
		"roman numeral":                    "\u2160nc",
		"ligature":                         "\ufb01le",
		"kelvin":                           "\u212aey",
		"long s":                           "\u017fhop",
		"not composed":                     "e\u0301t\u00e9",
		"mark without a composed form":     "p\u0332aypal",
		"dot on an i":                      "i\u0307d",
		"arabic digit with ascii":          "user\u0661",
		"arabic digit with ascii digit":    "\u06611",
		"devanagari digit in arabic digit": "\u0661\u0967",
		"zero-width space":                 "a\u200bb@x",
		"soft hyphen":                      "pay\u00adpal",
		"right-to-left override":           "a\u202eb",
		"control":                          "a\x01b",
		"broken UTF-8":                     "a\xff",
		"mixed over a hyphen":              "pay-пал",
		"hangul with katakana":             "한カ",
	} {
		t.Run(name, func(t *testing.T) { require.True(t, strictjson.Confusable(s), "%+q", s) })
	}
}

func TestConfusable_not(t *testing.T) {
	for _, s := range []string{
		"", "paypal.com", "anna@example.com", "user_1-x", "https://example.com:8420/a?b=c#d", "xn--pple-43d.com", "a b\n",
		"müller@bücher.example", "naïve", "Łódź", "þórr", "việt", "straße", "ångström",
		"почта.рф", "иван@почта.рф", "банк.com", "москва.example", "ελλάδα.gr", "ещё",
		"日本語.example", "カタカナ", "テクノ", "ひらがな漢字カナabc", "ラーメン", "한국어.kr", "한글漢字abc", "ㄅㄆ漢字abc",
		"العربية.example", "עברית", "हिन्दी.भारत", "ไทย", "ქართული", "հայերեն", "\u0661\u0662", "पता\u0967", "shop🎉",
	} {
		require.False(t, strictjson.Confusable(s), "%+q", s)
	}
}

func TestASCIIForm(t *testing.T) {
	for s, want := range map[string]string{
		"":                                   "",
		"plain.example":                      "plain.example",
		"anna+x@example.com":                 "anna+x@example.com",
		"р\u0430ypal.com":                    "xn--ypal-43d9g.com",
		"bücher.example":                     "xn--bcher-kva.example",
		"\u0430\u0440\u0440\u04cf\u0435.com": "xn--80ak6aa92e.com",
		"anna@bücher.example":                "anna@xn--bcher-kva.example",
		"аnna@example.com":                   "⟨U+0430⟩nna@example.com",
		"аnna@bücher.example":                "⟨U+0430⟩nna@xn--bcher-kva.example",
		"a@b@bücher.example":                 "a@b@xn--bcher-kva.example",
		"\u0430dmin":                         "⟨U+0430⟩dmin",
		"bücher.example/a":                   "b⟨U+00FC⟩cher.example/a",
		"bü cher.example":                    "b⟨U+00FC⟩ cher.example",
		"bü\u00a0cher.example":               "b⟨U+00FC⟩⟨U+00A0⟩cher.example",
		"a\u200b.é":                          "a⟨U+200B⟩.⟨U+00E9⟩",
		"a\uff0eb.é":                         "xn--ab-yu3n.xn--9ca",
		"xn--é.example":                      "xn--⟨U+00E9⟩.example",
		"é.\xff":                             "⟨U+00E9⟩.⟨0xFF⟩",
		"a\x1bb":                             "a⟨U+001B⟩b",
		"⟨U+0430⟩":                           "⟨U+27E8⟩U+0430⟨U+27E9⟩",
		"😀":                                  "⟨U+1F600⟩",
	} {
		require.Equal(t, want, strictjson.ASCIIForm(s), "%+q", s)
	}
}
