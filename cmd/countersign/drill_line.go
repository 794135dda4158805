package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// drillLine is the line between gateway and shop. It can take no new connections,
// as writes need, while those that reads use stay; and it can swallow
// lookups without an answer.
type drillLine struct {
	address string
	server  *http.Server
	swallow atomic.Bool

	mu sync.Mutex
	ln net.Listener
}

func openDrillLine(upstream string) (*drillLine, error) {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	// A line repeats nothing: each request has a connection of its own behind it.
	proxy.Transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // the shop cut the connection: so does the line
	}
	l := &drillLine{}
	l.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/holds" && l.swallow.Load() {
			select { // silent for a while, then gone
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.address = ln.Addr().String()
	l.serve(ln)
	return l, nil
}

func (l *drillLine) serve(ln net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ln = ln
	go func() { _ = l.server.Serve(ln) }() // ends with its listener
}

// takeConnections opens or closes the door for new connections.
func (l *drillLine) takeConnections(on bool) error {
	if !on {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.ln.Close()
	}
	ln, err := net.Listen("tcp", l.address)
	if err != nil {
		return err
	}
	l.serve(ln)
	return nil
}

// swallowLookups leaves the questions for holds without an answer.
func (l *drillLine) swallowLookups(on bool) { l.swallow.Store(on) }

func (l *drillLine) close() { _ = l.server.Close() }
