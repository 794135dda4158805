package commit_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// undoable is a tool with its opposite: hold_order and release_hold.
func undoable(opts ...tooltest.Option) (hold, release *tools.Tool) {
	return tooltest.FakeTool("hold_order", append([]tooltest.Option{tooltest.WithUndo("release_hold")}, opts...)...),
		tooltest.FakeTool("release_hold")
}

// by is an operator as an actor.
func by(o identity.Operator) ledger.Actor {
	return ledger.Actor{Kind: "operator", ID: o.ID, Name: o.Name}
}

// undoAsked is who asks in a test: an agent or an operator.
type undoAsked struct {
	agent *identity.Agent
	by    ledger.Actor
}

func asAgent(a identity.Agent) undoAsked       { return undoAsked{agent: &a} }
func asOperator(o identity.Operator) undoAsked { return undoAsked{by: by(o)} }

func (r *rig) previewUndo(who undoAsked, id string) (preview.Result, error) {
	return r.previews.Undo(context.Background(), preview.UndoRequest{Tenant: tenant, Operation: id, Agent: who.agent, By: who.by, RequestID: "req"})
}

func (r *rig) commitUndo(who undoAsked, id, token string) (commit.Result, error) {
	return r.commits.Undo(context.Background(), commit.UndoCommit{
		Tenant: tenant, Operation: id, Token: token, Agent: who.agent, By: who.by, RequestID: "req", Wait: 10 * time.Second,
	})
}

// undo previews and commits the undo of an operation.
func (r *rig) undo(who undoAsked, id string) commit.Result {
	r.t.Helper()
	p, err := r.previewUndo(who, id)
	require.NoError(r.t, err)
	require.NotEmpty(r.t, p.Token)
	res, err := r.commitUndo(who, id, p.Token)
	require.NoError(r.t, err)
	return res
}

func TestUndo_OnceAndReplayed(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation

	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	require.Equal(t, "release_hold", p.Preview.Tool)
	require.Equal(t, "undo:"+parent.ID, p.Preview.Key)
	require.Equal(t, parent.EffectID, p.Preview.Plan.Args["order_id"], "the arguments come from what was recorded")
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State, "a preview changes nothing")
	require.Empty(t, tooltest.FakeOf(release).Requests())

	first, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
	require.NoError(t, err)
	require.False(t, first.Replayed)
	child := first.Operation
	require.Equal(t, ledger.Succeeded, child.State)
	require.Equal(t, parent.ID, child.Parent)
	require.Nil(t, child.AskedBy, "the agent itself asked")
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	require.Equal(t, []ledger.Verb{"open", "finish", "compensate", "compensated"}, r.verbs(parent.ID))
	require.Equal(t, []ledger.Verb{"open", "finish"}, r.verbs(child.ID))

	r.clock.Add(time.Hour) // long past the token's end
	again, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, child.ID, again.Operation.ID)
	res, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	require.Empty(t, res.Token)
	require.Equal(t, child.ID, res.Operation.ID, "a second wish is answered with the undo that stands")
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)

	_, err = r.previewUndo(asAgent(agent), child.ID)
	requireCode(t, err, fault.UndoImpossible) // an undo is not undone

	// The first result of the parent is still answered, and said to be stale.
	replay, err := r.previews.Preview(context.Background(), previewRequest("hold_order", "ord_1"))
	require.NoError(t, err)
	require.Equal(t, parent.ID, replay.Operation.ID)
	require.Equal(t, []string{ledger.StaleUndone}, replay.Stale)
}

// TestMatrix_Row05_CompensationRunsTwice: two operators and the agent click at
// once, on many tokens; the upstream sees one undo and the final state is one
// (I15, R95, R100).
func TestMatrix_Row05_CompensationRunsTwice(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	held := make(chan struct{})
	tooltest.FakeOf(release).Script(tooltest.Held(held, tooltest.Succeed()))

	askers := []undoAsked{asOperator(ann), asOperator(bob), asAgent(agent)}
	var tokens []string
	for i := range 12 {
		p, err := r.previewUndo(askers[i%3], parent.ID)
		require.NoError(t, err)
		tokens = append(tokens, p.Token)
	}
	results := make([]commit.Result, len(tokens))
	errs := make([]error, len(tokens))
	var wg sync.WaitGroup
	for i, token := range tokens {
		wg.Go(func() { results[i], errs[i] = r.commitUndo(askers[i%3], parent.ID, token) })
	}
	<-tooltest.FakeOf(release).Arrived()
	close(held)
	wg.Wait()
	fresh := 0
	for i, res := range results {
		require.NoError(t, errs[i])
		require.Equal(t, results[0].Operation.ID, res.Operation.ID)
		if !res.Replayed {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	require.Equal(t, 2, r.count(), "one effect, one undo")

	// Killed around the end: what is written is written for both, or for none.
	r.restart()
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	res, err := r.commitUndo(askers[0], parent.ID, tokens[0])
	require.NoError(t, err)
	require.True(t, res.Replayed)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
}

// TestUndo_Impossible: every reason why an effect stays, each with its words,
// and nothing changes.
func TestUndo_Impossible(t *testing.T) {
	t.Run("no undo declared", func(t *testing.T) {
		r := newRig(t, tooltest.FakeTool("hold_order"))
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		require.Contains(t, requireCode(t, err, fault.UndoImpossible).Detail, "declares no undo")
	})
	t.Run("no longer possible", func(t *testing.T) {
		hold, release := undoable()
		fakes := []*tooltest.Fake{tooltest.FakeOf(hold), tooltest.FakeOf(release)}
		hold.Connector = opposite{Connector: hold.Connector, undo: tools.Undo{Tool: "release_hold", Because: "It can be taken back only while result.state == \"pending\"."}}
		r := newRigOf(t, fakes, hold, release)
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		require.Contains(t, requireCode(t, err, fault.UndoImpossible).Detail, "pending")
	})
	t.Run("its outcome is unknown", func(t *testing.T) {
		hold, release := undoable()
		r := newRig(t, hold, release)
		tooltest.FakeOf(hold).Script(tooltest.LoseReply())
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		require.Equal(t, ledger.Unknown, parent.State)
		e := requireCode(t, func() error { _, err := r.previewUndo(asOperator(ann), parent.ID); return err }(), fault.UndoImpossible)
		require.Equal(t, parent.ID, e.Operation)
		require.Empty(t, tooltest.FakeOf(release).Requests())
		require.Equal(t, []ledger.Verb{"open", "finish", "hand_over"}, r.verbs(parent.ID))
	})
	t.Run("it had no effect", func(t *testing.T) {
		hold, release := undoable()
		r := newRig(t, hold, release)
		tooltest.FakeOf(hold).Script(tooltest.Reject("no"))
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		requireCode(t, err, fault.UndoImpossible)
	})
	t.Run("it was only found there", func(t *testing.T) {
		hold, release := undoable()
		r := newRig(t, hold, release)
		tooltest.FakeOf(hold).SetDone(&tools.Done{EffectID: "theirs"})
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		require.True(t, parent.Adopted)
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		requireCode(t, err, fault.UndoImpossible)
	})
	t.Run("the undo tool was withdrawn", func(t *testing.T) {
		hold, release := undoable()
		r := newRig(t, hold, release)
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		require.NoError(t, r.registry.Set([]*tools.Tool{hold}))
		r.inForce()
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		requireCode(t, err, fault.UndoImpossible)
	})
	t.Run("the undo tool refuses", func(t *testing.T) {
		hold, release := undoable()
		r := newRig(t, hold, release)
		parent := r.do(agent, "hold_order", args("ord_1")).Operation
		tooltest.FakeOf(release).FailPreview(fault.New(fault.ToolRefused, "The hold is already released."))
		_, err := r.previewUndo(asAgent(agent), parent.ID)
		requireCode(t, err, fault.ToolRefused)
		require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	})
}

// opposite is a connector that answers Undo as a test wants it.
type opposite struct {
	tools.Connector
	undo tools.Undo
}

func (o opposite) Undo(tools.Plan, string, map[string]any) (tools.Undo, error) { return o.undo, nil }

// TestUndo_WhoMay: its own agent, another one of the same owner with grants for
// both tools, and operators.
func TestUndo_WhoMay(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation

	foreign := identity.Agent{ID: "agt_9", Tenant: tenant, Name: "foreign", Owner: "per_ann", Tools: []string{"*"}}
	for _, who := range []identity.Agent{stray, foreign} {
		_, err := r.previewUndo(asAgent(who), parent.ID)
		requireCode(t, err, fault.OperationNotFound)
	}
	narrow := agent
	narrow.Tools = []string{"hold_order"}
	_, err := r.previewUndo(asAgent(narrow), parent.ID)
	requireCode(t, err, fault.ToolNotGranted)
	elsewhere := agent
	elsewhere.Tenant = "elsewhere"
	_, err = r.previewUndo(asAgent(elsewhere), parent.ID)
	requireCode(t, err, fault.NotAllowed)
	_, err = r.previewUndo(undoAsked{}, parent.ID)
	requireCode(t, err, fault.NotAllowed)

	p, err := r.previewUndo(asAgent(other), parent.ID)
	require.NoError(t, err)
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.TokenSubjectMismatch)
	_, err = r.commitUndo(asOperator(ann), parent.ID, p.Token)
	requireCode(t, err, fault.TokenSubjectMismatch)
	narrowed := other
	narrowed.Tools = []string{"hold_order"}
	_, err = r.commitUndo(asAgent(narrowed), parent.ID, p.Token)
	requireCode(t, err, fault.ToolNotGranted)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)

	res, err := r.commitUndo(asAgent(other), parent.ID, p.Token)
	require.NoError(t, err)
	require.Equal(t, agent.ID, res.Operation.Agent.ID)
	require.Equal(t, &ledger.Actor{Kind: "agent", ID: other.ID, Name: other.Name}, res.Operation.AskedBy)
}

// TestUndo_TokensDoNotMix: the token of an undo commits nothing else, and no
// other token commits an undo.
func TestUndo_TokensDoNotMix(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	one := r.do(agent, "hold_order", args("ord_1")).Operation
	two := r.do(agent, "hold_order", args("ord_2")).Operation
	p, err := r.previewUndo(asAgent(agent), one.ID)
	require.NoError(t, err)
	_, err = r.commitUndo(asAgent(agent), two.ID, p.Token)
	requireCode(t, err, fault.ArgsMismatch)
	_, err = r.commit(agent, "release_hold", p.Token)
	requireCode(t, err, fault.ArgsMismatch)
	plain := r.preview(agent, "release_hold", args(one.EffectID))
	_, err = r.commitUndo(asAgent(agent), one.ID, plain.Token)
	requireCode(t, err, fault.ArgsMismatch)
	require.Equal(t, 2, r.count())
	require.Equal(t, ledger.Succeeded, r.op(one.ID).State)
}

// TestUndo_ShownOnAnOlderParent: a preview slept between reading the operation and
// the key of its undo. Another undo came and went meanwhile, so that the slow one has
// the next generation; what it shows was read before all the same.
func TestUndo_ShownOnAnOlderParent(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	store := &slowHead{}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	tooltest.FakeOf(release).Script(tooltest.Reject("not now"))
	store.before = func() { require.Equal(t, ledger.Failed, r.undo(asOperator(ann), parent.ID).Operation.State) }
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	require.Equal(t, 2, p.Preview.Generation)
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.PreviewStale)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
}

// slowHead is a store in which something happens before the head of an undo's key is
// read, once.
type slowHead struct {
	ledger.Store
	before func()
}

func (s *slowHead) Head(ctx context.Context, tenant, tool, key string) (ledger.Head, error) {
	if do := s.before; do != nil && strings.HasPrefix(key, "undo:") {
		s.before = nil
		do()
	}
	return s.Store.Head(ctx, tenant, tool, key)
}

// TestUndo_StalePreview: what the preview of the undo was read from, or the
// operation itself, has moved: nothing is opened.
func TestUndo_StalePreview(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	tooltest.FakeOf(release).SetWorld("hold.state", "held")
	parent := r.do(agent, "hold_order", args("ord_1")).Operation

	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	tooltest.FakeOf(release).SetWorld("hold.state", "released")
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.PreviewStale)

	// Another undo came and went meanwhile: the parent is where it was, in
	// another version.
	tooltest.FakeOf(release).SetWorld("hold.state", "held")
	tooltest.FakeOf(release).Script(tooltest.Reject("not now"))
	gone := r.undo(asOperator(ann), parent.ID).Operation
	require.Equal(t, ledger.Failed, gone.State)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	q, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	require.Equal(t, 2, q.Preview.Generation)
	tooltest.FakeOf(release).Script(tooltest.Reject("not now"))
	r.undo(asOperator(ann), parent.ID)
	_, err = r.commitUndo(asAgent(agent), parent.ID, q.Token)
	require.NoError(t, err, "that generation exists: its operation is the answer")

	last, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	require.Equal(t, 3, last.Preview.Generation)
	r.clock.Add(time.Hour)
	_, err = r.commitUndo(asAgent(agent), parent.ID, last.Token)
	requireCode(t, err, fault.TokenExpired)
}

// TestUndo_UnderFreezes: a freeze of new work lets an undo through, a freeze of
// everything does not (I14).
func TestUndo_UnderFreezes(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeAll, by(ann), "incident")
	require.NoError(t, err)
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.ToolFrozen)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)

	require.NoError(t, r.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant}, By: by(ann), Reason: "over"}))
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeNew, by(ann), "incident")
	require.NoError(t, err)
	res, err := r.commitUndo(asAgent(agent), parent.ID, p.Token)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
}

// TestUndo_OfARevokedAgent: it may not ask itself; an operator takes back what it
// did, also when people must be asked first.
func TestUndo_OfARevokedAgent(t *testing.T) {
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	_, _, err = r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "revoke"}, func(g *ledger.Guard) { g.Revoked = []string{agent.ID} })
	require.NoError(t, err)
	_, err = r.commitUndo(asAgent(agent), parent.ID, p.Token)
	requireCode(t, err, fault.Unauthenticated)

	child := r.undo(asOperator(ann), parent.ID).Operation
	require.Equal(t, ledger.AwaitingApproval, child.State)
	require.Equal(t, ledger.Compensating, r.op(parent.ID).State)
	_, err = r.decide(ann, child, "approve", "")
	requireCode(t, err, fault.SeparationOfDuties) // who asks does not approve
	r.approve(bob, child)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(child.ID).State)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
}

// TestUndo_Rejected: a no leaves the effect as it was, and the same undo can't
// be asked for again until somebody else than the asker reopens it.
func TestUndo_Rejected(t *testing.T) {
	ctx := context.Background()
	hold, release := undoable()
	release.Approval = []tools.ApprovalRule{tooltest.Approve("finance", 1)}
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	child := r.undo(asOperator(ann), parent.ID).Operation
	_, err := r.decide(bob, child, "reject", "The hold is right.")
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Equal(t, []ledger.Verb{"open", "finish", "compensate", "give_up"}, r.verbs(parent.ID))
	for _, who := range []undoAsked{asOperator(ann), asAgent(agent)} {
		_, err = r.previewUndo(who, parent.ID)
		requireCode(t, err, fault.RejectedBefore)
	}
	_, err = r.approvals.Reopen(ctx, ann, child.ID, "I want it")
	requireCode(t, err, fault.SeparationOfDuties)
	_, err = r.approvals.Reopen(ctx, bob, child.ID, "The customer called.")
	require.NoError(t, err)
	p, err := r.previewUndo(asOperator(ann), parent.ID)
	require.NoError(t, err)
	require.Equal(t, 2, p.Preview.Generation)
	require.Empty(t, tooltest.FakeOf(release).Requests())
}

// TestUndo_NotSentIsTriedAgain with back-off and a cap; then it has failed, its
// parent stands as before, and both say so (R96).
func TestUndo_NotSentIsTriedAgain(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	for range ledger.MaxUnsent {
		tooltest.FakeOf(release).Script(tooltest.Unsent())
	}
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	res, err := r.commits.Undo(context.Background(), commit.UndoCommit{Tenant: tenant, Operation: parent.ID, Token: p.Token, Agent: &agent})
	require.NoError(t, err)
	require.NoError(t, r.executor.Drain(context.Background()))
	child := r.op(res.Operation.ID)
	require.Equal(t, ledger.Pending, child.State)
	require.True(t, child.NotBefore.After(r.clock.Now()), "it waits before the next try")
	require.Equal(t, ledger.Compensating, r.op(parent.ID).State)
	for try := 2; try <= ledger.MaxUnsent; try++ {
		r.clock.Add(20 * time.Second)
		r.work()
		require.Len(t, r.op(child.ID).Attempts, try)
	}
	require.Equal(t, ledger.Failed, r.op(child.ID).State)
	require.Equal(t, "not_sent", r.op(child.ID).Reason.Code)
	require.Equal(t, ledger.Succeeded, r.op(parent.ID).State)
	require.Equal(t, []ledger.Verb{"open", "finish", "compensate", "give_up"}, r.verbs(parent.ID))
	events, err := r.ledger.Events(context.Background(), tenant, parent.ID)
	require.NoError(t, err)
	require.Equal(t, "undo_failed", events[3].Reason.Code)
	require.Empty(t, tooltest.FakeOf(release).Requests())

	// A new wish is the next generation.
	again := r.undo(asAgent(agent), parent.ID).Operation
	require.Equal(t, 2, again.Generation)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
}

// TestUndo_InDoubt: an undo whose reply is lost leaves its parent compensating
// and is never sent twice, whoever asks.
func TestUndo_InDoubt(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	tooltest.FakeOf(release).Script(tooltest.LoseReply())
	child := r.undo(asAgent(agent), parent.ID).Operation
	require.Equal(t, ledger.Unknown, child.State)
	require.Equal(t, ledger.Compensating, r.op(parent.ID).State)
	res, err := r.previewUndo(asOperator(ann), parent.ID)
	require.NoError(t, err)
	require.Empty(t, res.Token)
	require.Equal(t, child.ID, res.Operation.ID)
	_, err = r.approvals.Resolve(context.Background(), bob, child.ID, ledger.Statement{Happened: true, EffectID: "rel_1", Reason: "seen in the shop"})
	require.NoError(t, err)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	require.Len(t, tooltest.FakeOf(release).Requests(), 1)
}

// TestUndo_AlreadyDone: what the undo would do is found done. Nothing is sent,
// and parent and child end in one write.
func TestUndo_AlreadyDone(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	p, err := r.previewUndo(asAgent(agent), parent.ID)
	require.NoError(t, err)
	tooltest.FakeOf(release).SetDone(&tools.Done{EffectID: "by_hand"})
	res, err := r.commits.Undo(context.Background(), commit.UndoCommit{Tenant: tenant, Operation: parent.ID, Token: p.Token, Agent: &agent})
	require.NoError(t, err)
	require.Equal(t, ledger.Pending, res.Operation.State)
	require.Equal(t, ledger.Compensating, r.op(parent.ID).State)
	r.work()
	child := r.op(res.Operation.ID)
	require.Equal(t, ledger.Succeeded, child.State)
	require.True(t, child.Adopted)
	require.Equal(t, ledger.Compensated, r.op(parent.ID).State)
	require.Empty(t, tooltest.FakeOf(release).Requests())
}

// TestUndo_FreesTheKeyOnlyForAWantedRepeat: what was undone is still the first
// result of its key.
func TestUndo_FreesTheKeyOnlyForAWantedRepeat(t *testing.T) {
	hold, release := undoable()
	r := newRig(t, hold, release)
	parent := r.do(agent, "hold_order", args("ord_1")).Operation
	r.undo(asAgent(agent), parent.ID)
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), AgainOf: parent.ID})
	require.NoError(t, err)
	require.Equal(t, 2, res.Preview.Generation)
	require.True(t, res.Preview.Requirement.Asks())
}
