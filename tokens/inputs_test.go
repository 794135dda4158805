package tokens_test

import (
	"bytes"
	"compress/flate"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func TestInput_token_none(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	header, rest, _ := strings.Cut(token, ".")
	body, signature, _ := strings.Cut(rest, ".")
	for _, alg := range []string{"none", "None", "NONE", "nOnE", ""} {
		forged := b64([]byte(`{"alg":"` + alg + `"}`))
		requireRefused(t, w.signer, forged+"."+body+".")
		requireRefused(t, w.signer, forged+"."+body+"."+signature)
		typed := b64([]byte(replaced(t, w.header(t), "EdDSA", alg)))
		requireRefused(t, w.signer, typed+"."+body+".")
	}
	requireRefused(t, w.signer, header+"."+body+".")
	requireRefused(t, w.signer, header+"."+body)
}

// The public key is published, so anybody could use it as an HMAC secret.
func TestInput_token_hs256(t *testing.T) {
	w := newWorld(t)
	public := w.private(t).Public().(ed25519.PublicKey)
	secrets := map[string][]byte{
		"raw": public, "base64url": []byte(b64(public)), "jwks": w.keys.JWKS(w.clock.now()), "empty": nil,
	}
	for name, secret := range secrets {
		for _, header := range []string{
			`{"alg":"HS256","typ":"JWT"}`, replaced(t, w.header(t), "EdDSA", "HS256"), w.header(t),
		} {
			t.Run(name+" "+header[:14], func(t *testing.T) {
				input := b64([]byte(header)) + "." + b64([]byte(payload(t, w.mint(t))))
				mac := hmac.New(sha256.New, secret)
				mac.Write([]byte(input))
				requireRefused(t, w.signer, input+"."+b64(mac.Sum(nil)))
			})
		}
	}
}

// A token that brings, names or points at the key of the attacker.
func TestInput_token_jwk(t *testing.T) {
	w := newWorld(t)
	attacker := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	x := b64(attacker.Public().(ed25519.PublicKey))
	jwk := `{"kty":"OKP","crv":"Ed25519","x":"` + x + `"}`
	genuine := w.header(t)
	headers := map[string]string{
		"jwk":             `{"alg":"EdDSA","jwk":` + jwk + `,"typ":"countersign-commit+jwt"}`,
		"jwk beside kid":  replaced(t, genuine, `"typ"`, `"jwk":`+jwk+`,"typ"`),
		"jku":             replaced(t, genuine, `"typ"`, `"jku":"https://attacker.example/jwks","typ"`),
		"x5u":             replaced(t, genuine, `"typ"`, `"x5u":"https://attacker.example/c","typ"`),
		"x5c":             replaced(t, genuine, `"typ"`, `"x5c":["`+x+`"],"typ"`),
		"crit":            replaced(t, genuine, `"kid"`, `"crit":["b64"],"b64":false,"kid"`),
		"kid path":        `{"alg":"EdDSA","kid":"../../etc/hostname","typ":"countersign-commit+jwt"}`,
		"kid twice":       replaced(t, genuine, `"kid"`, `"kid":"mine","kid"`),
		"no kid":          `{"alg":"EdDSA","typ":"countersign-commit+jwt"}`,
		"genuine":         genuine,
		"genuine, spaced": replaced(t, genuine, `{`, `{ `),
	}
	for name, header := range headers {
		t.Run(name, func(t *testing.T) {
			input := b64([]byte(header)) + "." + b64([]byte(payload(t, w.mint(t))))
			requireRefused(t, w.signer, input+"."+b64(ed25519.Sign(attacker, []byte(input))))
		})
	}
}

// S1: the header is a constant. Another spelling is refused even when the
// genuine key signed it, and so is every other typ (S4).
func TestInput_header_signed_by_us(t *testing.T) {
	w := newWorld(t)
	genuine, body := w.header(t), payload(t, w.mint(t))
	require.Equal(t, tokens.Fresh, w.status(t, w.forge(t, genuine, body)), "else the cases below show nothing")

	headers := map[string]string{
		"space":             replaced(t, genuine, `{`, `{ `),
		"newline after":     genuine + "\n",
		"other order":       replaced(t, replaced(t, genuine, `{"alg":"EdDSA",`, `{`), `}`, `,"alg":"EdDSA"}`),
		"extra member":      replaced(t, genuine, `}`, `,"cty":"JWT"}`),
		"alg twice":         replaced(t, genuine, `"kid"`, `"alg":"EdDSA","kid"`),
		"alg Ed25519":       replaced(t, genuine, "EdDSA", "Ed25519"),
		"zip":               replaced(t, genuine, `}`, `,"zip":"DEF"}`),
		"empty":             "",
		"not JSON":          "countersign",
		"typ missing":       replaced(t, genuine, `,"typ":"countersign-commit+jwt"`, ``),
		"typ with prefix":   replaced(t, genuine, "countersign-commit+jwt", "application/countersign-commit+jwt"),
		"typ in upper case": replaced(t, genuine, "countersign-commit+jwt", "COUNTERSIGN-COMMIT+JWT"),
	}
	for _, typ := range []string{
		"JWT", "at+jwt", "logout+jwt", "dpop+jwt", "secevent+jwt", "countersign-session+jwt", "countersign-agent+jwt", "countersign-preview+jwt", "",
	} {
		headers["typ "+typ] = replaced(t, genuine, "countersign-commit+jwt", typ)
	}
	for name, header := range headers {
		t.Run(name, func(t *testing.T) { requireRefused(t, w.signer, w.forge(t, header, body)) })
	}
}

func TestInput_token_json(t *testing.T) {
	w := newWorld(t)
	parts := strings.Split(w.mint(t), ".")
	requireRefused(t, w.signer, `{"protected":"`+parts[0]+`","payload":"`+parts[1]+`","signature":"`+parts[2]+`"}`)
	requireRefused(t, w.signer, `{"payload":"`+parts[1]+`","signatures":[{"protected":"`+parts[0]+`","signature":"`+parts[2]+
		`"},{"protected":"`+parts[0]+`","signature":"`+parts[2]+`"}]}`)
	requireRefused(t, w.signer, `["`+strings.Join(parts, ".")+`"]`)
	requireRefused(t, w.signer, `"`+strings.Join(parts, ".")+`"`)
}

func TestInput_token_jwe(t *testing.T) {
	w := newWorld(t)
	parts := strings.Split(w.mint(t), ".")
	bomb := deflated(t, bytes.Repeat([]byte("0"), 1<<20))
	jwe := []string{b64([]byte(`{"alg":"dir","enc":"A256GCM","zip":"DEF"}`)), "", b64(make([]byte, 12)), b64(bomb), b64(make([]byte, 16))}
	require.Less(t, len(strings.Join(jwe, ".")), tokens.MaxLength, "refused for its parts, not for its length")
	requireRefused(t, w.signer, strings.Join(jwe, "."))
	jwe[0] = parts[0]
	requireRefused(t, w.signer, strings.Join(jwe, "."))

	for name, token := range map[string]string{
		"empty": "", "one part": parts[0], "two parts": parts[0] + "." + parts[1], "dots": "..", "four parts": strings.Join(parts, ".") + ".",
		"leading dot": "." + strings.Join(parts, "."), "no header": "." + parts[1] + "." + parts[2], "no payload": parts[0] + ".." + parts[2],
		"no signature": parts[0] + "." + parts[1] + ".", "twice": strings.Join(parts, ".") + "." + strings.Join(parts, "."),
	} {
		t.Run(name, func(t *testing.T) { requireRefused(t, w.signer, token) })
	}
}

func deflated(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestCompression)
	require.NoError(t, err)
	_, err = z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

// S7: the length counts before anything else.
func TestInput_token_long(t *testing.T) {
	w := newWorld(t)
	header := b64([]byte(w.header(t)))
	for _, n := range []int{tokens.MaxLength, tokens.MaxLength + 1, 1 << 20} {
		token := header + "." + strings.Repeat("A", n-len(header)-2-86) + "." + strings.Repeat("A", 86)
		require.Len(t, token, n)
		_, _, err := w.signer.Verify(token)
		requireRefused(t, w.signer, token)
		require.Equal(t, n > tokens.MaxLength, strings.Contains(err.Error(), "longer than the limit"), "%d: %v", n, err)
	}
}

// Go's base64 decoder skips CR and LF, also when strict: one token would have
// many spellings.
func TestInput_token_newline(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	for _, c := range []string{"\r", "\n", "\r\n", "\n\n\n\n"} {
		broken := token[:200] + c + token[200:strings.LastIndex(token, ".")]
		_, tail, _ := strings.Cut(broken, ".")
		_, err := base64.RawURLEncoding.Strict().DecodeString(tail)
		require.NoError(t, err, "the decoder alone would take it")
		for i := len(token) % 7; i <= len(token); i += 7 {
			requireRefused(t, w.signer, token[:i]+c+token[i:])
		}
	}
	for _, c := range []string{" ", "\t", "\x00", "=", "+", "/", "%2E", "\u200b", "\ufeff", "é", "\xff", ","} {
		for _, i := range []int{0, 1, 60, 200, len(token) - 1, len(token)} {
			requireRefused(t, w.signer, token[:i]+c+token[i:])
		}
	}
}

// Padding, and the unused bits of each part's last character: a lenient decoder
// reads the same bytes from all of these.
func TestInput_token_padding(t *testing.T) {
	spare := map[int]bool{}
	for _, agent := range []string{"a", "ab", "abc"} {
		w := newWorld(t)
		b := binding()
		b.Subject = agent
		token, _, err := w.signer.Mint(b)
		require.NoError(t, err)
		parts := strings.Split(token, ".")
		for i, part := range parts {
			for _, padding := range []string{"=", "==", "===", "===="} {
				requireRefused(t, w.signer, with(parts, i, part+padding))
			}
			decoded := raw(t, part)
			same := 0
			for _, c := range alphabet {
				other := part[:len(part)-1] + string(c)
				if bytes.Equal(raw(t, other), decoded) && other != part {
					same++
					requireRefused(t, w.signer, with(parts, i, other))
				}
			}
			// 1, 2 or 0 bytes in the last group leave 4, 2 or 0 bits unused.
			require.Equal(t, []int{0, 15, 3}[len(decoded)%3], same)
			if i == 1 {
				spare[same] = true
			}
		}
	}
	require.Equal(t, map[int]bool{0: true, 3: true, 15: true}, spare, "payloads of all three lengths")
}

func with(parts []string, i int, part string) string {
	changed := append([]string(nil), parts...)
	changed[i] = part
	return strings.Join(changed, ".")
}

// Which check refused a token is for the log; each of those that come before
// the signature does its own work and leaves nothing to the next.
func TestInput_cause(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	parts := strings.Split(token, ".")
	for bad, cause := range map[string]string{
		strings.Repeat("A", tokens.MaxLength+1): "longer than the limit",
		token + "=":                             "a character outside base64url and dots",
		token[:99] + "\n" + token[99:]:          "a character outside base64url and dots",
		parts[0] + "." + parts[1]:               "not three parts",
		token + ".":                             "not three parts",
		with(parts, 0, "e30"):                   "the header is not that of a key that verifies here",
		with(parts, 1, "A"):                     "payload or signature is not canonical base64url of the right size",
		with(parts, 2, b64(make([]byte, 63))):   "payload or signature is not canonical base64url of the right size",
		with(parts, 2, b64(make([]byte, 65))):   "payload or signature is not canonical base64url of the right size",
		with(parts, 2, b64(make([]byte, 64))):   "the signature does not verify",
		w.forge(t, w.header(t), "{}"):           "the payload is not what this gateway writes",
	} {
		_, _, err := w.signer.Verify(bad)
		require.EqualError(t, errors.Unwrap(err), cause)
		requireRefused(t, w.signer, bad)
	}
}

// The row of an unused token is 410 and that of a used one its operation: both
// need the claims of an expired token, and to know that it is expired.
func TestInput_token_expired(t *testing.T) {
	w := newWorld(t)
	token, minted, err := w.signer.Mint(binding())
	require.NoError(t, err)
	w.clock.advance(minted.Expiry().Sub(w.clock.now()) + time.Second)
	for _, signer := range []*tokens.Signer{w.signer, w.other(t).signer} {
		claims, status, err := signer.Verify(token)
		require.NoError(t, err)
		require.Equal(t, tokens.Expired, status)
		require.Equal(t, minted, claims)
	}
}

func TestInput_token_exp_huge(t *testing.T) {
	w := newWorld(t)
	_, minted, err := w.signer.Mint(binding())
	require.NoError(t, err)
	good := payload(t, w.mint(t))
	exp := fmt.Sprintf(`"exp":%d`, minted.ExpiresAt)
	for _, value := range []string{
		"1e300", "1e400", "-1", "0", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9007199254740993",
		fmt.Sprintf(`"%d"`, minted.ExpiresAt), fmt.Sprintf("%d.0", minted.ExpiresAt), fmt.Sprintf("%d.5", minted.ExpiresAt),
		fmt.Sprintf("%de0", minted.ExpiresAt), fmt.Sprintf("[%d]", minted.ExpiresAt), fmt.Sprintf("%d ", minted.ExpiresAt),
		fmt.Sprintf("-%d", minted.ExpiresAt), fmt.Sprintf("0%d", minted.ExpiresAt), "null", "true", "{}", `""`, "NaN", "Infinity", "",
	} {
		t.Run(value, func(t *testing.T) {
			requireRefused(t, w.signer, w.forge(t, w.header(t), replaced(t, good, exp, `"exp":`+value)))
		})
	}
	t.Run("missing", func(t *testing.T) {
		requireRefused(t, w.signer, w.forge(t, w.header(t), replaced(t, good, exp+",", "")))
	})
}

// S4: tokens of another deployment or endpoint, signed with the very same key.
func TestInput_token_other_aud(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"https://other.example", issuer + "/", issuer + ".evil", "https://gateway.exampl", strings.ToUpper(issuer)} {
		other, err := tokens.New(tokens.Config{Issuer: id, Keys: w.keys, Now: w.clock.now})
		require.NoError(t, err)
		token, _, err := other.Mint(binding())
		require.NoError(t, err)
		_, status, err := other.Verify(token)
		require.NoError(t, err)
		require.Equal(t, tokens.Fresh, status)
		requireRefused(t, w.signer, token)
	}

	elsewhere := newWorld(t)
	requireRefused(t, w.signer, elsewhere.mint(t))

	good := payload(t, w.mint(t))
	for _, aud := range []string{
		`"https://gateway.example"`, `"https://gateway.example/commit/"`, `"https://gateway.example/undo"`, `"https://other.example/commit"`,
		`["https://gateway.example/commit"]`, `["https://gateway.example/commit","https://other.example/commit"]`, `""`, `null`,
	} {
		requireRefused(t, w.signer, w.forge(t, w.header(t), replaced(t, good, `"aud":"https://gateway.example/commit"`, `"aud":`+aud)))
	}
}

// The other two kinds of credential are no commit tokens (S4); that a commit
// token is no login is for those who take logins.
func TestInput_token_as_login(t *testing.T) {
	w := newWorld(t)
	for _, credential := range []string{
		"cs_agent_" + strings.Repeat("a", 43), strings.Repeat("f", 64), "Bearer " + w.mint(t), "bearer", "null", "undefined",
		w.forge(t, `{"alg":"EdDSA","typ":"JWT"}`, `{"sub":"agt_7Q2"}`),
	} {
		requireRefused(t, w.signer, credential)
	}
	for _, other := range []string{"session", "login", "preview", "undo", "Commit", "commit ", ""} {
		good := payload(t, w.mint(t))
		requireRefused(t, w.signer, w.forge(t, w.header(t), replaced(t, good, `"purpose":"commit"`, `"purpose":"`+other+`"`)))
	}
}

// Subject and arguments are the caller's to compare; what it compares with is
// what was signed.
func TestInput_token_other_agent_and_args(t *testing.T) {
	w := newWorld(t)
	b := binding()
	token := w.mint(t)
	claims, _, err := w.signer.Verify(token)
	require.NoError(t, err)
	require.Equal(t, b.Subject, claims.Subject)
	require.Equal(t, b.ArgsDigest, claims.ArgsDigest)

	parts := strings.Split(token, ".")
	var members map[string]any
	require.NoError(t, json.Unmarshal(raw(t, parts[1]), &members))
	for _, changed := range []string{
		replaced(t, payload(t, token), b.Subject, "agt_7Q3"),
		replaced(t, payload(t, token), b.ArgsDigest, "sha256:"+strings.Repeat("9", 64)),
	} {
		requireRefused(t, w.signer, with(parts, 1, b64([]byte(changed))))
	}
}
