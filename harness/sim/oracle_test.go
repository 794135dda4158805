package sim_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/harness/simstore"
	"countersign/ledger"
	"countersign/tools"
)

// The oracles know what really happened: the outside world's own log, and every
// applied write in its order. They share no rule with the product: what is legal
// is written down here once more.

// answered is an operation as some answer showed it.
type answered struct {
	op   ledger.Operation
	from string
}

// frozen is a freeze that was acknowledged, until its end was asked for.
type frozen struct {
	scope    ledger.Scope
	level    ledger.FreezeLevel
	from, to int // steps; to is 0 while it stands
}

func (s *sim) thawing(scope ledger.Scope) {
	for i := range s.freezes {
		if f := &s.freezes[i]; f.scope == scope && f.to == 0 {
			f.to = s.bus.steps
		}
	}
}

func (f frozen) covers(tool string, step int) bool {
	return (f.scope.Tool == "" || f.scope.Tool == tool) && step > f.from && (f.to == 0 || step < f.to)
}

// mark is a dispatch mark as it was written.
type mark struct {
	op   ledger.Operation
	verb ledger.Verb
	step int
	at   time.Time
}

// violate reports that an invariant does not hold.
func (s *sim) violate(rule, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.violations) < 20 {
		s.violations = append(s.violations, rule+": "+fmt.Sprintf(format, args...))
	}
}

// received keeps what an answer said of an operation.
func (s *sim) received(op ledger.Operation, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, answered{op: op, from: from})
}

// refusal looks at an answer that is no operation.
func (s *sim) refusal(what string, err error) {
	switch {
	case err == errLost || err == errRefused: //nolint:errorlint // they are never wrapped
	case fault.Is(err, fault.Internal):
		s.violate("internal", "%s was answered: %v", what, err)
	default:
		s.count("refused " + string(fault.Of(err).Code))
	}
}

// observe sees every applied write, in its order, on the driver's goroutine.
func (s *sim) observe(c simstore.Change) {
	switch {
	case c.Guard != nil:
		s.guard = *c.Guard
		s.stillFrozen()
		for _, f := range s.guard.Freezes {
			if f.By.ID == "contradiction" {
				s.count("frozen by itself")
				s.stopped[f.Tool] = true
			}
		}
	case c.Decision != nil:
		s.decisions = append(s.decisions, *c.Decision)
	case c.Operation != nil:
		s.moved(*c.Operation, *c.Event, c.WriteID)
	}
}

// stillFrozen: what was acknowledged stands, until its end is asked for.
func (s *sim) stillFrozen() {
	for _, f := range s.freezes {
		if f.to == 0 && !slices.ContainsFunc(s.guard.Freezes, func(g ledger.Freeze) bool {
			return g.Tool == f.scope.Tool && g.Everything == f.scope.Everything && (g.Level == ledger.FreezeAll || g.Level == f.level)
		}) {
			s.violate("I14", "a freeze at %s was acknowledged, and is loosened or gone", f.level)
		}
	}
}

// moved judges one move as it is written.
func (s *sim) moved(op ledger.Operation, ev ledger.Event, writeID string) {
	s.count("verb " + string(ev.Verb))
	if ev.Verb == ledger.VerbResolve {
		s.count("resolve to " + string(ev.To) + " by " + ev.Actor.Kind + " " + map[bool]string{true: "reconciler", false: "another"}[ev.Actor.ID == "reconciler"])
	}
	if ev.Verb == ledger.VerbHandOver && ev.Reason != nil {
		if strings.Contains(ev.Reason.Text, "no longer remembers the key") {
			s.count("the key retention was over")
		}
	}
	versions := s.state.Versions(op.ID)
	var before ledger.Operation
	if n := len(versions); n > 1 {
		before = versions[n-2]
	}
	s.legal(before, op, ev, writeID)
	if ev.Evidence != "" {
		s.named(before, op, ev)
	}
	if ev.Verb == ledger.VerbOpen || ev.Verb == ledger.VerbAdopt && ev.From == "" {
		s.opened(op)
	}
	if op.State == ledger.Running && before.State != ledger.Running {
		s.marked(mark{op: op, verb: ev.Verb, step: s.bus.steps, at: time.Now()}, before)
	}
	if op.Parent != "" && op.State.Final() && !before.State.Final() {
		s.ends = append(s.ends, end{child: op, write: writeID})
	}
	if ev.Verb == ledger.VerbCompensated {
		s.compensated = append(s.compensated, end{child: op, write: writeID})
	}
}

// named: the evidence that an event names is there, and says what the event says
// that it says (I13); only what the newest attempt saw ends it (I11).
func (s *sim) named(before, op ledger.Operation, ev ledger.Event) {
	ends := ev.Verb == ledger.VerbFinish || ev.Verb == ledger.VerbRelease
	for _, e := range s.state.Evidence(op.ID) {
		if e.ID != ev.Evidence {
			continue
		}
		if ends && e.Attempt != len(before.Attempts) {
			s.violate("I11", "%s was ended by what attempt %d saw, of %d", op.ID, e.Attempt, len(before.Attempts))
		}
		if e.Digest() != ev.EvidenceDigest {
			s.violate("I13", "%s was moved by evidence %s, which was another when it was kept", op.ID, e.ID)
		}
		return
	}
	s.violate("I13", "%s was moved by evidence %s, which is not there", op.ID, ev.Evidence)
}

// end is an end of an undo, or of what it takes back, by its write.
type end struct {
	child ledger.Operation
	write string
}

// moves is the table of states once more: from, verb, to; a leading "u" wants it
// untouched, "a" attempted.
var moves = map[ledger.Verb][]string{
	ledger.VerbOpen:         {">awaiting_approval", ">pending", ">running"},
	ledger.VerbApprove:      {"u awaiting_approval>awaiting_approval", "u awaiting_approval>pending"},
	ledger.VerbReject:       {"u awaiting_approval>rejected"},
	ledger.VerbReopen:       {"rejected>rejected"},
	ledger.VerbWithdraw:     {"u awaiting_approval>awaiting_approval", "u pending>pending"},
	ledger.VerbCancel:       {"u awaiting_approval>cancelled", "u pending>cancelled"},
	ledger.VerbExpire:       {"u awaiting_approval>expired", "u pending>expired"},
	ledger.VerbRevise:       {"u pending>awaiting_approval"},
	ledger.VerbAdopt:        {">succeeded", "u pending>succeeded"},
	ledger.VerbDispatch:     {"u pending>running"},
	ledger.VerbRelease:      {"a running>pending", "a running>unknown"},
	ledger.VerbFinish:       {"a running>succeeded", "a running>failed", "a running>unknown"},
	ledger.VerbLoseLease:    {"a running>unknown"},
	ledger.VerbResolve:      {"a unknown>succeeded", "a unknown>failed"},
	ledger.VerbRetry:        {"a unknown>running"},
	ledger.VerbHandOver:     {"unknown>unknown"},
	ledger.VerbCompensate:   {"succeeded>compensating"},
	ledger.VerbCompensated:  {"compensating>compensated"},
	ledger.VerbGiveUp:       {"compensating>succeeded"},
	ledger.VerbContradict:   {"a awaiting_approval>unknown", "a pending>unknown", "a failed>unknown", "a rejected>unknown", "a expired>unknown", "a cancelled>unknown"},
	ledger.VerbRecompensate: {"succeeded>compensating", "compensating>compensating"},
}

// legal refuses a move that the table does not have, a hole in versions or chain,
// and what no move may change (I9, I13, I16).
func (s *sim) legal(before, op ledger.Operation, ev ledger.Event, writeID string) {
	touched := slices.ContainsFunc(before.Attempts, func(a ledger.Attempt) bool { return a.Proof != tools.NotSent })
	step := string(before.State) + ">" + string(op.State)
	ok := slices.ContainsFunc(moves[ev.Verb], func(m string) bool {
		switch m[:2] {
		case "u ":
			return m[2:] == step && !touched
		case "a ":
			return m[2:] == step && len(before.Attempts) > 0
		}
		return m == step
	})
	if !ok {
		s.violate("table", "%s: %s moved it %s (touched %v)", op.ID, ev.Verb, step, touched)
	}
	if op.Version != before.Version+1 || ev.Version != op.Version || ev.From != before.State || ev.To != op.State || ev.WriteID != writeID ||
		!ev.Intact(before.Chain) || op.Chain != ev.Hash {
		s.violate("I16", "%s version %d: its event does not follow", op.ID, op.Version)
	}
	if before.ID != "" && (op.ArgsDigest != before.ArgsDigest || op.ToolVersion != before.ToolVersion || op.Target != before.Target || op.UpstreamKey != before.UpstreamKey) {
		s.violate("I13", "%s: %s changed what is fixed", op.ID, ev.Verb)
	}
	if len(op.Attempts) < len(before.Attempts) || op.Fence < before.Fence {
		s.violate("I11", "%s: %s took attempts or fence back", op.ID, ev.Verb)
	}
	if ev.Verb == ledger.VerbLoseLease && time.Now().Add(skewAllowed).Before(before.LeaseUntil) {
		s.violate("lease", "%s: its lease was taken before its end", op.ID)
	}
	if ev.Verb == ledger.VerbResolve && op.State == ledger.Failed && ev.Actor.ID == "reconciler" && kindOf(op.Tool).irreversible {
		s.violate("irreversible", "%s was called failed because a lookup does not show it", op.ID)
	}
	if op.Round > 3 {
		s.violate("rounds", "people are asked about %s for the %dth time", op.ID, op.Round)
	}
	if ev.Verb == ledger.VerbExpire && op.Reason != nil && op.Reason.Code == "agent_revoked" && !slices.Contains(s.guard.Revoked, op.Agent.ID) {
		s.violate("expire", "%s expired for a revoked agent, who is not", op.ID)
	}
	if op.State == ledger.Unknown && ev.Verb == ledger.VerbContradict && !guardView(s.guard).stops(op.Tool) {
		s.violate("I9", "%s was contradicted, and its tool is not frozen", op.ID)
	}
}

type guardView ledger.Guard

// stops reports that the tool is frozen at "all".
func (g guardView) stops(tool string) bool {
	return slices.ContainsFunc(g.Freezes, func(f ledger.Freeze) bool { return f.Level == ledger.FreezeAll && (f.Tool == "" || f.Tool == tool) })
}

// holds gives the level of the strictest freeze that holds the tool.
func (g guardView) holds(tool string) ledger.FreezeLevel {
	level := ledger.FreezeLevel("")
	for _, f := range g.Freezes {
		if f.Tool == "" || f.Tool == tool {
			if level = f.Level; level == ledger.FreezeAll {
				return level
			}
		}
	}
	return level
}

// opened looks at a birth: keys, generations, goals (I1, I2).
func (s *sim) opened(op ledger.Operation) {
	for _, o := range s.state.Operations() {
		if o.ID == op.ID {
			continue
		}
		if o.TokenID == op.TokenID && o.Run == nil {
			s.violate("I2", "one token opened %s and %s", o.ID, op.ID)
		}
		if o.Tool == op.Tool && o.Key == op.Key {
			switch {
			case o.Generation >= op.Generation:
				s.violate("I1", "%s has generation %d behind %s with %d", op.ID, op.Generation, o.ID, o.Generation)
			case o.State.Void():
			case op.AgainOf != "" && o.State.Final() && o.State.Effective():
			default:
				s.violate("I1", "%s opened generation %d beside %s, which is %s", op.ID, op.Generation, o.ID, o.State)
			}
		}
		if op.Goal != nil && o.Goal != nil && *o.Goal == *op.Goal && !o.State.Void() && o.State != ledger.Compensated && op.AgainOf == "" {
			s.violate("goal", "%s opened beside %s, which is %s and has its goal", op.ID, o.ID, o.State)
		}
	}
	s.opposed(op)
	if op.AgainOf != "" && !op.Adopted && op.State != ledger.AwaitingApproval {
		s.violate("again_of", "%s, a wanted repeat, asks nobody", op.ID)
	}
	if op.Parent != "" {
		p := s.state.Versions(op.Parent)
		if shown := s.state.Preview(op.Tenant, op.PreviewID).ParentVersion; shown != int64(len(p)-1) {
			s.violate("I15", "%s was shown on version %d of %s, and takes back %d", op.ID, shown, op.Parent, len(p)-1)
		}
		if n := len(p); n == 0 || p[n-1].State != ledger.Succeeded && p[n-1].State != ledger.Compensating {
			s.violate("I15", "%s takes back %s, which did not succeed", op.ID, op.Parent)
		}
	}
	if k := kindOf(op.Tool); k.groups != nil && op.State == ledger.Running {
		s.violate("I12", "%s was sent without asking", op.ID)
	}
}

// marked looks at a dispatch mark as it is written (I5, I6, I12, I14).
func (s *sim) marked(m mark, before ledger.Operation) {
	s.marks = append(s.marks, m)
	op, k := m.op, kindOf(m.op.Tool)
	level := guardView(s.guard).holds(op.Tool)
	if level == ledger.FreezeAll || level == ledger.FreezeNew && op.Parent == "" && m.verb != ledger.VerbRetry {
		s.violate("I14", "%s was marked (%s) while %s is frozen at %s", op.ID, m.verb, op.Tool, level)
	}
	if slices.Contains(s.guard.Revoked, op.Agent.ID) && (op.AskedBy == nil || op.AskedBy.Kind == "agent") {
		s.violate("revoked", "%s was marked (%s) after the rights of %s were taken away", op.ID, m.verb, op.Agent.ID)
	}
	if m.verb == ledger.VerbRetry {
		first := op.Attempts[slices.IndexFunc(op.Attempts, func(a ledger.Attempt) bool { return a.Proof != tools.NotSent })]
		if !k.honoursKey || m.at.After(first.MarkedAt.Add(keyRetention)) {
			s.violate("I6", "%s was sent again", op.ID)
		}
		return
	}
	if !op.ExpiresAt.IsZero() && !m.at.Before(op.ExpiresAt) {
		s.violate("I12", "%s was marked after its round was over", op.ID)
	}
	if op.After != "" {
		if v := s.state.Versions(op.After); v[len(v)-1].State != ledger.Succeeded {
			s.violate("turn", "%s was marked before %s succeeded", op.ID, op.After)
		}
	}
	if op.Parent != "" {
		if v := s.state.Versions(op.Parent); v[len(v)-1].State != ledger.Compensating {
			s.violate("I15", "%s was marked, and what it takes back is %s", op.ID, v[len(v)-1].State)
		}
	}
	s.looked(m)
	if op.Requirement.Asks() {
		s.approved(m, before)
	} else if k.groups != nil {
		s.violate("I12", "%s was marked and nobody was asked", op.ID)
	}
}

// opposed refuses a birth against a person's no (N12).
func (s *sim) opposed(op ledger.Operation) {
	for _, o := range s.state.Operations() {
		same := o.Tool == op.Tool && o.Key == op.Key && o.ArgsDigest == op.ArgsDigest && o.Agent.ID == op.Agent.ID
		if same && o.State == ledger.Rejected && !o.Reopened {
			s.violate("N12", "%s was opened although %s was rejected", op.ID, o.ID)
		}
	}
}

// looked refuses a mark over what its guards must have seen: that the world has
// changed, or that it is done already.
func (s *sim) looked(m mark) {
	old := m.at.Add(-guardMaxAge - skewAllowed)
	p, u := s.state.Plan(m.op.ID, m.op.Round), s.up
	if len(p.Basis) > 0 && fmt.Sprint(p.Basis[0].Value) != strconv.Itoa(u.version[m.op.Tool]) && u.changed[m.op.Tool].Before(old) {
		s.violate("drift", "%s was marked on what was no longer so since %s", m.op.ID, m.at.Sub(u.changed[m.op.Tool]))
	}
	for _, e := range u.effects {
		if kindOf(m.op.Tool).done && e.outside && e.tool == m.op.Tool && e.order == p.Args["order_id"] && e.at.Before(old) {
			s.violate("done", "%s was marked, and somebody had done it", m.op.ID)
		}
	}
}

// approved counts the yeses behind a mark, from the people's own words.
func (s *sim) approved(m mark, before ledger.Operation) {
	op := m.op
	shown := policy.ShownDigest(before, s.state.Plan(op.ID, op.Round))
	yes := map[string][]string{}
	for _, d := range s.decisions {
		if d.Operation != op.ID {
			continue
		}
		if d.Verb == ledger.VerbReject {
			s.violate("I12", "%s was marked although %s said no", op.ID, d.Person)
		}
		if d.Round != op.Round || d.Verb != ledger.VerbApprove {
			continue
		}
		if d.Digest != shown {
			s.violate("I12", "%s approved something else than %s sends", d.Person, op.ID)
		}
		if d.Person == owner.ID || op.AskedBy != nil && d.Person == op.AskedBy.ID {
			s.violate("I12", "%s approved their own affair %s", d.Person, op.ID)
		}
		if d.Person == bob.ID && m.step > s.disabled {
			continue
		}
		yes[d.Person] = d.Groups
	}
	for group, n := range kindOf(op.Tool).groups {
		for _, groups := range yes {
			if group == tools.AnyGroup || slices.Contains(groups, group) {
				n--
			}
		}
		if n > 0 {
			s.violate("I12", "%s was marked with %d yeses too few", op.ID, n)
		}
	}
	if m.at.Sub(before.ApprovedAt) > yesMaxAge+guardMaxAge+skewAllowed {
		s.violate("I12", "%s was marked with a yes of %s before", op.ID, m.at.Sub(before.ApprovedAt))
	}
}

// judge looks at the whole when a run is over. settled: faults were off long
// enough.
func (s *sim) judge(settled bool) {
	ops := s.state.Operations()
	byID := map[string]ledger.Operation{}
	for _, op := range ops {
		byID[op.ID] = op
	}
	s.judgeWire(byID)
	s.judgeEffects(ops)
	s.judgeAnswers()
	s.judgeFreezes()
	s.judgeUndo(byID)
	for _, op := range ops {
		s.judgeDuplicates(op)
	}
	if settled {
		if r, lost := s.unwritten(); lost {
			s.violate("I11", "what attempt %d of %s was told (%s) is not kept", r.attempt, r.op, r.verdict)
		}
		for _, op := range ops {
			s.judgeLimbo(op)
		}
	}
}

// judgeWire: at most one dispatch without keys; the same bytes with them; nothing
// without its mark (I3, I4, I5).
func (s *sim) judgeWire(byID map[string]ledger.Operation) {
	sent := map[string]int{}
	for _, r := range s.up.requests {
		op, k := byID[r.op], kindOf(r.tool)
		i := slices.IndexFunc(s.marks, func(m mark) bool { return m.op.ID == r.op && len(m.op.Attempts) == r.attempt })
		if i < 0 || s.marks[i].step > r.step {
			s.violate("I5", "attempt %d of %s was sent without a mark", r.attempt, r.op)
			continue
		}
		plan := s.state.Plan(r.op, s.marks[i].op.Round)
		if r.upKey != op.UpstreamKey || r.tool != op.Tool || r.wire != string(plan.Wire) {
			s.violate("I4", "attempt %d of %s sent something else than its plan", r.attempt, r.op)
		}
		if sent[r.op]++; sent[r.op] > 1 && !k.honoursKey {
			s.violate("I3", "%s was sent %d times", r.op, sent[r.op])
		}
	}
}

// judgeEffects: at most one effect for each key and generation; every proof is
// true, and no end hides an effect (I1, I4, I8).
func (s *sim) judgeEffects(ops []ledger.Operation) {
	if s.liar {
		return
	}
	count := map[string]int{}
	for _, e := range s.up.effects {
		if e.upKey == "" {
			continue
		}
		if count[e.upKey]++; count[e.upKey] > 1 {
			s.violate("I4", "%s took effect %d times under one key", e.tool, count[e.upKey])
		}
	}
	live := map[string]ledger.Operation{}
	for _, op := range ops {
		effects := s.up.under(op.UpstreamKey)
		switch {
		case op.State.Void() && len(effects) > 0:
			s.violate("I8", "%s is %s, and %s happened", op.ID, op.State, effects[0].id)
		case op.State.Effective() && !op.Adopted && !slices.ContainsFunc(effects, func(e effect) bool { return e.id == op.EffectID }):
			s.violate("I8", "%s is %s by %q, which never happened", op.ID, op.State, op.EffectID)
		}
		if o, there := live[op.Tool+" "+op.Key]; there && !op.State.Void() && op.AgainOf == "" {
			s.violate("I1", "%s and %s both stand under one key", o.ID, op.ID)
		}
		if !op.State.Void() {
			live[op.Tool+" "+op.Key] = op
		}
	}
}

// judgeDuplicates: two effects known of one operation have frozen its tool (I4).
func (s *sim) judgeDuplicates(op ledger.Operation) {
	known := map[string]bool{}
	for _, e := range s.state.Evidence(op.ID) {
		if e.Verdict == tools.Succeeded && e.EffectID != "" {
			known[e.EffectID] = true
		}
	}
	if len(known) > 1 && !s.stopped[op.Tool] {
		s.violate("I4", "%s is known to have taken effect %d times, and its tool was never frozen", op.ID, len(known))
	}
}

// reply is an answer of the outside world that a worker got.
type reply struct {
	life    *life
	op      string
	attempt int
	verdict tools.Verdict
}

// told keeps what a worker was told.
func (s *sim) told(l *life, d tools.Dispatch, o tools.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies = append(s.replies, reply{life: l, op: d.Operation, attempt: d.Attempt, verdict: o.Verdict})
}

// unwritten gives an answer that a worker got, who lives, and that the ledger does
// not have.
func (s *sim) unwritten() (reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.replies, func(r reply) bool {
		return !r.life.dead.Load() && !slices.ContainsFunc(s.state.Evidence(r.op), func(e ledger.Evidence) bool {
			return e.Kind == "response" && e.Attempt == r.attempt && e.Verdict == r.verdict
		})
	})
	if i < 0 {
		return reply{}, false
	}
	return s.replies[i], true
}

// judgeAnswers: whatever an answer said of an operation was so (I10).
func (s *sim) judgeAnswers() {
	for _, a := range s.answers {
		versions := s.state.Versions(a.op.ID)
		if int64(len(versions)) < a.op.Version || a.op.Version < 1 {
			s.violate("I10", "%s answered %s in version %d, which is not there", a.from, a.op.ID, a.op.Version)
			continue
		}
		was := versions[a.op.Version-1]
		if was.State != a.op.State || was.Chain != a.op.Chain || was.EffectID != a.op.EffectID || was.OnList != a.op.OnList {
			s.violate("I10", "%s answered %s as %s by %q, and it was %s by %q", a.from, a.op.ID, a.op.State, a.op.EffectID, was.State, was.EffectID)
		}
	}
}

// judgeFreezes: nothing is marked between the answer to a freeze and the wish to
// end it (I14).
func (s *sim) judgeFreezes() {
	for _, f := range s.freezes {
		for _, m := range s.marks {
			forbidden := f.level == ledger.FreezeAll || m.op.Parent == "" && m.verb != ledger.VerbRetry
			if forbidden && f.covers(m.op.Tool, m.step) {
				s.violate("I14", "%s was marked (%s) after the answer to a freeze of %s", m.op.ID, m.verb, f.level)
			}
		}
	}
}

// judgeUndo: one compensation for each effect, and both ends in one write (I15).
func (s *sim) judgeUndo(byID map[string]ledger.Operation) {
	for _, c := range s.compensated {
		if !slices.ContainsFunc(s.ends, func(e end) bool {
			return e.child.Parent == c.child.ID && e.write == c.write && e.child.State == ledger.Succeeded
		}) {
			s.violate("I15", "%s is compensated without the success of its undo", c.child.ID)
		}
	}
	undone := map[string]int{}
	for _, op := range byID {
		p := byID[op.Parent]
		if op.Parent == "" {
			continue
		}
		if op.State == ledger.Succeeded && p.State != ledger.Compensated && !s.liar {
			s.violate("I15", "%s succeeded, and what it takes back is %s", op.ID, p.State)
		}
		if !op.State.Void() {
			if undone[op.Parent]++; undone[op.Parent] > 1 && !s.liar {
				s.violate("I15", "%s is taken back twice", op.Parent)
			}
		}
	}
	if s.liar {
		return
	}
	back := map[string]int{}
	for _, e := range s.up.effects {
		if e.tool == "release" || e.tool == "unbook" {
			if back[e.order]++; back[e.order] > 1 {
				s.violate("I15", "%s was taken back %d times outside", e.order, back[e.order])
			}
		}
	}
}

// judgeLimbo: when faults have stopped everything has its end, or waits for a
// person (I21).
func (s *sim) judgeLimbo(op ledger.Operation) {
	if !s.rests(&op) {
		s.violate("I21", "%s %s is left %s (list %v, ask %s, expires %s)", op.Tool, op.ID, op.State, op.OnList, op.AskAt.Sub(s.began), op.ExpiresAt.Sub(s.began))
	}
}

// rests reports that nothing more is to be done for an operation but by people.
func (s *sim) rests(op *ledger.Operation) bool {
	switch op.State {
	case ledger.Unknown:
		return op.OnList
	case ledger.Compensating:
		child := s.state.Now(op.Child)
		return child.State.Live() && s.rests(child)
	case ledger.Pending:
		// An undo behind a doubt waits until somebody ends it, or its time.
		return op.After != "" && s.state.Now(op.After).State != ledger.Succeeded && !op.ExpiresAt.IsZero()
	}
	return op.State.Final()
}
