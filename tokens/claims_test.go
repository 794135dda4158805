package tokens_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

// members are the claims in the order in which a payload has them.
func members(t testing.TB, body string) []string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	_, err := d.Token()
	require.NoError(t, err)
	var names []string
	for d.More() {
		name, err := d.Token()
		require.NoError(t, err)
		names = append(names, name.(string))
		_, err = d.Token()
		require.NoError(t, err)
	}
	require.Len(t, names, 18)
	return names
}

// member is the text of one member of a payload: its name, colon and value.
func member(t testing.TB, body, name string) string {
	t.Helper()
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(body), &all))
	return `"` + name + `":` + string(all[name])
}

// Every payload here carries a valid signature of the active key: what refuses
// it is the strict reading of the claims alone (S2).
func TestSigner_Verify_payload(t *testing.T) {
	w := newWorld(t)
	good := payload(t, w.mint(t))
	require.Equal(t, tokens.Fresh, w.status(t, w.forge(t, w.header(t), good)), "else the cases below show nothing")

	cases := map[string]string{
		"empty":            "",
		"null":             "null",
		"array":            "[" + good + "]",
		"empty object":     "{}",
		"two values":       good + "{}",
		"newline after":    good + "\n",
		"space before":     " " + good,
		"space inside":     replaced(t, good, `"purpose":`, `"purpose": `),
		"BOM":              "\ufeff" + good,
		"cut":              good[:len(good)-1],
		"unknown member":   replaced(t, good, `"purpose"`, `"cnf":{"jkt":"x"},"purpose"`),
		"unknown null":     replaced(t, good, `"purpose"`, `"scope":null,"purpose"`),
		"escaped name":     replaced(t, good, `"purpose"`, `"\u0070urpose"`),
		"escaped value":    replaced(t, good, `"commit"`, `"\u0063ommit"`),
		"kelvin":           replaced(t, good, `"key_digest"`, "\"\u212aey_digest\""),
		"bad UTF-8":        replaced(t, good, `"default"`, "\"default\xff\""),
		"lone surrogate":   replaced(t, good, `"default"`, `"default\ud800"`),
		"NUL":              replaced(t, good, `"default"`, "\"default\x00\""),
		"generation 0":     replaced(t, good, `"generation":1,"args`, `"generation":0,"args`),
		"generation -0":    replaced(t, good, `"generation":1,"args`, `"generation":-0,"args`),
		"generation 1.0":   replaced(t, good, `"generation":1,"args`, `"generation":1.0,"args`),
		"ledger negative":  replaced(t, good, `"ledger_generation":1`, `"ledger_generation":-1`),
		"jti of 120 bits":  replaced(t, good, member(t, good, "jti"), `"jti":"`+b64(make([]byte, 15))+`"`),
		"jti of 136 bits":  replaced(t, good, member(t, good, "jti"), `"jti":"`+b64(make([]byte, 17))+`"`),
		"jti not base64":   replaced(t, good, member(t, good, "jti"), `"jti":"!!!!!!!!!!!!!!!!!!!!!!"`),
		"jti bits":         replaced(t, good, member(t, good, "jti"), `"jti":"AAAAAAAAAAAAAAAAAAAAAB"`),
		"key in the clear": replaced(t, good, member(t, good, "key_digest"), `"key_digest":"order-1042/refund"`),
	}
	for _, name := range members(t, good) {
		m := member(t, good, name)
		rest := strings.Replace(strings.Replace(good, m+",", "", 1), ","+m+"}", "}", 1)
		cases[name+" missing"] = rest
		cases[name+" twice"] = replaced(t, good, m, m+","+m)
		cases[name+" upper case"] = replaced(t, good, `"`+name+`":`, `"`+strings.ToUpper(name)+`":`)
		cases[name+" also upper case"] = replaced(t, good, m, m+","+strings.ToUpper(m[:len(name)+2])+m[len(name)+2:])
		cases[name+" null"] = replaced(t, good, m, `"`+name+`":null`)
		cases[name+" empty"] = replaced(t, good, m, `"`+name+`":""`)
		cases[name+" object"] = replaced(t, good, m, `"`+name+`":{}`)
		cases[name+" array"] = replaced(t, good, m, `"`+name+`":[`+m[len(name)+3:]+`]`)
		cases[name+" moved"] = `{` + m + "," + strings.TrimPrefix(rest, "{")
		value := m[len(name)+3:]
		if value[0] == '"' {
			cases[name+" number"] = replaced(t, good, m, `"`+name+`":1`)
		} else {
			cases[name+" text"] = replaced(t, good, m, `"`+name+`":"`+value+`"`)
			cases[name+" float"] = replaced(t, good, m, `"`+name+`":`+value+`.0`)
			cases[name+" exponent"] = replaced(t, good, m, `"`+name+`":`+value+`e0`)
			cases[name+" huge"] = replaced(t, good, m, `"`+name+`":1e300`)
		}
	}
	// The first member can't be moved to the front.
	first := members(t, good)[0]
	require.Equal(t, good, cases[first+" moved"])
	delete(cases, first+" moved")

	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, good, body)
			requireRefused(t, w.signer, w.forge(t, w.header(t), body))
		})
	}
}

// Sane times, each signed by the active key.
func TestSigner_Verify_times(t *testing.T) {
	w := newWorld(t)
	good := payload(t, w.mint(t))
	now := start.Unix()
	times := func(iat, nbf, exp int64) string {
		body := replaced(t, good, member(t, good, "iat"), fmt.Sprintf(`"iat":%d`, iat))
		body = replaced(t, body, member(t, good, "nbf"), fmt.Sprintf(`"nbf":%d`, nbf))
		body = replaced(t, body, member(t, good, "exp"), fmt.Sprintf(`"exp":%d`, exp))
		return w.forge(t, w.header(t), body)
	}
	const least, most = -1 << 63, 1<<63 - 1

	for name, tc := range map[string]struct {
		iat, nbf, exp int64
		want          tokens.Status // zero: refused
	}{
		"as minted":            {now, now, now + 300, tokens.Fresh},
		"fifteen minutes":      {now, now, now + 900, tokens.Fresh},
		"over fifteen minutes": {now, now, now + 901, 0},
		"exp is iat":           {now, now, now, 0},
		"exp before iat":       {now, now, now - 1, 0},
		"one second":           {now, now, now + 1, tokens.Fresh},
		"just expired":         {now - 300, now - 300, now, tokens.Expired},
		"long expired":         {now - 90000, now - 90000, now - 89700, tokens.Expired},
		"at the epoch":         {1, 1, 2, tokens.Expired},
		"before the epoch":     {0, 0, 300, 0},
		"negative":             {-600, -600, -300, 0},
		"future, in skew":      {now + 60, now + 60, now + 360, tokens.Fresh},
		"future, over skew":    {now + 61, now + 61, now + 361, 0},
		"nbf later":            {now, now + 1, now + 300, 0},
		"nbf earlier":          {now, now - 1, now + 300, 0},
		"nbf zero":             {now, 0, now + 300, 0},
		"exp most":             {now, now, most, 0},
		"all most":             {most - 300, most - 300, most, 0},
		"iat least":            {least, least, now + 300, 0},
		"difference overflows": {least, least, least + 300, 0},
		"difference wraps":     {least, least, most, 0},
		"milliseconds":         {now * 1000, now * 1000, now*1000 + 300, 0},
	} {
		t.Run(name, func(t *testing.T) {
			token := times(tc.iat, tc.nbf, tc.exp)
			if tc.want == 0 {
				requireRefused(t, w.signer, token)
				return
			}
			require.Equal(t, tc.want, w.status(t, token))
		})
	}
}

// A token of a shorter or longer configured life verifies after the setting
// changed, as long as it is a life that could have been configured.
func TestSigner_Verify_other_ttl(t *testing.T) {
	w := newWorldWith(t, tokens.Config{TTL: 15 * time.Minute})
	require.Equal(t, tokens.Fresh, w.other(t).status(t, w.mint(t)))
}

// One field changed alone, without the key: the old signature does not fit, and
// no signature of an attacker does.
func TestSigner_Verify_one_field_mutation(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	parts := strings.Split(token, ".")
	good := payload(t, token)
	for _, name := range members(t, good) {
		t.Run(name, func(t *testing.T) {
			m := member(t, good, name)
			fresh := m[:len(m)-1] + "7"
			if strings.HasSuffix(m, `"`) {
				fresh = m[:len(m)-2] + `z"`
			}
			require.NotEqual(t, m, fresh)
			body := b64([]byte(replaced(t, good, m, fresh)))
			requireRefused(t, w.signer, with(parts, 1, body))
			requireRefused(t, w.signer, with([]string{parts[0], body, ""}, 2, b64(make([]byte, 64))))
		})
	}
}

// Every single character changed into another of the alphabet, into one outside
// it, left out, and the token cut there.
func TestSigner_Verify_one_byte_mutation(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	foreign := w.other(t).signer
	for i := range len(token) {
		next := alphabet[(strings.IndexByte(alphabet, token[i])+1)%len(alphabet)]
		requireRefused(t, w.signer, token[:i]+string(next)+token[i+1:])
		requireRefused(t, foreign, token[:i]+string(next)+token[i+1:])
		if i%8 == 0 || token[i] == '.' {
			requireRefused(t, w.signer, token[:i]+string(rune(token[i]|0x80))+token[i+1:])
			requireRefused(t, w.signer, token[:i]+"."+token[i:])
			requireRefused(t, w.signer, token[:i]+token[i+1:])
			requireRefused(t, w.signer, token[:i])
		}
	}
	requireRefused(t, w.signer, token+"A")
	require.Equal(t, tokens.Fresh, w.status(t, token))
}

// Two tokens of ours cannot be cut together.
func TestSigner_Verify_splice(t *testing.T) {
	w := newWorld(t)
	one, two := strings.Split(w.mint(t), "."), strings.Split(w.mint(t), ".")
	requireRefused(t, w.signer, with(one, 1, two[1]))
	requireRefused(t, w.signer, with(one, 2, two[2]))
	w.rotate(t)
	later := strings.Split(w.mint(t), ".")
	requireRefused(t, w.signer, with(one, 0, later[0]))
	requireRefused(t, w.signer, with(later, 0, one[0]))
}
