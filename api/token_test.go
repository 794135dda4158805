package api_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tokens"
)

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// Forged and damaged tokens get one answer, word for word, and open nothing (S1,
// S7, S8).
func TestToken_Invalid(t *testing.T) {
	r := newRig(t)
	good := r.preview("ord_1001").str("commit_token")
	parts := strings.Split(good, ".")
	head, payload, signature := parts[0], parts[1], parts[2]
	var jwks struct{ Keys []struct{ X, Kid string } }
	require.NoError(t, json.Unmarshal([]byte(r.want(get("/.well-known/jwks.json", ""), 200, "").text), &jwks))
	public, err := base64.RawURLEncoding.DecodeString(jwks.Keys[0].X)
	require.NoError(t, err)
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	require.NoError(t, err)

	hs256 := b64(fmt.Sprintf(`{"alg":"HS256","kid":%q}`, jwks.Keys[0].Kid)) + "." + payload
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(hs256))

	// A token of another deployment, and one signed by our key for another.
	elsewhere := newRig(t)
	foreign := elsewhere.preview("ord_1001").str("commit_token")
	other, err := tokens.New(tokens.Config{Issuer: "led_another", Keys: r.keys, Now: r.clock.Now})
	require.NoError(t, err)
	audience, _, err := other.Mint(r.binding("ord_1002"))
	require.NoError(t, err)
	// One from the future.
	later, err := tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: r.keys, Now: func() time.Time { return r.clock.Now().Add(time.Hour) }})
	require.NoError(t, err)
	future, _, err := later.Mint(r.binding("ord_1002"))
	require.NoError(t, err)

	last := signature[:len(signature)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[strings.IndexByte("AQgw", signature[len(signature)-1])+1])
	cases := map[string]string{
		"empty":           "",
		"word":            "token",
		"none":            b64(`{"alg":"none"}`) + "." + payload + ".",
		"none-capital":    b64(`{"alg":"NONE"}`) + "." + payload + ".",
		"no-signature":    head + "." + payload + ".",
		"hs256":           hs256 + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"jwk":             b64(`{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}`) + "." + payload + "." + signature,
		"jku":             b64(`{"alg":"EdDSA","jku":"https://evil.example/keys"}`) + "." + payload + "." + signature,
		"kid-path":        b64(`{"alg":"EdDSA","kid":"../../dev/null"}`) + "." + payload + "." + signature,
		"crit":            b64(`{"alg":"EdDSA","crit":["exp"]}`) + "." + payload + "." + signature,
		"json":            asJSON(map[string]any{"payload": payload, "signatures": []any{map[string]any{"protected": head, "signature": signature}}}),
		"jwe":             head + "." + payload + "." + signature + "." + payload + "." + signature,
		"two-parts":       head + "." + payload,
		"newline":         head + "." + payload + "." + signature[:10] + "\r\n" + signature[10:],
		"space":           " " + good,
		"padding":         good + "=",
		"unused-bits":     head + "." + payload + "." + last,
		"standard-base64": head + "." + payload + "." + signature[:10] + "+" + signature[11:],
		"other-claims":    head + "." + b64(strings.Replace(string(claims), `"generation":1`, `"generation":2`, 1)) + "." + signature,
		"later-expiry":    head + "." + b64(strings.Replace(string(claims), `"exp":1`, `"exp":2`, 1)) + "." + signature,
		"swapped":         payload + "." + head + "." + signature,
		"too-long":        good + strings.Repeat("A", 4096),
		"unicode":         head + "." + payload + "." + signature + "\u200b",
		"other-place":     foreign,
		"other-audience":  audience,
		"future":          future,
		"agent-key":       r.clerk,
		"session":         r.ann.Value,
	}
	words := map[string]bool{}
	for name, token := range cases {
		r.under(t, name, func(r *rig) {
			r.unchanged(r.t, func() {
				a := r.want(r.spend("hold_order", r.clerk, token).with("Request-Id", "same"), 401, "token_invalid")
				words[a.text] = true
				if len(token) > 20 {
					require.NotContains(r.t, a.text, token[:20])
				}
			})
		})
	}
	require.Len(t, words, 1, "one answer for all of them")
	r.want(r.spend("hold_order", r.clerk, good), 200, "")
}

// binding is what a token for the hold of an order would stand for.
func (r *rig) binding(order string) tokens.Binding {
	tool, ok := r.registry.Get("hold_order")
	require.True(r.t, ok)
	return tokens.Binding{
		Subject: r.clerkID, Tenant: tenant, Tool: "hold_order", ToolVersion: tool.Version,
		KeyDigest: ledger.KeyDigest("hold/" + order), Generation: 1, ArgsDigest: someDigest,
		PreviewDigest: someDigest, PreviewID: "prv_00000000000000000000000000", PolicyDigest: someDigest,
	}
}

// Another agent's token, other arguments, another tool (I6).
func TestToken_OtherCall(t *testing.T) {
	r := newRig(t)
	token := r.preview("ord_1001").str("commit_token")
	before := r.state()
	r.want(r.spend("hold_order", r.helper, token), 403, "token_subject_mismatch")
	r.want(r.spend("release_hold", r.clerk, token), 422, "args_mismatch")
	r.want(r.spend("nope", r.clerk, token), 422, "args_mismatch")
	for _, args := range []string{`{"order_id":"ord_1002"}`, `{}`, `{"order_id":"ord_1001","reason":"x"}`} {
		r.want(post("/v1/tools/hold_order/commit", r.clerk, `{"commit_token":"`+token+`","args":`+args+`}`), 422, "args_mismatch")
	}
	require.Equal(t, before, r.state())
	// The same arguments, with or without the defaults, are the same call.
	r.want(post("/v1/tools/hold_order/commit", r.clerk, `{"commit_token":"`+token+`","args":{"order_id":"ord_1001"}}`), 200, "")
	r.want(post("/v1/tools/hold_order/commit", r.clerk, `{"args":{"reason":"","order_id":"ord_1001"},"commit_token":"`+token+`"}`), 200, "")
	r.want(post("/v1/tools/hold_order/commit", r.clerk, `{"commit_token":"`+token+`","args":{"order_id":"ord_1002"}}`), 422, "args_mismatch")
	require.Equal(t, 1, r.shop.RequestCount())
}

// A token that expired opens nothing; one that was spent is answered for ever,
// also under retired keys (S9).
func TestToken_Expired(t *testing.T) {
	r := newRig(t)
	spent := r.preview("ord_1001").str("commit_token")
	unspent := r.preview("ord_1002").str("commit_token")
	first := r.want(r.spend("hold_order", r.clerk, spent), 200, "")
	r.clock.Add(tokens.DefaultTTL)
	r.want(r.spend("hold_order", r.clerk, unspent), 410, "token_expired")
	require.Equal(t, first.str("id"), r.want(r.spend("hold_order", r.clerk, spent), 200, "").str("id"))
	_, err := r.keys.Rotate(r.clock.Now())
	require.NoError(t, err)
	r.clock.Add(time.Hour)
	require.Equal(t, first.str("id"), r.want(r.spend("hold_order", r.clerk, spent), 200, "").str("id"))
	var jwks struct{ Keys []any }
	require.NoError(t, json.Unmarshal([]byte(r.want(get("/.well-known/jwks.json", ""), 200, "").text), &jwks))
	require.Len(t, jwks.Keys, 2)
	require.Equal(t, 1, r.shop.RequestCount())
}

// An emergency revoke voids every token at once, spent ones excepted (S9).
func TestToken_Revoked(t *testing.T) {
	r := newRig(t)
	spent := r.preview("ord_1001").str("commit_token")
	unspent := r.preview("ord_1002").str("commit_token")
	id := r.want(r.spend("hold_order", r.clerk, spent), 200, "").str("id")
	_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Generation++ })
	require.NoError(t, err)
	r.want(r.spend("hold_order", r.clerk, unspent), 401, "token_invalid")
	require.Equal(t, id, r.want(r.spend("hold_order", r.clerk, spent), 200, "").str("id"))
}

// Two tokens of one key: the second is answered with the first's operation, or,
// for other arguments, refused (R42).
func TestToken_OneKey(t *testing.T) {
	r := newRig(t)
	body := func(reason string) string { return `{"args":{"order_id":"ord_1001","reason":"` + reason + `"}}` }
	one := r.want(post("/v1/tools/hold_order/preview", r.clerk, body("a")), 200, "").str("commit_token")
	same := r.want(post("/v1/tools/hold_order/preview", r.clerk, body("a")), 200, "").str("commit_token")
	other := r.want(post("/v1/tools/hold_order/preview", r.clerk, body("b")), 200, "").str("commit_token")
	id := r.want(r.spend("hold_order", r.clerk, one), 200, "").str("id")
	require.Equal(t, id, r.want(r.spend("hold_order", r.clerk, same), 200, "").str("id"))
	no := r.want(r.spend("hold_order", r.clerk, other), 422, "idempotency_key_reused")
	require.Equal(t, id, no.str("operation", "id"))
	r.want(post("/v1/tools/hold_order/preview", r.clerk, body("c")), 422, "idempotency_key_reused")
	require.Equal(t, 1, r.shop.RequestCount())
}

// Fifty commits of one token and fifty of one key, while the shop holds its
// reply: one effect, one operation, one answer that is not a replay.
func TestToken_Parallel(t *testing.T) {
	r := newRig(t)
	const n = 50
	tokensOf := make([]string, n)
	for i := range tokensOf {
		tokensOf[i] = r.preview("ord_1001").str("commit_token")
	}
	r.shop.Set(shopHolds)
	answers := make(chan answer, 2*n)
	for i := range n {
		go func() { answers <- r.do(r.spend("hold_order", r.clerk, tokensOf[i])) }()
		go func() { answers <- r.do(r.spend("hold_order", r.clerk, tokensOf[0])) }()
	}
	ids, first := map[string]bool{}, 0
	for range 2 * n {
		a := <-answers
		require.Contains(t, []int{200, 202}, a.StatusCode, a.text)
		ids[a.str("id")] = true
		if a.at("replayed") == false {
			first++
		}
	}
	require.Len(t, ids, 1)
	require.Equal(t, 1, first)
	require.Equal(t, 1, r.shop.RequestCount())
	require.Equal(t, 1, r.shop.EffectCount())
}
