package tools_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

// readTool is a read tool with the given request, over free texts a and b.
func readTool(request string) string {
	return `tool: ask
access: read
upstream: shop
input:
  required: [a]
  properties: {a: {type: string}, b: {type: string, default: ""}, n: {type: integer, default: 7}, f: {type: number, default: 2}}
read: {` + request + `}
`
}

func rendered(t *testing.T, request, args string) (tools.Request, error) {
	t.Helper()
	m := parse(t, readTool(request))
	return m.ReadRequest(callOf(t, m, args))
}

// Values are encoded for their place: none can become another segment, query,
// host or path.
func TestRequest_encodesPaths(t *testing.T) {
	for _, a := range []string{
		"a/b", "a?b=c", "a#b", "a b", "%2e%2e", "..%2f..", "a;b", "a,b", "é", "a\nb", `a\b`, "//evil", "http://evil", "a:b@c", "\u202e", "$%7b", "a%00", "...",
	} {
		req, err := rendered(t, `get: "/x/${args.a}/y-${args.a}.json"`, fmt.Sprintf(`{"a":%q}`, a))
		require.NoError(t, err, a)
		u, err := url.Parse("http://host/base" + req.Path)
		require.NoError(t, err, a)
		require.Equal(t, "host", u.Host)
		require.Empty(t, u.RawQuery, a)
		require.Empty(t, u.Fragment, a)
		segments := strings.Split(u.EscapedPath(), "/")
		require.Len(t, segments, 5, a)
		back, err := url.PathUnescape(segments[3])
		require.NoError(t, err)
		require.Equal(t, a, back)
	}
	for _, a := range []string{"", ".", ".."} {
		_, err := rendered(t, `get: "/x/${args.a}"`, fmt.Sprintf(`{"a":%q}`, a))
		require.True(t, fault.Is(err, fault.SchemaViolation), "%q: %v", a, err)
	}
	_, err := rendered(t, `get: "/x/${args.a}${args.b}"`, `{"a":".","b":"."}`)
	require.True(t, fault.Is(err, fault.SchemaViolation), "two values make ..")
}

func TestRequest_query(t *testing.T) {
	m := parse(t, strings.Replace(readTool(`get: /x, query: {"a b": "${args.a}", n: "${args.n}", f: "${args.f}", lit: "x&y", list: ["${args.a}", 5, true], none: "${args.?c}", nil: "${null}"}`),
		"n: {type", "c: {type: string}, n: {type", 1))
	req, err := m.ReadRequest(callOf(t, m, `{"a":"1&n=2#é +"}`))
	require.NoError(t, err)
	require.Equal(t, "/x?a+b=1%26n%3D2%23%C3%A9+%2B&n=7&f=2&lit=x%26y&list=1%26n%3D2%23%C3%A9+%2B&list=5&list=true", req.Path)
	u, err := url.Parse(req.Path)
	require.NoError(t, err)
	require.Equal(t, "1&n=2#é +", u.Query().Get("a b"))
}

func TestRequest_form(t *testing.T) {
	m := parse(t, strings.Replace(readTool(`post: /x, effect_free: true, form: {"meta[case]": "${args.a}", n: "${args.n}", many: ["a", "${args.b}"], none: "${args.?c}"}`),
		"n: {type", "c: {type: string}, n: {type", 1))
	req, err := m.ReadRequest(callOf(t, m, `{"a":"x&y=z","b":"ü"}`))
	require.NoError(t, err)
	require.Equal(t, "meta%5Bcase%5D=x%26y%3Dz&n=7&many=a&many=%C3%BC", string(req.Body))
	require.Equal(t, []tools.HeaderField{{Name: "Content-Type", Value: "application/x-www-form-urlencoded"}}, req.Header)
}

func TestRequest_text(t *testing.T) {
	const request = `post: /x, effect_free: true, text: "Dear ${args.a},\nthis is $${literal}."`
	req, err := rendered(t, request, `{"a":"Anna \u00e9"}`)
	require.NoError(t, err)
	require.Equal(t, "Dear Anna é,\nthis is ${literal}.", string(req.Body))
	for _, a := range []string{`a\nb`, `a\rb`, `a\tb`, `\u0085`, `\u007f`} {
		_, err := rendered(t, request, `{"a":"`+a+`"}`)
		require.True(t, fault.Is(err, fault.ForbiddenText), a)
	}
}

func TestRequest_headers(t *testing.T) {
	const request = `get: /x, headers: {x-note: "v-${args.a}"}`
	req, err := rendered(t, request, `{"a":"1"}`)
	require.NoError(t, err)
	require.Equal(t, []tools.HeaderField{{Name: "X-Note", Value: "v-1"}}, req.Header)
	for _, a := range []string{`a\r\nX-Evil: 1`, `a\nb`, `\u0000`, `é`, `a\tb`, `a `, `\u007f`} {
		_, err := rendered(t, request, `{"a":"`+strings.ReplaceAll(a, `\u0000`, `\u0001`)+`"}`)
		require.True(t, fault.Is(err, fault.ForbiddenText), a)
	}
}

// JSON is built as structure: a value can't break out of its place.
func TestRequest_jsonIsStructure(t *testing.T) {
	req, err := rendered(t, `post: /x, effect_free: true, json: {a: "${args.a}", mixed: "<${args.a}>", n: "${args.n}", f: "${args.f}", deep: [{b: "${args.b == ''}"}], lit: 1.50}`,
		`{"a":"\",\"admin\":true,\"x\":\"{{.Secret}} ${7*7} %s%n <%= %>"}`)
	require.NoError(t, err)
	got := object(t, string(req.Body))
	require.Len(t, got, 6)
	require.Equal(t, `","admin":true,"x":"{{.Secret}} ${7*7} %s%n <%= %>`, got["a"], "text of an argument is never evaluated")
	require.Equal(t, number("7"), got["n"])
	require.Equal(t, number("2"), got["f"])
	require.Equal(t, number("1.5"), got["lit"])
	require.Equal(t, []any{map[string]any{"b": true}}, got["deep"])
}

// No value can forge another call's key.
func TestTool_BusinessKey(t *testing.T) {
	m := parse(t, strings.Replace(base(t), `pattern: "^pay_[a-z0-9]+$"`, `minLength: 0`, 1))
	tool := bound(t, m)
	key := func(c, p string) string {
		k, err := tool.BusinessKey(map[string]any{"case": c, "payment_id": p, "amount": number("1")}, anna)
		require.NoError(t, err)
		return k
	}
	require.Equal(t, "refund/c%2F1/pay_1", key("c/1", "pay_1"))
	require.Equal(t, "refund/a%20b%2B%C3%A9/x", key("a b+é", "x"))
	seen := map[string]string{}
	parts := []string{"", "a", "/", "a/", "/a", "%", "%2F", "a/b", "+", " ", "%20", "\u202e", "A", "-._~", "{}", "*"}
	for _, c := range parts {
		for _, p := range parts {
			k := key(c, p)
			require.Empty(t, seen[k], "%q and %q", seen[k], c+"|"+p)
			seen[k] = c + "|" + p
			require.Regexp(t, `^[A-Za-z0-9%/._~-]+$`, k)
		}
	}
	_, err := tool.BusinessKey(map[string]any{"case": strings.Repeat("x", 300), "payment_id": "p"}, anna)
	require.True(t, fault.Is(err, fault.TooLong))
	require.Equal(t, []string{"case", "payment_id"}, tool.KeyArgs)

	for from, source := range map[string]tools.KeySource{"caller": tools.KeyFromCaller, "run": tools.KeyFromRun} {
		other := parse(t, strings.Replace(base(t), `key: "refund/${args.case}/${args.payment_id}"`, "key: {from: "+from+"}", 1))
		require.Equal(t, source, other.Spec.KeySource)
		require.Nil(t, bound(t, other).BusinessKey)
		require.Empty(t, bound(t, other).KeyArgs)
	}
}

func TestManifest_ReadResult(t *testing.T) {
	m := parse(t, readTool(`get: /x, result: {first: "${body.items[0].id}", n: "${status}", kind: "${headers['content-type']}", none: "${body.?none}"}`))
	call := callOf(t, m, `{"a":"1"}`)
	got, err := m.ReadResult(call, tools.Reply{Status: 200, Headers: map[string]string{"content-type": "application/json"}, Body: value(t, `{"items":[{"id":12345678901}]}`)})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"first": number("12345678901"), "n": number("200"), "kind": "application/json"}, got)
	for name, bad := range map[string]tools.Reply{
		"empty list": {Status: 200, Headers: map[string]string{"content-type": "x"}, Body: value(t, `{"items":[]}`)},
		"status":     {Status: 500},
		"unreadable": {Status: 200, Unreadable: "it is text/html, not JSON."},
	} {
		_, err := m.ReadResult(call, bad)
		require.True(t, fault.Is(err, fault.UpstreamUnexpected), "%s: %v", name, err)
	}
	whole := parse(t, readTool(`get: /x`))
	got, err = whole.ReadResult(call, ok(t, `[1,"a",null]`))
	require.NoError(t, err)
	require.Equal(t, []any{number("1"), "a", nil}, got, "the default result is the body")
}
