package shop

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// The routes of this file change the shop behind every caller's back, so that a
// preview drifts. They are durable but no effects.

// manual is what a route decided that a person does by hand.
type manual struct {
	rows Rows
	text string
	body any
}

// byHand runs such a route: read the optional form or JSON object, decide under
// the lock, make the change durable, answer; part is the page's part to go back to.
func (s *Shop) byHand(
	w http.ResponseWriter, r *http.Request, part string, known []string,
	decide func(st *state, id string, values map[string]string) (manual, error),
) {
	values, err := handFields(w, r, known)
	if err != nil {
		answerError(w, err)
		return
	}
	m, err := func() (manual, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		m, err := decide(&s.state, chi.URLParam(r, "id"), values)
		if err != nil {
			return m, err
		}
		c := change{After: len(s.effects), Time: s.cfg.Now().UTC(), Text: m.text, Rows: m.rows}
		if err := s.changeLog.append(c); err != nil {
			s.cfg.Logger.Error("shop: the log of changes by hand can't be written", "error", err)
			return m, refuse(http.StatusInternalServerError, "The shop can't write its log.")
		}
		s.state.set(m.rows)
		s.changes = append(s.changes, c)
		s.movedLocked()
		return m, nil
	}()
	if err != nil {
		answerError(w, err)
		return
	}
	s.answerForm(w, r, part, m.body)
}

// answerForm leads a browser that posted a form back to a part of the page and
// gives everybody else JSON.
func (s *Shop) answerForm(w http.ResponseWriter, r *http.Request, part string, body any) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/#"+part, http.StatusSeeOther)
		return
	}
	answerJSON(w, http.StatusOK, body)
}

// changeOrder is POST /orders/{id}/change: without more, a line is added and
// the total rises by 1.00; with status "shipped" or "cancelled" an open order
// goes there.
func (s *Shop) changeOrder(w http.ResponseWriter, r *http.Request) {
	s.byHand(w, r, "orders", []string{"status"}, func(st *state, id string, values map[string]string) (manual, error) {
		order, ok := st.orders.get(id)
		if !ok {
			return manual{}, unknown("order", id)
		}
		order.Version++
		var what string
		switch status := values["status"]; {
		case status == "":
			order.Total += 100
			what = "now totals " + money(order.Total, order.Currency)
		case status != orderShipped && status != orderCancelled:
			return manual{}, refuse(http.StatusUnprocessableEntity, "status is shipped or cancelled.")
		case order.Status != orderOpen:
			return manual{}, refuse(http.StatusUnprocessableEntity, "Order %s is %s.", id, order.Status)
		default:
			order.Status = status
			what = "is now " + status
		}
		return manual{Rows{Order: &order}, fmt.Sprintf("Order %s %s.", id, what), order}, nil
	})
}

// changePayment is POST /payments/{id}/change: somebody refunds 1.00 elsewhere.
func (s *Shop) changePayment(w http.ResponseWriter, r *http.Request) {
	s.byHand(w, r, "payments", nil, func(st *state, id string, _ map[string]string) (manual, error) {
		payment, ok := st.payments.get(id)
		if !ok {
			return manual{}, unknown("payment", id)
		}
		if payment.Refundable < 100 {
			return manual{}, refuse(http.StatusUnprocessableEntity, "Less than %s of %s can still be refunded.",
				money(100, payment.Currency), id)
		}
		payment = payment.refunded(100)
		text := fmt.Sprintf("%s of %s was refunded elsewhere.", money(100, payment.Currency), id)
		return manual{Rows{Payment: &payment}, text, payment}, nil
	})
}

// changeAddress is POST /addresses/{id}/change: the house number rises by one.
func (s *Shop) changeAddress(w http.ResponseWriter, r *http.Request) {
	s.byHand(w, r, "addresses", nil, func(st *state, id string, _ map[string]string) (manual, error) {
		address, ok := st.addresses.get(id)
		if !ok {
			return manual{}, unknown("address", id)
		}
		address.Street, address.Version = nextDoor(address.Street), address.Version+1
		text := fmt.Sprintf("%s moved to %s.", address.Customer, address.Place)
		return manual{Rows{Address: &address}, text, address}, nil
	})
}

// nextDoor is the street with the next house number.
func nextDoor(street string) string {
	name, number := street, 0
	if i := strings.LastIndexByte(street, ' '); i >= 0 {
		if n, err := strconv.Atoi(street[i+1:]); err == nil && n >= 0 && n < 10_000 {
			name, number = street[:i], n
		}
	}
	return fmt.Sprintf("%s %d", name, number+1)
}

// settleRefund is POST /refunds/{id}/settle: the bank has taken it, so it can't
// be cancelled any more.
func (s *Shop) settleRefund(w http.ResponseWriter, r *http.Request) {
	s.byHand(w, r, "refunds", nil, func(st *state, id string, _ map[string]string) (manual, error) {
		refund, ok := st.refunds.get(id)
		switch {
		case !ok:
			return manual{}, unknown("refund", id)
		case refund.State != refundPending:
			return manual{}, refuse(http.StatusUnprocessableEntity, "Refund %s is already %s.", id, refund.State)
		}
		refund.State = refundSettled
		return manual{Rows{Refund: &refund}, fmt.Sprintf("Refund %s has settled.", id), refund}, nil
	})
}

// handFields reads the optional form or JSON object of a change by hand and
// refuses names that are not known.
func handFields(w http.ResponseWriter, r *http.Request, known []string) (map[string]string, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	values, err := fields(w, r)
	if err != nil {
		return nil, err
	}
	for name := range values {
		if !slices.Contains(known, name) {
			return nil, refuse(http.StatusBadRequest, "There is no %q here.", name)
		}
	}
	return values, nil
}
