package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"countersign/examples/shop"
	"countersign/ledger"
)

func healthy() shop.Switches { return shop.Switches{} }

// lostReply cuts the connection instead of the next reply, after its effect, and
// hides the effect from lookups for a while.
func lostReply(lag time.Duration) shop.Switches {
	return shop.Switches{CutNext: 1, LagMS: int(lag.Milliseconds())}
}

// rows are the five core rows of the fault matrix.
func (d *drill) rows(ctx context.Context) error {
	d.say("\nFive kinds of trouble")
	for i, r := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"the network is cut before the call", d.cutBefore},
		{"the reply is lost after the effect", d.cutAfter},
		{"two agents, one key, at once", d.twoAgents},
		{"the lookup gets no answer", d.lookupSilent},
		{"the undo is asked for twice", d.undoTwice},
	} {
		if err := d.row(i+1, r.title, func() error { return r.play(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// delta is what the shop did since.
type delta struct{ effects, requests int }

func (d *drill) counted(before delta) delta {
	return delta{d.stage.shop.EffectCount() - before.effects, d.stage.shop.RequestCount() - before.requests}
}

func (d *drill) cutBefore(ctx context.Context) error {
	s, before := d.stage, d.counted(delta{})
	token, err := s.agent.preview(ctx, "ord_1002")
	if err != nil {
		return err
	}
	// The guard's reads pass; the line goes down just before the write.
	if err := s.line.takeConnections(false); err != nil {
		return err
	}
	op, err := s.agent.commit(ctx, token, time.Second)
	if err != nil {
		return err
	}
	d.see(op.ID)
	d.check(op.EffectID == "" && d.counted(before).effects == 0, "nothing was sent, no effect id: "+op.State)
	if err := s.line.takeConnections(true); err != nil {
		return err
	}
	if op, err = s.settled(ctx, op.ID); err != nil {
		return err
	}
	d.check(op.State == string(ledger.Succeeded), "it was tried again by itself, since nothing had been sent")
	d.check(d.counted(before).effects == 1, "one effect")
	return nil
}

func (d *drill) cutAfter(ctx context.Context) error {
	s, before := d.stage, d.counted(delta{})
	token, err := s.agent.preview(ctx, "ord_1003")
	if err != nil {
		return err
	}
	s.shop.Set(lostReply(2 * time.Second))
	op, err := s.agent.commit(ctx, token, time.Second)
	if err != nil {
		return err
	}
	d.see(op.ID)
	d.check(op.State == string(ledger.Unknown), "unknown, and not sent again")
	s.shop.Set(healthy())
	if op, err = s.settled(ctx, op.ID); err != nil {
		return err
	}
	d.check(op.State == string(ledger.Succeeded) && op.EffectID != "", "found by its key in the outside system: "+op.EffectID)
	d.check(d.counted(before) == delta{1, 1}, "one request, one effect")
	return nil
}

func (d *drill) twoAgents(ctx context.Context) error {
	s, before := d.stage, d.counted(delta{})
	agents := []*drillAgent{s.agent, s.other}
	ids := make([]string, 10)
	errs := make([]error, len(ids))
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			op, status, err := agents[i%2].tryCommitOf(ctx, "ord_1004")
			if err == nil && op.ID == "" {
				err = fmt.Errorf("no operation, status %d", status)
			}
			ids[i], errs[i] = op.ID, err
		})
	}
	wait.Wait()
	same := true
	for i := range ids {
		if errs[i] != nil {
			return errs[i]
		}
		same = same && ids[i] == ids[0]
	}
	d.see(ids[0])
	d.check(same, "ten calls of two agents are one operation: "+ids[0])
	if _, err := s.settled(ctx, ids[0]); err != nil {
		return err
	}
	d.check(d.counted(before) == delta{1, 1}, "one request, one effect")
	return nil
}

func (d *drill) lookupSilent(ctx context.Context) error {
	s, before := d.stage, d.counted(delta{})
	token, err := s.agent.preview(ctx, "ord_1005")
	if err != nil {
		return err
	}
	counted, err := s.failedLookups()
	if err != nil {
		return err
	}
	s.shop.Set(lostReply(0))
	s.line.swallowLookups(true)
	op, err := s.agent.commit(ctx, token, time.Second)
	if err != nil {
		return err
	}
	asked, err := s.failedLookup(ctx, op.ID)
	if err != nil {
		return err
	}
	op, err = s.agent.operation(ctx, op.ID, 0)
	if err != nil {
		return err
	}
	d.see(op.ID)
	d.check(asked, "the lookup failed and is on record")
	now, err := s.failedLookups()
	if err != nil {
		return err
	}
	d.check(now > counted, "what the alert watches has risen: countersign_lookups_total")
	d.check(op.State == string(ledger.Unknown), "it stays unknown; a failed lookup proves nothing")
	s.line.swallowLookups(false)
	s.shop.Set(healthy())
	if op, err = s.settled(ctx, op.ID); err != nil {
		return err
	}
	d.check(op.State == string(ledger.Succeeded) && d.counted(before) == delta{1, 1}, "once it answers, the first effect is found")
	return nil
}

func (d *drill) undoTwice(ctx context.Context) error {
	s := d.stage
	parent, _, err := s.agent.tryCommitOf(ctx, "ord_1006")
	if err != nil {
		return err
	}
	if parent, err = s.settled(ctx, parent.ID); err != nil {
		return err
	}
	before := d.counted(delta{})
	ids := make([]string, 4)
	errs := make([]error, len(ids))
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() { ids[i], errs[i] = s.undo(ctx, parent.ID) })
	}
	wait.Wait()
	same := true
	for i := range ids {
		if errs[i] != nil {
			return errs[i]
		}
		same = same && ids[i] == ids[0]
	}
	d.see(parent.ID)
	d.check(same && ids[0] != "", "four asks are one undo: "+ids[0])
	if _, err := s.settled(ctx, ids[0]); err != nil {
		return err
	}
	if parent, err = s.agent.operation(ctx, parent.ID, 0); err != nil {
		return err
	}
	d.check(parent.State == string(ledger.Compensated), "the first operation is "+parent.State)
	d.check(d.counted(before) == delta{1, 1}, "one request, one effect")
	return nil
}
