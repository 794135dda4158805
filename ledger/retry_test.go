package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// doubtful opens an operation whose outcome is not known.
func (r *rig) doubtful(key string) ledger.Operation {
	r.t.Helper()
	return r.concluded(r.born(r.ask(key, nil)), tools.Outcome{Verdict: tools.Unknown})
}

// again is a retry as it was evaluated just now.
func (r *rig) again() ledger.RetryRequest {
	r.t.Helper()
	return ledger.RetryRequest{Epoch: r.epoch(), Timeout: time.Second, NotAfter: r.Now().Add(time.Minute), Why: "no answer"}
}

// TestRetry_OnlyWhileTheToolRemembers: up to the last moment of the key retention,
// by the ledger's clock and by the store's.
func TestRetry_OnlyWhileTheToolRemembers(t *testing.T) {
	r := newRig(t)
	op := r.doubtful("k")
	never := r.again()
	never.NotAfter = time.Time{}
	_, err := r.Retry(r.ctx, op, never)
	require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
	q := r.again()
	r.advance(time.Minute + 1)
	_, err = r.Retry(r.ctx, op, q)
	require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
	q = r.again()
	truly := r.store.Store
	r.store.Store = &before{Store: truly, apply: func() { r.advance(time.Hour) }}
	_, err = r.Retry(r.ctx, op, q)
	require.ErrorIs(t, err, ledger.ErrMoved, "the store's clock decides in the write")
	r.store.Store = truly
	require.Equal(t, op, r.read(op))
	q = r.again()
	r.advance(time.Minute)
	marked, err := r.Retry(r.ctx, op, q)
	require.NoError(t, err)
	require.Equal(t, ledger.Running, marked.State)
	require.Len(t, marked.Attempts, 2)
	require.EqualValues(t, 2, marked.Fence)
	require.Equal(t, 1, marked.Retries())
	require.Equal(t, op.UpstreamKey, marked.UpstreamKey)
	require.True(t, marked.AskAt.IsZero())
	require.Equal(t, ledger.VerbRetry, r.last(op).Verb)
	require.Equal(t, op.PlanDigest, r.last(op).Digest)
}

// TestRetry_UnderFreezes: the caller asks the guard row, which lets a repeat
// through as it does an undo: "all" stops it and "new" does not; a freeze between
// that look and the write is caught by the epoch.
func TestRetry_UnderFreezes(t *testing.T) {
	for level, stops := range map[ledger.FreezeLevel]bool{ledger.FreezeNew: false, ledger.FreezeAll: true} {
		for name, scope := range map[string]ledger.Scope{
			"tool": {Tenant: tenant, Tool: "hold_order"}, "tenant": {Tenant: tenant}, "everything": {Tenant: tenant, Everything: true},
		} {
			r := newRig(t)
			op := r.doubtful("k")
			early := r.again()
			_, err := r.Freeze(r.ctx, scope, level, person, "stop")
			require.NoError(t, err)
			_, err = r.Retry(r.ctx, op, early)
			require.ErrorIs(t, err, ledger.ErrMoved, "%s %s", name, level)
			require.Equal(t, op, r.read(op))
			g, err := r.Guard(r.ctx, tenant)
			require.NoError(t, err)
			subject := op.Subject()
			_, stopped := g.Stops(subject)
			require.True(t, stopped, "a first dispatch")
			subject.Undo = true
			_, stopped = g.Stops(subject)
			require.Equal(t, stops, stopped, "%s %s", name, level)
			if !stopped {
				_, err = r.Retry(r.ctx, op, r.again())
				require.NoError(t, err)
			}
		}
	}
}

// TestRetry_TwoRacersOneMark: and a doubt that was settled meanwhile is not sent.
func TestRetry_TwoRacersOneMark(t *testing.T) {
	r := newRig(t)
	op := r.doubtful("k")
	_, err := r.Retry(r.ctx, op, r.again())
	require.NoError(t, err)
	var lost *ledger.Lost
	_, err = r.Retry(r.ctx, op, r.again())
	require.ErrorAs(t, err, &lost)
	settled := r.doubtful("l")
	r.proven(settled, 1, "e")
	_, err = r.Retry(r.ctx, settled, r.again())
	require.ErrorAs(t, err, &lost)
}

// TestRetry_TakesItOffThePeoplesList: nobody is asked about what is under way.
func TestRetry_TakesItOffThePeoplesList(t *testing.T) {
	r := newRig(t)
	op, err := r.HandOver(r.ctx, tenant, r.doubtful("k").ID, "budget")
	require.NoError(t, err)
	op, err = r.Retry(r.ctx, op, r.again())
	require.NoError(t, err)
	require.False(t, op.OnList)
	op = r.concluded(op, tools.Outcome{Verdict: tools.Unknown})
	require.False(t, op.OnList)
	require.False(t, op.AskAt.IsZero(), "it is asked about anew")
}

// TestDoubt_Account: what the row says of its doubts, through a retry that was not
// sent, a contradiction and two different ends (R143, R144).
func TestDoubt_Account(t *testing.T) {
	r := newRig(t)
	first := r.Now()
	op := r.doubtful("k")
	check := func(doubt ledger.Doubt, since time.Time, due bool) {
		t.Helper()
		require.Equal(t, op, r.read(op))
		require.Equal(t, doubt, op.Doubt)
		require.True(t, op.FirstUnknownAt.Equal(first))
		require.True(t, op.UnknownSince.Equal(since))
		require.Equal(t, due, !op.AskAt.IsZero())
	}
	check(ledger.DoubtEntered, first, true)
	r.advance(time.Minute)
	op, err := r.Retry(r.ctx, op, r.again())
	require.NoError(t, err)
	check(ledger.DoubtEntered, first, false)
	r.advance(time.Second)
	op = r.concluded(op, tools.Outcome{Verdict: tools.NotSent})
	require.Equal(t, ledger.Unknown, op.State, "the first attempt is in doubt as before")
	require.Equal(t, ledger.VerbRelease, r.last(op).Verb)
	check(ledger.DoubtEntered, r.Now(), true)

	r.advance(time.Minute)
	op, err = r.Retry(r.ctx, op, r.again())
	require.NoError(t, err)
	op = r.concluded(op, tools.Outcome{Verdict: tools.NoEffect, Because: "refused"})
	require.Equal(t, ledger.Unknown, op.State, "a refusal proves only its own attempt")
	second := r.Now()
	check(ledger.DoubtEntered, second, true)
	op, err = r.HandOver(r.ctx, tenant, op.ID, "budget")
	require.NoError(t, err)
	check(ledger.DoubtEntered, second, false)
	require.True(t, op.OnList)
	ev := r.proof(op, 0, "")
	ev.Verdict, ev.By, ev.Covers = tools.NoEffect, ledger.Reconciler, 3
	op, err = r.AddEvidence(r.ctx, tenant, ev)
	require.NoError(t, err)
	require.Equal(t, ledger.Failed, op.State)
	require.False(t, op.OnList)
	check(ledger.DoubtReconciled, second, false)

	r.advance(time.Minute)
	ended := op.FinalAt
	op = r.proven(op, 1, "e_late")
	require.Equal(t, ledger.Succeeded, op.State)
	check(ledger.DoubtElsewhere, r.Now(), false)
	require.True(t, op.FinalAt.After(ended))
	tally, err := r.Tally(r.ctx, tenant)
	require.NoError(t, err)
	require.Equal(t, [2]int64{1, 0}, [2]int64{tally.Doubts, tally.Reconciled}, "what was found out wrongly is not called reconciled")
}

// TestDoubt_EndedByARetry counts as reconciled.
func TestDoubt_EndedByARetry(t *testing.T) {
	r := newRig(t)
	op, err := r.Retry(r.ctx, r.doubtful("k"), r.again())
	require.NoError(t, err)
	op = r.concluded(op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e"})
	require.Equal(t, ledger.DoubtReconciled, op.Doubt)
	require.Equal(t, ledger.DoubtNone, r.done("l").Doubt)
}

// TestRestore_PresumesAnAttempt: from each state that waits or runs; then only a
// proof or a person's word frees the key, and nothing is sent again.
func TestRestore_PresumesAnAttempt(t *testing.T) {
	for name, make := range map[string]func(*rig) ledger.Operation{
		"awaiting approval": func(r *rig) ledger.Operation { return r.born(r.ask("k", asks)) },
		"pending": func(r *rig) ledger.Operation {
			return r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NotSent})
		},
		"running": func(r *rig) ledger.Operation { return r.born(r.ask("k", nil)) },
	} {
		for _, happened := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				was := make(r)
				op, err := r.Restore(r.ctx, tenant, was.ID)
				require.NoError(t, err)
				require.Equal(t, op, r.read(was))
				require.Equal(t, ledger.Unknown, op.State)
				require.True(t, op.OnList && op.Touched() && op.LeaseUntil.IsZero() && op.AskAt.IsZero())
				require.Len(t, op.Attempts, len(was.Attempts)+1)
				require.True(t, op.Attempts[len(was.Attempts)].Presumed)
				require.Greater(t, op.Fence, was.Fence, "whoever held it is late")
				require.Equal(t, ledger.VerbRestored, r.last(op).Verb)
				_, err = r.Restore(r.ctx, tenant, was.ID)
				require.True(t, fault.Is(err, fault.InvalidState), "once: %v", err)

				h, err := r.Head(r.ctx, tenant, "hold_order", "k")
				require.NoError(t, err)
				s, err := ledger.Stand(h, op.ArgsDigest, "")
				require.NoError(t, err)
				require.Equal(t, ledger.AdviceReplay, s.Advice, "the key is not free")
				_, err = r.Retry(r.ctx, op, r.again())
				require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
				for verb, do := range map[ledger.Verb]func() (ledger.Operation, error){
					ledger.VerbCancel: func() (ledger.Operation, error) { return r.Cancel(r.ctx, tenant, op.ID, person, "") },
					ledger.VerbExpire: func() (ledger.Operation, error) {
						return r.Expire(r.ctx, tenant, op.ID, person, ledger.Reason{Code: "x"})
					},
				} {
					_, err = do()
					require.True(t, fault.Is(err, fault.InvalidState), "%s: %v", verb, err)
				}
				if name == "running" { // its worker comes back
					r.concluded(was, tools.Outcome{Verdict: tools.NoEffect, Because: "refused"})
					require.Equal(t, ledger.Unknown, r.read(op).State, "that proves only its own attempt")
				}

				said := ledger.Statement{Happened: happened, Reason: "looked"}
				want := ledger.Failed
				if happened {
					said.EffectID, want = "e", ledger.Succeeded
				}
				op, err = r.Resolve(r.ctx, tenant, op.ID, person, said)
				require.NoError(t, err)
				require.Equal(t, want, op.State)
				h, err = r.Head(r.ctx, tenant, "hold_order", "k")
				require.NoError(t, err)
				s, err = ledger.Stand(h, op.ArgsDigest, "")
				require.NoError(t, err)
				require.Equal(t, happened, s.Advice == ledger.AdviceReplay)
			})
		}
	}
	t.Run("what has its answer, or is in doubt, is left alone", func(t *testing.T) {
		r := newRig(t)
		for _, op := range []ledger.Operation{r.done("a"), r.doubtful("b")} {
			_, err := r.Restore(r.ctx, tenant, op.ID)
			require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
			require.Equal(t, op, r.read(op))
		}
	})
}
