package tokens_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

func TestOwnTokens_bounded(t *testing.T) {
	w := newWorldWith(t, tokens.Config{CacheSize: 3})
	var minted []string
	for range 8 {
		minted = append(minted, w.mint(t))
	}
	require.Equal(t, 3, w.signer.Remembered())
	for i, token := range minted {
		require.Equal(t, i >= 5, w.signer.Remembers(token), "token %d", i)
		require.Equal(t, tokens.Fresh, w.status(t, token), "a forgotten token is verified in full")
	}
	require.Equal(t, 3, w.signer.Remembered(), "verifying adds nothing")
}

func TestOwnTokens_off(t *testing.T) {
	w := newWorldWith(t, tokens.Config{CacheSize: -1})
	token := w.mint(t)
	require.False(t, w.signer.Remembers(token))
	require.Zero(t, w.signer.Remembered())
	require.Equal(t, tokens.Fresh, w.status(t, token))
}

func TestOwnTokens_default(t *testing.T) {
	w := newWorld(t)
	require.True(t, w.signer.Remembers(w.mint(t)))
}

// Only what this process signed is remembered, never what it verified.
func TestOwnTokens_foreign(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	other := w.other(t)
	require.Equal(t, tokens.Fresh, other.status(t, token))
	require.False(t, other.signer.Remembers(token))
}

// A remembered token goes through every check but that of the signature.
func TestOwnTokens_checks_remain(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	w.clock.advance(5 * time.Minute)
	require.Equal(t, tokens.Expired, w.status(t, token))
	w.clock.advance(-10 * time.Minute)
	requireRefused(t, w.signer, token)
	w.clock.advance(5 * time.Minute)
	require.Equal(t, tokens.Fresh, w.status(t, token))

	w.rotate(t)
	w.clock.advance(tokens.MaxTTL)
	require.Equal(t, tokens.Retired, w.status(t, token))

	_, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	require.True(t, w.signer.Remembers(token), "else this shows nothing")
	requireRefused(t, w.signer, token)
}
