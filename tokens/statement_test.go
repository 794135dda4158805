package tokens_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

const receiptType = "countersign-receipt+jwt"

func sign(t *testing.T, w *world, typ, payload string) string {
	t.Helper()
	s, err := w.keys.Sign(typ, []byte(payload))
	require.NoError(t, err)
	return s
}

func TestStatement_VerifiesWithThePublishedKeys(t *testing.T) {
	w := newWorld(t)
	signed := sign(t, w, receiptType, `{"a":1}`)
	w.rotate(t)
	rotated := w.clock.now().Truncate(time.Second)
	later := sign(t, w, receiptType, `{"a":2}`)
	require.NotEqual(t, strings.Split(signed, ".")[0], strings.Split(later, ".")[0])

	keys, err := tokens.ParseJWKS(w.keys.JWKS(w.clock.now()))
	require.NoError(t, err)
	require.Equal(t, w.keys.PublicKeys(w.clock.now()), keys)
	for text, statement := range map[string]string{`{"a":1}`: signed, `{"a":2}`: later} {
		payload, kid, err := keys.Verify(receiptType, statement)
		require.NoError(t, err)
		require.Equal(t, text, string(payload))
		require.Contains(t, keys, kid)
	}

	// A retired key verifies for the retention, and not a moment longer.
	w.clock.advance(rotated.Add(tokens.DefaultRetention).Sub(w.clock.now()) - 1)
	_, _, err = w.keys.PublicKeys(w.clock.now()).Verify(receiptType, signed)
	require.NoError(t, err)
	w.clock.advance(1)
	_, _, err = w.keys.PublicKeys(w.clock.now()).Verify(receiptType, signed)
	require.ErrorIs(t, err, tokens.ErrUnknownKey)
}

func TestStatement_AfterAnEmergencyRevoke(t *testing.T) {
	w := newWorld(t)
	signed := sign(t, w, receiptType, `{}`)
	_, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	_, _, err = w.keys.PublicKeys(w.clock.now()).Verify(receiptType, signed)
	require.ErrorIs(t, err, tokens.ErrUnknownKey)
}

// S4: a statement is of one kind and never taken for another, nor for a token.
func TestStatement_KindsAreApart(t *testing.T) {
	w := newWorld(t)
	keys := w.keys.PublicKeys(w.clock.now())
	receipt := sign(t, w, receiptType, `{}`)
	_, _, err := keys.Verify("countersign-checkpoint+jwt", receipt)
	require.ErrorIs(t, err, tokens.ErrUnknownKey)
	requireRefused(t, w.signer, receipt)
	for _, typ := range []string{"countersign-commit+jwt", "", "JWT", "countersign-a b", `countersign-a"`} {
		_, err := w.keys.Sign(typ, nil)
		require.Error(t, err, typ)
		_, _, err = keys.Verify(typ, w.mint(t))
		require.ErrorIs(t, err, tokens.ErrBadStatement, typ)
	}
	_, _, err = keys.Verify(receiptType, w.mint(t))
	require.ErrorIs(t, err, tokens.ErrUnknownKey)
}

// Every byte counts, and there is one spelling only.
func TestStatement_EveryByteCounts(t *testing.T) {
	w := newWorld(t)
	keys := w.keys.PublicKeys(w.clock.now())
	signed := sign(t, w, receiptType, `{"amount":5000,"to":"Birch Bakery"}`)
	for i := range signed {
		for _, c := range []byte{'A', 'B', '.', '='} {
			if signed[i] == c {
				continue
			}
			spoilt := []byte(signed)
			spoilt[i] = c
			_, _, err := keys.Verify(receiptType, string(spoilt))
			require.Error(t, err, "byte %d", i)
		}
	}
	for _, spoilt := range []string{"", "..", signed + ".", signed + "=", "\n" + signed, signed + "\n", strings.Replace(signed, ".", "..", 1)} {
		_, _, err := keys.Verify(receiptType, spoilt)
		require.Error(t, err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	_, _, err := keys.Verify(receiptType, none+"."+strings.Split(signed, ".")[1]+".")
	require.ErrorIs(t, err, tokens.ErrUnknownKey)
}

func TestParseJWKS_Refuses(t *testing.T) {
	w := newWorld(t)
	good := string(w.keys.JWKS(w.clock.now()))
	for name, text := range map[string]string{
		"no JSON":      "",
		"no set":       "{}",
		"another kid":  strings.Replace(good, `"kid":"`, `"kid":"x`, 1),
		"another x":    strings.Replace(good, `"x":"`, `"x":"A`, 1),
		"x that lacks": strings.Replace(good, `"x":"`, `"y":"`, 1),
	} {
		_, err := tokens.ParseJWKS([]byte(text))
		require.Error(t, err, name)
	}
	keys, err := tokens.ParseJWKS([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","kid":"r"}]}`))
	require.NoError(t, err)
	require.Empty(t, keys)
}
