package web_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tools"
	"countersign/tools/tooltest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile are texts that try to be more than text, or other than they seem.
var hostile = map[string]string{
	"plain":        "Birch Bakery, Quay Street 4",
	"bidi":         "pay \u202e00.1\u202c EUR to \u2066mara\u2069 \u200f\u061c",
	"zero-width":   "refu\u200bnd to al\u200dice\ufeff and b\u2060ob\u00ad",
	"tags":         "hello\U000E0041\U000E0050\U000E0050\U000E007F world",
	"variation":    "one\ufe0f two\U000E0100 three\u3164 \u2800",
	"controls":     "bell\x07 esc\x1b[31m null-ish\x01 del\x7f next\u0085",
	"private":      "logo \uE000 and \U000F0000",
	"separators":   "one\u2028two\u2029three",
	"template":     "{{.Secret}} ${7*7} %s%n <%= 1 %> #{x} {{template \"x\"}}",
	"script":       `<script>alert(document.domain)</script><img src=x onerror=alert(1)>`,
	"attributes":   `" onfocus="alert(1)" autofocus x='y' ` + "`",
	"closing":      `</textarea></bdi></td></table></section></main><h1>Approved</h1>`,
	"entities":     "&lt;b&gt; &amp;amp; &#x202e; &nbsp;",
	"comment":      "<!-- --> ]]> <![CDATA[ x ]]> --!>",
	"link":         "javascript:alert(1) data:text/html,x https://evil.example/approve [click](https://evil.example)",
	"markdown":     "# Approved by finance\n**All checks passed** ![x](//evil.example/x.png)",
	"pretend":      "⟨U+202E⟩ is not what ⟨0xFF⟩ says, \u202e is",
	"htmx":         `<div hx-get="/sign-out" hx-trigger="load"></div> hx-post=/x`,
	"homoglyphs":   "bіlling@аcme.example раypal.com ехample.com",
	"full-width":   "ａｐｐｒｏｖｅ ９９９ ＠",
	"marks":        "a" + strings.Repeat("\u0301", 12) + "b" + strings.Repeat("\u0489", 6) + " cafe\u0301",
	"right-left":   "שלום 120.00 مرحبا 50.00",
	"emoji":        "👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
	"long":         "BEGIN " + strings.Repeat("0123456789", 1000) + " END",
	"newlines":     "first line" + strings.Repeat("\n", 5000) + "last line",
	"carriage":     "one\r\ntwo\rthree\n",
	"long-hidden":  strings.Repeat("x", 250) + strings.Repeat("\u200b", 9_000) + "pay everything" + strings.Repeat("y", 250),
	"one-word":     strings.Repeat("W", 299),
	"quotes":       `"quoted" 'single' \ backslash / slash`,
	"only-hidden":  "\u200b\u200b\u200b",
	"spaces":       "   leading and trailing   \t\ttabs",
	"wide":         "﷽ ꧁ 𒐫 ௵",
	"empty":        "",
	"not-a-number": "1e400 NaN 0x10 -0 1,000.00",
}

// echo is a tool that repeats what it is told wherever a plan, an answer or a
// prediction has text.
func echo(said string) *tools.Tool {
	t := tooltest.FakeTool("echo_words", tooltest.Irreversible(), tooltest.WithApproval(tooltest.Approve("support", 1)),
		tooltest.WithEffects(func(map[string]any) []tools.Effect {
			return []tools.Effect{{
				Verb: said, Target: said, Summary: said, Count: 1,
				Before: map[string]any{said: said, "same": said}, After: map[string]any{said: said + "!", "same": said},
			}}
		}))
	tooltest.FakeOf(t).SetWorld(said, said) // what the prediction was read from
	tooltest.FakeOf(t).Script(tooltest.Step{Verdict: tools.Unknown, Because: said})
	t.Connector = echoing{tooltest.FakeOf(t), said}
	t.CheckArgs = func(args map[string]any) (map[string]any, []tools.Warning, error) { return args, nil, nil }
	t.BusinessKey = func(map[string]any, tools.Agent) (string, error) { return "echo/1", nil }
	t.InputSchema = json.RawMessage(`{"type":"object","properties":{"checked":{"enum":["x"]},"list":{"items":{"properties":{"inner":{"pattern":"."}}}}}}`)
	t.Description = said
	t.Lacks, t.Warnings = []string{said}, []string{said}
	t.Manifest = []byte(said)
	return t
}

// echoing is a connector that makes a plan of what it is told.
type echoing struct {
	*tooltest.Fake
	said string
}

func (e echoing) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	p, err := e.Fake.Preview(ctx, call)
	p.Headline, p.UndoText, p.Target = e.said, e.said, e.said
	p.Warnings = []tools.Warning{{Code: "other", Text: e.said}}
	return p, err
}

// Whatever others write stays text: on every page that shows it, in every place.
func TestHostile_StaysText(t *testing.T) {
	for name, said := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, echo(said))
			in := map[string]any{
				"words": said, "checked": "x", said + "_name": true, "list": []any{map[string]any{"inner": said}, said, []any{}, map[string]any{}, nil},
			}
			op := r.askIn(r.agent, "echo_words", in, &ledger.Run{ID: "run_" + said, Step: said, Call: said})
			mara := r.as("mara", "support")
			pages := map[string]page{"operation": mara.get(at(op.ID)), "approvals": mara.get("/approvals"), "ledger": mara.get("/operations"), "tools": mara.get("/tools"), "tool": mara.get("/tools/echo_words")}
			f := pages["operation"].form(t, decision(op.ID), "approve")
			typed := string([]rune(said)[:min(300, utf8.RuneCountInString(said))])
			pages["refused"] = mara.send(f, "reason", typed)
			var ticks []string
			for _, box := range f.required {
				ticks = append(ticks, box, "yes")
			}
			require.Equal(t, 303, mara.send(f, append(ticks, "reason", typed)...).Status)
			r.work()
			require.Equal(t, ledger.Unknown, r.op(op.ID).State)
			pages["unknown"] = mara.get(at(op.ID))
			pages["doubts"] = mara.get("/approvals")
			pages["resolve"] = mara.post(at(op.ID)+"/resolve", "happened", typed, "effect_id", typed, "reason", typed)
			for where, p := range pages {
				require.Contains(t, []int{200, 422}, p.Status, where)
				wellMade(t, p)
				doc := p.tree(t)
				for _, tag := range []string{"img", "b", "i"} {
					for _, n := range find(doc, byTag(tag)) {
						require.True(t, tag != "img" && len(n.Attr) <= 1, "%s: <%s> came in", where, tag)
					}
				}
				require.Regexp(t, `^[A-Za-z0-9_]+( · op_[0-9a-z]+)? · Countersign$`, content(find(doc, byTag("title"))[0]), "%s: a title has no words of others (S43)", where)
				require.NotContains(t, p.Body, "ZgotmplZ", where)
			}
			drawnInFull(t, pages["operation"], said)
			golden(t, name, pages["operation"])
		})
	}
}

// drawnInFull wants that nothing of a value is missing on the page, and that what
// is long is told to be so.
func drawnInFull(t *testing.T, p page, said string) {
	t.Helper()
	values := find(p.tree(t), byClass("words"))
	require.Len(t, values, 1)
	whole := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strictjson.Visible(said))
	got := rawText(values[0])
	if utf8.RuneCountInString(said) <= 300 && strings.Count(said, "\n") < 12 {
		if !strings.Contains(said, "\u0301\u0301") { // towers of marks are taken apart on purpose
			require.Contains(t, got, whole)
		}
		return
	}
	whole = strings.ReplaceAll(whole, strings.Repeat("⟨U+200B⟩", 9_000), "⟨U+200B⟩×9,000")
	require.Contains(t, got, whole, "behind “show all” is all of it")
	sum := sha256.Sum256([]byte(said))
	require.Contains(t, got, "sha256:"+hex.EncodeToString(sum[:]))
	require.Contains(t, got, fmt.Sprintf("%d", strings.Count(said, "\n")+1)[:1])
	require.NotEmpty(t, find(values[0], byClass("gap")), "what is not drawn is counted")
}

// rawText is an element's text as it stands.
func rawText(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// golden compares how the agent's words are drawn with the file that was read and
// found good.
func golden(t *testing.T, name string, p page) {
	t.Helper()
	words := find(p.tree(t), byClass("words"))
	require.Len(t, words, 1)
	var b strings.Builder
	require.NoError(t, html.Render(&b, words[0]))
	got := strings.ReplaceAll(b.String(), assetSum(t, p), "SUM") + "\n"
	file := filepath.Join("testdata", "hostile", name+".html")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "if the new drawing is good: go test ./web -run Hostile -update")
}

// assetSum is the checksum in the addresses of static files.
func assetSum(t *testing.T, p page) string {
	t.Helper()
	_, rest, found := strings.Cut(p.Body, "/static/")
	require.True(t, found)
	sum, _, _ := strings.Cut(rest, "/")
	return sum
}

// Numbers are as given, grouped, and flagged where their size is hard to see.
func TestValues_Numbers(t *testing.T) {
	tool := echo("x")
	r := newRig(t, tool)
	in := map[string]any{}
	for name, spelled := range map[string]string{"a": "1e3", "b": "1234567.891", "c": "-1200", "d": "123456789012345", "e": "1234567890123456", "f": "0.000001", "g": "1E-7", "h": "12"} {
		in[name] = json.Number(spelled)
	}
	op := r.ask(r.agent, "echo_words", in)
	p := r.as("mara", "support").get(at(op.ID))
	text := content(p.tree(t))
	for _, want := range []string{
		"number1e3", "its value is 1,000.", "1,234,567.891", "-1,200", "123,456,789,012,345", "1,234,567,890,123,456", "A number of 16 digits.",
		"0.000001", "1E-7", "number12",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "A number of 15 digits")
}

// Structure is rows with paths; thousands of them go behind a "show", all of them.
func TestValues_Structure(t *testing.T) {
	r := newRig(t, echo("x"))
	many := []any{}
	for i := range 3000 {
		many = append(many, map[string]any{"n": json.Number(fmt.Sprint(i)), "s": "v"})
	}
	op := r.ask(r.agent, "echo_words", map[string]any{"many": many, "none": map[string]any{}, "deep": map[string]any{"a": map[string]any{"b": []any{"c"}}}})
	p := r.as("mara", "support").get(at(op.ID))
	text := content(p.tree(t))
	require.Contains(t, text, "3,000 items")
	require.Contains(t, text, "many › 3000 › n")
	require.Contains(t, text, "deep › a › b › 1")
	require.Contains(t, text, "more values")
	require.Equal(t, []string{"checked", "read"}, p.form(t, decision(op.ID), "approve").required)
}

// Sensitive arguments never reach the page, not even inside other texts.
func TestSensitive(t *testing.T) {
	const secret = "4929-1111-2222-3333"
	tool := tooltest.FakeTool("charge_card", tooltest.WithSensitive("note"), tooltest.WithApproval(tooltest.Approve("support", 1)),
		tooltest.WithEffects(func(args map[string]any) []tools.Effect {
			return []tools.Effect{{Verb: "charge", Target: "card/" + secret, Summary: "Card " + secret, After: map[string]any{"card": args["note"]}, Count: 1}}
		}))
	r := newRig(t, headed(tool, "Charge the card "+secret))
	op := r.ask(r.agent, "charge_card", args("order_id", "ord_1", "note", secret))
	mara := r.as("mara", "support")
	for _, path := range []string{at(op.ID), "/approvals", "/operations"} {
		p := mara.get(path)
		require.NotContains(t, p.Body, secret, path)
		require.NotContains(t, p.Body, "2222", path)
	}
	p := mara.get(at(op.ID))
	require.Contains(t, p.Body, "marked sensitive by the tool")
	require.Contains(t, p.one(t, "secret"), "redacted:")
	require.NotContains(t, p.Body, "data-canonical", "what is hidden is not there for a script either")
	require.Contains(t, content(find(p.tree(t), byTag("h1"))[0]), "Charge the card [hidden]")

	// When no version of the tool is known, nothing tells what is sensitive.
}
