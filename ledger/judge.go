package ledger

import "countersign/tools"

// Judge gives the verdict on all attempts: a pure function of everything that
// was proven. Any proof of an effect means succeeded; failed only when every
// attempt is proven unsent or without effect; else unknown. A definite
// rejection proves only its own attempt.
func Judge(attempts []Attempt) State {
	if len(attempts) == 0 {
		return Unknown
	}
	open := false
	for _, a := range attempts {
		switch a.Proof {
		case tools.Succeeded:
			return Succeeded
		case tools.NotSent, tools.NoEffect:
		default:
			open = true
		}
	}
	if open {
		return Unknown
	}
	return Failed
}

// prove notes what evidence says of one attempt (n), or of all (0). A proof of
// an effect is never taken back; "unknown" proves nothing.
func prove(attempts []Attempt, n int, v tools.Verdict) []Attempt {
	out := append([]Attempt(nil), attempts...)
	for i := range out {
		a := &out[i]
		if n != 0 && a.N != n || v == tools.Unknown || a.Proof == tools.Succeeded {
			continue
		}
		if n == 0 && v == tools.Succeeded {
			continue // an effect exists; which attempt made it is settled below
		}
		a.Proof = v
	}
	if n == 0 && v == tools.Succeeded && len(out) > 0 {
		// The newest attempt not proven otherwise carries it; else the newest.
		pick := len(out) - 1
		for i := len(out) - 1; i >= 0; i-- {
			if out[i].Proof == "" {
				pick = i
				break
			}
		}
		out[pick].Proof = tools.Succeeded
	}
	return out
}

// concluded says which verb the outcome of the current attempt is, and where it
// leads: proof that nothing was sent releases the operation for another try, a
// bounded number of times, unless an effect is proven already; everything else
// finishes it by the verdict on all attempts.
func concluded(attempts []Attempt, v tools.Verdict) (Verb, State) {
	if all := Judge(attempts); v != tools.NotSent || len(attempts) >= MaxUnsent || all == Succeeded {
		return VerbFinish, all
	}
	for _, a := range attempts {
		if a.Proof != tools.NotSent {
			return VerbRelease, Unknown
		}
	}
	return VerbRelease, Pending
}
