package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"unicode/utf8"

	"countersign/ledger"
	"countersign/strictjson"
)

//go:embed templates
var templateFiles embed.FS

// views are the pages; each has one file of its own in templates/. parts are the
// pieces that they share. A file that is in neither list stops the start.
var (
	viewNames = []string{"approvals", "audit", "forensics", "freezes", "operation", "operations", "problem", "run", "runs", "setup", "sign-in", "tool", "tools", "trail", "undo", "undos", "unknown"}
	partNames = []string{"arguments", "badges", "decision", "doubt", "effects", "forms", "layout", "record", "text", "who"}
)

// parseViews parses all templates and accounts for every file.
func parseViews(files fs.FS) (map[string]*template.Template, error) {
	known := map[string]bool{}
	base := template.New("").Funcs(templateFuncs)
	for _, name := range partNames {
		file := "templates/parts/" + name + ".html"
		known[file] = true
		if _, err := base.ParseFS(files, file); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
	}
	views := map[string]*template.Template{}
	for _, name := range viewNames {
		file := "templates/" + name + ".html"
		known[file] = true
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, file)
		}
		if err == nil && t.Lookup("content") == nil {
			err = fmt.Errorf("%s defines no content", file)
		}
		if err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
		views[name] = t
	}
	err := fs.WalkDir(files, "templates", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !known[name] {
			err = fmt.Errorf("web: the template %s is on no list", path.Clean(name))
		}
		return err
	})
	return views, err
}

var templateFuncs = template.FuncMap{
	"asset":  AssetURL,
	"icon":   func(name string) string { return AssetURL("vendor/icons.svg") + "#" + name },
	"runs":   runs,
	"inline": inline,
	"count":  count,
	"bytes":  func(n int64) string { return count(int(n), "byte", "bytes") },
	"dict":   dict,
	// typed is what a form said before it was refused; the zero form for others.
	"typed": func(t typedForm, form string) typedForm {
		if t.Form == form {
			return t
		}
		return typedForm{}
	},
	"noticeIcon": func(n *notice) string {
		if n.Bad {
			return "alert-triangle"
		}
		return "check"
	},
}

// count writes a number with its noun: "1 object", "2 objects".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return groupDigits(strconv.Itoa(n)) + " " + many
}

// dict hands several values to a part.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: a name without a value")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// frame is what every page shows around its content.
type frame struct {
	// Title never holds words of others: it leaves the page, for tabs and history.
	Title   string
	Section string // which entry of the menu the page is in: approvals, unknown, operations, runs, freezes, audit, tools
	Person  string // the name of who is signed in
	// Waiting counts what waits for people, up to a full page of each: requests for
	// approval, and unknown outcomes that only a person can settle.
	Waiting int
	More    bool
	// Audited: there are pages of the audit.
	Audited bool
	Demo    bool
	ShopURL string
	// PublicURL is for lines that are pasted into a terminal.
	PublicURL string
	Version   string
	Notice    *notice
	// Stream is the address of the events that say when this page has changed, and
	// Self the address to fetch it again; both empty on pages that stay as they are.
	Stream string
	Self   string
}

// notice is what the last action did, or why it did nothing.
type notice struct {
	Bad  bool
	Text string
	// Onward leads back to the queue, after a decision; Unknown to what else is
	// unknown.
	Onward, Unknown bool
	// About is the operation that a notice on another page is about.
	About string
}

// frame starts a page for whoever is signed in.
func (p *Pages) frame(r *http.Request, section, title string) frame {
	f := frame{Title: title, Section: section, Audited: p.cfg.Audit != nil, Demo: p.cfg.Demo, ShopURL: p.cfg.ShopURL, PublicURL: p.cfg.PublicURL, Version: p.cfg.Version}
	o := person(r.Context())
	if o.ID == "" {
		return f
	}
	f.Person = o.Name
	// The number in the menu is a courtesy; a page does not fail for it.
	if n, more, err := p.waiting(r.Context(), o.Tenant); err == nil {
		f.Waiting, f.More = n, more
	}
	return f
}

// waiting counts what waits for people: requests for approval, and unknown
// outcomes that only a person can settle, each up to a full page.
func (p *Pages) waiting(ctx context.Context, tenant string) (n int, more bool, err error) {
	asks, err1 := p.cfg.Approvals.Queue(ctx, tenant, "", queueLimit)
	needed := true
	doubts, err2 := p.cfg.Ledger.List(ctx, ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Unknown}, OnList: &needed, Limit: queueLimit})
	return len(asks.Operations) + len(doubts.Operations), asks.Next != "" || doubts.Next != "", errors.Join(err1, err2)
}

// render writes a page once it is whole. v is a struct around a frame.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, name string, v any) {
	var buf bytes.Buffer
	if err := p.views[name].ExecuteTemplate(&buf, "layout", v); err != nil {
		p.cfg.Logger.ErrorContext(r.Context(), "a page could not be rendered", "page", name, "error", err)
		http.Error(w, "The page could not be made. Nothing was changed by looking at it.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	// A client that left is nobody to tell.
	_, _ = w.Write(drawn(buf.Bytes()))
}

// drawn is the last net (S44): whatever a template let through that the eye does
// not see leaves as a visible escape. An escape has no character that means
// anything to HTML.
func drawn(page []byte) []byte {
	if !bytes.ContainsFunc(page, hidden) && utf8.Valid(page) {
		return page
	}
	out := make([]byte, 0, len(page)+64)
	for len(page) > 0 {
		c, size := utf8.DecodeRune(page)
		switch {
		case c == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, "⟨0x%02X⟩", page[0])
		case hidden(c):
			out = fmt.Appendf(out, "⟨U+%04X⟩", c)
		default:
			out = append(out, page[:size]...)
		}
		page = page[size:]
	}
	return slices.Clip(out)
}

func hidden(c rune) bool { return strictjson.Invisible(c) }
