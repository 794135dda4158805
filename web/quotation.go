package web

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"countersign/ledger"
	"countersign/tools"
)

// piece is a part of a headline: the tool's own words, or a quotation of what the
// agent wrote as free text, so that nobody takes it for the gateway's word.
type piece struct {
	Text   string
	Quoted bool
}

// shortestQuote is the shortest free text, in characters, that is looked for in a
// headline: shorter ones stand everywhere by chance.
const shortestQuote = 4

// freeWords collects the strings of args that the schema does not narrow.
// Redacted ones are left out: they are not shown at all.
func freeWords(v, redacted any, s schema) []string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		other, _ := redacted.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, freeWords(v[name], other[name], s.member(name))...)
		}
		return out
	case []any:
		var out []string
		other, _ := redacted.([]any)
		for i := range min(len(v), len(other)) {
			out = append(out, freeWords(v[i], other[i], s.items())...)
		}
		return out
	case string:
		if shown, ok := redacted.(string); ok && shown == v && s.free() && utf8.RuneCountInString(v) >= shortestQuote {
			return []string{v}
		}
	}
	return nil
}

// quoted parts a headline into what the tool says and what is the agent's own
// text. Quotations that touch or overlap become one.
func quoted(headline string, words []string) []piece {
	own := make([]bool, len(headline))
	for _, word := range words {
		for from := 0; from < len(headline); {
			i := strings.Index(headline[from:], word)
			if i < 0 {
				break
			}
			for j := range len(word) {
				own[from+i+j] = true
			}
			from += i + len(word)
		}
	}
	var out []piece
	for from := 0; from < len(headline); {
		to := from + 1
		for to < len(headline) && own[to] == own[from] {
			to++
		}
		out = append(out, piece{Text: headline[from:to], Quoted: own[from]})
		from = to
	}
	return out
}

// cutPieces keeps the first max characters, and says so where more are left.
func cutPieces(list []piece, max int) []piece {
	for i, p := range list {
		n := utf8.RuneCountInString(p.Text)
		if n > max {
			out := slices.Clone(list[:i])
			if max > 0 {
				out = append(out, piece{Text: firstRunes(p.Text, max), Quoted: p.Quoted})
			}
			return append(out, piece{Text: "…"})
		}
		max -= n
	}
	return list
}

// headline is an operation's headline for one line: sensitive values hidden, the
// agent's own text marked, and cut where it is long; its page has all of it.
func headline(text string, spec *tools.Tool, args, redacted map[string]any) []piece {
	var s schema
	if spec != nil {
		s = schemaOf(spec.InputSchema)
	}
	d := drawer{mask: maskOf(args, redacted)}
	return cutPieces(quoted(d.hide(text), freeWords(args, redacted, s)), headChars)
}

// headlineOf is the headline of an operation whose plan has not been read. One
// without a plan is named by its tool, since nothing tells what is sensitive.
func (p *Pages) headlineOf(ctx context.Context, op ledger.Operation) []piece {
	plan, err := p.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return []piece{{Text: op.Tool}}
	}
	spec, redacted := p.redact(ctx, op, plan)
	return headline(op.Headline, spec, plan.Args, redacted)
}
