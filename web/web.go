// Package web is the page of the operators: what waits for them, what is unknown,
// one operation as a whole with its audit trail and what speaks for a duplicate,
// the ledger, runs, freezes, the audit, the tools, and the way in.
//
// What lives here: one file for each page, which reads through a service and
// fills a view; the templates; the style sheet and the few lines of script; and
// the rules for drawing what others wrote (text.go, value.go).
//
// How it flows: a GET reads, fills a view and renders it into a buffer, which is
// sent only when it is whole. A POST calls one service; when that succeeds it
// redirects, and when it is refused the page comes back with a message and with
// what was typed. Every action is a plain form and works without script. With
// script, htmx holds one stream open (events.go) and fetches the page again when
// what it shows has changed.
//
// What does not live here: who may decide and what a decision does (approvals),
// states (ledger), passwords and sessions (identity), JSON (api).
package web

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"countersign/approvals"
	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/tools"
)

// Config is what Pages are made of. Approvals, Ledger, Identity, Sessions and
// Registry are required.
type Config struct {
	Approvals *approvals.Service
	Ledger    *ledger.Ledger
	Identity  *identity.Service
	// Sessions of the same process; its Background is web.Background.
	Sessions *identity.Sessions
	Registry *tools.Registry
	// Previews and Commits make undos; without them the pages offer none.
	Previews *preview.Service
	Commits  *commit.Service
	// Ask looks an unknown operation up at a person's wish, as
	// reconcile.Reconciler.AskNow does; without it no page offers that. Doubts are
	// the settings of that reconciler: pages say by them when it asks next.
	Ask    func(ctx context.Context, tenant, id string) (ledger.Operation, error)
	Doubts reconcile.Settings
	// Audit is what the pages of the audit read; without it there are none.
	Audit *Audit
	// Tenant is where people sign in; "default" when empty.
	Tenant string
	// PublicURL is how browsers reach the page. Forms are taken from its origin,
	// also when a proxy changes the Host.
	PublicURL string
	// Demo says on every page that this is no production, and links the shop.
	Demo    bool
	ShopURL string
	// Version of the program, for the foot of the page.
	Version string
	// Address tells where a request comes from, for the limits on signing in. It
	// defaults to the peer's address; behind proxies it must know them.
	Address func(*http.Request) netip.Addr
	Now     func() time.Time
	Logger  *slog.Logger
}

// Pages serve the operators. They are safe for concurrent use.
type Pages struct {
	cfg    Config
	views  map[string]*template.Template
	origin *http.CrossOriginProtection

	closing chan struct{}
	closed  sync.Once

	mu sync.Mutex
	// streams counts the open streams of each person.
	streams map[string]int
}

// New parses all templates, so that a broken one is found at the start.
func New(cfg Config) (*Pages, error) {
	if cfg.Approvals == nil || cfg.Ledger == nil || cfg.Identity == nil || cfg.Sessions == nil || cfg.Registry == nil {
		return nil, errors.New("web: Config needs Approvals, Ledger, Identity, Sessions and Registry")
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Address == nil {
		cfg.Address = peer
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	views, err := parseViews(templateFiles)
	if err != nil {
		return nil, err
	}
	p := &Pages{cfg: cfg, views: views, closing: make(chan struct{}), streams: map[string]int{}}
	if p.origin, err = crossOrigin(cfg.PublicURL); err != nil {
		return nil, err
	}
	return p, nil
}

// crossOrigin refuses unsafe requests that another site makes a browser send
// (S51).
func crossOrigin(publicURL string) (*http.CrossOriginProtection, error) {
	c := http.NewCrossOriginProtection()
	if publicURL == "" {
		return c, nil
	}
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil, err
	}
	return c, c.AddTrustedOrigin(u.Scheme + "://" + u.Host)
}

// peer is the address at the other end of the connection.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}

// Close ends the open streams, so that a server can shut down. The pages go on
// answering.
func (p *Pages) Close() { p.closed.Do(func() { close(p.closing) }) }

// Handler serves all pages, and a page that says so for every other address.
func (p *Pages) Handler() http.Handler {
	r := chi.NewRouter()
	p.Mount(r)
	return r
}

// Mount adds the pages to a router, together with its answers to addresses and
// methods that it does not know.
func (p *Pages) Mount(r chi.Router) {
	r.Group(func(r chi.Router) {
		r.Use(securityHeaders, middleware.GetHead)
		r.Handle("/static/*", Static())
		r.Group(func(r chi.Router) {
			r.Use(p.refuseCrossOrigin, p.cfg.Sessions.LoadAndSave, limitBody)
			r.Get("/sign-in", p.signInForm)
			r.Post("/sign-in", p.signIn)
			r.Post("/sign-out", p.signOut)
			r.Get("/setup", p.setupForm)
			r.Post("/setup", p.setup)
			r.Group(func(r chi.Router) {
				r.Use(p.signedIn)
				r.Get("/", p.home)
				r.Get("/approvals", p.queue)
				r.Get("/operations", p.operations)
				r.Get("/operations/{id}", p.operation)
				r.Get("/operations/{id}/audit", p.trail)
				r.Get("/operations/{id}/receipt", p.receipt)
				r.Get("/operations/{id}/forensics", p.forensics)
				r.Post("/operations/{id}/decision", p.decide)
				r.Post("/operations/{id}/reopen", p.reopen)
				r.Post("/operations/{id}/cancel", p.cancel)
				r.Post("/operations/{id}/resolve", p.resolve)
				r.Post("/operations/{id}/contradict", p.contradict)
				r.Post("/operations/{id}/ask", p.ask)
				r.Post("/operations/{id}/undo", p.planUndo)
				r.Post("/operations/{id}/undo/commit", p.undo)
				r.Get("/unknown", p.unknown)
				r.Get("/undos", p.undos)
				r.Get("/audit", p.audit)
				r.Get("/runs", p.runs)
				r.Get("/run", p.run)
				r.Post("/run/undo", p.planRunUndo)
				r.Post("/run/undo/commit", p.undoRun)
				r.Get("/freezes", p.freezes)
				r.Post("/freezes", p.freeze)
				r.Post("/freezes/lift", p.lift)
				r.Get("/tools", p.tools)
				r.Get("/tools/{name}", p.tool)
				r.Get("/events", p.events)
			})
		})
	})
	lost := securityHeaders(p.cfg.Sessions.LoadAndSave(http.HandlerFunc(p.notFound)))
	r.NotFound(lost.ServeHTTP)
	odd := securityHeaders(p.cfg.Sessions.LoadAndSave(http.HandlerFunc(p.methodNotAllowed)))
	r.MethodNotAllowed(odd.ServeHTTP)
}

// Background tells the requests that a page makes by itself: the stream, and the
// fetches that follow its events. They don't keep a session alive. It is meant
// for identity.SessionsConfig.
func Background(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/events" || r.URL.Query().Has(liveParam))
}

// SessionError answers a request whose session can't be read or stored. It is
// meant for identity.SessionsConfig, which exists before the Pages do: set it to
// a function that calls this method.
func (p *Pages) SessionError(w http.ResponseWriter, r *http.Request, err error) {
	p.problem(w, r.WithContext(withoutPerson(r.Context())), err)
}

func (p *Pages) home(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/approvals", http.StatusSeeOther)
}

func (p *Pages) notFound(w http.ResponseWriter, r *http.Request) {
	p.problem(w, p.withPerson(r), fault.New(fault.NotFound, "There is no page at this address."))
}

func (p *Pages) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	p.problem(w, p.withPerson(r), fault.New(fault.MethodNotAllowed, "This address does not take %s. Nothing was changed.", r.Method))
}

func (p *Pages) now() time.Time { return p.cfg.Now().UTC() }
