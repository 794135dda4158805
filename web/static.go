package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// Asset is a file of static/ as it is served.
type asset struct {
	body []byte
	kind string
	// packed: body is gzip; a client that does not take that gets it unpacked.
	packed bool
}

// staticTree is every file that is served, and a checksum over all of them.
type staticTree struct {
	assets map[string]asset
	sum    string
}

// static reads the files once. Only kinds that a page uses are served: what is
// beside them is for readers of the source.
var static = sync.OnceValue(func() staticTree {
	t := staticTree{assets: map[string]asset{}}
	all := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		served, packed := strings.CutSuffix(strings.TrimPrefix(name, "static/"), ".gz")
		kind, ok := map[string]string{
			".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
		}[path.Ext(served)]
		if !ok {
			return nil
		}
		fmt.Fprintf(all, "%s %d\n", served, len(body))
		all.Write(body)
		t.assets[served] = asset{body: body, kind: kind, packed: packed}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	t.sum = hex.EncodeToString(all.Sum(nil))[:12]
	return t
})

// Static serves the files of the page at /static/. An address holds the checksum
// of all files, so that what a browser keeps for a year is never stale; without
// or with another checksum the answer is the same but not kept.
func Static() http.Handler { return http.HandlerFunc(serveStatic) }

// AssetURL is the address of a file, such as vendor/icons.svg. It panics when
// there is none: the name is always a constant.
func AssetURL(name string) string {
	if _, ok := static().assets[name]; !ok {
		panic("web: no static file " + strconv.Quote(name))
	}
	return "/static/" + static().sum + "/" + name
}

// ReferenceScript is the file of the API reference, for a page at /docs.
const ReferenceScript = "vendor/scalar-api-reference-1.72.1.standalone.js"

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	sum, rest, _ := strings.Cut(name, "/")
	a, ok := static().assets[rest]
	if !ok {
		sum = ""
		a, ok = static().assets[name]
	}
	h := w.Header()
	if !ok {
		h.Set("Cache-Control", "no-store")
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "A file is only read.", http.StatusMethodNotAllowed)
		return
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	if sum == static().sum {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", a.kind)
	h.Set("ETag", `"`+static().sum+`"`)
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if a.packed {
		h.Set("Vary", "Accept-Encoding")
		if takesGzip(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
		} else {
			unpack(w, a.body)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	// A client that left is nobody to tell.
	_, _ = w.Write(a.body)
}

func unpack(w io.Writer, body []byte) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		panic(err) // the file is part of the program
	}
	_, _ = io.Copy(w, z)
}

// takesGzip reads Accept-Encoding (RFC 9110, 12.5.3).
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType("x/" + strings.TrimSpace(part))
		if err == nil && (name == "x/gzip" || name == "x/*") && params["q"] != "0" {
			return true
		}
	}
	return false
}
