package tokens_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenWorld is the same on each run: Ed25519 signs without randomness.
func goldenWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: &clock{}, path: filepath.Join(t.TempDir(), "token-keys.json")}
	seeds := append(bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)...)
	var err error
	w.keys, err = tokens.LoadOrCreate(w.path, start, tokens.KeyOptions{Rand: bytes.NewReader(seeds)})
	require.NoError(t, err)
	w.signer, err = tokens.New(tokens.Config{
		Issuer: issuer, Keys: w.keys, Now: w.clock.now, Rand: bytes.NewReader([]byte("sixteen bytes id")),
	})
	require.NoError(t, err)
	return w
}

func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSuffix(string(want), "\n"), got)
}

// The wire form of a token must never drift: tokens that are out there would
// become unreadable, also for replay.
func TestGolden_token(t *testing.T) {
	w := goldenWorld(t)
	token := w.mint(t)
	requireGolden(t, "token.jwt", token)
	parts := strings.Split(token, ".")
	requireGolden(t, "token.json", string(raw(t, parts[0]))+"\n"+string(raw(t, parts[1])))
	require.Equal(t, tokens.Fresh, w.other(t).status(t, token))
}

// published is a key set as somebody else reads it (RFC 7517, RFC 8037).
type published struct {
	Keys []struct{ Kty, Crv, X, Kid, Use, Alg string }
}

func TestGolden_jwks(t *testing.T) {
	w := goldenWorld(t)
	old := w.mint(t)
	w.rotate(t)
	jwks := w.keys.JWKS(start)
	requireGolden(t, "jwks.json", string(jwks))
	require.Equal(t, string(jwks), string(w.other(t).keys.JWKS(start)), "the same bytes from each process, for the ETag")

	var set published
	require.NoError(t, json.Unmarshal(jwks, &set))
	require.Len(t, set.Keys, 2)
	public := map[string]ed25519.PublicKey{}
	for _, k := range set.Keys {
		require.Equal(t, []string{"OKP", "Ed25519", "sig", "EdDSA"}, []string{k.Kty, k.Crv, k.Use, k.Alg})
		public[k.Kid] = raw(t, k.X)
	}

	// Another implementation believes the token by the published key alone.
	var claims tokens.Claims
	parsed, err := jwt.ParseWithClaims(old, &foreignClaims{}, func(token *jwt.Token) (any, error) {
		require.Equal(t, "countersign-commit+jwt", token.Header["typ"])
		return public[token.Header["kid"].(string)], nil
	},
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithIssuer(issuer), jwt.WithAudience(issuer+"/commit"), jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(), jwt.WithStrictDecoding(), jwt.WithTimeFunc(w.clock.now))
	require.NoError(t, err)
	require.True(t, parsed.Valid)
	claims, _, err = w.signer.Verify(old)
	require.NoError(t, err)
	foreign := parsed.Claims.(*foreignClaims)
	require.Equal(t, claims.Subject, foreign.Subject)
	require.Equal(t, claims.ID, foreign.ID)
	require.Equal(t, claims.Expiry(), foreign.ExpiresAt.UTC())
	require.Equal(t, claims.ArgsDigest, foreign.ArgsDigest)

	// And not by the other key.
	_, err = jwt.Parse(old, func(*jwt.Token) (any, error) { return public[set.Keys[0].Kid], nil }, jwt.WithTimeFunc(w.clock.now))
	require.ErrorIs(t, err, jwt.ErrTokenSignatureInvalid)
}

type foreignClaims struct {
	jwt.RegisteredClaims
	ArgsDigest string `json:"args_digest"`
}

// The set lists the keys that verify, newest first, and changes only with them.
func TestKeySet_JWKS(t *testing.T) {
	w := newWorld(t)
	ids := func() []string {
		t.Helper()
		var set published
		require.NoError(t, json.Unmarshal(w.keys.JWKS(w.clock.now()), &set))
		all := []string{}
		for _, k := range set.Keys {
			all = append(all, k.Kid)
		}
		return all
	}
	var made []string
	for _, k := range storedKeys(t, w.path) {
		made = append(made, k.ID)
	}
	require.Equal(t, made, ids())
	for range 2 {
		w.clock.advance(time.Hour)
		id, err := w.keys.Rotate(w.clock.now())
		require.NoError(t, err)
		made = append([]string{id}, made...)
		require.Equal(t, made, ids())
	}
	before := w.keys.JWKS(w.clock.now())
	w.clock.advance(time.Hour)
	require.Equal(t, string(before), string(w.keys.JWKS(w.clock.now())), "time alone changes nothing while all verify")

	w.clock.advance(tokens.DefaultRetention - 2*time.Hour)
	require.Equal(t, made[:2], ids(), "the first stopped signing a retention ago")
	id, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids())
}
