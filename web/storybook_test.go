package web_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/strictjson"
)

// Every page in every situation, whole and within the rules that hold for all.
// WEB_STORYBOOK names a folder in which the pages are left to be looked at.
func TestStorybook(t *testing.T) {
	s := newStage(t)
	folder := os.Getenv("WEB_STORYBOOK")
	for _, story := range s.stories {
		t.Run(story.name, func(t *testing.T) {
			p := story.open(t, s.as)
			if folder != "" {
				require.NoError(t, os.WriteFile(filepath.Join(folder, story.name+".html"), []byte(p.Body), 0o600))
			}
			require.Equal(t, story.status, p.Status, p.Body)
			wellMade(t, p)
		})
	}
	require.NotContains(t, s.log.String(), "level=ERROR")
}

// wantPolicy is written out here once more: a change of it must be meant (S49).
const wantPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types countersign"

// wantHeaders wants the headers that every answer has, exactly once.
func wantHeaders(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": wantPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		require.Equal(t, []string{want}, h.Values(name), name)
	}
}

// outside are the addresses of other sites that a page may link to.
var outside = regexp.MustCompile(`^http://localhost:8421$`)

// wellMade holds a page to the rules of all pages.
func wellMade(t *testing.T, p page) {
	t.Helper()
	wantHeaders(t, p.Header)
	require.Equal(t, "no-store", p.Header.Get("Cache-Control"))
	require.Equal(t, "text/html; charset=utf-8", p.Header.Get("Content-Type"))
	require.True(t, strings.HasSuffix(strings.TrimSpace(p.Body), "</html>"), "the page is whole")
	_, c, found := strictjson.HasInvisible(p.Body)
	require.False(t, found, "U+%04X left the page as it is", c)

	doc := p.tree(t)
	ids := map[string]bool{}
	for _, n := range find(doc, func(*html.Node) bool { return true }) {
		for _, a := range n.Attr {
			require.False(t, strings.HasPrefix(a.Key, "on"), "<%s %s>: no inline script", n.Data, a.Key)
			require.NotEqual(t, "style", a.Key, "<%s>: no inline style", n.Data)
			switch a.Key {
			case "id":
				require.False(t, ids[a.Val], "the id %s stands twice", a.Val)
				ids[a.Val] = true
			case "href", "src", "action":
				require.True(t, strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "//") || strings.HasPrefix(a.Val, "#") || outside.MatchString(a.Val),
					"<%s %s=%q> leaves the site", n.Data, a.Key, a.Val)
			}
		}
		switch n.Data {
		case "style", "iframe", "object", "embed", "base":
			require.Fail(t, "there is no place for this element", n.Data)
		case "script":
			src, _ := attr(n, "src")
			require.NotEmpty(t, src)
			require.Nil(t, n.FirstChild, "no inline script")
		case "bdi":
			dir, _ := attr(n, "dir")
			require.Equal(t, "ltr", dir)
		case "button":
			_, focused := attr(n, "autofocus")
			require.False(t, focused, "nothing that decides has the focus by itself (S41)")
		}
	}
	require.Len(t, find(doc, byTag("main")), 1)
	require.Len(t, find(doc, byTag("h1")), 1)
}

// Redirects, refusals and files have the headers too.
func TestHeaders_OnEverything(t *testing.T) {
	r := newRig(t)
	b := r.browser()
	for _, path := range []string{"/", "/approvals", "/events", "/nowhere", "/static/nothing", "/static/app.css", "/approvals?live=1"} {
		wantHeaders(t, b.get(path).Header)
	}
	wantHeaders(t, b.post("/approvals").Header)
	wantHeaders(t, b.post("/sign-out").Header)
	mara := r.as("mara")
	wantHeaders(t, mara.get("/tools").Header)
}

// S42: data never gets a type that a template takes for safe.
func TestNoTrustedTypes(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	safe := regexp.MustCompile(`template\.(HTML|JS|JSStr|URL|CSS|HTMLAttr|Srcset)\b|text/template`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Empty(t, safe.FindAllString(string(source), -1), name)
	}
}
