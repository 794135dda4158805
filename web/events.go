package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"countersign/fault"
	"countersign/identity"
)

const (
	// streamPoll is how often a stream looks by itself: changes that another
	// process made are announced nowhere here. It also keeps proxies from closing
	// the connection.
	streamPoll = 10 * time.Second
	// streamGap is the shortest time between two looks.
	streamGap = 250 * time.Millisecond
	// streamTail: for so long after a change every further one is told, since what
	// was decided goes on to be sent.
	streamTail = 10 * time.Second
	// streamWrite bounds one write to a client that does not read.
	streamWrite = 10 * time.Second
	// streamsEach is how many streams one person may hold open. A page closes its
	// own when it is not seen.
	streamsEach = 32
)

// events streams a small "changed" whenever a page would look different now. The
// page is named by the address: operation=ID, queue=1, unknown=1 or freezes=1. What it shows is named
// by a mark, so that nothing is missed between rendering and connecting, or while
// the connection was away.
func (p *Pages) events(w http.ResponseWriter, r *http.Request) {
	ctx, me := r.Context(), person(r.Context())
	if !p.enter(me.ID) {
		e := fault.New(fault.RateLimited, "Too many pages of yours are open at the same time.")
		e.RetryAfter = streamPoll
		p.problem(w, r, e)
		return
	}
	defer p.leave(me.ID)
	look, wake, stop := p.watch(ctx, r, me)
	defer stop()
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("seen")
	}
	// The first look is before the first byte, so that a page that is not there is
	// answered as such.
	mark, err := look()
	if err != nil {
		p.problem(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s := stream{w: w, rc: http.NewResponseController(w)}
	if !s.send(": connected\n\n") {
		return
	}
	poll := time.NewTicker(streamPoll)
	defer poll.Stop()
	tail := time.NewTimer(streamTail)
	defer tail.Stop()
	woken, following := false, false
	for {
		changed := mark != last
		if changed {
			last, following = mark, true
			tail.Reset(streamTail)
		}
		if (changed || woken && following) && !s.send("event: changed\nid: "+mark+"\ndata: "+mark+"\n\n") {
			return
		}
		woken = false
		select {
		case <-ctx.Done():
			return
		case <-p.closing:
			return
		case <-tail.C:
			following = false
			continue
		case <-wake:
			woken = true
		case <-poll.C:
			if !s.send(": alive\n\n") {
				return
			}
		}
		// The session may have ended since: then nothing more is told.
		if _, err := p.cfg.Sessions.Operator(ctx); fault.Is(err, fault.Unauthenticated) {
			s.send("event: ended\ndata: ended\n\n")
			return
		}
		pause(ctx, streamGap)
		// A store that does not answer now is asked again at the next turn.
		if next, err := look(); err == nil {
			mark = next
		}
	}
}

// enter counts one more stream of a person, if there may be one.
func (p *Pages) enter(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[id] >= streamsEach {
		return false
	}
	p.streams[id]++
	return true
}

func (p *Pages) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[id]--; p.streams[id] == 0 {
		delete(p.streams, id)
	}
}

// watch gives what a stream looks at, what wakes it, and how to end that.
func (p *Pages) watch(ctx context.Context, r *http.Request, me identity.Operator) (look func() (string, error), wake <-chan struct{}, stop func()) {
	q := r.URL.Query()
	if id := q.Get("operation"); id != "" {
		wake, stop = p.cfg.Ledger.Watch(id)
		return func() (string, error) {
			op, err := p.cfg.Ledger.Operation(ctx, me.Tenant, id)
			if err != nil {
				return "", err
			}
			n, _, err := p.waiting(ctx, me.Tenant)
			return pageMark(op, n), err
		}, wake, stop
	}
	wake, stop = p.cfg.Ledger.Changes()
	if q.Has("freezes") {
		return func() (string, error) { return p.currentFreezesMark(ctx, me) }, wake, stop
	}
	if q.Has("unknown") {
		return func() (string, error) { return p.currentDoubtsMark(ctx, me.Tenant, doubtsQueryOf(r)) }, wake, stop
	}
	return func() (string, error) { return p.currentQueueMark(ctx, me.Tenant, q.Get("cursor")) }, wake, stop
}

// stream writes events, each with a deadline of its own.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s stream) send(text string) bool {
	// The server's own limit is for pages; a stream lasts. Instead each write has
	// one, set from a timer so that no clock is read: a deadline in the past ends a
	// write that hangs. A writer without deadlines is one of a test.
	_ = s.rc.SetWriteDeadline(time.Time{})
	hangs := time.AfterFunc(streamWrite, func() { _ = s.rc.SetWriteDeadline(time.Unix(1, 0)) })
	defer hangs.Stop()
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return s.rc.Flush() == nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// digestOf names a list of texts in a few characters.
func digestOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
