package identity

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"countersign/fault"
)

// Credentials are what a person signs in with.
type Credentials struct {
	Tenant string
	// Name in any case and with space around it; both are ignored.
	Name     string
	Password string
	// Address is where the request comes from, behind trusted proxies. The zero
	// address stands for this machine.
	Address netip.Addr
}

// SignIn tells who signs in. A wrong password, an unknown name, an operator
// without a password and a disabled one are refused with one text and at one
// price: a read, and one argon2id computation (S27). Tries are limited by
// address and by name (S20); beyond that the answer is RateLimited with
// RetryAfter, whether or not there is such a name.
func (s *Service) SignIn(ctx context.Context, c Credentials) (Operator, error) {
	name := normalName(c.Name)
	try, wait := s.throttle.take(s.now(), c.Tenant, name, c.Address)
	if wait > 0 {
		e := fault.New(fault.RateLimited, "Too many tries to sign in. Wait a little, then try again.")
		e.RetryAfter = wait
		return Operator{}, e
	}
	o, err := s.signIn(ctx, c.Tenant, name, c.Password)
	switch {
	case err == nil:
		try.succeeded(s.now())
	case !fault.Is(err, fault.Unauthenticated):
		try.unused(s.now()) // the password was not judged
	}
	return o, err
}

func (s *Service) signIn(ctx context.Context, tenant, name, password string) (Operator, error) {
	o, err := s.cfg.Store.OperatorByName(ctx, tenant, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Operator{}, storeFault(err)
	}
	stored := ""
	if err == nil && o.DisabledAt.IsZero() {
		stored = o.Password
	}
	normal, possible := normalPassword(password)
	match, old, err := s.kdf.verify(ctx, normal, stored)
	switch {
	case err != nil:
		return Operator{}, err
	case !match || !possible:
		return Operator{}, fault.New(fault.Unauthenticated, "The name or the password is wrong.")
	case old:
		return s.upgrade(ctx, o, normal)
	}
	return o, nil
}

// upgrade stores the password under today's parameters. Like any new hash it
// ends the operator's other sessions; that happens once after the parameters
// changed.
func (s *Service) upgrade(ctx context.Context, o Operator, password string) (Operator, error) {
	hash, err := s.kdf.hash(ctx, password)
	if err != nil {
		return Operator{}, err
	}
	err = s.cfg.Store.ReplacePassword(ctx, o.Tenant, o.ID, o.Password, hash)
	if errors.Is(err, ErrNotFound) {
		// Another sign-in was first, or another password was set, or the operator
		// was disabled just now. Only what is stored counts: look again.
		return s.signIn(ctx, o.Tenant, o.Name, password)
	}
	if err != nil {
		return Operator{}, storeFault(err)
	}
	o.Password = hash
	return o, nil
}

// normalName folds the ways to write one name, so that none of them escapes the
// limits. What is no name becomes the empty one, which nobody has.
func normalName(name string) string {
	name = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.TrimSpace(name))
	if !nameRule.MatchString(name) {
		return ""
	}
	return name
}
