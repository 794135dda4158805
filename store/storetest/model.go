package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"countersign/ledger"
	"countersign/tools"
)

// model is the contract in forty lines of maps: what a store must hold and
// answer when one caller does one thing after the other.
type model struct {
	w      *world
	tenant string

	epoch    int64
	previews map[string]ledger.Preview
	ops      []ledger.Operation            // in the order of birth
	events   map[string]int                // by operation
	evidence map[string][]string           // by operation
	words    map[string]bool               // operation, round, person, word
	plans    map[string]int                // rounds by operation
	opened   []ledger.Opening              // applied, to be repeated
	moved    []ledger.Transition           // applied, to be repeated
	changed  []ledger.GuardChange          // applied, to be repeated
	history  map[string][]ledger.Operation // old rows, to lose with
	runs     map[string]ledger.RunHead
	writes   map[string]string // the operation that a write is found by
}

var modelCases = []testCase{
	{"any sequence of writes is answered as the model says", func(w *world) {
		runs := 0
		rapid.Check(w, func(t *rapid.T) {
			runs++
			m := &model{
				w: w, tenant: fmt.Sprintf("tenant-%d", runs), previews: map[string]ledger.Preview{}, events: map[string]int{},
				evidence: map[string][]string{}, words: map[string]bool{}, plans: map[string]int{}, history: map[string][]ledger.Operation{},
				runs: map[string]ledger.RunHead{}, writes: map[string]string{},
			}
			t.Repeat(map[string]func(*rapid.T){
				"":            m.check,
				"preview":     m.preview,
				"open":        m.open,
				"apply":       m.apply,
				"apply again": m.apply,
				"guard":       m.guard,
				"evidence":    m.addEvidence,
				"repeat":      m.repeat,
				"time goes by": func(t *rapid.T) {
					w.Clock.Advance(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
				},
			})
		})
	}},
}

var (
	modelKeys = []string{"a", "b", "c"}
	modelRuns = []string{"r1", "r2"}
)

func (m *model) head(key string) (ledger.Operation, bool) {
	for _, op := range slices.Backward(m.ops) {
		if op.Key == key {
			return op, true
		}
	}
	return ledger.Operation{}, false
}

// agree fails unless the store answered as expected: "" is applied, "lost", or
// why it was refused.
func (m *model) agree(t *rapid.T, want string, err error) {
	t.Helper()
	got := ""
	var r *ledger.Refused
	var l *ledger.Lost
	switch {
	case errors.As(err, &r):
		got = string(r.Why)
	case errors.As(err, &l):
		got = "lost"
		m.equal(t, m.find(l.Current.ID), l.Current)
	case err != nil:
		got = err.Error()
	}
	if got != want {
		t.Fatalf("the store says %q, the model %q", got, want)
	}
}

func (m *model) equal(t *rapid.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("model and store differ (-model +store):\n%s", d)
	}
}

func (m *model) find(id string) ledger.Operation {
	i := slices.IndexFunc(m.ops, func(op ledger.Operation) bool { return op.ID == id })
	return m.ops[i]
}

func (m *model) preview(t *rapid.T) {
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	h, _ := m.head(key)
	p := m.w.preview(m.tenant, key, h.Generation+1)
	p.ExpiresAt = m.w.Clock.Now().Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "life")) * time.Second)
	m.agree(t, "", m.w.Store.PutPreview(m.w.ctx, p))
	m.previews[p.ID] = p
}

func (m *model) open(t *rapid.T) {
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	head, exists := m.head(key)
	p := m.w.preview(m.tenant, key, head.Generation+rapid.IntRange(0, 2).Draw(t, "generation step"))
	stored := slices.Sorted(maps.Keys(m.previews))
	if len(stored) > 0 && rapid.IntRange(0, 3).Draw(t, "stored preview") > 0 {
		p.ID = rapid.SampledFrom(stored).Draw(t, "preview")
	}
	o := m.w.opening(p, rapid.SampledFrom(ledger.States).Draw(t, "state"))
	o.Epoch = m.epoch - int64(rapid.IntRange(0, 1).Draw(t, "epochs behind"))
	n := &o.New[0]
	m.placed(t, n)
	if was := m.history[head.ID]; exists && len(was) > 0 && rapid.Bool().Draw(t, "old head") {
		n.Head.Operation = rapid.SampledFrom(was).Draw(t, "head")
	} else if rapid.IntRange(0, 4).Draw(t, "no head") > 0 {
		n.Head.Operation = head
	}
	if rapid.Bool().Draw(t, "in time") {
		n.NotAfter = m.w.Clock.Now().Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "not after")))
	}

	pv, there := m.previews[p.ID]
	now := m.w.Clock.Now()
	want := ""
	switch {
	case n.Head.Operation.ID != head.ID || n.Head.Operation.Version != head.Version || n.Operation.Generation != head.Generation+1:
		want = string(ledger.HeadMoved)
	case o.Epoch != m.epoch:
		want = string(ledger.EpochMoved)
	case m.goalMoved(n):
		want = string(ledger.GoalMoved)
	case n.Operation.Run != nil && m.runs[n.Operation.Run.ID].Closed():
		want = string(ledger.RunClosed)
	case m.placeTaken(n.Operation):
		want = string(ledger.PlaceTaken)
	case !there:
		want = string(ledger.PreviewGone)
	case !now.Before(pv.ExpiresAt):
		want = string(ledger.PreviewExpired)
	case !n.NotAfter.IsZero() && now.After(n.NotAfter):
		want = string(ledger.TooLate)
	}
	lost := false
	if want == "" {
		o.Moves, lost = m.beside(t, o.WriteID)
		if lost {
			want = "lost"
		} else {
			o.CloseRun, want = m.closing(t, n.Operation)
		}
	}
	m.agree(t, want, m.w.Store.Open(m.w.ctx, o))
	if want != "" {
		return
	}
	m.ops = append(m.ops, n.Operation)
	m.events[n.Operation.ID], m.plans[n.Operation.ID] = 1, 1
	m.opened = append(m.opened, o)
	m.writes[o.WriteID] = n.Operation.ID
	m.moveBeside(o.Moves)
	if run := n.Operation.Run; run != nil {
		h := m.runs[run.ID]
		h.Tenant, h.Agent, h.ID, h.Newest = m.tenant, n.Operation.Agent.ID, run.ID, n.Operation.CreatedAt
		h.Operations++
		m.runs[run.ID] = h
	}
	if c := o.CloseRun; c != nil {
		h := m.runs[c.ID]
		h.ClosedAt, h.ClosedBy, h.Closing = c.ClosedAt, c.ClosedBy, c.Closing
		m.runs[c.ID] = h
	}
}

// goalMoved: another holder of its goal stands than was evaluated.
func (m *model) goalMoved(n *ledger.NewOperation) bool {
	if n.Operation.Goal == nil {
		return false
	}
	holder, was := m.holder(*n.Operation.Goal), n.GoalHead.Operation
	return holder.ID != was.ID || holder.Version != was.Version
}

// placed puts a new operation in a run, and gives it a goal, now and then.
func (m *model) placed(t *rapid.T, n *ledger.NewOperation) {
	if run := rapid.SampledFrom(append([]string{""}, modelRuns...)).Draw(t, "run"); run != "" {
		n.Operation.Run, n.OpenRun = &ledger.Run{ID: run, Step: "1", Call: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "call")}, true
	}
	if rapid.IntRange(0, 2).Draw(t, "goal") == 0 {
		goal := theGoal
		n.Operation.Goal, n.GoalHead.Operation = &goal, m.holder(goal)
		if was := m.history[n.GoalHead.Operation.ID]; len(was) > 0 && rapid.IntRange(0, 3).Draw(t, "old holder") == 0 {
			n.GoalHead.Operation = rapid.SampledFrom(was).Draw(t, "holder")
		}
	}
}

// placeTaken: another call stands at its place in its run.
func (m *model) placeTaken(op ledger.Operation) bool {
	return op.Run.Complete() && slices.ContainsFunc(m.ops, func(o ledger.Operation) bool {
		return o.Run != nil && o.Agent.ID == op.Agent.ID && *o.Run == *op.Run && (o.Tool != op.Tool || o.Key != op.Key) && !o.State.Void()
	})
}

func (m *model) holder(goal tools.Goal) ledger.Operation {
	for _, op := range slices.Backward(m.ops) {
		if op.Goal != nil && *op.Goal == goal {
			return op
		}
	}
	return ledger.Operation{}
}

// beside draws a move of another operation, and says whether it comes too late.
func (m *model) beside(t *rapid.T, writeID string, but ...string) (moves []ledger.Move, lost bool) {
	others := slices.DeleteFunc(slices.Clone(m.ops), func(op ledger.Operation) bool { return slices.Contains(but, op.ID) })
	if len(others) == 0 || rapid.IntRange(0, 2).Draw(t, "beside") > 0 {
		return nil, false
	}
	cur := rapid.SampledFrom(others).Draw(t, "other")
	from := cur
	if was := m.history[cur.ID]; len(was) > 0 && rapid.IntRange(0, 2).Draw(t, "late beside") == 0 {
		from = rapid.SampledFrom(was).Draw(t, "old row beside")
	}
	state := rapid.SampledFrom(ledger.States).Draw(t, "state beside")
	return []ledger.Move{m.w.beside(from, writeID, ledger.VerbCompensate, to(state))}, from.Version != cur.Version
}

func (m *model) moveBeside(moves []ledger.Move) {
	for _, mv := range moves {
		i := slices.IndexFunc(m.ops, func(op ledger.Operation) bool { return op.ID == mv.Operation.ID })
		m.history[mv.Operation.ID] = append(m.history[mv.Operation.ID], m.ops[i])
		m.ops[i] = mv.Operation
		m.events[mv.Operation.ID]++
	}
}

// closing draws the closing of a run, and what it is answered with.
func (m *model) closing(t *rapid.T, born ledger.Operation) (*ledger.RunHead, string) {
	if rapid.IntRange(0, 4).Draw(t, "closes") > 0 {
		return nil, ""
	}
	id := rapid.SampledFrom(modelRuns).Draw(t, "closed run")
	h := m.runs[id]
	grown := h.Operations
	if born.Run != nil && born.Run.ID == id { // it is counted before its run is closed
		grown++
	}
	c := m.w.closing(ledger.RunHead{Tenant: m.tenant, Agent: born.Agent.ID, ID: id, Operations: h.Operations + rapid.IntRange(0, 1).Draw(t, "as it grew")})
	switch {
	case h.Closed():
		return c, string(ledger.RunClosed)
	case grown == 0 || c.Operations != grown:
		return c, string(ledger.RunMoved)
	}
	return c, ""
}

func (m *model) apply(t *rapid.T) {
	if len(m.ops) == 0 {
		t.Skip("nothing to move")
	}
	i := rapid.IntRange(0, len(m.ops)-1).Draw(t, "operation")
	cur := m.ops[i]
	from := cur
	if was := m.history[cur.ID]; len(was) > 0 && rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		from = rapid.SampledFrom(was).Draw(t, "old row")
	}
	verb := rapid.SampledFrom([]ledger.Verb{ledger.VerbApprove, ledger.VerbReject, ledger.VerbWithdraw}).Draw(t, "verb")
	state := rapid.SampledFrom(ledger.States).Draw(t, "state")
	revise := rapid.IntRange(0, 4).Draw(t, "revise") == 0
	tr := m.w.move(from, verb, func(op *ledger.Operation) {
		op.State = state
		if revise {
			op.Round++
		}
	})
	word := ""
	if rapid.Bool().Draw(t, "decides") {
		person := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "person")
		tr.Decision = decision(from, person, verb)
		word = fmt.Sprint(cur.ID, from.Round, person, verb == ledger.VerbWithdraw)
	}
	if revise {
		p := plan("revised")
		tr.Plan = &p
	}
	if rapid.Bool().Draw(t, "with evidence") {
		tr.Evidence = evidence(from, rapid.SampledFrom([]string{"evd_1", "evd_2", "evd_3"}).Draw(t, "evidence"))
	}
	epoch := m.epoch - int64(rapid.IntRange(0, 1).Draw(t, "epochs behind"))
	if rapid.Bool().Draw(t, "asks the guard row") {
		tr.Epoch = &epoch
	}
	if rapid.IntRange(0, 5).Draw(t, "freezes") == 0 {
		g := m.w.change(ledger.Guard{Tenant: m.tenant, Epoch: m.epoch - int64(rapid.IntRange(0, 1).Draw(t, "freeze behind"))}).Guard
		tr.Guard = &g
	}

	late := false
	tr.Also, late = m.beside(t, tr.WriteID, cur.ID)

	want := ""
	switch {
	case from.Version != cur.Version:
		want = "lost"
	case tr.Epoch != nil && *tr.Epoch != m.epoch, tr.Guard != nil && tr.Guard.Epoch != m.epoch+1:
		want = string(ledger.EpochMoved)
	case word != "" && m.words[word]:
		want = string(ledger.AlreadyDecided)
	case late:
		want = "lost"
	}
	m.agree(t, want, m.w.Store.Apply(m.w.ctx, tr))
	if want != "" {
		return
	}
	m.history[cur.ID] = append(m.history[cur.ID], cur)
	m.ops[i] = tr.Operation
	m.events[cur.ID]++
	m.writes[tr.WriteID] = cur.ID
	m.moveBeside(tr.Also)
	m.moved = append(m.moved, tr)
	if word != "" {
		m.words[word] = true
	}
	if tr.Evidence != nil {
		m.keep(cur.ID, tr.Evidence.ID)
	}
	if tr.Plan != nil {
		m.plans[cur.ID] = tr.Operation.Round
	}
	if tr.Guard != nil {
		m.epoch++
	}
}

func (m *model) keep(op, evidence string) {
	if !slices.Contains(m.evidence[op], evidence) {
		m.evidence[op] = append(m.evidence[op], evidence)
	}
}

func (m *model) guard(t *rapid.T) {
	c := m.w.change(ledger.Guard{Tenant: m.tenant, Epoch: m.epoch + int64(rapid.IntRange(-1, 1).Draw(t, "off by"))})
	want := ""
	if c.Expect != m.epoch {
		want = string(ledger.EpochMoved)
	}
	running, err := m.w.Store.ChangeGuard(m.w.ctx, c)
	m.agree(t, want, err)
	if want == "" {
		m.epoch++
		m.changed = append(m.changed, c)
		m.equal(t, m.running(), ids(running))
	}
}

func (m *model) running() []string {
	list := []string{}
	for _, op := range m.ops {
		if op.State == ledger.Running {
			list = append(list, op.ID)
		}
	}
	return list
}

func (m *model) addEvidence(t *rapid.T) {
	if len(m.ops) == 0 {
		t.Skip("nothing to prove")
	}
	op := rapid.SampledFrom(m.ops).Draw(t, "operation")
	id := rapid.SampledFrom([]string{"evd_1", "evd_2", "evd_3"}).Draw(t, "evidence")
	m.agree(t, "", m.w.Store.AddEvidence(m.w.ctx, m.tenant, *evidence(op, id)))
	m.keep(op.ID, id)
}

// repeat issues an applied write once more.
func (m *model) repeat(t *rapid.T) {
	if len(m.opened) > 0 {
		m.agree(t, "", m.w.Store.Open(m.w.ctx, rapid.SampledFrom(m.opened).Draw(t, "opening")))
	}
	if len(m.moved) > 0 {
		m.agree(t, "", m.w.Store.Apply(m.w.ctx, rapid.SampledFrom(m.moved).Draw(t, "transition")))
	}
	if len(m.changed) > 0 {
		running, err := m.w.Store.ChangeGuard(m.w.ctx, rapid.SampledFrom(m.changed).Draw(t, "change"))
		m.agree(t, "", err)
		m.equal(t, m.running(), ids(running))
	}
}

// check compares everything that can be read.
func (m *model) check(t *rapid.T) {
	w := m.w
	m.equal(t, m.ops, w.listAll(ledger.Filter{Tenant: m.tenant, OldestFirst: true}))
	g, err := w.Store.Guard(w.ctx, m.tenant)
	m.agree(t, "", err)
	m.equal(t, m.epoch, g.Epoch)
	total := 0
	for _, op := range m.ops {
		evs, err := w.Store.Events(w.ctx, m.tenant, op.ID)
		m.agree(t, "", err)
		m.equal(t, m.events[op.ID], len(evs))
		m.equal(t, op.Version, evs[len(evs)-1].Version)
		total += len(evs)
		es, err := w.Store.Evidence(w.ctx, m.tenant, op.ID)
		m.agree(t, "", err)
		var have []string
		for _, e := range es {
			have = append(have, e.ID)
		}
		m.equal(t, m.evidence[op.ID], have)
		_, err = w.Store.Plan(w.ctx, m.tenant, op.ID, m.plans[op.ID])
		m.agree(t, "", err)
		found, err := w.Store.ByWrite(w.ctx, op.WriteID)
		m.agree(t, "", err)
		m.equal(t, m.find(m.writes[op.WriteID]), found)
	}
	for _, run := range modelRuns {
		want := m.runs[run]
		want.Tenant, want.Agent, want.ID = m.tenant, "agent-1", run
		h, err := w.Store.RunHead(w.ctx, m.tenant, "agent-1", run)
		m.agree(t, "", err)
		m.equal(t, want, h)
	}
	holder, err := w.Store.Goal(w.ctx, m.tenant, theGoal)
	m.agree(t, "", err)
	m.equal(t, m.holder(theGoal), holder.Operation)
	evs, err := w.Store.EventsAfter(w.ctx, m.tenant, 0, total+1)
	m.agree(t, "", err)
	m.equal(t, total, len(evs))
	words := 0
	for _, op := range m.ops {
		ds, err := w.Store.Decisions(w.ctx, m.tenant, op.ID)
		m.agree(t, "", err)
		words += len(ds)
	}
	m.equal(t, len(m.words), words)
	for _, key := range modelKeys {
		want, _ := m.head(key)
		h, err := w.Store.Head(w.ctx, m.tenant, tool, key)
		m.agree(t, "", err)
		m.equal(t, want, h.Operation)
	}
}
