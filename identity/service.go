package identity

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"io"
	"regexp"
	"time"

	"golang.org/x/crypto/argon2"

	"countersign/fault"
)

// Config is what a Service is made of. Store and Revoke are required; the other
// fields have defaults.
type Config struct {
	Store Store
	// Revoke takes the agent's rights away in the ledger's guard row, so that
	// what waits for it stops (S18). It may be called again for the same agent.
	Revoke func(ctx context.Context, tenant, agentID string) error
	// Now defaults to time.Now.
	Now func() time.Time
	// Rand makes keys, codes, salts and ids; safe for concurrent use. Default
	// crypto/rand.
	Rand io.Reader
	// Argon2idFunc defaults to argon2.IDKey, which has the same parameters.
	Argon2idFunc func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte
}

// Service creates, authenticates and revokes agents and operators. It is safe
// for concurrent use. Its errors are fault.Error, or the context's.
type Service struct {
	cfg      Config
	throttle *throttle
	kdf      *kdf
	// digest is what stands for an agent's secret; a field so that a test can
	// count that every refusal costs the same.
	digest func(salt []byte, secret string) []byte
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Store == nil || cfg.Revoke == nil {
		panic("identity: Config needs Store and Revoke")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Argon2idFunc == nil {
		cfg.Argon2idFunc = argon2.IDKey
	}
	return &Service{
		cfg:      cfg,
		throttle: newThrottle(),
		kdf:      newKDF(cfg.Argon2idFunc, cfg.Rand),
		digest:   secretDigest,
	}
}

// Sweep deletes sessions and set-up links whose time is over. They are dead
// without it; it only frees their space. Meant for a background loop.
func (s *Service) Sweep(ctx context.Context) (err error) {
	defer fault.Recovered(&err)
	return storeFault(s.cfg.Store.SweepIdentity(ctx, s.now()))
}

func (s *Service) now() time.Time { return s.cfg.Now().UTC() }

// newID makes an id of prefix and 26 characters, 128 random bits.
func (s *Service) newID(prefix string) (string, error) {
	text, err := randomText(s.cfg.Rand, 16)
	return prefix + text, err
}

// alphabet is Crockford's base32 in lower case: no i, l, o, u to misread.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// randomText encodes n random bytes.
func randomText(r io.Reader, n int) (string, error) {
	b, err := randomBytes(r, n)
	return encoding.EncodeToString(b), err
}

func randomBytes(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "The source of random numbers failed.")
	}
	return b, nil
}

// nameRule is for agents, operators and groups. ASCII only, so that two names
// which look alike are alike.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkName(pointer, name string) error {
	if nameRule.MatchString(name) {
		return nil
	}
	return unfit(pointer, "A name is 1 to 63 lower-case letters, digits and hyphens, and begins with a letter or digit.")
}

// unfit refuses one bad value. The value itself is not repeated: it may be a
// secret in the wrong place.
func unfit(pointer, detail string) error {
	return fault.New(fault.SchemaViolation, "%s", detail).At(pointer, detail)
}

// storeFault turns a store's error into what callers may see.
func storeFault(err error) error {
	var known *fault.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, ErrNotFound):
		return fault.Wrap(err, fault.NotFound, "There is no such agent or operator.")
	case errors.Is(err, ErrDiskFull):
		return fault.Wrap(err, fault.DiskFull, "The disk is full; nothing was written.")
	default:
		return fault.Wrap(err, fault.StoreUnavailable, "The store did not confirm. Look whether the change was made before you repeat it.")
	}
}
