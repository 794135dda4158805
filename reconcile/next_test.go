package reconcile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/ledger"
	"countersign/reconcile"
	"countersign/tools"
)

const day = 24 * time.Hour

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// doubt is an operation whose one request got no answer.
func doubt(reversible bool) ledger.Operation {
	return ledger.Operation{
		ID: "op_1", State: ledger.Unknown, Reversible: reversible, UnknownSince: begin,
		Attempts: []ledger.Attempt{{N: 1, Fence: 1, MarkedAt: begin.Add(-10 * time.Second), Deadline: begin.Add(-8 * time.Second)}},
	}
}

func again(op ledger.Operation) ledger.Operation {
	op.Attempts = append(op.Attempts, ledger.Attempt{N: 2, Fence: 2, MarkedAt: begin, Deadline: begin})
	return op
}

// unsent is an operation that was sent and of which n retries did not get out.
func unsent(op ledger.Operation, n int) ledger.Operation {
	for range n {
		op = again(op)
		op.Attempts[len(op.Attempts)-1].Proof = tools.NotSent
	}
	return op
}

// sentLater was provably not sent two hours before it was.
func sentLater() ledger.Operation {
	op := doubt(true)
	early := op.Attempts[0]
	early.MarkedAt, early.Deadline, early.Proof = begin.Add(-2*time.Hour), begin.Add(-2*time.Hour), tools.NotSent
	op.Attempts = append([]ledger.Attempt{early}, op.Attempts...)
	return op
}

// said are answers at moments after the beginning of the doubt.
func said(covers int, kind tools.AnswerKind, at ...time.Duration) []ledger.Evidence {
	var list []ledger.Evidence
	for _, d := range at {
		list = append(list, ledger.Evidence{Kind: "lookup", Verdict: tools.Unknown, Answer: kind, Covers: covers, At: begin.Add(d)})
	}
	return list
}

func spec(c tools.Consistency, retention time.Duration) *tools.Spec {
	return &tools.Spec{Consistency: c, HonoursKey: retention > 0, KeyRetention: retention, Timeout: 10 * time.Second, MaxInFlight: time.Minute}
}

// The rows of "what can and cannot be promised, by tool capability".
func TestNext(t *testing.T) {
	// Deadline, time-out, max_in_flight and skew end 122 s after the doubt began.
	const window = 122 * time.Second
	late := []time.Duration{window, window + time.Minute, window + 2*time.Minute}
	for name, c := range map[string]struct {
		op   ledger.Operation
		seen []ledger.Evidence
		spec *tools.Spec
		now  time.Duration
		want reconcile.Do
	}{
		"none: a person at once":                            {op: doubt(true), spec: spec(tools.NoLookup, 0), want: reconcile.HandOver},
		"none, irreversible: a person at once":              {op: doubt(false), spec: spec(tools.NoLookup, 0), want: reconcile.HandOver},
		"strong: asked at once":                             {op: doubt(true), spec: spec(tools.Strong, 0), want: reconcile.Ask},
		"strong: not asked again before the pause":          {op: doubt(true), seen: said(1, tools.Absent, 0), spec: spec(tools.Strong, 0), now: 900 * time.Millisecond, want: reconcile.Wait},
		"strong: asked again after the pause":               {op: doubt(true), seen: said(1, tools.Absent, 0), spec: spec(tools.Strong, 0), now: time.Second, want: reconcile.Ask},
		"strong: absent inside the settle window is no end": {op: doubt(true), seen: said(1, tools.Absent, 0, time.Second, 3*time.Second, 7*time.Second), spec: spec(tools.Strong, 0), now: 100 * time.Second, want: reconcile.Ask},
		"strong: two absents behind it are too few":         {op: doubt(true), seen: said(1, tools.Absent, late[:2]...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Ask},
		"strong: three absents behind it are an end":        {op: doubt(true), seen: said(1, tools.Absent, late...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Absent},
		"strong: a failure between begins anew": {
			op: doubt(true), seen: append(said(1, tools.Absent, late[:2]...), append(said(1, tools.LookupFailed, late[2]), said(1, tools.Absent, late[2]+time.Minute)...)...),
			spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Ask,
		},
		"strong: not visible yet is no absence":             {op: doubt(true), seen: said(1, tools.NotVisibleYet, late...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Ask},
		"strong, irreversible: absent goes to a person":     {op: doubt(false), seen: said(1, tools.Absent, late...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.HandOver},
		"strong: answers about fewer attempts don't count":  {op: again(doubt(true)), seen: said(1, tools.Absent, late...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Ask},
		"strong: three absents in one breath count once":    {op: doubt(true), seen: said(1, tools.Absent, window, window+time.Second, window+9*time.Second), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.Ask},
		"strong: failed for ever is a person":               {op: doubt(true), seen: said(1, tools.LookupFailed, 0, time.Hour, day), spec: spec(tools.Strong, 0), now: day + time.Minute, want: reconcile.HandOver},
		"strong: an old answer is no reason for a person":   {op: doubt(true), seen: said(1, tools.LookupFailed, 0, time.Hour), spec: spec(tools.Strong, 0), now: day + time.Minute, want: reconcile.Ask},
		"strong: a day without a gateway is no budget":      {op: doubt(true), spec: spec(tools.Strong, 0), now: 3 * day, want: reconcile.Ask},
		"strong: so many questions are enough":              {op: doubt(true), seen: said(1, tools.NotVisibleYet, make([]time.Duration, 300)...), spec: spec(tools.Strong, 0), now: time.Hour, want: reconcile.HandOver},
		"eventual: absent is never an end":                  {op: doubt(true), seen: said(1, tools.Absent, late...), spec: spec(tools.Eventual, 0), now: time.Hour, want: reconcile.Ask},
		"eventual: a person after the budget":               {op: doubt(true), seen: said(1, tools.Absent, 0, time.Hour, day), spec: spec(tools.Eventual, 0), now: day + time.Minute, want: reconcile.HandOver},
		"eventual, irreversible: a person after the budget": {op: doubt(false), seen: said(1, tools.Absent, 0, time.Hour, day), spec: spec(tools.Eventual, 0), now: day + time.Minute, want: reconcile.HandOver},
		"key: the same again":                               {op: doubt(true), spec: spec(tools.NoLookup, 24*time.Hour), now: time.Second, want: reconcile.Retry},
		"key: not before the pause":                         {op: doubt(true), spec: spec(tools.NoLookup, 24*time.Hour), want: reconcile.Wait},
		"key: up to the retention less margin and time-out": {op: doubt(true), spec: spec(tools.NoLookup, day), now: day - 5*time.Minute - 20*time.Second - 1, want: reconcile.Retry},
		"key: not past the retention less its margin":       {op: doubt(true), spec: spec(tools.NoLookup, day), now: day - 5*time.Minute - 20*time.Second, want: reconcile.HandOver},
		"key: a retry that did not get out, too early":      {op: unsent(doubt(true), 1), spec: spec(tools.NoLookup, day), now: time.Second, want: reconcile.Wait},
		"key: a retry that did not get out, again":          {op: unsent(doubt(true), 1), spec: spec(tools.NoLookup, day), now: 2 * time.Second, want: reconcile.Retry},
		"key: a retry that never gets out is a person":      {op: unsent(doubt(true), ledger.MaxUnsent), spec: spec(tools.NoLookup, day), now: time.Hour, want: reconcile.HandOver},
		"key: the first that was unsent began no retention": {op: sentLater(), spec: spec(tools.NoLookup, time.Hour), now: time.Second, want: reconcile.Retry},
		"key: once only":                            {op: again(doubt(true)), spec: spec(tools.NoLookup, 24*time.Hour), now: time.Minute, want: reconcile.HandOver},
		"key, irreversible: the same again":         {op: doubt(false), spec: spec(tools.NoLookup, 24*time.Hour), now: time.Second, want: reconcile.Retry},
		"key and lookup: asked first":               {op: doubt(true), spec: spec(tools.Strong, 24*time.Hour), now: time.Second, want: reconcile.Ask},
		"key and lookup: absent, so the same again": {op: doubt(true), seen: said(1, tools.Absent, 0), spec: spec(tools.Eventual, 24*time.Hour), now: time.Second, want: reconcile.Retry},
		"key and lookup: failing thrice, so the same again": {
			op: doubt(true), seen: said(1, tools.LookupFailed, 0, time.Second, 3*time.Second), spec: spec(tools.Strong, 24*time.Hour), now: time.Minute, want: reconcile.Retry,
		},
		"key and lookup: not visible thrice, so the same again": {
			op: doubt(true), seen: said(1, tools.NotVisibleYet, 0, time.Second, 3*time.Second), spec: spec(tools.Strong, 24*time.Hour), now: time.Minute, want: reconcile.Retry,
		},
		"key and lookup: sent again, absent again: an end": {op: again(doubt(true)), seen: said(2, tools.Absent, window+time.Minute, window+2*time.Minute, window+3*time.Minute), spec: spec(tools.Strong, day), now: time.Hour, want: reconcile.Absent},
		"key and lookup, irreversible, sent again, absent again: a person": {
			op: again(doubt(false)), seen: said(2, tools.Absent, window+time.Minute, window+2*time.Minute, window+3*time.Minute), spec: spec(tools.Strong, day), now: time.Hour, want: reconcile.HandOver,
		},
		"no attempt at all: asked, not retried": {op: ledger.Operation{UnknownSince: begin}, spec: spec(tools.Strong, day), now: time.Hour, want: reconcile.Ask},
		"key and lookup: past the retention only asked": {
			op: doubt(true), seen: said(1, tools.Absent, late...), spec: spec(tools.Eventual, time.Hour), now: 2 * time.Hour, want: reconcile.Ask,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, reconcile.Next(c.op, c.seen, c.spec, begin.Add(c.now), reconcile.Settings{}).Do)
		})
	}
	require.Equal(t, reconcile.HandOver, reconcile.Next(doubt(true), nil, spec(tools.NoLookup, day), begin.Add(time.Minute), reconcile.Settings{Retries: -1}).Do,
		"where retries are off, the key changes nothing")
	presumed := doubt(true)
	presumed.Attempts[0].Presumed = true
	require.Equal(t, reconcile.HandOver, reconcile.Next(presumed, nil, spec(tools.NoLookup, 24*time.Hour), begin.Add(time.Minute), reconcile.Settings{}).Do,
		"what a lost part of the ledger may have sent is never sent again")
}

// An answer counts from when its question was put, not from when it came: what
// was read before the settle window was over proves nothing.
func TestNext_SlowAnswers(t *testing.T) {
	const window = 122 * time.Second
	seen := said(1, tools.Absent, window+time.Second, window+time.Minute, window+2*time.Minute)
	require.Equal(t, reconcile.Absent, reconcile.Next(doubt(true), seen, spec(tools.Strong, 0), begin.Add(time.Hour), reconcile.Settings{}).Do)
	seen[0].Seen.SentAt = begin.Add(window - time.Second)
	require.Equal(t, reconcile.Ask, reconcile.Next(doubt(true), seen, spec(tools.Strong, 0), begin.Add(time.Hour), reconcile.Settings{}).Do)
}

// The pause doubles and is capped, and a wait always ends later than now.
func TestNext_Pauses(t *testing.T) {
	var seen []ledger.Evidence
	at := time.Duration(0)
	var pauses []time.Duration
	for range 12 {
		seen = append(seen, said(1, tools.NotVisibleYet, at)...)
		step := reconcile.Next(doubt(true), seen, spec(tools.Strong, 0), begin.Add(at), reconcile.Settings{})
		require.Equal(t, reconcile.Wait, step.Do)
		pauses = append(pauses, step.At.Sub(begin.Add(at)))
		at += pauses[len(pauses)-1]
	}
	require.Equal(t, []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 128 * time.Second, 256 * time.Second, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute,
	}, pauses)
}

// Whatever is known, a dangerous step is taken only under its conditions (I6, I7).
func TestNext_NeverDangerous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := doubt(rapid.Bool().Draw(t, "reversible"))
		for range rapid.IntRange(0, 2).Draw(t, "more attempts") {
			op = again(op)
		}
		for i := range op.Attempts {
			op.Attempts[i].Proof = rapid.SampledFrom([]tools.Verdict{"", tools.NotSent, tools.NoEffect}).Draw(t, "proof")
			op.Attempts[i].Presumed = rapid.IntRange(0, 9).Draw(t, "presumed") == 0
		}
		s := spec(rapid.SampledFrom([]tools.Consistency{tools.NoLookup, tools.Eventual, tools.Strong}).Draw(t, "consistency"),
			rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "retention"))
		var seen []ledger.Evidence
		at := time.Duration(0)
		for range rapid.IntRange(0, 8).Draw(t, "answers") {
			at += time.Duration(rapid.IntRange(0, 200).Draw(t, "s")) * time.Second
			kind := rapid.SampledFrom([]tools.AnswerKind{tools.Absent, tools.NotVisibleYet, tools.LookupFailed}).Draw(t, "kind")
			seen = append(seen, said(len(op.Attempts), kind, at)...)
		}
		now := begin.Add(at + time.Duration(rapid.IntRange(0, 100_000).Draw(t, "later"))*time.Second)
		settings := reconcile.Settings{Retries: rapid.SampledFrom([]int{-1, 1, 2}).Draw(t, "retries")}
		step := reconcile.Next(op, seen, s, now, settings)
		switch step.Do {
		case reconcile.Retry:
			require.True(t, s.HonoursKey)
			var first time.Time
			sent := 0
			for _, a := range op.Attempts {
				require.False(t, a.Presumed)
				if a.Proof == tools.NotSent {
					continue
				}
				if sent++; sent == 1 {
					first = a.MarkedAt
				}
			}
			require.Positive(t, sent, "a retry repeats what was sent")
			require.LessOrEqual(t, sent, max(0, settings.Retries))
			require.Equal(t, first.Add(s.KeyRetention-s.Timeout-5*time.Minute), step.NotAfter)
			require.True(t, now.Before(step.NotAfter))
			require.True(t, len(seen) > 0 || s.Consistency == tools.NoLookup, "asked first")
		case reconcile.Absent:
			require.Equal(t, tools.Strong, s.Consistency)
			require.True(t, op.Reversible)
			window := op.Attempts[len(op.Attempts)-1].Deadline.Add(s.Timeout + s.MaxInFlight + time.Minute)
			n, counted := 0, now.Add(time.Hour)
			for i := len(seen) - 1; i >= 0 && seen[i].Answer == tools.Absent && !seen[i].At.Before(window); i-- {
				if counted.Sub(seen[i].At) >= 10*time.Second {
					n, counted = n+1, seen[i].At
				}
			}
			require.GreaterOrEqual(t, n, 3, "often enough, in a row, behind the window, apart")
		case reconcile.Wait:
			require.True(t, step.At.After(now))
			require.False(t, step.At.After(now.Add(5*time.Minute)), "nothing waits longer than the cap")
		case reconcile.HandOver:
			require.NotEmpty(t, step.Why)
		}
	})
}

// As long as time passes and questions are asked when Next says so, every doubt
// comes to an end or to a person within the budget and a bounded number of steps,
// whatever is answered (I21).
func TestNext_EveryDoubtEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := doubt(rapid.Bool().Draw(t, "reversible"))
		s := spec(rapid.SampledFrom([]tools.Consistency{tools.NoLookup, tools.Eventual, tools.Strong}).Draw(t, "consistency"),
			rapid.SampledFrom([]time.Duration{0, time.Hour, 24 * time.Hour}).Draw(t, "retention"))
		kinds := rapid.SliceOfN(rapid.SampledFrom([]tools.AnswerKind{tools.Absent, tools.NotVisibleYet, tools.LookupFailed}), 1, 4).Draw(t, "kinds")
		var seen []ledger.Evidence
		now := begin
		for steps := 0; ; steps++ {
			require.Less(t, steps, 2000)
			step := reconcile.Next(op, seen, s, now, reconcile.Settings{})
			switch step.Do {
			case reconcile.Wait:
				now = step.At
			case reconcile.Ask:
				seen = append(seen, ledger.Evidence{Kind: "lookup", Verdict: tools.Unknown, Answer: kinds[len(seen)%len(kinds)], Covers: len(op.Attempts), At: now})
			case reconcile.Retry: // again without an answer
				op = again(op)
				op.Attempts[len(op.Attempts)-1].MarkedAt, op.Attempts[len(op.Attempts)-1].Deadline = now, now.Add(2*time.Second)
				now = now.Add(10 * time.Second)
				op.UnknownSince = now
			default:
				require.False(t, now.After(begin.Add(2*day)))
				return
			}
		}
	})
}

// TestNext_RetentionIsNoPromise: a tool for which a retention stands, and which does
// not honour keys, is never sent the same again (I3).
func TestNext_RetentionIsNoPromise(t *testing.T) {
	s := spec(tools.NoLookup, day)
	s.HonoursKey = false
	require.Equal(t, reconcile.HandOver, reconcile.Next(doubt(true), nil, s, begin.Add(time.Minute), reconcile.Settings{}).Do)
}

// TestNext_AnswersAboutOlderAttempts: what was said before the newest attempt, or in
// an earlier doubt, says nothing about this one.
func TestNext_AnswersAboutOlderAttempts(t *testing.T) {
	long := []time.Duration{10 * time.Minute, 11 * time.Minute, 12 * time.Minute}
	for name, c := range map[string]struct {
		op    ledger.Operation
		asked []ledger.Evidence
	}{
		"before the newest attempt": {again(doubt(true)), said(1, tools.Absent, long...)},
		"in an earlier doubt":       {doubt(true), said(1, tools.Absent, -3*time.Minute, -2*time.Minute, -time.Minute)},
	} {
		require.Equal(t, reconcile.Ask, reconcile.Next(c.op, c.asked, spec(tools.Strong, 0), begin.Add(time.Hour), reconcile.Settings{}).Do, name)
	}
}

// TestNext_RetentionBeginsWithTheFirst: a tool remembers a key from the first
// request on, however often the same was sent since (I6).
func TestNext_RetentionBeginsWithTheFirst(t *testing.T) {
	op, s := again(doubt(true)), spec(tools.NoLookup, time.Hour)
	often := reconcile.Settings{Retries: 5}
	last := op.Attempts[0].MarkedAt.Add(time.Hour - s.Timeout - 5*time.Minute)
	step := reconcile.Next(op, nil, s, last.Add(-time.Second), often)
	require.Equal(t, reconcile.Retry, step.Do)
	require.Equal(t, last, step.NotAfter)
	require.Equal(t, reconcile.HandOver, reconcile.Next(op, nil, s, last, often).Do)
}
