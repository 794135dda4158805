package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tokens"
)

// Defaults of a Sealer.
const (
	DefaultEveryEvents = 1000
	DefaultEvery       = time.Minute
	// DefaultMaxEvents is how many events one checkpoint covers at most.
	DefaultMaxEvents = 10_000
)

// SealerConfig is what a Sealer needs. Store, Ledger, Keys and Now are required.
type SealerConfig struct {
	Store  ledger.Store
	Ledger string // its id
	Keys   *tokens.KeySet
	// Anchors get every checkpoint, in order.
	Anchors []Anchor
	// EveryEvents and Every say when a checkpoint is due: that many events, or that
	// much time with at least one event or a changed guard row.
	EveryEvents int
	Every       time.Duration
	MaxEvents   int
	Now         func() time.Time
	Logger      *slog.Logger
}

// Sealer makes checkpoints and anchors them. One runs in each gateway; of two that
// seal at once, one is first and the other looks again.
type Sealer struct {
	cfg     SealerConfig
	anchors []*anchored
	once    sync.Mutex // one RunOnce at a time
}

// anchored is how far an anchor has come.
type anchored struct {
	Anchor
	mu sync.Mutex
	// known: upTo was read from it, or is assumed of one that can't be read.
	known bool
	upTo  int64
	// failing since; zero while it works.
	failing time.Time
	err     error
}

// AnchorState tells how far an anchor has come.
type AnchorState struct {
	Name string
	// Anchored is the number of its newest checkpoint, as far as known.
	Anchored int64
	// Failing is since when nothing could be anchored; zero while it works.
	Failing time.Time
	Err     error
}

// NewSealer makes a sealer.
func NewSealer(c SealerConfig) *Sealer {
	if c.EveryEvents <= 0 {
		c.EveryEvents = DefaultEveryEvents
	}
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	if c.MaxEvents <= 0 {
		c.MaxEvents = DefaultMaxEvents
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sealer{cfg: c}
	for _, a := range c.Anchors {
		s.anchors = append(s.anchors, &anchored{Anchor: a})
	}
	return s
}

// pollEvery is how often it is looked whether enough events are there.
const pollEvery = time.Second

// Run seals and anchors until ctx ends. It stops nothing else: a store or an anchor
// that fails is logged as an error and tried again.
func (s *Sealer) Run(ctx context.Context) error {
	poll := time.NewTicker(min(pollEvery, s.cfg.Every))
	defer poll.Stop()
	every := time.NewTicker(s.cfg.Every)
	defer every.Stop()
	s.logged(ctx) // what the last process left
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			s.logged(ctx)
		case <-poll.C:
			// A store that can't be read is told by the next pass.
			if many, err := s.due(ctx); err == nil && many {
				s.logged(ctx)
			}
		}
	}
}

func (s *Sealer) logged(ctx context.Context) {
	if _, err := s.RunOnce(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Logger.Error("the ledger could not be sealed; what was done since the last checkpoint can't be proven until it is", "error", err)
	}
}

// due reports that EveryEvents are there behind the newest checkpoint.
func (s *Sealer) due(ctx context.Context) (many bool, err error) {
	defer fault.Recovered(&err)
	last, err := s.cfg.Store.LastCheckpoint(ctx)
	if err != nil {
		return false, err
	}
	more, err := s.cfg.Store.AllEventsAfter(ctx, last.Seq+int64(s.cfg.EveryEvents)-1, 1)
	return len(more) > 0, err
}

// RunOnce seals everything that is there and anchors what is not anchored yet. It
// gives the number of checkpoints that it made; the error is that of sealing. An
// anchor that fails is logged, and told by Anchors.
func (s *Sealer) RunOnce(ctx context.Context) (n int, err error) {
	s.once.Lock()
	defer s.once.Unlock()
	defer fault.Recovered(&err)
	n, err = s.seal(ctx)
	s.anchorAll(ctx)
	return n, err
}

// Anchors tells how far each anchor has come.
func (s *Sealer) Anchors() []AnchorState {
	states := make([]AnchorState, len(s.anchors))
	for i, a := range s.anchors {
		a.mu.Lock()
		states[i] = AnchorState{Name: a.Name(), Anchored: a.upTo, Failing: a.failing, Err: a.err}
		a.mu.Unlock()
	}
	return states
}

// maxRaces bounds how often a checkpoint of another gateway is given way to in a
// row.
const maxRaces = 100

// seal makes checkpoints until there is nothing new.
func (s *Sealer) seal(ctx context.Context) (made int, err error) {
	for races := 0; ; {
		c, anything, err := s.next(ctx)
		if err != nil || !anything {
			return made, err
		}
		switch err := s.store(ctx, c); {
		case err == nil:
			made, races = made+1, 0
		case isRefused(err, ledger.CheckpointMoved) && races < maxRaces:
			races++ // another gateway was first
		default:
			return made, ledger.StoreFault(err)
		}
	}
}

// store appends one checkpoint. After a lost answer the identical one is told
// again, which is applied once.
func (s *Sealer) store(ctx context.Context, c ledger.Checkpoint) error {
	for try := 0; ; try++ {
		err := s.cfg.Store.Seal(ctx, c)
		var unclear *ledger.Ambiguous
		if !errors.As(err, &unclear) || try == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// next builds and signs the checkpoint behind the newest one; false when nothing
// is new.
func (s *Sealer) next(ctx context.Context) (c ledger.Checkpoint, anything bool, err error) {
	last, err := s.cfg.Store.LastCheckpoint(ctx)
	if err != nil {
		return c, false, ledger.StoreFault(err)
	}
	if last.N > 0 && last.Digest() != last.Hash {
		return c, false, fmt.Errorf("the checkpoint %d in the ledger was altered: nothing is sealed on top of it; run `countersign audit export` and `countersign audit verify`", last.N)
	}
	events, err := s.events(ctx, last.Seq)
	if err != nil {
		return c, false, err
	}
	// Behind the events: a row that is newer than they are is covered too.
	guards, err := s.guards(ctx)
	if err != nil {
		return c, false, err
	}
	if len(events) == 0 && sameHeads(guards, last.Guards) {
		return c, false, nil
	}
	c = ledger.Checkpoint{
		N: last.N + 1, Ledger: s.cfg.Ledger, At: s.cfg.Now().UTC(), After: last.Seq, Seq: last.Seq + int64(len(events)),
		Events: ledger.EventsDigest(events), Guards: guards, Prev: last.Hash,
	}
	c, err = signCheckpoint(s.cfg.Keys, c)
	return c, err == nil, err
}

// events reads what the next checkpoint covers, and checks each event: what was
// altered must not be vouched for by a signature.
func (s *Sealer) events(ctx context.Context, after int64) ([]ledger.Event, error) {
	var list []ledger.Event
	heads := map[string]ledger.Event{}
	for len(list) < s.cfg.MaxEvents {
		seq := after + int64(len(list))
		found, err := s.cfg.Store.AllEventsAfter(ctx, seq, min(page, s.cfg.MaxEvents-len(list)))
		if err != nil {
			return nil, ledger.StoreFault(err)
		}
		for _, e := range found {
			seq++
			before, seen := heads[e.Operation]
			if e.Seq != seq || !e.Intact(e.Prev) || seen && (e.Prev != before.Hash || e.Version != before.Version+1) || e.Version == 1 && e.Prev != "" {
				return nil, fmt.Errorf("the event %d of the ledger (operation %s, version %d) is not what was written, or not in its place: nothing is sealed over it; run `countersign audit export` and `countersign audit verify`", e.Seq, e.Operation, e.Version)
			}
			heads[e.Operation] = e
		}
		list = append(list, found...)
		if len(found) == 0 {
			break
		}
	}
	return list, nil
}

// guards reads the newest guard row of each tenant.
func (s *Sealer) guards(ctx context.Context) (map[string]ledger.GuardHead, error) {
	tenants, err := s.cfg.Store.Tenants(ctx)
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	heads := map[string]ledger.GuardHead{}
	for _, tenant := range tenants {
		g, err := s.cfg.Store.Guard(ctx, tenant)
		if err != nil {
			return nil, ledger.StoreFault(err)
		}
		if g.Hash != "" && !g.Intact(g.Prev) { // rows of before the chain have none
			return nil, fmt.Errorf("the guard row %d of the tenant %s is not what was written: nothing is sealed over it", g.Epoch, tenant)
		}
		heads[tenant] = ledger.GuardHead{Epoch: g.Epoch, Hash: g.Hash}
	}
	return heads, nil
}

func sameHeads(a, b map[string]ledger.GuardHead) bool {
	if len(a) != len(b) {
		return false
	}
	for tenant, head := range a {
		if b[tenant] != head {
			return false
		}
	}
	return true
}

// anchorAll brings every anchor up to the newest checkpoint, side by side: one
// that hangs keeps no other waiting.
func (s *Sealer) anchorAll(ctx context.Context) {
	var group errgroup.Group
	for _, a := range s.anchors {
		group.Go(func() error {
			err := s.anchor(ctx, a)
			a.mu.Lock()
			defer a.mu.Unlock()
			switch a.err = err; {
			case err == nil && !a.failing.IsZero():
				s.cfg.Logger.Warn("an anchor works again", "anchor", a.Name(), "checkpoint", a.upTo)
				a.failing = time.Time{}
			case err != nil && ctx.Err() == nil:
				if a.failing.IsZero() {
					a.failing = s.cfg.Now()
				}
				s.cfg.Logger.Error("an anchor fails; what is not anchored could be rolled back unseen", "anchor", a.Name(), "since", a.failing, "anchored", a.upTo, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // nothing in it fails
}

// anchor appends everything that the anchor lacks. The queue is the store itself:
// what fails today is found again tomorrow, in order.
func (s *Sealer) anchor(ctx context.Context, a *anchored) error {
	if !a.known {
		if err := s.meet(ctx, a); err != nil {
			return err
		}
	}
	for {
		list, err := s.cfg.Store.Checkpoints(ctx, a.upTo, page)
		if err != nil || len(list) == 0 {
			return ledger.StoreFault(err)
		}
		for _, c := range list {
			err := within(ctx, anchorTimeout, func(ctx context.Context) error { return a.Append(ctx, Record{Checkpoint: c}) })
			if err != nil {
				return err
			}
			a.mu.Lock()
			a.upTo = c.N
			a.mu.Unlock()
		}
	}
}

// meet learns where an anchor stands. Of one that can't be read it is assumed that
// it lacks the newest checkpoint.
func (s *Sealer) meet(ctx context.Context, a *anchored) error {
	c, err := compare(ctx, s.cfg.Store, s.cfg.Ledger, a.Anchor)
	if err != nil {
		return err
	}
	upTo := c.Record.Checkpoint.N
	switch {
	case c.Standing == WriteOnly:
		upTo = max(0, c.Newest.N-1)
	case c.Standing == Unreadable:
		return c.Err
	case c.Standing == Foreign || c.Standing.RolledBack():
		return errors.New(c.String())
	}
	a.mu.Lock()
	a.known, a.upTo = true, upTo
	a.mu.Unlock()
	return nil
}
