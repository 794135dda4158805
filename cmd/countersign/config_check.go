package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// configProblem is one thing that is wrong with a configuration.
type configProblem struct {
	Key     string // tokens.ttl, hosts[0]
	Message string // what it must be
}

// configCheck collects every problem, so that one run tells them all.
type configCheck struct{ problems []configProblem }

func (k *configCheck) bad(key, format string, args ...any) {
	k.problems = append(k.problems, configProblem{key, fmt.Sprintf(format, args...)})
}

// check gives every problem of the values at once.
func (c Config) check() []configProblem {
	k := &configCheck{}
	c.checkAddresses(k)
	if c.Data == "" {
		k.bad("data", "must be a folder")
	}
	if !slices.Contains([]string{"auto", "text", "json"}, c.Log.Format) {
		k.bad("log.format", "must be auto, text or json")
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		k.bad("log.level", "must be debug, info, warn or error")
	}
	for i, path := range c.Tools {
		if path == "" {
			k.bad(fmt.Sprintf("tools[%d]", i), "must be a file or a folder")
		}
	}
	if len(c.Tenants) != 1 || c.Tenants[0] != tenant {
		k.bad("tenants", "must be [%s]; more than one tenant is not supported yet", tenant)
	}
	if ttl := time.Duration(c.Tokens.TTL); ttl < time.Second || ttl > 15*time.Minute || ttl%time.Second != 0 {
		k.bad("tokens.ttl", "must be whole seconds from 1s to 15m")
	}
	if time.Duration(c.Tokens.Retention) < 24*time.Hour {
		k.bad("tokens.retention", "must be at least 24h: repeats are answered that long")
	}
	for _, limit := range []struct {
		key      string
		n, least int
	}{
		{"limits.agent_requests", c.Limits.AgentRequests, 1},
		{"limits.open_previews", c.Limits.OpenPreviews, 1},
		{"limits.waiting_approvals", c.Limits.WaitingApprovals, 1},
		// One page needs several.
		{"limits.connections", c.Limits.Connections, 10},
		{"limits.parallel", c.Limits.Parallel, 1},
	} {
		if limit.n < limit.least || limit.n > maxLimit {
			k.bad(limit.key, "must be from %d to %d", limit.least, maxLimit)
		}
	}
	c.checkReconcile(k)
	c.checkAudit(k)
	for _, name := range c.upstreamNames() {
		k.upstream("upstreams."+name, name, c.Upstreams[name])
	}
	return k.problems
}

// checkReconcile keeps the questions about unknown outcomes from becoming a flood,
// and what "absent" must be from being too little.
func (c Config) checkReconcile(k *configCheck) {
	r := c.Reconcile
	if d := time.Duration(r.MaxBackoff); d < time.Second || d > time.Hour {
		k.bad("reconcile.max_backoff", "must be from 1s to 1h")
	}
	if d := time.Duration(r.Budget); d < time.Minute || d > 30*24*time.Hour {
		k.bad("reconcile.budget", "must be from 1m to 30d")
	}
	if r.Repeats < 2 || r.Repeats > 20 {
		k.bad("reconcile.repeats", "must be from 2 to 20: one answer alone proves too little")
	}
	if r.Retries < 0 || r.Retries > 5 {
		k.bad("reconcile.retries", "must be from 0 to 5")
	}
	if d := time.Duration(r.RetentionMargin); d < time.Second || d > 30*24*time.Hour {
		k.bad("reconcile.retention_margin", "must be from 1s to 30d")
	}
}

// maxLimit is far above what one process can serve.
const maxLimit = 1_000_000

func (c Config) checkAddresses(k *configCheck) {
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		switch {
		// What asks for https:// elsewhere compares the text, so the scheme is in lower case.
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.HasPrefix(c.PublicURL, u.Scheme) ||
			u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			k.bad("public_url", "must be like https://countersign.example, without a path")
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			k.bad("public_url", "must be https:// beyond loopback: people would sign in over plain http")
		}
	}
	for key, address := range map[string]string{"listen": c.Listen, "people_listen": c.PeopleListen} {
		if key == "people_listen" && address == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(address); err != nil || !validPort(port) {
			k.bad(key, "must be host:port, like 127.0.0.1:8420")
		} else if c.TLS.Cert == "" && !onLoopback(address) && !strings.HasPrefix(c.PublicURL, "https://") {
			k.bad(key, "%s is not loopback: give tls.cert and tls.key, or set public_url to the https:// address of the proxy in front", address)
		}
	}
	if c.MetricsListen != "" {
		if _, port, err := net.SplitHostPort(c.MetricsListen); err != nil || !validPort(port) {
			k.bad("metrics_listen", "must be host:port, like 127.0.0.1:8429")
		}
	}
	if c.Telemetry.OTLPEndpoint != "" {
		u, err := url.Parse(c.Telemetry.OTLPEndpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			k.bad("telemetry.otlp_endpoint", "must be http:// or https:// with a host, like http://127.0.0.1:4318, without credentials and query")
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		k.bad("tls", "cert and key go together")
	}
	for i, host := range c.Hosts {
		if !hostForm.MatchString(host) && net.ParseIP(host) == nil {
			k.bad(fmt.Sprintf("hosts[%d]", i), "must be a host name in lower case, without scheme and port, like countersign.internal")
		}
	}
	for i, p := range c.TrustedProxies {
		if _, err := parsePrefix(p); err != nil {
			k.bad(fmt.Sprintf("trusted_proxies[%d]", i), "must be an address or a CIDR, like 10.0.0.7 or 10.0.0.0/24")
		}
	}
}

var (
	hostForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	upstreamForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,47}$`) // as in manifests
	portForm     = regexp.MustCompile(`^[0-9]{1,5}$`)
)

// validPort takes a number; 0 is whichever is free.
func validPort(port string) bool {
	if !portForm.MatchString(port) {
		return false
	}
	_, err := netip.ParseAddrPort("127.0.0.1:" + port)
	return err == nil
}

func (k *configCheck) upstream(key, name string, u Upstream) {
	if !upstreamForm.MatchString(name) {
		k.bad(key, "the name of an upstream is lower-case letters, digits, _ and -, and begins with a letter")
	}
	parsed, err := url.Parse(u.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		k.bad(key+".url", "must be http:// or https:// with a host, without credentials and query")
	}
	k.auth(key+".auth", u.Auth)
	k.auth(key+".read_auth", u.ReadAuth)
	for i, a := range u.Allow {
		if checkAllowed(a) != nil {
			k.bad(fmt.Sprintf("%s.allow[%d]", key, i), "must be an address, address:port or CIDR, like 127.0.0.1:8421")
		}
	}
}

func (k *configCheck) auth(key string, a *Auth) {
	if a == nil {
		return
	}
	secrets := map[string]string{}
	if a.Bearer != "" {
		secrets[".bearer"] = a.Bearer
	}
	if a.Basic != nil {
		secrets[".basic.password"] = a.Basic.Password
		if a.Basic.User == "" || strings.Contains(a.Basic.User, ":") {
			k.bad(key+".basic.user", "must be a name without a colon")
		}
	}
	if a.Header != nil {
		secrets[".header.value"] = a.Header.Value
		if !httpguts.ValidHeaderFieldName(a.Header.Name) {
			k.bad(key+".header.name", "must be the name of a header, like X-Api-Key")
		}
	}
	if len(secrets) != 1 {
		k.bad(key, "give exactly one of bearer, basic and header")
		return
	}
	for member, secret := range secrets {
		scheme, rest, _ := strings.Cut(secret, ":")
		if scheme != "env" && scheme != "file" || rest == "" {
			k.bad(key+member, "secrets are never in this file: write env:NAME or file:PATH")
		}
	}
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
