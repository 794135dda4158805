package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// dying is a store that goes away behind a number of transitions.
type dying struct {
	ledger.Store
	left int
}

func (d *dying) Apply(ctx context.Context, t ledger.Transition) error {
	if d.left == 0 {
		return errors.New("connection refused")
	}
	d.left--
	return d.Store.Apply(ctx, t)
}

// halfContradicted contradicts an operation, and the gateway dies before the
// doubt is settled.
func (r *rig) halfContradicted(op ledger.Operation, effect string) {
	r.t.Helper()
	alive := r.store.Store
	r.store.Store = &dying{Store: alive, left: 1}
	_, err := r.AddEvidence(r.ctx, tenant, r.proof(op, 1, effect))
	require.True(r.t, fault.Is(err, fault.StoreUnavailable), "%v", err)
	r.store.Store = alive
	require.Equal(r.t, ledger.Unknown, r.read(op).State)
}

// TestUndo_ADoubtOutlivesTheNewer: the older undo is in doubt again when the newer
// one ends without effect. The parent is not given up on while an undo of it may
// have taken effect, and it is compensated when that one turns out to have.
func TestUndo_ADoubtOutlivesTheNewer(t *testing.T) {
	ends := map[string]func(*rig, ledger.Operation) error{
		"cancelled": func(r *rig, c ledger.Operation) error {
			_, err := r.Cancel(r.ctx, tenant, c.ID, person, "no")
			return err
		},
		"rejected": func(r *rig, c ledger.Operation) error {
			_, err := r.Reject(r.ctx, c, ledger.Decision{Operation: c.ID, Round: 1, Person: "per_1", Verb: ledger.VerbReject, Reason: "no", At: r.Now()})
			return err
		},
		"expired": func(r *rig, c ledger.Operation) error {
			r.advance(2 * time.Hour)
			_, err := r.ExpireOverdue(r.ctx, tenant, c.ID)
			return err
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.done("k")
			older := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
			newer := r.born(r.undo(r.read(parent), asks))
			r.halfContradicted(older, "u1")

			require.NoError(t, end(r, newer))
			require.True(t, r.read(newer).State.Void())
			require.Equal(t, ledger.Compensating, r.read(parent).State, "an undo of it may have taken effect")
			_, err := r.Resolve(r.ctx, tenant, older.ID, person, ledger.Statement{Happened: true, EffectID: "u1", Reason: "seen outside"})
			require.NoError(t, err)
			r.together(older, parent, ledger.VerbCompensated, ledger.Compensated)
		})
	}
}

// TestUndo_ADoubtMeetsTheNewersEnd: the newer undo ends just before the
// contradiction of the older one is written, or just behind it was read. Whoever
// comes second sees the other.
func TestUndo_ADoubtMeetsTheNewersEnd(t *testing.T) {
	r := newRig(t)
	parent := r.done("k")
	older := r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
	newer := r.born(r.undo(r.read(parent), asks))
	alive := r.store.Store
	met := false
	r.store.Store = &before{Store: alive, apply: func() {
		if met {
			return
		}
		met = true
		r.halfContradicted(older, "u1")
	}}
	_, err := r.Cancel(r.ctx, tenant, newer.ID, person, "no")
	require.NoError(t, err)
	r.store.Store = alive
	require.Equal(t, ledger.Compensating, r.read(parent).State)
	_, err = r.Resolve(r.ctx, tenant, older.ID, person, ledger.Statement{Happened: true, EffectID: "u1", Reason: "seen outside"})
	require.NoError(t, err)
	r.together(older, parent, ledger.VerbCompensated, ledger.Compensated)
}

// TestRetry_NeverBesideAnEffect: an operation is in doubt, and then another one for
// the same is proven to have taken effect. It is not sent again, also when the
// freeze was lifted over the doubt: what it might find done nobody can tell. A
// person looks at it.
func TestRetry_NeverBesideAnEffect(t *testing.T) {
	undoes := func(r *rig) (older, newer ledger.Operation) {
		parent := r.done("k")
		older = r.concluded(r.born(r.undo(parent, nil)), tools.Outcome{Verdict: tools.NoEffect})
		return older, r.concluded(r.born(r.undo(r.read(parent), nil)), tools.Outcome{Verdict: tools.Unknown})
	}
	generations := func(r *rig) (older, newer ledger.Operation) {
		older = r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
		return older, r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.Unknown})
	}
	goals := func(r *rig) (older, newer ledger.Operation) {
		goal := func(tool string) func(*ledger.OpenRequest) {
			return func(q *ledger.OpenRequest) {
				q.Preview.Tool, q.Preview.Plan.Tool, q.Preview.Plan.Goal = tool, tool, &tools.Goal{Group: "trip", Value: "7"}
				q.Preview.PlanDigest = q.Preview.Plan.Digest()
			}
		}
		older = r.concluded(r.born(r.ask("a", goal("fly"))), tools.Outcome{Verdict: tools.NoEffect})
		return older, r.concluded(r.born(r.ask("b", goal("ride"))), tools.Outcome{Verdict: tools.Unknown})
	}
	for name, make := range map[string]func(*rig) (older, newer ledger.Operation){"undoes": undoes, "generations": generations, "goals": goals} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			older, newer := make(r)
			epoch := r.epoch()
			ask := func(epoch int64) error {
				_, err := r.Retry(r.ctx, newer, ledger.RetryRequest{Epoch: epoch, Timeout: time.Second, NotAfter: r.Now().Add(time.Hour), Why: "no answer"})
				return err
			}
			require.Equal(t, ledger.Succeeded, r.proven(older, 1, "e1").State)
			require.Error(t, ask(epoch))
			require.Equal(t, ledger.Unknown, r.read(newer).State)
			require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{
				Scope: ledger.Scope{Tenant: tenant, Tool: older.Tool}, By: person, Reason: "looked at", Override: true,
			}))
			newer = r.read(newer)
			err := ask(r.epoch())
			require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
			newer = r.read(newer)
			require.Equal(t, ledger.Unknown, newer.State)
			require.Len(t, newer.Attempts, 1, "nothing is sent again")
			require.True(t, newer.OnList, "a person looks")
		})
	}
}

// TestRetry_OfTheOneThatStands: what is alone is sent again as before, also an
// undo, a later generation and a wanted repeat.
func TestRetry_OfTheOneThatStands(t *testing.T) {
	doubt := tools.Outcome{Verdict: tools.Unknown}
	for name, make := range map[string]func(*rig) ledger.Operation{
		"an undo": func(r *rig) ledger.Operation { return r.concluded(r.born(r.undo(r.done("k"), nil)), doubt) },
		"a later generation": func(r *rig) ledger.Operation {
			r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
			return r.concluded(r.born(r.ask("k", nil)), doubt)
		},
		"a wanted repeat": func(r *rig) ledger.Operation {
			first := r.done("k")
			return r.concluded(r.born(r.ask("k", func(q *ledger.OpenRequest) { q.Preview.AgainOf = first.ID })), doubt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			op := make(r)
			op, err := r.Retry(r.ctx, op, ledger.RetryRequest{Epoch: r.epoch(), Timeout: time.Second, NotAfter: r.Now().Add(time.Hour), Why: "no answer"})
			require.NoError(t, err)
			require.Equal(t, ledger.Running, op.State)
		})
	}
}
