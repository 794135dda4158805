package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"countersign/ledger"
)

// trailPage is the audit trail of one operation: its events with their chain, the
// checkpoint that covers them, and its receipt.
type trailPage struct {
	frame
	ID, Tool string
	Headline []piece
	Badge    badge
	Drill    bool
	Events   []linkView
	// Whole: each event is what was written and follows the one before it, and the
	// last is the one that the operation's row names. Else Broken is the first event
	// that is not in its place, 0 when only the row differs.
	Whole  bool
	Broken int64
	// Changed counts the events whose evidence is not what they name.
	Changed int
	// Sealed is the number of the checkpoint that covers all of it, 0 when none does
	// yet; SealedAt when that was made.
	Sealed   int64
	SealedAt *moment
	// Final: it has ended, so that there is a receipt.
	Final bool
	File  string
}

// linkView is one event as a link of the chain.
type linkView struct {
	Version, Seq       int64
	Actor, Words       string
	From, To           badge
	Moved              bool
	Reason             string
	Attempt, Round     int
	EffectID, Evidence string
	Digest, Prev, Hash string
	Whole              bool
	// Changed: the evidence that moved it is gone, or says something else now.
	Changed bool
	At      *moment
}

func (p *Pages) trail(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Audit == nil {
		p.notFound(w, r)
		return
	}
	v, err := p.trailView(r, chi.URLParam(r, "id"))
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "trail", v)
}

func (p *Pages) trailView(r *http.Request, id string) (*trailPage, error) {
	ctx, me := r.Context(), person(r.Context())
	op, err := p.cfg.Ledger.Operation(ctx, me.Tenant, id)
	if err != nil {
		return nil, err
	}
	events, err := p.cfg.Ledger.Events(ctx, me.Tenant, id)
	if err != nil {
		return nil, err
	}
	v := &trailPage{
		frame: p.frame(r, "operations", "Audit trail · "+op.ID), ID: op.ID, Tool: op.Tool, Headline: p.headlineOf(ctx, op), Badge: badgeOf(op.State),
		Drill: op.EvidenceBoundary == "drill", Final: op.State.Final(), Whole: true, File: receiptFile(op.ID),
	}
	evidence, err := p.cfg.Ledger.Evidence(ctx, me.Tenant, id)
	if err != nil {
		return nil, err
	}
	plan, err := p.cfg.Ledger.Plan(ctx, me.Tenant, id, op.Round)
	if err != nil {
		return nil, err
	}
	_, redacted := p.redact(ctx, op, plan)
	d := drawer{mask: maskOf(plan.Args, redacted)}
	prev := ""
	for i, e := range events {
		l := linkView{
			Version: e.Version, Seq: e.Seq, Actor: actorName(e.Actor, me.ID), Words: happened[e.Verb], From: badgeOf(e.From), To: badgeOf(e.To),
			Moved: e.From != e.To && e.From != "", Attempt: e.Attempt, Round: e.Round, EffectID: e.EffectID, Evidence: e.Evidence,
			Digest: e.Digest, Prev: e.Prev, Hash: e.Hash, At: p.when(e.At), Whole: e.Intact(prev) && e.Version == int64(i)+1,
		}
		if l.Words == "" {
			l.Words = string(e.Verb)
		}
		if e.Reason != nil {
			l.Reason = d.hide(e.Reason.Text)
		}
		if !l.Whole && v.Whole {
			v.Whole, v.Broken = false, e.Version
		}
		if l.Changed = changedSince(e, evidence); l.Changed {
			v.Changed++
		}
		prev = e.Hash
		v.Events = append(v.Events, l)
	}
	// An event may be newer than the row that was read: then the row is read again.
	if prev != op.Chain {
		if op, err = p.cfg.Ledger.Operation(ctx, me.Tenant, id); err != nil {
			return nil, err
		}
	}
	v.Whole = v.Whole && prev == op.Chain
	if len(events) > 0 {
		err = p.sealed(ctx, v, events[len(events)-1].Seq)
	}
	return v, err
}

// changedSince reports that the evidence that an event names is not what it was
// then. Events of before evidence had a digest say nothing of it.
func changedSince(e ledger.Event, evidence []ledger.Evidence) bool {
	if e.EvidenceDigest == "" {
		return false
	}
	i := slices.IndexFunc(evidence, func(ev ledger.Evidence) bool { return ev.ID == e.Evidence })
	return i < 0 || evidence[i].Digest() != e.EvidenceDigest
}

// sealed finds the checkpoint that covers an event: the first that reaches it.
func (p *Pages) sealed(ctx context.Context, v *trailPage, seq int64) error {
	newest, err := p.cfg.Audit.Source.LastCheckpoint(ctx)
	if err != nil || newest.Seq < seq {
		return ledger.StoreFault(err)
	}
	covers, below := newest, int64(0)
	for below+1 < covers.N {
		middle := below + (covers.N-below)/2
		found, err := p.cfg.Audit.Source.Checkpoints(ctx, middle-1, 1)
		switch {
		case err != nil:
			return ledger.StoreFault(err)
		case len(found) == 0 || found[0].N != middle:
			return nil // not whole: the audit tells of it
		case found[0].Seq >= seq:
			covers = found[0]
		default:
			below = middle
		}
	}
	v.Sealed, v.SealedAt = covers.N, p.when(covers.At)
	return nil
}

func receiptFile(id string) string { return "receipt-" + id + ".jws" }

// receipt gives the signed receipt of an operation that has ended, as a file in one
// line.
func (p *Pages) receipt(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Audit == nil {
		p.notFound(w, r)
		return
	}
	ctx, me := r.Context(), person(r.Context())
	token, receipt, err := p.cfg.Audit.Receipts.Issue(ctx, p.cfg.Ledger.Reader, me.Tenant, chi.URLParam(r, "id"))
	if err != nil {
		p.problem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/jose") // RFC 7515, 9.2.1
	w.Header().Set("Content-Disposition", `attachment; filename="`+receiptFile(receipt.Operation)+`"`)
	_, _ = w.Write([]byte(token + "\n"))
}
