package httptool_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
	"countersign/tools/httptool"
)

// S54: every kind of address that must not be reached, as a resolver would give
// it, unless the entry lists it.
func TestGuard_refusesResolvedAddresses(t *testing.T) {
	closed := open(t, httptool.Upstream{URL: "https://shop.example"})
	listed := open(t, httptool.Upstream{URL: "https://shop.example", Allow: []httptool.Allowed{
		allow(t, "127.0.0.1:8421"), allow(t, "10.1.0.0/16"), allow(t, "[::1]"), allow(t, "::ffff:192.168.7.0/120"),
	}})
	for _, address := range []string{
		"127.0.0.1:443", "10.0.0.1:443", "172.16.0.1:443", "192.168.1.1:443", "169.254.169.254:80", "100.64.0.1:443", "0.0.0.0:443",
		"224.0.0.1:443", "255.255.255.255:443", "[::]:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "[::ffff:169.254.169.254]:80",
		"[64:ff9b::7f00:1]:443", "[64:ff9b::a9fe:a9fe]:80", "[2002:7f00:1::]:443", "[2001:0:7f00:1::]:443", "[fd00:ec2::254]:80",
		"[fe80::1%lo]:443", "[ff02::1]:443", "[fc00::1]:443", "not an address",
	} {
		require.Error(t, closed.Dials(address), address)
	}
	for _, address := range []string{"93.184.215.14:443", "[2606:2800:21f::1]:443", "[::ffff:93.184.215.14]:443"} {
		require.NoError(t, closed.Dials(address), address)
	}
	for _, address := range []string{"127.0.0.1:8421", "[::ffff:127.0.0.1]:8421", "10.1.2.3:1", "[::1]:9", "192.168.7.9:443"} {
		require.NoError(t, listed.Dials(address), address)
	}
	for _, address := range []string{"127.0.0.1:8422", "127.0.0.2:8421", "10.2.0.1:443", "[::2]:9", "192.168.8.9:443", "169.254.169.254:8421"} {
		require.Error(t, listed.Dials(address), address)
	}
}

// The guard looks at what a name resolves to, at preview and at dispatch, and
// nothing is sent.
func TestGuard_onTheWay(t *testing.T) {
	requests := 0
	client := upstream(t, func(http.ResponseWriter, *http.Request) { requests++ }, func(up *httptool.Upstream) {
		up.URL = strings.Replace(up.URL, "127.0.0.1", "localhost", 1)
		up.Allow = nil
	})
	tool := compile(t, client, parse(t, withRead))
	args, _, err := tool.CheckArgs(map[string]any{"id": "1"})
	require.NoError(t, err)
	call := tools.Call{Args: args, Key: tools.Key{Value: "k", Upstream: "u"}}
	_, err = tool.Preview(context.Background(), call)
	require.True(t, fault.Is(err, fault.TargetForbidden), "%v", err)
	require.NotContains(t, fault.Of(err).Detail, "localhost")

	noReads := compile(t, client, parse(t, keyed("post", false, "")))
	out := noReads.Dispatch(context.Background(), planOf(t, noReads, "1"), tools.Dispatch{Timeout: time.Second})
	require.Equal(t, tools.NotSent, out.Verdict)
	require.Contains(t, out.Because, "not listed under allow")
	require.Zero(t, requests)
}

func TestParseAllowed(t *testing.T) {
	for in, out := range map[string]string{
		"127.0.0.1": "127.0.0.1", "127.0.0.1:8421": "127.0.0.1:8421", "::1": "::1", "[::1]": "::1", "[::1]:80": "[::1]:80",
		"10.0.0.0/8": "10.0.0.0/8", "::ffff:10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1/128": "10.0.0.1",
	} {
		a, err := httptool.ParseAllowed(in)
		require.NoError(t, err, in)
		require.Equal(t, out, a.String())
	}
	for _, bad := range []string{"", "localhost", "localhost:80", "127.0.0.1:0", "127.0.0.1:99999", "10.0.0.0/40", "*", "0x7f.1"} {
		_, err := httptool.ParseAllowed(bad)
		require.Error(t, err, bad)
	}
}

func TestOpen_refuses(t *testing.T) {
	for _, bad := range []string{"", "shop.example", "ftp://shop.example", "https://", "https://user@shop.example", "https://u:p@shop.example", "https://shop.example?x=1", "https://shop.example?", "https://shop.example/#f", "http:shop", "://"} {
		_, err := httptool.Open(httptool.Upstream{Name: "shop", URL: bad})
		require.Error(t, err, bad)
	}
	for _, bad := range []*httptool.Credential{
		{},
		{Bearer: secret("a"), Header: &httptool.SecretHeader{Name: "X", Value: secret("b")}},
		{Basic: &httptool.Basic{User: "a:b", Password: secret("x")}},
		{Basic: &httptool.Basic{User: "a"}},
		{Header: &httptool.SecretHeader{Name: "X Y", Value: secret("b")}},
	} {
		_, err := httptool.Open(httptool.Upstream{Name: "shop", URL: "https://shop.example", Auth: bad})
		require.Error(t, err)
	}
	c, err := httptool.Open(httptool.Upstream{Name: "shop", URL: "https://shop.example/base/"})
	require.NoError(t, err)
	require.Equal(t, "https://shop.example/base", c.URL())
}

// Nothing that may have an effect leaves on the way of a preview or lookup.
func TestRead_refusesWrites(t *testing.T) {
	requests := 0
	client, err := httptool.Open(httptool.Upstream{Name: "shop", URL: "https://shop.example"})
	require.NoError(t, err)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		_, _, err := client.ReadRaw(context.Background(), tools.Request{Method: method, Path: "/x"})
		require.True(t, fault.Is(err, fault.Internal))
	}
	require.Zero(t, requests)
	require.Equal(t, int64(4), client.RefusedWrites())
}

// withRead is a tool whose preview reads something.
const withRead = `
tool: do_it
access: write
upstream: shop
key: "do/${args.id}"
input: {required: [id], properties: {id: {type: string}}}
preview:
  reads: {thing: {get: "/things/${args.id}"}}
  effects: [{verb: do, target: "thing/${args.id}", before: {n: "${reads.thing.body.n}"}, after: {n: 0}}]
  basis: [reads.thing.body.n]
commit:
  post: /do
  succeeded: {status: [200], effect_id: "${body.id}"}
  rejected: {status: [422], because: "${body.message}"}
lookup: {get: /done, query: {key: "${key.upstream}"}, found: body.ids}
already_done: {get: /done, query: {thing: "${args.id}"}, found: body.ids}
approval: [{auto: true}]
`
