package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
)

type personKey struct{}

// person is who is signed in; the zero Operator when nobody is.
func person(ctx context.Context) identity.Operator {
	o, _ := ctx.Value(personKey{}).(identity.Operator)
	return o
}

// viewer is the person as the policy sees one.
func viewer(ctx context.Context) policy.Person { return approvals.PersonOf(person(ctx)) }

// withPerson adds who is signed in, for pages that anybody may see.
func (p *Pages) withPerson(r *http.Request) *http.Request {
	o, err := p.cfg.Sessions.Operator(r.Context())
	if err != nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), personKey{}, o))
}

func withoutPerson(ctx context.Context) context.Context {
	return context.WithValue(ctx, personKey{}, identity.Operator{})
}

// signedIn lets only operators through. A read is sent to the way in and comes
// back; a form is refused, and says that it did nothing.
func (p *Pages) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := p.cfg.Sessions.Operator(r.Context())
		switch {
		case err == nil:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, o)))
		case !fault.Is(err, fault.Unauthenticated):
			p.problem(w, r, err)
		case isLive(r) || r.URL.Path == "/events":
			http.Error(w, "The session is over.", http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			http.Redirect(w, r, signInURL(r.URL), http.StatusSeeOther)
		default:
			p.problem(w, r, fault.New(fault.Unauthenticated, "Your session is over, so nothing was changed. What you typed was not kept: sign in, and enter it again."))
		}
	})
}

// formURL is the page that a form of an operation stands on, or home.
func formURL(posted string) *url.URL {
	rest, ok := strings.CutPrefix(posted, "/operations/")
	if !ok {
		return &url.URL{Path: home}
	}
	id, _, _ := strings.Cut(rest, "/")
	return &url.URL{Path: "/operations/" + id}
}

// signInURL is the way in that leads back to a page.
func signInURL(back *url.URL) string {
	next := ownPath(back.RequestURI())
	if next == home {
		return "/sign-in"
	}
	return "/sign-in?next=" + url.QueryEscape(next)
}

const home = "/approvals"

// ownPath gives a path of this site to go on to, or the home page. What a browser
// could read as another host is not ours: //host, /\host, and control characters
// that browsers drop before they look.
func ownPath(next string) string {
	u, err := url.Parse(next)
	switch {
	case err != nil, u.Scheme != "", u.Host != "", u.User != nil, u.Opaque != "":
		return home
	case !strings.HasPrefix(next, "/"), strings.HasPrefix(next, "//"), strings.ContainsAny(next, "\\\t\r\n"):
		return home
	case strings.HasPrefix(u.Path, "//"), strings.Contains(u.Path, "\\"):
		return home
	case u.Path == "/", strings.HasPrefix(u.Path, "/sign-"), u.Path == "/setup", u.Path == "/events":
		return home
	}
	return u.RequestURI()
}
