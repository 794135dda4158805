package api_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestReference_Browser opens the reference page in a real browser: it draws the
// contract, asks no other host for anything, and the browser finds nothing that
// the page's policy forbids.
func TestReference_Browser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	r := newRig(t, func(o *options) { o.beside = map[string]http.Handler{"/static/scalar.js": scalar(t)} })
	ctx, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)

	var mu sync.Mutex
	var asked, complaints []string
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		if e, ok := ev.(*network.EventRequestWillBeSent); ok {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, e.Request.URL)
		}
	}))
	console := chromedp.Console(ctx)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			mu.Lock()
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.Type == chromedp.ConsoleException {
				complaints = append(complaints, m.String())
			}
			mu.Unlock()
		}
	}()
	wait := func(js string) {
		t.Helper()
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](js))
		require.NoError(t, err, js)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(r.server.URL+"/docs")))
	wait(`document.body.innerText.includes("What an outcome means")`)
	wait(`document.body.innerText.includes("Preview a write")`)

	// Sections are drawn when they are looked at; the panel that tries a request
	// out is held to the same policy.
	click := func(of, text string) {
		t.Helper()
		wait(`(() => {
			const e = [...document.querySelectorAll("` + of + `")].find(e => e.textContent.includes("` + text + `"));
			e?.click();
			return !!e;
		})()`)
	}
	click("a", "Preview a write")
	wait(`document.body.innerText.includes("/v1/tools/{tool}/preview")`)
	click("button", "Test Request(post /v1/tools/{tool}/preview)")
	wait(`[...document.querySelectorAll("[role=dialog]")].some(d => d.textContent.includes("Send"))`)
	if dir := os.Getenv("API_TEST_SCREENSHOTS"); dir != "" {
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "docs.png"), shot, 0o600))
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, asked)
	own, err := url.Parse(r.server.URL)
	require.NoError(t, err)
	for _, a := range asked {
		u, err := url.Parse(a)
		require.NoError(t, err)
		if u.Scheme == "http" || u.Scheme == "https" {
			require.Equal(t, own.Host, u.Host, a)
		}
	}
	require.Empty(t, complaints)
}

// scalar serves the vendored script as the page's own assets do.
func scalar(t *testing.T) http.Handler {
	files, err := filepath.Glob("../web/static/vendor/scalar-api-reference-*.standalone.js.gz")
	require.NoError(t, err)
	require.Len(t, files, 1)
	packed, err := os.ReadFile(files[0])
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed)
	})
}
