package main

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-chi/chi/v5/middleware"

	"countersign/api"
	"countersign/identity"
	"countersign/web"
)

// handlers join the API and the page for everybody, and give the API alone for
// a door that only agents use: there no session of an operator counts.
func (g *gateway) handlers() (everybody, agents http.Handler, err error) {
	public := g.cfg.publicURL()
	var pages *web.Pages
	var server *api.Server
	// The sessions are made first and name whoever answers when they fail.
	sessions := identity.NewSessions(g.identity, identity.SessionsConfig{
		Secure:     strings.HasPrefix(public, "https://"),
		Background: web.Background,
		OnError: func(w http.ResponseWriter, r *http.Request, err error) {
			if api.Serves(r.URL.Path) {
				server.SessionError(w, r, err)
				return
			}
			pages.SessionError(w, r, err)
		},
	})
	if server, err = g.newAPI(sessions); err != nil {
		return nil, nil, err
	}
	pages, err = web.New(web.Config{
		Approvals: g.approvals, Ledger: g.ledger, Identity: g.identity, Sessions: sessions, Registry: g.registry, Previews: g.previews, Commits: g.commits,
		Ask: g.reconciler.AskNow, Doubts: g.cfg.Reconcile.settings(), Audit: g.pagesAudit(),
		Tenant: tenant, PublicURL: public, Demo: g.env.shopURL != "", ShopURL: g.env.shopURL, Version: version(),
		Address: clientAddress, Now: g.env.now, Logger: g.log,
	})
	if err != nil {
		return nil, nil, err
	}
	g.pages = pages
	page := knownHost(g.hosts(public), pages.Handler())
	everybody = g.clientIP()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Serves(r.URL.Path) {
			server.ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	}))
	agents = g.clientIP()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Cookie")
		server.ServeHTTP(w, r)
	}))
	return everybody, agents, nil
}

// newAPI makes the REST API.
func (g *gateway) newAPI(sessions *identity.Sessions) (*api.Server, error) {
	return api.New(api.Config{
		ReferenceScript: web.AssetURL(web.ReferenceScript),
		Ledger:          g.ledger, Registry: g.registry, Preview: g.previews, Commit: g.commits, Approvals: g.approvals,
		Identity: g.identity, Sessions: sessions, Keys: g.keys, Ask: g.reconciler.AskNow, Receipt: g.signedReceipt,
		Hosts: g.hosts(g.cfg.publicURL()), PublicURL: g.cfg.publicURL(),
		RatePerMinute: 60 * g.cfg.Limits.AgentRequests, Burst: 4 * g.cfg.Limits.AgentRequests,
		Draining: g.draining, Now: g.env.now, Log: g.log, Watch: g.watch(),
	})
}

// hosts are the names that requests may be for (S52): the public one, those of
// the configuration, and on loopback its names.
func (g *gateway) hosts(public string) []string {
	hosts := slices.Clone(g.cfg.Hosts)
	if u, err := url.Parse(public); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	if onLoopback(g.cfg.Listen) || onLoopback(g.cfg.PeopleListen) {
		hosts = append(hosts, "localhost", "127.0.0.1", "::1")
	}
	return hosts
}

// knownHost refuses pages under other names: a page on another name that
// resolves to us must not read ours (DNS rebinding).
func knownHost(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !slices.Contains(hosts, strings.ToLower(strings.Trim(host, "[]"))) {
			http.Error(w, "This gateway does not answer for that host name.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// clientIP finds the caller's address: the peer's, or what trusted proxies say.
func (g *gateway) clientIP() func(http.Handler) http.Handler {
	if len(g.cfg.TrustedProxies) > 0 {
		return middleware.ClientIPFromXFF(g.cfg.TrustedProxies...)
	}
	return middleware.ClientIPFromRemoteAddr
}

// clientAddress is the address that clientIP found.
func clientAddress(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddr(middleware.GetClientIP(r.Context()))
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// listenPrivate listens on a socket that only the same user can reach, from its
// first moment on.
func listenPrivate(path string) (net.Listener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return ln, os.Chmod(path, 0o600)
}

// boundedConn gives its slot back when it is closed, once.
type boundedConn struct {
	net.Conn
	once sync.Once
	free func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(c.free)
	return c.Conn.Close()
}
