package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// TestClock: it follows a clock that is set forward and never one that is set back,
// goes on meanwhile, and begins behind what is over already.
func TestClock(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wall := noon
	c := ledger.NewClock(func() time.Time { return wall }, time.Time{})
	at := func(want time.Duration, why string) {
		t.Helper()
		require.Equal(t, noon.Add(want).String(), c.Now().String(), why)
	}
	at(0, "the clock below")
	wall = wall.Add(time.Minute)
	at(time.Minute, "which goes on")
	wall = wall.Add(-300 * time.Millisecond)
	at(time.Minute, "a small step back: it stands still")
	wall = wall.Add(400 * time.Millisecond)
	at(time.Minute+100*time.Millisecond, "until it has caught up")
	wall = wall.Add(-time.Hour)
	at(time.Minute+100*time.Millisecond, "set back: it stays")
	wall = wall.Add(10 * time.Minute)
	at(11*time.Minute+100*time.Millisecond, "and goes on at its pace")
	wall = wall.Add(24 * time.Hour)
	at(24*time.Hour+11*time.Minute+100*time.Millisecond, "what passes while nobody looks passes")

	restarted := ledger.NewClock(func() time.Time { return wall }, wall.Add(time.Hour))
	require.Equal(t, wall.Add(time.Hour).String(), restarted.Now().String(), "it begins behind what is over")
	wall = wall.Add(time.Minute)
	require.Equal(t, wall.Add(time.Hour).String(), restarted.Now().String())

	// The reading itself, with its monotonic part, while nobody sets anything.
	real := ledger.NewClock(time.Now, time.Now().Add(-time.Hour))
	before := time.Now()
	now := real.Now()
	require.NotEqual(t, now, now.Round(0), "the monotonic part is there")
	require.False(t, now.Before(before))
}

// TestClock_MonotonicPart: between two readings of the machine's own clock, time
// goes on by the monotonic part while the wall's is set back.
func TestClock_MonotonicPart(t *testing.T) {
	began := time.Now()
	readings := []time.Time{began, began.Add(time.Second).Round(0).Add(-time.Hour), began.Add(time.Second).Round(0).Add(-time.Hour + 5*time.Second)}
	c := ledger.NewClock(func() time.Time { r := readings[0]; readings = readings[1:]; return r }, time.Time{})
	first := c.Now()
	second, third := c.Now(), c.Now()
	require.False(t, second.Round(0).Before(first.Round(0)))
	require.Equal(t, 5*time.Second, third.Round(0).Sub(second.Round(0)))
}
