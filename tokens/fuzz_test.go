package tokens_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

// FuzzVerify throws any text at Verify. Whoever has no key can only present
// what was minted: everything else is refused in the one way.
func FuzzVerify(f *testing.F) {
	w := newWorldWith(f, tokens.Config{CacheSize: -1})
	token := w.mint(f)
	parts := strings.Split(token, ".")
	for _, seed := range []string{
		"", ".", "..", "...", token, token + "=", token + "\n", parts[0], parts[0] + "..", parts[0] + "." + parts[1] + ".",
		"eyJhbGciOiJub25lIn0." + parts[1] + ".", `{"payload":"` + parts[1] + `"}`, strings.Repeat("A", tokens.MaxLength+1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// The key is new on each start: also try the text in place of each part.
		for _, candidate := range []string{text, parts[0] + "." + text, parts[0] + "." + text + "." + parts[2], parts[0] + "." + parts[1] + "." + text} {
			if candidate == token {
				require.Equal(t, tokens.Fresh, w.status(t, candidate))
				continue
			}
			requireRefused(t, w.signer, candidate)
		}
	})
}

// FuzzVerifyPayload signs any payload with the genuine key: what Verify believes
// is byte for byte the encoding of the claims that it returns.
func FuzzVerifyPayload(f *testing.F) {
	w := newWorld(f)
	good := payload(f, w.mint(f))
	f.Add(good)
	for _, name := range members(f, good) {
		m := member(f, good, name)
		f.Add(strings.Replace(good, m, m+","+m, 1))
		f.Add(strings.Replace(good, m+",", "", 1))
		f.Add(strings.Replace(good, m, `"`+name+`":null`, 1))
	}
	header := w.header(f)
	f.Fuzz(func(t *testing.T, body string) {
		token := w.forge(t, header, body)
		claims, status, err := w.signer.Verify(token)
		if err != nil {
			requireRefused(t, w.signer, token)
			return
		}
		require.Contains(t, []tokens.Status{tokens.Fresh, tokens.Expired}, status)
		again, err := json.Marshal(claims)
		require.NoError(t, err)
		require.Equal(t, string(again), body)
		// And it could have been minted.
		_, _, err = w.signer.Mint(claims.Binding)
		require.NoError(t, err)
	})
}
