package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/go-chi/chi/v5"

	"countersign/fault"
	"countersign/identity"
	"countersign/strictjson"
)

// The admin door is how the command line changes or reads a ledger: JSON over
// HTTP on data/admin.sock (0600, so the same user only). With no gateway
// running, the command opens the ledger itself, under its lock, and talks to the
// same handler in its own process; there is one code path for both.

const adminSocket = "admin.sock"

// agentAnswer is one agent; Key only when it was just made.
type agentAnswer struct {
	identity.Agent
	Key string `json:"key,omitempty"`
}

// operatorAnswer is one operator; the link only when it was just made.
type operatorAnswer struct {
	identity.Operator
	SetupURL string `json:"setup_url,omitempty"`
	Ready    bool   `json:"ready"` // has a password
}

// adminHandler serves the admin door of a gateway.
func (g *gateway) adminHandler() http.Handler {
	r := chi.NewRouter()
	r.Get("/agents", answer(func(r *http.Request) (any, error) { return g.identity.ListAgents(r.Context(), tenant) }))
	r.Post("/agents", answer(g.createAgent))
	r.Post("/agents/{agent}/revoke", answer(g.revokeAgent))
	r.Get("/operators", answer(g.listOperators))
	r.Post("/operators", answer(g.createOperator))
	r.Post("/operators/{operator}/disable", answer(g.disableOperator))
	r.Post("/operators/{operator}/link", answer(g.linkOperator))
	r.Post("/tools/reload", answer(g.reloadTools))
	r.Post("/keys/rotate", answer(g.rotateKeys))
	r.Get("/status", answer(g.status))
	return r
}

// answer turns a function into a handler that answers JSON, or a fault.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			e := fault.Of(err)
			w.WriteHeader(http.StatusUnprocessableEntity)
			// A lost connection is the only way to fail here; nobody is left to tell.
			_ = json.NewEncoder(w).Encode(map[string]string{"code": string(e.Code), "detail": e.Error()})
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	}
}

// readBody fills dst from the request's JSON.
func readBody(r *http.Request, dst any) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return fault.Wrap(err, fault.MalformedRequest, "The request could not be read.")
	}
	v, err := strictjson.ParseObject(b, strictjson.DefaultLimits)
	if err != nil {
		return err
	}
	return strictjson.Bind(v, dst)
}

func (g *gateway) createAgent(r *http.Request) (any, error) {
	var in struct {
		Name  string   `json:"name"`
		Owner string   `json:"owner"`
		Tools []string `json:"tools"`
	}
	if err := readBody(r, &in); err != nil {
		return nil, err
	}
	owner, err := g.identity.OperatorNamed(r.Context(), tenant, in.Owner)
	if err != nil {
		return nil, fault.Wrap(err, fault.SchemaViolation, "There is no operator %s who could answer for the agent.", in.Owner)
	}
	a, key, err := g.identity.CreateAgent(r.Context(), tenant, in.Name, owner.ID, in.Tools)
	return agentAnswer{Agent: a, Key: key}, err
}

func (g *gateway) revokeAgent(r *http.Request) (any, error) {
	a, err := g.identity.AgentNamed(r.Context(), tenant, chi.URLParam(r, "agent"))
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "There is no agent of that name.")
	}
	if err := g.identity.RevokeAgent(r.Context(), tenant, a.ID); err != nil {
		return nil, err
	}
	return g.identity.Agent(r.Context(), tenant, a.ID)
}

func (g *gateway) listOperators(r *http.Request) (any, error) {
	all, err := g.identity.ListOperators(r.Context(), tenant)
	out := make([]operatorAnswer, len(all))
	for i, o := range all {
		out[i] = operatorAnswer{Operator: o, Ready: o.Password != ""}
	}
	return out, err
}

func (g *gateway) createOperator(r *http.Request) (any, error) {
	var in struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups"`
	}
	if err := readBody(r, &in); err != nil {
		return nil, err
	}
	o, code, err := g.identity.CreateOperator(r.Context(), tenant, in.Name, in.Groups)
	return operatorAnswer{Operator: o, SetupURL: g.setupURL(code)}, err
}

// setupURL carries the code in the fragment, which browsers keep to
// themselves: it is in no log and no Referer.
func (g *gateway) setupURL(code string) string { return g.cfg.publicURL() + "/setup#" + code }

func (g *gateway) disableOperator(r *http.Request) (any, error) {
	o, err := g.operatorNamed(r)
	if err != nil {
		return nil, err
	}
	if err := g.identity.DisableOperator(r.Context(), tenant, o.ID); err != nil {
		return nil, err
	}
	o, err = g.identity.Operator(r.Context(), tenant, o.ID)
	return operatorAnswer{Operator: o, Ready: o.Password != ""}, err
}

func (g *gateway) linkOperator(r *http.Request) (any, error) {
	o, err := g.operatorNamed(r)
	if err != nil {
		return nil, err
	}
	code, err := g.identity.NewSetupLink(r.Context(), tenant, o.ID, 0)
	return operatorAnswer{Operator: o, SetupURL: g.setupURL(code), Ready: o.Password != ""}, err
}

func (g *gateway) operatorNamed(r *http.Request) (identity.Operator, error) {
	o, err := g.identity.OperatorNamed(r.Context(), tenant, chi.URLParam(r, "operator"))
	if err != nil {
		return o, fault.Wrap(err, fault.NotFound, "There is no operator of that name.")
	}
	return o, nil
}

func (g *gateway) reloadTools(r *http.Request) (any, error) {
	if err := g.loadTools(r.Context()); err != nil {
		return nil, fault.Wrap(err, fault.SchemaViolation, "The tools were not reloaded; the old ones stay in force.")
	}
	return g.registry.Versions(), nil
}

func (g *gateway) rotateKeys(r *http.Request) (any, error) {
	kid, err := g.keys.Rotate(g.ledger.Now())
	return map[string]string{"kid": kid}, err
}

// status is what doctor asks a running gateway.
type status struct {
	Version string            `json:"version"`
	PID     int               `json:"pid"`
	Ledger  string            `json:"ledger"`
	Tools   map[string]string `json:"tools"`
	URL     string            `json:"url"`
}

func (g *gateway) status(*http.Request) (any, error) {
	return status{Version: version(), PID: os.Getpid(), Ledger: g.ledger.ID(), Tools: g.registry.Versions(), URL: g.cfg.publicURL()}, nil
}

// serveAdmin listens on the admin socket until ctx ends.
func (g *gateway) serveAdmin(ctx context.Context) error {
	path := filepath.Join(g.cfg.path(g.cfg.Data), adminSocket)
	// The ledger's lock is ours, so a socket that is there is a dead process's.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ln, err := listenPrivate(path)
	if err != nil {
		return fmt.Errorf("the admin socket: %w", err)
	}
	srv := &http.Server{Handler: g.adminHandler(), ReadHeaderTimeout: headerTimeout}
	go func() {
		<-ctx.Done()
		_ = srv.Close() // ends Serve; the socket goes with the listener
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// admin is a connection to the admin door.
type admin struct {
	client *http.Client
	close  func()
	// running: a gateway answers; else this process holds the ledger itself.
	running bool
}

// openAdmin reaches the running gateway of a data folder, or opens the ledger
// here.
func openAdmin(ctx context.Context, cfg Config, env environment) (*admin, error) {
	path := filepath.Join(cfg.path(cfg.Data), adminSocket)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	if conn, err := dial(ctx, "", ""); err == nil {
		_ = conn.Close() // it was only asked whether somebody listens
		client := &http.Client{Transport: &http.Transport{DialContext: dial}}
		return &admin{client: client, close: client.CloseIdleConnections, running: true}, nil
	}
	g, err := openGateway(ctx, cfg, env)
	if err != nil {
		return nil, err
	}
	return &admin{client: &http.Client{Transport: inProcess{g.adminHandler()}}, close: g.close}, nil
}

// inProcess answers requests by a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &buffered{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.header,
		Body: io.NopCloser(&w.body), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// buffered keeps an answer.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

// call sends one request and fills out from the answer.
func (a *admin) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, body)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e struct{ Code, Detail string }
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Detail == "" {
			return fmt.Errorf("the gateway answered %s", resp.Status)
		}
		return errors.New(e.Detail)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
