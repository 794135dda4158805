// Package strictjson is the one decoder of untrusted JSON, and the canonical
// form and digest of what it decoded.
//
// What lives here: Parse, which accepts less than RFC 8259 allows (S60 to S62);
// the value model and the functions on it (Get, Clone, Equal, Bind, Native);
// Canonical and Digest (RFC 8785); and the rules for text that deceives the
// eye (Visible, HasInvisible, Confusable), which the page and the checks of
// arguments share (S44, S45).
//
// How it flows: bytes from outside go through Parse once. The value that comes
// out is what is validated, digested, shown to people and sent; nobody parses
// the bytes again (S63). A value is one of map[string]any, []any, string, bool,
// nil and json.Number. Numbers keep their exact text. Nothing that is admitted
// loses by canonicalising: two values have one digest only if they are equal as
// JSON values. Values are treated as immutable; who wants to change one takes a
// Clone. Values that expressions or code made come in through FromNative, which
// holds them to the same rules.
//
// What does not live here: JSON Schema (tools), HTTP and its size limits on the
// wire (api), and the decision what a flagged text means for a request.
package strictjson

import "countersign/fault"

// Limits bound what Parse accepts. A field that is zero or negative takes its
// value from DefaultLimits, so the zero Limits is DefaultLimits.
type Limits struct {
	// Bytes is the size of the whole text.
	Bytes int
	// Depth is the number of arrays and objects that may be open at once.
	Depth int
	// Nodes is the number of values: every scalar, array and object is one.
	Nodes int
	// NameBytes is the size of a member name after unescaping, in UTF-8.
	NameBytes int
	// StringBytes is the size of a string value after unescaping, in UTF-8.
	StringBytes int
}

var (
	// DefaultLimits hold for every request body (S60).
	DefaultLimits = Limits{Bytes: 256 << 10, Depth: 32, Nodes: 10_000, NameBytes: 256, StringBytes: 64 << 10}
	// ReplyLimits hold for the replies of outside systems (S57).
	ReplyLimits = Limits{Bytes: 1 << 20, Depth: 32, Nodes: 100_000, NameBytes: 256, StringBytes: 1 << 20}
)

// withDefaults fills the fields that were left out.
func (l Limits) withDefaults() Limits {
	fill := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	fill(&l.Bytes, DefaultLimits.Bytes)
	fill(&l.Depth, DefaultLimits.Depth)
	fill(&l.Nodes, DefaultLimits.Nodes)
	fill(&l.NameBytes, DefaultLimits.NameBytes)
	fill(&l.StringBytes, DefaultLimits.StringBytes)
	return l
}

// Parse decodes one JSON value and refuses whatever two readers could
// understand differently. The error is always a *fault.Error, names the bad
// place by JSON Pointer and, where the text itself is wrong, by line and column
// (counted in characters from 1):
//
//	body_too_large       more than Limits.Bytes
//	malformed_json       not JSON, a byte order mark, text after the value
//	invalid_text         not UTF-8, overlong forms, lone surrogates
//	duplicate_key        a member name twice in one object, after unescaping
//	unknown_member       a member name with U+0000
//	too_deep             more than Limits.Depth
//	too_long             too many values or a name over its limit (Malformed),
//	                     a string over its limit or one character made of more
//	                     than 32 code points
//	forbidden_text       a string with U+0000
//	number_out_of_range  a number with more than 17 significant digits, with an
//	                     integral value beyond ±(2^53-1), or that a double
//	                     cannot hold exactly (S61)
//
// Member names are kept exactly: "a" and "A" are two names. Minus zero becomes
// 0, so that one value has one text; every other number keeps its spelling.
func Parse(data []byte, lim Limits) (any, error) {
	lim = lim.withDefaults()
	if len(data) > lim.Bytes {
		return nil, fault.New(fault.BodyTooLarge, "The JSON text has %d bytes. The limit is %d bytes.", len(data), lim.Bytes)
	}
	p := parser{data: data, lim: lim}
	return p.document()
}

// ParseObject is Parse for a text whose value must be an object; any other
// value is malformed_request.
func ParseObject(data []byte, lim Limits) (map[string]any, error) {
	v, err := Parse(data, lim)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.MalformedRequest, "The body is %s. It must be a JSON object.", kindOf(v)).
			At("", "must be an object")
	}
	return object, nil
}
