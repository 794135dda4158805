package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// The search walks everything that the table, the judgement of evidence and a
// model of the outside world ("ghost") allow together, breadth first, and looks
// at every reachable state. The ghost knows what the ledger can only infer:
// where each attempt's request really is.

// rules are the product's own pure functions; a test plants mistakes in them.
var rules = struct {
	allowed   func(ledger.State, ledger.Verb, bool, bool) []ledger.State
	prove     func([]ledger.Attempt, int, tools.Verdict) []ledger.Attempt
	concluded func([]ledger.Attempt, tools.Verdict) (ledger.Verb, ledger.State)
	follow    func(parent ledger.Operation, child string, from, to ledger.State, others bool) (ledger.Verb, ledger.Operation)
	speaks    func(parent ledger.Operation, child string, others bool) bool
	undoable  func(ledger.Operation) error
	presumes  bool // a restore presumes an attempt
}{ledger.Allowed, ledger.Prove, ledger.Concluded, ledger.FollowUndo, ledger.Speaks, ledger.Undoable, true}

// where an attempt's request really is.
type where byte

const (
	held    where = 'h' // marked; a worker may still send it, late too
	dropped where = 'd' // the worker let go without sending; it never will
	flying  where = 'f' // on the wire; it may still arrive
	landed  where = 'L' // it took effect
	refused where = 'r' // the upstream refused it; no effect
	lost    where = 'l' // it never arrived and never will
)

// world is one node of the search.
type world struct {
	state    ledger.State
	attempts []ledger.Attempt
	ghost    []where
	// answered: the worker of the current attempt has concluded.
	answered []bool
	// beyond is where a request of the lost part of the ledger is, of which no
	// attempt tells.
	beyond where
	// via are the states that the last step passed on its way, for the parent of an
	// undo.
	via   []ledger.State
	trail string // how it was reached, for the report
}

func (w world) key() string {
	var b strings.Builder
	b.WriteString(string(w.state))
	b.WriteByte(byte(w.beyond))
	for i := range w.attempts {
		fmt.Fprintf(&b, "|%s%c%v%v", w.attempts[i].Proof, w.ghost[i], w.answered[i], w.attempts[i].Presumed)
	}
	return b.String()
}

func (w world) next(step string) world {
	return world{
		state: w.state, attempts: slices.Clone(w.attempts), ghost: slices.Clone(w.ghost), beyond: w.beyond,
		answered: slices.Clone(w.answered), trail: w.trail + " → " + step,
	}
}

func (w world) touched() bool { return ledger.Operation{Attempts: w.attempts}.Touched() }

func (w world) allowed(v ledger.Verb) []ledger.State {
	return rules.allowed(w.state, v, len(w.attempts) > 0, w.touched())
}

// possibleEffect: the outside world has, or may still get, an effect.
func (w world) possibleEffect() bool {
	return slices.ContainsFunc(append(slices.Clone(w.ghost), w.beyond), func(g where) bool { return g == held || g == flying || g == landed })
}

// maxAttempts bounds the attempts of one operation; a search may set fewer.
var maxAttempts = 3

// verbs that need no evidence; the search tries each whenever the table allows.
var plainVerbs = []ledger.Verb{
	ledger.VerbApprove, ledger.VerbReject, ledger.VerbReopen, ledger.VerbWithdraw, ledger.VerbCancel, ledger.VerbExpire,
	ledger.VerbRevise, ledger.VerbLoseLease, ledger.VerbHandOver, ledger.VerbCompensate,
	ledger.VerbCompensated, ledger.VerbGiveUp, ledger.VerbRecompensate,
}

// successors lists everything that may happen next. lies lets people state
// what is not so.
func successors(w world, lies bool) []world {
	var out []world
	for _, v := range plainVerbs {
		for _, to := range w.allowed(v) {
			n := w.next(string(v))
			n.state = to
			out = append(out, n)
		}
	}
	if len(w.attempts) < maxAttempts {
		if len(w.allowed(ledger.VerbDispatch)) > 0 {
			out = append(out, marked(w, string(ledger.VerbDispatch)))
		}
		if len(w.allowed(ledger.VerbRetry)) > 0 && !slices.ContainsFunc(w.attempts, func(a ledger.Attempt) bool { return a.Presumed }) {
			out = append(out, marked(w, string(ledger.VerbRetry)))
		}
		out = append(out, restored(w)...)
	}
	for i := range w.attempts {
		out = append(out, outside(w, i)...)
		if !w.answered[i] {
			out = append(out, worker(w, i, lies)...)
		}
		if w.ghost[i] == landed { // a lookup, a late packet, a webhook
			late := evidence(w, i+1, tools.Succeeded, "late evidence")
			out = append(out, late)
			if len(late.via) > 0 { // whoever brought it dies between the two writes
				late.state, late.via = late.via[0], nil
				out = append(out, late)
			}
		}
	}
	return append(out, people(w, lies)...)
}

func marked(w world, step string) world {
	n := w.next(step)
	n.state = ledger.Running
	n.attempts = append(n.attempts, ledger.Attempt{N: len(n.attempts) + 1})
	n.ghost = append(n.ghost, held)
	n.answered = append(n.answered, false)
	return n
}

// restored puts a backup in the place of the ledger: what the lost part did nobody
// knows, so a request may be anywhere.
func restored(w world) []world {
	var out []world
	for _, to := range w.allowed(ledger.VerbRestored) {
		for _, g := range []where{dropped, flying, landed} {
			n := w.next("restored")
			n.state = to
			if rules.presumes {
				n.attempts = append(n.attempts, ledger.Attempt{N: len(n.attempts) + 1, Presumed: true})
				n.ghost = append(n.ghost, g)
				n.answered = append(n.answered, true)
			} else {
				n.beyond = g
			}
			out = append(out, n)
		}
	}
	return out
}

// outside moves the request of one attempt, whatever the ledger believes.
func outside(w world, i int) []world {
	move := func(to where, step string) world {
		n := w.next(step)
		n.ghost[i] = to
		return n
	}
	switch w.ghost[i] {
	case held:
		out := []world{move(flying, "send")} // also long after its lease
		if w.state != ledger.Running || i < len(w.attempts)-1 {
			out = append(out, move(dropped, "die before sending"))
		}
		return out
	case flying:
		return []world{move(landed, "land"), move(refused, "be refused"), move(lost, "get lost")}
	default:
		return nil
	}
}

// worker lets the worker of one attempt say what it saw. What it can see
// depends on where the request is; it may always see nothing.
func worker(w world, i int, lies bool) []world {
	see := func(v tools.Verdict, ghost where, step string) world {
		n := w.next(step)
		n.ghost[i] = ghost
		n.answered[i] = true
		return weigh(n, i, v)
	}
	if lies && (w.ghost[i] == flying || w.ghost[i] == landed) {
		// A connector that is wrong about its point of no return.
		return []world{see(tools.NotSent, w.ghost[i], "swear that it was unsent"), see(tools.Unknown, w.ghost[i], "see no answer")}
	}
	switch w.ghost[i] {
	case held:
		return []world{see(tools.NotSent, dropped, "prove unsent")}
	case flying, lost:
		return []world{see(tools.Unknown, w.ghost[i], "see no answer")}
	case landed:
		return []world{see(tools.Succeeded, landed, "see success"), see(tools.Unknown, landed, "lose the reply")}
	case refused:
		return []world{see(tools.NoEffect, refused, "see the refusal"), see(tools.Unknown, refused, "lose the refusal")}
	default:
		return nil
	}
}

// weigh applies a worker's outcome: as the conclusion of the current attempt,
// or as late evidence.
func weigh(n world, i int, v tools.Verdict) world {
	if n.state != ledger.Running || i != len(n.attempts)-1 {
		return settle(n, i+1, v)
	}
	n.attempts = rules.prove(n.attempts, i+1, v)
	verb, to := rules.concluded(n.attempts, v)
	if !slices.Contains(rules.allowed(ledger.Running, verb, true, true), to) {
		panic(fmt.Sprintf("the table refuses %s to %s", verb, to))
	}
	n.state = to
	return n
}

func evidence(w world, attempt int, v tools.Verdict, step string) world {
	return settle(w.next(step), attempt, v)
}

// settle is what AddEvidence does: prove, then resolve or contradict.
func settle(n world, attempt int, v tools.Verdict) world {
	contradict := n.allowed(ledger.VerbContradict)
	n.attempts = rules.prove(n.attempts, attempt, v)
	verdict := ledger.Judge(n.attempts)
	if len(contradict) == 1 && verdict == ledger.Succeeded {
		n.state = contradict[0]
		n.via = append(n.via, n.state)
		n.trail += " → contradict"
	}
	if n.state == ledger.Unknown && verdict != ledger.Unknown {
		n.state = verdict
	}
	return n
}

// people state what they found out about an unknown operation.
func people(w world, lies bool) []world {
	if w.state != ledger.Unknown || len(w.attempts) == 0 {
		return nil
	}
	var out []world
	hasLanded := slices.Contains(w.ghost, landed)
	if hasLanded || lies {
		out = append(out, evidence(w, 0, tools.Succeeded, "state: it happened"))
	}
	if !w.possibleEffect() || lies {
		out = append(out, evidence(w, 0, tools.NoEffect, "state: it did not happen"))
	}
	return out
}

// search visits every reachable world and hands each to check, which ends the
// search by false.
func search(t *testing.T, lies bool, check func(world) bool) (visited int) {
	t.Helper()
	var queue []world
	for _, s := range ledger.Allowed("", ledger.VerbOpen, false, false) {
		w := world{state: s, trail: "open"}
		if s == ledger.Running {
			w = marked(world{trail: "open"}, "mark")
		}
		queue = append(queue, w)
	}
	seen := map[string]bool{}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		if seen[w.key()] {
			continue
		}
		seen[w.key()] = true
		if !check(w) {
			break
		}
		queue = append(queue, successors(w, lies)...)
	}
	return len(seen)
}

// TestSearch_NoVoidStateHasAPossibleEffect: while assumptions and people's
// statements are true, no reachable void state has an effect, or a request that
// may still get one (I1, I8).
func TestSearch_NoVoidStateHasAPossibleEffect(t *testing.T) {
	reached := map[ledger.State]int{}
	n := search(t, false, func(w world) bool {
		reached[w.state]++
		if w.state.Void() && w.possibleEffect() {
			t.Fatalf("%s, yet an effect is possible:%s", w.state, w.trail)
		}
		if w.state == ledger.Succeeded && !slices.Contains(w.ghost, landed) {
			t.Fatalf("succeeded without an effect:%s", w.trail)
		}
		if w.state == ledger.Pending && w.touched() {
			t.Fatalf("pending, yet touched:%s", w.trail)
		}
		return true
	})
	for _, s := range ledger.States {
		require.NotZero(t, reached[s], "the search reaches %s", s)
	}
	t.Logf("%d worlds", n)
	require.Greater(t, n, 500)
}

// TestSearch_LateEvidenceAlwaysContradicts: with false statements, and connectors
// that swear falsely that nothing was sent, a void state may hide an effect, and so
// may one that waits to be sent again; then evidence of it is never blocked and
// brings the operation back.
func TestSearch_LateEvidenceAlwaysContradicts(t *testing.T) {
	hidden := map[ledger.State]int{}
	search(t, true, func(w world) bool {
		i := slices.Index(w.ghost, landed)
		waits := w.state == ledger.Pending || w.state == ledger.AwaitingApproval
		if !w.state.Void() && !waits || i < 0 {
			return true
		}
		hidden[w.state]++
		require.Equal(t, []ledger.State{ledger.Unknown}, w.allowed(ledger.VerbContradict), w.trail)
		after := evidence(w, i+1, tools.Succeeded, "late evidence")
		require.Equal(t, ledger.Succeeded, after.state, after.trail)
		require.Contains(t, after.trail, "contradict")
		return true
	})
	for _, s := range []ledger.State{ledger.Pending, ledger.AwaitingApproval, ledger.Failed, ledger.Rejected, ledger.Expired, ledger.Cancelled} {
		require.NotZero(t, hidden[s], "the search meets an effect hidden behind %s", s)
	}
}

// TestSearch_FindsPlantedMistakes takes one rule away at a time; the search
// must notice each.
func TestSearch_FindsPlantedMistakes(t *testing.T) {
	truth := rules
	defer func() { rules = truth }()
	for name, plant := range map[string]func(){
		"no answer means failed": func() {
			rules.concluded = func(a []ledger.Attempt, v tools.Verdict) (ledger.Verb, ledger.State) {
				if v == tools.Unknown {
					return ledger.VerbFinish, ledger.Failed
				}
				return ledger.Concluded(a, v)
			}
		},
		"a refusal proves every attempt": func() {
			rules.prove = func(a []ledger.Attempt, n int, v tools.Verdict) []ledger.Attempt {
				if v == tools.NoEffect {
					n = 0
				}
				return ledger.Prove(a, n, v)
			}
		},
		"a touched operation may be cancelled": func() {
			rules.allowed = func(s ledger.State, v ledger.Verb, attempted, touched bool) []ledger.State {
				if v == ledger.VerbCancel && s == ledger.Unknown {
					return []ledger.State{ledger.Cancelled}
				}
				return ledger.Allowed(s, v, attempted, touched)
			}
		},
		"a release frees a touched operation": func() {
			rules.concluded = func(a []ledger.Attempt, v tools.Verdict) (ledger.Verb, ledger.State) {
				if v == tools.NotSent {
					return ledger.VerbRelease, ledger.Pending
				}
				return ledger.Concluded(a, v)
			}
			rules.allowed = func(s ledger.State, v ledger.Verb, attempted, _ bool) []ledger.State {
				return ledger.Allowed(s, v, attempted, false)
			}
		},
		"a restore presumes nothing": func() { rules.presumes = false },
		"a lost lease means failed": func() {
			rules.allowed = func(s ledger.State, v ledger.Verb, attempted, touched bool) []ledger.State {
				if v == ledger.VerbLoseLease && s == ledger.Running {
					return []ledger.State{ledger.Failed}
				}
				return ledger.Allowed(s, v, attempted, touched)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules = truth
			plant()
			found := ""
			search(t, false, func(w world) bool {
				if w.state.Void() && w.possibleEffect() {
					found = w.trail
				}
				return found == ""
			})
			require.NotEmpty(t, found)
			t.Log("found:" + found)
		})
	}
}
