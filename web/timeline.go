package web

import (
	"slices"

	"countersign/approvals"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
)

// stepView is one event of an operation.
type stepView struct {
	Actor, Words     string
	From, To         badge
	Moved            bool
	Code, Reason     string
	EffectID         string
	Attempt, Round   int
	NewRound, Repeat bool
	At               *moment
}

// timeline tells what happened, oldest first, with the words that people gave.
func (p *Pages) timeline(me identity.Operator, c approvals.Card, events []ledger.Event) []stepView {
	out := make([]stepView, 0, len(events))
	for _, e := range events {
		s := stepView{
			Actor: actorName(e.Actor, me.ID), Words: happened[e.Verb], From: badgeOf(e.From), To: badgeOf(e.To),
			Moved: e.From != e.To && e.From != "", EffectID: e.EffectID, Attempt: e.Attempt, Round: e.Round,
			NewRound: e.Verb == ledger.VerbRevise, At: p.when(e.At),
		}
		if s.Words == "" {
			s.Words = string(e.Verb)
		}
		if e.Reason != nil {
			s.Code, s.Reason = e.Reason.Code, e.Reason.Text
		}
		if s.Reason == "" {
			s.Reason = saidWith(c.Decisions, e)
		}
		out = append(out, s)
	}
	return out
}

// saidWith is the comment that came with a decision; an approval's stands only
// there.
func saidWith(decisions []ledger.Decision, e ledger.Event) string {
	i := slices.IndexFunc(decisions, func(d ledger.Decision) bool {
		return d.Verb == e.Verb && d.Person == e.Actor.ID && d.Round == e.Round
	})
	if i < 0 {
		return ""
	}
	return decisions[i].Reason
}

// evidenceView is one thing that is known about the outcome.
type evidenceView struct {
	Proves    string
	By        string
	EffectID  string
	Because   *value
	Attempt   int
	Status    int
	SentBytes int64
	Target    string
	Excerpt   *value
	Error     string
	At        *moment
	// Times is how often in a row it was said, since First; 0 for what was said
	// once.
	Times int
	First *moment
}

// again reports that a lookup only says what the one before it said: a day of
// questions is one line.
func again(before, e ledger.Evidence) bool {
	return e.Kind == "lookup" && before.Kind == "lookup" && e.Verdict == tools.Unknown && before.Verdict == tools.Unknown &&
		e.Answer == before.Answer && e.Because == before.Because && e.Covers == before.Covers
}

func (p *Pages) evidence(d drawer, me identity.Operator, list []ledger.Evidence) []evidenceView {
	out := make([]evidenceView, 0, len(list))
	for i, e := range list {
		v := evidenceView{
			Proves: proofOf(e), By: actorName(e.By, me.ID), EffectID: e.EffectID,
			Attempt: e.Attempt, Status: e.Seen.Status, SentBytes: e.Seen.SentBytes, Target: d.hide(e.Seen.Target),
			Error: d.hide(e.Seen.Error), At: p.when(e.At),
		}
		if v.Proves == "" {
			v.Proves = e.Kind + ": " + string(e.Verdict)
		}
		if e.Seen.Error == e.Because {
			v.Error = ""
		}
		if e.Because != "" {
			because := d.text("text", d.hide(e.Because))
			v.Because = &because
		}
		if e.Seen.Excerpt != "" {
			excerpt := d.text("text", d.hide(e.Seen.Excerpt))
			v.Excerpt = &excerpt
		}
		if i > 0 && again(list[i-1], e) {
			last := &out[len(out)-1]
			if v.Times, v.First = last.Times+1, last.First; last.Times == 0 {
				v.Times, v.First = 2, last.At
			}
			*last = v
			continue
		}
		out = append(out, v)
	}
	return out
}
