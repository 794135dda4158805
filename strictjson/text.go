package strictjson

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// maxCluster is the number of code points that one character on the screen may
// be made of. Real writing stays below a dozen; thousands of marks on one
// letter cover the lines around it.
const maxCluster = 32

// maxEcho is the number of characters of input that a detail repeats.
const maxEcho = 64

// hidden is what the eye does not see or what moves what it sees (S44): control
// and format characters (among them bidi, zero-width, tags, soft hyphen),
// variation selectors, fillers and other default-ignorable characters, line and
// paragraph separators, private use, and what Unicode has not assigned in the
// version that Go knows.
var hidden = rangetable.Merge(
	unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Cn, unicode.Zl, unicode.Zp,
	unicode.Variation_Selector,
	unicode.Other_Default_Ignorable_Code_Point,
	rangetable.New(0x2800), // BRAILLE PATTERN BLANK: a symbol without ink
)

// Invisible reports whether r must not be shown as it is. Line feed, carriage
// return and tab are ordinary text. The few format characters that do draw
// something, such as the Arabic number sign, count as visible.
func Invisible(r rune) bool {
	if r < 0x7F {
		return r < 0x20 && r != '\n' && r != '\r' && r != '\t'
	}
	return unicode.Is(hidden, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// HasInvisible finds the first character of s for which Invisible holds, or the
// first byte that is not UTF-8 (then r is utf8.RuneError). The index is in
// bytes.
func HasInvisible(s string) (index int, r rune, ok bool) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if Invisible(r) || r == utf8.RuneError && size == 1 {
			return i, r, true
		}
		i += size
	}
	return 0, 0, false
}

// Visible makes every character that Invisible finds readable, as in ⟨U+202E⟩,
// and a byte that is not UTF-8 as in ⟨0xFF⟩. Two different texts never look the
// same afterwards: where s itself holds the beginning of such an escape, its
// bracket is escaped too. So Visible is applied once.
func Visible(s string) string {
	if _, _, found := HasInvisible(s); !found && !strings.Contains(s, "⟨") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		rest := s[i+size:]
		switch {
		case r == utf8.RuneError && size == 1:
			writeByteEscape(&b, s[i])
		case Invisible(r), r == '⟨' && (strings.HasPrefix(rest, "U+") || strings.HasPrefix(rest, "0x")):
			writeEscape(&b, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

func writeEscape(b *strings.Builder, r rune) { fmt.Fprintf(b, "⟨U+%04X⟩", r) }

func writeByteEscape(b *strings.Builder, c byte) { fmt.Fprintf(b, "⟨0x%02X⟩", c) }

// IsNFC reports whether s is in Unicode Normalization Form C. Text that is not
// is refused where a schema asks for it; it is never changed (S62).
func IsNFC(s string) bool { return norm.NFC.IsNormalString(s) }

// Echo repeats input in an error detail: quoted, in ASCII with escapes, cut to
// 64 characters. So the reader sees that a K is U+212A, and nothing in the
// detail can act.
func Echo(s string) string { return strconv.QuoteToASCII(cut(s)) }

// cut shortens s to maxEcho characters.
func cut(s string) string {
	n := 0
	for i := range s {
		if n == maxEcho {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// hasTower reports whether s holds one character made of more than maxCluster
// code points: a grapheme cluster (UAX 29), or, so that a control or format
// character in between does not hide it, a run of these and of marks.
func hasTower(s string) bool {
	attached, foreign, longest := 0, 0, 0
	for _, r := range s {
		if ' ' <= r && r <= '~' || r == '\n' || r == '\r' || r == '\t' {
			attached, foreign = 0, 0
			continue
		}
		if unicode.In(r, unicode.M, unicode.Cf, unicode.Cc) {
			attached++
		} else {
			attached = 0
		}
		if attached >= maxCluster {
			return true
		}
		foreign++
		longest = max(longest, foreign)
	}
	// A cluster has at most one printable ASCII character. Without half its
	// length of others in a row there is none to find.
	if longest < maxCluster/2 {
		return false
	}
	for g := graphemes.FromString(s); g.Next(); {
		if utf8.RuneCountInString(g.Value()) > maxCluster {
			return true
		}
	}
	return false
}
