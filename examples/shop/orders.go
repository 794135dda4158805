package shop

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
)

// listOrders is GET /orders?status=&limit=; no status, or "any", is every order.
func (s *Shop) listOrders(w http.ResponseWriter, r *http.Request) {
	status := r.URL.Query().Get("status")
	if !slices.Contains([]string{"", "any", orderOpen, orderHeld, orderShipped, orderCancelled}, status) {
		answerError(w, refuse(http.StatusBadRequest, "status is any, open, held, shipped or cancelled."))
		return
	}
	most, err := limit(r)
	if err != nil {
		answerError(w, err)
		return
	}
	s.mu.Lock()
	orders := s.state.orders.where(func(o Order) bool {
		return status == "" || status == "any" || o.Status == status
	})
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Order]{orders[:min(most, len(orders))]})
}

// getOrder is GET /orders/{id}.
func (s *Shop) getOrder(w http.ResponseWriter, r *http.Request) {
	answerRow(s, w, r, "order", func(st *state) *table[Order] { return &st.orders })
}

// answerRow answers one row by the id in the path.
func answerRow[T any](s *Shop, w http.ResponseWriter, r *http.Request, what string, in func(*state) *table[T]) {
	id := chi.URLParam(r, "id")
	s.mu.Lock()
	row, ok := in(&s.state).get(id)
	s.mu.Unlock()
	if !ok {
		answerError(w, unknown(what, id))
		return
	}
	answerJSON(w, http.StatusOK, row)
}

// released is the answer to a release.
type released struct {
	ID        string `json:"id"`
	Order     string `json:"order"`
	State     string `json:"state"`
	ReleaseID string `json:"release_id"`
}

// held is the answer to a hold.
type held struct {
	ID    string `json:"id"`
	Order string `json:"order"`
	State string `json:"state"`
}

// postHold is POST /orders/{id}/holds {reason?, reference?}. The shop honours
// no key here; an order that is held already refuses a second hold.
func (s *Shop) postHold(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Reason    string `json:"reason"`
		Reference string `json:"reference"`
	}
	err := decodeOptional(r, &in)
	if err == nil {
		err = text("reason", in.Reason, 0, 200)
	}
	if err == nil {
		err = text("reference", in.Reference, 0, 200)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	s.act(w, r, func(st *state, now time.Time) (decision, error) {
		id := chi.URLParam(r, "id")
		order, ok := st.orders.get(id)
		switch {
		case !ok:
			return decision{}, unknown("order", id)
		case order.Status == orderHeld:
			return decision{}, refuse(http.StatusUnprocessableEntity, "Order %s is already held by %s.", id, *order.HoldID)
		case order.Status != orderOpen:
			return decision{}, refuse(http.StatusUnprocessableEntity, "Order %s is %s and can't be held.", id, order.Status)
		}
		hold := Hold{
			ID: st.nextID(VerbHold), Order: id, State: holdHeld,
			Reason: in.Reason, Reference: in.Reference, Created: now,
		}
		order.Status, order.HoldID, order.Version = orderHeld, &hold.ID, order.Version+1
		return decision{
			effect: &Effect{
				Verb: VerbHold, ID: hold.ID, Target: "order/" + id,
				Text: fmt.Sprintf("Order %s of %s is held.", id, order.Customer),
				Rows: Rows{Order: &order, Hold: &hold},
			},
			status: http.StatusCreated,
			body:   held{hold.ID, id, hold.State},
		}, nil
	})
}

// listHolds is GET /holds?order=&reference=: with a reference, exactly the
// holds that were asked for under it, also released ones.
func (s *Shop) listHolds(w http.ResponseWriter, r *http.Request) {
	order, reference := r.URL.Query().Get("order"), r.URL.Query().Get("reference")
	s.mu.Lock()
	visible := s.visibleLocked()
	holds := s.state.holds.where(func(h Hold) bool {
		return (order == "" || h.Order == order) && (reference == "" || h.Reference == reference) && visible(h.Created)
	})
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Hold]{holds})
}

// visibleLocked says what the lists that lookups read may show: everything,
// unless the lag switch hides what is young.
func (s *Shop) visibleLocked() func(created time.Time) bool {
	lag := time.Duration(s.switches.LagMS) * time.Millisecond
	newest := s.cfg.Now().Add(-lag)
	return func(created time.Time) bool { return lag == 0 || !created.After(newest) }
}

// getHold is GET /holds/{id}.
func (s *Shop) getHold(w http.ResponseWriter, r *http.Request) {
	answerRow(s, w, r, "hold", func(st *state) *table[Hold] { return &st.holds })
}

// postRelease is POST /holds/{id}/release {reference?}.
func (s *Shop) postRelease(w http.ResponseWriter, r *http.Request) {
	reference, err := decodeReference(r)
	if err != nil {
		answerError(w, err)
		return
	}
	s.act(w, r, func(st *state, _ time.Time) (decision, error) {
		id := chi.URLParam(r, "id")
		hold, ok := st.holds.get(id)
		switch {
		case !ok:
			return decision{}, unknown("hold", id)
		case hold.State != holdHeld:
			return decision{}, refuse(http.StatusUnprocessableEntity, "Hold %s is already released.", id)
		}
		hold.State, hold.ReleaseID, hold.ReleaseReference = holdReleased, st.nextID(VerbRelease), reference
		order, _ := st.orders.get(hold.Order)
		order.Status, order.HoldID, order.Version = orderOpen, nil, order.Version+1
		return decision{
			effect: &Effect{
				Verb: VerbRelease, ID: hold.ReleaseID, Target: "order/" + order.ID,
				Text: fmt.Sprintf("Hold %s is released, order %s is open again.", id, order.ID),
				Rows: Rows{Order: &order, Hold: &hold},
			},
			status: http.StatusOK,
			body:   released{id, order.ID, hold.State, hold.ReleaseID},
		}, nil
	})
}

// decodeReference reads a body that has a reference and nothing else, or no body.
func decodeReference(r *http.Request) (string, error) {
	var in struct {
		Reference string `json:"reference"`
	}
	if err := decodeOptional(r, &in); err != nil {
		return "", err
	}
	return in.Reference, text("reference", in.Reference, 0, 200)
}
