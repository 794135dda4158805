package pocketbase_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// gatekeeper stands right before PocketBase: it counts the effectful requests
// that reach it (its own log is written some seconds late) and lets a test act
// in the middle of an exchange.
type gatekeeper struct {
	url             string
	writes          atomic.Int64
	onRead, onWrite atomic.Pointer[func()]
}

func newGatekeeper(t *testing.T, to string) *gatekeeper {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	g := &gatekeeper{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		on := &g.onRead
		if r.Method != http.MethodGet {
			g.writes.Add(1)
			on = &g.onWrite
		}
		if act := on.Swap(nil); act != nil {
			(*act)()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// beforeNextRead has act run when the next read has arrived and before
// PocketBase hears of it.
func (g *gatekeeper) beforeNextRead(act func()) { g.onRead.Store(&act) }

// beforeNextWrite is beforeNextRead for an effectful request.
func (g *gatekeeper) beforeNextWrite(act func()) { g.onWrite.Store(&act) }
