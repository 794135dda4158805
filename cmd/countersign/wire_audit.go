package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"countersign/audit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
	"countersign/web"
)

// This file belongs to wire.go: the anchors, the sealer, and what the audit's
// commands ask of a gateway.

// anchorRule says how strictly a ledger is held against its anchors when it is
// opened.
type anchorRule int

const (
	// strict: no anchor contradicts, and each can be read.
	strict anchorRule = iota
	// waiveUnreadable: no anchor that can be read contradicts.
	waiveUnreadable
	// unchecked: for commands that look at a ledger that was put back, or recover it.
	unchecked
)

// openAnchors makes the anchors of a configuration. It connects to nothing.
func openAnchors(cfg Config, env environment) ([]audit.Anchor, error) {
	var all []audit.Anchor
	for i, a := range cfg.Audit.Anchors {
		anchor, err := openAnchor(cfg, env, a)
		if err != nil {
			return nil, fmt.Errorf("audit.anchors[%d]: %w", i, err)
		}
		all = append(all, anchor)
	}
	return all, nil
}

func openAnchor(cfg Config, env environment, a Anchor) (audit.Anchor, error) {
	switch {
	case a.Syslog != "":
		return audit.NewSyslogAnchor(a.Syslog)
	case a.URL != "":
		var bearer func() (string, error)
		if a.Bearer != "" {
			bearer = secret(cfg, env, a.Bearer)
		}
		return audit.NewURLAnchor(a.URL, bearer)
	default:
		path := cfg.path(a.File)
		if env.anchors == strict && inside(cfg.path(cfg.Data), path) {
			env.log.Warn("an anchor lies in the data folder: who puts back that folder puts back the anchor with it; give it a place of its own", "anchor", path)
		}
		return audit.NewFileAnchor(path), nil
	}
}

// inside reports that a path lies in a folder, as far as their names tell.
func inside(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// openAudit makes the sealer.
func (g *gateway) openAudit() (err error) {
	if g.anchors, err = openAnchors(g.cfg, g.env); err != nil {
		return err
	}
	g.sealer = audit.NewSealer(audit.SealerConfig{
		Store: g.db, Ledger: g.ledger.ID(), Keys: g.keys, Anchors: g.anchors,
		EveryEvents: g.cfg.Audit.EveryEvents, Every: time.Duration(g.cfg.Audit.Every), Now: g.ledger.Now, Logger: g.log,
	})
	return nil
}

// signOverride signs the unfreezing of a scope whose outcomes are not known.
func (g *gateway) signOverride(statement []byte) (string, error) {
	return g.keys.Sign(audit.OverrideType, statement)
}

// holdAgainstAnchors refuses a ledger that its anchors contradict (I16).
func (g *gateway) holdAgainstAnchors(ctx context.Context) error {
	if g.env.anchors == unchecked {
		return nil
	}
	found, err := audit.Compare(ctx, g.db, g.ledger.ID(), g.anchors)
	if err != nil {
		return err
	}
	waive := g.env.anchors == waiveUnreadable
	if err := audit.Refusal(found, waive); err != nil {
		return err
	}
	for _, c := range found {
		switch {
		case c.Standing == audit.Unreadable:
			g.log.Error("an anchor can't be read, and the ledger is used all the same: if it was put back, nobody would see", "anchor", c.Anchor, "error", c.Err)
		case c.Standing == audit.Empty && c.Newest.N > 0:
			// It may be a new anchor, or one that somebody emptied: only people know.
			g.log.Warn("an anchor holds nothing, and the ledger has checkpoints: unless the anchor is new, somebody took away what the ledger is held against", "anchor", c.Anchor, "checkpoints", c.Newest.N)
		}
	}
	return nil
}

// sealLast seals what the drained work left, so that a gateway that is not running
// leaves nothing open to a change that nobody sees.
func (g *gateway) sealLast() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := g.sealer.RunOnce(ctx); err != nil {
		g.log.Error("the last events were not sealed; the next start seals them", "error", err)
	}
}

// sealed is what sealing now gave.
type sealed struct {
	Made       int           `json:"made"`
	Checkpoint audit.Mark    `json:"checkpoint"`
	Anchors    []anchorState `json:"anchors"`
}

// anchorState is how far an anchor has come.
type anchorState struct {
	Name     string    `json:"name"`
	Anchored int64     `json:"anchored"`
	Failing  time.Time `json:"failing_since,omitzero"`
	Error    string    `json:"error,omitempty"`
}

// auditRoutes are the audit's part of the admin door.
func (g *gateway) auditRoutes(r chi.Router) {
	r.Post("/audit/seal", answer(g.sealNow))
	r.Get("/audit/export", g.serveExport)
	r.Post("/backup", answer(g.backup))
	r.Get("/receipts/{operation}", answer(g.receipt))
	r.Get("/keys/published", answer(func(*http.Request) (any, error) { return json.RawMessage(g.keys.JWKS(g.ledger.Now())), nil }))
}

func (g *gateway) sealNow(r *http.Request) (any, error) {
	made, err := g.sealer.RunOnce(r.Context())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "The ledger was not sealed.")
	}
	newest, err := g.db.LastCheckpoint(r.Context())
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	return sealed{Made: made, Checkpoint: audit.Mark{N: newest.N, Seq: newest.Seq, Hash: newest.Hash, At: newest.At}, Anchors: g.anchorStates()}, nil
}

// anchorStates tells how far each anchor has come.
func (g *gateway) anchorStates() []anchorState {
	states := []anchorState{}
	for _, a := range g.sealer.Anchors() {
		s := anchorState{Name: a.Name, Anchored: a.Anchored, Failing: a.Failing}
		if a.Err != nil {
			s.Error = a.Err.Error()
		}
		states = append(states, s)
	}
	return states
}

// exportWish is what an export is asked for.
type exportWish struct {
	Since time.Time
	Plans bool
}

// serveExport streams an export. One that fails on its way is cut off, and lacks its
// footer.
func (g *gateway) serveExport(w http.ResponseWriter, r *http.Request) {
	wish := exportWish{Plans: r.URL.Query().Get("plans") == "true"}
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if wish.Since, err = time.Parse(time.RFC3339, text); err != nil {
			answer(func(*http.Request) (any, error) {
				return nil, fault.New(fault.ParameterInvalid, "since must be a time like 2026-03-01T12:00:00Z.")
			})(w, r)
			return
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	out := &counting{Writer: w}
	err := g.export(r.Context(), out, wish)
	switch {
	case err == nil:
	case out.n == 0:
		answer(func(*http.Request) (any, error) { return nil, err })(w, r)
	default:
		g.log.Error("an export broke off", "error", err)
		panic(http.ErrAbortHandler) // the client sees that it is not whole
	}
}

// counting counts what goes through it.
type counting struct {
	io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// export writes the ledger as it stands at one moment.
func (g *gateway) export(ctx context.Context, w io.Writer, wish exportWish) (err error) {
	view, err := g.db.Snapshot(ctx)
	if err != nil {
		return ledger.StoreFault(err)
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	r := audit.ExportRequest{
		Source: view, Ledger: g.ledger.ID(), Keys: g.keys, Schema: sqlstore.SchemaVersion(), Program: version(),
		Now: g.ledger.Now, Tenants: g.cfg.Tenants, Since: wish.Since,
	}
	if wish.Plans {
		r.Redact = g.redactor()
	}
	return audit.Export(ctx, w, r)
}

// redactor redacts arguments by the manifest that their operation was opened with,
// whether its upstream is still configured or not.
func (g *gateway) redactor() func(context.Context, ledger.Operation, map[string]any) (map[string]any, error) {
	known := map[string]*tools.Tool{}
	return func(ctx context.Context, op ledger.Operation, args map[string]any) (map[string]any, error) {
		if t := known[op.ToolVersion]; t != nil {
			return t.Redact(args), nil
		}
		kept, err := g.ledger.Manifest(ctx, op.ToolVersion)
		if err != nil {
			return nil, err
		}
		m, err := tools.ParseManifest(kept.Text)
		if err != nil {
			return nil, err
		}
		t, err := tools.Compile(m, tools.CompileEnv{
			UpstreamURL: kept.UpstreamURL, RedactKey: g.redactKey,
			NewConnector: func(*tools.Manifest) (tools.Connector, error) { return nil, nil }, // nothing is called
		})
		if err != nil {
			return nil, err
		}
		known[op.ToolVersion] = t
		return t.Redact(args), nil
	}
}

// backedUp is what a backup holds.
type backedUp struct {
	File   string     `json:"file"`
	Ledger string     `json:"ledger"`
	Sealed audit.Mark `json:"checkpoint"`
}

func (g *gateway) backup(r *http.Request) (any, error) {
	var in struct {
		File string `json:"file"`
	}
	if err := readBody(r, &in); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(in.File) {
		return nil, fault.New(fault.ParameterInvalid, "The file must be named by its whole path.")
	}
	newest, err := g.db.LastCheckpoint(r.Context())
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	if err := g.db.Backup(r.Context(), in.File); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "No backup was made.")
	}
	return backedUp{File: in.File, Ledger: g.ledger.ID(), Sealed: audit.Mark{N: newest.N, Seq: newest.Seq, Hash: newest.Hash, At: newest.At}}, nil
}

// issued is a receipt as the admin door gives it.
type issued struct {
	Token   string        `json:"token"`
	Receipt audit.Receipt `json:"receipt"`
}

func (g *gateway) receipt(r *http.Request) (any, error) {
	token, receipt, err := g.receipts().Issue(r.Context(), g.ledger.Reader, tenant, chi.URLParam(r, "operation"))
	return issued{token, receipt}, err
}

func (g *gateway) receipts() audit.Receipts {
	return audit.Receipts{Store: g.db, Ledger: g.ledger.ID(), Keys: g.keys, Now: g.ledger.Now}
}

// signedReceipt is a receipt as the REST API gives it.
func (g *gateway) signedReceipt(ctx context.Context, tenant, id string) (string, json.RawMessage, error) {
	token, receipt, err := g.receipts().Issue(ctx, g.ledger.Reader, tenant, id)
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(receipt)
	return token, text, err
}

// pagesAudit is what the page's part of the audit reads.
func (g *gateway) pagesAudit() *web.Audit {
	return &web.Audit{Source: g.db, Receipts: g.receipts(), Anchors: g.sealer.Anchors, Every: time.Duration(g.cfg.Audit.Every)}
}
