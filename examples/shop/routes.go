package shop

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// maxBody is the size limit of a request body, in bytes.
const maxBody = 64 << 10

// routes builds the router: the API, which demands a bearer secret when there
// is one, and the control room, which demands a browser of this very page.
func (s *Shop) routes() http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerError(w, refuse(http.StatusForbidden, "Requests from other sites are refused."))
	}))
	r := chi.NewRouter()
	r.Use(headers)
	api := chi.Chain(s.received, sameOrigin.Handler, s.authorised)
	r.NotFound(api.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerError(w, refuse(http.StatusNotFound, "There is nothing at this address."))
	}).ServeHTTP)
	r.MethodNotAllowed(api.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerError(w, refuse(http.StatusMethodNotAllowed, "%s is not possible here.", r.Method))
	}).ServeHTTP)

	r.Group(func(r chi.Router) {
		r.Use(api...)
		r.Get("/orders", s.listOrders)
		r.Get("/orders/{id}", s.getOrder)
		r.Post("/orders/{id}/holds", s.postHold)
		r.Get("/holds", s.listHolds)
		r.Get("/holds/{id}", s.getHold)
		r.Post("/holds/{id}/release", s.postRelease)
		r.Get("/payments", s.listPayments)
		r.Get("/payments/{id}", s.getPayment)
		r.Get("/refunds", s.listRefunds)
		r.Get("/refunds/{id}", s.getRefund)
		r.Post("/refunds", s.postRefund)
		r.Post("/refunds/{id}/cancel", s.postCancel)
		r.Get("/addresses", s.listAddresses)
		r.Get("/addresses/{id}", s.getAddress)
		r.Put("/addresses/{id}", s.putAddress)
		r.Get("/addresses/{id}/changes", s.listAddressChanges)
		r.Get("/letters", s.listLetters)
		r.Post("/letters", s.postLetter)
	})
	r.Group(func(r chi.Router) {
		r.Use(localName, sameOrigin.Handler)
		r.Get("/", s.getPage)
		r.Get("/style.css", static("style.css", "text/css; charset=utf-8"))
		r.Get("/app.js", static("app.js", "text/javascript; charset=utf-8"))
		r.Get("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		r.Get("/effects", s.getEffects)
		r.Get("/requests", s.getRequests)
		r.Get("/events", s.getEvents)
		r.Get("/switches", s.getSwitches)
		r.Post("/switches", s.postSwitches)
		r.Post("/orders/{id}/change", s.changeOrder)
		r.Post("/payments/{id}/change", s.changePayment)
		r.Post("/addresses/{id}/change", s.changeAddress)
		r.Post("/refunds/{id}/settle", s.settleRefund)
	})
	return r
}

// headers are the same on every answer.
func headers(next http.Handler) http.Handler {
	const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// effectFree says that a method promises to change nothing.
func effectFree(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

type requestKey struct{}

// requestOf returns the record of an effectful request, nil for a read.
func requestOf(r *http.Request) *Request {
	req, _ := r.Context().Value(requestKey{}).(*Request)
	return req
}

// received counts reads and records effectful requests, before anything judges
// them. It reads the body first, so that the record can name its digest; a body
// that broke off or is too long is recorded as far as it came.
func (s *Shop) received(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if effectFree(r.Method) {
			s.mu.Lock()
			s.reads++
			s.mu.Unlock()
			next.ServeHTTP(w, r)
			return
		}
		body, readErr := readBody(w, r)
		sum := sha256.Sum256(body)
		req := &Request{
			Method: r.Method, Path: r.URL.Path, Key: r.Header.Get("Idempotency-Key"),
			Body: "sha256:" + hex.EncodeToString(sum[:]),
		}
		if err := s.record(req); err != nil {
			s.cfg.Logger.Error("shop: the request log can't be written", "error", err)
			answerError(w, refuse(http.StatusInternalServerError, "The shop can't write its log, nothing was done."))
			return
		}
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			req.Status = ww.Status()
			s.movedLocked()
		}()
		if readErr != nil {
			answerError(ww, readErr)
			return
		}
		ctx := context.WithValue(r.Context(), requestKey{}, req)
		r = r.WithContext(context.WithValue(ctx, bodyKey{}, body))
		next.ServeHTTP(ww, r)
	})
}

type bodyKey struct{}

// bodyOf is the body of an effectful request of the API.
func bodyOf(r *http.Request) []byte {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	return body
}

func (s *Shop) record(req *Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	req.Number = len(s.requests) + 1
	req.Time = s.cfg.Now().UTC()
	if err := s.requestLog.append(req); err != nil {
		return err
	}
	s.requests = append(s.requests, req)
	s.movedLocked()
	return nil
}

// readBody reads a body up to the limit. It returns what came, also with an error.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, nil
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return body, refuse(http.StatusRequestEntityTooLarge, "A body is at most %d bytes long.", maxBody)
	}
	return body, refuse(http.StatusBadRequest, "The body broke off.")
}

// authorised demands the key for effects, and the key or the read key for reads.
func (s *Shop) authorised(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := bearer(r)
		ok := s.cfg.Key == "" || equal(secret, s.cfg.Key) ||
			effectFree(r.Method) && s.cfg.ReadKey != "" && equal(secret, s.cfg.ReadKey)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answerError(w, refuse(http.StatusUnauthorized, "A bearer key that is good for this is missing."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// bearer is the credential of a request, empty without one.
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return secret
}

// localName refuses a public name in Host: a page elsewhere whose name was
// pointed at loopback would else pass for this very page. Addresses, one-word
// names and *.localhost are fine.
func localName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		if strings.Contains(host, ".") && net.ParseIP(host) == nil && !strings.HasSuffix(host, ".localhost") {
			answerError(w, refuse(http.StatusMisdirectedRequest, "The shop's page is not served under this name."))
			return
		}
		next.ServeHTTP(w, r)
	})
}
