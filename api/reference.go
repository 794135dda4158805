package api

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/fault"
)

//go:embed reference
var referenceFiles embed.FS

// reference is the page at /docs: the contract, drawn by Scalar.
type reference struct {
	page  []byte
	files map[string]referenceFile
}

type referenceFile struct {
	kind string
	body []byte
}

func newReference(script string) (reference, error) {
	page, err := template.ParseFS(referenceFiles, "reference/page.html")
	if err != nil {
		return reference{}, err
	}
	var out bytes.Buffer
	if err := page.Execute(&out, script); err != nil {
		return reference{}, err
	}
	ref := reference{page: out.Bytes(), files: map[string]referenceFile{}}
	for name, kind := range map[string]string{"reference.js": "text/javascript", "reference.css": "text/css"} {
		body, err := referenceFiles.ReadFile("reference/" + name)
		if err != nil {
			return reference{}, err
		}
		ref.files[name] = referenceFile{kind: kind, body: body}
	}
	return ref, nil
}

// referencePolicy is the page's own content security policy. Scalar writes
// style elements and draws small pictures from data: and blob: addresses;
// everything that it loads or calls is on this host.
var referencePolicy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data:",
	"connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
}, "; ")

func (s *Server) getReference(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", referencePolicy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(s.reference.page)
}

func (s *Server) getReferenceFile(w http.ResponseWriter, r *http.Request) {
	f, ok := s.reference.files[chi.URLParam(r, "file")]
	if !ok {
		s.refuse(w, r, fault.New(fault.NotFound, "There is no such file."))
		return
	}
	w.Header().Set("Content-Type", f.kind+"; charset=utf-8")
	_, _ = w.Write(f.body)
}
