//go:build browser

package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// looks are the themes and widths. Both themes and both layouts are checked by
// axe; what it judges does not depend on their combination.
var looks = []struct {
	scheme        string
	width, height int64
	axe           bool
}{{"light", 1280, 900, true}, {"dark", 1280, 900, false}, {"light", 390, 844, false}, {"dark", 390, 844, true}}

// Every page in every situation, both themes and both widths: nothing scrolls
// sideways, axe finds nothing against WCAG 2.2 AA, and the browser has nothing to
// complain about. COUNTERSIGN_SHOTS names a folder in which pictures are left to be
// looked at.
func TestBrowser_PagesAndShots(t *testing.T) {
	axe, err := os.ReadFile("../.ci/node_modules/axe-core/axe.min.js")
	require.NoError(t, err, ".ci/tools.sh node installs it")
	s := newStage(t)
	folder := os.Getenv("COUNTERSIGN_SHOTS")
	b := openTab(t)
	for _, story := range s.stories {
		if story.site != "" {
			continue // no browser of ours would send that
		}
		t.Run(story.name, func(t *testing.T) {
			b.t = t
			b.show(story, s.as)
			if story.status == http.StatusOK {
				b.quiet()
			}
			b.eval("((() => {" + string(axe) + "})(), '')")
			for _, look := range looks {
				b.look(look.scheme, look.width, look.height)
				b.wait(`document.readyState === "complete"`)
				b.eval(fmt.Sprintf("(%[1]q && document.querySelector(%[1]q)?.setAttribute('open', ''), '')", story.click))
				require.Equal(t, "", b.eval(sideways), "%s at %d", story.name, look.width)
				if look.axe {
					require.Equal(t, "[]", b.axe(), "%s at %d", look.scheme, look.width)
				}
				if folder == "" {
					continue
				}
				name := fmt.Sprintf("%s-%s-%d", story.name, look.scheme, look.width)
				if look.width > 500 {
					b.shot(filepath.Join(folder, name+".png"), chromedp.FullScreenshot(100))
					continue
				}
				// Once as a phone shows it first, and once as tall as the page, so that
				// the bar at the bottom covers nothing.
				b.shot(filepath.Join(folder, name+"-first.png"), chromedp.CaptureScreenshot())
				b.look(look.scheme, look.width, b.height())
				b.shot(filepath.Join(folder, name+".png"), chromedp.CaptureScreenshot())
			}
			b.forget() // a page that answers with a refusal is noted by the browser
		})
	}
}

// sideways names the first thing that is wider than the window.
const sideways = `(() => {
  if (document.documentElement.scrollWidth <= innerWidth) return "";
  for (const e of document.body.querySelectorAll("*")) if (e.getBoundingClientRect().right > innerWidth + 1) return e.outerHTML.slice(0, 200);
  return "the page";
})()`

// axe gives what axe-core, already in the page, has against it.
func (b *tab) axe() string {
	b.t.Helper()
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then(r => JSON.stringify(r.violations.map(v => [v.id, v.nodes.map(n => n.target.join(" ") + ": " + n.failureSummary)])))`, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return found
}

// show opens a story in the tab; a form is sent as a browser sends it.
func (b *tab) show(s story, as map[string]*browser) {
	b.t.Helper()
	home := s.rig.server.URL
	b.signOut()
	if who := as[s.by]; who != nil {
		b.as(who)
	}
	if s.form == nil {
		b.do(chromedp.Navigate(home + s.path))
		return
	}
	form, err := json.Marshal(s.form)
	require.NoError(b.t, err)
	path, err := json.Marshal(s.path)
	require.NoError(b.t, err)
	b.do(chromedp.Navigate(home + "/sign-in"))
	script := fmt.Sprintf(`(() => {
		const f = document.createElement("form"), form = %s;
		f.method = "post"; f.action = %s;
		for (let i = 0; i < form.length; i += 2) {
			const n = document.createElement("input");
			n.type = "hidden"; n.name = form[i]; n.value = form[i+1]; f.append(n);
		}
		document.body.append(f); f.submit();
	})()`, form, path)
	_, err = chromedp.RunResponse(b.ctx, chromedp.Evaluate[chromedp.Void](script))
	require.NoError(b.t, err)
}

func (b *tab) height() int64 {
	b.t.Helper()
	n, err := chromedp.Run(b.ctx, chromedp.Evaluate[int64]("document.documentElement.scrollHeight"))
	require.NoError(b.t, err)
	return n
}

func (b *tab) shot(file string, take chromedp.Action[[]byte]) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, take)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(file, png, 0o600))
}
