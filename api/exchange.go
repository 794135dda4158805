package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"countersign/fault"
	"countersign/ledger"
	"countersign/strictjson"
)

// exchange is what is known of one request while it is answered.
type exchange struct {
	requestID string
	route     *route
	who       principal
	// body is the parsed value of the request's body.
	body map[string]any
	// op is the operation that was answered last, code that of a problem.
	op   *ledger.Operation
	code fault.Code
	// asked is what a call said of itself, for who looks on while there is no
	// operation that says it (R133, R134).
	asked []slog.Attr
	// control moves the deadlines of the connection.
	control *http.ResponseController
}

type exchangeKey struct{}

// of gives the exchange of a request that came through the router.
func of(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// requestIDForm is what a caller's own Request-Id may look like.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// exchange is the outermost middleware: it names the request, sets what every
// answer carries, catches panics and writes the log line.
func (s *Server) exchange(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{control: http.NewResponseController(w)}
		if given := r.Header.Values("Request-Id"); len(given) == 1 && requestIDForm.MatchString(given[0]) {
			x.requestID = given[0]
		} else {
			x.requestID = s.cfg.NewID("req_")
		}
		seen, r := s.see(r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)), x)
		safeHeaders(w.Header())
		w.Header().Set("Request-Id", x.requestID)
		if len(r.TransferEncoding) > 0 {
			// A length beside the chunks was dropped by the HTTP layer. Somebody before
			// us may have gone by it, so what follows on the connection is not trusted.
			w.Header().Set("Connection", "close")
		}
		began := s.cfg.Now()
		watched := middleware.NewWrapResponseWriter(seen.writer(w), r.ProtoMajor)
		defer func() { seen.end(r, watched.Status()) }() // also when it breaks off
		defer func() {
			s.recovered(watched, r, recover())
			took := s.cfg.Now().Sub(began)
			s.logRequest(r, x, watched.Status(), took)
			s.cfg.Watch.OnAnswer(Answered{Route: x.route.name(), Status: watched.Status(), Code: x.code, Took: took})
		}()
		next.ServeHTTP(watched, r)
	})
}

// safeHeaders are on every answer; the reference page loosens what it needs.
func safeHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

// recovered turns a panic into a problem, if nothing was written yet.
func (s *Server) recovered(w middleware.WrapResponseWriter, r *http.Request, cause any) {
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	err := fault.Wrap(fmt.Errorf("panic: %v\n%s", cause, debug.Stack()), fault.Internal, "Something went wrong inside the gateway.")
	if w.Status() != 0 {
		s.cfg.Log.Error("request failed after its answer began", "request_id", of(r.Context()).requestID, "error", err)
		panic(http.ErrAbortHandler)
	}
	s.refuse(w, r, err)
}

// logRequest writes one line, without query, body or headers: they hold keys
// and tokens (S10).
func (s *Server) logRequest(r *http.Request, x *exchange, status int, took time.Duration) {
	path := "unmatched"
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		path = c.RoutePattern()
	}
	line := []slog.Attr{
		slog.String("method", r.Method), slog.String("route", path), slog.Int("status", status),
		slog.String("request_id", x.requestID), slog.String("caller", x.who.id()), slog.Float64("took_ms", float64(took.Microseconds())/1000),
	}
	if x.code != "" {
		line = append(line, slog.String("code", string(x.code)))
	}
	if x.op != nil {
		line = append(line, s.cfg.Watch.Fields(*x.op)...)
	} else {
		line = append(line, x.asked...)
	}
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
}

// knownHost answers only for the names that are ours, against DNS rebinding
// (S52). Health is asked by address.
func (s *Server) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		health := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
		if !health && !s.hosts[strings.ToLower(strings.Trim(host, "[]"))] {
			s.refuse(w, r, fault.New(fault.HostNotAllowed, "This gateway does not answer for the host that the request names."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// noTunnel refuses CONNECT, whose target has no path that a router could match.
func noTunnel(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			r.URL.Path = "/"
		}
		next.ServeHTTP(w, r)
	})
}

// named notes which route of the contract matched.
func (s *Server) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(r.Context()).route = s.contract.of(r.Method, chi.RouteContext(r.Context()).RoutePattern())
		next.ServeHTTP(w, r)
	})
}

// denyOrigin answers what a browser sent from another site (S51).
func (s *Server) denyOrigin(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, fault.New(fault.CrossOrigin, "A browser sent this request from another site."))
}

// notFound answers an address without a route. Below a resource it is an id
// that nothing can have.
func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		s.methodNotAllowed(w, r)
		return
	}
	s.refuse(w, r, noSuch(r.URL.Path))
}

// noSuch is the 404 of an address.
func noSuch(path string) error {
	switch {
	case strings.HasPrefix(path, "/v1/tools/"):
		if name, _, below := strings.Cut(strings.TrimPrefix(path, "/v1/tools/"), "/"); below && toolForm.MatchString(name) {
			return noRoute(name)
		}
		return toolNotFound()
	case strings.HasPrefix(path, "/v1/operations/"):
		return operationNotFound()
	case strings.HasPrefix(path, "/v1/runs/"):
		return runNotFound()
	case strings.HasPrefix(path, "/v1/approvals/"):
		return approvalNotFound()
	default:
		return fault.New(fault.NotFound, "There is nothing at this address.")
	}
}

func toolNotFound() error { return fault.New(fault.ToolNotFound, "There is no such tool.") }

// operationNotFound is the same for what is absent and what the caller may not
// see (S15).
func operationNotFound() error {
	return fault.New(fault.OperationNotFound, "There is no such operation.")
}

func approvalNotFound() error {
	return fault.New(fault.ApprovalNotFound, "There is no such approval.")
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if s.routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allowed = append(allowed, method)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	detail := strictjson.Echo(r.Method) + " is not possible here"
	if len(allowed) > 0 {
		detail += "; use " + strings.Join(allowed, " or ")
	}
	s.refuse(w, r, fault.New(fault.MethodNotAllowed, "%s.", detail))
}
