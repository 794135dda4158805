//go:build browser

package web_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var looks = []struct {
	scheme string
	width  int64
	height int64
}{{"light", 1280, 900}, {"dark", 1280, 900}, {"light", 390, 844}, {"dark", 390, 844}}

// Every page in both themes and both widths: nothing scrolls sideways, and the
// browser has nothing to complain about. COUNTERSIGN_SHOTS names a folder in which
// pictures are left to be looked at.
func TestBrowser_Shots(t *testing.T) {
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
			for _, look := range looks {
				b.look(look.scheme, look.width, look.height)
				b.wait(`document.readyState === "complete"`)
				b.eval(fmt.Sprintf("(%[1]q && document.querySelector(%[1]q)?.setAttribute('open', ''), '')", story.click))
				require.Equal(t, "", b.eval(sideways), "%s at %d", story.name, look.width)
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
