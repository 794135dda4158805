package web

import (
	"fmt"
	"time"
)

// moment is a time as pages show it: with zone, and in words from now (S47).
type moment struct {
	// Machine is RFC 3339, for the datetime attribute.
	Machine string
	// Exact is the time with its zone.
	Exact string
	// Words are how long ago, or how soon.
	Words string
	// Length is the time that has passed since, for "unknown for …".
	Length string
}

// when gives a time in words; nil when there is none.
func (p *Pages) when(t time.Time) *moment { return momentAt(t, p.now()) }

func momentAt(t, now time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	m := &moment{Machine: t.Format(time.RFC3339), Exact: t.Format("2 Jan 2006, 15:04:05") + " UTC"}
	d := now.Sub(t)
	m.Length = "under a minute"
	if d >= time.Minute {
		m.Length = distance(d)
	}
	switch {
	case d >= 0 && d < time.Minute:
		m.Words = "just now"
	case d < 0 && d > -time.Minute:
		m.Words = "in a moment"
	case d > 0:
		m.Words = m.Length + " ago"
	default:
		m.Words = "in " + distance(-d)
	}
	return m
}

// distance is how far away a time of a minute or more is: never in seconds.
func distance(d time.Duration) string {
	if d < 90*time.Second {
		return "1 minute"
	}
	return span(d)
}

// span is a length of time in one unit, rounded.
func span(d time.Duration) string {
	n, unit := int64(0), ""
	switch {
	case d < 90*time.Second:
		n, unit = int64((d+time.Second/2)/time.Second), "second"
	case d < 90*time.Minute:
		n, unit = int64((d+time.Minute/2)/time.Minute), "minute"
	case d < 36*time.Hour:
		n, unit = int64((d+time.Hour/2)/time.Hour), "hour"
	default:
		n, unit = int64((d+12*time.Hour)/(24*time.Hour)), "day"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}
