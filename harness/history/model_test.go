package history_test

import (
	"fmt"
	"strings"

	"countersign/fault"
	"countersign/ledger"
)

// The model: what stands under one key of one tool, and how calls see it.

// call is what a client asked.
type call struct {
	Tool string
	// Order is the key's own part; a freeze and its end are about all of a tool's.
	Order int
	What  string // preview, commit, get, find, approve, reject, cancel, freeze, unfreeze, resolve, outside
	Args  int    // of a preview or a commit: which arguments
	// Agent asks for a preview or a commit.
	Agent string
	// Generation is that of a commit's token.
	Generation int
	Operation  string // by its id
	Person     int
	// Said is the effect that a person says they saw; empty: none.
	Said string
	// Quorum and Keyed say what the tool is: how many people it asks, and whether
	// what it was sent may be sent again.
	Quorum int
	Keyed  bool
}

// answer is what the client was told.
type answer struct {
	// Code is a refusal, after which nothing may have changed.
	Code fault.Code
	// Lost: the answer says nothing, so the call may have happened, or may yet.
	Lost bool
	// Op is the operation as it was shown; Fresh that the call opened it, else it
	// is an older one. Empty for a find says that nothing was there.
	Op    seen
	Fresh bool
	// Generation of the token that a preview gave; 0 when it gave none.
	Generation int
	// Effects are what the outside system has of the operation.
	Effects string
}

// seen is an operation as a client saw it.
type seen struct {
	ID         string
	Generation int
	State      ledger.State
	Effect     string
}

// key is the state: everything about one key that clients can see. The zero key
// is one under which nothing was opened.
type key struct {
	Frozen bool
	// The newest operation. ID is empty while nobody has seen it.
	Generation int
	ID         string
	State      ledger.State
	Args       int
	Agent      string
	// Done is the effect that it has, once somebody has seen it, here or outside.
	Done string
	// Yes are the people whose yes counts, Said all who have decided.
	Yes, Said int
	// Void are the older generations, which ended without effect.
	Void string
	// No are the asks that people said no to.
	No string
}

// free reports that the next generation may be opened.
func (k key) free() bool { return k.Generation == 0 || k.State.Void() }

func ask(agent string, args int) string { return fmt.Sprintf("|%s %d;", agent, args) }

func void(generation int, id string, s ledger.State, args int) string {
	return fmt.Sprintf("|%d %s %s args %d;", generation, id, s, args)
}

// wasVoid reports that an older generation ended so, with those arguments.
func (k key) wasVoid(op seen, args int) bool {
	return strings.Contains(k.Void, void(op.Generation, op.ID, op.State, args)) || strings.Contains(k.Void, void(op.Generation, "", op.State, args))
}

// alone gives the states that the gateway may reach from k by itself, k with them.
func (k key) alone(c call) []key {
	all := []key{k}
	for i := 0; i < len(all); i++ {
		for _, to := range all[i].next(c) {
			n := all[i]
			n.State = to
			if !contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// next are the states of the operation that the gateway may bring about from this
// one. A dispatch mark, first or repeated, needs that nothing is frozen.
func (k key) next(c call) []ledger.State {
	switch k.State {
	case ledger.Pending:
		if !k.Frozen {
			return []ledger.State{ledger.Running}
		}
	case ledger.Running:
		return append(k.ends(), ledger.Unknown)
	case ledger.Unknown:
		ends := k.ends()
		if c.Keyed && !k.Frozen {
			ends = append(ends, ledger.Running)
		}
		return ends
	}
	return nil
}

// ends are how what was sent may end. What has been seen outside has happened: it
// neither fails nor is it released, as unsent, to be sent again.
func (k key) ends() []ledger.State {
	switch {
	case k.Done != "":
		return []ledger.State{ledger.Succeeded}
	case k.State == ledger.Running:
		return []ledger.State{ledger.Succeeded, ledger.Failed, ledger.Pending}
	default:
		return []ledger.State{ledger.Succeeded, ledger.Failed}
	}
}

func contains(list []key, k key) bool {
	for _, o := range list {
		if o == k {
			return true
		}
	}
	return false
}

// step gives the states that a call may leave behind, if it took place now with
// that answer; none when that can't be.
func step(k key, c call, a answer) []key {
	var after []key
	for _, now := range k.alone(c) {
		for _, n := range now.takes(c, a) {
			if !contains(after, n) {
				after = append(after, n)
			}
		}
	}
	return after
}

func (k key) takes(c call, a answer) []key {
	switch {
	case a.Lost:
		return append(k.mayHave(c), k)
	case a.Code != "":
		if k.refuses(c, a.Code) {
			return []key{k}
		}
		return nil
	}
	switch c.What {
	case "preview":
		return k.previewed(c, a)
	case "commit":
		return k.committed(c, a)
	case "get", "find":
		if a.Op == (seen{}) && c.What == "find" {
			return only(k, k.Generation == 0)
		}
		return k.shows(a.Op)
	case "approve", "reject":
		return k.decided(c, a)
	case "cancel":
		if n := k; (k.State == ledger.AwaitingApproval || k.State == ledger.Pending) && k.known(a.Op) {
			n.State = ledger.Cancelled
			return n.shows(a.Op)
		}
		return nil
	case "resolve":
		return k.resolved(c, a)
	case "outside":
		return k.outside(c, a.Effects)
	case "freeze":
		k.Frozen = true
		return []key{k}
	case "unfreeze":
		k.Frozen = false
		return []key{k}
	}
	panic("no such call: " + c.What)
}

func only(k key, ok bool) []key {
	if !ok {
		return nil
	}
	return []key{k}
}

// known reports that an operation that was seen can be the newest one.
func (k key) known(op seen) bool {
	return k.Generation > 0 && op.Generation == k.Generation && (k.ID == "" || k.ID == op.ID)
}

// shows is a look at an operation: it must be the newest one as it stands, or an
// older one as it ended. What was not known of it, the look tells.
func (k key) shows(op seen) []key {
	if op.Generation < k.Generation {
		for _, args := range []int{0, 1} {
			if k.wasVoid(op, args) {
				// Where nobody had seen it before, this tells its id.
				k.Void = strings.Replace(k.Void, void(op.Generation, "", op.State, args), void(op.Generation, op.ID, op.State, args), 1)
				return only(k, op.Effect == "")
			}
		}
		return nil
	}
	if !k.known(op) || op.State != k.State {
		return nil
	}
	k.ID = op.ID
	if op.State.Effective() {
		if op.Effect == "" || k.Done != "" && k.Done != op.Effect {
			return nil
		}
		k.Done = op.Effect
		return []key{k}
	}
	return only(k, op.Effect == "")
}

// previewed: a token for the next generation when the key is free, else the
// operation that stands.
func (k key) previewed(c call, a answer) []key {
	if a.Generation > 0 {
		return only(k, k.free() && a.Generation == k.Generation+1 && !strings.Contains(k.No, ask(c.Agent, c.Args)))
	}
	if k.free() || k.Args != c.Args {
		return nil
	}
	return k.shows(a.Op)
}

// committed: the token's generation is opened once, where the key is free, nothing
// is frozen and nobody said no; to everybody else it is the answer.
func (k key) committed(c call, a answer) []key {
	if !a.Fresh {
		same := k.Args == c.Args
		if a.Op.Generation < k.Generation {
			same = k.wasVoid(a.Op, c.Args)
		}
		if a.Op.Generation != c.Generation || !same {
			return nil
		}
		return k.shows(a.Op)
	}
	if !k.opens(c) || a.Op.Generation != c.Generation {
		return nil
	}
	n := k.opened(c)
	n.ID = a.Op.ID
	return []key{n} // what its answer shows is looked at as a read of its own
}

// opens reports that a commit may open its generation now.
func (k key) opens(c call) bool {
	return k.free() && c.Generation == k.Generation+1 && !k.Frozen && !strings.Contains(k.No, ask(c.Agent, c.Args))
}

// opened is the key behind the birth of the next generation.
func (k key) opened(c call) key {
	n := key{Frozen: k.Frozen, No: k.No, Void: k.Void, Generation: k.Generation + 1, Args: c.Args, Agent: c.Agent, State: ledger.Running}
	if k.Generation > 0 {
		n.Void += void(k.Generation, k.ID, k.State, k.Args)
	}
	if c.Quorum > 0 {
		n.State = ledger.AwaitingApproval
	}
	return n
}

// says is the key behind a person's word; ok is false when nobody is asked, or not
// this person any more.
func (k key) says(c call) (n key, ok bool) {
	bit := 1 << c.Person
	if k.State != ledger.AwaitingApproval || k.Said&bit != 0 {
		return k, false
	}
	n = k
	n.Said |= bit
	if c.What == "reject" {
		n.State = ledger.Rejected
		n.No += ask(k.Agent, k.Args)
		return n, true
	}
	n.Yes |= bit
	count := 0
	for b := n.Yes; b > 0; b &= b - 1 {
		count++
	}
	if count >= c.Quorum {
		n.State = ledger.Pending
	}
	return n, true
}

// decided: a decision that is answered was made. What its answer shows is looked at
// as a read of its own.
func (k key) decided(c call, a answer) []key {
	n, ok := k.says(c)
	if !ok || !k.known(a.Op) {
		return nil
	}
	n.ID = a.Op.ID
	return []key{n}
}

// resolved: a person's statement ends the doubt as they said.
func (k key) resolved(c call, a answer) []key {
	if k.State != ledger.Unknown || !k.known(a.Op) || a.Op.State != c.says() || c.Said == "" && k.Done != "" || a.Op.Effect != c.Said {
		return nil
	}
	k.State = a.Op.State
	return k.shows(a.Op)
}

// says is the end that a person's statement gives an operation.
func (c call) says() ledger.State {
	if c.Said == "" {
		return ledger.Failed
	}
	return ledger.Succeeded
}

// outside is a look at the outside system: it has no effect of what was not sent,
// or has ended without, and one at most of anything else.
func (k key) outside(c call, effects string) []key {
	var after []key
	if effects == "" && k.was(c.Operation) {
		after = append(after, k)
	}
	if !k.is(c.Operation) || strings.Contains(effects, " ") {
		return after
	}
	k.ID = c.Operation
	may := false
	switch {
	case k.Done != "":
		may = effects == k.Done
	case k.State == ledger.Running, k.State == ledger.Unknown:
		may = true
	case k.State == ledger.Succeeded:
		may = effects != ""
	default:
		may = effects == ""
	}
	k.Done = effects
	return append(after, only(k, may)...)
}

// mayHave are the states behind a call whose answer was lost, if it happened.
func (k key) mayHave(c call) []key {
	switch c.What {
	case "commit":
		if k.opens(c) {
			return []key{k.opened(c)}
		}
	case "approve", "reject":
		if n, ok := k.says(c); ok && k.is(c.Operation) {
			return []key{n}
		}
	case "cancel":
		if (k.State == ledger.AwaitingApproval || k.State == ledger.Pending) && k.is(c.Operation) {
			k.State = ledger.Cancelled
			return []key{k}
		}
	case "resolve":
		if k.State == ledger.Unknown && k.is(c.Operation) && (k.Done == "" || k.Done == c.Said) {
			k.State, k.Done = c.says(), c.Said
			return []key{k}
		}
	case "freeze":
		k.Frozen = true
		return []key{k}
	case "unfreeze":
		k.Frozen = false
		return []key{k}
	}
	return nil
}

// is reports that the newest operation can be the one of that id, was that an older
// one can. Nobody may have seen the id of what a lost call opened.
func (k key) is(id string) bool {
	return k.Generation > 0 && (k.ID == id || k.ID == "" && !strings.Contains(k.Void, " "+id+" "))
}

func (k key) was(id string) bool {
	return strings.Contains(k.Void, " "+id+" ") || k.ID != id && strings.Contains(k.Void, "  ")
}
