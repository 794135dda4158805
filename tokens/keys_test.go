package tokens_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

// states are the keys of the file, newest first.
func states(t testing.TB, path string) []string {
	t.Helper()
	var all []string
	for _, k := range storedKeys(t, path) {
		all = append(all, k.State)
		require.Equal(t, k.State == "active", k.Seed != "", "a %s key: its seed is there while it signs", k.State)
		require.Equal(t, k.State == "active", k.RetiredAt.IsZero())
	}
	return all
}

// S9: rotation overlaps. Tokens of the old key open operations until the last of
// them has expired, then only replay, then nothing.
func TestKeySet_Rotate(t *testing.T) {
	w := newWorldWith(t, tokens.Config{TTL: tokens.MaxTTL})
	require.Equal(t, []string{"active"}, states(t, w.path))
	first := w.mint(t)
	w.rotate(t)
	rotated := w.clock.now().Truncate(time.Second)
	second := w.mint(t)
	require.Equal(t, []string{"active", "previous"}, states(t, w.path))
	require.Equal(t, tokens.Fresh, w.status(t, first))
	require.Equal(t, tokens.Fresh, w.status(t, second))
	require.NotEqual(t, strings.Split(first, ".")[0], strings.Split(second, ".")[0], "the new key signs")

	w.clock.advance(rotated.Add(tokens.MaxTTL).Sub(w.clock.now()) - time.Nanosecond)
	require.Equal(t, tokens.Fresh, w.status(t, first), "the whole life of a token that was minted just before")
	w.clock.advance(time.Nanosecond)
	require.Equal(t, tokens.Retired, w.status(t, first))
	require.Equal(t, tokens.Expired, w.status(t, second))

	w.rotate(t)
	require.Equal(t, []string{"active", "previous", "retired"}, states(t, w.path))
	require.Equal(t, tokens.Retired, w.status(t, first))
	require.Equal(t, tokens.Retired, w.other(t).status(t, first))

	w.clock.advance(rotated.Add(tokens.DefaultRetention).Sub(w.clock.now()) - time.Nanosecond)
	require.Equal(t, tokens.Retired, w.status(t, first))
	w.clock.advance(time.Nanosecond)
	requireRefused(t, w.signer, first)
	require.Equal(t, tokens.Retired, w.status(t, second), "was rotated later")
	require.Len(t, storedKeys(t, w.path), 3, "dropped from the file by the next rotation")
	w.rotate(t)
	require.Equal(t, []string{"active", "previous", "retired"}, states(t, w.path))
	requireRefused(t, w.signer, first)
	require.Equal(t, tokens.Retired, w.status(t, second))
}

// Two rotations in a row, by an impatient operator, void no token that is alive.
func TestKeySet_Rotate_twice_at_once(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	w.rotate(t)
	w.rotate(t)
	require.Equal(t, []string{"active", "previous", "previous"}, states(t, w.path))
	require.Equal(t, tokens.Fresh, w.status(t, token))
	w.clock.advance(5 * time.Minute)
	require.Equal(t, tokens.Expired, w.status(t, token))
}

func TestKeySet_Rotate_returns_the_new_id(t *testing.T) {
	w := newWorld(t)
	id, err := w.keys.Rotate(w.clock.now())
	require.NoError(t, err)
	require.Equal(t, storedKeys(t, w.path)[0].ID, id)
	id, err = w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	require.Equal(t, storedKeys(t, w.path)[0].ID, id)
}

func TestKeySet_retention(t *testing.T) {
	w := newWorld(t)
	keys, err := tokens.Load(w.path, tokens.KeyOptions{Retention: time.Hour})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: issuer, Keys: keys, Now: w.clock.now})
	require.NoError(t, err)
	token := w.mint(t)
	_, err = keys.Rotate(w.clock.now())
	require.NoError(t, err)
	w.clock.advance(time.Hour - time.Second)
	_, status, err := signer.Verify(token)
	require.NoError(t, err)
	require.Equal(t, tokens.Retired, status)
	w.clock.advance(time.Second)
	requireRefused(t, signer, token)

	_, err = tokens.Load(w.path, tokens.KeyOptions{Retention: tokens.MaxTTL - 1})
	require.ErrorContains(t, err, "at least 15m0s")
}

// S9: an emergency revoke voids all tokens, also for replay.
func TestKeySet_EmergencyRevoke(t *testing.T) {
	w := newWorld(t)
	first := w.mint(t)
	w.rotate(t)
	second := w.mint(t)
	_, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	require.Equal(t, []string{"active"}, states(t, w.path))
	requireRefused(t, w.signer, first)
	requireRefused(t, w.signer, second)
	requireRefused(t, w.other(t).signer, second)
	require.Equal(t, tokens.Fresh, w.status(t, w.mint(t)))
}

// Another process made the change.
func TestKeySet_Reload(t *testing.T) {
	w := newWorld(t)
	other := w.other(t)
	changed, err := other.keys.Reload()
	require.NoError(t, err)
	require.False(t, changed)

	before := other.mint(t)
	w.rotate(t)
	changed, err = other.keys.Reload()
	require.NoError(t, err)
	require.True(t, changed)
	after := other.mint(t)
	require.Equal(t, strings.Split(w.mint(t), ".")[0], strings.Split(after, ".")[0], "it signs with the new key")
	require.Equal(t, tokens.Fresh, w.status(t, before))

	_, err = w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	changed, err = other.keys.Reload()
	require.NoError(t, err)
	require.True(t, changed)
	requireRefused(t, other.signer, before)
	requireRefused(t, other.signer, after)
}

// A token of a key that another process has just made must not be refused
// because this one has not reloaded yet.
func TestKeySet_learns_of_a_new_key(t *testing.T) {
	w := newWorld(t)
	other := w.other(t)
	for range 3 {
		w.rotate(t)
		token := w.mint(t)
		require.Equal(t, tokens.Fresh, other.status(t, token))
		require.Equal(t, tokens.Fresh, w.status(t, other.mint(t)))
	}
	stale := other.mint(t)
	_, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	require.Equal(t, tokens.Fresh, other.status(t, w.mint(t)))
	requireRefused(t, other.signer, stale)
}

// Rotations of several processes are made one after the other: none is lost.
func TestKeySet_Rotate_by_many(t *testing.T) {
	w := newWorld(t)
	const processes, rotations = 4, 5
	ids := make(chan string, processes*rotations)
	var wg sync.WaitGroup
	for range processes {
		other := w.other(t)
		wg.Go(func() {
			for range rotations {
				id, err := other.keys.Rotate(w.clock.now())
				if err != nil {
					t.Error(err)
					return
				}
				ids <- id
			}
		})
	}
	wg.Wait()
	close(ids)
	inFile := map[string]bool{}
	for _, k := range storedKeys(t, w.path) {
		inFile[k.ID] = true
	}
	require.Len(t, inFile, processes*rotations+1)
	for id := range ids {
		require.True(t, inFile[id], "a rotation was lost")
	}
}

// Tokens minted and verified by several processes while keys rotate: not one is
// refused, and each reads as it was minted.
func TestKeySet_rotation_under_load(t *testing.T) {
	w := newWorld(t)
	worlds := []*world{w, w.other(t), w.other(t)}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, me := range worlds {
		peer := worlds[(i+1)%len(worlds)]
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if err := roundTrip(me, peer, i, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 40 {
		keys := worlds[n%2].keys
		_, err := keys.Rotate(w.clock.now())
		require.NoError(t, err)
		_, err = worlds[2].keys.Reload()
		require.NoError(t, err)
		require.NotEmpty(t, keys.JWKS(w.clock.now()))
	}
	close(done)
	wg.Wait()
}

func roundTrip(me, peer *world, i, n int) error {
	b := binding()
	b.PreviewID = fmt.Sprintf("prv_%d_%d", i, n)
	token, minted, err := me.signer.Mint(b)
	if err != nil {
		return err
	}
	for _, signer := range []*tokens.Signer{me.signer, peer.signer} {
		read, status, err := signer.Verify(token)
		if err != nil || status != tokens.Fresh || read != minted {
			return fmt.Errorf("token %d of process %d: status %s, same claims %t, error %w", n, i, status, read == minted, err)
		}
	}
	return nil
}
