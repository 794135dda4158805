package ledger

import (
	"context"
	"encoding/json"
	"slices"

	"countersign/fault"
)

// Scope is what a freeze stands against: one tool of a tenant, a tenant, or
// everything.
type Scope struct {
	Tenant string
	Tool   string // empty: the whole tenant
	// Everything: all tenants. Tool is empty then.
	Everything bool
}

func (s Scope) is(f Freeze) bool { return f.Tool == s.Tool && f.Everything == s.Everything }

// tenants are those whose rows a scope stands in.
func (l *Ledger) tenants(ctx context.Context, s Scope) ([]string, error) {
	if !s.Everything {
		return []string{s.Tenant}, nil
	}
	all, err := l.cfg.Store.Tenants(ctx)
	if err != nil {
		return nil, StoreFault(err)
	}
	if !slices.Contains(all, s.Tenant) {
		all = append(all, s.Tenant)
	}
	return all, nil
}

// Freeze stops dispatches in a scope and lists what was already dispatched. A
// freeze of that scope that stops everything is never loosened by it. When it
// returns without error, the freeze is in force in every tenant that it stands
// against.
func (l *Ledger) Freeze(ctx context.Context, s Scope, level FreezeLevel, by Actor, reason string) ([]Operation, error) {
	tenants, err := l.tenants(ctx, s)
	if err != nil {
		return nil, err
	}
	var marked []Operation
	for _, tenant := range tenants {
		_, running, err := l.ChangeGuard(ctx, tenant, Change{What: "freeze", Tool: s.Tool, By: by, Reason: reason}, func(g *Guard) {
			if slices.ContainsFunc(g.Freezes, func(f Freeze) bool { return s.is(f) && (f.Level == FreezeAll || f.Level == level) }) {
				return
			}
			g.Freezes = slices.DeleteFunc(g.Freezes, s.is)
			g.Freezes = append(g.Freezes, Freeze{Tool: s.Tool, Everything: s.Everything, Level: level, By: by, Reason: reason, At: l.Now()})
		})
		if err != nil {
			return marked, err
		}
		for _, op := range running {
			if s.Tool == "" || op.Tool == s.Tool {
				marked = append(marked, op)
			}
		}
	}
	return marked, nil
}

// Unfreezing ends a freeze.
type Unfreezing struct {
	Scope  Scope
	By     Actor
	Reason string
	// Override lifts it although outcomes in its scope are not known; the reason
	// is then needed, and the change is signed.
	Override bool
}

// Unfreeze ends the freeze of exactly that scope. It is refused while outcomes
// in the scope are unknown, unless that is overridden with a reason.
func (l *Ledger) Unfreeze(ctx context.Context, u Unfreezing) error {
	tenants, err := l.tenants(ctx, u.Scope)
	if err != nil {
		return err
	}
	open := 0
	for _, tenant := range tenants {
		n, err := l.openDoubts(ctx, tenant, u.Scope.Tool)
		if err != nil {
			return err
		}
		open += n
	}
	switch {
	case open > 0 && !u.Override:
		return fault.New(fault.UnknownsOpen, "Outcomes in this scope are not known (%d). Settle them first, or override with a reason.", open)
	case open > 0 && u.Reason == "":
		return fault.New(fault.DecisionInvalid, "Lifting a freeze over unknown outcomes needs a reason.").At("/reason", "missing")
	}
	for _, tenant := range tenants {
		why := Change{What: "unfreeze", Tool: u.Scope.Tool, By: u.By, Reason: u.Reason, Open: open}
		if open > 0 && l.cfg.Sign != nil {
			statement, err := json.Marshal(why)
			if err != nil {
				return err
			}
			if why.Signature, err = l.cfg.Sign(statement); err != nil {
				return err
			}
		}
		if _, _, err := l.ChangeGuard(ctx, tenant, why, func(g *Guard) {
			g.Freezes = slices.DeleteFunc(g.Freezes, u.Scope.is)
		}); err != nil {
			return err
		}
	}
	return nil
}

// maxOpenDoubts bounds how far the unknown operations of a scope are counted.
const maxOpenDoubts = 1000

// openDoubts counts unknown operations of a tenant, or of one of its tools.
func (l *Ledger) openDoubts(ctx context.Context, tenant, tool string) (int, error) {
	n, cursor := 0, ""
	for n < maxOpenDoubts {
		page, err := l.List(ctx, Filter{Tenant: tenant, Tool: tool, States: []State{Unknown}, Cursor: cursor, Limit: 200})
		if err != nil {
			return n, err
		}
		if n += len(page.Operations); page.Next == "" {
			break
		}
		cursor = page.Next
	}
	return n, nil
}

// InheritFreezes puts the freezes of everything on the row of a tenant that is
// new here.
func (l *Ledger) InheritFreezes(ctx context.Context, tenant string) error {
	all, err := l.cfg.Store.Tenants(ctx)
	if err != nil {
		return StoreFault(err)
	}
	if slices.Contains(all, tenant) {
		return nil
	}
	for _, other := range all {
		g, err := l.Guard(ctx, other)
		if err != nil {
			return err
		}
		for _, f := range g.Freezes {
			if !f.Everything {
				continue
			}
			if _, err := l.Freeze(ctx, Scope{Tenant: tenant, Everything: true}, f.Level, f.By, f.Reason); err != nil {
				return err
			}
		}
	}
	return nil
}
