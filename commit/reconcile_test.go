package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// lookOften lets time pass and the reconciler look, n times.
func (r *rig) lookOften(n int, pass time.Duration) {
	r.t.Helper()
	for range n {
		r.clock.Add(pass)
		_, err := r.reconciler.RunOnce(context.Background())
		require.NoError(r.t, err)
	}
}

// inDoubt commits without waiting for anybody to look into it.
func (r *rig) inDoubt(tool string) ledger.Operation {
	r.t.Helper()
	return r.inDoubtOf(tool, "ord_1")
}

// inDoubtOf is inDoubt for one order of several.
func (r *rig) inDoubtOf(tool, order string) ledger.Operation {
	r.t.Helper()
	p := r.preview(agent, tool, args(order))
	res, err := r.commits.Commit(context.Background(), commit.Request{Agent: agent, Tool: tool, Token: p.Token, RequestID: "req_1"})
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
	op := r.op(res.Operation.ID)
	require.Equal(r.t, ledger.Unknown, op.State)
	return op
}

func (r *rig) lookups(id string) (kinds []tools.AnswerKind) {
	r.t.Helper()
	list, err := r.ledger.Evidence(context.Background(), tenant, id)
	require.NoError(r.t, err)
	for _, e := range list {
		if e.Kind == "lookup" {
			kinds = append(kinds, e.Answer)
		}
	}
	return kinds
}

// TestMatrix_Row02_ReplyLost: the reply is lost after the effect: unknown, nothing
// is sent again, and the lookup finds the one effect.
func TestMatrix_Row02_ReplyLost(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	op := r.do(agent, "hold_order", args("ord_1")).Operation
	require.Equal(t, ledger.Succeeded, op.State, "a gateway asks at once, and the answer is waited for")
	require.Len(t, fake.Requests(), 1)
	require.Equal(t, fake.Effects()[0].ID, op.EffectID)
	require.Equal(t, ledger.DoubtReconciled, op.Doubt)
	require.Equal(t, []ledger.Verb{"open", "finish", "resolve"}, r.verbs(op.ID))
}

// TestMatrix_Row04_ReconcileQueryTimesOut: questions without an answer leave it
// unknown, never failed; once it answers, the effect is found.
func TestMatrix_Row04_ReconcileQueryTimesOut(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	fake := tooltest.FakeOf(hold)
	r.endReconciling()
	failed := tools.Answer{Kind: tools.LookupFailed, Because: "The outside system did not answer in time."}
	fake.Script(tooltest.LoseReply()).Answers(failed, failed, failed, failed, failed, failed)
	op := r.inDoubt("hold_order")
	r.lookOften(6, 10*time.Minute)
	now := r.op(op.ID)
	require.Equal(t, ledger.Unknown, now.State)
	require.False(t, now.OnList)
	require.Equal(t, []tools.AnswerKind{"failed", "failed", "failed", "failed", "failed", "failed"}, r.lookups(op.ID))
	require.Equal(t, now.UnknownSince, now.FirstUnknownAt, "its age goes on")
	r.lookOften(1, 10*time.Minute)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Len(t, fake.Requests(), 1)
}

// TestReconcile_FailedForEverIsAPerson: after the budget a person is asked, and it
// is still unknown.
func TestReconcile_FailedForEverIsAPerson(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseRequest())
	op := r.inDoubt("hold_order")
	r.lookOften(30, time.Hour)
	now := r.op(op.ID)
	require.Equal(t, ledger.Unknown, now.State)
	require.True(t, now.OnList)
	// What a person wants asked is asked all the same; absence from a source that is
	// not authoritative moves nothing.
	_, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	_, err = r.approvals.Resolve(t.Context(), ann, op.ID, ledger.Statement{Reason: "not there"})
	require.NoError(t, err)
	r.clock.Add(time.Minute)
	got, err := r.reconciler.AskNow(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, got.State)
	require.Equal(t, ledger.DoubtElsewhere, r.op(op.ID).Doubt)
}

// TestReconcile_AbsentFromAStrongSource: what never arrived has failed, after the
// settle window and three answers, and its key is free again.
func TestReconcile_AbsentFromAStrongSource(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseRequest())
	op := r.inDoubt("hold_order")
	r.lookOften(4, 10*time.Second)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State, "inside the settle window nothing is concluded")
	r.lookOften(6, 2*time.Minute)
	now := r.op(op.ID)
	require.Equal(t, ledger.Failed, now.State)
	require.Equal(t, "absent_outside", now.Reason.Code)
	require.Equal(t, ledger.DoubtReconciled, now.Doubt)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	second := r.do(agent, "hold_order", args("ord_1")).Operation
	require.Equal(t, 2, second.Generation)
}

// TestReconcile_IrreversibleAbsentIsAPerson: for what can't be taken back, absence
// never fails it.
func TestReconcile_IrreversibleAbsentIsAPerson(t *testing.T) {
	letter := tooltest.FakeTool("send_letter", tooltest.WithLookup(tools.Strong), tooltest.Irreversible())
	r := newRig(t, letter)
	r.endReconciling()
	tooltest.FakeOf(letter).Script(tooltest.LoseRequest())
	op := r.approve(carl, r.do(agent, "send_letter", args("ord_1")).Operation)
	r.work()
	r.lookOften(10, 2*time.Minute)
	now := r.op(op.ID)
	require.Equal(t, ledger.Unknown, now.State)
	require.True(t, now.OnList)
}

// TestMatrix_Row38_KeyToolBreaksItsPromise: two effects under one key freeze the
// tool at once and are counted.
func TestMatrix_Row38_KeyToolBreaksItsPromise(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong), tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseReply()).Answers(tools.Answer{Kind: tools.BrokenPromise, EffectIDs: []string{"hold_1", "hold_2"}})
	op := r.inDoubt("hold_order")
	r.lookOften(1, time.Second)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	g, err := r.ledger.Guard(t.Context(), tenant)
	require.NoError(t, err)
	f, frozen := g.Frozen("hold_order")
	require.True(t, frozen)
	require.Equal(t, ledger.FreezeAll, f.Level)
	tally, err := r.ledger.Tally(t.Context(), tenant)
	require.NoError(t, err)
	require.EqualValues(t, 1, tally.Duplicates)
}

// TestMatrix_Row39_QueryLies: an eventual source says "absent" and later shows it:
// it was never called failed.
func TestMatrix_Row39_QueryLies(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, hold)
	r.endReconciling()
	absent := tools.Answer{Kind: tools.Absent}
	tooltest.FakeOf(hold).Script(tooltest.LoseReply()).Answers(absent, absent, absent, absent, absent, tools.Answer{Kind: tools.NotVisibleYet})
	op := r.inDoubt("hold_order")
	for range 6 {
		r.lookOften(1, 10*time.Minute)
		require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	}
	r.lookOften(1, 10*time.Minute)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

// TestMatrix_Row40_KeyRetentionRanOut: after a long outage the tool no longer
// remembers the key: nothing is sent again, a person is asked.
func TestMatrix_Row40_KeyRetentionRanOut(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(24*time.Hour))
	r := newRig(t, hold)
	r.endReconciling()
	tooltest.FakeOf(hold).Script(tooltest.LoseReply())
	op := r.inDoubt("hold_order")
	r.lookOften(1, 25*time.Hour)
	require.True(t, r.op(op.ID).OnList)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
}

// TestReconcile_RetryUnderTheSameKey: the same bytes, the same key, one effect, and
// never while everything is frozen or for an agent whose rights were taken away.
func TestReconcile_RetryUnderTheSameKey(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig)
		sent   int
		state  ledger.State
	}{
		"free":           {before: func(*rig) {}, sent: 2, state: ledger.Succeeded},
		"frozen for new": {before: func(r *rig) { r.freeze("hold_order", ledger.FreezeNew) }, sent: 2, state: ledger.Succeeded},
		// A freeze is lifted when no outcome is unknown, so a person is asked now.
		"frozen for all": {before: func(r *rig) { r.freeze("hold_order", ledger.FreezeAll) }, sent: 1, state: ledger.Unknown},
		"agent revoked": {before: func(r *rig) {
			_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Revoked = append(g.Revoked, agent.ID) })
			require.NoError(r.t, err)
		}, sent: 1, state: ledger.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order", tooltest.HonoursKey(24*time.Hour))
			r := newRig(t, hold)
			r.endReconciling()
			fake := tooltest.FakeOf(hold)
			fake.Script(tooltest.LoseReply())
			op := r.inDoubt("hold_order")
			c.before(r)
			r.lookOften(1, 10*time.Second)
			require.NoError(t, r.executor.Drain(t.Context()))
			require.Equal(t, c.state, r.op(op.ID).State)
			require.Equal(t, c.state == ledger.Unknown, r.op(op.ID).OnList)
			requests := fake.Requests()
			require.Len(t, requests, c.sent)
			for _, request := range requests {
				require.Equal(t, requests[0].Key, request.Key)
				require.JSONEq(t, string(requests[0].Wire), string(request.Wire))
			}
			require.Len(t, fake.Effects(), 1)
		})
	}
}

func (r *rig) freeze(tool string, level ledger.FreezeLevel) {
	_, err := r.ledger.Freeze(context.Background(), ledger.Scope{Tenant: tenant, Tool: tool}, level, ledger.Gateway("test"), "stop")
	require.NoError(r.t, err)
}

// TestReconcile_ConnectorPanics: a lookup that breaks off is no answer.
func TestReconcile_ConnectorPanics(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
	fake := tooltest.FakeOf(hold)
	fake.Script(tooltest.LoseReply())
	r := newRig(t, hold)
	r.endReconciling()
	hold.Connector = breaksOff{fake}
	op := r.inDoubt("hold_order")
	r.lookOften(2, time.Minute)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	require.Equal(t, []tools.AnswerKind{"failed", "failed"}, r.lookups(op.ID))
}

// breaksOff panics when it is asked.
type breaksOff struct{ *tooltest.Fake }

func (breaksOff) Lookup(context.Context, tools.Plan) tools.Answer { panic("broken") }
