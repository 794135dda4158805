package tokens

import (
	"crypto/sha256"
	"sync"
)

// ownTokens remembers the last tokens that this process signed, so that the
// commit that follows a preview need not verify our own signature again. That is
// safe, because
//   - the entry is the SHA-256 of the whole token, signature included: another
//     token that hits it would be a second preimage;
//   - only Mint adds: what others signed is verified each time;
//   - a hit replaces the signature check and nothing else. Verify has found the
//     header in the key table before (a revoked key is not there), and checks
//     claims, time and the state of the key afterwards, each time;
//   - the digest can't be turned back into a token that somebody could use.
//
// It is bounded: the newest token takes the place of the oldest, and a token
// that was forgotten is verified in full.
type ownTokens struct {
	mu      sync.Mutex
	ring    [][sha256.Size]byte // in order of minting, next is the oldest once full
	next    int
	present map[[sha256.Size]byte]struct{}
	size    int
}

// newOwnTokens makes room for size tokens; zero means DefaultCacheSize, below
// zero means none.
func newOwnTokens(size int) *ownTokens {
	if size == 0 {
		size = DefaultCacheSize
	}
	return &ownTokens{size: max(size, 0), present: map[[sha256.Size]byte]struct{}{}}
}

func (o *ownTokens) remember(token string) {
	if o.size == 0 {
		return
	}
	sum := sha256.Sum256([]byte(token))
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.present[sum]; ok {
		return
	}
	o.present[sum] = struct{}{}
	if len(o.ring) < o.size {
		o.ring = append(o.ring, sum)
		return
	}
	delete(o.present, o.ring[o.next])
	o.ring[o.next] = sum
	o.next = (o.next + 1) % o.size
}

func (o *ownTokens) remembers(token string) bool {
	if o.size == 0 {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.present[sum]
	return ok
}
