package shop

import (
	"fmt"
	"net/http"
	"time"
)

// listLetters is GET /letters, for people: it knows no reference and no key, so
// a caller who lost a reply can't tell its letter from another one like it.
func (s *Shop) listLetters(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	letters := s.state.letters.all()
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Letter]{letters})
}

// letterTaken is the answer to a letter.
type letterTaken struct {
	ID string `json:"id"`
}

// postLetter is POST /letters {to, subject, body}; to is an address id. Every
// request sends a letter.
func (s *Shop) postLetter(w http.ResponseWriter, r *http.Request) {
	var in struct {
		To      string `json:"to"`
		Subject string `json:"subject"`
		Body    string `json:"body"`
	}
	err := decode(r, bodyOf(r), &in)
	if err == nil {
		err = text("subject", in.Subject, 1, 120)
	}
	if err == nil {
		err = text("body", in.Body, 1, 8000)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	s.act(w, r, func(st *state, now time.Time) (decision, error) {
		address, ok := st.addresses.get(in.To)
		if !ok {
			return decision{}, refuse(http.StatusUnprocessableEntity, "to is an address id; there is no address %q.", in.To)
		}
		letter := Letter{ID: st.nextID(VerbSend), To: in.To, Subject: in.Subject, Body: in.Body, Created: now}
		return decision{
			effect: &Effect{
				Verb: VerbSend, ID: letter.ID, Target: "letter/" + letter.ID,
				Text: fmt.Sprintf("A letter leaves for %s: %q.", address.Customer, letter.Subject),
				Rows: Rows{Letter: &letter},
			},
			status: http.StatusAccepted,
			body:   letterTaken{letter.ID},
		}, nil
	})
}
