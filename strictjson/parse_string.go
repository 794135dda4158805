package strictjson

import (
	"fmt"
	"unicode/utf8"

	"countersign/fault"
)

// A string is refused in this order: by the first wrong byte or escape in it,
// then by its length, then by its grapheme clusters.

// text reads the string value at pos, which is at its opening quote.
func (p *parser) text() (any, error) {
	raw, plain, err := p.quoted(false)
	if err != nil {
		return nil, err
	}
	if len(raw) > p.lim.StringBytes {
		return nil, p.at(fault.New(fault.TooLong, "A string has %d bytes. The limit is %d bytes.", len(raw), p.lim.StringBytes), "is too long")
	}
	s := string(raw)
	if !plain && hasTower(s) {
		return nil, p.at(fault.New(fault.TooLong, "A string holds one character made of more than %d code points.", maxCluster), "stacks too many code points on one character")
	}
	return s, nil
}

// name reads a member name. The pointer of a refusal is the object's, as the
// member has no usable name.
func (p *parser) name() (string, error) {
	raw, plain, err := p.quoted(true)
	if err != nil {
		return "", err
	}
	if len(raw) > p.lim.NameBytes {
		return "", p.badName(fmt.Sprintf("The member name %s has %d bytes. The limit is %d bytes.", Echo(string(raw)), len(raw), p.lim.NameBytes), "has a member with too long a name")
	}
	s := string(raw)
	if !plain && hasTower(s) {
		return "", p.badName(fmt.Sprintf("The member name %s holds one character made of more than %d code points.", Echo(s), maxCluster), "has a member whose name stacks too many code points on one character")
	}
	return s, nil
}

func (p *parser) badName(detail, at string) error {
	err := fault.New(fault.TooLong, "%s", detail)
	err.Malformed = true
	return p.at(err, at)
}

// quoted reads a string of the grammar and leaves pos after it. The bytes are
// unescaped and valid UTF-8; they are only good until the next call. plain
// means all ASCII.
func (p *parser) quoted(isName bool) (raw []byte, plain bool, err error) {
	start := p.pos + 1
	plain = true
	for i := start; i < len(p.data); {
		switch c := p.data[i]; {
		case c == '"':
			p.pos = i + 1
			return p.data[start:i], plain, nil
		case c == '\\':
			// From the first escape on, the text differs from the bytes.
			p.scratch = append(p.scratch[:0], p.data[start:i]...)
			return p.escaped(i, plain, isName)
		case c < 0x20:
			return nil, false, p.control(i)
		case c < utf8.RuneSelf:
			i++
		default:
			size, err := p.multibyte(i)
			if err != nil {
				return nil, false, err
			}
			plain = false
			i += size
		}
	}
	return nil, false, p.malformed(len(p.data), "the text ends inside a string")
}

// escaped continues quoted at offset i, into scratch.
func (p *parser) escaped(i int, plain, isName bool) ([]byte, bool, error) {
	for i < len(p.data) {
		switch c := p.data[i]; {
		case c == '"':
			p.pos = i + 1
			return p.scratch, plain, nil
		case c == '\\':
			r, size, err := p.escape(i)
			if err != nil {
				return nil, false, err
			}
			if r == 0 {
				return nil, false, p.nul(isName)
			}
			plain = plain && r < utf8.RuneSelf
			p.scratch = utf8.AppendRune(p.scratch, r)
			i += size
		case c < 0x20:
			return nil, false, p.control(i)
		case c < utf8.RuneSelf:
			p.scratch = append(p.scratch, c)
			i++
		default:
			size, err := p.multibyte(i)
			if err != nil {
				return nil, false, err
			}
			plain = false
			p.scratch = append(p.scratch, p.data[i:i+size]...)
			i += size
		}
	}
	return nil, false, p.malformed(len(p.data), "the text ends inside a string")
}

// multibyte checks the character at offset i, which is not ASCII. DecodeRune
// refuses overlong forms, encoded surrogates and what is above U+10FFFF.
func (p *parser) multibyte(i int) (size int, err error) {
	r, size := utf8.DecodeRune(p.data[i:])
	if r == utf8.RuneError && size == 1 {
		return 0, p.invalidText(i, "a byte that is not valid UTF-8")
	}
	return size, nil
}

// escape decodes the escape at offset i and says how many bytes it takes.
func (p *parser) escape(i int) (r rune, size int, err error) {
	if i+1 == len(p.data) {
		return 0, 0, p.malformed(len(p.data), "the text ends inside a string")
	}
	switch c := p.data[i+1]; c {
	case '"', '\\', '/':
		return rune(c), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
		return p.escapeU(i)
	}
	return 0, 0, p.malformed(i, "a backslash must be followed by one of \" \\ / b f n r t u")
}

// escapeU decodes \uXXXX, or two of them that are a surrogate pair.
func (p *parser) escapeU(i int) (r rune, size int, err error) {
	r, ok := hex4(p.data[i:])
	if !ok {
		return 0, 0, p.malformed(i, "\\u must be followed by four hexadecimal digits")
	}
	switch {
	case r < 0xD800 || r > 0xDFFF:
		return r, 6, nil
	case r < 0xDC00:
		if low, ok := hex4(p.data[i+6:]); ok && 0xDC00 <= low && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 12, nil
		}
	}
	return 0, 0, p.invalidText(i, "half of a surrogate pair")
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func (p *parser) control(offset int) error {
	return p.malformed(offset, fmt.Sprintf("the control character U+%04X must be escaped in a string", p.data[offset]))
}

func (p *parser) invalidText(offset int, what string) error {
	line, column := p.position(offset)
	return p.at(fault.New(fault.InvalidText, "A string holds %s at line %d, column %d. The text must be valid UTF-8.", what, line, column), "holds "+what)
}

// nul refuses U+0000: C libraries, PostgreSQL and file names end there, so what
// one reader sees another does not (S62).
func (p *parser) nul(isName bool) error {
	if isName {
		return p.at(fault.New(fault.UnknownMember, "A member name holds the character U+0000. No member has such a name."), "has a member whose name holds U+0000")
	}
	return p.at(fault.New(fault.ForbiddenText, "A string holds the character U+0000, which is not allowed."), "holds U+0000")
}
