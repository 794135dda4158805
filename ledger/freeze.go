package ledger

import (
	"context"
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
	if s.Tenant != "" && !slices.Contains(all, s.Tenant) {
		all = append(all, s.Tenant)
	}
	return all, nil
}

// Freeze stops dispatches in a scope and lists what was already dispatched. A
// freeze of that scope that stops everything is never loosened by it. When it
// returns without error, the freeze is in force in every tenant that it stands
// against.
func (l *Ledger) Freeze(ctx context.Context, s Scope, level FreezeLevel, by Actor, reason string) ([]Operation, error) {
	var marked []Operation
	for range maxTries {
		wrote, err := l.freezeAll(ctx, s, level, Change{What: "freeze", Tool: s.Tool, By: by, Reason: reason}, &marked)
		if err != nil || !wrote || !s.Everything {
			return marked, err
		}
		// Once more: tenants may have appeared, or somebody may have lifted it in
		// one that was done already.
	}
	return marked, fault.New(fault.StoreUnavailable, "Freezes were set and lifted against each other again and again; look at what stands now.")
}

// freezeAll freezes once in every tenant of the scope, and adds what is running
// to marked.
func (l *Ledger) freezeAll(ctx context.Context, s Scope, level FreezeLevel, why Change, marked *[]Operation) (wrote bool, err error) {
	tenants, err := l.tenants(ctx, s)
	if err != nil {
		return false, err
	}
	for _, tenant := range tenants {
		did := false
		_, running, err := l.ChangeGuard(ctx, tenant, why, func(g *Guard) {
			did = !slices.ContainsFunc(g.Freezes, func(f Freeze) bool { return s.is(f) && (f.Level == FreezeAll || f.Level == level) })
			if !did {
				return
			}
			g.Freezes = slices.DeleteFunc(g.Freezes, s.is)
			g.Freezes = append(g.Freezes, Freeze{Tool: s.Tool, Everything: s.Everything, Level: level, By: why.By, Reason: why.Reason, At: l.Now()})
		})
		if err != nil {
			return wrote, err
		}
		wrote = wrote || did
		for _, op := range running {
			known := slices.ContainsFunc(*marked, func(o Operation) bool { return o.ID == op.ID })
			if !known && (s.Tool == "" || op.Tool == s.Tool) {
				*marked = append(*marked, op)
			}
		}
	}
	return wrote, nil
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
// in the scope are unknown, unless that is overridden with a reason. It lifts
// what stood when it was asked for: a freeze that comes meanwhile, as by a
// contradiction, stays, and says so.
func (l *Ledger) Unfreeze(ctx context.Context, u Unfreezing) error {
	tenants, err := l.tenants(ctx, u.Scope)
	if err != nil {
		return err
	}
	var stood []Freeze
	open := 0
	for _, tenant := range tenants {
		g, err := l.Guard(ctx, tenant)
		if err != nil {
			return err
		}
		stood = append(stood, slices.DeleteFunc(g.clone().Freezes, func(f Freeze) bool { return !u.Scope.is(f) })...)
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
	meanwhile, err := l.lift(ctx, u.Scope, tenants, stood, Change{What: "unfreeze", Tool: u.Scope.Tool, By: u.By, Reason: u.Reason, Open: open})
	if err != nil {
		return err
	}
	if meanwhile {
		return fault.New(fault.ToolFrozen, "What stood was lifted, but the scope was frozen again meanwhile. Look at why before you lift that too.")
	}
	return nil
}

// lift takes what stood out of the tenants' rows, also where a tenant that
// appeared meanwhile has it from another, and says whether the scope was frozen
// again since.
func (l *Ledger) lift(ctx context.Context, s Scope, tenants []string, stood []Freeze, why Change) (meanwhile bool, err error) {
	lifted := map[string]bool{}
	for range maxTries {
		before := len(lifted)
		for _, tenant := range tenants {
			if lifted[tenant] {
				continue
			}
			g, _, err := l.ChangeGuard(ctx, tenant, why, func(g *Guard) {
				g.Freezes = slices.DeleteFunc(g.Freezes, func(f Freeze) bool { return slices.Contains(stood, f) })
			})
			if err != nil {
				return meanwhile, err
			}
			meanwhile = meanwhile || slices.ContainsFunc(g.Freezes, s.is)
			lifted[tenant] = true
		}
		if len(lifted) == before || !s.Everything {
			return meanwhile, nil
		}
		if tenants, err = l.tenants(ctx, s); err != nil {
			return meanwhile, err
		}
	}
	return meanwhile, nil
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

// inherit puts the freezes of everything, as they stand in other tenants, on the
// row of a tenant that is new here.
func (l *Ledger) inherit(ctx context.Context, row *Guard) error {
	all, err := l.cfg.Store.Tenants(ctx)
	if err != nil {
		return StoreFault(err)
	}
	for _, other := range all {
		g, err := l.Guard(ctx, other)
		if err != nil {
			return err
		}
		for _, f := range g.Freezes {
			weaker := func(o Freeze) bool { return o.Everything && o.Level != FreezeAll }
			switch {
			case !f.Everything || slices.ContainsFunc(row.Freezes, func(o Freeze) bool { return o.Everything && (o.Level == FreezeAll || o.Level == f.Level) }):
			default:
				row.Freezes = append(slices.DeleteFunc(row.Freezes, weaker), f)
			}
		}
	}
	return nil
}
