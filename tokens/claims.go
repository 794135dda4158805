package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	purpose = "commit"
	// idBytes is the length of a jti: 128 random bits.
	idBytes = 16
	// maxClaim is the longest text claim in bytes.
	maxClaim = 255
	// maxInteger is the largest integer that every JSON reader keeps exactly.
	maxInteger = 1<<53 - 1
)

// Binding is what a token stands for: one preview, of one tool version and one
// set of arguments, by one agent, under one key and generation (S2). All are
// required. Texts are 1 to 255 printable ASCII characters without spaces,
// quotes, backslashes, <, > and &, which JSON writes as they stand.
type Binding struct {
	// Subject is the id of the agent that asked for the preview.
	Subject string `json:"sub"`
	Tenant  string `json:"tenant"`
	Tool    string `json:"tool"`
	// ToolVersion is the version of the manifest that made the preview.
	ToolVersion string `json:"tool_version"`
	// KeyDigest is KeyDigest of the idempotency key. The key itself may tell
	// something (an order, a customer) and never stands in a token.
	KeyDigest string `json:"key_digest"`
	// Generation is the one generation under the key that the token may open,
	// 1 to 2^31-1.
	Generation    int    `json:"generation"`
	ArgsDigest    string `json:"args_digest"`
	PreviewDigest string `json:"preview_digest"`
	PreviewID     string `json:"preview_id"`
	PolicyDigest  string `json:"policy_digest"`
	// LedgerGeneration is raised by an emergency revoke and by a restore. A token
	// that names another than the ledger's own is void; the caller compares.
	LedgerGeneration int64 `json:"ledger_generation"`
}

// Claims is the whole content of a token. Times are Unix seconds.
//
// Members, their order and their types are the wire form: Verify accepts only
// what Mint would write today. A change here makes every token that is out
// there unreadable, also for replay, so it needs a typ of its own and a reader
// for the old form.
type Claims struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	ID        string `json:"jti"`
	IssuedAt  int64  `json:"iat"`
	NotBefore int64  `json:"nbf"`
	ExpiresAt int64  `json:"exp"`
	Purpose   string `json:"purpose"`
	Binding
}

// Expiry is the first moment at which the token is expired.
func (c Claims) Expiry() time.Time { return time.Unix(c.ExpiresAt, 0).UTC() }

// Expired reports whether the token's time is over at now. There is no leeway
// (S3).
func (c Claims) Expired(now time.Time) bool { return now.Unix() >= c.ExpiresAt }

// KeyDigest is the form in which an idempotency key stands in a token:
// "sha256:" and the hexadecimal SHA-256 of the key.
func KeyDigest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return digestPrefix + hex.EncodeToString(sum[:])
}

const digestPrefix = "sha256:"

// payload is the one encoding of c.
func (c Claims) payload() ([]byte, error) { return json.Marshal(c) }

// parseClaims reads a payload that is exactly what payload writes. encoding/json
// alone is too forgiving: it takes the last of two members, other cases of a
// name, unknown and missing members. Writing the claims again and comparing the
// bytes leaves room for none of that.
func parseClaims(payload []byte) (Claims, error) {
	var c Claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return Claims{}, errPayload
	}
	again, err := c.payload()
	if err != nil || !bytes.Equal(again, payload) {
		return Claims{}, errPayload
	}
	return c, nil
}

// check holds what is true of every token of the deployment issuer, at mint and
// at verify alike. Errors name the claim and never its value.
func (c Claims) check(issuer string) error {
	switch id, ok := decode(c.ID); {
	case c.Issuer != issuer:
		return errors.New("iss is not this deployment")
	case c.Audience != audience(issuer):
		return errors.New("aud is not the commit endpoint of this deployment")
	case c.Purpose != purpose:
		return errors.New("purpose is not commit")
	case !ok || len(id) != idBytes:
		return errors.New("jti is not 128 bits in base64url")
	// The bounds come first, so that the difference below cannot overflow.
	case c.IssuedAt < 1 || c.IssuedAt > maxInteger || c.ExpiresAt > maxInteger:
		return errors.New("iat or exp is out of range")
	case c.NotBefore != c.IssuedAt:
		return errors.New("nbf is not iat")
	case c.ExpiresAt <= c.IssuedAt:
		return errors.New("exp is not after iat")
	case c.ExpiresAt-c.IssuedAt > int64(MaxTTL/time.Second):
		return errors.New("exp is too long after iat")
	}
	return c.Binding.check()
}

func (b Binding) check() error {
	for _, claim := range []struct{ name, value string }{
		{"sub", b.Subject},
		{"tenant", b.Tenant},
		{"tool", b.Tool},
		{"tool_version", b.ToolVersion},
		{"args_digest", b.ArgsDigest},
		{"preview_digest", b.PreviewDigest},
		{"preview_id", b.PreviewID},
		{"policy_digest", b.PolicyDigest},
	} {
		if !plain(claim.value) {
			return fmt.Errorf("%s is not 1 to %d plain characters", claim.name, maxClaim)
		}
	}
	switch {
	case !isKeyDigest(b.KeyDigest):
		return errors.New("key_digest is not made by KeyDigest")
	case b.Generation < 1 || b.Generation > math.MaxInt32:
		return errors.New("generation is out of range")
	case b.LedgerGeneration < 0 || b.LedgerGeneration > maxInteger:
		return errors.New("ledger_generation is out of range")
	}
	return nil
}

func audience(issuer string) string { return issuer + "/" + purpose }

// isKeyDigest is strict, so that a key can't get into a token by mistake.
func isKeyDigest(s string) bool {
	if len(s) != len(digestPrefix)+2*sha256.Size || s[:len(digestPrefix)] != digestPrefix {
		return false
	}
	for _, c := range []byte(s[len(digestPrefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// plain reports whether s is a text that a claim may hold: what encoding/json
// writes without any escape, so that its spelling can't change under us.
func plain(s string) bool {
	if s == "" || len(s) > maxClaim {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c <= ' ' || c > '~':
			return false
		case c == '"' || c == '\\' || c == '<' || c == '>' || c == '&':
			return false
		}
	}
	return true
}
