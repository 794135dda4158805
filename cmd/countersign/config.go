package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/reconcile"
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
	// PeopleListen, when set, is where page and operators' routes are; Listen then
	// answers agents only.
	PeopleListen string `yaml:"people_listen"`
	// Hosts are further host names under which requests are accepted.
	Hosts []string `yaml:"hosts"`
	TLS   struct {
		Cert string `yaml:"cert"`
		Key  string `yaml:"key"`
	} `yaml:"tls"`
	// TrustedProxies are the addresses whose X-Forwarded-For is believed.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// MetricsListen, when set, is where /metrics is answered, and nothing else.
	MetricsListen string `yaml:"metrics_listen"`
	Telemetry     struct {
		// OTLPEndpoint is the collector that spans are sent to.
		OTLPEndpoint string `yaml:"otlp_endpoint"`
	} `yaml:"telemetry"`
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
	Limits    Limits      `yaml:"limits"`
	Reconcile Reconciling `yaml:"reconcile"`
	Audit     Auditing    `yaml:"audit"`

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

// references are the env: and file: references of a credential.
func (a *Auth) references() []string {
	var refs []string
	if a.Bearer != "" {
		refs = append(refs, a.Bearer)
	}
	if a.Basic != nil {
		refs = append(refs, a.Basic.Password)
	}
	if a.Header != nil {
		refs = append(refs, a.Header.Value)
	}
	return refs
}

// secretRef is one reference to a credential: upstreams.shop.auth, env:SHOP_KEY.
type secretRef struct{ key, ref string }

// secretRefs lists the references of all upstreams and anchors in order.
func (c Config) secretRefs() []secretRef {
	var refs []secretRef
	for _, name := range c.upstreamNames() {
		u := c.Upstreams[name]
		for _, a := range []struct {
			key  string
			auth *Auth
		}{{"auth", u.Auth}, {"read_auth", u.ReadAuth}} {
			if a.auth == nil {
				continue
			}
			for _, ref := range a.auth.references() {
				refs = append(refs, secretRef{"upstreams." + name + "." + a.key, ref})
			}
		}
	}
	for i, a := range c.Audit.Anchors {
		if a.Bearer != "" {
			refs = append(refs, secretRef{fmt.Sprintf("audit.anchors[%d].bearer", i), a.Bearer})
		}
	}
	return refs
}

// Limits bound the work that one caller can cause.
type Limits struct {
	// AgentRequests is how many requests a second one agent may make, with a
	// burst of four times that.
	AgentRequests int `yaml:"agent_requests"`
	// OpenPreviews is how many unexpired previews one agent may hold.
	OpenPreviews int `yaml:"open_previews"`
	// WaitingApprovals is how many operations of one agent may wait for people.
	WaitingApprovals int `yaml:"waiting_approvals"`
	// Connections is how many may be open at once at each door.
	Connections int `yaml:"connections"`
	// Parallel is how many approved operations are sent at once.
	Parallel int `yaml:"parallel"`
}

// Reconciling says how patiently unknown outcomes are looked into.
type Reconciling struct {
	// MaxBackoff caps the pause between two questions about one outcome.
	MaxBackoff Duration `yaml:"max_backoff"`
	// Budget is how long is asked before a person is.
	Budget Duration `yaml:"budget"`
	// Repeats is how often in a row "absent" must be said before it counts.
	Repeats int `yaml:"repeats"`
	// Retries is how often a tool that honours keys is sent the same again.
	Retries int `yaml:"retries"`
	// RetentionMargin is kept off the end of a tool's key retention.
	RetentionMargin Duration `yaml:"retention_margin"`
}

// Auditing says when checkpoints are made, and where they are anchored.
type Auditing struct {
	// EveryEvents and Every say when a checkpoint is due.
	EveryEvents int      `yaml:"every_events"`
	Every       Duration `yaml:"every"`
	// Anchors are the places outside the ledger that get each checkpoint.
	Anchors []Anchor `yaml:"anchors"`
}

// Anchor is one of them; exactly one of File, Syslog and URL is set.
type Anchor struct {
	File   string `yaml:"file"`
	Syslog string `yaml:"syslog"`
	URL    string `yaml:"url"`
	// Bearer is env:NAME or file:PATH, for URL only.
	Bearer string `yaml:"bearer"`
}

// settings are what the reconciler takes; there none is said as less than none.
func (c Reconciling) settings() reconcile.Settings {
	s := reconcile.Settings{
		MaxPause: time.Duration(c.MaxBackoff), Budget: time.Duration(c.Budget), Repeats: c.Repeats, Retries: c.Retries,
		RetentionMargin: time.Duration(c.RetentionMargin),
	}
	if s.Retries == 0 {
		s.Retries = -1
	}
	return s
}

// Duration is a duration in YAML: 5m, 24h, 90d.
type Duration time.Duration

var (
	durationForm = regexp.MustCompile(`^([0-9]{1,9}(ms|s|m|h|d))+$`)
	durationPart = regexp.MustCompile(`([0-9]+)([a-z]+)`)
	durationUnit = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}
)

// UnmarshalText reads a duration in the form that manifests have too.
func (d *Duration) UnmarshalText(b []byte) error {
	bad := errors.New("must be a duration like 5m, 24h or 90d")
	if !durationForm.Match(b) {
		return bad
	}
	var sum time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(string(b), -1) {
		n, _ := strconv.ParseInt(part[1], 10, 64) // at most 9 digits
		unit := durationUnit[part[2]]
		if time.Duration(n) > (math.MaxInt64-sum)/unit {
			return bad
		}
		sum += time.Duration(n) * unit
	}
	*d = Duration(sum)
	return nil
}

// configSchema is the published JSON Schema of the file, for editors.
//
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
	c.Limits = Limits{AgentRequests: 50, OpenPreviews: 1000, WaitingApprovals: 1000, Connections: 4096, Parallel: 16}
	c.Reconcile = Reconciling{
		MaxBackoff: Duration(5 * time.Minute), Budget: Duration(24 * time.Hour), Repeats: 3, Retries: 1,
		RetentionMargin: Duration(5 * time.Minute),
	}
	c.Audit.EveryEvents, c.Audit.Every = 1000, Duration(time.Minute)
	return c
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
	return c.urlOf(cmp.Or(c.PeopleListen, c.Listen))
}

// agentsURL is where agents come in: with a door for people, public_url is
// theirs and Listen the agents'.
func (c Config) agentsURL() string {
	if c.PeopleListen != "" {
		return c.urlOf(c.Listen)
	}
	return c.publicURL()
}

// urlOf is how an address that is listened on is called from this machine.
func (c Config) urlOf(address string) string {
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(address)
	if host == "" || host == "127.0.0.1" || host == "::1" || host == "0.0.0.0" {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// toolPaths are the manifest files and folders, resolved.
func (c Config) toolPaths() []string {
	paths := make([]string, len(c.Tools))
	for i, p := range c.Tools {
		paths[i] = c.path(p)
	}
	return paths
}

// upstreamNames lists the upstreams in order.
func (c Config) upstreamNames() []string { return slices.Sorted(maps.Keys(c.Upstreams)) }

// onLoopback reports that an address of a listener is reached from this machine
// only.
func onLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return isLoopback(host)
}
