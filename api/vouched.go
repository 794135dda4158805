package api

import (
	"context"
	"net/http"
	"net/url"

	"countersign/fault"
	"countersign/identity"
)

type vouchedKey struct{}

// As serves one operator whom the program itself vouches for: who uses its
// command line beside the ledger. It is the same API by the same contract, without
// a session. What only a signed-in person may do, to decide on approvals, is
// refused. The caller must keep everybody else from it.
func (s *Server) As(who identity.Operator) http.Handler {
	host := s.publicHost()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(context.WithValue(r.Context(), vouchedKey{}, who))
		r.Host = host
		s.ServeHTTP(w, r)
	})
}

func (s *Server) publicHost() string {
	u, err := url.Parse(s.cfg.PublicURL)
	if err != nil {
		panic(err) // New has parsed it
	}
	return u.Host
}

// signedIn are the operationIds of what a session is needed for: a yes or a no is
// a signed-in person's own (S30).
var signedIn = map[string]bool{"listApprovals": true, "getApproval": true, "decideApproval": true, "reopenApproval": true}

// vouched lets an operator through whom the program vouches for.
func (s *Server) vouched(next http.Handler, who identity.Operator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := of(r.Context())
		switch {
		case !x.route.operators:
			s.refuse(w, r, fault.New(fault.NotAllowed, "This is for agents; send an agent's key."))
		case signedIn[x.route.operation]:
			s.refuse(w, r, fault.New(fault.NotAllowed, "Only a signed-in person decides; use the page."))
		default:
			x.who = principal{operator: &who, vouched: true}
			next.ServeHTTP(w, r)
		}
	})
}
