package identity_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

// The real function, once: what is stored is in PHC string format with the
// parameters of RFC 9106, section 4, second option, and a hash made elsewhere
// (test.c of the reference implementation) is understood.
func TestPassword_Argon2id(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Argon2idFunc = nil
	w.Service = identity.New(cfg)
	o := w.person("ada")
	require.Regexp(t, `^\$argon2id\$v=19\$m=65536,t=3,p=4\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, o.Password)
	for presented, want := range map[string]bool{password: true, password + "x": false} {
		match, old, err := w.Verify(t.Context(), presented, o.Password)
		require.NoError(t, err)
		require.Equal(t, want, match)
		require.False(t, old)
	}

	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	for presented, want := range map[string]bool{"password": true, "passwore": false} {
		match, old, err := w.Verify(t.Context(), presented, reference)
		require.NoError(t, err)
		require.Equal(t, want, match)
		require.True(t, old, "other parameters are made anew")
	}
}

func TestPassword_Salted(t *testing.T) {
	w := newWorld(t)
	require.NotEqual(t, w.person("ada").Password, w.person("bea").Password)
}

func TestPassword_DamagedRow(t *testing.T) {
	const salt, tag = "c29tZXNhbHQ", "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	good := "$argon2id$v=19$m=65536,t=2,p=1$" + salt + "$" + tag
	got, err := identity.ParsePHC(good)
	require.NoError(t, err)
	require.Equal(t, good, got)
	for what, text := range map[string]string{
		"empty":             "",
		"plain":             "password",
		"argon2i":           strings.Replace(good, "argon2id", "argon2i", 1),
		"old version":       strings.Replace(good, "v=19", "v=16", 1),
		"no version":        strings.Replace(good, "v=19$", "", 1),
		"other order":       strings.Replace(good, "m=65536,t=2", "t=2,m=65536", 1),
		"more memory":       strings.Replace(good, "m=65536", "m=1048577", 1),
		"memory overflow":   strings.Replace(good, "m=65536", "m=4295032832", 1),
		"less memory":       strings.Replace(good, "m=65536", "m=7", 1),
		"negative memory":   strings.Replace(good, "m=65536", "m=-65536", 1),
		"leading zero":      strings.Replace(good, "t=2", "t=02", 1),
		"no passes":         strings.Replace(good, "t=2", "t=0", 1),
		"many passes":       strings.Replace(good, "t=2", "t=65", 1),
		"no lanes":          strings.Replace(good, "p=1", "p=0", 1),
		"many lanes":        strings.Replace(good, "p=1", "p=256", 1),
		"one more":          strings.Replace(good, "p=1", "p=1,x=1", 1),
		"padded":            good + "=",
		"one part more":     good + "$",
		"short salt":        strings.Replace(good, salt, "c29tZXNh", 1),
		"no tag":            strings.Replace(good, tag, "", 1),
		"short tag":         strings.Replace(good, tag, "CTFhFdXPJO1aFaMaO6Mm", 1),
		"long tag":          strings.Replace(good, tag, strings.Repeat("A", 88), 1),
		"other base64":      strings.Replace(good, "CTFh", "CT-_", 1),
		"spare bits in tag": strings.TrimSuffix(good, "c") + "d",
	} {
		_, err := identity.ParsePHC(text)
		require.Error(t, err, what)
	}
}

// A damaged row is an error of ours, not a wrong password.
func TestPassword_DamagedRowAtSignIn(t *testing.T) {
	w := newWorld(t)
	o := w.person("ada")
	require.NoError(t, w.db.ReplacePassword(t.Context(), tenant, o.ID, o.Password, "damaged"))
	f := refused(t, fault.Internal, w.signIn("ada", password, here))
	require.NotContains(t, f.Error(), "damaged")
}

// S27 and NIST SP 800-63B: length counts, composition does not.
func TestPassword_Rules(t *testing.T) {
	w := newWorld(t)
	const name = "ada-lovelace"
	_, code, err := w.CreateOperator(t.Context(), tenant, name, nil)
	require.NoError(t, err)
	for what, p := range map[string]string{
		"empty":                "",
		"9 characters":         "abcdefxyz",
		"9 wide characters":    strings.Repeat("界", 8) + "世",
		"9 after composing":    "abcdefxy" + "e\u0301",
		"the name":             name,
		"the name, other case": "Ada-LOVELACE",
		"common":               "password123",
		"common, other case":   "PassWord123",
		"the product":          "Countersign123",
		"one letter":           "aaaaaaaaaaaa",
		"three in turn":        "abcabcabcabca",
		"line end":             "correct pony\n",
		"NUL":                  "correct\x00pony",
		"not UTF-8":            "correct\xffpony",
		"257 bytes":            strings.Repeat("ab", 128) + "c",
		"longer in NFC":        strings.Repeat("\U0001D15E", 62) + "abcdefghi", // NFC makes each three
		"very long":            strings.Repeat("a b ", 1<<18),
	} {
		before := w.kdf.calls.Load()
		_, err := w.CompleteSetup(t.Context(), code, p)
		f := refused(t, fault.SchemaViolation, err, what)
		require.Equal(t, "/password", f.Pointers[0].Pointer, what)
		if p != "" {
			require.NotContains(t, f.Error(), p, what)
		}
		require.Equal(t, before, w.kdf.calls.Load(), what)
	}
	for what, p := range map[string]string{
		"10 small letters":   "bravepetal",
		"10 digits":          "8264059173",
		"10 wide characters": "いろはにほへとちりぬ",
		"spaces":             "  a b c d  ",
		"emoji":              "🐴🔋🪙🧷 twelve",
		"256 bytes":          strings.Repeat("abcd", 63) + "efgh",
	} {
		// The code stayed good through all refusals; each success takes a new one.
		o, err := w.CompleteSetup(t.Context(), code, p)
		require.NoError(t, err, what)
		require.NoError(t, w.signIn(name, p, here), what)
		require.Error(t, w.signIn(name, p+"x", here), what)
		w.clock.pass(identity.NameEvery)
		code, err = w.NewSetupLink(t.Context(), tenant, o.ID, 0)
		require.NoError(t, err)
	}
}

// The same letters from another keyboard are the same password.
func TestPassword_NormalForm(t *testing.T) {
	w := newWorld(t)
	_, code, err := w.CreateOperator(t.Context(), tenant, "ada", nil)
	require.NoError(t, err)
	_, err = w.CompleteSetup(t.Context(), code, "cafe\u0301 cre\u0300me")
	require.NoError(t, err)
	require.NoError(t, w.signIn("ada", "caf\u00e9 cr\u00e8me", here))
	refused(t, fault.Unauthenticated, w.signIn("ada", "cafe creme", here))
}

func TestPassword_CommonList(t *testing.T) {
	list := identity.CommonPasswords()
	require.Greater(t, len(list), 100)
	for _, p := range list {
		require.GreaterOrEqual(t, utf8.RuneCountInString(p), identity.PasswordMin, "%q is refused for its length already", p)
		require.Equal(t, strings.ToLower(p), p, "%q can never match", p)
	}
}
