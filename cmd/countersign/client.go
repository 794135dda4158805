package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// client is an ordinary client of the REST API, as any agent is one. It knows
// of the answers what it shows, and passes the rest on untouched.
type client struct {
	base string
	key  string
	http *http.Client
	// name is what answers are said to be from; base, unless it says nothing.
	name string
	// as is the operator for whom the admin door is asked, in place of a key.
	as string
}

// defaultURL is where a gateway is by default.
const defaultURL = "http://localhost:8420"

// clientFlags are the flags of commands that call the REST API.
type clientFlags struct{ url, keyFile string }

// gatewayURL finds the gateway that the key goes to: the one that is named, the
// one of the configuration, or the default one. A configuration that can't be
// used is an error: the key must not go to whoever has the default address.
func (p *program) gatewayURL(flag string) (string, error) {
	if named := cmp.Or(flag, p.getenv("COUNTERSIGN_URL")); named != "" {
		return named, nil
	}
	path := p.configFile()
	if path == "" {
		return defaultURL, nil
	}
	cfg, err := loadConfig(path, p.getenv)
	if err != nil {
		return "", fmt.Errorf("%w\nThe gateway's address is read from there; name it with --url or COUNTERSIGN_URL instead", err)
	}
	base := cfg.agentsURL()
	if u, err := url.Parse(base); err != nil || u.Port() == "0" {
		return "", fmt.Errorf("%s says port 0, which is whichever is free; name the gateway with --url or COUNTERSIGN_URL", path)
	}
	return base, nil
}

// client makes a client of the gateway at base.
func (p *program) client(base, keyFile string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the URL of a gateway; write it like %s", base, defaultURL)
	}
	key, err := p.agentKey(keyFile)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		p.note("warning: %s is not https; the key crosses the network in clear", base)
	}
	return &client{base: trimURL(base), key: key, http: &http.Client{
		// The key is for this gateway and nobody that it points to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// trimURL is the form in which addresses of gateways are kept and compared.
func trimURL(base string) string { return strings.TrimRight(base, "/") }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// agentKey finds the agent's key. There is no flag for its value: the arguments
// of a process are there for everybody to read.
func (p *program) agentKey(file string) (string, error) {
	value := p.getenv("COUNTERSIGN_AGENT_KEY")
	if file == "" {
		file = p.getenv("COUNTERSIGN_AGENT_KEY_FILE")
		if file != "" && value != "" {
			return "", errors.New("COUNTERSIGN_AGENT_KEY and COUNTERSIGN_AGENT_KEY_FILE are both set; unset one")
		}
	}
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("the agent's key: %w", err)
		}
		value = string(b)
	}
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		return "", errors.New("an agent's key is missing: set COUNTERSIGN_AGENT_KEY_FILE or COUNTERSIGN_AGENT_KEY, or name a file with --key-file")
	case strings.ContainsAny(value, " \t\r\n"):
		return "", errors.New("the agent's key is more than one word; the file must hold the key alone")
	}
	return value, nil
}

// reply is one answer of the API.
type reply struct {
	// from is the address of who answered.
	from   string
	status int
	body   json.RawMessage
	// problem is set when the answer is a problem document.
	problem *problemDoc
}

// The parts of the API's documents that commands act on and show.
type (
	problemDoc struct {
		Title     string        `json:"title"`
		Code      string        `json:"code"`
		Detail    string        `json:"detail"`
		Pointers  []pointerDoc  `json:"pointers"`
		RequestID string        `json:"request_id"`
		Operation *operationDoc `json:"operation"`
		Next      nextDoc       `json:"next"`
	}
	pointerDoc struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	}
	nextDoc struct {
		Action       string `json:"action"`
		Text         string `json:"text"`
		AfterSeconds int    `json:"after_seconds"`
	}
	operationDoc struct {
		ID       string         `json:"id"`
		Tool     string         `json:"tool"`
		State    string         `json:"state"`
		Key      string         `json:"idempotency_key"`
		Headline string         `json:"headline"`
		EffectID string         `json:"effect_id"`
		Result   map[string]any `json:"result"`
		Reason   *struct {
			Code string `json:"code"`
			Text string `json:"text"`
		} `json:"reason"`
		Replayed bool         `json:"replayed"`
		Approval *approvalDoc `json:"approval"`
		URL      string       `json:"url"`
		Next     nextDoc      `json:"next"`
	}
	approvalDoc struct {
		Groups    map[string]int `json:"groups"`
		Rule      string         `json:"rule"`
		ExpiresAt time.Time      `json:"expires_at"`
		URL       string         `json:"url"`
	}
)

// unsent says that no byte of a request reached the gateway.
type unsent struct {
	base  string
	cause error
}

func (u unsent) Error() string {
	return fmt.Sprintf("the gateway at %s can't be reached: %v", u.base, u.cause)
}

// maxReply bounds what is read of an answer.
const maxReply = 8 << 20

// do sends one request. An error means that there is no answer that can be read;
// unless it is an unsent one, the request may have been served.
func (c *client) do(ctx context.Context, method, path string, in any) (reply, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return reply{}, unsent{c.base, err}
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return reply{}, unsent{c.base, err}
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.as != "" {
		req.Header.Set(asHeader, c.as)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, c.sendError(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return reply{}, fmt.Errorf("%s: the answer broke off: %w", c.base, err)
	}
	return c.read(resp, text)
}

// sendError tells a request that was certainly not sent from one that may have.
func (c *client) sendError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return unsent{c.base, op}
	}
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	return fmt.Errorf("%s: there was no answer: %w", c.base, err)
}

func (c *client) read(resp *http.Response, text []byte) (reply, error) {
	r := reply{from: cmp.Or(c.name, c.base), status: resp.StatusCode, body: text}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "application/problem+json":
		r.problem = &problemDoc{}
		if err := json.Unmarshal(text, r.problem); err != nil || r.problem.Code == "" {
			return r, fmt.Errorf("%s: the answer (%s) can't be read", c.base, resp.Status)
		}
		return r, nil
	case kind == "application/json" && resp.StatusCode/100 == 2 && json.Valid(text):
		return r, nil
	default:
		return r, fmt.Errorf("%s: this is not a gateway's answer: %s, %s", c.base, resp.Status, orDash(kind))
	}
}
