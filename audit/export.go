package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"time"

	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

// ExportFormat names the form of an export. It changes when a record of the ledger
// gets another JSON form.
const ExportFormat = "countersign-audit-1"

// line is one line of an export: JSON with exactly one member beside kind, spelt
// as encoding/json spells it. The order is: header, guard rows, events with each
// checkpoint behind the last event that it covers, operations with each one's plans,
// decisions and evidence behind it, footer.
type line struct {
	Kind       string             `json:"kind"`
	Header     *Header            `json:"header,omitempty"`
	Guard      *ledger.Guard      `json:"guard,omitempty"`
	Event      *ledger.Event      `json:"event,omitempty"`
	Checkpoint *ledger.Checkpoint `json:"checkpoint,omitempty"`
	Operation  *ledger.Operation  `json:"operation,omitempty"`
	Plan       *ExportedPlan      `json:"plan,omitempty"`
	Decision   *ledger.Decision   `json:"decision,omitempty"`
	Evidence   *ledger.Evidence   `json:"evidence,omitempty"`
	Footer     *Footer            `json:"footer,omitempty"`
}

// The kinds of lines.
const (
	kindHeader     = "header"
	kindGuard      = "guard"
	kindEvent      = "event"
	kindCheckpoint = "checkpoint"
	kindOperation  = "operation"
	kindPlan       = "plan"
	kindDecision   = "decision"
	kindEvidence   = "evidence"
	kindFooter     = "footer"
)

// Header is the first line.
type Header struct {
	Format string `json:"format"`
	Ledger string `json:"ledger"`
	// Schema is the store's schema version, Program the version that exported.
	Schema  int64     `json:"schema"`
	Program string    `json:"program"`
	MadeAt  time.Time `json:"made_at"`
	// Since is what was asked for; zero for everything. After is then the checkpoint
	// behind which the export begins; zero from the beginning.
	Since time.Time         `json:"since,omitzero"`
	After ledger.Checkpoint `json:"after,omitzero"`
	// JWKS are the keys that the gateway publishes, retired ones included.
	JWKS json.RawMessage `json:"jwks"`
}

// ExportedPlan is a plan for readers: sensitive arguments are redacted, and what
// holds them once more (the wire, the reads, the basis) is left out. Digest is that
// of the whole plan.
type ExportedPlan struct {
	Operation string         `json:"operation"`
	Round     int            `json:"round"`
	Digest    string         `json:"digest"`
	Target    string         `json:"target"`
	Headline  string         `json:"headline"`
	Args      map[string]any `json:"args"`
	Effects   []tools.Effect `json:"effects"`
}

// Footer is the last line.
type Footer struct {
	Counts map[string]int64 `json:"counts"` // lines by kind, without the footer
	// Digest is the SHA-256 over all lines before this one.
	Digest string `json:"digest"`
	// Signature is a JWS over this footer without it: the file is what the gateway
	// exported, to the last byte.
	Signature string `json:"signature"`
}

// ExportRequest says what is exported and by whom.
type ExportRequest struct {
	Source  Source
	Ledger  string
	Keys    *tokens.KeySet
	Schema  int64
	Program string
	Now     func() time.Time
	// Tenants are exported beside those that have a guard row.
	Tenants []string
	// Since leaves out what lies before the checkpoint that is next to it; zero
	// exports everything.
	Since time.Time
	// Redact gives the arguments of a plan as they may leave the ledger; nil exports
	// no plans.
	Redact func(ctx context.Context, op ledger.Operation, args map[string]any) (map[string]any, error)
}

// exporter writes the lines of one export.
type exporter struct {
	ExportRequest
	ctx    context.Context //nolint:containedctx // lives as long as one call
	out    *bufio.Writer
	sum    hash.Hash
	counts map[string]int64
	header Header
	// touched are the operations of the exported events; nil for all.
	touched map[string]bool
}

// Export writes an export. The source should be a view of one moment; of one that
// moves, an operation may be newer than its events, which Verify tells. Memory is
// bounded by one page, with Since also by the number of operations.
func Export(ctx context.Context, w io.Writer, r ExportRequest) error {
	x := &exporter{ExportRequest: r, ctx: ctx, sum: sha256.New(), counts: map[string]int64{}}
	x.out = bufio.NewWriterSize(w, 64<<10)
	for _, part := range []func() error{x.begin, x.guards, x.events, x.operations, x.end} {
		if err := part(); err != nil {
			return err
		}
	}
	return x.out.Flush()
}

// encodeLine is the one spelling of a line.
func encodeLine(l line) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil {
		return nil, fmt.Errorf("audit: a %s can't be exported: %w", l.Kind, err)
	}
	return b.Bytes(), nil
}

func (x *exporter) write(l line) error {
	text, err := encodeLine(l)
	if err != nil {
		return err
	}
	x.counts[l.Kind]++
	x.sum.Write(text)
	_, err = x.out.Write(text)
	return err
}

func (x *exporter) begin() error {
	x.header = Header{
		Format: ExportFormat, Ledger: x.Ledger, Schema: x.Schema, Program: x.Program, MadeAt: x.Now().UTC(),
		JWKS: x.Keys.JWKS(x.Now()),
	}
	if !x.Since.IsZero() {
		after, err := x.checkpointBefore(x.Since)
		if err != nil {
			return err
		}
		x.header.Since, x.header.After = x.Since.UTC(), after
		x.touched = map[string]bool{}
	}
	return x.write(line{Kind: kindHeader, Header: &x.header})
}

// checkpointBefore finds the newest checkpoint that was made before the time; a
// zero one when there is none.
func (x *exporter) checkpointBefore(t time.Time) (ledger.Checkpoint, error) {
	newest, err := x.Source.LastCheckpoint(x.ctx)
	if err != nil {
		return newest, ledger.StoreFault(err)
	}
	return newestWhere(x.ctx, x.Source, newest.N, func(c ledger.Checkpoint) bool { return c.At.Before(t) })
}

func (x *exporter) tenants() ([]string, error) {
	found, err := x.Source.Tenants(x.ctx)
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	all := append(slices.Clone(x.Tenants), found...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// guards writes all guard rows there are: they are few, and each may matter to what
// follows.
func (x *exporter) guards() error {
	tenants, err := x.tenants()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		for after := int64(0); ; {
			rows, err := x.Source.GuardHistory(x.ctx, tenant, after, page)
			if err != nil {
				return ledger.StoreFault(err)
			}
			for _, g := range rows {
				if err := x.write(line{Kind: kindGuard, Guard: &g}); err != nil {
					return err
				}
				after = g.Epoch
			}
			if len(rows) == 0 {
				break
			}
		}
	}
	return nil
}

// events writes events and checkpoints side by side: a checkpoint stands behind
// the last event that it covers, or at the end when that is missing.
func (x *exporter) events() error {
	seq, n := x.header.After.Seq, x.header.After.N
	checkpoints := &pages[ledger.Checkpoint]{read: func() ([]ledger.Checkpoint, error) { return x.Source.Checkpoints(x.ctx, n, page) }}
	events := &pages[ledger.Event]{read: func() ([]ledger.Event, error) { return x.Source.AllEventsAfter(x.ctx, seq, page) }}
	for {
		e, anEvent, err := events.peek()
		if err != nil {
			return ledger.StoreFault(err)
		}
		c, aCheckpoint, err := checkpoints.peek()
		if err != nil {
			return ledger.StoreFault(err)
		}
		switch {
		case aCheckpoint && (!anEvent || c.Seq < e.Seq):
			err = x.write(line{Kind: kindCheckpoint, Checkpoint: &c})
			n = c.N
			checkpoints.take()
		case anEvent:
			err = x.write(line{Kind: kindEvent, Event: &e})
			seq = e.Seq
			events.take()
			if x.touched != nil {
				x.touched[e.Operation] = true
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pages reads a list page by page.
type pages[T any] struct {
	read  func() ([]T, error)
	ahead []T
	ended bool
}

// peek gives the next one; false at the end.
func (p *pages[T]) peek() (next T, ok bool, err error) {
	if len(p.ahead) == 0 && !p.ended {
		if p.ahead, err = p.read(); err != nil {
			return next, false, err
		}
		p.ended = len(p.ahead) == 0
	}
	if p.ended {
		return next, false, nil
	}
	return p.ahead[0], true, nil
}

func (p *pages[T]) take() { p.ahead = p.ahead[1:] }

func (x *exporter) operations() error {
	tenants, err := x.tenants()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		f := ledger.Filter{Tenant: tenant, OldestFirst: true, Limit: 200}
		for {
			list, err := x.Source.List(x.ctx, f)
			if err != nil {
				return ledger.StoreFault(err)
			}
			for _, op := range list.Operations {
				if x.touched != nil && !x.touched[op.ID] {
					continue
				}
				if err := x.operation(op); err != nil {
					return err
				}
			}
			if f.Cursor = list.Next; f.Cursor == "" {
				break
			}
		}
	}
	return nil
}

func (x *exporter) operation(op ledger.Operation) error {
	if err := x.write(line{Kind: kindOperation, Operation: &op}); err != nil {
		return err
	}
	if err := x.plans(op); err != nil {
		return err
	}
	decisions, err := x.Source.Decisions(x.ctx, op.Tenant, op.ID)
	if err != nil {
		return ledger.StoreFault(err)
	}
	for _, d := range decisions {
		if err := x.write(line{Kind: kindDecision, Decision: &d}); err != nil {
			return err
		}
	}
	evidence, err := x.Source.Evidence(x.ctx, op.Tenant, op.ID)
	if err != nil {
		return ledger.StoreFault(err)
	}
	for _, e := range evidence {
		if err := x.write(line{Kind: kindEvidence, Evidence: &e}); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) plans(op ledger.Operation) error {
	if x.Redact == nil {
		return nil
	}
	for round := 1; round <= op.Round; round++ {
		p, err := x.Source.Plan(x.ctx, op.Tenant, op.ID, round)
		if err != nil {
			return ledger.StoreFault(err)
		}
		args, err := x.Redact(x.ctx, op, p.Args)
		if err != nil {
			return fmt.Errorf("the arguments of %s can't be redacted, so no plans are exported: %w", op.ID, err)
		}
		out := &ExportedPlan{
			Operation: op.ID, Round: round, Digest: p.Digest(), Target: p.Target, Headline: p.Headline, Args: args, Effects: p.Effects,
		}
		if err := x.write(line{Kind: kindPlan, Plan: out}); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) end() error {
	f := Footer{Counts: maps.Clone(x.counts), Digest: hex.EncodeToString(x.sum.Sum(nil))}
	signature, err := x.Keys.Sign(ExportType, mustJSON(f))
	if err != nil {
		return err
	}
	f.Signature = signature
	return x.write(line{Kind: kindFooter, Footer: &f})
}

// newestWhere finds the newest checkpoint up to n for which ok holds; it holds for
// all before the first for which it does not. A zero one when there is none.
func newestWhere(ctx context.Context, s Source, n int64, ok func(ledger.Checkpoint) bool) (best ledger.Checkpoint, err error) {
	for low, high := int64(1), n; low <= high; {
		middle := low + (high-low)/2
		c, found, err := checkpointNumbered(ctx, s, middle)
		switch {
		case err != nil:
			return best, ledger.StoreFault(err)
		case !found:
			return best, errors.New("a checkpoint is missing in the ledger")
		case ok(c):
			best, low = c, middle+1
		default:
			high = middle - 1
		}
	}
	return best, nil
}
