package tooltest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Line is an HTTP line between a tool and its upstream that can be cut. It
// passes everything on until a Fault is set, keeps connections open as a server
// would, and counts the effectful requests that reached its end.
type Line struct {
	// URL is where the tool's upstream seems to be.
	URL string

	t        testing.TB
	upstream *url.URL
	client   *http.Transport
	address  string

	mu       sync.Mutex
	listener net.Listener
	faults   []Fault
	reads    []Fault
	received []Received
	conns    map[net.Conn]int
	done     sync.WaitGroup
}

// Received is one effectful request as it came off the wire.
type Received struct {
	Method, Path string
	Header       http.Header
	Body         []byte
	// Reused says that the connection had carried a request before.
	Reused bool
}

// Fault is what happens to one request.
type Fault struct {
	// Forward sends the request on to the upstream first, so that its effect takes
	// place. The upstream's answer is then dropped.
	Forward bool
	// Answer writes whatever the tool gets instead; nil writes nothing. The
	// connection is closed afterwards.
	Answer func(w io.Writer)
	// Arrived, when set, is called when the request is there, before anything
	// else.
	Arrived func()
}

// NewLine opens a line to upstream. It is closed with the test.
func NewLine(t testing.TB, upstream string) *Line {
	t.Helper()
	u, err := url.Parse(upstream)
	require.NoError(t, err)
	l := &Line{t: t, upstream: u, conns: map[net.Conn]int{}}
	l.client = &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	l.open("127.0.0.1:0")
	l.URL = "http://" + l.address
	t.Cleanup(func() {
		l.Refuse()
		l.done.Wait()
		l.client.CloseIdleConnections()
	})
	return l
}

func (l *Line) open(address string) {
	listener, err := net.Listen("tcp", address)
	require.NoError(l.t, err)
	l.mu.Lock()
	l.listener, l.address = listener, listener.Addr().String()
	l.mu.Unlock()
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.conns[conn] = 0
			l.mu.Unlock()
			l.done.Add(1)
			go l.serve(conn)
		}
	}()
}

// Address is host and port of the line.
func (l *Line) Address() string { return l.address }

// Fail sets what happens to the next effectful requests, one fault each.
func (l *Line) Fail(faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, faults...)
}

// FailReads sets what happens to the next GET and HEAD requests.
func (l *Line) FailReads(faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, faults...)
}

// Refuse closes the line: connections are refused, open ones are cut.
func (l *Line) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener.Close()
	for conn := range l.conns {
		conn.Close()
	}
}

// Restore opens the line again at the same address.
func (l *Line) Restore() { l.open(l.address) }

// Received are the effectful requests that arrived whole, in order.
func (l *Line) Received() []Received {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Received(nil), l.received...)
}

func (l *Line) serve(conn net.Conn) {
	defer l.done.Done()
	defer func() {
		conn.Close()
		l.mu.Lock()
		delete(l.conns, conn)
		l.mu.Unlock()
	}()
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		fault, faulty := l.take(req, body, n > 0)
		if !faulty {
			if !l.pass(conn, req, body) {
				return
			}
			continue
		}
		if fault.Arrived != nil {
			fault.Arrived()
		}
		if fault.Forward {
			if resp, err := l.send(req, body); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		if fault.Answer != nil {
			fault.Answer(conn)
		}
		return
	}
}

// take counts an effectful request and gives its fault.
func (l *Line) take(req *http.Request, body []byte, reused bool) (Fault, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := &l.faults
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		queue = &l.reads
	} else {
		l.received = append(l.received, Received{req.Method, req.URL.RequestURI(), req.Header.Clone(), body, reused})
	}
	if len(*queue) == 0 {
		return Fault{}, false
	}
	f := (*queue)[0]
	*queue = (*queue)[1:]
	return f, true
}

// pass hands a request on and its answer back; false ends the connection.
func (l *Line) pass(conn net.Conn, req *http.Request, body []byte) bool {
	resp, err := l.send(req, body)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return false
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	resp.ContentLength, resp.TransferEncoding = int64(len(answer)), nil
	resp.Close = req.Close
	resp.Header.Del("Connection")
	return resp.Write(conn) == nil && !req.Close
}

// send makes the request to the real upstream.
func (l *Line) send(req *http.Request, body []byte) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = l.upstream.Scheme, l.upstream.Host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return l.client.RoundTrip(out)
}

// raw is an answer of fixed bytes.
func raw(text string) func(io.Writer) {
	return func(w io.Writer) { io.WriteString(w, text) }
}

// repeated is an answer that goes on until the tool hangs up or the bound is
// reached.
func repeated(head string, piece []byte, bound int) func(io.Writer) {
	return func(w io.Writer) {
		if _, err := io.WriteString(w, head); err != nil {
			return
		}
		for sent := 0; sent < bound; sent += len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
}

// trickled is an answer of one byte a pause, until the tool hangs up.
func trickled(head string, pause time.Duration) func(io.Writer) {
	return func(w io.Writer) {
		if _, err := io.WriteString(w, head); err != nil {
			return
		}
		for {
			time.Sleep(pause)
			if _, err := w.Write([]byte("x")); err != nil {
				return
			}
		}
	}
}
