package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/approvals"
	"countersign/audit"
	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/measure"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/web"
)

// This file is the only one that names a concrete store or connector.

// tenant is the one tenant.
const tenant = "default"

// environment is what a program sees of the outside, injected for tests.
type environment struct {
	getenv func(string) string
	now    func() time.Time
	log    *slog.Logger
	// manifests, when set, replace the configuration's tools.
	manifests fs.FS
	// shopURL, when set, makes it the demo: the page says so and links the shop.
	shopURL string
	// boundary labels operations: live, or drill for synthetic data.
	boundary string
	// anchors says how strictly the ledger is held against its anchors.
	anchors anchorRule
	// onEvent, onPreview and onCommit watch for the demo's lines.
	onEvent   func(ledger.Operation, ledger.Event)
	onPreview func(preview.Request, preview.Result)
	onCommit  func(commit.Request, commit.Result)
}

// gateway is the program wired together.
type gateway struct {
	cfg Config
	env environment
	log *slog.Logger

	db       *sqlstore.DB
	ledger   *ledger.Ledger
	registry *tools.Registry
	keys     *tokens.KeySet
	identity *identity.Service
	pages    *web.Pages

	metrics   *measure.Metrics
	traces    *measure.Traces
	metricsAt net.Listener // nil without metrics_listen

	upstreams map[string]*httptool.Client
	redactKey []byte
	// draining is closed when the gateway stops, and ends long polls.
	draining chan struct{}

	previews  *preview.Service
	commits   *commit.Service
	approvals *approvals.Service
	executor  *commit.Executor
	sweeper   *reconcile.Sweeper

	reconciler *reconcile.Reconciler

	anchors []audit.Anchor
	sealer  *audit.Sealer

	reload  sync.Mutex
	closing sync.Once
}

// openGateway opens the ledger of a configuration and wires everything that
// needs no listener. The caller closes it.
func openGateway(ctx context.Context, cfg Config, env environment) (*gateway, error) {
	g := &gateway{cfg: cfg, env: env, log: slog.New(measure.LogHandler(env.log.Handler())), draining: make(chan struct{})}
	data := cfg.path(cfg.Data)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder: %w", err)
	}
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(data, "ledger.db"), Now: env.now, Logger: env.log})
	if err != nil {
		return nil, err
	}
	g.db = db
	if err := g.holdAgainstClock(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// One time for everything in here, which never goes back.
	g.env.now = db.Now
	if err := g.wire(ctx, data); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := g.holdAgainstAnchors(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return g, nil
}

func (g *gateway) wire(ctx context.Context, data string) (err error) {
	now := g.env.now
	g.registry = tools.NewRegistry(g.olderVersion)
	if err := g.openMeasures(ctx); err != nil {
		return err
	}
	if g.ledger, err = ledger.Open(ctx, ledger.Config{Store: g.db, Now: now, OnEvent: g.onEvent(), Sign: g.signOverride}); err != nil {
		return err
	}
	g.readMeasures()
	g.keys, err = tokens.LoadOrCreate(filepath.Join(data, "signing-keys.json"), now(), tokens.KeyOptions{Retention: time.Duration(g.cfg.Tokens.Retention)})
	if err != nil {
		return err
	}
	signer, err := tokens.New(tokens.Config{Issuer: g.ledger.ID(), Keys: g.keys, TTL: time.Duration(g.cfg.Tokens.TTL), Now: now})
	if err != nil {
		return err
	}
	if g.upstreams, err = openUpstreams(g.cfg, g.env); err != nil {
		return err
	}
	if g.redactKey, err = secretFile(filepath.Join(data, "redact.key")); err != nil {
		return err
	}
	if err := g.openAudit(); err != nil {
		return err
	}
	g.identity = identity.New(identity.Config{Store: g.db, Revoke: g.revoke, Now: now})
	person := approvals.Directory(g.db)
	owner := fmt.Sprintf("pid-%d", os.Getpid())
	spool, err := commit.OpenSpool(filepath.Join(data, "spool"), now)
	if err != nil {
		return err
	}
	g.executor = commit.NewExecutor(commit.ExecutorConfig{
		Ledger: g.ledger, Store: g.db, Registry: g.registry, Person: person, Owner: owner,
		Parallel: g.cfg.Limits.Parallel, Dispatching: g.traces.Dispatching, Spool: spool, Logger: g.log,
	})
	g.reconciler = reconcile.NewReconciler(reconcile.ReconcilerConfig{
		Ledger: g.ledger, Store: g.db, Registry: g.registry, Executor: g.executor, Owner: owner,
		Settings: g.cfg.Reconcile.settings(), Asking: g.traces.Asking, Logger: g.log,
	})
	g.sweeper = reconcile.New(reconcile.Config{
		Ledger: g.ledger, Store: g.db, Owner: owner, Logger: g.log,
	})
	g.previews = preview.New(preview.Config{
		Ledger: g.ledger, Store: g.db, Registry: g.registry, Signer: signer,
		Quota: g.cfg.Limits.OpenPreviews, Waiting: g.cfg.Limits.WaitingApprovals, OnPreview: g.onPreview,
	})
	g.commits = commit.New(commit.Config{
		Ledger: g.ledger, Registry: g.registry, Signer: signer, Executor: g.executor,
		EvidenceBoundary: g.env.boundary, OnCommit: g.onCommit, OnRefusal: g.onRefusal, Trace: measure.Traceparent,
	})
	g.approvals = approvals.New(approvals.Config{Ledger: g.ledger, Person: person})
	return nil
}

// revoke puts an agent on the guard row, so that what waits for it is not sent.
func (g *gateway) revoke(ctx context.Context, tenant, agent string) error {
	_, _, err := g.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "revoke", By: ledger.Gateway("identity"), Reason: agent}, func(row *ledger.Guard) {
		for _, id := range row.Revoked {
			if id == agent {
				return
			}
		}
		row.Revoked = append(row.Revoked, agent)
	})
	return err
}

// loadTools reads the manifests, puts them in force, and records the versions
// on the guard row. When any manifest is wrong nothing changes.
func (g *gateway) loadTools(ctx context.Context) error {
	g.reload.Lock()
	defer g.reload.Unlock()
	list, err := g.compileAll()
	if err != nil {
		return err
	}
	versions := make(map[string]string, len(list))
	for _, t := range list {
		versions[t.Name] = t.Version
	}
	// The guard row first: if it can't be written, the old tools really stay in
	// force. In between, what evaluated the old ones does not commit.
	if _, _, err := g.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "tools", By: ledger.Gateway("configuration")}, func(row *ledger.Guard) { row.Tools = versions }); err != nil {
		return err
	}
	return g.registry.Set(list)
}

// secretFile reads 32 random bytes, or makes them (0600). They key the digests
// that stand for sensitive arguments.
func secretFile(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		key = make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		return key, os.WriteFile(path, key, 0o600)
	case err != nil:
		return nil, err
	case len(key) != 32:
		return nil, fmt.Errorf("%s must hold 32 bytes", path)
	}
	return key, nil
}

// close ends the ledger. Loops must have ended before.
func (g *gateway) close() {
	g.closing.Do(func() {
		g.closeMeasures()
		if err := g.db.Close(); err != nil {
			g.log.Error("the ledger was not closed cleanly", "error", err)
		}
	})
}

// loops runs everything that works in the background until ctx ends.
func (g *gateway) loops(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.executor.Run(ctx) })
	group.Go(func() error { return g.sweeper.Run(ctx) })
	group.Go(func() error { return g.reconciler.Run(ctx) })
	group.Go(func() error { return g.previews.Run(ctx) })
	group.Go(func() error { return g.sealer.Run(ctx) })
	group.Go(func() error { return g.serveAdmin(ctx) })
	group.Go(func() error { return g.serveMetrics(ctx) })
	group.Go(func() error { return g.sweepIdentity(ctx) })
	return group.Wait()
}

func (g *gateway) sweepIdentity(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := g.identity.Sweep(ctx); err != nil && ctx.Err() == nil {
				g.log.Warn("sweeping sessions failed", "error", err)
			}
		}
	}
}
