package shop

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

// listAddresses is GET /addresses.
func (s *Shop) listAddresses(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	addresses := s.state.addresses.all()
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, list[Address]{addresses})
}

// getAddress is GET /addresses/{id}; the version is the ETag too.
func (s *Shop) getAddress(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	s.mu.Lock()
	address, ok := s.state.addresses.get(id)
	s.mu.Unlock()
	if !ok {
		answerError(w, unknown("address", id))
		return
	}
	w.Header().Set("ETag", strconv.Quote(strconv.Itoa(address.Version)))
	answerJSON(w, http.StatusOK, address)
}

// addressChanged is the answer to a change.
type addressChanged struct {
	ChangeID string  `json:"change_id"`
	Address  Address `json:"address"`
}

// putAddress is PUT /addresses/{id} {street, city, postcode, country, version?,
// reference?}. A version, in the body or in If-Match, must be the current one,
// else 412 and nothing is done.
func (s *Shop) putAddress(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Place
		Version   *int   `json:"version"`
		Reference string `json:"reference"`
	}
	err := decode(r, bodyOf(r), &in)
	if err == nil {
		err = in.check()
	}
	if err == nil {
		err = text("reference", in.Reference, 0, 200)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	match := strings.Trim(r.Header.Get("If-Match"), `" `)
	s.act(w, r, func(st *state, now time.Time) (decision, error) {
		id := chi.URLParam(r, "id")
		address, ok := st.addresses.get(id)
		if !ok {
			return decision{}, unknown("address", id)
		}
		if match != "" && match != "*" && match != strconv.Itoa(address.Version) ||
			in.Version != nil && *in.Version != address.Version {
			return decision{}, refuse(http.StatusPreconditionFailed,
				"Address %s was changed since and is now version %d.", id, address.Version)
		}
		before := address.Place
		address.Place, address.Version = in.Place, address.Version+1
		entry := AddressChange{
			ID: st.nextID(VerbChange), Address: id, Version: address.Version,
			Before: before, After: address.Place, Reference: in.Reference, Created: now,
		}
		return decision{
			effect: &Effect{
				Verb: VerbChange, ID: entry.ID, Target: "address/" + id,
				Text: fmt.Sprintf("%s moves from %s to %s.", address.Customer, before, address.Place),
				Rows: Rows{Address: &address, Change: &entry},
			},
			status: http.StatusOK,
			body:   addressChanged{entry.ID, address},
		}, nil
	})
}

// listAddressChanges is GET /addresses/{id}/changes?reference=.
func (s *Shop) listAddressChanges(w http.ResponseWriter, r *http.Request) {
	id, reference := chi.URLParam(r, "id"), r.URL.Query().Get("reference")
	s.mu.Lock()
	_, ok := s.state.addresses.get(id)
	visible := s.visibleLocked()
	entries := s.state.changes.where(func(c AddressChange) bool {
		return c.Address == id && (reference == "" || c.Reference == reference) && visible(c.Created)
	})
	s.mu.Unlock()
	if !ok {
		answerError(w, unknown("address", id))
		return
	}
	answerJSON(w, http.StatusOK, list[AddressChange]{entries})
}

// String is the place on one line.
func (p Place) String() string {
	return fmt.Sprintf("%s, %s %s, %s", p.Street, p.Postcode, p.City, p.Country)
}

func (p Place) check() error {
	for _, m := range []struct {
		name, value string
		most        int
	}{{"street", p.Street, 100}, {"city", p.City, 100}, {"postcode", p.Postcode, 16}} {
		if err := text(m.name, m.value, 1, m.most); err != nil {
			return err
		}
	}
	if len(p.Country) != 2 || strings.Trim(p.Country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return refuse(http.StatusUnprocessableEntity, "country is two capital letters (ISO 3166-1).")
	}
	return nil
}
