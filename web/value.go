package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"countersign/strictjson"
	"countersign/tools"
)

// Of a long value the first and the last characters are shown, with its exact
// length and digest and everything behind "show all" (S46). Text of many lines
// counts as long: else it could push the rest off the page.
const (
	longText  = 300
	longLines = 12
	headChars = 200
	tailChars = 100
)

// value is one scalar as it is drawn.
type value struct {
	Kind string // text, number, yes or no, nothing, object, list, hidden
	Text string // all of it, or of a long one the beginning
	// Of a long value: the end, everything, and its exact size and digest.
	Tail, Full, Size, Digest string
	// Gap says how much is not drawn between the two.
	Gap string
	// Notes help to read it; Warnings are reasons to look twice.
	Notes, Warnings []string
}

// Long reports that the value is drawn in part, with the rest behind "show all".
func (v value) Long() bool { return v.Full != "" }

// drawer draws values of one operation.
type drawer struct {
	// money are the amounts of the predicted effects: what a bare number means.
	money map[int64]string
	// mask hides sensitive arguments wherever their text stands.
	mask *strings.Replacer
}

// value draws one value; a filled object or list as its canonical text.
func (d drawer) value(v any) value {
	switch v := v.(type) {
	case nil:
		return value{Kind: "nothing", Text: "null"}
	case bool:
		if v {
			return value{Kind: "yes or no", Text: "true"}
		}
		return value{Kind: "yes or no", Text: "false"}
	case string:
		return d.text("text", d.hide(v))
	case map[string]any:
		if len(v) == 0 {
			return value{Kind: "object", Text: "{}", Notes: []string{"empty"}}
		}
		return d.text("object", d.hide(compact(v)))
	case []any:
		if len(v) == 0 {
			return value{Kind: "list", Text: "[]", Notes: []string{"empty"}}
		}
		return d.text("list", d.hide(compact(v)))
	default:
		return d.number(v)
	}
}

// compact is a value's canonical text.
func compact(v any) string { return string(strictjson.Canonical(v)) }

func (d drawer) hide(s string) string {
	if d.mask == nil {
		return s
	}
	return d.mask.Replace(s)
}

func (d drawer) text(kind, s string) value {
	v := value{Kind: kind, Text: s}
	if kind == "text" && s == "" {
		v.Notes = []string{"empty text"}
	}
	if w := unseen(s); w != "" {
		v.Warnings = append(v.Warnings, w)
	}
	if w := lookAlikes(s); w != "" {
		v.Warnings = append(v.Warnings, w)
	}
	lines := strings.Count(s, "\n") + 1
	n := utf8.RuneCountInString(s)
	if n <= longText && lines <= longLines {
		return v
	}
	v.Full = s
	v.Text = firstRunes(s, min(headChars, n))
	if n > headChars {
		v.Tail = lastRunes(s, min(tailChars, n-headChars))
	}
	v.Gap = count(n-utf8.RuneCountInString(v.Text)-utf8.RuneCountInString(v.Tail), "character", "characters") + " more"
	v.Size = count(n, "character", "characters") + " in " + count(lines, "line", "lines")
	sum := sha256.Sum256([]byte(s))
	v.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return v
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func lastRunes(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}

// number draws a number as it was given, with grouped digits. Spellings that
// hide its size are flagged (S47).
func (d drawer) number(v any) value {
	spelled, ok := v.(json.Number)
	if !ok {
		spelled = json.Number(fmt.Sprint(v))
	}
	out := value{Kind: "number", Text: groupDigits(string(spelled))}
	switch {
	case strings.ContainsAny(string(spelled), "eE"):
		out.Warnings = append(out.Warnings, "Written with an exponent; its value is "+groupDigits(compact(spelled))+".")
	case digits(string(spelled)) > 15:
		out.Warnings = append(out.Warnings, "A number of "+strconv.Itoa(digits(string(spelled)))+" digits.")
	}
	if n, err := strconv.ParseInt(string(spelled), 10, 64); err == nil {
		if text, known := d.money[n]; known {
			out.Notes = append(out.Notes, "= "+text+", as in the effects")
		}
	}
	return out
}

func digits(s string) int {
	return strings.Count(s, "") - 1 - strings.Count(s, ".") - strings.Count(s, "-")
}

// groupDigits puts a comma between groups of three in the whole part of a plain
// decimal; other spellings stay as they are.
func groupDigits(s string) string {
	sign, rest := "", s
	if strings.HasPrefix(rest, "-") {
		sign, rest = "-", rest[1:]
	}
	whole, fraction, dot := strings.Cut(rest, ".")
	if whole == "" || strings.Trim(whole, "0123456789") != "" || strings.Trim(fraction, "0123456789") != "" {
		return s
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// moneyIn collects the amounts that the effects name, for numbers that mean the
// same amount.
func moneyIn(effects []tools.Effect) map[int64]string {
	known := map[int64]string{}
	for _, e := range effects {
		if e.Money == nil || e.Money.Amount == 0 {
			continue
		}
		text := amountText(*e.Money)
		if before, ok := known[e.Money.Amount]; ok && before != text {
			text = "" // two currencies: nothing is guessed
		}
		known[e.Money.Amount] = text
	}
	maps.DeleteFunc(known, func(_ int64, text string) bool { return text == "" })
	return known
}

// amountText is money with its currency.
func amountText(m tools.Money) string {
	text, err := tools.FormatMoney(m.Amount, m.Currency)
	if err != nil {
		// No currency that we know: nothing is guessed.
		return groupDigits(strconv.FormatInt(m.Amount, 10)) + " minor units of " + strictjson.Visible(cutTo(m.Currency, 12))
	}
	return text
}

// row is one value and the path of names that leads to it, so that it is clear
// where one argument ends and the next begins.
type row struct {
	Path  []string
	Value value
	// Free: the schema lets any text stand here.
	Free bool
}

// rows draws an argument object, one row for each scalar. hidden is the same
// object with sensitive values redacted.
func (d drawer) rows(args, redacted map[string]any, s schema) []row {
	var out []row
	d.walk(&out, nil, args, redacted, s)
	return out
}

func (d drawer) walk(out *[]row, path []string, v, redacted any, s schema) {
	switch v := v.(type) {
	case map[string]any:
		if other, ok := redacted.(map[string]any); ok && len(v) > 0 {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				d.walk(out, append(slices.Clone(path), name), v[name], other[name], s.member(name))
			}
			return
		}
	case []any:
		if other, ok := redacted.([]any); ok && len(v) > 0 && len(other) == len(v) {
			*out = append(*out, row{Path: path, Value: value{Kind: "list", Text: count(len(v), "item", "items")}})
			for i := range v {
				d.walk(out, append(slices.Clone(path), strconv.Itoa(i+1)), v[i], other[i], s.items())
			}
			return
		}
	}
	if !strictjson.Equal(v, redacted) {
		// Never our own digest: a short value could be guessed from it.
		stands, _ := redacted.(string)
		*out = append(*out, row{Path: path, Value: value{Kind: "hidden", Text: stands, Notes: []string{"marked sensitive by the tool; it is sent, and not shown"}}})
		return
	}
	_, text := v.(string)
	*out = append(*out, row{Path: path, Value: d.value(v), Free: text && s.free()})
}

// maskOf hides the sensitive values of args wherever else their text stands: in
// effects, in what will be sent, in answers. Very short ones are left, since they
// would match everywhere and hide what must be seen.
func maskOf(args, redacted map[string]any) *strings.Replacer {
	var pairs []string
	var find func(v, other any)
	find = func(v, other any) {
		switch v := v.(type) {
		case map[string]any:
			if o, ok := other.(map[string]any); ok {
				for name := range v {
					find(v[name], o[name])
				}
				return
			}
		case []any:
			if o, ok := other.([]any); ok && len(o) == len(v) {
				for i := range v {
					find(v[i], o[i])
				}
				return
			}
		}
		if strictjson.Equal(v, other) {
			return
		}
		text, ok := v.(string)
		if !ok {
			text = compact(v)
		}
		if len(text) >= 4 {
			pairs = append(pairs, text, "[hidden]")
			if quoted := strings.Trim(compact(text), `"`); quoted != text {
				pairs = append(pairs, quoted, "[hidden]")
			}
		}
	}
	find(args, redacted)
	if pairs == nil {
		return nil
	}
	return strings.NewReplacer(pairs...)
}

// schema is a place in a tool's input schema, as far as it tells apart values
// that are checked from free text. The zero schema knows nothing.
type schema map[string]any

func schemaOf(text json.RawMessage) schema {
	var s schema
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	return s
}

func (s schema) member(name string) schema {
	properties, _ := s["properties"].(map[string]any)
	member, _ := properties[name].(map[string]any)
	return member
}

func (s schema) items() schema {
	items, _ := s["items"].(map[string]any)
	return items
}

// free reports that any text may stand here: nothing narrows it but its length.
func (s schema) free() bool {
	for _, word := range []string{"enum", "const", "pattern", "format"} {
		if _, ok := s[word]; ok {
			return false
		}
	}
	return true
}

// indented lays JSON out for reading; what is no JSON stays as it is.
func indented(text []byte) string {
	var buf bytes.Buffer
	if json.Indent(&buf, text, "", "  ") != nil {
		return string(text)
	}
	return buf.String()
}
