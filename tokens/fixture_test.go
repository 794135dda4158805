package tokens_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tokens"
)

// issuer is the deployment of all tests.
const issuer = "https://gateway.example"

// start is when the tests begin: not on a whole second, as in life.
var start = time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)

// clock is a hand-moved clock that many goroutines may read.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return start.Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// world is one deployment with a key file on disk.
type world struct {
	clock  *clock
	path   string
	keys   *tokens.KeySet
	signer *tokens.Signer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldWith(t, tokens.Config{})
}

// newWorldWith fills what c leaves open.
func newWorldWith(t testing.TB, c tokens.Config) *world {
	t.Helper()
	w := &world{clock: &clock{}, path: filepath.Join(t.TempDir(), "token-keys.json")}
	keys, err := tokens.LoadOrCreate(w.path, w.clock.now(), tokens.KeyOptions{})
	require.NoError(t, err)
	w.keys, c.Keys, c.Now = keys, keys, w.clock.now
	if c.Issuer == "" {
		c.Issuer = issuer
	}
	w.signer, err = tokens.New(c)
	require.NoError(t, err)
	return w
}

// other is a second process of the same deployment: it loads the same file and
// has signed nothing.
func (w *world) other(t testing.TB) *world {
	t.Helper()
	keys, err := tokens.Load(w.path, tokens.KeyOptions{})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: issuer, Keys: keys, Now: w.clock.now})
	require.NoError(t, err)
	return &world{clock: w.clock, path: w.path, keys: keys, signer: signer}
}

func (w *world) mint(t testing.TB) string {
	t.Helper()
	token, _, err := w.signer.Mint(binding())
	require.NoError(t, err)
	return token
}

func (w *world) rotate(t testing.TB) {
	t.Helper()
	_, err := w.keys.Rotate(w.clock.now())
	require.NoError(t, err)
}

// status is Verify when the token must be believed.
func (w *world) status(t testing.TB, token string) tokens.Status {
	t.Helper()
	_, status, err := w.signer.Verify(token)
	require.NoError(t, err)
	return status
}

func binding() tokens.Binding {
	return tokens.Binding{
		Subject:          "agt_7Q2",
		Tenant:           "default",
		Tool:             "refund_payment",
		ToolVersion:      "sha256:" + strings.Repeat("1", 64),
		KeyDigest:        tokens.KeyDigest("order-1042/refund"),
		Generation:       1,
		ArgsDigest:       "sha256:" + strings.Repeat("2", 64),
		PreviewDigest:    "sha256:" + strings.Repeat("3", 64),
		PreviewID:        "prv_01JN8Z4T6V",
		PolicyDigest:     "sha256:" + strings.Repeat("4", 64),
		LedgerGeneration: 1,
	}
}

// storedKey is a key as the file shows it: the tests' own copy, to forge with.
type storedKey struct {
	ID        string    `json:"kid"`
	State     string    `json:"state"`
	Public    string    `json:"public_key"`
	Seed      string    `json:"seed"`
	CreatedAt time.Time `json:"created_at"`
	RetiredAt time.Time `json:"retired_at"`
}

func storedKeys(t testing.TB, path string) []storedKey {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct{ Keys []storedKey }
	require.NoError(t, json.Unmarshal(content, &file))
	return file.Keys
}

// private is the seed of the active key: with it a test signs what Mint never
// would, and so shows that a check stands on its own.
func (w *world) private(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	for _, k := range storedKeys(t, w.path) {
		if k.State == "active" {
			return ed25519.NewKeyFromSeed(raw(t, k.Seed))
		}
	}
	t.Fatal("the key file has no active key")
	return nil
}

// header is the genuine protected header of the active key.
func (w *world) header(t testing.TB) string {
	t.Helper()
	for _, k := range storedKeys(t, w.path) {
		if k.State == "active" {
			return `{"alg":"EdDSA","kid":"` + k.ID + `","typ":"countersign-commit+jwt"}`
		}
	}
	t.Fatal("the key file has no active key")
	return ""
}

// forge signs any header and payload with the genuine key.
func (w *world) forge(t testing.TB, header, payload string) string {
	t.Helper()
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(ed25519.Sign(w.private(t), []byte(input)))
}

// payload is the text of the second part of a token.
func payload(t testing.TB, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	return string(raw(t, parts[1]))
}

// replaced swaps old for new in s and insists that it stood there once, so that
// a case can't silently test the unchanged token.
func replaced(t testing.TB, s, old, fresh string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(s, old), "%q in %s", old, s)
	return strings.Replace(s, old, fresh, 1)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func raw(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	require.NoError(t, err)
	return b
}

// requireRefused is the one answer to everything that is not a token of this
// deployment (S8), and it shows nothing of the token (S10).
func requireRefused(t testing.TB, s *tokens.Signer, token string) {
	t.Helper()
	claims, status, err := s.Verify(token)
	require.Error(t, err, "%q", token)
	require.Equal(t, fault.TokenInvalid, fault.Of(err).Code)
	require.Equal(t, "The commit token is not valid here. Ask for a new preview.", fault.Of(err).Detail)
	require.Empty(t, fault.Of(err).Pointers)
	require.Zero(t, status)
	require.Zero(t, claims)
	for _, part := range strings.Split(token, ".") {
		if len(part) > 16 {
			require.False(t, bytes.Contains([]byte(err.Error()), []byte(part[:16])), "the error shows a part of the token")
		}
	}
}
