package ledger

import (
	"sync"
	"time"
)

// Clock is a time that never goes back. What has expired stays expired, whatever
// becomes of the clock that it reads: an approval, a preview, the time for which a
// tool remembers a key (I19). It is safe for concurrent use.
//
// When the clock below is set back, this one goes on at its old pace, ahead of it;
// when that one is set forward, or overtakes, this one follows.
type Clock struct {
	read func() time.Time

	mu   sync.Mutex
	last time.Time // what was told last
	seen time.Time // the reading that stood behind it
	// ahead is how much later it is here than by the clock below.
	ahead time.Duration
}

// ClockStep is how far a clock may jump without being taken for one that was set:
// so much back, and time stands still until it has caught up.
const ClockStep = time.Second

// NewClock begins at the floor, if the clock below is not there yet: the latest
// time that is known to be over. A zero floor is none.
func NewClock(read func() time.Time, floor time.Time) *Clock {
	return &Clock{read: read, last: floor.Round(0)}
}

// Now is the time. While no clock is set it is the reading of the clock below, with
// its monotonic part.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.read()
	wall := seen.Round(0)
	paced := c.last // where it is if the clock below was set: by the monotonic part
	if passed := seen.Sub(c.seen); !c.seen.IsZero() && passed > 0 {
		paced = paced.Add(passed)
	}
	switch told := wall.Add(c.ahead); {
	case told.Before(c.last.Add(-ClockStep)): // set back
		c.ahead = paced.Sub(wall)
	case c.ahead > 0 && told.After(paced.Add(ClockStep)): // set forward
		c.ahead = max(0, paced.Sub(wall))
	}
	c.seen = seen
	now := seen.Add(c.ahead)
	if now.Round(0).Before(c.last) {
		now = c.last
	}
	c.last = now.Round(0)
	return now
}
