package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/commit"
	"countersign/examples/shop"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
)

// drillTool is the tool that the drill calls.
const drillTool = "hold_order"

// drillStage is a gateway in front of a shop, with a line between them that can
// be cut, and two agents.
type drillStage struct {
	g            *gateway
	shop         *shop.Shop
	line         *drillLine
	base, signIn string
	agent, other *drillAgent
	operator     ledger.Actor
}

func (s *drillStage) link(operation string) string { return s.base + "/operations/" + operation }

// onStage runs play with a stage of its own in dir.
func (d *drill) onStage(ctx context.Context, dir string, play func(context.Context) error) (err error) {
	key, readKey := "shop_"+rand.Text(), "shop_ro_"+rand.Text()
	cfg := defaultConfig()
	cfg.Data = dir
	cfg.Log.Level = "error"
	log := d.logger(cfg)
	s := &drillStage{}
	d.stage = s
	if s.shop, err = shop.Open(shop.Config{Dir: filepath.Join(dir, "shop"), Key: key, ReadKey: readKey, Logger: log}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.shop.Close()) }()
	shopLn, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer shopLn.Close()
	if s.line, err = openDrillLine(shopLn.Addr().String()); err != nil {
		return err
	}
	defer s.line.close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	cfg.Listen = ln.Addr().String()
	s.base = "http://localhost:" + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	cfg.Upstreams = map[string]Upstream{"shop": {
		URL: "http://" + s.line.address, Auth: &Auth{Bearer: "env:DRILL_KEY"}, ReadAuth: &Auth{Bearer: "env:DRILL_READ_KEY"},
		Allow: []string{s.line.address},
	}}
	env := d.environment(cfg)
	env.log, env.boundary, env.manifests = log, "drill", shop.Manifests
	env.getenv = func(name string) string {
		switch name {
		case "DRILL_KEY":
			return key
		case "DRILL_READ_KEY":
			return readKey
		}
		return d.getenv(name)
	}
	if s.g, err = openGateway(ctx, cfg, env); err != nil {
		return err
	}
	defer s.g.close()
	if err := s.g.loadTools(ctx); err != nil {
		return err
	}
	if s.agent, err = s.newAgent(ctx, "drill-agent"); err != nil {
		return err
	}
	if s.other, err = s.newAgent(ctx, "drill-agent-2"); err != nil {
		return err
	}
	operator, signIn, err := s.g.identity.CreateOperator(ctx, tenant, "drill", []string{"support"})
	if err != nil {
		return err
	}
	s.signIn, s.operator = signIn, ledger.Actor{Kind: "operator", ID: operator.ID, Name: operator.Name}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	group, serving := errgroup.WithContext(serving)
	group.Go(func() error { return s.shop.Serve(shopLn) })
	group.Go(func() error { return s.g.serve(serving, []door{{ln: ln}}) })
	group.Go(func() error {
		defer s.shop.Close() // ends Serve; closing twice is fine
		defer stop()
		return play(serving)
	})
	return group.Wait()
}

// drillAgent is an agent of the REST API.
type drillAgent struct {
	name   string
	client *client
}

func (s *drillStage) newAgent(ctx context.Context, name string) (*drillAgent, error) {
	_, key, err := s.g.identity.CreateAgent(ctx, tenant, name, identity.BuiltinOwner, []string{identity.AllTools})
	if err != nil {
		return nil, err
	}
	return &drillAgent{name: name, client: &client{base: s.base, key: key, http: &http.Client{Timeout: time.Minute}}}, nil
}

// answer is a preview or an operation, whichever came.
type drillAnswer struct {
	operationDoc
	Token     string        `json:"commit_token"`
	Operation *operationDoc `json:"operation"`
}

// call sends one request. Problems are answers too.
func (a *drillAgent) call(ctx context.Context, method, path string, in any) (drillAnswer, reply, error) {
	r, err := a.client.do(ctx, method, path, in)
	if err != nil || r.problem != nil {
		return drillAnswer{}, r, err
	}
	var doc drillAnswer
	if err := json.Unmarshal(r.body, &doc); err != nil {
		return doc, r, err
	}
	return doc, r, nil
}

func refused(r reply) error {
	return fmt.Errorf("the gateway refused (%d %s): %s", r.status, r.problem.Code, r.problem.Detail)
}

// tryPreview gives a token, or the operation that already answers the key.
func (a *drillAgent) tryPreview(ctx context.Context, order string) (token string, op operationDoc, err error) {
	doc, r, err := a.call(ctx, http.MethodPost, "/v1/tools/"+drillTool+"/preview", map[string]any{"args": map[string]any{"order_id": order}})
	switch {
	case err != nil:
		return "", op, err
	case r.problem != nil:
		return "", op, refused(r)
	case doc.Token == "" && doc.Operation != nil:
		return "", *doc.Operation, nil
	}
	return doc.Token, doc.operationDoc, nil
}

func (a *drillAgent) preview(ctx context.Context, order string) (string, error) {
	token, _, err := a.tryPreview(ctx, order)
	if err == nil && token == "" {
		err = fmt.Errorf("the preview of %s gave no token", order)
	}
	return token, err
}

// commit spends a token and waits a while for the outcome.
func (a *drillAgent) commit(ctx context.Context, token string, wait time.Duration) (operationDoc, error) {
	doc, r, err := a.call(ctx, http.MethodPost, fmt.Sprintf("/v1/tools/%s/commit?wait=%d", drillTool, int(wait.Seconds())), map[string]any{"commit_token": token})
	switch {
	case err != nil:
		return operationDoc{}, err
	case r.problem != nil:
		return operationDoc{}, refused(r)
	}
	return doc.operationDoc, nil
}

// tryCommitOf previews and commits; a refusal is only a status.
func (a *drillAgent) tryCommitOf(ctx context.Context, order string) (operationDoc, int, error) {
	token, op, err := a.tryPreview(ctx, order)
	if err != nil || token == "" {
		return op, http.StatusOK, err
	}
	doc, r, err := a.call(ctx, http.MethodPost, "/v1/tools/"+drillTool+"/commit?wait=1", map[string]any{"commit_token": token})
	return doc.operationDoc, r.status, err
}

func (a *drillAgent) operation(ctx context.Context, id string, wait time.Duration) (operationDoc, error) {
	doc, r, err := a.call(ctx, http.MethodGet, fmt.Sprintf("/v1/operations/%s?wait=%d", id, int(wait.Seconds())), nil)
	switch {
	case err != nil:
		return operationDoc{}, err
	case r.problem != nil:
		return operationDoc{}, refused(r)
	}
	return doc.operationDoc, nil
}

// undo takes an operation back as two operators who click at once do, and gives
// the id of the undo. Whoever comes second is told which one it is.
func (s *drillStage) undo(ctx context.Context, id string) (string, error) {
	p, err := s.g.previews.Undo(ctx, preview.UndoRequest{Tenant: tenant, Operation: id, By: s.operator, RequestID: "drill"})
	switch {
	case err != nil:
		return "", err
	case p.Operation != nil:
		return p.Operation.ID, nil
	}
	c, err := s.g.commits.Undo(ctx, commit.UndoCommit{Tenant: tenant, Operation: id, Token: p.Token, By: s.operator, RequestID: "drill"})
	return c.Operation.ID, err
}

// drillPatience bounds how long the drill waits for what must come by itself.
const drillPatience = 90 * time.Second

// settled waits until an operation is final. It is the one agent's or the other's.
func (s *drillStage) settled(ctx context.Context, id string) (operationDoc, error) {
	asker := s.agent
	if op, err := s.g.ledger.Operation(ctx, tenant, id); err != nil {
		return operationDoc{}, err
	} else if op.Agent.Name == s.other.name {
		asker = s.other
	}
	for end := time.Now().Add(drillPatience); ; {
		op, err := asker.operation(ctx, id, 5*time.Second)
		if err != nil || ledger.State(op.State).Final() {
			return op, err
		}
		if time.Now().After(end) {
			return op, fmt.Errorf("%s is still %s after %s", id, op.State, drillPatience)
		}
	}
}

// failedLookups is what the alert on lookups watches, as the gateway counts it
// (R147).
func (s *drillStage) failedLookups() (n float64, err error) {
	families, err := s.g.metrics.Gather()
	for _, f := range families {
		if f.GetName() != "countersign_lookups_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "answer" && l.GetValue() == string(tools.LookupFailed) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n, err
}

// failedLookup waits until a failed lookup is on record.
func (s *drillStage) failedLookup(ctx context.Context, id string) (bool, error) {
	for end := time.Now().Add(drillPatience); time.Now().Before(end); {
		evidence, err := s.g.ledger.Evidence(ctx, tenant, id)
		if err != nil {
			return false, err
		}
		for _, e := range evidence {
			if e.Kind == "lookup" && e.Answer == tools.LookupFailed {
				return true, nil
			}
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return false, nil
}
