package tools

import (
	"strings"
	"unicode/utf8"
)

// at gives the place in the source of the byte offset in a text's value: an
// expression inside a quoted or folded text is marked where it really stands.
func (n *node) at(offset int) position {
	value, ok := n.asText()
	if !ok {
		return n.pos
	}
	offset = min(max(offset, 0), len(value))
	s := newSourceReader(n)
	for done := 0; done < offset; {
		_, size := utf8.DecodeRuneInString(value[done:])
		s.advance()
		done += size
	}
	return s.settled()
}

// sourceReader walks the source of one scalar, one character of its value at a
// time.
type sourceReader struct {
	lines []string
	pos   position
	style scalarStyle
	// indent is where the lines of a block begin.
	indent int
}

func newSourceReader(n *node) *sourceReader {
	s := &sourceReader{lines: n.doc.lines, pos: n.pos, style: n.style}
	switch n.style {
	case singleStyle, doubleStyle:
		s.pos.column++ // past the quote
	case blockStyle:
		for _, line := range s.lines[min(n.pos.line, len(s.lines)):] {
			if text := strings.TrimLeft(line, " "); strings.TrimSpace(text) != "" {
				s.indent = len(line) - len(text)
				break
			}
		}
		s.nextLine()
	}
	return s
}

// rest is what stands in the line from the current place on.
func (s *sourceReader) rest() string {
	if s.pos.line > len(s.lines) {
		return ""
	}
	line := s.lines[s.pos.line-1]
	for range s.pos.column - 1 {
		if line == "" {
			return ""
		}
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	return strings.TrimRight(line, "\r")
}

// advance passes one character of the value. A line break in the source is one
// character of the value, a blank or a new line.
func (s *sourceReader) advance() {
	rest := s.rest()
	if rest == "" || s.style != blockStyle && strings.TrimRight(rest, " \t") == "" {
		s.nextLine()
		return
	}
	switch {
	case s.style == doubleStyle && rest[0] == '\\':
		s.pos.column += escapeLength(rest)
	case s.style == singleStyle && strings.HasPrefix(rest, "''"):
		s.pos.column += 2
	default:
		s.pos.column++
	}
}

// settled is the current place, or the next line's begin at the end of a line.
func (s *sourceReader) settled() position {
	if s.style == blockStyle && s.rest() == "" && s.pos.line < len(s.lines) {
		s.nextLine()
	}
	return s.pos
}

// nextLine goes to where the text goes on in the next line. Outside blocks blank
// lines and indentation do not count.
func (s *sourceReader) nextLine() {
	for s.pos.line < len(s.lines) {
		s.pos.line++
		if s.style == blockStyle {
			s.pos.column = 1 + s.indent
			return
		}
		line := s.lines[s.pos.line-1]
		if text := strings.TrimLeft(line, " \t"); text != "" {
			s.pos.column = 1 + len(line) - len(text)
			return
		}
	}
}

// escapeLength is how many characters an escape of a double-quoted text takes.
func escapeLength(rest string) int {
	if len(rest) < 2 {
		return 1
	}
	switch rest[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
