package web

import (
	"net/http"

	"countersign/fault"
	"countersign/identity"
)

// signInPage asks for name and password.
type signInPage struct {
	frame
	Name string
	// Next is where to go on to, one of our own paths.
	Next string
}

func (p *Pages) signInForm(w http.ResponseWriter, r *http.Request) {
	next := ownPath(r.URL.Query().Get("next"))
	if _, err := p.cfg.Sessions.Operator(r.Context()); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	p.render(w, r, http.StatusOK, "sign-in", signInPage{frame: p.frame(r, "", "Sign in"), Next: next})
}

// signIn opens a session. Whatever was wrong is said in one text, and takes one
// time (identity).
func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	next := ownPath(r.PostForm.Get("next"))
	o, err := p.cfg.Identity.SignIn(r.Context(), identity.Credentials{
		Tenant: p.cfg.Tenant, Name: r.PostForm.Get("name"), Password: r.PostForm.Get("password"), Address: p.cfg.Address(r),
	})
	if err == nil {
		err = p.cfg.Sessions.SignIn(r.Context(), o)
	}
	if err != nil {
		f := fault.Of(err)
		v := signInPage{frame: p.frame(r, "", "Sign in"), Name: cutTo(r.PostForm.Get("name"), 64), Next: next}
		v.Notice = refusal(f)
		p.render(w, r, p.refused(w, r, f), "sign-in", v)
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// signOut ends the session here and in the store.
func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	if err := p.cfg.Sessions.SignOut(r.Context()); err != nil {
		p.problem(w, r, err)
		return
	}
	http.Redirect(w, r, "/sign-in?out=1", http.StatusSeeOther)
}
