package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Config is the one file of a gateway. It is read once, checked whole, and
// passed on as typed values; no other package sees it. docs/config.md and
// config.schema.json describe each key, and a test compares the three.
type Config struct {
	// PublicURL is how people and agents reach the gateway; links, cookies and
	// the Host allow-list follow it.
	PublicURL string `yaml:"public_url"`
	// Listen is the address of pages and API.
	Listen string `yaml:"listen"`
	// Hosts are further host names under which requests are accepted.
	Hosts []string `yaml:"hosts"`
	TLS   struct {
		Cert string `yaml:"cert"`
		Key  string `yaml:"key"`
	} `yaml:"tls"`
	// TrustedProxies are the addresses whose X-Forwarded-For is believed.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// Data is the folder of the ledger, the signing keys and the admin socket.
	Data string `yaml:"data"`
	Log  struct {
		Format string `yaml:"format"` // auto, text, json
		Level  string `yaml:"level"`  // debug, info, warn, error
	} `yaml:"log"`
	// Tools are manifest files, or folders of them.
	Tools     []string            `yaml:"tools"`
	Upstreams map[string]Upstream `yaml:"upstreams"`
	// Tenants names the tenants; one, default, for now.
	Tenants []string `yaml:"tenants"`
	Tokens  struct {
		TTL       Duration `yaml:"ttl"`
		Retention Duration `yaml:"retention"`
	} `yaml:"tokens"`
	Limits Limits `yaml:"limits"`

	// dir is the folder of the file; relative paths start there.
	dir string
}

// Upstream is one system that tools write to.
type Upstream struct {
	URL string `yaml:"url"`
	// Auth is sent with effectful requests; ReadAuth with reads, and defaults to
	// Auth.
	Auth     *Auth `yaml:"auth"`
	ReadAuth *Auth `yaml:"read_auth"`
	// Allow lists addresses (IP, IP:port or CIDR) that the guard against private
	// addresses lets through. There is no other way past it.
	Allow []string `yaml:"allow"`
	// CA is a file of PEM certificates to trust for this upstream alone.
	CA string `yaml:"ca"`
}

// Auth is a credential; exactly one member is set. Values are env:NAME or
// file:PATH, read again when they change.
type Auth struct {
	Bearer string `yaml:"bearer"`
	Basic  *struct {
		User     string `yaml:"user"`
		Password string `yaml:"password"`
	} `yaml:"basic"`
	Header *struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"header"`
}

// Limits bound the work that one caller can cause.
type Limits struct {
	// AgentRequests is how many requests a second one agent may make, with a
	// burst of four times that.
	AgentRequests int `yaml:"agent_requests"`
	// OpenPreviews is how many unexpired previews one agent may hold.
	OpenPreviews int `yaml:"open_previews"`
	// Connections is how many may be open at once; a tenth is kept for operators.
	Connections int `yaml:"connections"`
	// Parallel is how many approved operations are sent at once.
	Parallel int `yaml:"parallel"`
}

// Duration is a Go duration in YAML: 5m, 24h.
type Duration time.Duration

// UnmarshalYAML reads a duration; days may be written as 90d.
func (d *Duration) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		h, err := time.ParseDuration(days + "h")
		if err != nil {
			return fmt.Errorf("%q is not a duration like 5m, 24h or 90d", text)
		}
		*d = Duration(24 * h)
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 5m, 24h or 90d", text)
	}
	*d = Duration(v)
	return nil
}

//go:embed config.schema.json
var configSchema []byte

// defaultConfig is what an empty file means.
func defaultConfig() Config {
	var c Config
	c.Listen = "127.0.0.1:8420"
	c.Data = "data"
	c.Log.Format, c.Log.Level = "auto", "info"
	c.Tenants = []string{"default"}
	c.Tokens.TTL, c.Tokens.Retention = Duration(5*time.Minute), Duration(90*24*time.Hour)
	c.Limits = Limits{AgentRequests: 50, OpenPreviews: 1000, Connections: 4096, Parallel: 16}
	return c
}

// loadConfig reads and checks a file. Its errors say where and what instead.
func loadConfig(path string) (Config, error) {
	c := defaultConfig()
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("the configuration can't be read: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, true))
	}
	if c.dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s:\n%w", path, err)
	}
	return c, nil
}

// path resolves a path of the file against the file's folder.
func (c Config) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.dir, p)
}

// publicURL is PublicURL, or what Listen says.
func (c Config) publicURL() string {
	if c.PublicURL != "" {
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(c.Listen)
	if host == "" || host == "127.0.0.1" || host == "::1" || host == "0.0.0.0" {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// check gives every problem at once.
func (c Config) check() error {
	var problems []error
	bad := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("  %s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			bad("public_url", "must be like https://countersign.example, without a path")
		}
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" {
		bad("listen", "must be host:port, like 127.0.0.1:8420")
	} else if c.TLS.Cert == "" && !c.loopback() && !strings.HasPrefix(c.PublicURL, "https://") {
		bad("listen", "%s is not loopback: give tls.cert and tls.key, or set public_url to the https:// address of the proxy in front", c.Listen)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		bad("tls", "cert and key go together")
	}
	for _, p := range c.TrustedProxies {
		if _, err := parsePrefix(p); err != nil {
			bad("trusted_proxies", "%q is neither an address nor a CIDR", p)
		}
	}
	if !oneOf(c.Log.Format, "auto", "text", "json") {
		bad("log.format", "must be auto, text or json")
	}
	if !oneOf(c.Log.Level, "debug", "info", "warn", "error") {
		bad("log.level", "must be debug, info, warn or error")
	}
	if len(c.Tenants) != 1 || c.Tenants[0] != "default" {
		bad("tenants", "must be [default]; more than one tenant is not supported yet")
	}
	if ttl := time.Duration(c.Tokens.TTL); ttl < time.Second || ttl > 15*time.Minute || ttl%time.Second != 0 {
		bad("tokens.ttl", "must be whole seconds from 1s to 15m")
	}
	if time.Duration(c.Tokens.Retention) < 24*time.Hour {
		bad("tokens.retention", "must be at least 24h: repeats are answered that long")
	}
	for key, n := range map[string]int{
		"limits.agent_requests": c.Limits.AgentRequests, "limits.open_previews": c.Limits.OpenPreviews,
		"limits.connections": c.Limits.Connections, "limits.parallel": c.Limits.Parallel,
	} {
		if n < 1 {
			bad(key, "must be at least 1")
		}
	}
	for name, u := range c.Upstreams {
		u.check("upstreams."+name, bad)
	}
	return errors.Join(problems...)
}

func (c Config) loopback() bool {
	host, _, _ := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (u Upstream) check(key string, bad func(key, format string, args ...any)) {
	parsed, err := url.Parse(u.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		bad(key+".url", "must be http:// or https:// with a host and no credentials")
	}
	u.Auth.check(key+".auth", bad)
	u.ReadAuth.check(key+".read_auth", bad)
	for _, a := range u.Allow {
		if _, err := parseAllow(a); err != nil {
			bad(key+".allow", "%q is neither an address, address:port nor a CIDR", a)
		}
	}
}

func (a *Auth) check(key string, bad func(key, format string, args ...any)) {
	if a == nil {
		return
	}
	var values []string
	if a.Bearer != "" {
		values = append(values, a.Bearer)
	}
	if a.Basic != nil {
		values = append(values, a.Basic.Password)
	}
	if a.Header != nil {
		values = append(values, a.Header.Value)
	}
	if len(values) != 1 {
		bad(key, "give exactly one of bearer, basic and header")
		return
	}
	if !strings.HasPrefix(values[0], "env:") && !strings.HasPrefix(values[0], "file:") {
		bad(key, "secrets are never in this file: write env:NAME or file:PATH")
	}
}

func oneOf(s string, list ...string) bool {
	for _, l := range list {
		if s == l {
			return true
		}
	}
	return false
}

// parsePrefix reads an address or a CIDR.
func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return a.Prefix(a.BitLen())
}

// allowed is one entry of an upstream's allow list; port 0 means any.
type allowed struct {
	prefix netip.Prefix
	port   uint16
}

// parseAllow reads an address, address:port or CIDR.
func parseAllow(s string) (allowed, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return allowed{netip.PrefixFrom(ap.Addr(), ap.Addr().BitLen()), ap.Port()}, nil
	}
	p, err := parsePrefix(s)
	return allowed{prefix: p}, err
}
