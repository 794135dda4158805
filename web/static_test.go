package web_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/web"
)

func static(method, path string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	web.Static().ServeHTTP(w, req)
	return w
}

// An address with the checksum is kept for a year, every other is asked again.
func TestStatic_Caching(t *testing.T) {
	w := static("GET", web.AssetURL("app.css"))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "text/css; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
	for _, path := range []string{"/static/app.css", "/static/000000000000/app.css"} {
		again := static("GET", path)
		require.Equal(t, w.Body.String(), again.Body.String(), path)
		require.Equal(t, "no-cache", again.Header().Get("Cache-Control"), path)
	}
	same := static("GET", "/static/app.css", "If-None-Match", w.Header().Get("ETag"))
	require.Equal(t, http.StatusNotModified, same.Code)
	require.Empty(t, same.Body.String())
	require.Equal(t, 200, static("GET", "/static/app.css", "If-None-Match", `"old"`).Code)
}

// Only what a page uses is served.
func TestStatic_NothingElse(t *testing.T) {
	for _, path := range []string{
		"/static/", "/static/vendor", "/static/vendor/README.md", "/static/../web.go", "/static/nothing.css", "/static/x/y/app.css", "/static/app.css/",
	} {
		w := static("GET", path)
		require.Equal(t, 404, w.Code, path)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), path)
	}
	require.Equal(t, 405, static("POST", "/static/app.css").Code)
	require.Panics(t, func() { web.AssetURL("nothing.css") })
}

// The packed file goes out packed where that is understood, else unpacked.
func TestStatic_Packed(t *testing.T) {
	url := web.AssetURL(web.ReferenceScript)
	w := static("GET", url, "Accept-Encoding", "br, gzip;q=0.8")
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", w.Header().Get("Vary"))
	z, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	packed, err := io.ReadAll(z)
	require.NoError(t, err)
	for _, accepts := range []string{"", "identity", "br", "gzip;q=0", "gzipped"} {
		plain := static("GET", url, "Accept-Encoding", accepts)
		require.Empty(t, plain.Header().Get("Content-Encoding"), accepts)
		require.Equal(t, len(packed), plain.Body.Len(), accepts)
	}
	require.Equal(t, "gzip", static("GET", url, "Accept-Encoding", "*").Header().Get("Content-Encoding"))
}

// What the style sheet and the scripts name is there, and nothing of it elsewhere.
func TestStatic_NamesOwnFilesOnly(t *testing.T) {
	named := regexp.MustCompile(`url\(([^)]*)\)`)
	css := static("GET", "/static/app.css").Body.String()
	found := named.FindAllStringSubmatch(css, -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		require.Equal(t, 200, static("GET", "/static/"+strings.Trim(m[1], `"'`)).Code, m[0])
	}
	for _, file := range []string{"app.css", "app.js", "setup.js", "mark.svg"} {
		body := strings.ReplaceAll(static("GET", "/static/"+file).Body.String(), "http://www.w3.org/2000/svg", "")
		require.NotContains(t, body, "http", file)
		require.NotContains(t, body, "//cdn", file)
	}
	require.LessOrEqual(t, strings.Count(css, "\n"), 400, "the page's own style stays small")
}
