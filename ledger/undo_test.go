package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// TestUndo_BirthMovesTheParent: in one write.
func TestUndo_BirthMovesTheParent(t *testing.T) {
	r := newRig(t)
	parent := r.done("k")
	child := r.born(r.undo(parent, nil))
	require.Equal(t, parent.ID, child.Parent)
	r.together(child, parent, ledger.VerbCompensate, ledger.Compensating)
	require.Equal(t, child.ID, r.read(parent).Child)
	require.Equal(t, parent.FinalAt, r.read(parent).FinalAt, "when it was answered stays")
}

// TestUndo_EveryEndMovesTheParent: each end of a child, reached through the verbs,
// moves the parent in the same write; what is no end leaves it alone (I15).
func TestUndo_EveryEndMovesTheParent(t *testing.T) {
	finish := func(v tools.Verdict, effect string) func(*rig, ledger.Operation) {
		return func(r *rig, child ledger.Operation) { r.concluded(child, tools.Outcome{Verdict: v, EffectID: effect}) }
	}
	unclear := finish(tools.Unknown, "")
	must := func(r *rig) func(ledger.Operation, error) {
		return func(_ ledger.Operation, err error) { require.NoError(r.t, err) }
	}
	for name, c := range map[string]struct {
		asks  bool
		begin func(*rig, ledger.Operation) // leaves the parent compensating
		end   func(*rig, ledger.Operation)
		child ledger.State
	}{
		"succeeded":           {end: finish(tools.Succeeded, "u1"), child: ledger.Succeeded},
		"refused":             {end: finish(tools.NoEffect, ""), child: ledger.Failed},
		"in doubt":            {begin: unclear, child: ledger.Unknown},
		"lost lease":          {begin: func(r *rig, c ledger.Operation) { r.advance(time.Hour); must(r)(r.LoseLease(r.ctx, tenant, c.ID)) }, child: ledger.Unknown},
		"unknown, then found": {begin: unclear, end: func(r *rig, c ledger.Operation) { r.proven(c, 1, "u1") }, child: ledger.Succeeded},
		"unknown, then stated to have happened": {begin: unclear, end: func(r *rig, c ledger.Operation) {
			must(r)(r.Resolve(r.ctx, tenant, c.ID, person, ledger.Statement{Happened: true, EffectID: "u1", Reason: "seen"}))
		}, child: ledger.Succeeded},
		"unknown, then stated not to have happened": {begin: unclear, end: func(r *rig, c ledger.Operation) {
			must(r)(r.Resolve(r.ctx, tenant, c.ID, person, ledger.Statement{Reason: "seen"}))
		}, child: ledger.Failed},
		"unknown, then retried": {begin: unclear, end: func(r *rig, c ledger.Operation) {
			marked, err := r.Retry(r.ctx, r.read(c), ledger.RetryRequest{Epoch: r.epoch(), Timeout: time.Second, NotAfter: r.Now().Add(time.Hour)})
			require.NoError(r.t, err)
			r.concluded(marked, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u1"})
		}, child: ledger.Succeeded},
		"unsent too often": {end: func(r *rig, c ledger.Operation) {
			for c.State != ledger.Failed {
				c = r.concluded(c, tools.Outcome{Verdict: tools.NotSent})
				if c.State == ledger.Pending {
					require.Equal(r.t, ledger.Compensating, r.read(ledger.Operation{ID: c.Parent, Tenant: tenant}).State)
					var err error
					c, err = r.Mark(r.ctx, c, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
					require.NoError(r.t, err)
				}
			}
		}, child: ledger.Failed},
		"released, then adopted": {
			begin: finish(tools.NotSent, ""),
			end:   func(r *rig, c ledger.Operation) { must(r)(r.Adopt(r.ctx, r.read(c), tools.Done{EffectID: "u0"})) }, child: ledger.Succeeded,
		},
		"rejected": {asks: true, end: func(r *rig, c ledger.Operation) {
			must(r)(r.Reject(r.ctx, c, ledger.Decision{Operation: c.ID, Round: 1, Person: "per_1", Verb: ledger.VerbReject, Reason: "no", At: r.Now()}))
		}, child: ledger.Rejected},
		"cancelled": {asks: true, end: func(r *rig, c ledger.Operation) { must(r)(r.Cancel(r.ctx, tenant, c.ID, person, "no")) }, child: ledger.Cancelled},
		"expired": {asks: true, end: func(r *rig, c ledger.Operation) {
			r.advance(2 * time.Hour)
			must(r)(r.ExpireOverdue(r.ctx, tenant, c.ID))
		}, child: ledger.Expired},
		"expired by the gateway": {asks: true, end: func(r *rig, c ledger.Operation) {
			must(r)(r.Expire(r.ctx, tenant, c.ID, person, ledger.Reason{Code: "tool_withdrawn"}))
		}, child: ledger.Expired},
		"approved only": {asks: true, begin: func(r *rig, c ledger.Operation) {
			must(r)(r.Approve(r.ctx, c, ledger.Decision{Operation: c.ID, Round: 1, Person: "per_1", Verb: ledger.VerbApprove, At: r.Now()}, true))
		}, child: ledger.Pending},
		"restored": {asks: true, begin: func(r *rig, c ledger.Operation) { must(r)(r.Restore(r.ctx, tenant, c.ID)) }, child: ledger.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.done("k")
			child := r.born(r.undo(parent, func(q *ledger.OpenRequest) {
				if c.asks {
					asks(q)
				}
			}))
			if c.begin != nil {
				c.begin(r, child)
				require.Equal(t, ledger.Compensating, r.read(parent).State)
				require.Equal(t, ledger.VerbCompensate, r.last(parent).Verb)
				_, _, err := r.OpenOperation(r.ctx, r.undo(r.read(parent), nil))
				require.True(t, fault.Is(err, fault.UndoImpossible), "%v", err)
			}
			if c.end != nil {
				c.end(r, child)
				if c.child == ledger.Succeeded {
					r.together(child, parent, ledger.VerbCompensated, ledger.Compensated)
				} else {
					r.together(child, parent, ledger.VerbGiveUp, ledger.Succeeded)
				}
			}
			require.Equal(t, c.child, r.read(child).State)
		})
	}
}

// TestUndo_Refused: what can't be taken back, with nothing opened or moved.
func TestUndo_Refused(t *testing.T) {
	for name, make := range map[string]func(*rig) ledger.Operation{
		"an unknown one": func(r *rig) ledger.Operation {
			return r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Unknown})
		},
		"a failed one": func(r *rig) ledger.Operation {
			return r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
		},
		"a running one":  func(r *rig) ledger.Operation { return r.born(r.ask("k", nil)) },
		"one that waits": func(r *rig) ledger.Operation { return r.born(r.ask("k", asks)) },
		"an adopted one": func(r *rig) ledger.Operation {
			return r.born(r.ask("k", func(q *ledger.OpenRequest) { q.Done = &tools.Done{EffectID: "e"} }))
		},
		"an undo": func(r *rig) ledger.Operation {
			return r.concluded(r.born(r.undo(r.done("k"), nil)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "u"})
		},
		"one that is being undone": func(r *rig) ledger.Operation {
			parent := r.done("k")
			r.born(r.undo(parent, nil))
			return r.read(parent)
		},
		"one that was undone": func(r *rig) ledger.Operation {
			parent := r.done("k")
			r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "u"})
			return r.read(parent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := make(r)
			_, _, err := r.OpenOperation(r.ctx, r.undo(parent, nil))
			require.True(t, fault.Is(err, fault.UndoImpossible), "%v", err)
			require.Equal(t, parent, r.read(parent))
		})
	}
}

// TestUndo_NeverWithoutItsParent: an undo whose caller forgot the parent, or took
// another one, is not opened; nor is anything else under its reserved key.
func TestUndo_NeverWithoutItsParent(t *testing.T) {
	r := newRig(t)
	parent, other := r.done("k"), r.done("l")
	for name, spoil := range map[string]func(*ledger.OpenRequest){
		"no parent":          func(q *ledger.OpenRequest) { q.Parent = nil },
		"another parent":     func(q *ledger.OpenRequest) { q.Parent = &other },
		"not called an undo": func(q *ledger.OpenRequest) { q.Parent, q.Preview.Parent = nil, "" },
		"another key":        func(q *ledger.OpenRequest) { q.Preview.Key = "free" },
	} {
		q := r.undo(parent, nil)
		spoil(&q)
		_, _, err := r.OpenOperation(r.ctx, q)
		require.True(t, fault.Is(err, fault.Internal), "%s: %v", name, err)
	}
	require.Equal(t, parent, r.read(parent))
}

// TestUndo_TwoRacersOneUndo: also when they ask different tools for it.
func TestUndo_TwoRacersOneUndo(t *testing.T) {
	for name, secondTool := range map[string]string{"one tool": "release_order", "two tools": "cancel_order"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.done("k")
			requests := []ledger.OpenRequest{r.undo(parent, nil), r.undo(parent, func(q *ledger.OpenRequest) { q.Preview.Tool = secondTool })}
			var ops [2]ledger.Operation
			var opened [2]bool
			var errs [2]error
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() { ops[i], opened[i], errs[i] = r.OpenOperation(r.ctx, requests[i]) })
			}
			wg.Wait()
			require.NotEqual(t, opened[0], opened[1], "%v", errs)
			loser := 0
			if opened[0] {
				loser = 1
			}
			winner := ops[1-loser]
			if secondTool == "release_order" {
				require.NoError(t, errs[loser])
				require.Equal(t, winner.ID, ops[loser].ID, "the same undo is the answer")
			} else {
				require.ErrorIs(t, errs[loser], ledger.ErrMoved, "and then it is refused")
			}
			undos, err := r.List(r.ctx, ledger.Filter{Tenant: tenant, Parent: parent.ID})
			require.NoError(t, err)
			require.Len(t, undos.Operations, 1)
			require.Equal(t, winner.ID, r.read(parent).Child)
		})
	}
}

// TestUndo_AgainAfterAVoidEnd: the next generation, whose end speaks for the
// parent.
func TestUndo_AgainAfterAVoidEnd(t *testing.T) {
	r := newRig(t)
	parent := r.done("k")
	first := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
	require.Equal(t, ledger.Failed, first.State)
	second := r.born(r.undo(r.read(parent), nil))
	require.Equal(t, 2, second.Generation)
	require.Equal(t, second.ID, r.read(parent).Child)
	r.concluded(second, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u2"})
	r.together(second, parent, ledger.VerbCompensated, ledger.Compensated)
}

// TestUndo_Contradicted: an undo that ended without effect and had one.
func TestUndo_Contradicted(t *testing.T) {
	r := newRig(t)
	parent := r.done("k")
	child := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
	require.Equal(t, ledger.Succeeded, r.read(parent).State)
	child = r.proven(child, 1, "u1")
	require.Equal(t, ledger.Succeeded, child.State)
	r.together(child, parent, ledger.VerbCompensated, ledger.Compensated)
	events, err := r.Events(r.ctx, tenant, parent.ID)
	require.NoError(t, err)
	var verbs []ledger.Verb
	for _, e := range events {
		verbs = append(verbs, e.Verb)
	}
	require.Equal(t, []ledger.Verb{ledger.VerbOpen, ledger.VerbFinish, ledger.VerbCompensate, ledger.VerbGiveUp, ledger.VerbRecompensate, ledger.VerbCompensated}, verbs)
	contradicted, err := r.Events(r.ctx, tenant, child.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.VerbContradict, contradicted[2].Verb)
	require.Equal(t, contradicted[2].WriteID, events[4].WriteID, "the contradiction and the recompensation are one write")
	require.True(t, r.stopped("release_order"))
	require.False(t, r.stopped("hold_order"))
	_, _, err = r.OpenOperation(r.ctx, r.undo(r.read(parent), nil))
	require.True(t, fault.Is(err, fault.UndoImpossible), "%v", err)
}

// TestUndo_ContradictedBesideANewer: the older undo turns out to have happened
// while a newer one waits. The parent is compensated, and the newer one is never
// sent, also not after the tool was unfrozen; its end moves the parent no more.
func TestUndo_ContradictedBesideANewer(t *testing.T) {
	for _, tool := range []string{"release_order", "cancel_order"} {
		t.Run(tool, func(t *testing.T) { contradictedBesideANewer(t, tool) })
	}
}

// contradictedBesideANewer: under another tool not even the key stands between the
// two.
func contradictedBesideANewer(t *testing.T, tool string) {
	r := newRig(t)
	parent := r.done("k")
	older := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
	newer := r.born(r.undo(r.read(parent), func(q *ledger.OpenRequest) { q.Preview.Tool = tool; asks(q) }))
	newer, err := r.Approve(r.ctx, newer, ledger.Decision{Operation: newer.ID, Round: 1, Person: "per_1", Verb: ledger.VerbApprove, At: r.Now()}, true)
	require.NoError(t, err)
	epoch := r.epoch()

	older = r.proven(older, 1, "u1")
	require.Equal(t, ledger.Succeeded, older.State)
	r.together(older, parent, ledger.VerbCompensated, ledger.Compensated)
	_, err = r.Mark(r.ctx, newer, ledger.MarkRequest{Epoch: epoch, Timeout: time.Second})
	require.True(t, errors.Is(err, ledger.ErrMoved) || fault.Is(err, fault.InvalidState), "%v", err)
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant, Tool: "release_order"}, By: person, Reason: "looked at"}))
	_, err = r.Mark(r.ctx, newer, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
	require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
	_, err = r.Cancel(r.ctx, tenant, newer.ID, person, "done already")
	require.NoError(t, err)
	require.Equal(t, ledger.Compensated, r.read(parent).State)
}

// TestUndo_ParentMovesUnderItsEnd: the end is written beside the parent as it
// stands, however often that moved meanwhile.
func TestUndo_ParentMovesUnderItsEnd(t *testing.T) {
	r := newRig(t)
	parent := r.done("k")
	child := r.born(r.undo(parent, nil))
	r.store.Store = &overtaking{Store: r.store.Store, parent: parent, times: 3}
	child = r.concluded(child, tools.Outcome{Verdict: tools.Succeeded, EffectID: "u1"})
	require.Equal(t, ledger.Succeeded, child.State)
	r.together(child, parent, ledger.VerbCompensated, ledger.Compensated)
	require.EqualValues(t, parent.Version+5, r.read(parent).Version)
}
