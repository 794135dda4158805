package httptool_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

// rig is a real shop, a line that can be cut in front of it, and the shop's
// tools compiled for the end of the line.
type rig struct {
	*shop.Shop
	t      *testing.T
	url    string
	line   *tooltest.Line
	client *httptool.Client
	byName map[string]*tools.Tool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := shop.Open(shop.Config{Dir: t.TempDir(), Key: "shop-key-1234", ReadKey: "shop-read-1234"})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	r := &rig{Shop: s, t: t, url: "http://" + ln.Addr().String(), byName: map[string]*tools.Tool{}}
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	r.line = tooltest.NewLine(t, r.url)
	r.client = open(t, httptool.Upstream{
		URL:      r.line.URL,
		Auth:     &httptool.Credential{Bearer: secret("shop-key-1234")},
		ReadAuth: &httptool.Credential{Bearer: secret("shop-read-1234")},
		Allow:    []httptool.Allowed{allow(t, r.line.Address())},
	})
	loaded, err := tools.LoadFS(shop.Manifests)
	require.NoError(t, err)
	for _, l := range loaded {
		r.byName[l.Manifest.Spec.Name] = compile(t, r.client, l.Manifest)
	}
	return r
}

func secret(text string) httptool.Secret { return func() (string, error) { return text, nil } }

func allow(t testing.TB, s string) httptool.Allowed {
	t.Helper()
	a, err := httptool.ParseAllowed(s)
	require.NoError(t, err)
	return a
}

func open(t testing.TB, up httptool.Upstream) *httptool.Client {
	t.Helper()
	up.Name = "shop"
	if up.Sleep == nil {
		up.Sleep = func(context.Context, time.Duration) error { return nil }
	}
	c, err := httptool.Open(up)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, c.RefusedWrites(), "no read tried to write")
		c.Close()
	})
	return c
}

func compile(t testing.TB, c *httptool.Client, m *tools.Manifest) *tools.Tool {
	t.Helper()
	tool, err := tools.Compile(m, tools.CompileEnv{UpstreamURL: c.URL(), NewConnector: c.Connector})
	require.NoError(t, err)
	return tool
}

// parse reads a manifest that must be right.
func parse(t testing.TB, text string) *tools.Manifest {
	t.Helper()
	m, err := tools.ParseManifest([]byte(text))
	require.NoError(t, err)
	return m
}

// byHand changes something in the shop behind everybody's back.
func (r *rig) byHand(path string) {
	r.t.Helper()
	resp, err := http.Post(r.url+path, "application/json", strings.NewReader("{}"))
	require.NoError(r.t, err)
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.Less(r.t, resp.StatusCode, 300, "%s", body)
}

// upstream is a server of one handler, with a client that may reach it.
func upstream(t testing.TB, h http.HandlerFunc, change ...func(*httptool.Upstream)) *httptool.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	up := httptool.Upstream{URL: server.URL, Allow: []httptool.Allowed{allow(t, server.Listener.Addr().String())}}
	for _, c := range change {
		c(&up)
	}
	return open(t, up)
}

// keyed is a tool with one read and a commit that honours a key, or not.
func keyed(method string, honours bool, body string) string {
	support := ""
	if honours {
		support = "\n  honours_key: {header: Idempotency-Key, retention: 24h}"
	}
	return fmt.Sprintf(`
tool: do_it
access: write
upstream: shop
key: "do/${args.id}"
input: {required: [id], properties: {id: {type: string}}}
preview:
  effects: [{verb: do, target: "thing/${args.id}", after: {done: true}}]
commit:
  %s: /do%s%s
  succeeded: {status: [200], effect_id: "${body.id}"}
  rejected: {status: [422], because: "${body.message}"}
approval: [{auto: true}]
`, method, body, support)
}

func planOf(t testing.TB, tool *tools.Tool, id string) tools.Plan {
	t.Helper()
	args, _, err := tool.CheckArgs(map[string]any{"id": id})
	require.NoError(t, err)
	plan, err := tool.Preview(context.Background(), tools.Call{Args: args, Key: tools.Key{Value: id, Generation: 1, Upstream: "up-" + id}})
	require.NoError(t, err)
	return plan
}
