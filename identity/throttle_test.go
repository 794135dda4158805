package identity_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

// address gives different networks for different numbers.
func address(n int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(n))
	return netip.AddrFrom4(a)
}

// guess makes a wrong try and reports whether it was judged.
func (w *world) guess(name string, from netip.Addr) bool {
	w.t.Helper()
	var err error
	price := w.kdf.since(func() { err = w.signIn(name, "a wrong password", from) })
	if fault.Is(err, fault.RateLimited) {
		require.Empty(w.t, price, "a try that is not let through costs nothing")
		require.Positive(w.t, fault.Of(err).RetryAfter)
		return false
	}
	refused(w.t, fault.Unauthenticated, err)
	require.Len(w.t, price, 1)
	return true
}

// guesses counts the tries that are judged until one is not.
func (w *world) guesses(name string, from netip.Addr) (judged int) {
	w.t.Helper()
	for w.guess(name, from) {
		judged++
	}
	return judged
}

func TestThrottle_NameFromOneAddress(t *testing.T) {
	for _, name := range []string{"ada", "nobody"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.person("ada")
			require.Equal(t, identity.PairBurst, w.guesses(name, here))
			f := refused(t, fault.RateLimited, w.signIn(name, password, here), "the right password waits too")
			require.Equal(t, identity.PairEvery, f.RetryAfter)

			w.clock.pass(identity.PairEvery - time.Millisecond)
			f = refused(t, fault.RateLimited, w.signIn(name, password, here))
			require.Equal(t, time.Second, f.RetryAfter, "rounded up")
			w.clock.pass(time.Millisecond)
			require.Equal(t, 1, w.guesses(name, here))
			w.clock.pass(f.RetryAfter + 1000*time.Hour)
			require.Equal(t, identity.PairBurst, w.guesses(name, here), "no more than a burst is saved up")
		})
	}
}

// S27: no bypass by case or spaces.
func TestThrottle_OneNameInManyForms(t *testing.T) {
	w := newWorld(t)
	forms := []string{"ada", "ADA", " ada", "ada ", "\tAda\n", "aDa\u00a0", "\u2003ada"}
	judged := 0
	for _, form := range forms {
		if w.guess(form, here) {
			judged++
		}
	}
	require.Equal(t, identity.PairBurst, judged)
}

func TestThrottle_ManyNamesFromOneAddress(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	judged := 0
	for n := range 2 * identity.AddressBurst {
		if w.guess(fmt.Sprintf("guess-%d", n), here) {
			judged++
		}
	}
	require.Equal(t, identity.AddressBurst, judged)
	refused(t, fault.RateLimited, w.signIn("ada", password, here))
	require.NoError(t, w.signIn("ada", password, address(1)), "others are not held up")
	w.clock.pass(identity.AddressEvery)
	require.NoError(t, w.signIn("ada", password, here))
}

func TestThrottle_OneNameFromManyAddresses(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	home := address(1_000_000)
	require.NoError(t, w.signIn("ada", password, home))
	judged := 0
	for n := range 3 * identity.NameBurst {
		if w.guess("ada", address(n)) {
			judged++
		}
	}
	require.Equal(t, identity.NameBurst, judged)
	refused(t, fault.RateLimited, w.signIn("ada", password, address(2_000_000)))
	require.NoError(t, w.signIn("ada", password, home), "nobody can keep a person out of where they signed in before")
	require.Equal(t, identity.PairBurst, w.guesses("ada", home), "which is no licence to guess there")
	require.True(t, w.guess("bea", address(0)), "another name is not held up")
	w.clock.pass(identity.NameEvery)
	require.NoError(t, w.signIn("ada", password, address(2_000_000)))
}

// A success gives its own try back and no other's: who has an account must not
// get fresh tries for guessing at others.
func TestThrottle_SuccessGivesOneBack(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	w.person("mallory")
	for range 3 * identity.AddressBurst {
		require.NoError(t, w.signIn("ada", password, here))
	}
	judged := 0
	for n := range 2 * identity.AddressBurst {
		if w.guess(fmt.Sprintf("guess-%d", n), here) {
			judged++
		}
		// In the end mallory is held up as well.
		if err := w.signIn("mallory", password, here); err != nil {
			refused(t, fault.RateLimited, err)
		}
	}
	require.Equal(t, identity.AddressBurst, judged)
}

func TestThrottle_Networks(t *testing.T) {
	for what, c := range map[string]struct {
		a, b string
		same bool
	}{
		"two hosts":           {"192.0.2.1", "192.0.2.2", false},
		"IPv4 in IPv6":        {"192.0.2.1", "::ffff:192.0.2.1", true},
		"one /64":             {"2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true},
		"two /64":             {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		"zones":               {"fe80::1%eth0", "fe80::1%eth1", true},
		"none and none":       {"", "", true},
		"none and an address": {"", "192.0.2.1", false},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			parse := func(s string) (a netip.Addr) {
				if s != "" {
					a = netip.MustParseAddr(s)
				}
				return a
			}
			require.Equal(t, identity.PairBurst, w.guesses("ada", parse(c.a)))
			require.Equal(t, !c.same, w.guess("ada", parse(c.b)))
		})
	}
}

// Tries are taken before passwords are judged, so parallel guesses share none.
func TestThrottle_Parallel(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	judged := len(w.kdf.since(func() {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() { _ = w.signIn("ada", "a wrong password", here) })
		}
		wg.Wait()
	}))
	require.Equal(t, identity.PairBurst, judged)
}

func TestThrottle_ClockSetBack(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, identity.PairBurst, w.guesses("ada", here))
	w.clock.pass(-24 * time.Hour)
	require.False(t, w.guess("ada", here), "no try is won")
	w.clock.pass(identity.PairEvery)
	require.True(t, w.guess("ada", here), "nor must anybody wait for a day")
}

func TestThrottle_Bounded(t *testing.T) {
	w := newWorld(t)
	// Each makes three buckets: of the pair, the address, the name.
	for n := range identity.ThrottleSize/3 + 100 {
		_ = w.signIn(fmt.Sprintf("guess-%d", n), "", address(n))
	}
	require.Equal(t, identity.ThrottleSize, w.Buckets())
}
