package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	// Change says what made this row out of the one before it. Rows are kept, and
	// form a hash chain like the events of an operation.
	Change Change `json:"change"`
	Prev   string `json:"prev,omitempty"`
	Hash   string `json:"hash,omitempty"`
}

// Change is who changed a guard row, and why.
type Change struct {
	// What is tenant (the row appears), freeze, unfreeze, revoke, tools, people,
	// generation or restored.
	What   string    `json:"what"`
	Tool   string    `json:"tool,omitempty"`
	By     Actor     `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// Open counts the unknown operations in the scope of an unfreeze; above zero
	// it was overridden, and Signature is a JWS over Guard.Statement. In a restored
	// row Signature is the signed statement about the restore.
	Open      int    `json:"open,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// seal computes the row's hash over everything but Hash.
func (g Guard) seal() string {
	g.Hash = ""
	b, err := json.Marshal(g)
	if err != nil {
		panic(err) // strings, numbers and times always marshal
	}
	sum := sha256.Sum256(append([]byte("countersign-guard-1\n"), b...))
	return hex.EncodeToString(sum[:])
}

// Statement is what the signature of an overridden unfreeze is made over: the
// row's JSON without Signature and without Hash.
func (g Guard) Statement() []byte {
	g.Hash, g.Change.Signature = "", ""
	b, err := json.Marshal(g)
	if err != nil {
		panic(err) // strings, numbers and times always marshal
	}
	return b
}

// Intact reports whether the row is what was written and follows prev, the hash
// of the row before it.
func (g Guard) Intact(prev string) bool { return g.Prev == prev && g.Hash == g.seal() }

// follow makes g the row behind old.
func (l *Ledger) follow(g, old Guard, why Change) Guard {
	why.At = l.Now()
	why.By.Name, why.Reason, why.Tool = readable(why.By.Name), readable(why.Reason), readable(why.Tool)
	for i := range g.Freezes {
		f := &g.Freezes[i]
		f.By.Name, f.Reason, f.Tool = readable(f.By.Name), readable(f.Reason), readable(f.Tool)
	}
	g.Tenant, g.Epoch, g.Prev, g.Change = old.Tenant, old.Epoch+1, old.Hash, why
	g.Hash = g.seal()
	return g
}

// Freeze is a durable stop on dispatches.
type Freeze struct {
	Tool string `json:"tool,omitempty"` // empty: the whole tenant
	// Everything: it stands in every tenant, and is lifted in all at once.
	Everything bool `json:"everything,omitempty"`

	Level  FreezeLevel `json:"level"`
	By     Actor       `json:"by"`
	Reason string      `json:"reason"`
	At     time.Time   `json:"at"`
}

// FreezeLevel says what a freeze stops.
type FreezeLevel string

const (
	// FreezeNew stops opens and dispatches of operations, save undo.
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

// stopped reports whether what was found out about a tool stands against it. A
// freeze by anybody else does not do, of whatever scope and level: it may be
// lifted by somebody who knows nothing of this.
func (g Guard) stopped(tool string) bool {
	return slices.ContainsFunc(g.Freezes, func(f Freeze) bool { return f.Tool == tool && f.By == foundOut })
}

// foundOut is who freezes a tool that evidence gave the lie to.
var foundOut = Gateway("contradiction")

// stop freezes a tool at "all" for what was found out about it, in the place of
// a person's freeze of the same tool, which stays in the history.
func (g *Guard) stop(tool, reason string, at time.Time) {
	if g.stopped(tool) {
		return
	}
	g.Freezes = slices.DeleteFunc(g.Freezes, Scope{Tool: tool}.is)
	g.Freezes = append(g.Freezes, Freeze{Tool: tool, Level: FreezeAll, By: foundOut, Reason: reason, At: at})
}

// Subject is what a guard row is asked about.
type Subject struct {
	Tool, Agent string
	// Undo: it takes something back, which a freeze of new work lets through.
	Undo bool
	// ByOperator: an operator asked for it, so the agent's rights don't matter.
	ByOperator bool
}

// Stops gives the freeze that stops an open or a dispatch.
func (g Guard) Stops(s Subject) (Freeze, bool) {
	f, ok := g.Frozen(s.Tool)
	return f, ok && (f.Level == FreezeAll || !s.Undo)
}

// Check refuses a new open or dispatch while a freeze or a revocation stands
// against it.
func (g Guard) Check(s Subject) error {
	if f, ok := g.Stops(s); ok {
		return fault.New(fault.ToolFrozen, "The tool %s is frozen: %s", s.Tool, f.Reason)
	}
	if !s.ByOperator && slices.Contains(g.Revoked, s.Agent) {
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
// operations that were already behind a dispatch mark, also when the change leaves
// the row as it was, which writes nothing.
//
// A tenant's first change writes two rows: one in which nothing is said yet, so
// that whoever freezes everything sees the tenant, and then the change, on top of
// the freezes of everything that stand elsewhere.
func (l *Ledger) ChangeGuard(ctx context.Context, tenant string, why Change, change func(*Guard)) (Guard, []Operation, error) {
	for try := 0; ; try++ {
		old, err := l.cfg.Store.Guard(ctx, tenant)
		if err != nil {
			return Guard{}, nil, StoreFault(err)
		}
		old.Tenant = tenant
		next := old.clone()
		if old.bare() {
			if err := l.inherit(ctx, &next); err != nil {
				return Guard{}, nil, err
			}
		}
		change(&next)
		if next.equal(old) {
			marked, err := l.running(ctx, tenant)
			return old, marked, err
		}
		said := why
		if old.Epoch == 0 {
			next, said = Guard{}, Change{What: appears, By: Gateway("ledger")}
		}
		if next, err = l.signed(l.follow(next, old, said)); err != nil {
			return Guard{}, nil, err
		}
		marked, err := l.writeGuard(ctx, GuardChange{WriteID: newWriteID(), Expect: old.Epoch, Guard: next})
		var refused *Refused
		switch {
		case errors.As(err, &refused) && try < maxTries, err == nil && old.Epoch == 0:
			continue
		case err != nil:
			return Guard{}, nil, StoreFault(err)
		}
		return next, marked, nil
	}
}

// appears is what the first row of a tenant says.
const appears = "tenant"

// bare reports that nothing was said in the row yet.
func (g Guard) bare() bool { return g.Epoch == 1 && g.Change.What == appears }

// writeGuard is one compare-and-swap. After a lost answer the identical write is
// made again, which can't apply twice because of its write id, so that what it
// answers (what was running) is not lost with it.
func (l *Ledger) writeGuard(ctx context.Context, c GuardChange) (marked []Operation, err error) {
	err = l.persist(ctx, c.WriteID, func() error {
		marked, err = l.cfg.Store.ChangeGuard(ctx, c)
		return err
	})
	return marked, err
}

// signed signs the row where it overrides doubts.
func (l *Ledger) signed(g Guard) (Guard, error) {
	if g.Change.Open == 0 || l.cfg.Sign == nil {
		return g, nil
	}
	signature, err := l.cfg.Sign(g.Statement())
	if err != nil {
		return g, fault.Wrap(err, fault.Internal, "The override could not be signed; nothing was changed.")
	}
	g.Change.Signature = signature
	g.Hash = g.seal()
	return g, nil
}

// running lists what is behind a dispatch mark.
func (l *Ledger) running(ctx context.Context, tenant string) ([]Operation, error) {
	var ops []Operation
	f := Filter{Tenant: tenant, States: []State{Running}, OldestFirst: true, Limit: 200}
	for {
		page, err := l.List(ctx, f)
		if err != nil {
			return ops, err
		}
		ops = append(ops, page.Operations...)
		if page.Next == "" {
			return ops, nil
		}
		f.Cursor = page.Next
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
	_, _, err := l.ChangeGuard(ctx, tenant, Change{What: "people", By: Gateway("identity")}, func(g *Guard) { g.People++ })
	return err
}
