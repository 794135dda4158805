package identity_test

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

var wholeKey = regexp.MustCompile(`^` + identity.KeyPattern + `$`)

// The form is in people's files and in leak scanners' rules; it never changes.
func TestAgentKey_Golden(t *testing.T) {
	for _, c := range []struct {
		random byte
		key    string
	}{
		{0x00, "cs_agent_000000000000000000000000000000000000000000nqsnapr"},
		{0xff, "cs_agent_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzt1ajt30"},
	} {
		key, err := identity.NewAgentKey(bytes.NewReader(bytes.Repeat([]byte{c.random}, 64)))
		require.NoError(t, err)
		require.Equal(t, c.key, key)
		require.Regexp(t, wholeKey, key)
	}
}

func TestAgentKey_Parse(t *testing.T) {
	key, err := identity.NewAgentKey(newRandom())
	require.NoError(t, err)
	id, secret, ok := identity.ParseAgentKey(key)
	require.True(t, ok)
	require.Equal(t, key, identity.KeyPrefix+id+secret+identity.Checksum(identity.KeyPrefix+id+secret))
	require.Len(t, id, 10)
	require.Len(t, secret, 32, "160 bits in base32")

	bad := map[string]string{
		"empty": "", "prefix alone": identity.KeyPrefix,
		"cut": key[:len(key)-1], "longer": key + "0",
		"space before": " " + key, "line end": key + "\n", "space for the last": key[:len(key)-1] + " ",
		"upper case": strings.ToUpper(key), "other prefix": "cs_owner_" + key[len(identity.KeyPrefix):],
		"letter outside": key[:20] + "u" + key[21:], "two bytes": key[:20] + "é" + key[22:],
	}
	for i := range key {
		swapped := []byte(key)
		swapped[i] ^= 1
		bad["changed at "+strconv.Itoa(i)] = string(swapped)
	}
	for what, text := range bad {
		_, _, ok := identity.ParseAgentKey(text)
		require.False(t, ok, what)
	}
}

func TestAgentKey_NoRandomness(t *testing.T) {
	for _, random := range [][]byte{nil, make([]byte, 7), make([]byte, 26)} {
		_, err := identity.NewAgentKey(bytes.NewReader(random))
		refused(t, fault.Internal, err)
	}
	broken := errors.New("broken")
	_, err := identity.NewAgentKey(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func FuzzParseAgentKey(f *testing.F) {
	key, err := identity.NewAgentKey(newRandom())
	require.NoError(f, err)
	f.Add(key)
	f.Add(strings.ToUpper(key))
	f.Add(key[:30] + "\x00" + key[31:])
	f.Add(identity.KeyPrefix + strings.Repeat("é", 24) + "0")
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, ok := identity.ParseAgentKey(text)
		if !ok {
			require.Empty(t, id+secret)
			return
		}
		// What is accepted has one spelling, and a scanner knows it.
		body := identity.KeyPrefix + id + secret
		require.Equal(t, body+identity.Checksum(body), text)
		require.Regexp(t, wholeKey, text)
	})
}
