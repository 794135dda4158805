package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a manifest, where it stands and what
// to write instead. Lines and columns count from 1, columns in characters.
type Problem struct {
	Line, Column int
	// Message says what is wrong, in one plain sentence.
	Message string
	// Instead says what to write, in one plain sentence.
	Instead string
	// Excerpt is the place with the lines around it, drawn for a terminal.
	Excerpt string
}

// String draws the problem as `tool validate` prints it, without a file name.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%d: %s\n", p.Line, p.Column, p.Message)
	b.WriteString(p.Excerpt)
	if p.Instead != "" {
		fmt.Fprintf(&b, "Instead: %s\n", p.Instead)
	}
	return b.String()
}

// ManifestError is why a manifest does not load: every problem that was found
// in one pass, in the order of the text.
type ManifestError struct {
	// File is the name under which the manifest was read; may be empty.
	File string
	// Tool is the name that the manifest gives its tool, as far as it can be read.
	Tool     string
	Problems []Problem
}

// Error draws all problems, each with its file, position and excerpt.
func (e *ManifestError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if e.File != "" {
			b.WriteString(e.File + ":")
		}
		b.WriteString(p.String())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// problems collects what is wrong with one text.
type problems struct {
	lines []string
	list  []Problem
	// warnings are problems that stop nothing.
	warnings []Problem
}

// newProblems splits the text into lines as the YAML parser does, which takes a
// lone carriage return for a line break.
func newProblems(src []byte) *problems {
	return &problems{lines: strings.Split(oneLineBreak.Replace(string(src)), "\n")}
}

var oneLineBreak = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// at adds a problem. One place can be wrong in one way only: the first
// finding there stands, later ones are mostly its consequences.
func (ps *problems) at(at position, instead, format string, args ...any) {
	for _, p := range ps.list {
		if p.Line == at.line && p.Column == at.column {
			return
		}
	}
	ps.list = append(ps.list, ps.problem(at, instead, format, args...))
}

// warn adds a remark that stops nothing.
func (ps *problems) warn(at position, instead, format string, args ...any) {
	ps.warnings = append(ps.warnings, ps.problem(at, instead, format, args...))
}

func (ps *problems) problem(at position, instead, format string, args ...any) Problem {
	at.line = min(max(at.line, 1), len(ps.lines))
	at.column = max(at.column, 1)
	return Problem{
		Line: at.line, Column: at.column, Instead: instead,
		Message: fmt.Sprintf(format, args...), Excerpt: ps.excerpt(at),
	}
}

// err is everything found so far as one error, or nil.
func (ps *problems) err() *ManifestError {
	if len(ps.list) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.list, byPosition)
	return &ManifestError{Problems: ps.list}
}

func byPosition(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// excerpt draws the line with one line before and after, and a caret under the
// column. Long lines are cut around the column.
func (ps *problems) excerpt(at position) string {
	const before, after, width = 1, 1, 100
	var b strings.Builder
	first := max(1, at.line-before)
	last := min(len(ps.lines), at.line+after)
	if last > at.line && strings.TrimSpace(ps.lines[last-1]) == "" {
		last--
	}
	from := 0
	if at.column > width-20 {
		from = at.column - width/2
	}
	for n := first; n <= last; n++ {
		mark := " "
		if n == at.line {
			mark = ">"
		}
		text := window(ps.lines[n-1], from, width)
		b.WriteString(strings.TrimRight(fmt.Sprintf("%s %3d | %s", mark, n, text), " ") + "\n")
		if n == at.line {
			b.WriteString("      | " + strings.Repeat(" ", max(0, at.column-1-from)) + "^\n")
		}
	}
	return b.String()
}

// window gives width characters of line from the given one on; tabs count as
// one character so that the caret stays right.
func window(line string, from, width int) string {
	line = strings.TrimSuffix(strings.ReplaceAll(line, "\t", " "), "\r")
	for ; from > 0 && line != ""; from-- {
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	n := 0
	for i := range line {
		if n == width {
			return line[:i] + "…"
		}
		n++
	}
	return line
}

// closest gives the candidate that a writer most likely meant, or "".
func closest(word string, candidates []string) string {
	// One edit in a short word, two in a longer one; none in a word of two letters.
	best, bestDistance := "", 3
	switch n := utf8.RuneCountInString(word); {
	case n <= 2:
		return ""
	case n <= 4:
		bestDistance = 2
	}
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the edits between two short words; a swap of two neighbours
// is one edit.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, row := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	var older []int
	for i := 1; i <= len(x); i++ {
		older, before, row = before, row, make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(y)]
}

// oneOf writes names for a sentence: `a`, `b` or `c`.
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = "`" + n + "`"
	}
	switch len(quoted) {
	case 0:
		return "nothing"
	case 1:
		return quoted[0]
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}
