package web

import (
	"net/http"

	"countersign/fault"
)

// setupPage takes a set-up code, and then a new password.
type setupPage struct {
	frame
	// Code as typed; the script takes it from the part of the link behind the #,
	// which never reaches a server by itself.
	Code string
	// Name is whose code it is. Empty: the code is asked for, else the password.
	Name string
}

func (p *Pages) setupForm(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, "setup", setupPage{frame: p.frame(r, "", "Set a password")})
}

// setup takes the code, which it does not spend, and asks for a password in the
// name of whose it is; then it spends the code, sets the password and signs in.
func (p *Pages) setup(w http.ResponseWriter, r *http.Request) {
	if err := readForm(r); err != nil {
		p.problem(w, r, err)
		return
	}
	v := setupPage{frame: p.frame(r, "", "Set a password"), Code: cutTo(trimmed(r, "code"), 64)}
	whose, err := p.cfg.Identity.PeekSetup(r.Context(), v.Code)
	if err != nil {
		p.setupAgain(w, r, v, err)
		return
	}
	v.Name = whose.Name
	if !r.PostForm.Has("password") {
		p.render(w, r, http.StatusOK, "setup", v)
		return
	}
	o, err := p.cfg.Identity.CompleteSetup(r.Context(), v.Code, r.PostForm.Get("password"))
	if err == nil {
		err = p.cfg.Sessions.SignIn(r.Context(), o)
	}
	if err != nil {
		if fault.Is(err, fault.Unauthenticated) {
			v.Name = "" // somebody else was first: the code is what is wrong
		}
		p.setupAgain(w, r, v, err)
		return
	}
	http.Redirect(w, r, home, http.StatusSeeOther)
}

func (p *Pages) setupAgain(w http.ResponseWriter, r *http.Request, v setupPage, err error) {
	f := fault.Of(err)
	v.Notice = refusal(f)
	p.render(w, r, p.refused(w, r, f), "setup", v)
}
