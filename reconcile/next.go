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
	// Budget is how long a doubt is asked about, from the first question on, before
	// a person is asked; 24 h.
	Budget time.Duration
	// Asks bounds the questions of one doubt, and with them its evidence; 300,
	// which the defaults of pauses and budget don't reach.
	Asks int
	// Repeats is how often in a row "absent" must be said after the settle window
	// before it counts; 3. Answers closer together than Spacing (10 s) count once.
	Repeats int
	Spacing time.Duration
	// Retries is how often a tool that honours keys is sent the same again; 1, and
	// none when negative.
	Retries int
	// RetentionMargin is kept off the end of a tool's key retention, beside its
	// time-out; 5 min.
	RetentionMargin time.Duration
	// Skew is added to the settle window for clocks that differ; 60 s.
	Skew time.Duration
}

// withDefaults fills in what is not said.
func (s Settings) withDefaults() Settings {
	span := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	count := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	span(&s.FirstPause, time.Second)
	span(&s.MaxPause, 5*time.Minute)
	span(&s.Budget, 24*time.Hour)
	span(&s.Spacing, 10*time.Second)
	span(&s.RetentionMargin, 5*time.Minute)
	span(&s.Skew, time.Minute)
	count(&s.Asks, 300)
	count(&s.Repeats, 3)
	if s.Retries == 0 {
		s.Retries = 1
	}
	return s
}

// withoutRetries are the settings while nothing may be sent again.
func (s Settings) withoutRetries() Settings {
	s.Retries = -1
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
	At  time.Time // of Wait
	Why string    // of Retry, HandOver and Absent; for people
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
//     everything else when the budget is used up, on a fresh answer.
func Next(op ledger.Operation, evidence []ledger.Evidence, spec *tools.Spec, now time.Time, s Settings) Step {
	s = s.withDefaults()
	asked := lookupsOf(op, evidence)
	r := repeatOf(op, spec, now, s)
	switch {
	case !askable(spec) && !r.may:
		return Step{Do: HandOver, Why: whyNobody(op, spec, r)}
	case !askable(spec):
		return after(op.UnknownSince.Add(r.pause), now, Step{Do: Retry, NotAfter: r.notAfter, Why: "No answer came, the tool can't be asked, and it honours the key."})
	case len(asked) == 0:
		return Step{Do: Ask}
	}
	last := asked[len(asked)-1]
	due := last.At.Add(pause(len(asked), s))
	switch {
	case r.may && last.Answer == tools.Absent:
		return after(latest(due, op.UnknownSince.Add(r.pause)), now, Step{Do: Retry, NotAfter: r.notAfter, Why: "The outside system does not show it, and it honours the key."})
	case r.may && len(asked) >= s.Repeats:
		return after(latest(due, op.UnknownSince.Add(r.pause)), now, Step{Do: Retry, NotAfter: r.notAfter, Why: "The outside system can't say, and it honours the key."})
	case spec.Consistency == tools.Strong && absentInARow(asked, settled(op, spec, s), s) >= s.Repeats:
		if !op.Reversible {
			return Step{Do: HandOver, Why: "The outside system does not show it. What can't be taken back is never called failed by that alone: a person must find out."}
		}
		return Step{Do: Absent, Why: "The outside system, which is authoritative, does not show it after the time in which it could still arrive."}
	case len(asked) >= s.Asks:
		return Step{Do: HandOver, Why: "The outside system was asked again and again, and it is still not known: a person must find out."}
	case !now.Before(asked[0].At.Add(s.Budget)) && now.Before(last.At.Add(s.MaxPause)):
		// An old answer is asked for once more first: the gateway may have been away.
		return Step{Do: HandOver, Why: "The outside system was asked for " + s.Budget.String() + ", and it is still not known: a person must find out."}
	}
	return after(due, now, Step{Do: Ask})
}

// askable reports that the tool declares a lookup.
func askable(spec *tools.Spec) bool {
	return spec.Consistency == tools.Strong || spec.Consistency == tools.Eventual
}

// after gives the step once its time has come, and a wait before.
func after(at, now time.Time, s Step) Step {
	if now.Before(at) {
		return Step{Do: Wait, At: at}
	}
	return s
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pause is how long is waited behind the n-th answer: doubling, capped (R114).
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
	newest := op.UnknownSince
	if n := len(op.Attempts); n > 0 {
		newest = op.Attempts[n-1].Deadline
	}
	return newest.Add(spec.Timeout + spec.MaxInFlight + s.Skew)
}

// absentInARow counts the newest answers that say "absent" and were given after
// the settle window; such as stand too close together count once.
func absentInARow(asked []ledger.Evidence, from time.Time, s Settings) int {
	n := 0
	var counted time.Time
	for i := len(asked) - 1; i >= 0 && asked[i].Answer == tools.Absent && !putAt(asked[i]).Before(from); i-- {
		if n > 0 && counted.Sub(putAt(asked[i])) < s.Spacing {
			continue
		}
		counted = putAt(asked[i])
		n++
	}
	return n
}

// putAt is when the question was put: what the outside system read for a slow
// answer is that old.
func putAt(e ledger.Evidence) time.Time {
	if sent := e.Seen.SentAt; !sent.IsZero() && sent.Before(e.At) {
		return sent
	}
	return e.At
}

// repeat says whether the same may be sent once more.
type repeat struct {
	may      bool
	notAfter time.Time
	// pause is how long is waited for it since the doubt began.
	pause time.Duration
	// spent: it was sent again as often as is allowed. presumed: the ledger was
	// restored, and what it lost may have sent it.
	spent, presumed bool
}

// repeatOf allows a retry only to a tool that honours keys, inside its key
// retention counted from the first attempt that may have been sent, a bounded
// number of times, and never when attempts are presumed that this ledger knows
// nothing of.
func repeatOf(op ledger.Operation, spec *tools.Spec, now time.Time, s Settings) (r repeat) {
	sent, unsent := 0, 0
	var first time.Time
	for _, a := range op.Attempts {
		r.presumed = r.presumed || a.Presumed
		switch {
		case a.Proof != tools.NotSent:
			if sent++; sent == 1 {
				first = a.MarkedAt
			}
		case sent > 0: // a retry that did not get out: it may be tried again, as any dispatch
			unsent++
		}
	}
	r.pause = pause(unsent+1, s)
	r.spent = sent > max(0, s.Retries) || unsent >= ledger.MaxUnsent
	r.notAfter = first.Add(spec.KeyRetention - spec.Timeout - s.RetentionMargin)
	r.may = spec.HonoursKey && spec.KeyRetention > 0 && sent > 0 && s.Retries > 0 && !r.spent && !r.presumed && now.Before(r.notAfter)
	return r
}

// whyNobody says why only a person can find out.
func whyNobody(op ledger.Operation, spec *tools.Spec, r repeat) string {
	const person = ": a person must find out in the outside system."
	switch {
	case !spec.HonoursKey:
		return "The tool can't be asked, and what it was sent can't be sent again" + person
	case r.presumed:
		return "The tool can't be asked, and a part of the ledger that is lost may have sent it" + person
	case r.spent && len(op.Attempts) > 1:
		return "The tool can't be asked, and it was sent the same again without an answer" + person
	case r.spent:
		return "The tool can't be asked, and nothing is sent again" + person
	}
	return "The tool can't be asked, and it no longer remembers the key" + person
}
