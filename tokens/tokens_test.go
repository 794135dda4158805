package tokens_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

func TestSigner_Mint(t *testing.T) {
	w := newWorld(t)
	token, minted, err := w.signer.Mint(binding())
	require.NoError(t, err)

	now := start.Unix()
	require.Len(t, raw(t, minted.ID), 16, "jti is 128 bits (S2)")
	want := tokens.Claims{
		Issuer:    "https://gateway.example",
		Audience:  "https://gateway.example/commit",
		ID:        minted.ID,
		IssuedAt:  now,
		NotBefore: now,
		ExpiresAt: now + 300,
		Purpose:   "commit",
		Binding:   binding(),
	}
	require.Empty(t, cmp.Diff(want, minted))

	read, status, err := w.signer.Verify(token)
	require.NoError(t, err)
	require.Equal(t, tokens.Fresh, status)
	require.Empty(t, cmp.Diff(minted, read))

	read, _, err = w.other(t).signer.Verify(token)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(minted, read), "another process reads the same")
}

func TestSigner_Mint_names(t *testing.T) {
	w := newWorld(t)
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(payload(t, w.mint(t))), &members))
	var names []string
	for name := range members {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{
		"iss", "aud", "sub", "tenant", "jti", "iat", "nbf", "exp", "purpose", "tool", "tool_version", "key_digest",
		"generation", "args_digest", "preview_digest", "preview_id", "policy_digest", "ledger_generation",
	}, names, "the claims of S2")
}

func TestSigner_Mint_two_are_different(t *testing.T) {
	w := newWorld(t)
	one, a, err := w.signer.Mint(binding())
	require.NoError(t, err)
	two, b, err := w.signer.Mint(binding())
	require.NoError(t, err)
	require.NotEqual(t, a.ID, b.ID)
	require.NotEqual(t, one, two)
}

func TestSigner_Mint_refuses(t *testing.T) {
	w := newWorld(t)
	cases := map[string]func(*tokens.Binding){
		"no subject":             func(b *tokens.Binding) { b.Subject = "" },
		"no tenant":              func(b *tokens.Binding) { b.Tenant = "" },
		"no tool":                func(b *tokens.Binding) { b.Tool = "" },
		"no tool version":        func(b *tokens.Binding) { b.ToolVersion = "" },
		"no key digest":          func(b *tokens.Binding) { b.KeyDigest = "" },
		"the key itself":         func(b *tokens.Binding) { b.KeyDigest = "order-1042/refund" },
		"key digest upper case":  func(b *tokens.Binding) { b.KeyDigest = strings.ToUpper(b.KeyDigest) },
		"key digest not hex":     func(b *tokens.Binding) { b.KeyDigest = b.KeyDigest[:70] + "g" },
		"key digest short":       func(b *tokens.Binding) { b.KeyDigest = b.KeyDigest[:70] },
		"generation 0":           func(b *tokens.Binding) { b.Generation = 0 },
		"generation -1":          func(b *tokens.Binding) { b.Generation = -1 },
		"generation 2^31":        func(b *tokens.Binding) { b.Generation = 1 << 31 },
		"no args digest":         func(b *tokens.Binding) { b.ArgsDigest = "" },
		"no preview digest":      func(b *tokens.Binding) { b.PreviewDigest = "" },
		"no preview id":          func(b *tokens.Binding) { b.PreviewID = "" },
		"no policy digest":       func(b *tokens.Binding) { b.PolicyDigest = "" },
		"ledger generation -1":   func(b *tokens.Binding) { b.LedgerGeneration = -1 },
		"ledger generation huge": func(b *tokens.Binding) { b.LedgerGeneration = 1 << 53 },
		"256 characters":         func(b *tokens.Binding) { b.Subject = strings.Repeat("a", 256) },
	}
	for _, c := range []string{"\x00", "\n", "\r", " ", "\x7f", "é", "\u202e", "\xff", `"`, `\`, "<", ">", "&"} {
		cases[fmt.Sprintf("character %q", c)] = func(b *tokens.Binding) { b.Subject = "agt" + c }
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			b := binding()
			change(&b)
			token, claims, err := w.signer.Mint(b)
			require.ErrorContains(t, err, "minting a commit token: ")
			require.Empty(t, token)
			require.Zero(t, claims)
		})
	}
}

// fill sets the first n text claims of b.
func fill(b *tokens.Binding, text string, n int) {
	for _, claim := range []*string{
		&b.Subject, &b.Tenant, &b.Tool, &b.ToolVersion, &b.ArgsDigest, &b.PreviewDigest, &b.PreviewID, &b.PolicyDigest,
	}[:n] {
		*claim = text
	}
}

// Whatever Mint hands out, Verify must take: the longest claims are either
// refused when minted or verify.
func TestSigner_Mint_longest(t *testing.T) {
	long := strings.Repeat("~", 255)
	w := newWorldWith(t, tokens.Config{Issuer: long[:248] + "abcdefg"})
	refused := 0
	for n := range 9 {
		b := binding()
		fill(&b, long, n)
		token, _, err := w.signer.Mint(b)
		if err != nil {
			require.ErrorContains(t, err, "bytes long, more than 4096")
			refused++
			continue
		}
		require.LessOrEqual(t, len(token), tokens.MaxLength)
		require.Equal(t, tokens.Fresh, w.status(t, token))
	}
	require.Positive(t, refused, "no case came near the limit")
	require.Less(t, refused, 9, "no case stayed under the limit")
}

func TestSigner_Mint_no_randomness(t *testing.T) {
	broken := errors.New("no entropy")
	w := newWorldWith(t, tokens.Config{Rand: iotest.ErrReader(broken)})
	token, _, err := w.signer.Mint(binding())
	require.ErrorIs(t, err, broken)
	require.Empty(t, token)

	w = newWorldWith(t, tokens.Config{Rand: bytes.NewReader(make([]byte, 15))})
	_, _, err = w.signer.Mint(binding())
	require.Error(t, err, "15 bytes are not 128 bits")
}

func TestNew_refuses(t *testing.T) {
	w := newWorld(t)
	good := tokens.Config{Issuer: issuer, Keys: w.keys, Now: w.clock.now}
	_, err := tokens.New(good)
	require.NoError(t, err)

	cases := map[string]struct {
		change func(*tokens.Config)
		says   string
	}{
		"no issuer":       {func(c *tokens.Config) { c.Issuer = "" }, "deployment id"},
		"issuer in quote": {func(c *tokens.Config) { c.Issuer = `a"b` }, "deployment id"},
		"no keys":         {func(c *tokens.Config) { c.Keys = nil }, "key set"},
		"no clock":        {func(c *tokens.Config) { c.Now = nil }, "clock"},
		"ttl over 15 min": {func(c *tokens.Config) { c.TTL = 15*time.Minute + time.Second }, "at most 15m0s"},
		"ttl negative":    {func(c *tokens.Config) { c.TTL = -time.Minute }, "whole number of seconds"},
		"ttl fraction":    {func(c *tokens.Config) { c.TTL = 1500 * time.Millisecond }, "whole number of seconds"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			_, err := tokens.New(c)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// S3: the life is what was configured, 5 minutes if nothing was, and there is
// no leeway at its end.
func TestSigner_Verify_expiry(t *testing.T) {
	for ttl, life := range map[time.Duration]time.Duration{
		0: 5 * time.Minute, time.Second: time.Second, 15 * time.Minute: 15 * time.Minute,
	} {
		t.Run(life.String(), func(t *testing.T) {
			w := newWorldWith(t, tokens.Config{TTL: ttl})
			token, claims, err := w.signer.Mint(binding())
			require.NoError(t, err)
			expiry := start.Truncate(time.Second).Add(life)
			require.Equal(t, expiry, claims.Expiry())

			w.clock.advance(expiry.Sub(w.clock.now()) - time.Nanosecond)
			require.Equal(t, tokens.Fresh, w.status(t, token))
			require.False(t, claims.Expired(w.clock.now()))
			w.clock.advance(time.Nanosecond)
			require.Equal(t, tokens.Expired, w.status(t, token))
			require.True(t, claims.Expired(w.clock.now()))
			w.clock.advance(24 * time.Hour)
			require.Equal(t, tokens.Expired, w.status(t, token), "for replay")
		})
	}
}

// Clocks of two gateways differ by up to a minute; more is no token of ours.
func TestSigner_Verify_issued_in_the_future(t *testing.T) {
	w := newWorld(t)
	token, _, err := w.signer.Mint(binding())
	require.NoError(t, err)
	w.clock.advance(-time.Minute)
	require.Equal(t, tokens.Fresh, w.status(t, token))
	w.clock.advance(-time.Second)
	requireRefused(t, w.signer, token)
	requireRefused(t, w.other(t).signer, token)
}

func TestStatus_String(t *testing.T) {
	for status, word := range map[tokens.Status]string{
		0: "none", tokens.Fresh: "fresh", tokens.Expired: "expired", tokens.Retired: "retired",
	} {
		require.Equal(t, word, status.String())
	}
}

// FIPS 180-2, appendix B.1.
func TestKeyDigest(t *testing.T) {
	require.Equal(t, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", tokens.KeyDigest("abc"))
}
