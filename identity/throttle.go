package identity

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// How many failed sign-ins are let through: a burst, then one per interval. A
// sign-in that succeeds gives its try back.
const (
	// Of one name from one address.
	pairBurst = 5
	pairEvery = 30 * time.Second
	// From one address, with whatever names.
	addressBurst = 20
	addressEvery = 6 * time.Second
	// Of one name from all addresses that it has not signed in from. Those from
	// which it has are not counted here: else anybody could keep a person out,
	// who may be the one that has to freeze something.
	nameBurst = 20
	nameEvery = time.Minute

	// throttleSize bounds the memory: of more buckets the one that was not used
	// for the longest time is forgotten. To flush one so, a guesser spends
	// thousands of tries on others, each behind an argon2id computation.
	throttleSize = 16_384
)

// throttle limits sign-ins in this process. It forgets at a restart, and each of
// several gateways counts for itself.
type throttle struct {
	mu      sync.Mutex
	buckets map[bucketKey]*list.Element // of *bucket
	recent  *list.List                  // the last used first
}

// bucketKey is what a bucket counts.
type bucketKey struct {
	of           counted
	tenant, name string
	network      netip.Prefix
}

type counted byte

const (
	ofPair counted = iota
	ofAddress
	ofName
)

// bucket holds tokens; each try takes one.
type bucket struct {
	key    bucketKey
	burst  float64
	every  time.Duration
	tokens float64
	at     time.Time
	// familiar: the name has signed in from the address.
	familiar bool
}

func newThrottle() *throttle {
	return &throttle{buckets: map[bucketKey]*list.Element{}, recent: list.New()}
}

// try is one sign-in that was let through. Its tokens are taken before the
// password is judged, so that parallel guesses can't share one.
type try struct {
	throttle *throttle
	taken    []*bucket
	pair     *bucket
}

// take lets a sign-in through, or says how long to wait.
func (t *throttle) take(now time.Time, tenant, name string, address netip.Addr) (*try, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	network := networkOf(address)
	pair := t.bucket(now, bucketKey{of: ofPair, tenant: tenant, name: name, network: network}, pairBurst, pairEvery)
	needed := []*bucket{pair, t.bucket(now, bucketKey{of: ofAddress, network: network}, addressBurst, addressEvery)}
	// The empty name is nobody's: only the address counts.
	if name != "" && !pair.familiar {
		needed = append(needed, t.bucket(now, bucketKey{of: ofName, tenant: tenant, name: name}, nameBurst, nameEvery))
	}
	var wait time.Duration
	for _, b := range needed {
		wait = max(wait, b.wait())
	}
	if wait > 0 {
		return nil, wait
	}
	for _, b := range needed {
		b.tokens--
	}
	return &try{throttle: t, taken: needed, pair: pair}, 0
}

// succeeded gives the try back and remembers the address for the name.
func (y *try) succeeded(now time.Time) {
	y.unused(now)
	y.throttle.mu.Lock()
	defer y.throttle.mu.Unlock()
	y.pair.familiar = true
}

// unused gives the try back.
func (y *try) unused(now time.Time) {
	y.throttle.mu.Lock()
	defer y.throttle.mu.Unlock()
	for _, b := range y.taken {
		b.fill(now)
		b.tokens = min(b.burst, b.tokens+1)
	}
}

// bucket finds or makes one, fills it up to now and makes it the last used.
func (t *throttle) bucket(now time.Time, key bucketKey, burst float64, every time.Duration) *bucket {
	if e, ok := t.buckets[key]; ok {
		t.recent.MoveToFront(e)
		b := e.Value.(*bucket)
		b.fill(now)
		return b
	}
	if t.recent.Len() >= throttleSize {
		oldest := t.recent.Remove(t.recent.Back()).(*bucket)
		delete(t.buckets, oldest.key)
	}
	b := &bucket{key: key, burst: burst, every: every, tokens: burst, at: now}
	t.buckets[key] = t.recent.PushFront(b)
	return b
}

func (b *bucket) fill(now time.Time) {
	// A clock that was set back fills nothing and takes nothing.
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.burst, b.tokens+float64(passed)/float64(b.every))
	}
	b.at = now
}

// wait is how long until the bucket has a token, in whole seconds, rounded up.
func (b *bucket) wait() time.Duration {
	if b.tokens >= 1 {
		return 0
	}
	d := time.Duration((1 - b.tokens) * float64(b.every))
	return (d + time.Second - 1).Truncate(time.Second)
}

// networkOf is what counts as one address: in IPv6 the /64 that every host has
// for itself.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}
