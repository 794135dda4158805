package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// tree parses a page.
func (p page) tree(t testing.TB) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(p.Body))
	require.NoError(t, err)
	return doc
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func class(n *html.Node, want string) bool {
	v, _ := attr(n, "class")
	for name := range strings.FieldsSeq(v) {
		if name == want {
			return true
		}
	}
	return false
}

// find gives the elements for which want holds, in the order of the page.
func find(n *html.Node, want func(*html.Node) bool) []*html.Node {
	var out []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && want(d) {
			out = append(out, d)
		}
	}
	return out
}

func byClass(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return class(n, name) }
}

func byTag(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.Data == name }
}

// content is an element's text, its white space folded.
func content(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// one is the text of the only element of a class.
func (p page) one(t testing.TB, name string) string {
	t.Helper()
	found := find(p.tree(t), byClass(name))
	require.Len(t, found, 1, "elements of class %s in\n%s", name, p.Body)
	return content(found[0])
}

// notice is the message of the page, empty when there is none.
func (p page) notice(t testing.TB) string {
	t.Helper()
	for _, n := range find(p.tree(t), byClass("note")) {
		if id, _ := attr(n, "id"); id != "ended" {
			return content(n)
		}
	}
	return ""
}

// form is a form as a browser without scripts would send it.
type form struct {
	action string
	fields url.Values
	// required are fields that a browser wants to be filled or ticked.
	required []string
}

// forms lists the forms of a page that post.
func (p page) forms(t testing.TB) []form {
	t.Helper()
	var out []form
	for _, f := range find(p.tree(t), byTag("form")) {
		if method, _ := attr(f, "method"); method != "post" {
			continue
		}
		action, _ := attr(f, "action")
		one := form{action: action, fields: url.Values{}}
		for _, field := range find(f, func(n *html.Node) bool { return n.Data == "input" || n.Data == "textarea" }) {
			name, named := attr(field, "name")
			if !named {
				continue
			}
			kind, _ := attr(field, "type")
			value, _ := attr(field, "value")
			_, checked := attr(field, "checked")
			if field.Data == "textarea" {
				value = ""
				if field.FirstChild != nil {
					value = field.FirstChild.Data
				}
			}
			if _, required := attr(field, "required"); required {
				one.required = append(one.required, name)
			}
			if kind != "checkbox" && kind != "radio" || checked {
				one.fields.Set(name, value)
			}
		}
		out = append(out, one)
	}
	return out
}

// form gives the one form with an action, and with a decision of that word if any.
func (p page) form(t testing.TB, action, word string) form {
	t.Helper()
	for _, f := range p.forms(t) {
		if f.action == action && f.fields.Get("decision") == word {
			return f
		}
	}
	require.Fail(t, "no such form", "%s %s in\n%s", action, word, p.Body)
	return form{}
}

// hasForm reports whether the page offers a form.
func (p page) hasForm(t testing.TB, action, word string) bool {
	t.Helper()
	for _, f := range p.forms(t) {
		if f.action == action && f.fields.Get("decision") == word {
			return true
		}
	}
	return false
}

// send fills a form in and sends it.
func (b *browser) send(f form, pairs ...string) page {
	b.t.Helper()
	all := []string{}
	for name := range f.fields {
		all = append(all, name, f.fields.Get(name))
	}
	return b.post(f.action, append(all, pairs...)...)
}

func mustURL(t testing.TB, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u
}
