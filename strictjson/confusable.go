package strictjson

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// Confusable reports whether an identifier, a host or a mail address may be
// read as another one (S45). It follows UTS 39 without its full table. ASCII
// is never flagged. Else it flags:
//
//   - invisible characters;
//   - text that NFKC changes, such as full-width and mathematical letters;
//   - one label in several scripts, as Latin with Cyrillic or Greek; Latin with
//     the scripts of Chinese, Japanese or Korean is usual writing (UTS 39,
//     "highly restrictive"), and so is another script under .com;
//   - a symbol or a non-ASCII Latin letter that looks like ASCII, as ⁄ and ı;
//   - a label in another script whose letters all look like ASCII;
//   - digits of another script beside ASCII letters or digits;
//   - a mark on an ASCII letter that has no composed form.
//
// It is a warning to a person, not a verdict: words of other languages can be
// spelled with such letters alone.
func Confusable(s string) bool {
	if _, _, found := HasInvisible(s); found {
		return true
	}
	if isASCII(s) {
		return false
	}
	if !norm.NFKC.IsNormalString(s) {
		return true
	}
	for _, label := range strings.FieldsFunc(s, endsLabel) {
		if !isASCII(label) && deceives(label) {
			return true
		}
	}
	return false
}

// endsLabel splits hosts, addresses and paths at ASCII punctuation. Hyphen and
// low line join words inside one name.
func endsLabel(r rune) bool {
	return r < utf8.RuneSelf && r != '-' && r != '_' && !isASCIIAlnum(r)
}

// deceives judges one label that is not all ASCII.
func deceives(label string) bool {
	var (
		scripts      = map[string]bool{}
		letters      bool // of another script than Latin
		unlike       bool // one of them looks like nothing in ASCII
		asciiAlnum   bool
		foreignDigit bool
		last         rune
	)
	for _, r := range label {
		switch {
		case r < utf8.RuneSelf:
			asciiAlnum = asciiAlnum || isASCIIAlnum(r)
			if unicode.IsLetter(r) {
				scripts["Latin"] = true
			}
		case unicode.Is(likeASCII, r):
			return true
		case unicode.IsMark(r) && isASCIIAlnum(last):
			return true
		default:
			foreignDigit = foreignDigit || unicode.IsDigit(r)
			script := scriptOf(r)
			if script == "Common" || script == "Inherited" {
				break
			}
			scripts[script] = true
			if script != "Latin" && unicode.IsLetter(r) {
				letters = true
				unlike = unlike || !unicode.Is(likeASCIIInScript, r)
			}
		}
		last = r
	}
	return foreignDigit && asciiAlnum || letters && !unlike || mixed(scripts)
}

// together are the scripts that one language writes side by side, each also
// with Latin.
var together = []map[string]bool{
	{"Latin": true, "Han": true, "Hiragana": true, "Katakana": true},
	{"Latin": true, "Han": true, "Bopomofo": true},
	{"Latin": true, "Han": true, "Hangul": true},
}

func mixed(scripts map[string]bool) bool {
	if len(scripts) <= 1 {
		return false
	}
	for _, usual := range together {
		covered := true
		for s := range scripts {
			covered = covered && usual[s]
		}
		if covered {
			return false
		}
	}
	return true
}

func scriptOf(r rune) string {
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return "Common"
}

// ASCIIForm spells s in a way that can't be mistaken, to be shown beside s. A
// host of several labels, alone or behind the @ of a mail address, is in
// Punycode (RFC 3492, the exact characters, unmapped); anything else outside
// printable ASCII is in the form ⟨U+0430⟩. ASCII stays as it is.
func ASCIIForm(s string) string {
	at := strings.LastIndexByte(s, '@') + 1
	if host, ok := punycode(s[at:]); ok {
		return spellOut(s[:at]) + host
	}
	return spellOut(s)
}

// punycode is false when s is no host that a resolver could mean.
func punycode(s string) (string, bool) {
	if isASCII(s) || !strings.Contains(s, ".") || !utf8.ValidString(s) {
		return "", false
	}
	if _, _, found := HasInvisible(s); found {
		return "", false
	}
	for _, r := range s {
		if r != '.' && endsLabel(r) || unicode.IsSpace(r) {
			return "", false
		}
	}
	host, err := idna.Punycode.ToASCII(s)
	return host, err == nil && isASCII(host)
}

// spellOut escapes all that is not printable ASCII. Every bracket in its result
// is its own, so two different texts stay different.
func spellOut(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			writeByteEscape(&b, s[i])
		case r >= utf8.RuneSelf || Invisible(r):
			writeEscape(&b, r)
		default:
			b.WriteByte(s[i])
		}
		i += size
	}
	return b.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isASCIIAlnum(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
