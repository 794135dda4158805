// Package tokens makes and checks commit tokens: the signed, short-lived claim
// check that a preview hands out and a commit spends.
//
// What lives here: Claims and the Binding in them, the Signer that mints and
// verifies, and the KeySet with its file, rotation and published form (JWKS).
// A token is an Ed25519 JWT whose protected header is a constant per key. We
// are the only issuer and the only verifier, so nothing in a token is ever
// asked how it wants to be verified (S1).
//
// How it flows: preview calls Mint with what it fixed (agent, tool, key,
// digests). The agent carries the token to commit, which calls Verify, compares
// subject, tool, arguments and ledger generation with what it knows, and opens
// the operation, or, for a token that is Expired or Retired, only answers with
// the operation that exists. Operators rotate or revoke keys through KeySet.
//
// What does not live here: who may commit, single use, generations and the
// final word on expiry (ledger, inside the write that opens an operation), the
// HTTP routes (api), any state but the key file. A token is never deduplicated
// by its text; its jti and its (key, generation) count.
package tokens

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"countersign/fault"
)

// Limits of a token.
const (
	// MaxLength is the longest token in bytes that is looked at (S7).
	MaxLength = 4096
	// DefaultTTL is how long a token lives when Config does not say (S3).
	DefaultTTL = 5 * time.Minute
	// MaxTTL is the longest life of a token, and how long a key goes on opening
	// operations after another has taken its place (S3, S9).
	MaxTTL = 15 * time.Minute
	// MaxSkew is how far in the future a token may have been issued: the clocks
	// of two gateways differ a little. Expiry has no such leeway.
	MaxSkew = time.Minute
	// DefaultCacheSize is how many of its own tokens a Signer remembers.
	DefaultCacheSize = 4096
)

// Status says what a well-signed token may still do. The zero Status comes only
// together with an error.
type Status uint8

const (
	// Fresh: signed by a key that may open operations, and not expired.
	Fresh Status = iota + 1
	// Expired: the same, but its time is over. It can only be answered with the
	// operation that it opened before.
	Expired
	// Retired: signed by a key that opens nothing any more, whatever its expiry.
	// It can only be answered with the operation that it opened before.
	Retired
)

// String gives the word for logs.
func (s Status) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Expired:
		return "expired"
	case Retired:
		return "retired"
	default:
		return "none"
	}
}

// Config is what a Signer needs.
type Config struct {
	// Issuer is the id of this deployment: claim iss, and with "/commit" behind
	// it claim aud. Tokens of any other deployment are refused (S4).
	Issuer string
	// Keys sign and verify.
	Keys *KeySet
	// TTL is the life of a token in whole seconds, at most MaxTTL; zero means
	// DefaultTTL.
	TTL time.Duration
	// Now is the clock.
	Now func() time.Time
	// Rand gives the token ids and is read by many goroutines at once; nil means
	// crypto/rand.
	Rand io.Reader
	// CacheSize is how many own tokens are remembered; zero means
	// DefaultCacheSize, below zero means none.
	CacheSize int
}

// Signer mints and verifies the commit tokens of one deployment. It is safe for
// concurrent use.
type Signer struct {
	issuer string
	keys   *KeySet
	ttl    time.Duration
	now    func() time.Time
	random io.Reader
	own    *ownTokens
	decoy  decoy
}

// New checks the configuration and returns a Signer.
func New(c Config) (*Signer, error) {
	s := &Signer{
		issuer: c.Issuer, keys: c.Keys, ttl: c.TTL, now: c.Now, random: c.Rand,
		own: newOwnTokens(c.CacheSize), decoy: newDecoy(),
	}
	if s.ttl == 0 {
		s.ttl = DefaultTTL
	}
	if s.random == nil {
		s.random = rand.Reader
	}
	switch {
	case s.keys == nil:
		return nil, errors.New("commit tokens need a key set")
	case s.now == nil:
		return nil, errors.New("commit tokens need a clock")
	case !plain(s.issuer):
		return nil, fmt.Errorf("the deployment id must be 1 to %d printable ASCII characters without spaces, quotes, backslashes, <, > and &", maxClaim)
	case s.ttl < time.Second || s.ttl%time.Second != 0:
		return nil, fmt.Errorf("the life of a commit token must be a whole number of seconds, not %s", s.ttl)
	case s.ttl > MaxTTL:
		return nil, fmt.Errorf("the life of a commit token is at most %s, not %s", MaxTTL, s.ttl)
	}
	return s, nil
}

// Mint signs a new token for b with the active key. It fills iss, aud, purpose,
// a random jti, iat and nbf (now) and exp (now and the configured life), and
// returns the token with the claims in it. An error means that b is not
// something a token can carry (see Binding), or that randomness failed: faults
// of the caller, not of the agent.
func (s *Signer) Mint(b Binding) (string, Claims, error) {
	id := make([]byte, idBytes)
	if _, err := io.ReadFull(s.random, id); err != nil {
		return "", Claims{}, fmt.Errorf("reading randomness for a commit token: %w", err)
	}
	issued := s.now().Unix()
	c := Claims{
		Issuer:    s.issuer,
		Audience:  audience(s.issuer),
		ID:        encode(id),
		IssuedAt:  issued,
		NotBefore: issued,
		ExpiresAt: issued + int64(s.ttl/time.Second),
		Purpose:   purpose,
		Binding:   b,
	}
	if err := c.check(s.issuer); err != nil {
		return "", Claims{}, fmt.Errorf("minting a commit token: %w", err)
	}
	payload, err := c.payload()
	if err != nil {
		return "", Claims{}, fmt.Errorf("minting a commit token: %w", err)
	}
	k := s.keys.signing()
	input := k.header + "." + encode(payload)
	signature, err := jwt.SigningMethodEdDSA.Sign(input, k.private)
	if err != nil {
		return "", Claims{}, fmt.Errorf("signing a commit token: %w", err)
	}
	token := input + "." + encode(signature)
	if len(token) > MaxLength {
		return "", Claims{}, fmt.Errorf("minting a commit token: it would be %d bytes long, more than %d", len(token), MaxLength)
	}
	s.own.remember(token)
	return token, c, nil
}

// Verify returns the claims of a token of this deployment and what they are
// still good for. It checks, in this order:
//   - at most MaxLength bytes, all of them base64url characters or dots, exactly
//     two dots; no JWE, no JSON serialisation, no CR or LF (S7);
//   - the encoded header is, as a whole, that of a key that still verifies; alg,
//     typ, kid, jku, jwk and crit are never read from the token (S1);
//   - payload and signature are canonical base64url: no padding, unused bits of
//     the last character zero. So a token has one spelling only;
//   - the Ed25519 signature over header and payload, unless this process made
//     it (see ownTokens);
//   - the payload is byte for byte what Mint would have written for the claims
//     read from it: no claim is missing, unknown, repeated, of another type or
//     spelt otherwise;
//   - iss, aud and purpose are ours, the binding has the form that Mint demands;
//   - exp is after iat, by MaxTTL at most; nbf is iat; iat is not more than
//     MaxSkew in the future.
//
// Whatever fails, the answer is the same fault.TokenInvalid with the same detail
// after the work of one signature check (S8); only its cause, for the log, says
// which check it was, and it holds nothing of the token (S10).
//
// The caller compares subject, tenant, tool, digests and ledger generation, and
// decides expiry once more inside the write that opens an operation.
func (s *Signer) Verify(token string) (Claims, Status, error) {
	now := s.now()
	t, err := s.open(token, now)
	if err != nil {
		s.decoy.verify()
		return Claims{}, 0, refused(err)
	}
	if !s.own.remembers(token) {
		if jwt.SigningMethodEdDSA.Verify(t.input, t.signature, t.key.public) != nil {
			return Claims{}, 0, refused(errSignature)
		}
	}
	c, err := parseClaims(t.payload)
	if err != nil {
		return Claims{}, 0, refused(err)
	}
	if err := c.check(s.issuer); err != nil {
		return Claims{}, 0, refused(err)
	}
	if c.IssuedAt > now.Add(MaxSkew).Unix() {
		return Claims{}, 0, refused(errFuture)
	}
	switch {
	case !t.key.opens(now):
		return c, Retired, nil
	case c.Expired(now):
		return c, Expired, nil
	default:
		return c, Fresh, nil
	}
}

// opened is a token taken apart, not yet believed.
type opened struct {
	input     string // what was signed: header, dot, payload as sent
	payload   []byte
	signature []byte
	key       *key
}

// open does the checks that need no cryptography.
func (s *Signer) open(token string, now time.Time) (opened, error) {
	if len(token) > MaxLength {
		return opened{}, errLong
	}
	for i := range len(token) {
		if !tokenChar(token[i]) {
			return opened{}, errCharacter
		}
	}
	if strings.Count(token, ".") != 2 {
		return opened{}, errParts
	}
	header, rest, _ := strings.Cut(token, ".")
	body, tail, _ := strings.Cut(rest, ".")
	k := s.keys.verifying(header, now)
	if k == nil {
		return opened{}, errHeader
	}
	payload, ok := decode(body)
	if !ok {
		return opened{}, errBase64
	}
	signature, ok := decode(tail)
	if !ok || len(signature) != ed25519.SignatureSize {
		return opened{}, errBase64
	}
	return opened{input: token[:len(header)+1+len(body)], payload: payload, signature: signature, key: k}, nil
}

// Why a token was refused; for the log only. The texts are fixed, so that no
// part of a token can get into one.
var (
	errLong      = errors.New("longer than the limit")
	errCharacter = errors.New("a character outside base64url and dots")
	errParts     = errors.New("not three parts")
	errHeader    = errors.New("the header is not that of a key that verifies here")
	errBase64    = errors.New("payload or signature is not canonical base64url of the right size")
	errSignature = errors.New("the signature does not verify")
	errPayload   = errors.New("the payload is not what this gateway writes")
	errFuture    = errors.New("issued in the future")
)

// refused is the one answer to every token that cannot be believed (S8).
func refused(reason error) error {
	return fault.Wrap(reason, fault.TokenInvalid, "The commit token is not valid here. Ask for a new preview.")
}

func tokenChar(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode reads canonical base64url. Go's decoder ignores the unused bits of the
// last character unless it is strict, and CR and LF even then, so the text is
// encoded again and compared.
func decode(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return b, err == nil && encode(b) == s
}

// decoy is a valid signature that guards nothing. Verifying it gives a token
// that is refused for its form the cost of one refused for its signature, so
// that time does not tell which check failed (S8).
type decoy struct {
	public    ed25519.PublicKey
	message   string
	signature []byte
}

func newDecoy() decoy {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	d := decoy{public: private.Public().(ed25519.PublicKey), message: strings.Repeat("decoy", 256)}
	d.signature = ed25519.Sign(private, []byte(d.message))
	return d
}

func (d decoy) verify() {
	_ = jwt.SigningMethodEdDSA.Verify(d.message, d.signature, d.public)
}
