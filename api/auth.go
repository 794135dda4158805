package api

import (
	"context"
	"net/http"
	"strings"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
)

// principal is who asks, from the credential and nothing else (S17). Exactly
// one of the two is set behind authenticate.
type principal struct {
	agent    *identity.Agent
	operator *identity.Operator
	// vouched: the program says who it is, and there is no session; see As.
	vouched bool
}

// id is for the log.
func (p principal) id() string {
	switch {
	case p.agent != nil:
		return p.agent.ID
	case p.operator != nil:
		return p.operator.ID
	default:
		return ""
	}
}

func (p principal) tenant() string {
	if p.agent != nil {
		return p.agent.Tenant
	}
	return p.operator.Tenant
}

// person is the operator as the policy sees one.
func (p principal) person() policy.Person { return approvals.PersonOf(*p.operator) }

// singleHeaders refuses a second field where only one is looked at: another
// reader of the same request might look at the other (S64).
func (s *Server) singleHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Content-Type", "Content-Encoding", "Origin", "Sec-Fetch-Site"} {
			if n := len(r.Header.Values(name)); n > 1 {
				s.refuse(w, r, fault.New(fault.HeaderRepeated, "The header %s stands %d times; it must stand once.", name, n))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate finds out who asks and refuses whom the route is not for. An
// Authorization header is an agent's and decides alone; without one the session
// counts.
func (s *Server) authenticate(next http.Handler) http.Handler {
	withSession := s.cfg.Sessions.LoadAndSave(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := of(r.Context())
		operator, err := s.cfg.Sessions.Operator(r.Context())
		switch {
		case fault.Is(err, fault.Unauthenticated):
			s.refuse(w, r, unauthenticated(x.route))
		case err != nil:
			s.refuse(w, r, err)
		case !x.route.operators:
			s.refuse(w, r, fault.New(fault.NotAllowed, "This is for agents; send an agent's key."))
		default:
			x.who = principal{operator: &operator}
			next.ServeHTTP(w, r)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := of(r.Context())
		if who, ok := r.Context().Value(vouchedKey{}).(identity.Operator); ok {
			s.vouched(next, who).ServeHTTP(w, r)
			return
		}
		given := r.Header.Get("Authorization")
		if given == "" {
			withSession.ServeHTTP(w, r)
			return
		}
		scheme, key, _ := strings.Cut(given, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			s.refuse(w, r, unauthenticated(x.route))
			return
		}
		agent, err := s.cfg.Identity.AuthenticateAgent(r.Context(), key)
		switch {
		case err != nil:
			s.refuse(w, r, err)
		case !x.route.agents:
			s.refuse(w, r, fault.New(fault.NotAllowed, "This is for signed-in operators; an agent can't do it."))
		default:
			x.who = principal{agent: &agent}
			next.ServeHTTP(w, r)
		}
	})
}

func unauthenticated(rt *route) error {
	switch {
	case !rt.agents:
		return fault.New(fault.Unauthenticated, "Sign in.")
	case !rt.operators:
		return fault.New(fault.Unauthenticated, "Send an agent's key: Authorization: Bearer cs_agent_…")
	default:
		return fault.New(fault.Unauthenticated, "Send an agent's key, Authorization: Bearer cs_agent_…, or sign in.")
	}
}

// stillThere asks again after a long wait whether an operator is signed in.
func (s *Server) stillThere(ctx context.Context) error {
	if who := of(ctx).who; who.operator == nil || who.vouched {
		return nil
	}
	_, err := s.cfg.Sessions.Operator(ctx)
	return err
}
