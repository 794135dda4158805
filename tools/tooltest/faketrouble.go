package tooltest

import (
	"context"
	"slices"
	"time"

	"countersign/tools"
)

// The ways in which a fake's outside world can deceive whoever asks it. Each can
// be changed while a test runs.

// LagLookups hides an effect from lookups until it is d old. Until then they say
// kind: Absent from a source that lags in silence, NotVisibleYet from an honest
// one.
func (f *Fake) LagLookups(d time.Duration, kind tools.AnswerKind) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag, f.lagSays = d, kind
	return f
}

// HideFromLookups makes every lookup say that nothing is there, whatever
// happened: a source that lies.
func (f *Fake) HideFromLookups(hide bool) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hide = hide
	return f
}

// SwallowLookups lets lookups go unanswered: each waits until its caller gives
// up. Giving false answers those that wait as failed, and later ones as usual.
func (f *Fake) SwallowLookups(swallow bool) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case swallow && f.swallowed == nil:
		f.swallowed = make(chan struct{})
	case !swallow && f.swallowed != nil:
		close(f.swallowed)
		f.swallowed = nil
	}
	return f
}

// ForgetKeysAfter makes the fake upstream forget keys sooner or later than it
// promises: d after the first effect under a key, the same key has another. Zero
// forgets at once, which is a broken promise.
func (f *Fake) ForgetKeysAfter(d time.Duration) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remembers = d
	return f
}

// Asked receives once for every lookup, before it is answered.
func (f *Fake) Asked() <-chan struct{} { return f.asked }

// remembered gives the effect that the fake upstream still knows a key by.
func (f *Fake) remembered(key string) (id string, ok bool) {
	i := slices.IndexFunc(f.effects, func(e FakeEffect) bool { return e.Key == key })
	if i < 0 || !f.honoursKey || f.Now().Sub(f.effects[i].At) >= f.remembers {
		return "", false
	}
	return f.effects[i].ID, true
}

// swallow waits with an unanswered lookup; it reports whether there was one.
func (f *Fake) swallow(ctx context.Context) bool {
	f.mu.Lock()
	hole := f.swallowed
	f.mu.Unlock()
	if hole == nil {
		return false
	}
	select {
	case <-ctx.Done():
	case <-hole:
	}
	return true
}

// shown are the effects under a key that lookups may show now, and how many
// there really are.
func (f *Fake) shown(key string) (ids []string, all int) {
	for _, e := range f.effects {
		if e.Key != key {
			continue
		}
		all++
		if !f.hide && f.Now().Sub(e.At) >= f.lag {
			ids = append(ids, e.ID)
		}
	}
	return ids, all
}
