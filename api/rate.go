package api

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"countersign/fault"
)

// rates is a token bucket for each agent (S68). Agents are few and made by
// operators, so none is ever forgotten.
type rates struct {
	perMinute, burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

func newRates(perMinute, burst int) *rates {
	return &rates{perMinute: perMinute, burst: burst, buckets: map[string]*rate.Limiter{}}
}

// take spends one request, or says how long to wait for the next.
func (l *rates) take(agent string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	b, ok := l.buckets[agent]
	if !ok {
		b = rate.NewLimiter(rate.Limit(float64(l.perMinute)/60), l.burst)
		l.buckets[agent] = b
	}
	l.mu.Unlock()
	r := b.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// limitRate slows an agent down. Operators are never slowed: overload must not
// keep people from deciding (S70).
func (s *Server) limitRate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if agent := of(r.Context()).who.agent; agent != nil {
			if wait := s.rates.take(agent.ID, s.cfg.Now()); wait > 0 {
				e := fault.New(fault.RateLimited, "This agent may send %d requests a minute.", s.cfg.RatePerMinute)
				e.RetryAfter = wait
				s.refuse(w, r, e)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
