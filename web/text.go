package web

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/strictjson"
)

// run is a stretch of text as it is drawn: as it stands, or the escape of one
// character that can't be seen.
type run struct {
	Text   string
	Escape bool
	// LineEnd: the end of a line, drawn because the text has to stay on one.
	LineEnd bool
}

// escapes finds what strictjson.Visible wrote. It leaves no look-alike of its own
// escapes in the text.
var escapes = regexp.MustCompile(`⟨(?:U\+[0-9A-F]{4,6}|0x[0-9A-F]{2})⟩`)

// maxMarks is how many marks may stand on one letter. Real writing seldom has more;
// a tower of them covers the lines above and below. Enclosing marks, which cover
// their neighbours, are never drawn.
const maxMarks = 3

// runs splits text for drawing: what can't be seen, and marks beyond maxMarks,
// become visible escapes (S44).
func runs(s string) []run {
	s = strictjson.Visible(s)
	var out []run
	from := 0
	for _, at := range escapes.FindAllStringIndex(s, -1) {
		out = append(out, flat(s[from:at[0]])...)
		out = append(out, run{Text: s[at[0]:at[1]], Escape: true})
		from = at[1]
	}
	return folded(append(out, flat(s[from:])...))
}

// fewAlike is how many equal escapes in a row are drawn one by one.
const fewAlike = 4

// folded draws a long row of one escape once, with its number: thousands of them
// would hide the text between.
func folded(in []run) []run {
	var out []run
	for i := 0; i < len(in); {
		n := 1
		for i+n < len(in) && in[i].Escape && in[i+n] == in[i] {
			n++
		}
		if n > fewAlike {
			out = append(out, run{Text: in[i].Text + "×" + groupDigits(strconv.Itoa(n)), Escape: true})
		} else {
			out = append(out, in[i:i+n]...)
		}
		i += n
	}
	return out
}

// flat takes marks beyond maxMarks off their letter.
func flat(s string) []run {
	if s == "" {
		return nil
	}
	var out []run
	marks, from := 0, 0
	for i, c := range s {
		if !unicode.In(c, unicode.Mn, unicode.Me) {
			marks = 0
			continue
		}
		if marks++; marks <= maxMarks && unicode.Is(unicode.Mn, c) {
			continue
		}
		if i > from {
			out = append(out, run{Text: s[from:i]})
		}
		from = i + utf8.RuneLen(c)
		out = append(out, run{Text: codePoint(c), Escape: true})
	}
	if from < len(s) {
		out = append(out, run{Text: s[from:]})
	}
	return out
}

// lineEnds are drawn where text must stay on one line.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// inline is runs with each line end drawn as a mark.
func inline(s string) []run {
	var out []run
	for i, line := range strings.Split(lineEnds.Replace(s), "\n") {
		if i > 0 {
			out = append(out, run{LineEnd: true})
		}
		out = append(out, runs(line)...)
	}
	return out
}

func codePoint(c rune) string {
	const digits = "0123456789ABCDEF"
	hex := ""
	for n := c; n > 0 || len(hex) < 4; n >>= 4 {
		hex = string(digits[n&15]) + hex
	}
	return "⟨U+" + hex + "⟩"
}

// What characters that can't be seen do, for the warning beside them.
var unseenNames = map[rune]string{
	0x00AD: "soft hyphen", 0x061C: "turns the reading direction", 0x200B: "zero-width space",
	0x200C: "zero-width non-joiner", 0x200D: "zero-width joiner", 0x200E: "turns the reading direction",
	0x200F: "turns the reading direction", 0x2028: "line separator", 0x2029: "paragraph separator",
	0x202A: "turns the reading direction", 0x202B: "turns the reading direction", 0x202C: "turns the reading direction",
	0x202D: "forces the reading direction", 0x202E: "reverses the text after it", 0x2060: "word joiner",
	0x2066: "turns the reading direction", 0x2067: "turns the reading direction", 0x2068: "turns the reading direction",
	0x2069: "turns the reading direction", 0xFEFF: "zero-width no-break space",
}

// unseen warns of characters that can't be seen, or is empty.
func unseen(s string) string {
	var kinds []string
	n := 0
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		if strictjson.Invisible(c) || c == utf8.RuneError && size == 1 {
			n++
			if k := unseenKind(c); !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
		i += size
	}
	if n == 0 {
		return ""
	}
	more := ""
	if len(kinds) > 3 {
		kinds, more = kinds[:3], ", and others"
	}
	return "Holds " + count(n, "character that can’t be seen", "characters that can’t be seen") +
		", drawn here as escapes: " + strings.Join(kinds, ", ") + more + "."
}

func unseenKind(c rune) string {
	name := unseenNames[c]
	switch {
	case name != "":
	case c >= 0xE0000 && c <= 0xE007F:
		return "tag characters, which can carry hidden text"
	case c >= 0xFE00 && c <= 0xFE0F, c >= 0xE0100 && c <= 0xE01EF:
		name = "variation selector"
	case unicode.Is(unicode.Co, c):
		name = "private use"
	case c < 0x20, c >= 0x7F && c < 0xA0:
		name = "control character"
	default:
		name = "draws nothing"
	}
	return strings.Trim(codePoint(c), "⟨⟩") + " (" + name + ")"
}

// maxConfusables is how many words a warning spells out.
const maxConfusables = 3

// lookAlikes warns of words whose letters look like others, with the form that
// can't be mistaken (S45), or is empty. Invisible characters have a warning of
// their own.
func lookAlikes(s string) string {
	var spelled []string
	more := false
	for word := range strings.FieldsSeq(s) {
		if _, _, hidden := strictjson.HasInvisible(word); hidden || !strictjson.Confusable(word) {
			continue
		}
		if len(spelled) == maxConfusables {
			more = true
			break
		}
		spelled = append(spelled, strictjson.ASCIIForm(cutTo(word, 60)))
	}
	if spelled == nil {
		return ""
	}
	text := "Holds letters that look like others. Really: " + strings.Join(spelled, ", ")
	if more {
		text += ", and more"
	}
	return text + "."
}

// cutTo shortens a text for a place that has no room, and says so.
func cutTo(s string, max int) string {
	n := 0
	for i := range s {
		if n == max {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
