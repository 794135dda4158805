package shop

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// decision is what a route decided against the rows: the effect to do (nil when
// the request is a repeat that does nothing) and the answer to a healthy caller.
type decision struct {
	effect   *Effect
	replayed bool
	status   int
	body     any
}

// decider decides one request against the rows, which it must not change. The
// effect that it returns has its verb, id, target, text and rows.
type decider func(st *state, now time.Time) (decision, error)

// fate is what the switches make of one accepted request's reply.
type fate struct {
	cut, fail bool
	answer    Answer
	slow      time.Duration
}

// act runs one effectful route: refuse or hold by switch, decide under the
// lock, make the effect durable, set the rows, and then let the switches do what
// they will with the reply.
func (s *Shop) act(w http.ResponseWriter, r *http.Request, decide decider) {
	hold, err := s.admit()
	if err != nil {
		answerError(w, err)
		return
	}
	if !s.sleep(hold) {
		cut(w)
		return
	}
	d, f, err := s.do(r, decide)
	if err != nil {
		answerError(w, err)
		return
	}
	if d.effect != nil && s.cfg.OnEffect != nil {
		s.cfg.OnEffect(*d.effect)
	}
	if !s.sleep(f.slow) || f.cut {
		cut(w)
		return
	}
	if f.fail {
		answerJSON(w, http.StatusInternalServerError, message{"Something went wrong."})
		return
	}
	if d.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	s.answer(w, r, f.answer, d)
}

// admit is the part of the switches that comes before anything is done.
func (s *Shop) admit() (hold time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.switches.RefuseNext > 0 {
		s.switches.RefuseNext--
		s.movedLocked()
		return 0, refuse(http.StatusUnprocessableEntity, "Refused by a switch, nothing was done.")
	}
	if s.switches.Refuse {
		return 0, refuse(http.StatusUnprocessableEntity, "Refused by a switch, nothing was done.")
	}
	return time.Duration(s.switches.HoldMS) * time.Millisecond, nil
}

// do decides and makes the effect durable, all under the lock.
func (s *Shop) do(r *http.Request, decide decider) (decision, fate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now().UTC()
	d, err := decide(&s.state, now)
	if err != nil {
		return d, fate{}, err
	}
	f := s.fateLocked()
	switch f.answer {
	case AnswerNotDone, AnswerTooMany, AnswerRedirect:
		d.effect = nil
		s.movedLocked()
		return d, f, nil
	}
	if d.effect == nil {
		return d, f, nil
	}
	e := d.effect
	e.Number = len(s.effects) + 1
	e.Time = now
	e.Key = r.Header.Get("Idempotency-Key")
	e.Request = requestOf(r).Number
	if err := s.effectLog.append(e); err != nil {
		s.cfg.Logger.Error("shop: the effect log can't be written", "error", err)
		return d, fate{}, refuse(http.StatusInternalServerError, "The shop can't write its log.")
	}
	s.state.apply(*e)
	s.effects = append(s.effects, *e)
	s.movedLocked()
	return d, f, nil
}

// fateLocked takes what the switches hold for the next accepted request. One
// request takes one of cut, error and answer, in this order.
func (s *Shop) fateLocked() fate {
	sw := &s.switches
	f := fate{slow: time.Duration(sw.SlowMS) * time.Millisecond}
	switch {
	case sw.CutNext > 0:
		sw.CutNext--
		f.cut = true
	case sw.ErrorNext > 0:
		sw.ErrorNext--
		f.fail = true
	case sw.AnswerNext != AnswerPlain:
		f.answer, sw.AnswerNext = sw.AnswerNext, AnswerPlain
	default:
		return f
	}
	s.movedLocked()
	return f
}

// sleep waits on the real clock and says whether the shop is still open. It
// does not care whether the caller is still there.
func (s *Shop) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closed:
		return false
	}
}

// cut ends the connection without a reply, by a reset where the transport has
// one; it works on a kept-alive connection too.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // discards what is queued and sends RST
	}
	_ = conn.Close()
}

// answer sends the reply of an accepted request, spoilt or plain.
func (s *Shop) answer(w http.ResponseWriter, r *http.Request, how Answer, d decision) {
	switch how {
	case AnswerTooMany:
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusTooManyRequests, message{"Too many requests, nothing was done."})
	case AnswerRedirect:
		w.Header().Set("Location", r.URL.RequestURI())
		answerJSON(w, http.StatusTemporaryRedirect, message{"Moved, nothing was done."})
	case AnswerNotJSON:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(d.status)
		_, _ = w.Write([]byte("<!doctype html><title>Acme shop</title><h1>Thank you!</h1>\n"))
	case AnswerTruncated:
		body := encode(d.body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(d.status)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case AnswerHuge:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(d.status)
		_, _ = w.Write(encode(d.body))
		pad := bytes.Repeat([]byte(" "), 1<<20)
		for range 32 {
			if _, err := w.Write(pad); err != nil {
				return
			}
		}
	case AnswerTrickle:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(d.status)
		for _, b := range encode(d.body) {
			_, err := w.Write([]byte{b})
			if errors.Join(err, http.NewResponseController(w).Flush()) != nil || !s.sleep(time.Second) {
				return
			}
		}
	case AnswerHints:
		w.Header().Set("Link", "</style.css>; rel=preload")
		for range 1000 {
			w.WriteHeader(http.StatusEarlyHints)
		}
		answerJSON(w, d.status, d.body)
	default:
		answerJSON(w, d.status, d.body)
	}
}
