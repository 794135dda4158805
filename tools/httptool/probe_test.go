package httptool_test

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools/httptool"
)

// A probe asks nothing: it connects within the guard and hangs up.
func TestClient_Probe(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	plain := httptest.NewServer(served)
	defer plain.Close()
	secure := httptest.NewTLSServer(served)
	defer secure.Close()
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }

	require.NoError(t, open(t, httptool.Upstream{URL: plain.URL + "/api", Allow: []httptool.Allowed{allow(t, address(plain))}}).Probe(t.Context()))
	require.ErrorContains(t, open(t, httptool.Upstream{URL: plain.URL}).Probe(t.Context()), "the address is")

	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	trusted := httptool.Upstream{URL: secure.URL, RootCAs: roots, Allow: []httptool.Allowed{allow(t, address(secure))}}
	require.NoError(t, open(t, trusted).Probe(t.Context()))
	trusted.RootCAs = x509.NewCertPool()
	require.ErrorContains(t, open(t, trusted).Probe(t.Context()), "TLS handshake")

	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	err = open(t, httptool.Upstream{URL: "http://" + gone.Addr().String(), Allow: []httptool.Allowed{allow(t, "127.0.0.1")}}).Probe(t.Context())
	require.ErrorContains(t, err, "refused")

	// Without a port, the scheme's own is dialled.
	for _, url := range []string{"http://127.0.0.1", "https://127.0.0.1"} {
		err := open(t, httptool.Upstream{URL: url}).Probe(t.Context())
		require.Error(t, err)
		require.True(t, strings.Contains(err.Error(), map[string]string{"http://127.0.0.1": ":80", "https://127.0.0.1": ":443"}[url]), err)
	}
}
