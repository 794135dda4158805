package shop

import (
	"fmt"
	"net/http"
	"time"
)

// maxListed is how many of the newest effects or requests a list shows; count
// is always the whole number.
const maxListed = 1000

// tail returns the last n of rows, never nil.
func tail[T any](rows []T, n int) []T {
	return append([]T{}, rows[max(0, len(rows)-n):]...)
}

// getEffects is GET /effects: what really happened, oldest first.
func (s *Shop) getEffects(w http.ResponseWriter, _ *http.Request) {
	effects := s.Effects()
	answerJSON(w, http.StatusOK, struct {
		Count int      `json:"count"`
		Items []Effect `json:"items"`
	}{len(effects), tail(effects, maxListed)})
}

// getRequests is GET /requests: every effectful request received, oldest
// first, and how many reads there were.
func (s *Shop) getRequests(w http.ResponseWriter, _ *http.Request) {
	requests := s.Requests()
	answerJSON(w, http.StatusOK, struct {
		Count int       `json:"count"`
		Reads int       `json:"reads"`
		Items []Request `json:"items"`
	}{len(requests), s.ReadCount(), tail(requests, maxListed)})
}

// getEvents is GET /events: the counts as server-sent events, at once and after
// each move. The id is the revision, which also rises with what is not counted.
func (s *Shop) getEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	alive := time.NewTicker(25 * time.Second)
	defer alive.Stop()
	rc := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && rc.Flush() == nil
	}
	for {
		s.mu.Lock()
		revision, effects, requests, moved := s.revision, len(s.effects), len(s.requests), s.moved
		s.mu.Unlock()
		if !send("id: %d\ndata: {\"effects\":%d,\"requests\":%d}\n\n", revision, effects, requests) {
			return
		}
	quiet:
		for {
			select {
			case <-moved:
				break quiet
			case <-alive.C:
				// A comment keeps proxies from closing a quiet stream.
				if !send(": still here\n\n") {
					return
				}
			case <-r.Context().Done():
				return
			case <-s.closed:
				return
			}
		}
	}
}
