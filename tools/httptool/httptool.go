// Package httptool is the connector for upstreams that speak HTTP.
//
// What lives here: Upstream (what the config says of one system) and Client (its
// connections); the guard that decides which addresses may be dialled; the reads
// of previews, guards and lookups, with retries; the one effectful request of a
// dispatch, sent as it was rendered, with proof of whether any of it was
// written; limits on answers.
//
// How it flows: Open makes a Client from an Upstream. Client.Connector makes the
// tools.Connector of one compiled manifest. Preview sends the manifest's reads
// through a transport that refuses everything not effect-free, hands the answers
// to the manifest, and writes the rendered request into Plan.Wire. Dispatch
// sends that wire and nothing else, once, and hands the answer to the manifest,
// which says what it proves.
//
// What does not live here: what an answer means (tools.Manifest.Judge), values
// and encodings of a request (tools), where secrets are stored (the program
// resolves them; here they are functions), SQL or mail.
package httptool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Upstream is one outside system as the config describes it.
type Upstream struct {
	Name string
	// URL is the base address: http or https, a host, perhaps a path. Paths of
	// manifests are put behind it.
	URL string
	// Auth is sent with effectful requests; ReadAuth with reads and lookups. A nil
	// ReadAuth means Auth.
	Auth, ReadAuth *Credential
	// Allow lists addresses that may be dialled although they are loopback,
	// private or otherwise not public. There is no other way past the guard.
	Allow []Allowed
	// RootCAs are trusted instead of the system's, when set.
	RootCAs *x509.CertPool
	// Certificates identify the gateway to the upstream.
	Certificates []tls.Certificate
	Limits       Limits

	// Now, Sleep and Rand are the clock, the pause between tries of a read, and a
	// number in [0,1) for its jitter; the real ones when nil.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	Rand  func() float64
}

// Limits bound what an upstream can make the gateway do. Zero fields take the
// defaults.
type Limits struct {
	BodyBytes   int64 // 1 MiB
	HeaderBytes int64 // 32 KiB
	// DialTimeout bounds name resolution and connecting, TLSTimeout the handshake.
	DialTimeout, TLSTimeout time.Duration // 5 s each
	// ReadTries and ReadBudget bound a read with its repeats.
	ReadTries  int           // 5
	ReadBudget time.Duration // 20 s
	// GuardBudget bounds the reads of a guard, which must be young at dispatch.
	GuardBudget time.Duration // 8 s
	// IdleConns is how many connections of each kind are kept open.
	IdleConns int // 64
}

func (l Limits) withDefaults() Limits {
	fill := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	fill(&l.DialTimeout, 5*time.Second)
	fill(&l.TLSTimeout, 5*time.Second)
	fill(&l.ReadBudget, 20*time.Second)
	fill(&l.GuardBudget, 8*time.Second)
	if l.BodyBytes <= 0 {
		l.BodyBytes = 1 << 20
	}
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = 32 << 10
	}
	if l.ReadTries <= 0 {
		l.ReadTries = 5
	}
	if l.IdleConns <= 0 {
		l.IdleConns = 64
	}
	return l
}

// Client holds the connections to one upstream. It is safe for concurrent use.
type Client struct {
	up   Upstream
	base *url.URL
	tls  *tls.Config
	// reads carries what is effect-free; fresh gives every request a connection
	// of its own; keyed keeps connections for tools whose upstream honours keys.
	reads, fresh, keyed *http.Transport
	refused             atomic.Int64
}

// userAgent names us to upstreams.
const userAgent = "countersign"

// idleTimeout is short: the longer a connection idles, the likelier its peer
// closes it just when a request is written.
const idleTimeout = 15 * time.Second

// Open checks the upstream and makes its client. It dials nothing.
func Open(up Upstream) (*Client, error) {
	base, err := url.Parse(up.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("upstream %s: the url can't be read", up.Name)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.Opaque != "":
		return nil, fmt.Errorf("upstream %s: the url must be http:// or https:// with a host", up.Name)
	case base.User != nil, base.RawQuery != "" || base.ForceQuery, base.Fragment != "":
		return nil, fmt.Errorf("upstream %s: the url must not hold credentials, a query or a fragment", up.Name)
	}
	for _, c := range []*Credential{up.Auth, up.ReadAuth} {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("upstream %s: %w", up.Name, err)
		}
	}
	up.Limits = up.Limits.withDefaults()
	if up.Now == nil {
		up.Now = time.Now
	}
	if up.Sleep == nil {
		up.Sleep = sleep
	}
	if up.Rand == nil {
		up.Rand = rand.Float64
	}
	c := &Client{up: up, base: base}
	c.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: up.RootCAs, Certificates: up.Certificates,
		ServerName: base.Hostname(), NextProtos: []string{"http/1.1"},
	}
	c.reads, c.fresh, c.keyed = c.transport(), c.transport(), c.transport()
	c.fresh.DisableKeepAlives = true
	return c, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// transport is HTTP/1.1 without anything that the environment or the upstream
// could turn to another host or a larger answer: no proxy, no compression, the
// dial guard, limits (S54 to S57).
func (c *Client) transport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            c.dial,
		DialTLSContext:         c.dialTLS,
		DisableCompression:     true,
		MaxIdleConns:           c.up.Limits.IdleConns,
		MaxIdleConnsPerHost:    c.up.Limits.IdleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: c.up.Limits.HeaderBytes,
		Protocols:              &protocols,
	}
}

// URL is the base address that tool versions are bound to.
func (c *Client) URL() string { return strings.TrimSuffix(c.up.URL, "/") }

// RefusedWrites counts requests that were not effect-free and were stopped on
// the way of a preview, guard or lookup. It stays zero unless something is
// wrong.
func (c *Client) RefusedWrites() int64 { return c.refused.Load() }

// Close drops idle connections. The client can still be used.
func (c *Client) Close() {
	for _, t := range []*http.Transport{c.reads, c.fresh, c.keyed} {
		t.CloseIdleConnections()
	}
}

// errForbidden is an address that the guard refuses to dial.
type errForbidden struct{ kind string }

func (e *errForbidden) Error() string { return "the address is " + e.kind }

// dial connects, and refuses addresses after resolution (S54): the name may
// resolve to anything at any time, so only what is about to be connected counts.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: c.up.Limits.DialTimeout, Control: c.control, KeepAlive: 15 * time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &gateConn{Conn: conn}, nil
}

// dialTLS does the handshake itself, so that what the gate counts are bytes of
// requests and not of the handshake.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	raw := conn.(*gateConn).Conn
	secure := tls.Client(raw, c.tls)
	handshake, cancel := context.WithTimeout(ctx, c.up.Limits.TLSTimeout)
	defer cancel()
	if err := secure.HandshakeContext(handshake); err != nil {
		return nil, errors.Join(&errTLS{err}, raw.Close())
	}
	return &gateConn{Conn: secure}, nil
}

// errTLS is a handshake that failed: nothing of a request was sent.
type errTLS struct{ cause error }

func (e *errTLS) Error() string { return "TLS handshake: " + e.cause.Error() }

func (e *errTLS) Unwrap() error { return e.cause }
