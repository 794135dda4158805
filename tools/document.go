package tools

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// position is a place in a text, counted from 1, columns in characters.
type position struct{ line, column int }

// node is one value of a manifest with its place in the text. A nil node is a
// member that is not there; all methods accept it.
type node struct {
	pos position
	// value is the scalar: string, bool, json.Number or nil; unused for lists
	// and mappings.
	value   any
	members []member
	items   []*node
	kind    nodeKind
	style   scalarStyle
	// pointer is the JSON Pointer of the node in its document.
	pointer string
	doc     *document
}

// member is one entry of a mapping.
type member struct {
	name   string
	keyPos position
	node   *node
}

type nodeKind int

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
)

// scalarStyle says how a text was written, which decides where its characters
// stand in the source.
type scalarStyle int

const (
	plainStyle scalarStyle = iota
	singleStyle
	doubleStyle
	blockStyle
)

// document is one parsed YAML text.
type document struct {
	root    *node
	lines   []string
	problem *problems
	// holes: something in the text could not be read, so that what is missing in
	// the nodes proves nothing.
	holes bool
}

const (
	maxManifestBytes = 256 << 10
	maxDocumentDepth = 32
)

// parseDocument reads one YAML document into nodes. Only what has one meaning
// in JSON is taken: no anchors, aliases, merge keys, tags or several documents.
// The result is nil when the text is not YAML at all.
func parseDocument(src []byte, ps *problems) *document {
	start := position{1, 1}
	switch {
	case len(src) > maxManifestBytes:
		ps.at(start, "Split the file: one manifest describes one tool.", "The file is longer than %d KiB.", maxManifestBytes>>10)
		return nil
	case !utf8.Valid(src):
		ps.at(start, "Save the file as UTF-8.", "The file is not valid UTF-8.")
		return nil
	}
	file, err := parseYAML(src)
	if err != nil {
		yamlProblem(err, ps)
		return nil
	}
	d := &document{lines: ps.lines, problem: ps}
	docs := file.Docs[:0:0]
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.DirectiveType && doc.Body.Type() != ast.CommentType {
			docs = append(docs, doc)
		}
	}
	switch {
	case len(docs) == 0:
		ps.at(start, "Begin with `tool: my_tool`.", "The manifest is empty.")
		return nil
	case len(docs) > 1:
		ps.at(tokenPosition(docs[1].Body.GetToken()), "Put each tool into a file of its own.", "There is more than one document in the file.")
		return nil
	}
	d.root = d.read(docs[0].Body, "", 0)
	if d.root != nil && d.root.kind != mapNode {
		ps.at(d.root.pos, "Begin with `tool: my_tool`.", "A manifest is a mapping of keys to values.")
		return nil
	}
	return d
}

// parseYAML keeps a fault of the YAML parser from stopping a gateway that reloads
// its manifests.
func parseYAML(src []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	return parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
}

// yamlProblem turns what the YAML parser says into a problem.
func yamlProblem(err error, ps *problems) {
	at, message := position{1, 1}, err.Error()
	if ye, ok := err.(yaml.Error); ok {
		message = ye.GetMessage()
		if tk := ye.GetToken(); tk != nil {
			at = tokenPosition(tk)
		}
	}
	instead := "Check the indentation here and in the line above."
	switch {
	case strings.Contains(message, "mapping value is not allowed"):
		instead = "Put a value that holds a colon into double quotes."
	case strings.Contains(message, "character that cannot start any token"), strings.Contains(message, "that cannot start any token"):
		instead = "Indent with spaces, and put values that begin with a special character into double quotes."
	case strings.Contains(message, "could not find end character"):
		instead = "Close the quote."
	case strings.Contains(message, "not found"):
		instead = "Close the bracket. Inside [ ] and { } put a value that holds ${…} into double quotes."
	}
	ps.at(at, instead, "This is not YAML: %s.", message)
}

func tokenPosition(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{max(1, tk.Position.Line), max(1, tk.Position.Column)}
}

// hole reports what can't be read.
func (d *document) hole(at position, instead, format string, args ...any) {
	d.holes = true
	d.problem.at(at, instead, format, args...)
}

// read turns one YAML node into a node. What it can't turn is a problem and
// becomes nil.
func (d *document) read(n ast.Node, pointer string, depth int) *node {
	at := tokenPosition(n.GetToken())
	if depth > maxDocumentDepth {
		d.hole(at, "Write it flatter.", "The manifest is nested more than %d levels deep.", maxDocumentDepth)
		return nil
	}
	out := &node{pos: at, pointer: pointer, doc: d}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.kind = mapNode
		if len(n.Values) > 0 && !n.IsFlowStyle {
			out.pos = tokenPosition(n.Values[0].Key.GetToken())
		}
		for _, v := range n.Values {
			d.readMember(out, v, depth)
		}
	case *ast.MappingValueNode:
		out.kind = mapNode
		out.pos = tokenPosition(n.Key.GetToken())
		d.readMember(out, n, depth)
	case *ast.SequenceNode:
		out.kind = listNode
		for i, v := range n.Values {
			if item := d.read(v, pointer+"/"+strconv.Itoa(i), depth+1); item != nil {
				out.items = append(out.items, item)
			}
		}
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		d.hole(at, "Write the value out where it is used.", "Anchors, aliases and merge keys are not used in manifests.")
		return nil
	case *ast.TagNode:
		d.hole(at, "Leave the tag out; put text into quotes.", "Tags are not used in manifests.")
		return nil
	default:
		return d.readScalar(out, n)
	}
	return out
}

func (d *document) readMember(out *node, v *ast.MappingValueNode, depth int) {
	key := v.Key.GetToken()
	at := tokenPosition(key)
	if _, explicit := v.Key.(*ast.MappingKeyNode); explicit || v.Key.IsMergeKey() {
		d.hole(at, "Write `name: value`.", "This form of key is not used in manifests.")
		return
	}
	if _, tagged := v.Key.(*ast.TagNode); tagged {
		d.hole(at, "Leave the tag out.", "Tags are not used in manifests.")
		return
	}
	name := key.Value
	for _, m := range out.members {
		if m.name == name {
			d.problem.at(at, "Keep one of the two.", "`%s` stands twice here, first in line %d.", name, m.keyPos.line)
			return
		}
	}
	value := d.read(v.Value, out.pointer+"/"+escapePointer(name), depth+1)
	if value == nil {
		return
	}
	// A missing value is marked where it would stand: at its key.
	if value.kind == scalarNode && value.value == nil {
		value.pos = at
	}
	out.members = append(out.members, member{name, at, value})
}

func (d *document) readScalar(out *node, n ast.Node) *node {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.value = n.Value
	case *ast.IntegerNode:
		out.value = json.Number(fmt.Sprint(n.Value))
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) {
			d.hole(out.pos, "Write a finite number.", "This number is not finite.")
			return nil
		}
		out.value = json.Number(strconv.FormatFloat(n.Value, 'f', -1, 64))
	case *ast.LiteralNode:
		out.value, out.style = n.Value.Value, blockStyle
	case *ast.StringNode:
		out.value = n.Value
		switch n.Token.Type {
		case token.SingleQuoteType:
			out.style = singleStyle
		case token.DoubleQuoteType:
			out.style = doubleStyle
		default:
			// A multi-line plain text keeps its first line only in the position.
			out.style = plainStyle
		}
	default:
		d.hole(out.pos, "Write text, a number, true, false, a list or a mapping.", "This kind of value is not used in manifests.")
		return nil
	}
	return out
}

// escapePointer writes a name as one token of a JSON Pointer (RFC 6901).
func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// get gives a member of a mapping, or nil.
func (n *node) get(name string) *node {
	if n == nil || n.kind != mapNode {
		return nil
	}
	for _, m := range n.members {
		if m.name == name {
			return m.node
		}
	}
	return nil
}

// keyPos is where the name of a member stands, or the node itself.
func (n *node) keyPos(name string) position {
	for _, m := range n.members {
		if m.name == name {
			return m.keyPos
		}
	}
	return n.pos
}

// has reports whether a mapping has the member.
func (n *node) has(name string) bool { return n.get(name) != nil }

// text gives a string, or "" when the node is none.
func (n *node) text() string {
	s, _ := n.asText()
	return s
}

func (n *node) asText() (string, bool) {
	if n == nil || n.kind != scalarNode {
		return "", false
	}
	s, ok := n.value.(string)
	return s, ok
}

// truth gives a boolean, or false when the node is none.
func (n *node) truth() bool {
	if n == nil {
		return false
	}
	b, _ := n.value.(bool)
	return b
}

// integer gives a whole number.
func (n *node) integer() (int, bool) {
	if n == nil {
		return 0, false
	}
	num, ok := n.value.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(string(num))
	return i, err == nil
}

// generic gives the node as a JSON value with json.Number for numbers.
func (n *node) generic() any {
	switch {
	case n == nil:
		return nil
	case n.kind == listNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.generic()
		}
		return list
	case n.kind == mapNode:
		m := make(map[string]any, len(n.members))
		for _, mem := range n.members {
			m[mem.name] = mem.node.generic()
		}
		return m
	}
	return n.value
}

// find gives the node at a JSON Pointer, or the deepest one on the way to it.
func (n *node) find(pointer string) *node {
	for _, tok := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" || n == nil {
			return n
		}
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(tok)
		next := n.get(name)
		if n.kind == listNode {
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.items) {
				next = n.items[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}
