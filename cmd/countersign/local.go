package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"countersign/api"
	"countersign/fault"
	"countersign/identity"
)

// Commands of operators (freeze, unknown, run, undo) are clients of the REST API
// through the admin door: the same routes that the page's people have, without a
// session. Who has the socket, or the ledger's files, is its owner and can make
// operators; the record says that it was the command line, and for whom.

// asHeader names the operator for whom a command is run.
const asHeader = "Countersign-As"

// The operator that a command is when it names none.
const (
	commandLineID   = "command-line"
	commandLineName = "the command line"
)

// localAPI serves the REST API behind the admin door.
func (g *gateway) localAPI() http.Handler {
	var server *api.Server
	// No session counts here, and none is read.
	server, err := g.newAPI(identity.NewSessions(g.identity, identity.SessionsConfig{
		OnError: func(w http.ResponseWriter, r *http.Request, err error) { server.SessionError(w, r, err) },
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			refuseLocal(w, err)
			return
		}
		who, err := g.localOperator(r)
		if err != nil {
			refuseLocal(w, err)
			return
		}
		server.As(who).ServeHTTP(w, r)
	})
}

// refuseLocal says no before the REST API is asked, in its own form.
func refuseLocal(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	// A lost connection is the only way to fail here; nobody is left to tell.
	_ = json.NewEncoder(w).Encode(refusalOf(err))
}

func (g *gateway) localOperator(r *http.Request) (identity.Operator, error) {
	name := r.Header.Get(asHeader)
	if name == "" {
		return identity.Operator{ID: commandLineID, Tenant: tenant, Name: commandLineName}, nil
	}
	o, err := g.identity.OperatorNamed(r.Context(), tenant, name)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && !o.DisabledAt.IsZero():
		return o, fault.New(fault.NotFound, "There is no operator %s who is not disabled.", name)
	case err != nil:
		return o, err
	}
	// It was not their session, and the record tells the difference.
	o.Name += " (by " + commandLineName + ")"
	return o, nil
}

// isLocalAPI reports that a path of the admin door is the REST API's.
func isLocalAPI(path string) bool { return strings.HasPrefix(path, "/v1/") }

// local runs a command against the REST API, as an operator; none is named by "".
func (p *program) local(ctx context.Context, as string, do func(*admin, *client) error) error {
	cfg, err := p.config()
	if err != nil {
		return err
	}
	a, err := openAdmin(ctx, cfg, p.quiet(cfg))
	if err != nil {
		return err
	}
	defer a.close()
	return do(a, &client{base: "http://admin", name: "the gateway", as: as, http: a.client})
}

// running runs a command that needs a gateway that runs: one that asks or sends.
func (p *program) running(ctx context.Context, as string, do func(*client) error) error {
	return p.local(ctx, as, func(a *admin, c *client) error {
		if !a.running {
			return errors.New("no gateway runs on this ledger, and this needs its tools: countersign serve")
		}
		return do(c)
	})
}

// ask sends one request, fills dst from the answer and gives its text. A problem is
// shown and ends the command.
func (c *client) ask(ctx context.Context, p *program, method, path string, in, dst any) (json.RawMessage, error) {
	r, err := c.do(ctx, method, path, in)
	switch {
	case err != nil:
		return nil, err
	case r.problem != nil:
		return nil, p.showProblem(r)
	}
	if err := json.Unmarshal(r.body, dst); err != nil {
		return nil, fmt.Errorf("the gateway's answer can't be read: %w", err)
	}
	return r.body, nil
}
