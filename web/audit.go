package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"countersign/audit"
	"countersign/ledger"
)

// Audit is what the pages of the audit read.
type Audit struct {
	// Source is the ledger's store, read only.
	Source   audit.Source
	Receipts audit.Receipts
	// Anchors tells how far each anchor has come, as audit.Sealer.Anchors does for
	// this process.
	Anchors func() []audit.AnchorState
	// Every is how long a checkpoint waits for others at most.
	Every time.Duration
}

// auditPage is what proves the record: the newest checkpoints and the anchors.
type auditPage struct {
	frame
	// Newest is the newest checkpoint; nil when there is none.
	Newest *checkpointView
	// Oldest is when the oldest event of this tenant was written that no checkpoint
	// covers yet, and Late that it waits for too long.
	Oldest      *moment
	Late        bool
	Every       string
	Checkpoints []checkpointView
	Anchors     []anchorView
	// Failing counts the anchors that take nothing.
	Failing int
}

// checkpointView is one checkpoint.
type checkpointView struct {
	N, Seq, Events int64
	Hash           string
	At             *moment
	// Whole: it is what its hash says, and follows the one before it.
	Whole bool
}

// anchorView is how far one anchor has come.
type anchorView struct {
	Name  string
	Badge badge
	// N is the number of its newest checkpoint, 0 when none is known, made At.
	N     int64
	At    *moment
	Since *moment
	Error string
}

// shownCheckpoints is how many of the newest the page shows.
const shownCheckpoints = 10

func (p *Pages) audit(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Audit == nil {
		p.notFound(w, r)
		return
	}
	v, err := p.auditView(r)
	if err != nil {
		p.problem(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, "audit", v)
}

func (p *Pages) auditView(r *http.Request) (*auditPage, error) {
	ctx, me, source := r.Context(), person(r.Context()), p.cfg.Audit.Source
	v := &auditPage{frame: p.frame(r, "audit", "Audit"), Every: span(p.cfg.Audit.Every)}
	newest, err := source.LastCheckpoint(ctx)
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	// One more than is shown: it says what the oldest shown one follows.
	list, err := source.Checkpoints(ctx, max(0, newest.N-shownCheckpoints-1), shownCheckpoints+1)
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	for i, c := range list {
		one := checkpointView{N: c.N, Seq: c.Seq, Events: c.Seq - c.After, Hash: c.Hash, At: p.when(c.At), Whole: c.Digest() == c.Hash}
		if i > 0 {
			one.Whole = one.Whole && c.Prev == list[i-1].Hash && c.N == list[i-1].N+1
		}
		v.Checkpoints = append(v.Checkpoints, one)
	}
	if len(v.Checkpoints) > shownCheckpoints {
		v.Checkpoints = v.Checkpoints[1:]
	}
	slices.Reverse(v.Checkpoints)
	if len(v.Checkpoints) > 0 {
		v.Newest = &v.Checkpoints[0]
	}
	open, err := p.cfg.Ledger.EventsAfter(ctx, me.Tenant, newest.Seq, 1)
	if err != nil {
		return nil, err
	}
	if len(open) > 0 {
		v.Oldest = p.when(open[0].At)
		v.Late = p.now().Sub(open[0].At) > p.lateAfter()
	}
	for _, a := range p.cfg.Audit.Anchors() {
		one, err := p.anchor(ctx, a, newest)
		if err != nil {
			return nil, err
		}
		if one.Since != nil {
			v.Failing++
		}
		v.Anchors = append(v.Anchors, one)
	}
	return v, nil
}

// lateAfter is how long an event may wait for its checkpoint before something is
// wrong: two turns of the sealer.
func (p *Pages) lateAfter() time.Duration { return 2 * p.cfg.Audit.Every }

func (p *Pages) anchor(ctx context.Context, a audit.AnchorState, newest ledger.Checkpoint) (anchorView, error) {
	v := anchorView{Name: a.Name, N: a.Anchored, Since: p.when(a.Failing)}
	if a.Err != nil {
		v.Error = cutTo(a.Err.Error(), longText)
	}
	behind := newest.N - a.Anchored
	switch {
	case v.Since != nil:
		v.Badge = badge{Label: "Fails", Icon: "alert-triangle", Tone: "bad"}
	case behind <= 0:
		v.Badge = badge{Label: "Up to date", Icon: "check", Tone: "good"}
	default:
		v.Badge = badge{Label: count(int(behind), "checkpoint behind", "checkpoints behind"), Icon: "clock", Tone: "wait"}
	}
	if a.Anchored < 1 {
		return v, nil
	}
	found, err := p.cfg.Audit.Source.Checkpoints(ctx, a.Anchored-1, 1)
	if err != nil {
		return v, ledger.StoreFault(err)
	}
	if len(found) > 0 && found[0].N == a.Anchored {
		v.At = p.when(found[0].At)
	}
	return v, nil
}
