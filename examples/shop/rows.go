package shop

import (
	"fmt"
	"time"
)

// Money is in integer minor units everywhere; the shop has one currency.
const currency = "EUR"

// Order states. A held order is an open one with a hold in force.
const (
	orderOpen      = "open"
	orderHeld      = "held"
	orderShipped   = "shipped"
	orderCancelled = "cancelled"
)

// Hold, refund and payment states.
const (
	holdHeld     = "held"
	holdReleased = "released"

	refundPending   = "pending"
	refundCancelled = "cancelled"
	refundSettled   = "settled"

	paymentCaptured       = "captured"
	paymentPartlyRefunded = "partly_refunded"
	paymentRefunded       = "refunded"
	paymentDisputed       = "disputed"
)

// Order is a customer's order. HoldID is null unless Status is "held"; Version
// rises with every change.
type Order struct {
	ID        string  `json:"id"`
	Customer  string  `json:"customer"`
	Status    string  `json:"status"`
	Total     int64   `json:"total"`
	Currency  string  `json:"currency"`
	AddressID string  `json:"address_id"`
	HoldID    *string `json:"hold_id"`
	Version   int     `json:"version"`
}

// Hold is one hold of an order. Reference is the caller's own, kept so that it
// can be looked up; the shop never compares it.
type Hold struct {
	ID               string    `json:"id"`
	Order            string    `json:"order"`
	State            string    `json:"state"`
	Reason           string    `json:"reason,omitempty"`
	Reference        string    `json:"reference"`
	ReleaseID        string    `json:"release_id"`
	ReleaseReference string    `json:"release_reference"`
	Created          time.Time `json:"created"`
}

// Payment is what a customer paid for an order. Refunded counts pending refunds
// too; Refundable is what a new refund may still take.
type Payment struct {
	ID         string `json:"id"`
	Order      string `json:"order"`
	Customer   string `json:"customer"`
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
	Refunded   int64  `json:"refunded"`
	Refundable int64  `json:"refundable"`
	Status     string `json:"status"`
}

// refunded returns the payment with delta more refunded; a disputed payment
// stays disputed and can't be refunded.
func (p Payment) refunded(delta int64) Payment {
	p.Refunded += delta
	p.Refundable = p.Amount - p.Refunded
	switch {
	case p.Status == paymentDisputed:
		p.Refundable = 0
	case p.Refunded == 0:
		p.Status = paymentCaptured
	case p.Refundable == 0:
		p.Status = paymentRefunded
	default:
		p.Status = paymentPartlyRefunded
	}
	return p
}

// Refund is one refund of a payment. It is pending until it is cancelled or,
// by hand on the page, settled.
type Refund struct {
	ID              string    `json:"id"`
	Payment         string    `json:"payment"`
	Amount          int64     `json:"amount"`
	Currency        string    `json:"currency"`
	State           string    `json:"state"`
	IdempotencyKey  string    `json:"idempotency_key"`
	CancelID        string    `json:"cancel_id"`
	CancelReference string    `json:"cancel_reference"`
	Created         time.Time `json:"created"`
}

// Place is the part of an address that can be changed.
type Place struct {
	Street   string `json:"street"`
	City     string `json:"city"`
	Postcode string `json:"postcode"`
	Country  string `json:"country"`
}

// Address is where a customer's parcels and letters go.
type Address struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Place
	Version int `json:"version"`
}

// AddressChange is one change of an address by the API.
type AddressChange struct {
	ID        string    `json:"id"`
	Address   string    `json:"address"`
	Version   int       `json:"version"`
	Before    Place     `json:"before"`
	After     Place     `json:"after"`
	Reference string    `json:"reference"`
	Created   time.Time `json:"created"`
}

// Letter is a letter that has left the house; To is an address id.
type Letter struct {
	ID      string    `json:"id"`
	To      string    `json:"to"`
	Subject string    `json:"subject"`
	Body    string    `json:"body"`
	Created time.Time `json:"created"`
}

// table is rows by id, listed in the order in which they first appeared.
type table[T any] struct {
	rows map[string]T
	ids  []string
}

func (t *table[T]) put(id string, row T) {
	if t.rows == nil {
		t.rows = map[string]T{}
	}
	if _, ok := t.rows[id]; !ok {
		t.ids = append(t.ids, id)
	}
	t.rows[id] = row
}

func (t *table[T]) get(id string) (T, bool) {
	row, ok := t.rows[id]
	return row, ok
}

// where lists the rows that keep is true for; never nil, so that an empty list
// is [] in JSON.
func (t *table[T]) where(keep func(T) bool) []T {
	rows := []T{}
	for _, id := range t.ids {
		if row := t.rows[id]; keep(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

func (t *table[T]) all() []T { return t.where(func(T) bool { return true }) }

// newest returns a new slice of the last n of rows, newest first.
func newest[T any](rows []T, n int) []T {
	out := make([]T, 0, min(n, len(rows)))
	for i := len(rows) - 1; i >= 0 && len(out) < n; i-- {
		out = append(out, rows[i])
	}
	return out
}

// state is all rows of the shop, and how often each verb has been done: the
// next id follows from it.
type state struct {
	orders    table[Order]
	holds     table[Hold]
	payments  table[Payment]
	refunds   table[Refund]
	addresses table[Address]
	changes   table[AddressChange]
	letters   table[Letter]
	done      map[Verb]int
}

// set puts rows as they stand after an effect or a change by hand.
func (st *state) set(rows Rows) {
	if r := rows.Order; r != nil {
		st.orders.put(r.ID, *r)
	}
	if r := rows.Hold; r != nil {
		st.holds.put(r.ID, *r)
	}
	if r := rows.Payment; r != nil {
		st.payments.put(r.ID, *r)
	}
	if r := rows.Refund; r != nil {
		st.refunds.put(r.ID, *r)
	}
	if r := rows.Address; r != nil {
		st.addresses.put(r.ID, *r)
	}
	if r := rows.Change; r != nil {
		st.changes.put(r.ID, *r)
	}
	if r := rows.Letter; r != nil {
		st.letters.put(r.ID, *r)
	}
}

// apply sets the rows of an effect and counts its verb.
func (st *state) apply(e Effect) {
	st.set(e.Rows)
	st.done[e.Verb]++
}

// nextID is the id that the next effect of a verb gets.
func (st *state) nextID(v Verb) string {
	series := idSeries[v]
	return fmt.Sprintf("%s%d", series.prefix, series.first+st.done[v])
}

// money formats minor units for people: 12000 is "120.00 EUR".
func money(minor int64, currency string) string {
	return fmt.Sprintf("%d.%02d %s", minor/100, minor%100, currency)
}
