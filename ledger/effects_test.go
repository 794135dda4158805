package ledger_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

// seen is evidence of an effect of the first attempt.
func seen(l *ledger.Ledger, op ledger.Operation, effect string) ledger.Evidence {
	return ledger.Evidence{
		ID: "evd_" + effect, Operation: op.ID, Attempt: 1, Kind: "lookup", Verdict: tools.Succeeded,
		EffectID: effect, By: ledger.Gateway("test"), At: l.Now(),
	}
}

func frozen(t *testing.T, l *ledger.Ledger) bool {
	t.Helper()
	g, err := l.Guard(context.Background(), "default")
	require.NoError(t, err)
	f, ok := g.Frozen("hold_order")
	return ok && f.Level == ledger.FreezeAll
}

// TestEffects_TwoAtTheSameMoment: two effects are noticed although neither
// stood on the row yet when the other came (I4).
func TestEffects_TwoAtTheSameMoment(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
	require.NoError(t, err)
	// One racer has stored its evidence and not yet weighed it.
	require.NoError(t, s.AddEvidence(ctx, "default", seen(l, op, "e1")))
	op, err = l.AddEvidence(ctx, "default", seen(l, op, "e2"))
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.True(t, frozen(t, l))
}

// TestEffects_SecondInTheConclusion: the outcome of a dispatch is the second
// effect of its operation.
func TestEffects_SecondInTheConclusion(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	_, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.NoError(t, err)
	require.False(t, frozen(t, l))
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e2"})
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.True(t, frozen(t, l))
}

// TestEffects_SecondInAStatement: a person names another effect than the one
// that late evidence named.
func TestEffects_SecondInAStatement(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
	require.NoError(t, err)
	require.NoError(t, s.AddEvidence(ctx, "default", seen(l, op, "e1")))
	_, err = l.Resolve(ctx, "default", op.ID, ledger.Actor{Kind: "operator", ID: "per_1"}, ledger.Statement{Happened: true, EffectID: "e2", Reason: "seen"})
	require.NoError(t, err)
	require.True(t, frozen(t, l))
}

// TestEffects_ContradictedUnderAWiderFreeze: the tool is frozen itself, so that
// lifting the wider freeze does not let it go on.
func TestEffects_ContradictedUnderAWiderFreeze(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.NoEffect, Because: "no"})
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, op.State)
	_, err = l.Freeze(ctx, ledger.Scope{Tenant: "default", Tool: ""}, ledger.FreezeAll, ledger.Gateway("test"), "stop")
	require.NoError(t, err)
	op, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.NoError(t, l.Unfreeze(ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: "default"}, By: ledger.Gateway("test")}))
	require.True(t, frozen(t, l))
}

// TestFreeze_NeverLoosens: a weaker freeze of a scope leaves the stricter one.
func TestFreeze_NeverLoosens(t *testing.T) {
	ctx := context.Background()
	l, _ := newForgetful(t)
	_, err := l.Freeze(ctx, ledger.Scope{Tenant: "default", Tool: "hold_order"}, ledger.FreezeAll, ledger.Gateway("contradiction"), "two effects")
	require.NoError(t, err)
	_, err = l.Freeze(ctx, ledger.Scope{Tenant: "default", Tool: "hold_order"}, ledger.FreezeNew, ledger.Gateway("test"), "stop")
	require.NoError(t, err)
	require.True(t, frozen(t, l))
}

// TestConclude_SuccessNeedsAnEffect: a success without its effect id is no
// proof (I8); what was seen is kept.
func TestConclude_SuccessNeedsAnEffect(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Succeeded, Because: "200"})
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, op.State)
	evidence, err := l.Evidence(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Len(t, evidence, 1)
}

// TestConclude_RepeatedIsOneEvidence: a worker that repeats its outcome, since
// it did not learn that it was written, leaves one piece of evidence.
func TestConclude_RepeatedIsOneEvidence(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	for range 3 {
		_, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
		require.NoError(t, err)
	}
	evidence, err := l.Evidence(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Len(t, evidence, 1)
}

// TestConclude_UnsentBesideAProof: an attempt that was not sent does not hide
// that an earlier one is proven to have happened.
func TestConclude_UnsentBesideAProof(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	_, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.NotSent})
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.Equal(t, "e1", op.EffectID)
}

// unwilling is a store that takes no evidence by itself.
type unwilling struct{ ledger.Store }

func (unwilling) AddEvidence(context.Context, string, ledger.Evidence) error { return errLost }

// TestEvidence_IsOneWriteWithItsMove: no crash leaves proof of an effect in the
// ledger beside a void operation whose key is free, or a doubt that it ends.
func TestEvidence_IsOneWriteWithItsMove(t *testing.T) {
	ctx := context.Background()
	for name, verdict := range map[string]tools.Verdict{"a doubt": tools.Unknown, "an end without effect": tools.NoEffect} {
		t.Run(name, func(t *testing.T) {
			l, s := newForgetful(t)
			op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
			require.NoError(t, err)
			op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: verdict})
			require.NoError(t, err)
			s.Store = unwilling{s.Store}
			op, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
			require.NoError(t, err)
			require.Equal(t, ledger.Succeeded, op.State)
			evidence, err := l.Evidence(ctx, "default", op.ID)
			require.NoError(t, err)
			require.Len(t, evidence, 2)
		})
	}
}

// TestEvidence_IsKeptThoughItCannotBeWeighed: evidence outlives a move that the
// store refuses.
func TestEvidence_IsKeptThoughItCannotBeWeighed(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
	require.NoError(t, err)
	s.script = []bool{false, false, false, false} // the resolving write is lost at all tries
	_, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
	evidence, err := l.Evidence(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Len(t, evidence, 2)
	op, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.NoError(t, err, "told again, it is weighed and kept once")
	require.Equal(t, ledger.Succeeded, op.State)
	evidence, err = l.Evidence(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Len(t, evidence, 2)
}

// TestEvidence_OfARunningOperation: proof that came while it ran, from elsewhere
// than its worker, is not forgotten when the worker dies.
func TestEvidence_OfARunningOperation(t *testing.T) {
	ctx := context.Background()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ahead := time.Duration(0)
	s := &forgetful{Store: db}
	l, err := ledger.Open(ctx, ledger.Config{Store: s, Now: func() time.Time { return time.Now().Add(ahead) }})
	require.NoError(t, err)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.AddEvidence(ctx, "default", seen(l, op, "e1"))
	require.NoError(t, err)
	require.Equal(t, ledger.Running, op.State, "its worker may still say more")
	ahead = time.Minute
	op, err = l.LoseLease(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	require.Equal(t, "e1", op.EffectID)
}

// TestEvidence_CoversNoLaterAttempt: what a person said of all attempts says
// nothing of one that was made after it.
func TestEvidence_CoversNoLaterAttempt(t *testing.T) {
	op := ledger.Operation{Attempts: []ledger.Attempt{{N: 1}, {N: 2}}}
	said := ledger.Evidence{ID: "evd_1", Kind: "statement", Verdict: tools.NoEffect, Covers: 1}
	require.Equal(t, ledger.Unknown, ledger.Judge(ledger.Fold(op, said).Attempts))
	said.Covers = 2
	require.Equal(t, ledger.Failed, ledger.Judge(ledger.Fold(op, said).Attempts))
}
