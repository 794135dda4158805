package web

import (
	"context"
	"slices"

	"countersign/identity"
	"countersign/ledger"
)

// freezeStep is one change in the history of freezes.
type freezeStep struct {
	Froze bool
	// What is the scope in words, All that nothing at all was sent.
	What       string
	All        bool
	By, Reason string
	// Open counts the outcomes that were unknown when it was lifted all the same.
	Open int
	At   *moment
}

// shownHistory is how many changes the page tells, historyRows how many guard rows
// it looks through for them.
const (
	shownHistory = 20
	historyRows  = 500
)

// freezeHistory are the newest freezes and unfreezes, newest first.
func (p *Pages) freezeHistory(ctx context.Context, me identity.Operator) ([]freezeStep, error) {
	g, err := p.cfg.Ledger.Guard(ctx, me.Tenant)
	if err != nil {
		return nil, err
	}
	// One row more than is looked at: what changed is told by the row before.
	from := max(0, g.Epoch-historyRows)
	rows, err := p.cfg.Ledger.GuardHistory(ctx, me.Tenant, max(0, from-1), historyRows+1)
	if err != nil {
		return nil, err
	}
	var steps []freezeStep
	for i, row := range slices.Backward(rows) {
		c := row.Change
		if c.What != "freeze" && c.What != "unfreeze" || row.Epoch <= from || len(steps) == shownHistory {
			continue
		}
		var before ledger.Guard
		if i > 0 {
			before = rows[i-1]
		}
		f := changed(before, row)
		steps = append(steps, freezeStep{
			Froze: c.What == "freeze", What: scopeName(f.Tool, f.Everything), All: f.Level == ledger.FreezeAll,
			By: actorName(c.By, me.ID), Reason: c.Reason, Open: c.Open, At: p.when(c.At),
		})
	}
	return steps, nil
}

// changed is the freeze that a row set or lifted. The row's change names the tool
// alone; which of the wider scopes it was, the rows on both sides tell.
func changed(before, row ledger.Guard) ledger.Freeze {
	from, to := row.Freezes, before.Freezes
	if row.Change.What == "unfreeze" {
		from, to = to, from
	}
	for _, f := range from {
		if f.Tool == row.Change.Tool && !slices.Contains(to, f) {
			return f
		}
	}
	// A contradiction is told also where its tool was frozen already.
	return ledger.Freeze{Tool: row.Change.Tool, Level: levelOf(row.Freezes, row.Change.Tool)}
}

// levelOf is the level at which a tool stands frozen.
func levelOf(list []ledger.Freeze, tool string) ledger.FreezeLevel {
	for _, f := range list {
		if f.Tool == tool {
			return f.Level
		}
	}
	return ""
}
