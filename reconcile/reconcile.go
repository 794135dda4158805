// Package reconcile moves what time or doubt must move: leases that ran out,
// rounds that nobody decided, and outcomes that are not known.
//
// What lives here: Sweeper, a loop over leases and expiries; Next, the pure rule of
// what is done about a doubt; Reconciler, the loop that does it.
//
// How it flows: a running operation whose lease is over becomes unknown; a round
// past its expiry expires, never approves. An unknown operation is asked about in
// the outside system, each answer is kept as evidence, and the evidence moves it;
// a tool that honours keys may be sent the same again; everything else goes to a
// person. Each pass claims softly, so that several gateways may work on one store.
//
// What does not live here: sending (commit), people's words (approvals).
// Nothing leaves unknown by a timer.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
)

// Config is what a Sweeper is made of.
type Config struct {
	Ledger *ledger.Ledger
	Store  commit.DueStore
	Owner  string
	// Poll is the time between two passes; 0 means 1 s.
	Poll   time.Duration
	Logger *slog.Logger
}

// Sweeper moves what is overdue.
type Sweeper struct{ cfg Config }

// New returns a Sweeper.
func New(cfg Config) *Sweeper {
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{cfg: cfg}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		if _, err := s.RunOnce(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("a sweep failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// batch bounds one pass; a full pass is followed by another at once.
const batch = 100

// RunOnce sweeps until nothing is due and says how many operations it moved, and
// which could not be moved.
func (s *Sweeper) RunOnce(ctx context.Context) (moved int, failed error) {
	defer fault.Recovered(&failed)
	for _, kind := range []ledger.DueKind{ledger.DueLease, ledger.DueExpiry} {
		for {
			now := s.cfg.Ledger.Now()
			due, err := s.cfg.Store.Due(ctx, ledger.DueQuery{Kind: kind, Now: now, Limit: batch, Owner: s.cfg.Owner, Until: now.Add(10 * time.Second)})
			if err != nil {
				return moved, err
			}
			for _, op := range due {
				did, err := s.move(ctx, kind, op)
				if err != nil { // it must not stop the others
					failed = errors.Join(failed, fmt.Errorf("%s %s: %w", kind, op.ID, err))
				}
				if did {
					moved++
				}
			}
			if len(due) < batch || failed != nil {
				break
			}
		}
	}
	return moved, failed
}

// move moves one overdue operation; somebody who was first is no error.
func (s *Sweeper) move(ctx context.Context, kind ledger.DueKind, op ledger.Operation) (did bool, err error) {
	defer fault.Recovered(&err)
	switch kind {
	case ledger.DueLease:
		_, err = s.cfg.Ledger.LoseLease(ctx, op.Tenant, op.ID)
	case ledger.DueExpiry:
		_, err = s.cfg.Ledger.ExpireOverdue(ctx, op.Tenant, op.ID)
	}
	if errors.Is(err, ledger.ErrMoved) || fault.Is(err, fault.InvalidState) {
		return false, nil
	}
	return err == nil, err
}
