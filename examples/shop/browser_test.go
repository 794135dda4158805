//go:build browser

package shop_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// browser opens a tab of a fresh headless Chromium.
func browser(t *testing.T) context.Context {
	t.Helper()
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
	return ctx
}

// The page follows the shop by itself, its buttons work in place, and the
// browser has nothing to complain about.
func TestBrowser_PageFollowsAndBreaks(t *testing.T) {
	s := start(t, shop.Config{Key: "secret"})
	ctx := browser(t)
	console := chromedp.Console(ctx)
	complaints := make(chan string, 100)
	go func() {
		defer close(complaints)
		for m, err := range console {
			if err != nil {
				return
			}
			complaints <- m.String()
		}
	}()
	wait := func(js string) {
		t.Helper()
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](js))
		require.NoError(t, err, js)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.url)))
	wait(`document.getElementById("effect-count")?.textContent === "0"`)

	s.call("POST", "/orders/ord_1001/holds", "")
	wait(`document.getElementById("effect-count")?.textContent === "1"`)
	wait(`document.querySelector("#orders tr:nth-child(1) .badge")?.textContent === "held"`)

	require.NoError(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS(`input[name="cut_next"] + button`))))
	wait(`document.querySelector("#switches li.on h3")?.textContent === "Cut the next reply"`)
	require.Equal(t, 1, s.Switches().CutNext)
	_, _, err := send(s.request("POST", "/orders/ord_1002/holds", ""))
	require.Error(t, err)
	wait(`document.getElementById("effect-count")?.textContent === "2"`)
	wait(`document.querySelector("#switches li.on") === null`)

	// A refused form says so where it stands.
	require.NoError(t, chromedp.Do(ctx,
		chromedp.SetValue(chromedp.CSS(`input[name="slow_ms"]`), "999999"),
		chromedp.Click(chromedp.CSS(`input[name="slow_ms"]`)),
		chromedp.SendKeys(chromedp.CSS(`input[name="slow_ms"]`), "\r")))
	wait(`document.querySelector("#switches .trouble")?.textContent === "slow_ms is a whole number from 0 to 120000."`)
	require.Zero(t, s.Switches().SlowMS)

	pages := os.Getenv("SHOP_TEST_SCREENSHOTS")
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{{"light-1280", "light", 1280}, {"dark-1280", "dark", 1280}, {"light-390", "light", 390}, {"dark-390", "dark", 390}} {
		require.NoError(t, chromedp.Do(ctx,
			chromedp.EmulateViewport(look.width, 900),
			chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
				_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
				})
				return err
			})))
		wait(`document.documentElement.scrollWidth <= innerWidth`)
		if pages != "" {
			shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(pages, "shop-"+look.name+".png"), shot, 0o600))
		}
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	for {
		select {
		case c := <-complaints:
			// The refused form above is the one answer that the browser notes.
			require.True(t, strings.Contains(c, "422"), c)
			continue
		default:
		}
		break
	}
}
