package shop

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// keyRetention is how long the shop honours an Idempotency-Key of a refund.
const keyRetention = 24 * time.Hour

// listPayments is GET /payments.
func (s *Shop) listPayments(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	payments := s.state.payments.all()
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Payment]{payments})
}

// getPayment is GET /payments/{id}.
func (s *Shop) getPayment(w http.ResponseWriter, r *http.Request) {
	answerRow(s, w, r, "payment", func(st *state) *table[Payment] { return &st.payments })
}

// refundMade is the answer to a refund; a repeat under the same key gets the
// same one, whatever has become of the refund since.
type refundMade struct {
	ID       string `json:"id"`
	Payment  string `json:"payment"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	State    string `json:"state"`
}

// postRefund is POST /refunds {payment, amount}. An Idempotency-Key is honoured
// for 24 hours: same key and body, the first reply and no new effect; another
// body, 409. Only a refund that was made takes a key.
func (s *Shop) postRefund(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Payment string `json:"payment"`
		Amount  int64  `json:"amount"`
	}
	key := r.Header.Get("Idempotency-Key")
	err := decode(r, bodyOf(r), &in)
	if err == nil {
		err = text("Idempotency-Key", key, 0, 255)
	}
	if err == nil && in.Amount < 1 {
		err = refuse(http.StatusUnprocessableEntity, "amount is at least 1, in minor units.")
	}
	if err != nil {
		answerError(w, err)
		return
	}
	s.act(w, r, func(st *state, now time.Time) (decision, error) {
		first, repeated := s.firstUnderLocked(key, now)
		if repeated {
			if first.Payment != in.Payment || first.Amount != in.Amount {
				return decision{}, refuse(http.StatusConflict, "The key was used for another refund, %s.", first.ID)
			}
			return decision{
				replayed: true,
				status:   http.StatusCreated,
				body:     refundMade{first.ID, first.Payment, first.Amount, first.Currency, refundPending},
			}, nil
		}
		payment, ok := st.payments.get(in.Payment)
		switch {
		case !ok:
			return decision{}, unknown("payment", in.Payment)
		case in.Amount > payment.Refundable:
			return decision{}, refuse(http.StatusUnprocessableEntity, "Only %s of %s can still be refunded.",
				money(payment.Refundable, payment.Currency), payment.ID)
		}
		payment = payment.refunded(in.Amount)
		refund := Refund{
			ID: st.nextID(VerbRefund), Payment: payment.ID, Amount: in.Amount, Currency: payment.Currency,
			State: refundPending, IdempotencyKey: key, Created: now,
		}
		return decision{
			effect: &Effect{
				Verb: VerbRefund, ID: refund.ID, Target: "payment/" + payment.ID,
				Text: fmt.Sprintf("%s of %s goes back to %s.", money(refund.Amount, refund.Currency), payment.ID, payment.Customer),
				Rows: Rows{Payment: &payment, Refund: &refund},
			},
			status: http.StatusCreated,
			body:   refundMade{refund.ID, refund.Payment, refund.Amount, refund.Currency, refund.State},
		}, nil
	})
}

// firstUnderLocked finds the refund that was made under a key which is still honoured.
func (s *Shop) firstUnderLocked(key string, now time.Time) (Refund, bool) {
	if key == "" || s.switches.ForgetKeys {
		return Refund{}, false
	}
	made := s.state.refunds.where(func(r Refund) bool {
		return r.IdempotencyKey == key && now.Sub(r.Created) < keyRetention
	})
	if len(made) == 0 {
		return Refund{}, false
	}
	return made[0], true
}

// listRefunds is GET /refunds?idempotency_key=&payment=.
func (s *Shop) listRefunds(w http.ResponseWriter, r *http.Request) {
	key, payment := r.URL.Query().Get("idempotency_key"), r.URL.Query().Get("payment")
	s.mu.Lock()
	visible := s.visibleLocked()
	refunds := s.state.refunds.where(func(r Refund) bool {
		return (key == "" || r.IdempotencyKey == key) && (payment == "" || r.Payment == payment) && visible(r.Created)
	})
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Refund]{refunds})
}

// getRefund is GET /refunds/{id}.
func (s *Shop) getRefund(w http.ResponseWriter, r *http.Request) {
	answerRow(s, w, r, "refund", func(st *state) *table[Refund] { return &st.refunds })
}

// refundCancel is the answer to a cancel.
type refundCancel struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	CancelID string `json:"cancel_id"`
}

// postCancel is POST /refunds/{id}/cancel {reference?}, possible while the
// refund is pending.
func (s *Shop) postCancel(w http.ResponseWriter, r *http.Request) {
	reference, err := decodeReference(r)
	if err != nil {
		answerError(w, err)
		return
	}
	s.act(w, r, func(st *state, _ time.Time) (decision, error) {
		id := chi.URLParam(r, "id")
		refund, ok := st.refunds.get(id)
		switch {
		case !ok:
			return decision{}, unknown("refund", id)
		case refund.State != refundPending:
			return decision{}, refuse(http.StatusUnprocessableEntity, "Refund %s is already %s.", id, refund.State)
		}
		refund.State, refund.CancelID, refund.CancelReference = refundCancelled, st.nextID(VerbCancel), reference
		payment, _ := st.payments.get(refund.Payment)
		payment = payment.refunded(-refund.Amount)
		return decision{
			effect: &Effect{
				Verb: VerbCancel, ID: refund.CancelID, Target: "refund/" + id,
				Text: fmt.Sprintf("Refund %s of %s is cancelled.", id, money(refund.Amount, refund.Currency)),
				Rows: Rows{Payment: &payment, Refund: &refund},
			},
			status: http.StatusOK,
			body:   refundCancel{id, refund.State, refund.CancelID},
		}, nil
	})
}
