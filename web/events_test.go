package web_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/web"
)

// stream is an open stream of events.
type stream struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Scanner
}

func (b *browser) stream(t *testing.T, path string, header ...string) *stream {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, b.r.server.URL+path, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	wantHeaders(t, resp.Header)
	s := &stream{t: t, resp: resp, in: bufio.NewScanner(resp.Body)}
	require.Equal(t, ": connected", s.next())
	return s
}

// next is the next block of the stream, its lines joined; empty at the end.
// Comments that only keep the connection open are passed over.
func (s *stream) next() string {
	var lines []string
	for s.in.Scan() {
		switch line := s.in.Text(); {
		case line == "" && len(lines) > 0:
			return strings.Join(lines, "\n")
		case line != "" && line != ": alive":
			lines = append(lines, line)
		}
	}
	return ""
}

// streamOf is the address of the stream that a page opens.
func (p page) streamOf(t *testing.T) string {
	t.Helper()
	for _, n := range find(p.tree(t), byTag("div")) {
		if v, ok := attr(n, "hx-sse:connect"); ok {
			return v
		}
	}
	require.Fail(t, "the page opens no stream")
	return ""
}

// A stream tells when its operation changes, and of others no more than how many
// wait, for the number in the menu.
func TestEvents_Operation(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "finance")
	one := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a5", "amount", 61200))
	two := r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a7", "amount", 61200))
	s := mara.stream(t, mara.get(at(one.ID)).streamOf(t))
	r.decide(r.people["mara"], two.ID, "reject", "No.")
	r.decide(r.people["mara"], one.ID, "approve", "")
	require.Equal(t, "event: changed\nid: 2.1\ndata: 2.1", s.next())
	r.decide(r.operator("tomas", "finance"), one.ID, "reject", "No.")
	require.Equal(t, "event: changed\nid: 3.0\ndata: 3.0", s.next())
}

// What happened between rendering and connecting, or while the connection was
// away, is told at once; what was seen is not told again.
func TestEvents_MissNothing(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	path := mara.get(at(op.ID)).streamOf(t)
	r.decide(r.people["mara"], op.ID, "approve", "")
	require.Equal(t, "event: changed\nid: 2.0\ndata: 2.0", mara.stream(t, path).next())
	// The number in the menu belongs to the page too.
	other := r.ask(r.agent, "refund_payment", args("case", "3", "payment_id", "pay_a3", "amount", 100))
	require.Equal(t, "event: changed\nid: 2.1\ndata: 2.1", mara.stream(t, path, "Last-Event-ID", "2.0").next())
	r.decide(r.people["mara"], other.ID, "reject", "No.")
	// Back with the last event's id: quiet until there is more.
	s := mara.stream(t, path, "Last-Event-ID", "2.0")
	r.work()
	require.Contains(t, s.next(), "event: changed\nid: ")

	queue := mara.get("/approvals").streamOf(t)
	r.ask(r.agent, "refund_payment", args("case", "2", "payment_id", "pay_a2", "amount", 100))
	require.Contains(t, mara.stream(t, queue).next(), "event: changed\nid: ")
}

// The queue tells of what comes, what goes, and what becomes of it.
func TestEvents_Queue(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	s := mara.stream(t, mara.get("/approvals").streamOf(t))
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	require.Contains(t, s.next(), "event: changed")
	r.decide(r.people["mara"], op.ID, "approve", "")
	require.Contains(t, s.next(), "event: changed")
	// It left the queue, and is sent: that is told too.
	r.work()
	require.Contains(t, s.next(), "event: changed")
}

// After the session nothing more is told.
func TestEvents_End(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	s := mara.stream(t, "/events?queue=1")
	require.Contains(t, s.next(), "event: changed", "it has seen nothing yet")
	require.Equal(t, 303, mara.post("/sign-out").Status)
	r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	require.Equal(t, "event: ended\ndata: ended", s.next())
	require.Empty(t, s.next())

	// Closing the pages ends the streams, so that a server can stop.
	mara = r.as("mara")
	s = mara.stream(t, "/events?queue=1")
	s.next()
	r.pages.Close()
	r.pages.Close()
	require.Empty(t, s.next())
	require.Equal(t, 200, mara.get("/approvals").Status)
}

// One person's streams are bounded; another's are not touched by that.
func TestEvents_Bounded(t *testing.T) {
	r := newRig(t)
	mara, tomas := r.as("mara"), r.as("tomas")
	var open []*stream
	for range 32 {
		open = append(open, mara.stream(t, "/events?queue=1"))
	}
	got := mara.get("/events?queue=1")
	require.Equal(t, 429, got.Status)
	require.NotEmpty(t, got.Header.Get("Retry-After"))
	tomas.stream(t, "/events?queue=1")
	r.pages.Close()
	for _, s := range open {
		for s.next() != "" { // to the end
		}
	}
	require.Equal(t, 200, mara.get("/approvals").Status)
}

func TestEvents_NotThere(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara")
	require.Equal(t, 404, mara.get("/events?operation=op_0").Status)
	require.Equal(t, 400, mara.get("/events?queue=1&cursor=nonsense").Status)
}

// What a page fetches by itself is told apart from what a person does.
func TestBackground(t *testing.T) {
	for target, want := range map[string]bool{
		"GET /events?queue=1": true, "GET /approvals?live=1": true, "GET /operations/op_1?live=1&done=x": true,
		"GET /approvals": false, "GET /operations/op_1?done=live": false, "POST /approvals?live=1": false, "POST /events": false,
	} {
		method, url, _ := strings.Cut(target, " ")
		req, err := http.NewRequest(method, url, nil)
		require.NoError(t, err)
		require.Equal(t, want, web.Background(req), target)
	}
}
