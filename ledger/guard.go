package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"countersign/fault"
)

// Guard is the tenant's guard row: what every open and dispatch is evaluated
// against. Each change bumps the epoch, and a write that carries an older epoch
// does not commit; so a freeze, a revoked agent or a withdrawn tool is in force
// once its change is acknowledged (I14).
type Guard struct {
	Tenant string `json:"tenant"`
	Epoch  int64  `json:"epoch"`
	// Freezes in force.
	Freezes []Freeze `json:"freezes,omitempty"`
	// Revoked are the ids of agents whose rights were taken away.
	Revoked []string `json:"revoked,omitempty"`
	// Tools are the versions in force, by name.
	Tools map[string]string `json:"tools,omitempty"`
	// People counts how often rights of people were taken away: what was evaluated
	// with the old ones does not commit.
	People int64 `json:"people,omitempty"`
	// Generation is the ledger generation in tokens; raised by an emergency
	// revoke or a restore, which voids all tokens at once.
	Generation int64 `json:"generation"`
}

// Freeze is a durable stop on dispatches.
type Freeze struct {
	Tool   string      `json:"tool,omitempty"` // empty: the whole tenant
	Level  FreezeLevel `json:"level"`
	By     Actor       `json:"by"`
	Reason string      `json:"reason"`
	At     time.Time   `json:"at"`
}

// FreezeLevel says what a freeze stops.
type FreezeLevel string

const (
	// FreezeNew stops opens and first dispatches.
	FreezeNew FreezeLevel = "new"
	// FreezeAll stops every dispatch mark.
	FreezeAll FreezeLevel = "all"
)

// Frozen gives the freeze that holds a tool, the strictest first.
func (g Guard) Frozen(tool string) (Freeze, bool) {
	var found Freeze
	for _, f := range g.Freezes {
		if f.Tool != "" && f.Tool != tool {
			continue
		}
		if f.Level == FreezeAll {
			return f, true
		}
		found = f
	}
	return found, found.Level != ""
}

// stopped reports whether exactly this scope is frozen at "all".
func (g Guard) stopped(tool string) bool {
	return slices.ContainsFunc(g.Freezes, func(f Freeze) bool { return f.Tool == tool && f.Level == FreezeAll })
}

// Check refuses a new open or dispatch of the tool for the agent while a
// freeze or a revocation stands against it.
func (g Guard) Check(tool, agent string) error {
	if f, ok := g.Frozen(tool); ok {
		return fault.New(fault.ToolFrozen, "The tool %s is frozen: %s", tool, f.Reason)
	}
	if slices.Contains(g.Revoked, agent) {
		return fault.New(fault.Unauthenticated, "The agent's rights were taken away.")
	}
	return nil
}

// clone copies the row deep enough to be changed.
func (g Guard) clone() Guard {
	g.Freezes = slices.Clone(g.Freezes)
	g.Revoked = slices.Clone(g.Revoked)
	tools := make(map[string]string, len(g.Tools))
	for k, v := range g.Tools {
		tools[k] = v
	}
	g.Tools = tools
	return g
}

// ChangeGuard changes the tenant's guard row by compare-and-swap on its epoch.
// Once it returns, nothing commits that evaluated the row before. It lists the
// operations that were already behind a dispatch mark. A change that leaves the
// row as it was writes nothing.
func (l *Ledger) ChangeGuard(ctx context.Context, tenant string, change func(*Guard)) (Guard, []Operation, error) {
	for try := 0; ; try++ {
		old, err := l.cfg.Store.Guard(ctx, tenant)
		if err != nil {
			return Guard{}, nil, StoreFault(err)
		}
		next := old.clone()
		change(&next)
		if next.equal(old) {
			return old, nil, nil
		}
		next.Tenant, next.Epoch = tenant, old.Epoch+1
		marked, err := l.cfg.Store.ChangeGuard(ctx, GuardChange{WriteID: newWriteID(), Expect: old.Epoch, Guard: next})
		var refused *Refused
		var amb *Ambiguous
		switch {
		case err == nil:
			return next, marked, nil
		case errors.As(err, &refused) && try < maxTries:
			continue
		case errors.As(err, &amb) && try < maxTries:
			// The change is idempotent in meaning: read again and see whether
			// anything is left to change.
			continue
		default:
			return Guard{}, nil, StoreFault(err)
		}
	}
}

func (g Guard) equal(o Guard) bool {
	return g.Generation == o.Generation && g.People == o.People && slices.Equal(g.Freezes, o.Freezes) && slices.Equal(g.Revoked, o.Revoked) && equalMaps(g.Tools, o.Tools)
}

func equalMaps(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// PeopleChanged voids what was evaluated with people's old rights. It is called
// after an operator was disabled or left a group, and before that is
// acknowledged: no dispatch that counted their yes is marked afterwards (I12).
func (l *Ledger) PeopleChanged(ctx context.Context, tenant string) error {
	_, _, err := l.ChangeGuard(ctx, tenant, func(g *Guard) { g.People++ })
	return err
}

// Freeze stops dispatches of one tool, or of the whole tenant when tool is
// empty. It lists what was already dispatched. A freeze of that scope that
// stops everything is never loosened by it.
func (l *Ledger) Freeze(ctx context.Context, tenant, tool string, level FreezeLevel, by Actor, reason string) ([]Operation, error) {
	_, marked, err := l.ChangeGuard(ctx, tenant, func(g *Guard) {
		if level != FreezeAll && g.stopped(tool) {
			return
		}
		g.Freezes = slices.DeleteFunc(g.Freezes, func(f Freeze) bool { return f.Tool == tool })
		g.Freezes = append(g.Freezes, Freeze{Tool: tool, Level: level, By: by, Reason: reason, At: l.Now()})
	})
	return marked, err
}

// Unfreeze ends the freeze of exactly that scope.
func (l *Ledger) Unfreeze(ctx context.Context, tenant, tool string) error {
	_, _, err := l.ChangeGuard(ctx, tenant, func(g *Guard) {
		g.Freezes = slices.DeleteFunc(g.Freezes, func(f Freeze) bool { return f.Tool == tool })
	})
	return err
}
