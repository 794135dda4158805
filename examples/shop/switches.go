package shop

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Answer is a way to spoil the answer to the next effectful request.
type Answer string

// The ways. Those marked (effect) do what was asked first.
const (
	AnswerPlain     Answer = ""          // as it should be
	AnswerTruncated Answer = "truncated" // (effect) half of the body, then the connection ends
	AnswerNotJSON   Answer = "not_json"  // (effect) the right status with an HTML body
	AnswerHuge      Answer = "huge"      // (effect) the right body, then 32 MiB of spaces
	AnswerTrickle   Answer = "trickle"   // (effect) one byte a second
	AnswerHints     Answer = "hints"     // (effect) 1,000 interim 103 answers first
	AnswerNotDone   Answer = "not_done"  // as if it were done, and nothing is
	AnswerTooMany   Answer = "too_many"  // 429, and nothing is done
	AnswerRedirect  Answer = "redirect"  // 307 to the same address, and nothing is done
)

// answers lists the ways to spoil an answer.
var answers = []Answer{
	AnswerPlain, AnswerTruncated, AnswerNotJSON, AnswerHuge, AnswerTrickle, AnswerHints,
	AnswerNotDone, AnswerTooMany, AnswerRedirect,
}

// Switches break the shop on purpose. The zero value is a healthy shop. They
// act on effectful requests only, save LagMS, and are forgotten at a restart.
type Switches struct {
	// CutNext cuts the connection instead of replying to the next n accepted
	// requests, after their effect. A repeat under an honoured key is accepted too.
	CutNext int `json:"cut_next"`
	// ErrorNext answers 500 to the next n accepted requests, after their effect.
	ErrorNext int `json:"error_next"`
	// RefuseNext answers 422 to the next n requests and does nothing.
	RefuseNext int `json:"refuse_next"`
	// Refuse answers 422 to every request and does nothing.
	Refuse bool `json:"refuse"`
	// AnswerNext spoils the next answer.
	AnswerNext Answer `json:"answer_next"`
	// HoldMS holds every request for so many milliseconds before its effect. It
	// then happens even if the caller has hung up.
	HoldMS int `json:"hold_ms"`
	// SlowMS holds every reply for so many milliseconds after the effect.
	SlowMS int `json:"slow_ms"`
	// LagMS hides what is younger than so many milliseconds from the lists that
	// lookups read: holds, refunds, address changes.
	LagMS int `json:"lag_ms"`
	// ForgetKeys breaks the promise to honour Idempotency-Key.
	ForgetKeys bool `json:"forget_keys"`
}

// Limits of what the switch routes take.
const (
	maxNext = 1000
	maxMS   = 120_000
)

// set changes one switch by its name; value is a number, 0 or 1, or a word.
func (sw *Switches) set(name, value string) error {
	number := func(to *int, limit int) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > limit {
			return refuse(http.StatusUnprocessableEntity, "%s is a whole number from 0 to %d.", name, limit)
		}
		*to = n
		return nil
	}
	flag := func(to *bool) error {
		if value != "0" && value != "1" {
			return refuse(http.StatusUnprocessableEntity, "%s is 0 or 1.", name)
		}
		*to = value == "1"
		return nil
	}
	switch name {
	case "cut_next":
		return number(&sw.CutNext, maxNext)
	case "error_next":
		return number(&sw.ErrorNext, maxNext)
	case "refuse_next":
		return number(&sw.RefuseNext, maxNext)
	case "refuse":
		return flag(&sw.Refuse)
	case "answer_next":
		if !slices.Contains(answers, Answer(value)) {
			return refuse(http.StatusUnprocessableEntity, "answer_next is empty or one of %s.", words(answers[1:]))
		}
		sw.AnswerNext = Answer(value)
		return nil
	case "hold_ms":
		return number(&sw.HoldMS, maxMS)
	case "slow_ms":
		return number(&sw.SlowMS, maxMS)
	case "lag_ms":
		return number(&sw.LagMS, maxMS)
	case "forget_keys":
		return flag(&sw.ForgetKeys)
	}
	return refuse(http.StatusUnprocessableEntity, "There is no switch %q.", name)
}

func words(answers []Answer) string {
	out := make([]string, len(answers))
	for i, a := range answers {
		out[i] = string(a)
	}
	return strings.Join(out, ", ")
}

// Set replaces all switches.
func (s *Shop) Set(sw Switches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.switches = sw
	s.movedLocked()
}

// Switches returns the switches as they stand; those for the next request fall
// as they are used up.
func (s *Shop) Switches() Switches {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.switches
}

func (s *Shop) getSwitches(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, s.Switches())
}

// postSwitches changes the switches that are named and no others, all or none.
// It takes JSON or a form, and a form that a browser sent leads back to the page.
func (s *Shop) postSwitches(w http.ResponseWriter, r *http.Request) {
	values, err := fields(w, r)
	if err != nil {
		answerError(w, err)
		return
	}
	s.mu.Lock()
	sw := s.switches
	for name, value := range values {
		if err = sw.set(name, value); err != nil {
			break
		}
	}
	if err == nil {
		s.switches = sw
		s.movedLocked()
	}
	s.mu.Unlock()
	if err != nil {
		answerError(w, err)
		return
	}
	s.answerForm(w, r, "switches", sw)
}

// fields reads a flat set of values from a form or a JSON object; true and
// false are 1 and 0.
func fields(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	values := map[string]string{}
	if mediaType(r) == "application/x-www-form-urlencoded" {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := r.ParseForm(); err != nil {
			return nil, refuse(http.StatusBadRequest, "The form can't be read.")
		}
		for name, list := range r.PostForm {
			if len(list) != 1 {
				return nil, refuse(http.StatusBadRequest, "%s is given more than once.", name)
			}
			values[name] = list[0]
		}
		return values, nil
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := decode(r, body, &object); err != nil {
		return nil, err
	}
	for name, raw := range object {
		switch text := string(raw); {
		case text == "true":
			values[name] = "1"
		case text == "false":
			values[name] = "0"
		case text[0] == '"':
			var word string
			if err := json.Unmarshal(raw, &word); err != nil {
				return nil, refuse(http.StatusBadRequest, "%s can't be read.", name)
			}
			values[name] = word
		default:
			values[name] = text
		}
	}
	return values, nil
}
