package main

import (
	"context"
	"fmt"
	"time"

	"countersign/ledger"
)

// This file belongs to wire.go: the ledger's time and the machine's.

const (
	// skewRefused and skewTold are how far the machine's clock may be behind the
	// time of the ledger's last write at a start.
	skewRefused = time.Minute
	skewTold    = 5 * time.Second
)

// holdAgainstClock refuses a ledger that was written at a later time than the
// machine's clock shows: by a clock that was set back, what has expired would live
// again, and what has no time left would be sent (I19).
func (g *gateway) holdAgainstClock() error {
	ahead := g.db.Written().Sub(g.env.now())
	switch {
	case g.env.anchors == unchecked || ahead <= skewTold:
		return nil
	case ahead <= skewRefused:
		g.log.Warn("this machine's clock is behind the ledger's time, which goes on from where it stood", "by", ahead.Round(time.Millisecond))
		return nil
	}
	return fmt.Errorf("the clock is wrong: the ledger was last written at %s, %s later than this machine's clock shows.\n"+
		"Nothing is started, for what has expired would count as live. Set the clock right. If the ledger's time is the wrong one, since this clock once was "+
		"far ahead, run `countersign recover --restored`: it voids all tokens, puts what was open in doubt, and lets the ledger's time begin anew",
		g.db.Written().Format(time.RFC3339), ahead.Round(time.Second))
}

// beginTimeAnew lets a recovered ledger go by the machine's clock again. What is
// unknown is left to people, for a repeat under a key counts on the times that the
// wrong clock gave.
func (g *gateway) beginTimeAnew(ctx context.Context, now time.Time) error {
	if g.db.Written().Sub(now) <= skewTold {
		return nil
	}
	tenants, err := g.db.Tenants(ctx)
	if err != nil {
		return ledger.StoreFault(err)
	}
	for _, tenant := range tenants {
		off := false
		f := ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Unknown}, OnList: &off, OldestFirst: true, Limit: 200}
		for {
			list, err := g.ledger.List(ctx, f)
			if err != nil {
				return err
			}
			for _, op := range list.Operations {
				if _, err := g.ledger.HandOver(ctx, tenant, op.ID, "The ledger's clock was wrong, so nobody knows how long the tool remembers the key."); err != nil {
					return err
				}
			}
			if f.Cursor = list.Next; f.Cursor == "" {
				break
			}
		}
	}
	return ledger.StoreFault(g.db.ResetClock(ctx, now))
}
