package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"countersign/fault"
)

const (
	// SetupTTL is the life of a set-up link unless said otherwise.
	SetupTTL = 15 * time.Minute
	setupMax = 7 * 24 * time.Hour
	// setupBytes of randomness are in a code: 160 bits, 32 characters.
	setupBytes = 20
)

// NewSetupLink makes a code with which the operator sets a password, the first
// or another. It is valid for ttl (0 means SetupTTL), once, and voids the codes
// made before it. The code is returned this once.
func (s *Service) NewSetupLink(ctx context.Context, tenant, operatorID string, ttl time.Duration) (string, error) {
	if ttl == 0 {
		ttl = SetupTTL
	}
	if ttl < 0 || ttl > setupMax {
		return "", unfit("/ttl", "A set-up link lives for at most 7 days.")
	}
	o, err := s.Operator(ctx, tenant, operatorID)
	if err != nil {
		return "", err
	}
	disabled := fault.New(fault.InvalidState, "The operator is disabled.")
	if !o.DisabledAt.IsZero() {
		return "", disabled
	}
	link, code, err := s.newLink(tenant, operatorID, ttl)
	if err != nil {
		return "", err
	}
	err = s.cfg.Store.PutSetupLink(ctx, link)
	if errors.Is(err, ErrNotFound) {
		return "", disabled // in the meantime
	}
	if err != nil {
		return "", storeFault(err)
	}
	return code, nil
}

func (s *Service) newLink(tenant, operator string, ttl time.Duration) (SetupLink, string, error) {
	code, err := randomText(s.cfg.Rand, setupBytes)
	if err != nil {
		return SetupLink{}, "", err
	}
	return SetupLink{CodeHash: codeHash(code), Tenant: tenant, Operator: operator, ExpiresAt: s.now().Add(ttl)}, code, nil
}

// codeHash is what is stored of a code. It finds the link, so it has no salt;
// the code is random and long enough for that.
func codeHash(code string) []byte {
	sum := sha256.Sum256([]byte(code))
	return sum[:]
}

// PeekSetup tells for whom a code is, without spending it. Space around the
// code, from copying, does not matter.
func (s *Service) PeekSetup(ctx context.Context, code string) (Operator, error) {
	link, err := s.cfg.Store.SetupLink(ctx, codeHash(strings.TrimSpace(code)), s.now())
	if errors.Is(err, ErrNotFound) {
		return Operator{}, badCode()
	}
	if err != nil {
		return Operator{}, storeFault(err)
	}
	o, err := s.Operator(ctx, link.Tenant, link.Operator)
	if err != nil {
		return Operator{}, err
	}
	if !o.DisabledAt.IsZero() {
		return Operator{}, badCode()
	}
	return o, nil
}

// CompleteSetup spends a code and sets the operator's password; sessions that
// were opened with an older password end. A password that is refused leaves the
// code as it was. Of parallel calls one wins.
func (s *Service) CompleteSetup(ctx context.Context, code, password string) (Operator, error) {
	// Who has no code must not be able to make us compute.
	o, err := s.PeekSetup(ctx, code)
	if err != nil {
		return Operator{}, err
	}
	normal, err := newPassword(o.Name, password)
	if err != nil {
		return Operator{}, err
	}
	hash, err := s.kdf.hash(ctx, normal)
	if err != nil {
		return Operator{}, err
	}
	o, err = s.cfg.Store.UseSetupLink(ctx, codeHash(strings.TrimSpace(code)), s.now(), hash)
	if errors.Is(err, ErrNotFound) {
		return Operator{}, badCode()
	}
	return o, storeFault(err)
}

func badCode() error {
	return fault.New(fault.Unauthenticated, "This set-up code is not valid: it was used, replaced or never given out, or its time is over. Ask for a new one.")
}
