package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

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
	// OwnerName is the name that people know the owner by.
	OwnerName string `json:"owner_name"`
	Key       string `json:"key,omitempty"`
	// NobodyApproves: no enabled operator but the owner was there when it was made.
	NobodyApproves bool `json:"nobody_approves,omitempty"`
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
	r.Get("/agents", answer(g.listAgents))
	r.Post("/agents", answer(g.createAgent))
	r.Post("/agents/{agent}/revoke", answer(g.revokeAgent))
	r.Get("/operators", answer(g.listOperators))
	r.Post("/operators", answer(g.createOperator))
	r.Post("/operators/{operator}/disable", answer(g.disableOperator))
	r.Post("/operators/{operator}/link", answer(g.linkOperator))
	r.Get("/tools", answer(g.listTools))
	r.Post("/tools/reload", answer(g.reloadTools))
	r.Get("/keys", answer(func(*http.Request) (any, error) { return g.keys.List(g.ledger.Now()), nil }))
	r.Post("/keys/rotate", answer(g.rotateKeys))
	r.Get("/status", answer(g.status))
	g.auditRoutes(r)
	local := g.localAPI()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if isLocalAPI(q.URL.Path) {
			local.ServeHTTP(w, q)
			return
		}
		r.ServeHTTP(w, q)
	})
}

// refusal is how the admin door says no.
type refusal struct {
	Code   fault.Code `json:"code"`
	Detail string     `json:"detail"`
}

func (r refusal) Error() string { return r.Detail }

// refusalOf puts an error in words for the person at the command line, who is
// the owner of the ledger: the causes of inner failures are shown too.
func refusalOf(err error) refusal {
	e := fault.Of(err)
	r := refusal{Code: e.Code, Detail: e.Detail}
	switch e.Code {
	case fault.Internal, fault.StoreUnavailable, fault.DiskFull:
		if e.Cause != nil {
			r.Detail += " " + plain(e.Cause)
		}
	}
	return r
}

// answer turns a function into a handler that answers JSON, or a refusal.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			// A lost connection is the only way to fail here; nobody is left to tell.
			_ = json.NewEncoder(w).Encode(refusalOf(err))
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
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Wrap(err, fault.SchemaViolation, "There is no operator %s who could answer for the agent. Make one: countersign operator create %s", in.Owner, in.Owner)
	}
	if err != nil {
		return nil, err
	}
	// Asked before: once the agent is made, its key must not be lost to an error.
	people, err := g.identity.ListOperators(r.Context(), tenant)
	if err != nil {
		return nil, err
	}
	a, key, err := g.identity.CreateAgent(r.Context(), tenant, in.Name, owner.ID, in.Tools)
	return agentAnswer{Agent: a, OwnerName: owner.Name, Key: key, NobodyApproves: !someoneBeside(owner.ID, people)}, err
}

// someoneBeside reports whether there is an operator beside an agent's owner,
// whose own yes does not count. Groups are not looked at.
func someoneBeside(owner string, people []identity.Operator) bool {
	return slices.ContainsFunc(people, func(o identity.Operator) bool { return o.ID != owner && o.DisabledAt.IsZero() })
}

func (g *gateway) listAgents(r *http.Request) (any, error) {
	all, err := g.identity.ListAgents(r.Context(), tenant)
	if err != nil {
		return nil, err
	}
	out := make([]agentAnswer, len(all))
	for i, a := range all {
		out[i] = g.agentAnswer(r.Context(), a)
	}
	return out, nil
}

// agentAnswer adds the owner's name. The built-in owner is nobody's account and
// goes by its id.
func (g *gateway) agentAnswer(ctx context.Context, a identity.Agent) agentAnswer {
	out := agentAnswer{Agent: a, OwnerName: a.Owner}
	if o, err := g.identity.Operator(ctx, tenant, a.Owner); err == nil {
		out.OwnerName = o.Name
	}
	return out
}

func (g *gateway) revokeAgent(r *http.Request) (any, error) {
	a, err := g.identity.AgentNamed(r.Context(), tenant, chi.URLParam(r, "agent"))
	if err != nil {
		return nil, err
	}
	if err := g.identity.RevokeAgent(r.Context(), tenant, a.ID); err != nil {
		return nil, err
	}
	a, err = g.identity.Agent(r.Context(), tenant, a.ID)
	return g.agentAnswer(r.Context(), a), err
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
	if err := g.ledger.PeopleChanged(r.Context(), tenant); err != nil {
		return nil, err // the command may be repeated
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
	if fault.Is(err, fault.NotFound) {
		err = fault.Wrap(err, fault.NotFound, "There is no operator of that name.")
	}
	return o, err
}

func (g *gateway) reloadTools(r *http.Request) (any, error) {
	if err := g.loadTools(r.Context()); err != nil {
		// The reason is the whole point: it says which line to change.
		return nil, fault.Wrap(err, fault.SchemaViolation, "The tools were not reloaded; the old ones stay in force.\n%v", err)
	}
	g.log.Info("tools reloaded", "tools", len(g.registry.List()))
	return g.listTools(r)
}

func (g *gateway) listTools(*http.Request) (any, error) {
	out := []toolAnswer{}
	for _, t := range g.registry.List() {
		out = append(out, toolAnswerOf(t.Spec))
	}
	return out, nil
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
	Schema  int64             `json:"schema_version"`
	Tools   map[string]string `json:"tools"`
	// Upstreams are the addresses that the tools are bound to.
	Upstreams map[string]string `json:"upstreams"`
	Anchors   []anchorState     `json:"anchors"`
	URL       string            `json:"url"`
	Now       time.Time         `json:"now"`
}

func (g *gateway) status(*http.Request) (any, error) {
	upstreams := map[string]string{}
	for name, client := range g.upstreams {
		upstreams[name] = client.URL()
	}
	return status{
		Version: version(), PID: os.Getpid(), Ledger: g.ledger.ID(), Schema: schemaVersion(),
		Tools: g.registry.Versions(), Upstreams: upstreams, Anchors: g.anchorStates(), URL: g.cfg.publicURL(), Now: g.ledger.Now(),
	}, nil
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
