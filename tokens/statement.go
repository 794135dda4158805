package tokens

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Statements are what the gateway says about its own ledger: checkpoints,
// receipts, overrides, recoveries. They are signed by the same keys as commit
// tokens, and their typ keeps each kind apart from every other one (S4).

// MaxStatement is the longest statement in bytes that is looked at.
const MaxStatement = 4 << 20

// Sign makes a compact JWS (RFC 7515) over the payload with the key that signs
// now. typ names the kind of statement, as "countersign-receipt+jwt"; the typ of
// commit tokens is refused.
func (k *KeySet) Sign(typ string, payload []byte) (string, error) {
	if !statementType(typ) {
		return "", fmt.Errorf("a statement can't have the type %q", typ)
	}
	key := k.signing()
	input := statementHeader(key.id, typ) + "." + encode(payload)
	return input + "." + encode(ed25519.Sign(key.private, []byte(input))), nil
}

// PublicKeys gives the keys whose statements are believed at now: the same as
// JWKS publishes.
func (k *KeySet) PublicKeys(now time.Time) PublicKeys {
	set := PublicKeys{}
	for _, key := range k.table.Load().keys {
		if key.verifies(now, k.retention) {
			set[key.id] = key.public
		}
	}
	return set
}

// PublicKeys are keys to verify statements with, by their id. The id is always
// the thumbprint of the key.
type PublicKeys map[string]ed25519.PublicKey

// ErrUnknownKey: the statement was signed by a key that is not in the set, or its
// header is not that of its kind. Nothing is known of the signature.
var ErrUnknownKey = errors.New("the statement was signed by a key that is not in the key set, or is of another kind")

// ErrBadStatement: the statement is not what its key signed.
var ErrBadStatement = errors.New("the statement is not what its key signed")

// ParseJWKS reads a JWK set (RFC 7517) as JWKS publishes it. A key whose id is not
// its thumbprint is refused; keys of other kinds are left out.
func ParseJWKS(text []byte) (PublicKeys, error) {
	var file struct {
		Keys []struct {
			Type  string `json:"kty"`
			Curve string `json:"crv"`
			X     string `json:"x"`
			ID    string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(text, &file); err != nil || file.Keys == nil {
		return nil, errors.New("this is not the JSON of a JWK set")
	}
	set := PublicKeys{}
	for i, k := range file.Keys {
		if k.Type != "OKP" || k.Curve != "Ed25519" {
			continue
		}
		public, ok := decode(k.X)
		if !ok || len(public) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("key %d of the JWK set: x is not 32 bytes in base64url", i+1)
		}
		if k.ID != thumbprint(public) {
			return nil, fmt.Errorf("key %d of the JWK set: kid is not the key's thumbprint", i+1)
		}
		set[k.ID] = public
	}
	return set, nil
}

// Verify gives the payload of a statement of the type and the id of the key that
// signed it. As with tokens, nothing in the header is asked how it wants to be
// verified (S1): as a whole it is that of a key of the set for this type, or the
// answer is ErrUnknownKey. A statement has one spelling only.
func (p PublicKeys) Verify(typ, statement string) (payload []byte, kid string, err error) {
	if len(statement) > MaxStatement || strings.Count(statement, ".") != 2 || !statementType(typ) {
		return nil, "", ErrBadStatement
	}
	header, rest, _ := strings.Cut(statement, ".")
	body, tail, _ := strings.Cut(rest, ".")
	for id := range p {
		if statementHeader(id, typ) == header {
			kid = id
		}
	}
	if kid == "" {
		return nil, "", ErrUnknownKey
	}
	payload, ok := decode(body)
	if !ok {
		return nil, kid, ErrBadStatement
	}
	signature, ok := decode(tail)
	if !ok || !ed25519.Verify(p[kid], []byte(header+"."+body), signature) {
		return nil, kid, ErrBadStatement
	}
	return payload, kid, nil
}

// statementHeader is the constant protected header of a key's statements of one
// type.
func statementHeader(kid, typ string) string {
	return encode([]byte(`{"alg":"EdDSA","kid":"` + kid + `","typ":"` + typ + `"}`))
}

// statementType tells a type that a statement may have.
func statementType(typ string) bool {
	return typ != commitType && plain(typ) && strings.HasPrefix(typ, "countersign-")
}
