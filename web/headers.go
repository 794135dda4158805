package web

import (
	"errors"
	"net/http"
	"strings"

	"countersign/fault"
)

// policy is the content security policy of every page (S49): nothing from
// elsewhere, nothing inline, and strings reach the DOM only through the one
// Trusted Types policy of app.js, which htmx uses.
var contentPolicy = strings.Join([]string{
	"default-src 'none'",
	"script-src 'self'",
	"style-src 'self'",
	"img-src 'self'",
	"connect-src 'self'",
	"form-action 'self'",
	"frame-ancestors 'none'",
	"base-uri 'none'",
	"require-trusted-types-for 'script'",
	"trusted-types countersign",
}, "; ")

// securityHeaders go on every answer. Pages are not stored: they show what
// others must not find in a cache. Static files set their own Cache-Control.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// refuseCrossOrigin lets no other site act for a person who is signed in here.
func (p *Pages) refuseCrossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.origin.Check(r); err != nil {
			p.problem(w, r, fault.Wrap(err, fault.CrossOrigin, "The form was sent from another site. Nothing was changed. Open the page here and try again."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxForm is the largest form in bytes; the longest reason needs far less.
const maxForm = 64 << 10

func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// readForm reads a posted form. Values come from the body alone, never from the
// address, where they would be logged.
func readForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return fault.Wrap(err, fault.BodyTooLarge, "The form holds more than %d bytes. Nothing was changed.", maxForm)
		}
		return fault.Wrap(err, fault.MalformedRequest, "The form could not be read. Nothing was changed.")
	}
	return nil
}
