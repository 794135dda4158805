package tools

import (
	"net/url"
	"strings"

	"countersign/fault"
)

// piece is a part of a template's text: a literal or one expression.
type piece struct {
	literal string
	code    string
	offset  int // where the expression begins in the text
	isCode  bool
}

// splitTemplate cuts a text at its ${…}. `$${` is a literal `${`. A `}` inside
// quotes or inner braces does not end an expression. On a missing end it gives
// the offset of the `${`.
func splitTemplate(text string) (pieces []piece, unclosed int) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); {
		switch {
		case strings.HasPrefix(text[i:], "$${"):
			literal.WriteString("${")
			i += 3
		case strings.HasPrefix(text[i:], "${"):
			length := exprLength(text[i+2:])
			if length < 0 {
				return nil, i
			}
			flush()
			pieces = append(pieces, piece{code: text[i+2 : i+2+length], offset: i + 2, isCode: true})
			i += 2 + length + 1
		default:
			literal.WriteByte(text[i])
			i++
		}
	}
	flush()
	return pieces, -1
}

// exprLength finds the `}` that ends an expression, or gives -1. It knows CEL's
// strings ('…', "…", three quotes, raw ones) and comments.
func exprLength(text string) int {
	depth := 0
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '{', '(', '[':
			depth++
		case ')', ']':
			depth--
		case '}':
			if depth <= 0 {
				return i
			}
			depth--
		case '/':
			if strings.HasPrefix(text[i:], "//") {
				end := strings.IndexByte(text[i:], '\n')
				if end < 0 {
					return -1
				}
				i += end
			}
		case '"', '\'':
			raw := i > 0 && (text[i-1] == 'r' || text[i-1] == 'R')
			length := quotedLength(text[i:], raw)
			if length < 0 {
				return -1
			}
			i += length
			continue
		}
		i++
	}
	return -1
}

// quotedLength is the length of the string literal that text begins with.
func quotedLength(text string, raw bool) int {
	quote := text[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text, triple) {
		quote = triple
	}
	for i := len(quote); i < len(text); i++ {
		if text[i] == '\\' && !raw {
			i++
			continue
		}
		if strings.HasPrefix(text[i:], quote) {
			return i + len(quote)
		}
	}
	return -1
}

// encoding is how a value is written inside a text, by its place.
type encoding func(string) string

var (
	asIs encoding = func(s string) string { return s }
	// forSegment escapes one path segment.
	forSegment encoding = url.PathEscape
	// forKey escapes everything but unreserved characters, so that no value can
	// forge another key.
	forKey encoding = func(s string) string {
		return strings.NewReplacer("+", "%20").Replace(url.QueryEscape(s))
	}
)

// template is a compiled text with expressions in it, or a constant.
type template struct {
	constant any // when there are no expressions
	parts    []templatePart
	encode   encoding
	filled   bool
	where    string
	uses     usage
}

type templatePart struct {
	literal string
	expr    *expr
}

// templateIn says what the place of a template takes.
type templateIn struct {
	encode encoding
	// alone and mixed are what an expression must be when it is the whole text,
	// and when it stands inside one.
	alone, mixed typeWant
	// filled refuses empty values: an empty path segment is another path.
	filled bool
}

var (
	inJSON  = templateIn{encode: asIs, alone: wantAny, mixed: wantInside}
	inText  = templateIn{encode: asIs, alone: wantInside, mixed: wantInside}
	inQuery = templateIn{encode: asIs, alone: wantPairs, mixed: wantInside}
	inPath  = templateIn{encode: forSegment, alone: wantInside, mixed: wantInside, filled: true}
	inKey   = templateIn{encode: forKey, alone: wantInside, mixed: wantInside}
	inInt   = templateIn{encode: asIs, alone: wantInt, mixed: wantInside}
	inID    = templateIn{encode: asIs, alone: wantID, mixed: wantInside}
	inMap   = templateIn{encode: asIs, alone: wantMap, mixed: wantInside}
)

// template compiles the scalar at n. It gives nil when n is nil or after it
// reported a problem.
func (c *exprCompiler) template(n *node, sc scope, in templateIn) *template {
	if n == nil || n.kind != scalarNode {
		return nil
	}
	text, ok := n.asText()
	t := &template{encode: in.encode, filled: in.filled, where: n.pointer}
	if !ok {
		t.constant = n.value
		return t
	}
	pieces, unclosed := splitTemplate(text)
	if unclosed >= 0 {
		c.ps.at(n.at(unclosed), "Close it with }, or write $${ for a literal ${.", "This ${ has no end.")
		return nil
	}
	want := in.mixed
	if len(pieces) == 1 {
		want = in.alone
	}
	failed, constant := false, true
	for _, p := range pieces {
		if !p.isCode {
			t.parts = append(t.parts, templatePart{literal: p.literal})
			continue
		}
		constant = false
		e := c.compile(n, p.offset, p.code, sc, want)
		if e == nil {
			failed = true
			continue
		}
		t.uses = t.uses.add(e.uses)
		t.parts = append(t.parts, templatePart{expr: e})
	}
	switch {
	case failed:
		return nil
	case constant:
		var b strings.Builder
		for _, p := range t.parts {
			b.WriteString(p.literal)
		}
		t.constant, t.parts = b.String(), nil
	}
	return t
}

// alone reports whether the whole text is one expression, whose value keeps its
// type.
func (t *template) alone() bool { return len(t.parts) == 1 && t.parts[0].expr != nil }

// value gives the template's value: of its own type when the expression stands
// alone, else text. It can be absent{}.
func (t *template) value(vars map[string]any) (any, error) {
	if t.parts == nil {
		return t.constant, nil
	}
	if t.alone() {
		return t.parts[0].expr.eval(vars)
	}
	return t.text(vars)
}

// text gives the template as text, each value encoded for its place.
func (t *template) text(vars map[string]any) (string, error) {
	if t.parts == nil {
		return textOf(t.constant)
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.expr == nil {
			b.WriteString(p.literal)
			continue
		}
		v, err := p.expr.eval(vars)
		if err != nil {
			return "", err
		}
		s, err := textOf(v)
		if err != nil {
			return "", &evalError{p.expr.where, p.expr.text, err}
		}
		if s == "" && t.filled {
			return "", fault.New(fault.SchemaViolation, "An empty value can't stand in the path of a request (`%s`).", p.expr.text)
		}
		b.WriteString(t.encode(s))
	}
	return b.String(), nil
}

// tree is a value of a manifest with templates anywhere in it.
type tree struct {
	leaf    *template
	members []treeMember
	items   []*tree
	kind    nodeKind
	uses    usage
}

type treeMember struct {
	name string
	tree *tree
}

// tree compiles a value whose texts are templates. It gives nil when n is nil or
// after it reported a problem.
func (c *exprCompiler) tree(n *node, sc scope, in templateIn) *tree {
	if n == nil {
		return nil
	}
	t := &tree{kind: n.kind}
	failed := false
	keep := func(sub *tree) bool {
		if sub == nil {
			failed = true
			return false
		}
		t.uses = t.uses.add(sub.uses)
		return true
	}
	switch n.kind {
	case scalarNode:
		if t.leaf = c.template(n, sc, in); t.leaf == nil {
			return nil
		}
		t.uses = t.leaf.uses
	case listNode:
		for _, item := range n.items {
			if sub := c.tree(item, sc, in); keep(sub) {
				t.items = append(t.items, sub)
			}
		}
	case mapNode:
		for _, m := range n.members {
			if sub := c.tree(m.node, sc, in); keep(sub) {
				t.members = append(t.members, treeMember{m.name, sub})
			}
		}
	}
	if failed {
		return nil
	}
	return t
}

// value builds the JSON value. Members and elements whose optional is empty are
// left out.
func (t *tree) value(vars map[string]any) (any, error) {
	switch t.kind {
	case listNode:
		out := make([]any, 0, len(t.items))
		for _, item := range t.items {
			v, err := item.value(vars)
			if err != nil {
				return nil, err
			}
			if _, none := v.(absent); !none {
				out = append(out, v)
			}
		}
		return out, nil
	case mapNode:
		out := make(map[string]any, len(t.members))
		for _, m := range t.members {
			v, err := m.tree.value(vars)
			if err != nil {
				return nil, err
			}
			if _, none := v.(absent); !none {
				out[m.name] = v
			}
		}
		return out, nil
	}
	return t.leaf.value(vars)
}
