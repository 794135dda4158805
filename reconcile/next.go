package reconcile

import (
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// Settings say how patiently doubts are looked at. The zero value has the
// defaults.
type Settings struct {
	// FirstPause is the pause before the second question; it doubles up to
	// MaxPause. 1 s and 5 min.
	FirstPause, MaxPause time.Duration
	// Budget is how long a doubt is looked at before a person is asked; 24 h.
	Budget time.Duration
	// Repeats is how often "absent" must be said after the settle window before it
	// counts; 3.
	Repeats int
	// Retries is how often a tool that honours keys is sent the same again; 1, and
	// none when negative.
	Retries int
	// RetentionMargin is kept off the end of a tool's key retention; 5 min.
	RetentionMargin time.Duration
	// Skew is added to the settle window for clocks that differ; 60 s.
	Skew time.Duration
}

func (s Settings) withDefaults() Settings {
	fill := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	fill(&s.FirstPause, time.Second)
	fill(&s.MaxPause, 5*time.Minute)
	fill(&s.Budget, 24*time.Hour)
	fill(&s.RetentionMargin, 5*time.Minute)
	fill(&s.Skew, time.Minute)
	if s.Repeats <= 0 {
		s.Repeats = 3
	}
	if s.Retries == 0 {
		s.Retries = 1
	}
	return s
}

// Do is what is done about a doubt now.
type Do string

const (
	// Ask the outside system.
	Ask Do = "ask"
	// Wait until Step.At.
	Wait Do = "wait"
	// Retry: send the same bytes under the same key once more.
	Retry Do = "retry"
	// HandOver to a person.
	HandOver Do = "hand_over"
	// Absent: conclude that nothing happened.
	Absent Do = "absent"
)

// Step is what Next decided, and why.
type Step struct {
	Do  Do
	At  time.Time
	Why string
	// NotAfter is the last moment for a retry.
	NotAfter time.Time
}

// Next decides what is done about an unknown operation: a pure function of the
// operation, of everything that is known about it, and of what its tool can do.
// It never concludes anything from a timer, a failed question or an answer of a
// source that is not declared authoritative (I6, I7).
//
//   - A tool that honours keys is asked, where it can be, and sent the same again
//     when that finds nothing, as long as it remembers the key.
//   - "Absent" counts only from a lookup declared strong, after the settle window,
//     said often enough, and never for what can't be taken back.
//   - What can't be asked and not be sent again goes to a person at once;
//     everything else when the budget is used up.
func Next(op ledger.Operation, evidence []ledger.Evidence, spec *tools.Spec, now time.Time, s Settings) Step {
	s = s.withDefaults()
	asked := lookupsOf(op, evidence)
	retry, notAfter := mayRetry(op, spec, now, s)
	askable := spec.Consistency == tools.Strong || spec.Consistency == tools.Eventual
	switch {
	case !askable && !retry:
		return Step{Do: HandOver, Why: whyNobody(op, spec)}
	case !askable:
		return after(op.UnknownSince.Add(s.FirstPause), now, Step{Do: Retry, NotAfter: notAfter, Why: "No answer came, the tool can't be asked, and it honours the key."})
	case !now.Before(op.UnknownSince.Add(s.Budget)):
		return Step{Do: HandOver, Why: "The outside system was asked for " + s.Budget.String() + ", and it is still not known."}
	case len(asked) == 0:
		return Step{Do: Ask}
	}
	last := asked[len(asked)-1]
	due := last.At.Add(pause(len(asked), s))
	switch {
	case retry && last.Answer == tools.Absent:
		return after(due, now, Step{Do: Retry, NotAfter: notAfter, Why: "The outside system does not show it, and it honours the key."})
	case retry && failedInARow(asked) >= s.Repeats:
		return after(due, now, Step{Do: Retry, NotAfter: notAfter, Why: "The outside system can't be asked, and it honours the key."})
	case spec.Consistency == tools.Strong && absentInARow(asked, settled(op, spec, s)) >= s.Repeats:
		if !op.Reversible {
			return Step{Do: HandOver, Why: "The outside system does not show it. What can't be taken back is never called undone by that alone."}
		}
		return Step{Do: Absent, Why: "The outside system, which is authoritative, does not show it after the time in which it could still arrive."}
	}
	return after(due, now, Step{Do: Ask})
}

// after gives the step once its time has come, and a wait before.
func after(at, now time.Time, s Step) Step {
	if now.Before(at) {
		return Step{Do: Wait, At: at}
	}
	return s
}

// pause is how long is waited behind the n-th answer: doubling, capped.
func pause(n int, s Settings) time.Duration {
	d := s.FirstPause
	for range n - 1 {
		if d *= 2; d >= s.MaxPause {
			return s.MaxPause
		}
	}
	return min(d, s.MaxPause)
}

// lookupsOf are the answers about all attempts that there are, since the doubt
// began, oldest first.
func lookupsOf(op ledger.Operation, evidence []ledger.Evidence) []ledger.Evidence {
	var list []ledger.Evidence
	for _, e := range evidence {
		if e.Kind == "lookup" && e.Covers == len(op.Attempts) && !e.At.Before(op.UnknownSince) {
			list = append(list, e)
		}
	}
	return list
}

// settled is the moment from which "absent" may count: whoever sent the newest
// attempt can't begin any more, its connection is over, and what it sent has
// arrived or never will (assumption A3).
func settled(op ledger.Operation, spec *tools.Spec, s Settings) time.Time {
	newest := op.Attempts[len(op.Attempts)-1]
	return newest.Deadline.Add(spec.Timeout + spec.MaxInFlight + s.Skew)
}

// absentInARow counts the newest answers that say "absent" and were given after
// the settle window.
func absentInARow(asked []ledger.Evidence, from time.Time) int {
	n := 0
	for i := len(asked) - 1; i >= 0 && asked[i].Answer == tools.Absent && !asked[i].At.Before(from); i-- {
		n++
	}
	return n
}

// failedInARow counts the newest questions that got no answer.
func failedInARow(asked []ledger.Evidence) int {
	n := 0
	for i := len(asked) - 1; i >= 0 && asked[i].Answer == tools.LookupFailed; i-- {
		n++
	}
	return n
}

// mayRetry reports whether the same may be sent once more, and until when: only
// to a tool that honours keys, inside its key retention counted from the first
// attempt, a bounded number of times, and never when attempts are presumed that
// this ledger knows nothing of.
func mayRetry(op ledger.Operation, spec *tools.Spec, now time.Time, s Settings) (may bool, notAfter time.Time) {
	if !spec.HonoursKey || spec.KeyRetention <= 0 || len(op.Attempts) == 0 {
		return false, time.Time{}
	}
	sent := 0
	var first time.Time
	for _, a := range op.Attempts {
		if a.Presumed {
			return false, time.Time{}
		}
		if a.Proof != tools.NotSent {
			if sent++; sent == 1 {
				first = a.MarkedAt
			}
		}
	}
	notAfter = first.Add(spec.KeyRetention - s.RetentionMargin)
	return sent > 0 && sent <= s.Retries && now.Before(notAfter), notAfter
}

// whyNobody says why only a person can find out.
func whyNobody(op ledger.Operation, spec *tools.Spec) string {
	switch {
	case !spec.HonoursKey:
		return "The tool can't be asked, and what it was sent can't be sent again: a person must find out in the outside system."
	case len(op.Attempts) > 1:
		return "The tool can't be asked, and it was sent the same again without an answer: a person must find out in the outside system."
	}
	return "The tool can't be asked, and it no longer remembers the key: a person must find out in the outside system."
}
