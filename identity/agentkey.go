package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
)

// The key of an agent is one run of characters that a double click selects and
// a leak scanner finds:
//
//	cs_agent_ + key id (10) + secret (32) + checksum (7)
//
// Key id, secret and checksum are Crockford's base32 in lower case. The key id
// is public and finds the agent; the secret is 160 random bits. The checksum is
// the CRC-32 (IEEE) of everything before it. It protects nothing: a scanner can
// tell a real key from a look-alike without asking anybody, and a key that was
// cut while being copied is refused without a read of the store.
//
// KeyPattern matches it.
const (
	KeyPrefix = "cs_agent_"
	// KeyPattern is a regular expression (RE2) for leak scanners.
	KeyPattern = `cs_agent_[0-9a-hjkmnp-tv-z]{49}`

	keyIDLen    = 10
	secretLen   = 32
	checksumLen = 7
	keyLen      = len(KeyPrefix) + keyIDLen + secretLen + checksumLen

	secretBytes = secretLen * 5 / 8 // 160 bits
	saltBytes   = 16
)

// NewAgentKey makes a key that no agent has yet. CreateAgent makes its own;
// this one is for AdoptAgent.
func NewAgentKey(r io.Reader) (string, error) {
	// 10 characters are 50 bits; 7 bytes hold them.
	id, err := randomText(r, 7)
	if err != nil {
		return "", err
	}
	secret, err := randomText(r, secretBytes)
	if err != nil {
		return "", err
	}
	key := KeyPrefix + id[:keyIDLen] + secret
	return key + checksum(key), nil
}

// agentKey is a key taken apart.
type agentKey struct{ id, secret string }

// parseAgentKey takes a key apart. Anything but the exact form is refused, other
// case and surrounding space too, so that one key has one spelling.
func parseAgentKey(text string) (agentKey, bool) {
	if len(text) != keyLen || !strings.HasPrefix(text, KeyPrefix) {
		return agentKey{}, false
	}
	for _, c := range []byte(text[len(KeyPrefix):]) {
		if strings.IndexByte(alphabet, c) < 0 {
			return agentKey{}, false
		}
	}
	end := keyLen - checksumLen
	if checksum(text[:end]) != text[end:] {
		return agentKey{}, false
	}
	rest := text[len(KeyPrefix):end]
	return agentKey{id: rest[:keyIDLen], secret: rest[keyIDLen:]}, true
}

func checksum(text string) string {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE([]byte(text)))
	return encoding.EncodeToString(sum[:])
}

// secretDigest is what is stored of a secret. A fast hash is enough: slow ones
// protect what people choose, while nobody can try 2^160 random secrets. The
// salt keeps equal secrets, if a bad random source ever made them, from showing.
func secretDigest(salt []byte, secret string) []byte {
	h := sha256.New()
	h.Write(salt)
	h.Write([]byte(secret))
	return h.Sum(nil)
}
