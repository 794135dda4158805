package tokens_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

// List says what each key is good for now, never what it signs with.
func TestKeySet_List(t *testing.T) {
	w := newWorld(t)
	list := w.keys.List(w.clock.now())
	require.Len(t, list, 1)
	require.Equal(t, "active", list[0].State)
	require.Equal(t, start.Truncate(time.Second), list[0].CreatedAt)
	require.Zero(t, list[0].RetiredAt)
	require.Zero(t, list[0].VerifiesUntil)

	w.clock.advance(time.Hour)
	w.rotate(t)
	rotated := w.clock.now().Truncate(time.Second)
	list = w.keys.List(w.clock.now())
	require.Equal(t, []string{"active", "previous"}, []string{list[0].State, list[1].State})
	require.Equal(t, rotated, list[1].RetiredAt)
	require.Equal(t, rotated.Add(tokens.DefaultRetention), list[1].VerifiesUntil)

	w.clock.advance(tokens.MaxTTL)
	require.Equal(t, "retired", w.keys.List(w.clock.now())[1].State, "its tokens have all expired")
	require.Equal(t, []string{"active", "previous"}, states(t, w.path), "the file learns of it at the next rotation")

	w.clock.advance(tokens.DefaultRetention)
	require.Len(t, w.keys.List(w.clock.now()), 1, "not believed at all any more")

	text, err := json.Marshal(w.keys.List(w.clock.now()))
	require.NoError(t, err)
	require.NotContains(t, string(text), storedKeys(t, w.path)[0].Seed)
}
