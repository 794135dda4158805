package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// The second search walks an operation that succeeded beside its undos, row by row:
// whatever may happen to an undo happens, and its parent moves in the same write as
// the product's own function says.

// family is one node: a parent and up to two generations of its undo.
type family struct {
	parent   ledger.Operation
	children []world
	trail    string
}

// key names a family. roughly takes all ends without a try for one: they are one to
// a parent, and the first search tells them apart.
func (f family) key(roughly bool) string {
	k := string(f.parent.State) + f.parent.Child
	for _, c := range f.children {
		if roughly && (c.state == ledger.Rejected || c.state == ledger.Expired) {
			c.state = ledger.Cancelled
		}
		k += "#" + c.key()
	}
	return k
}

func childID(i int) string { return fmt.Sprint("undo-", i+1) }

// with puts the next world of one child in its place and lets the parent follow
// each of its moves.
func (f family) with(i int, next world) family {
	states := append([]ledger.State{f.children[i].state}, next.via...)
	n := family{parent: f.parent, children: slices.Clone(f.children), trail: f.trail + next.trail}
	next.trail, next.via = "", nil
	n.children[i] = next
	for s, to := range append(states[1:], next.state) {
		others := slices.ContainsFunc(n.others(i), func(c world) bool { return !c.state.Void() })
		if verb, moved := rules.follow(n.parent, childID(i), states[s], to, others); verb != "" {
			if !slices.Contains(ledger.Allowed(n.parent.State, verb, true, true), moved.State) {
				panic(fmt.Sprintf("the table refuses %s of the parent:%s", verb, n.trail))
			}
			n.parent = moved
			n.trail += fmt.Sprintf(" [parent: %s]", verb)
		}
	}
	return n
}

func (f family) others(i int) []world {
	return append(slices.Clone(f.children[:i]), f.children[i+1:]...)
}

// doubted reports that another undo than this one took place as far as the ledger
// knows, or is in doubt.
func (f family) doubted(i int) bool {
	return slices.ContainsFunc(f.others(i), func(c world) bool { return c.state == ledger.Succeeded || c.state == ledger.Unknown })
}

// sent tells how a child may be sent next; empty when it may not.
func (f family) sent(i int) string {
	for _, next := range f.successors(true) {
		if len(next.children[i].attempts) > len(f.children[i].attempts) && next.children[i].state == ledger.Running {
			return next.trail
		}
	}
	return ""
}

// successors lists everything that may happen next to any row.
func (f family) successors(lies bool) []family {
	var out []family
	for i, c := range f.children {
		if maxAttempts = 2; lies || i > 0 { // one attempt will do for what is looked for there
			maxAttempts = 1
		}
		for _, next := range successors(c, lies) {
			sent := len(next.attempts) > len(c.attempts) && c.state == ledger.Pending && next.state == ledger.Running
			others := slices.ContainsFunc(f.others(i), func(c world) bool { return !c.state.Void() })
			if sent && !rules.speaks(f.parent, childID(i), others) {
				continue
			}
			if slices.Contains([]ledger.State{ledger.Compensating, ledger.Compensated}, next.state) {
				continue // no undo is undone
			}
			next.trail = fmt.Sprintf(" → %s:%s", childID(i), next.trail[len(c.trail):])
			out = append(out, f.with(i, next))
		}
	}
	// Asked for under two tools, the key of the one doesn't protect the other.
	if len(f.children) < 2 && rules.undoable(f.parent) == nil {
		for _, s := range ledger.Allowed("", ledger.VerbOpen, false, false) {
			c := world{state: s}
			if s == ledger.Running {
				c = marked(world{}, "")
				c.trail = ""
			}
			n := family{parent: f.parent, children: append(slices.Clone(f.children), c), trail: f.trail + " → open " + childID(len(f.children))}
			n.parent.State, n.parent.Child = ledger.Compensating, childID(len(f.children))
			out = append(out, n)
		}
	}
	return out
}

// searchFamily visits every reachable family and hands each to check; check ends
// the search by false.
func searchFamily(t *testing.T, lies bool, check func(family) bool) (visited int) {
	t.Helper()
	was := maxAttempts
	defer func() { maxAttempts = was }()
	queue := []family{{parent: ledger.Operation{ID: "parent", State: ledger.Succeeded, EffectID: "e"}, trail: "parent succeeded"}}
	seen := map[string]bool{}
	for len(queue) > 0 {
		f := queue[0]
		queue = queue[1:]
		key := f.key(lies)
		if seen[key] {
			continue
		}
		seen[key] = true
		if !check(f) {
			break
		}
		queue = append(queue, f.successors(lies)...)
	}
	return len(seen)
}

// wrong says what is wrong with a family while assumptions and statements are true;
// empty when nothing is.
func wrong(f family) string {
	undone, live := 0, 0
	for i, c := range f.children {
		if slices.Contains(c.ghost, landed) {
			undone++
		}
		if c.state.Live() {
			live++
		}
		if c.state.Void() && c.possibleEffect() {
			return "a void undo may have an effect"
		}
		if c.state.Live() && f.parent.Child != childID(i) {
			return "a live undo that the parent does not know"
		}
	}
	switch {
	case undone > 1:
		return "two undos took effect"
	case f.parent.State == ledger.Compensated && undone == 0:
		return "compensated, and nothing was undone"
	case f.parent.State == ledger.Succeeded && undone > 0:
		return "the parent says that its effect stands, and it was taken back"
	case f.parent.State == ledger.Succeeded && live > 0:
		return "the parent says that its effect stands while an undo is live"
	case f.parent.State == ledger.Compensating && live != 1:
		return "the parent waits for an undo that is not live"
	case f.parent.State == ledger.Compensated && live > 0:
		return "compensated while an undo is live"
	}
	return ""
}

// TestSearch_ParentAndUndosTellOneStory: in every reachable state (I15).
func TestSearch_ParentAndUndosTellOneStory(t *testing.T) {
	reached := map[string]int{}
	n := searchFamily(t, false, func(f family) bool {
		if w := wrong(f); w != "" {
			t.Fatalf("%s: %s", w, f.trail)
		}
		for _, c := range f.children {
			reached[string(f.parent.State)+" beside "+string(c.state)]++
		}
		return true
	})
	t.Logf("%d families", n)
	require.Greater(t, n, 1000)
	for _, s := range []ledger.State{ledger.AwaitingApproval, ledger.Pending, ledger.Running, ledger.Unknown} {
		require.NotZero(t, reached["compensating beside "+string(s)], s)
	}
	for _, s := range []ledger.State{ledger.Failed, ledger.Rejected, ledger.Expired, ledger.Cancelled} {
		require.NotZero(t, reached["succeeded beside "+string(s)], s)
		require.NotZero(t, reached["compensated beside "+string(s)], "undone by the next generation")
	}
	require.NotZero(t, reached["compensated beside succeeded"])
}

// TestSearch_FalseWordsAboutUndos: with false statements and false proofs an undo
// that ended may have taken place. Evidence of it always reaches the parent; nothing
// is sent once the ledger knows that an undo took place; and the parent never waits
// for nothing.
func TestSearch_FalseWordsAboutUndos(t *testing.T) {
	recompensated, spared := 0, 0
	n := searchFamily(t, true, func(f family) bool {
		for i, c := range f.children {
			if c.state == ledger.Succeeded && f.parent.State != ledger.Compensated {
				t.Fatalf("an undo succeeded and its parent is %s: %s", f.parent.State, f.trail)
			}
			if f.parent.State == ledger.Succeeded && c.state.Live() {
				t.Fatalf("the parent says that its effect stands while an undo is %s: %s", c.state, f.trail)
			}
			if c.state == ledger.Pending && f.doubted(i) {
				spared++
				if next := f.sent(i); next != "" {
					t.Fatalf("sent beside an undo that took place, or may have: %s", next)
				}
			}
			hidden := slices.Index(c.ghost, landed)
			if c.state.Void() && hidden >= 0 {
				after := f.with(i, evidence(c, hidden+1, "succeeded", " late evidence"))
				require.Equal(t, ledger.Succeeded, after.children[i].state, after.trail)
				require.Equal(t, ledger.Compensated, after.parent.State, after.trail)
				if f.parent.State == ledger.Succeeded {
					recompensated++
				}
			}
		}
		live := slices.ContainsFunc(f.children, func(c world) bool { return c.state.Live() })
		if f.parent.State == ledger.Compensating && !live {
			t.Fatalf("the parent waits for nothing: %s", f.trail)
		}
		return true
	})
	t.Logf("%d families", n)
	require.NotZero(t, recompensated)
	require.NotZero(t, spared)
}

// TestSearch_FindsPlantedMistakesInUndos takes one rule away at a time; a search
// must notice each.
func TestSearch_FindsPlantedMistakesInUndos(t *testing.T) {
	truth := rules
	defer func() { rules = truth }()
	type follow = func(ledger.Operation, string, ledger.State, ledger.State, bool) (ledger.Verb, ledger.Operation)
	following := func(change func(follow, ledger.Operation, string, ledger.State, ledger.State, bool) (ledger.Verb, ledger.Operation)) {
		rules.follow = func(p ledger.Operation, c string, from, to ledger.State, others bool) (ledger.Verb, ledger.Operation) {
			return change(ledger.FollowUndo, p, c, from, to, others)
		}
	}
	for name, plant := range map[string]func(){
		"the end of an undo is not told": func() {
			following(func(_ follow, p ledger.Operation, _ string, _, _ ledger.State, _ bool) (ledger.Verb, ledger.Operation) {
				return "", p
			})
		},
		"any end of an undo compensates": func() {
			following(func(f follow, p ledger.Operation, c string, from, to ledger.State, others bool) (ledger.Verb, ledger.Operation) {
				verb, next := f(p, c, from, to, others)
				if verb == ledger.VerbGiveUp {
					next.State = ledger.Compensated
					return ledger.VerbCompensated, next
				}
				return verb, next
			})
		},
		"an undo in doubt gives up": func() {
			following(func(f follow, p ledger.Operation, c string, from, to ledger.State, others bool) (ledger.Verb, ledger.Operation) {
				if to == ledger.Unknown && from == ledger.Running {
					to = ledger.Failed
				}
				return f(p, c, from, to, others)
			})
		},
		"what is being undone is undone again": func() {
			rules.undoable = func(op ledger.Operation) error {
				op.State = ledger.Succeeded
				return ledger.Undoable(op)
			}
		},
		"a contradicted undo is not told": func() {
			following(func(f follow, p ledger.Operation, c string, from, to ledger.State, others bool) (ledger.Verb, ledger.Operation) {
				if from.Void() {
					return "", p
				}
				return f(p, c, from, to, others)
			})
		},
		"a newer undo gives up over an older doubt": func() {
			following(func(f follow, p ledger.Operation, c string, from, to ledger.State, _ bool) (ledger.Verb, ledger.Operation) {
				return f(p, c, from, to, false)
			})
		},
		"an undo that nobody waits for is sent": func() {
			rules.speaks = func(ledger.Operation, string, bool) bool { return true }
		},
		"an undo is sent beside an older doubt": func() {
			rules.speaks = func(p ledger.Operation, c string, _ bool) bool { return ledger.Speaks(p, c, false) }
		},
		"a restore presumes nothing": func() { rules.presumes = false },
	} {
		t.Run(name, func(t *testing.T) {
			rules = truth
			plant()
			found := ""
			for _, lies := range []bool{false, true} {
				searchFamily(t, lies, func(f family) bool {
					if found = broken(f, lies); found != "" {
						found += ": " + f.trail
					}
					return found == ""
				})
				if found != "" {
					break
				}
			}
			require.NotEmpty(t, found)
			t.Log("found: " + found)
		})
	}
}

// broken is what the searches look for in one family.
func broken(f family, lies bool) string {
	if !lies {
		return wrong(f)
	}
	live := false
	for i, c := range f.children {
		live = live || c.state.Live()
		switch {
		case c.state == ledger.Succeeded && f.parent.State != ledger.Compensated:
			return "an undo succeeded and the parent does not say so"
		case c.state.Live() && f.parent.State == ledger.Succeeded:
			return "the parent says that its effect stands while an undo is live"
		case c.state == ledger.Pending && f.doubted(i) && f.sent(i) != "":
			return "sent beside an undo that took place, or may have"
		}
	}
	if f.parent.State == ledger.Compensating && !live {
		return "the parent waits for nothing"
	}
	return ""
}
