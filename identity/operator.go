package identity

import (
	"context"
	"errors"

	"countersign/fault"
)

// CreateOperator makes an operator who has no password yet, and the code with
// which they set it within SetupTTL. The code is returned this once.
func (s *Service) CreateOperator(ctx context.Context, tenant, name string, groups []string) (Operator, string, error) {
	if err := checkName("/name", name); err != nil {
		return Operator{}, "", err
	}
	groups = tidy(groups)
	if len(groups) > maxGrants {
		return Operator{}, "", unfit("/groups", "Too many groups.")
	}
	for _, g := range groups {
		if err := checkName("/groups", g); err != nil {
			return Operator{}, "", err
		}
	}
	id, err := s.newID("per_")
	if err != nil {
		return Operator{}, "", err
	}
	o := Operator{ID: id, Tenant: tenant, Name: name, Groups: groups, CreatedAt: s.now()}
	link, code, err := s.newLink(tenant, id, SetupTTL)
	if err != nil {
		return Operator{}, "", err
	}
	err = s.cfg.Store.CreateOperator(ctx, o, link)
	switch {
	case errors.Is(err, ErrExists):
		return Operator{}, "", fault.Wrap(err, fault.InvalidState, "There is, or was, an operator %s. Take another name; the record speaks of that one.", name)
	case err != nil:
		return Operator{}, "", storeFault(err)
	}
	return o, code, nil
}

// Operator reads one operator, disabled or not.
func (s *Service) Operator(ctx context.Context, tenant, id string) (Operator, error) {
	o, err := s.cfg.Store.Operator(ctx, tenant, id)
	return o, storeFault(err)
}

// OperatorNamed finds an operator, disabled or not, by name.
func (s *Service) OperatorNamed(ctx context.Context, tenant, name string) (Operator, error) {
	o, err := s.cfg.Store.OperatorByName(ctx, tenant, name)
	return o, storeFault(err)
}

// ListOperators lists the tenant's operators, disabled or not, the oldest first.
func (s *Service) ListOperators(ctx context.Context, tenant string) ([]Operator, error) {
	all, err := s.cfg.Store.Operators(ctx, tenant)
	return all, storeFault(err)
}

// DisableOperator ends what the operator may do: no sign-in, no set-up link, and
// each session ends at its next request (Sessions.Operator). It may be repeated.
func (s *Service) DisableOperator(ctx context.Context, tenant, id string) error {
	return storeFault(s.cfg.Store.DisableOperator(ctx, tenant, id, s.now()))
}
