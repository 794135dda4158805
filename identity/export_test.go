package identity

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
)

const (
	PasswordMin  = passwordMin
	PasswordMax  = passwordMax
	KDFParallel  = kdfParallel
	KDFWaiting   = kdfWaiting
	PairBurst    = pairBurst
	PairEvery    = pairEvery
	AddressBurst = addressBurst
	AddressEvery = addressEvery
	NameBurst    = nameBurst
	NameEvery    = nameEvery
	ThrottleSize = throttleSize
	SessionGrain = sessionGrain
)

// CountDigests counts how often a presented secret is hashed.
func (s *Service) CountDigests(n *atomic.Int64) {
	inner := s.digest
	s.digest = func(salt []byte, secret string) []byte {
		n.Add(1)
		return inner(salt, secret)
	}
}

// Waiting is how many argon2id computations run or wait.
func (s *Service) Waiting() int64 { return s.kdf.waiting.Load() }

// Buckets is how many buckets the throttle holds.
func (s *Service) Buckets() int {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	return len(s.throttle.buckets)
}

// Verify compares a password with a stored form.
func (s *Service) Verify(ctx context.Context, password, stored string) (match, old bool, err error) {
	return s.kdf.verify(ctx, password, stored)
}

func ParseAgentKey(text string) (id, secret string, ok bool) {
	k, ok := parseAgentKey(text)
	return k.id, k.secret, ok
}

func Checksum(text string) string { return checksum(text) }

// ParsePHC gives the canonical text of what it read.
func ParsePHC(text string) (string, error) {
	p, err := parsePHC(text)
	return p.String(), err
}

func CommonPasswords() []string { return slices.Collect(maps.Keys(commonPasswords)) }
