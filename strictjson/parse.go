package strictjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"countersign/fault"
)

// step is one way down: into the member name of an object, or, where index is
// not negative, into an element of an array.
type step struct {
	name  string
	index int
}

// parser reads data once, from the front. Its recursion is bounded by
// Limits.Depth.
type parser struct {
	data    []byte
	pos     int
	lim     Limits
	nodes   int
	depth   int
	path    []step // to the value that is being read
	scratch []byte // the string that is being unescaped
}

func (p *parser) document() (any, error) {
	switch {
	case bytes.HasPrefix(p.data, []byte("\xef\xbb\xbf")):
		return nil, p.malformed(0, "a byte order mark is not allowed")
	case bytes.HasPrefix(p.data, []byte("\xff\xfe")), bytes.HasPrefix(p.data, []byte("\xfe\xff")):
		return nil, p.malformed(0, "the text must be UTF-8, without a byte order mark")
	}
	p.space()
	if p.pos == len(p.data) {
		return nil, p.malformed(p.pos, "the text is empty")
	}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.data) {
		return nil, p.malformed(p.pos, "there is text after the end of the value")
	}
	return v, nil
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// next skips white space and gives the byte after it, or 0 at the end. A NUL in
// the text can't be mistaken for the end: no rule of the grammar accepts either.
func (p *parser) next() byte {
	p.space()
	if p.pos == len(p.data) {
		return 0
	}
	return p.data[p.pos]
}

func (p *parser) value() (any, error) {
	p.nodes++
	if p.nodes > p.lim.Nodes {
		err := fault.New(fault.TooLong, "The JSON text holds more than %d values.", p.lim.Nodes)
		err.Malformed = true
		return nil, p.at(err, "one value too many")
	}
	switch c := p.next(); {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		return p.text()
	case c == '-' || isDigit(c):
		return p.number()
	case c == 't':
		return true, p.literal("true")
	case c == 'f':
		return false, p.literal("false")
	case c == 'n':
		return nil, p.literal("null")
	}
	return nil, p.unexpected("a value")
}

func (p *parser) literal(word string) error {
	if !bytes.HasPrefix(p.data[p.pos:], []byte(word)) {
		return p.malformed(p.pos, "expected "+word)
	}
	p.pos += len(word)
	return nil
}

// open counts one more array or object that is entered.
func (p *parser) open() error {
	if p.depth == p.lim.Depth {
		return p.at(fault.New(fault.TooDeep, "The JSON text is nested more than %d levels deep.", p.lim.Depth), "one level too deep")
	}
	p.depth++
	p.pos++
	return nil
}

func (p *parser) close() {
	p.depth--
	p.pos++
}

func (p *parser) array() (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	list := []any{}
	if p.next() == ']' {
		p.close()
		return list, nil
	}
	for {
		p.path = append(p.path, step{index: len(list)})
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		list = append(list, v)
		switch p.next() {
		case ',':
			p.pos++
		case ']':
			p.close()
			return list, nil
		default:
			return nil, p.unexpected("a comma or ]")
		}
	}
}

func (p *parser) object() (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	members := map[string]any{}
	if p.next() == '}' {
		p.close()
		return members, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.unexpected("a member name in double quotes")
		}
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		p.path = append(p.path, step{name: name, index: -1})
		if _, twice := members[name]; twice {
			return nil, p.at(fault.New(fault.DuplicateKey, "The member %s stands twice in one object.", Echo(name)), "is a duplicate")
		}
		if p.next() != ':' {
			return nil, p.unexpected("a colon")
		}
		p.pos++
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		members[name] = v
		switch p.next() {
		case ',':
			p.pos++
		case '}':
			p.close()
			return members, nil
		default:
			return nil, p.unexpected("a comma or }")
		}
	}
}

// number reads the longest number of the grammar at pos and applies S61 to it.
func (p *parser) number() (any, error) {
	n, bad := scanNumber(p.data[p.pos:])
	if bad != "" {
		return nil, p.malformed(p.pos+n, bad)
	}
	text := string(p.data[p.pos : p.pos+n])
	number, reason := admit(text)
	if reason != "" {
		return nil, p.at(outOfRange(text, reason), reason)
	}
	p.pos += n
	return number, nil
}

// at adds the place that is being read to a refusal.
func (p *parser) at(err *fault.Error, detail string) error {
	return err.At(p.pointer(), detail)
}

func (p *parser) pointer() string {
	var b []byte
	for _, s := range p.path {
		b = append(b, '/')
		if s.index >= 0 {
			b = strconv.AppendInt(b, int64(s.index), 10)
		} else {
			b = appendToken(b, s.name)
		}
	}
	return string(b)
}

// malformed is a syntax error at the byte offset.
func (p *parser) malformed(offset int, what string) error {
	line, column := p.position(offset)
	return p.at(fault.New(fault.MalformedJSON, "The text is not valid JSON at line %d, column %d: %s.", line, column, what), what)
}

// unexpected is a syntax error at pos, where something else was due.
func (p *parser) unexpected(due string) error {
	found := "the text ends"
	if p.pos < len(p.data) {
		_, size := utf8.DecodeRune(p.data[p.pos:])
		found = "found " + Echo(string(p.data[p.pos:p.pos+size]))
	}
	return p.malformed(p.pos, found+" where "+due+" is expected")
}

// position turns a byte offset into line and column, both from 1, the column
// in characters.
func (p *parser) position(offset int) (line, column int) {
	before := p.data[:offset]
	line = bytes.Count(before, []byte("\n")) + 1
	column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return line, column
}

// kindOf names the JSON type of a value for a detail.
func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case nil:
		return "null"
	case json.Number:
		return "a number"
	}
	return "something else"
}
