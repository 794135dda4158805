package tooltest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

// Suite is one write tool with what the suite needs to know of its upstream.
type Suite struct {
	// Tool is bound to the upstream through Line.
	Tool *tools.Tool
	// Line is the way to the upstream; faults are made there. The suite needs one.
	Line *Line
	// Tools gives another tool by name, bound to the same upstream: the undo.
	Tools func(name string) (*tools.Tool, bool)
	// Args gives the arguments of the n-th intent. Each must be possible once, and
	// no two may be in each other's way.
	Args func(n int) map[string]any
	// Before, when set, is called before the n-th intent is previewed.
	Before func(n int)
	// Spoil changes the world after a preview of args, so that the upstream refuses
	// the commit for certain. Nil leaves that case out, for a tool that declares no
	// rejection.
	Spoil func(args map[string]any)
	// Change changes a basis field of args' plan. Nil when the tool has no basis.
	Change func(args map[string]any)
	// Effects and Requests read the upstream's own log.
	Effects, Requests func() int
	// Previews is how many previews must leave no trace; 1,000 when zero.
	Previews int
	// Success is the status that means done. Hostile answers are made from it and
	// from a body that the upstream really gave with it; zero leaves them out.
	Success int
	// EffectID is the name of the member of that body which holds the effect id;
	// empty when it comes from elsewhere.
	EffectID string
	// Timeout bounds a dispatch; 10 s when zero. Answers that never end are given
	// less.
	Timeout time.Duration

	next int
}

// Run checks the tool against the contract. Every case uses intents of its own.
func Run(t *testing.T, s Suite) {
	if s.Previews == 0 {
		s.Previews = 1000
	}
	if s.Timeout == 0 {
		s.Timeout = 10 * time.Second
	}
	r := &s
	for _, c := range []struct {
		name  string
		fits  bool
		check func(*testing.T)
	}{
		{"previews change nothing", true, r.previewsChangeNothing},
		{"succeeds", true, r.succeeds},
		{"same bytes", s.Tool.HonoursKey, r.sameBytes},
		{"repeat under one key", s.Tool.HonoursKey, r.repeatUnderOneKey},
		{"rejected", s.Spoil != nil, r.rejected},
		{"not sent", true, r.notSent},
		{"late", true, r.late},
		{"cancelled", true, r.cancelled},
		{"cut after the request", true, r.cutAfterRequest},
		{"cut before the effect", true, r.cutBeforeEffect},
		{"cut on a kept connection", true, r.cutKeptConnection},
		{"hostile answers", s.Success != 0, r.hostileAnswers},
		{"wrong effect id", s.Success != 0 && s.EffectID != "", r.wrongEffectID},
		{"drift", true, r.drift},
		{"lookup that fails", s.Tool.Consistency != tools.NoLookup, r.lookupFails},
		{"undo", true, r.undo},
	} {
		if c.fits {
			t.Run(c.name, c.check)
		}
	}
}

// intent is one call on its way through the suite.
type intent struct {
	args map[string]any
	plan tools.Plan
}

// prepare previews the next intent.
func (s *Suite) prepare(t *testing.T) intent {
	t.Helper()
	n, args := s.nextArgs(t)
	plan, err := s.Tool.Preview(context.Background(), s.call(t, n, args))
	require.NoError(t, err)
	return intent{args, stored(t, plan)}
}

// nextArgs makes the next intent possible and gives its checked arguments.
func (s *Suite) nextArgs(t *testing.T) (n int, args map[string]any) {
	t.Helper()
	n = s.next
	s.next++
	if s.Before != nil {
		s.Before(n)
	}
	args, _, err := s.Tool.CheckArgs(s.Args(n))
	require.NoError(t, err)
	return n, args
}

// call gives checked arguments a key as the gateway would.
func (s *Suite) call(t *testing.T, n int, args map[string]any) tools.Call {
	t.Helper()
	key := tools.Key{Value: fmt.Sprintf("suite-%d", n), Generation: 1}
	if s.Tool.BusinessKey != nil {
		value, err := s.Tool.BusinessKey(args, agent)
		require.NoError(t, err)
		key.Value = value
	}
	key.Upstream = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %s %d", t.Name(), key.Value, n)).String()
	return tools.Call{Args: args, Agent: agent, Key: key}
}

var agent = tools.Agent{ID: "agt_suite", Name: "Suite", Owner: "opr_suite", Tenant: "default"}

// stored is the plan as it comes back from a store: the digest must not change.
func stored(t *testing.T, plan tools.Plan) tools.Plan {
	t.Helper()
	text, err := json.Marshal(plan)
	require.NoError(t, err)
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var back tools.Plan
	require.NoError(t, d.Decode(&back))
	require.Equal(t, plan.Digest(), back.Digest(), "a stored plan is the same plan")
	return back
}

func (s *Suite) dispatch(in intent) tools.Outcome {
	return s.Tool.Dispatch(context.Background(), in.plan, tools.Dispatch{
		Operation: "op_suite", Attempt: 1, Deadline: time.Now().Add(time.Minute), Timeout: s.Timeout,
	})
}

// counted runs act and gives how many effects and requests it made.
func (s *Suite) counted(act func()) (effects, requests, received int) {
	e, r, l := s.Effects(), s.Requests(), len(s.Line.Received())
	act()
	return s.Effects() - e, s.Requests() - r, len(s.Line.Received()) - l
}

func (s *Suite) previewsChangeNothing(t *testing.T) {
	n, args := s.nextArgs(t)
	call := s.call(t, n, args)
	first, err := s.Tool.Preview(context.Background(), call)
	require.NoError(t, err)
	require.NotEmpty(t, first.Headline)
	require.NotEmpty(t, first.Effects)
	require.NotEmpty(t, first.Target)
	effects, requests, received := s.counted(func() {
		for range s.Previews {
			again, err := s.Tool.Preview(context.Background(), call)
			require.NoError(t, err)
			require.Equal(t, first.Digest(), again.Digest(), "the same world gives the same plan")
			_, err = s.Tool.Guard(context.Background(), again)
			require.NoError(t, err)
		}
	})
	require.Zero(t, effects, "effects after previews")
	require.Zero(t, requests, "requests after previews")
	require.Zero(t, received, "effectful requests on the line after previews")
}

func (s *Suite) succeeds(t *testing.T) {
	in := s.prepare(t)
	var out tools.Outcome
	effects, requests, received := s.counted(func() { out = s.dispatch(in) })
	require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
	require.NotEmpty(t, out.EffectID)
	require.Equal(t, []int{1, 1, 1}, []int{effects, requests, received})
	require.Positive(t, out.Seen.SentBytes)
	require.False(t, out.Seen.SentAt.IsZero())
	require.False(t, out.Seen.AnsweredAt.IsZero())
	require.NotZero(t, out.Seen.Status)
	require.Equal(t, in.plan.Target, out.Seen.Target)
	s.lookedUp(t, in, out.EffectID)
}

// lookedUp asks for the effect of an intent, if the tool can.
func (s *Suite) lookedUp(t *testing.T, in intent, effectID string) {
	t.Helper()
	a := s.Tool.Lookup(context.Background(), in.plan)
	switch {
	case s.Tool.Consistency == tools.NoLookup:
		require.Equal(t, tools.LookupFailed, a.Kind)
	case effectID == "":
		require.Equal(t, tools.Absent, a.Kind, "%+v", a)
	default:
		require.Equal(t, tools.Present, a.Kind, "%+v", a)
		require.Equal(t, []string{effectID}, a.EffectIDs)
	}
}

// sameBytes: every attempt of one plan sends the same bytes.
func (s *Suite) sameBytes(t *testing.T) {
	in := s.prepare(t)
	first := s.dispatch(in)
	second := s.dispatch(in)
	require.Equal(t, first.EffectID, second.EffectID)
	all := s.Line.Received()
	a, b := all[len(all)-2], all[len(all)-1]
	a.Reused, b.Reused = false, false
	require.Equal(t, a, b)
}

// repeatUnderOneKey: a tool that honours keys has one effect for one key.
func (s *Suite) repeatUnderOneKey(t *testing.T) {
	in := s.prepare(t)
	effects, requests, _ := s.counted(func() {
		first := s.dispatch(in)
		require.Equal(t, tools.Succeeded, first.Verdict)
		again := s.dispatch(in)
		require.Equal(t, tools.Succeeded, again.Verdict)
		require.Equal(t, first.EffectID, again.EffectID)
	})
	require.Equal(t, 1, effects)
	require.Equal(t, 2, requests)
}

func (s *Suite) rejected(t *testing.T) {
	in := s.prepare(t)
	s.Spoil(in.args)
	var out tools.Outcome
	effects, requests, _ := s.counted(func() { out = s.dispatch(in) })
	require.Equal(t, tools.NoEffect, out.Verdict, "%+v", out)
	require.NotEmpty(t, out.Because)
	require.Empty(t, out.EffectID)
	require.Equal(t, []int{0, 1}, []int{effects, requests})
	s.lookedUp(t, in, "")
}

func (s *Suite) notSent(t *testing.T) {
	in := s.prepare(t)
	s.Line.Refuse()
	var out tools.Outcome
	effects, requests, received := s.counted(func() {
		if out = s.dispatch(in); s.Tool.HonoursKey && out.Verdict == tools.Unknown {
			// It was written to a kept connection that had just died. Now it is gone.
			out = s.dispatch(in)
		}
	})
	s.Line.Restore()
	require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
	require.Zero(t, out.Seen.SentBytes)
	require.Equal(t, []int{0, 0, 0}, []int{effects, requests, received})
	// The same plan can be sent afterwards: nothing was used up.
	require.Equal(t, tools.Succeeded, s.dispatch(in).Verdict)
}

// late: past its deadline nothing is sent.
func (s *Suite) late(t *testing.T) {
	in := s.prepare(t)
	var out tools.Outcome
	effects, requests, received := s.counted(func() {
		out = s.Tool.Dispatch(context.Background(), in.plan, tools.Dispatch{
			Operation: "op_suite", Attempt: 1, Deadline: time.Now().Add(-time.Second), Timeout: s.Timeout,
		})
	})
	require.Equal(t, tools.NotSent, out.Verdict, "%+v", out)
	require.Equal(t, []int{0, 0, 0}, []int{effects, requests, received})
}

// cancelled: an agent that hangs up does not cancel a dispatch.
func (s *Suite) cancelled(t *testing.T) {
	in := s.prepare(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out := s.Tool.Dispatch(ctx, in.plan, tools.Dispatch{
		Operation: "op_suite", Attempt: 1, Deadline: time.Now().Add(time.Minute), Timeout: s.Timeout,
	})
	require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
}

// cutAfterRequest: the effect takes place and the reply is lost.
func (s *Suite) cutAfterRequest(t *testing.T) {
	in := s.prepare(t)
	s.Line.Fail(Fault{Forward: true})
	var out tools.Outcome
	effects, requests, received := s.counted(func() { out = s.dispatch(in) })
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Empty(t, out.EffectID)
	require.NotEmpty(t, out.Because)
	require.Positive(t, out.Seen.SentBytes)
	require.Equal(t, []int{1, 1, 1}, []int{effects, requests, received})
	if s.Tool.Consistency != tools.NoLookup {
		require.Equal(t, tools.Present, s.Tool.Lookup(context.Background(), in.plan).Kind)
	}
}

// cutBeforeEffect: the request is taken and nothing happens; nobody can tell
// that from a lost reply.
func (s *Suite) cutBeforeEffect(t *testing.T) {
	in := s.prepare(t)
	s.Line.Fail(Fault{})
	var out tools.Outcome
	effects, requests, received := s.counted(func() { out = s.dispatch(in) })
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Equal(t, []int{0, 0, 1}, []int{effects, requests, received})
	s.lookedUp(t, in, "")
}

// cutKeptConnection: the peer takes a request on a connection that it kept open,
// and closes. net/http would send a request with an Idempotency-Key again.
func (s *Suite) cutKeptConnection(t *testing.T) {
	first, second := s.prepare(t), s.prepare(t)
	require.Equal(t, tools.Succeeded, s.dispatch(first).Verdict)
	s.Line.Fail(Fault{Forward: true})
	var out tools.Outcome
	effects, requests, received := s.counted(func() { out = s.dispatch(second) })
	require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
	require.Equal(t, []int{1, 1, 1}, []int{effects, requests, received})
	last := s.Line.Received()[len(s.Line.Received())-1]
	if !s.Tool.HonoursKey {
		require.False(t, last.Reused, "a tool without keys has a connection of its own for every request")
	}
}

func (s *Suite) hostileAnswers(t *testing.T) {
	good := s.recorded(t)
	for _, h := range HostileAnswers(s.Success, good) {
		t.Run(h.Name, func(t *testing.T) {
			in := s.prepare(t)
			s.Line.Fail(Fault{Forward: true, Answer: h.Answer})
			var out tools.Outcome
			_, requests, received := s.counted(func() {
				patient := s.Timeout
				if h.Endless {
					s.Timeout = min(s.Timeout, 1500*time.Millisecond)
				}
				out = s.dispatch(in)
				s.Timeout = patient
			})
			require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
			require.Empty(t, out.EffectID)
			require.NotEmpty(t, out.Because)
			require.LessOrEqual(t, len(out.Seen.Excerpt), 2<<10)
			require.Equal(t, []int{1, 1}, []int{requests, received})
		})
	}
}

// recorded is a body with which the upstream really says done.
func (s *Suite) recorded(t *testing.T) []byte {
	t.Helper()
	in := s.prepare(t)
	out := s.dispatch(in)
	require.Equal(t, tools.Succeeded, out.Verdict, "%+v", out)
	require.NotEmpty(t, out.Seen.Excerpt)
	return []byte(out.Seen.Excerpt)
}

// wrongEffectID: an answer whose effect id is not one proves nothing.
func (s *Suite) wrongEffectID(t *testing.T) {
	var good map[string]any
	require.NoError(t, json.Unmarshal(s.recorded(t), &good))
	for name, id := range map[string]any{
		"null": nil, "empty": "", "blank": "  ", "true": true, "object": map[string]any{"id": "x"}, "list": []any{"x"},
		"fraction": 1.5, "invisible": "a\u200bb", "two lines": "a\nb", "too long": strings.Repeat("x", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			in := s.prepare(t)
			good[s.EffectID] = id
			body, err := json.Marshal(good)
			require.NoError(t, err)
			s.Line.Fail(Fault{Forward: true, Answer: answer(s.Success, "application/json", string(body))})
			out := s.dispatch(in)
			require.Equal(t, tools.Unknown, out.Verdict, "%+v", out)
		})
	}
	t.Run("missing", func(t *testing.T) {
		in := s.prepare(t)
		delete(good, s.EffectID)
		body, err := json.Marshal(good)
		require.NoError(t, err)
		s.Line.Fail(Fault{Forward: true, Answer: answer(s.Success, "application/json", string(body))})
		require.Equal(t, tools.Unknown, s.dispatch(in).Verdict)
	})
}

func (s *Suite) drift(t *testing.T) {
	in := s.prepare(t)
	g, err := s.Tool.Guard(context.Background(), in.plan)
	require.NoError(t, err)
	require.Empty(t, g.Drift)
	require.Nil(t, g.Done)
	require.False(t, g.ReadAt.IsZero())
	if s.Change == nil {
		return
	}
	s.Change(in.args)
	g, err = s.Tool.Guard(context.Background(), in.plan)
	require.NoError(t, err)
	require.NotEmpty(t, g.Drift)
	for _, d := range g.Drift {
		require.NotEqual(t, d.Was, d.Now)
	}
}

// lookupFails: a question that got no clear answer is not "absent".
func (s *Suite) lookupFails(t *testing.T) {
	in := s.prepare(t)
	for name, a := range map[string]Fault{
		"not found":  {Answer: answer(404, "application/json", `{"message":"no route"}`)},
		"server":     {Answer: answer(500, "application/json", `{}`)},
		"HTML":       {Answer: answer(200, "text/html", `<html></html>`)},
		"empty":      {Answer: answer(200, "application/json", ``)},
		"null":       {Answer: answer(200, "application/json", `null`)},
		"other form": {Answer: answer(200, "application/json", `{"unexpected":[]}`)},
	} {
		s.Line.FailReads(a)
		got := s.Tool.Lookup(context.Background(), in.plan)
		require.Equal(t, tools.LookupFailed, got.Kind, "%s: %+v", name, got)
		require.NotEmpty(t, got.Because, name)
	}
	s.lookedUp(t, in, "")
}

func (s *Suite) undo(t *testing.T) {
	in := s.prepare(t)
	out := s.dispatch(in)
	require.Equal(t, tools.Succeeded, out.Verdict)
	u, err := s.Tool.Undo(in.plan, out.EffectID, out.Result)
	require.NoError(t, err)
	if s.Tool.UndoTool == "" {
		require.False(t, u.Possible)
		require.NotEmpty(t, u.Because)
		return
	}
	require.True(t, u.Possible, u.Because)
	require.Equal(t, s.Tool.UndoTool, u.Tool)
	opposite, ok := s.Tools(u.Tool)
	require.True(t, ok, "the undo tool %s is there", u.Tool)
	args, _, err := opposite.CheckArgs(u.Args)
	require.NoError(t, err)
	child := Suite{Tool: opposite, Effects: s.Effects, Requests: s.Requests, Line: s.Line, Timeout: s.Timeout}
	plan, err := opposite.Preview(context.Background(), child.call(t, 0, args))
	require.NoError(t, err)
	effects, requests, _ := s.counted(func() {
		done := child.dispatch(intent{args, stored(t, plan)})
		require.Equal(t, tools.Succeeded, done.Verdict, "%+v", done)
	})
	require.Equal(t, []int{1, 1}, []int{effects, requests})
	again, err := opposite.Preview(context.Background(), child.call(t, 0, args))
	if err != nil {
		require.True(t, fault.Is(err, fault.ToolRefused) || fault.Is(err, fault.UpstreamUnexpected), "%v", err)
		return
	}
	require.NotEqual(t, plan.Digest(), again.Digest(), "what was undone is not there to be undone again")
}
