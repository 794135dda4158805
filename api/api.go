package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"countersign/approvals"
	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tokens"
	"countersign/tools"
)

// Config is what a Server is made of. Fields without a default are required.
type Config struct {
	// ReferenceScript is the address, on the same host, of the script that draws
	// the page at /docs (Scalar's standalone.js).
	ReferenceScript string

	Ledger    *ledger.Ledger
	Registry  *tools.Registry
	Preview   *preview.Service
	Commit    *commit.Service
	Approvals *approvals.Service
	Identity  *identity.Service
	Sessions  *identity.Sessions
	Keys      *tokens.KeySet
	// Ask looks an unknown operation up at a person's wish, as
	// reconcile.Reconciler.AskNow does.
	Ask func(ctx context.Context, tenant, id string) (ledger.Operation, error)
	// Receipt states what became of a final operation: a signed token and the JSON
	// that is signed, as audit.Receipts issues them.
	Receipt func(ctx context.Context, tenant, id string) (token string, receipt json.RawMessage, err error)

	// Hosts are the names, without port, that the gateway answers for (S52).
	Hosts []string
	// PublicURL is the address that people use, such as "https://gate.example",
	// without a path. Its host need not stand in Hosts again.
	PublicURL string
	// RatePerMinute is how many requests an agent may send on average, and Burst
	// how many at once. Defaults 600 and 100.
	RatePerMinute int
	Burst         int
	// BodyTimeout is how long a body may take to arrive. Default 15 s.
	BodyTimeout time.Duration
	// Draining, when closed, ends long polls at once.
	Draining <-chan struct{}

	// Now and NewID default to time.Now and ledger.NewID.
	Now   func() time.Time
	NewID func(prefix string) string
	// Log gets one line for each request and the cause of each problem of the
	// gateway's own. Default: nowhere.
	Log *slog.Logger
	// Watch sees requests and their replies. Default: nobody.
	Watch Watch
}

// Server answers the routes of the contract. It is safe for concurrent use.
type Server struct {
	cfg       Config
	contract  *contract
	router    http.Handler
	routes    chi.Routes
	hosts     map[string]bool
	origin    *http.CrossOriginProtection
	rates     *rates
	reference reference
	sockets   sockets
}

// sockets gives the clock of socket deadlines. The system compares them with its
// own, so it is never another.
type sockets struct{ Now func() time.Time }

// New reads the contract and makes the router.
func New(cfg Config) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, hosts: map[string]bool{}, rates: newRates(cfg.RatePerMinute, cfg.Burst), sockets: sockets{Now: time.Now}}
	var err error
	if s.contract, err = theContract(); err != nil {
		return nil, fmt.Errorf("reading the contract: %w", err)
	}
	if s.reference, err = newReference(cfg.ReferenceScript); err != nil {
		return nil, err
	}
	s.cfg.PublicURL = strings.TrimSuffix(cfg.PublicURL, "/")
	public, err := url.Parse(s.cfg.PublicURL)
	if err != nil || public.Host == "" || public.Path != "" || public.Scheme != "http" && public.Scheme != "https" {
		return nil, fmt.Errorf("the public URL %q is not of the form https://host", cfg.PublicURL)
	}
	for _, h := range append([]string{public.Hostname()}, cfg.Hosts...) {
		s.hosts[strings.ToLower(strings.Trim(h, "[]"))] = true
	}
	s.origin = http.NewCrossOriginProtection()
	// A proxy may rewrite Host; the page's own origin is trusted all the same.
	if err := s.origin.AddTrustedOrigin(public.Scheme + "://" + public.Host); err != nil {
		return nil, err
	}
	s.origin.SetDenyHandler(http.HandlerFunc(s.denyOrigin))
	s.route()
	return s, nil
}

func (c *Config) complete() error {
	if c.Ledger == nil || c.Registry == nil || c.Preview == nil || c.Commit == nil || c.Approvals == nil ||
		c.Identity == nil || c.Sessions == nil || c.Keys == nil || c.Ask == nil || c.Receipt == nil || c.ReferenceScript == "" {
		return errors.New("api: a required field of Config is missing")
	}
	if c.RatePerMinute < 0 || c.Burst < 0 || c.BodyTimeout < 0 {
		return errors.New("api: a limit of Config is negative")
	}
	if c.RatePerMinute == 0 {
		c.RatePerMinute = 600
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = ledger.NewID
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Watch.complete()
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.router.ServeHTTP(w, r) }

// SessionError answers a request whose session can't be read or stored. It is
// meant for identity.SessionsConfig, for the paths that Serves names.
func (s *Server) SessionError(w http.ResponseWriter, r *http.Request, err error) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.refuse(w, r, err) })
	if _, ok := r.Context().Value(exchangeKey{}).(*exchange); !ok {
		// The session was asked for before the request came here.
		s.exchange(answer).ServeHTTP(w, r)
		return
	}
	answer(w, r)
}

// Serves reports whether a path belongs to the API, for who serves the page
// beside it.
func Serves(path string) bool {
	switch path {
	case "/v1", "/.well-known/jwks.json", "/openapi.yaml", "/docs", "/healthz", "/readyz":
		return true
	}
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/docs/")
}

// route makes the router. The outer middlewares see every request, the inner
// ones only those that match a route of the contract under /v1.
func (s *Server) route() {
	r := chi.NewRouter()
	r.Use(s.exchange, s.knownHost, noTunnel, middleware.GetHead)
	r.NotFound(s.notFound)
	r.MethodNotAllowed(s.methodNotAllowed)
	s.service(r)
	v1 := r.With(s.named, s.origin.Handler, s.singleHeaders, s.authenticate, s.limitRate, s.checkQuery, s.readBody)
	HandlerWithOptions(NewStrictHandlerWithOptions(handlers{s}, nil, StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  s.refuse,
		ResponseErrorHandlerFunc: s.refuse,
	}), ChiServerOptions{BaseRouter: v1, ErrorHandlerFunc: s.refuseParameter})
	s.router, s.routes = r, r
}

// handlers implements StrictServerInterface, one file for each resource.
type handlers struct{ *Server }

// Hardened gives an http.Server for a handler with the limits of S67. Long
// polls extend the write time for themselves.
func Hardened(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

const writeTimeout = 30 * time.Second
