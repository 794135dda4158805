package tools_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

// withInput is a read tool with the given input schema, compiled.
func withInput(t testing.TB, schema string) *tools.Tool {
	t.Helper()
	return bound(t, parse(t, "tool: ask\naccess: read\nupstream: shop\nread: {get: /x}\ninput: "+schema+"\n"))
}

func TestCheckArgs_words(t *testing.T) {
	for _, tt := range []struct{ schema, args, pointer, detail string }{
		{`{required: [a], properties: {a: {type: string}}}`, `{}`, "/a", "is required"},
		{`{properties: {amount: {type: integer}}}`, `{"amuont":1}`, "/amuont", "is not known here (did you mean amount?)"},
		{`{properties: {amount: {type: integer}}}`, `{"amount":"100"}`, "/amount", "must be a whole number"},
		{`{properties: {amount: {type: integer}}}`, `{"amount":1.5}`, "/amount", "must be a whole number"},
		{`{properties: {a: {type: [string, "null"]}}}`, `{"a":true}`, "/a", "must be text or null"},
		{`{properties: {a: {type: object}}}`, `{"a":"{}"}`, "/a", "must be an object"},
		{`{properties: {a: {enum: [x, 5, null]}}}`, `{"a":"y"}`, "/a", `must be one of "x", 5, null`},
		{`{properties: {a: {const: x}}}`, `{"a":"y"}`, "/a", `must be "x"`},
		{`{properties: {a: {type: integer, minimum: 1}}}`, `{"a":0}`, "/a", "must be at least 1"},
		{`{properties: {a: {type: integer, maximum: 9}}}`, `{"a":10}`, "/a", "must be at most 9"},
		{`{properties: {a: {type: number, exclusiveMinimum: 0}}}`, `{"a":0}`, "/a", "must be more than 0"},
		{`{properties: {a: {type: number, multipleOf: 5}}}`, `{"a":7}`, "/a", "must be a multiple of 5"},
		{`{properties: {a: {type: string, minLength: 1}}}`, `{"a":""}`, "/a", "must not be empty"},
		{`{properties: {a: {type: string, maxLength: 2}}}`, `{"a":"äöü"}`, "/a", "must have at most 2 characters"},
		{`{properties: {a: {type: string, pattern: "^x$"}}}`, `{"a":"x\n"}`, "/a", "must match the pattern ^x$"},
		{`{properties: {a: {type: string, format: date}}}`, `{"a":"31.1.2026"}`, "/a", "must be a date, such as 2026-01-31"},
		{`{properties: {a: {type: array, maxItems: 1}}}`, `{"a":[1,2]}`, "/a", "must have at most 1 elements"},
		{`{properties: {a: {type: array, uniqueItems: true}}}`, `{"a":[1,1]}`, "/a", "must not hold the same value twice"},
		{`{properties: {a: {type: array, items: {type: integer}}}}`, `{"a":[1,"x"]}`, "/a/1", "must be a whole number"},
		{`{properties: {"a/b~c d": {type: integer}}}`, `{"a/b~c d":"x"}`, "/a~1b~0c d", "must be a whole number"},
		{`{properties: {a: {properties: {b: {type: string}}}}}`, `{"a":{"c":1}}`, "/a/c", "is not known here"},
		{`{properties: {a: {anyOf: [{type: string}, {type: integer}]}}}`, `{"a":true}`, "/a", "fits none of the allowed forms, or more than one"},
		{`{properties: {a: {not: {const: 5}}}}`, `{"a":5}`, "/a", "is not allowed to be this"},
		{`{properties: {a: {type: string}, b: {type: string}}, dependentRequired: {a: [b]}}`, `{"a":"x"}`, "/b", "is required when a is given"},
		{`{properties: {a: false}}`, `{"a":1}`, "/a", "is not allowed here"},
		{`{properties: {a: {$ref: "#/$defs/id"}}, $defs: {id: {type: string, minLength: 3}}}`, `{"a":"x"}`, "/a", "must have at least 3 characters"},
		{`{properties: {k: {type: string}}, if: {properties: {k: {const: x}}, required: [k]}, then: {required: [v]}}`, `{"k":"x"}`, "/v", "is required"},
	} {
		_, _, err := withInput(t, tt.schema).CheckArgs(object(t, tt.args))
		require.True(t, fault.Is(err, fault.SchemaViolation), "%s %s: %v", tt.schema, tt.args, err)
		require.Equal(t, []fault.Pointer{{Pointer: tt.pointer, Detail: tt.detail}}, fault.Of(err).Pointers, "%s %s", tt.schema, tt.args)
		require.Contains(t, fault.Of(err).Detail, tt.detail)
	}
}

func TestCheckArgs_reportsAll(t *testing.T) {
	tool := withInput(t, `{required: [a, b, c], properties: {a: {type: string}, b: {type: integer, minimum: 1}, c: {type: string, x-sensitive: true}}}`)
	_, _, err := tool.CheckArgs(object(t, `{"b":0,"c":17,"d":"hunter2"}`))
	require.Equal(t, []fault.Pointer{
		{Pointer: "/a", Detail: "is required"},
		{Pointer: "/b", Detail: "must be at least 1"},
		{Pointer: "/c", Detail: "must be text"},
		{Pointer: "/d", Detail: "is not known here"},
	}, fault.Of(err).Pointers)
	require.NotContains(t, fmt.Sprint(err), "hunter2", "values are not repeated")
	_, _, err = tool.CheckArgs(nil)
	require.Len(t, fault.Of(err).Pointers, 3)
}

func TestCheckArgs_defaults(t *testing.T) {
	tool := withInput(t, `
  properties:
    limit: {type: integer, default: 20}
    where:
      type: object
      default: {}
      properties: {state: {type: string, default: open}, deep: {$ref: "#/$defs/deep"}}
    list: {type: array, items: {properties: {n: {type: integer, default: 1}}}}
    all: {allOf: [{properties: {x: {type: integer, default: 3}}}]}
    either: {anyOf: [{properties: {y: {type: integer, default: 4}}}]}
    none: {type: [string, "null"], default: null}
  $defs: {deep: {type: object, properties: {z: {type: boolean, default: true}}}}`)
	in := object(t, `{"list":[{},{"n":2}],"all":{},"either":{}}`)
	out, _, err := tool.CheckArgs(in)
	require.NoError(t, err)
	require.Equal(t, object(t, `{"limit":20,"where":{"state":"open"},"list":[{"n":1},{"n":2}],"all":{"x":3},"either":{},"none":null}`), out)
	require.Equal(t, object(t, `{"list":[{},{"n":2}],"all":{},"either":{}}`), in, "the arguments given are not changed")
	out, _, err = tool.CheckArgs(object(t, `{"where":{"deep":{}}}`))
	require.NoError(t, err)
	require.Equal(t, object(t, `{"state":"open","deep":{"z":true}}`), out["where"])
}

// Objects are closed unless the schema says otherwise, whatever they are made of.
func TestCheckArgs_closed(t *testing.T) {
	for schema, extra := range map[string]string{
		`{properties: {a: {type: string}}}`: `{"x":1}`,
		`{}`:                                `{"x":1}`,
		`{properties: {o: {properties: {a: {type: string}}}}}`:                                       `{"o":{"x":1}}`,
		`{properties: {l: {type: array, items: {properties: {a: {type: string}}}}}}`:                 `{"l":[{"x":1}]}`,
		`{properties: {o: {$ref: "#/$defs/o"}}, $defs: {o: {properties: {a: {type: string}}}}}`:      `{"o":{"x":1}}`,
		`{properties: {o: {allOf: [{properties: {a: {type: string}}}, {required: [a]}]}}}`:           `{"o":{"a":"1","x":1}}`,
		`{properties: {o: {oneOf: [{properties: {a: {const: 1}}}, {properties: {b: {const: 2}}}]}}}`: `{"o":{"a":1,"b":3,"x":1}}`,
	} {
		_, _, err := withInput(t, schema).CheckArgs(object(t, extra))
		require.True(t, fault.Is(err, fault.SchemaViolation), "%s %s", schema, extra)
	}
	for schema, extra := range map[string]string{
		`{additionalProperties: true, properties: {a: {type: string}}}`:                                      `{"x":1}`,
		`{properties: {o: {type: object}}}`:                                                                  `{"o":{"x":1}}`,
		`{properties: {o: {type: object, additionalProperties: {type: integer}}}}`:                           `{"o":{"x":1}}`,
		`{properties: {o: {type: object, patternProperties: {"^x": {type: integer}}}}}`:                      `{"o":{"x":1}}`,
		`{properties: {o: {$ref: "#/$defs/o"}}, $defs: {o: {type: object}}}`:                                 `{"o":{"x":1}}`,
		`{properties: {o: {$ref: "#/$defs/o"}}, $defs: {o: {properties: {a: {type: string}}}}}`:              `{"o":{"a":"1"}}`,
		`{properties: {o: {allOf: [{properties: {a: {type: string}}}, {properties: {b: {type: string}}}]}}}`: `{"o":{"a":"1","b":"2"}}`,
	} {
		_, _, err := withInput(t, schema).CheckArgs(object(t, extra))
		require.NoError(t, err, "%s %s", schema, extra)
	}
}

// A recursive schema ends, in the check and in the types of expressions.
func TestCheckArgs_recursive(t *testing.T) {
	tool := withInput(t, `{properties: {tree: {$ref: "#/$defs/node"}}, $defs: {node: {properties: {name: {type: string}, kids: {type: array, items: {$ref: "#/$defs/node"}}}}}}`)
	_, _, err := tool.CheckArgs(object(t, `{"tree":{"name":"a","kids":[{"name":"b","kids":[]}]}}`))
	require.NoError(t, err)
	_, _, err = tool.CheckArgs(object(t, `{"tree":{"kids":[{"kids":[{"name":5}]}]}}`))
	require.Equal(t, "/tree/kids/0/kids/0/name", fault.Of(err).Pointers[0].Pointer)
}

func TestCheckArgs_invisible(t *testing.T) {
	for _, kind := range []string{"format: email", `pattern: "^.*$"`, "enum: [a, \"a\\u200b\"]", "const: \"a\\u200bb@x\""} {
		tool := withInput(t, "{properties: {to: {type: string, "+kind+"}}}")
		for _, text := range []string{"a\u200bb@x", "a\u202eb", "a\u00adb", "a\ufe0fb", "a\U000E0041b"} {
			_, _, err := tool.CheckArgs(map[string]any{"to": text})
			require.True(t, fault.Is(err, fault.ForbiddenText), "%s %q: %v", kind, text, err)
			require.Equal(t, "/to", fault.Of(err).Pointers[0].Pointer)
		}
	}
	free := withInput(t, "{properties: {note: {type: string}, list: {type: array, items: {type: string}}}}")
	out, warnings, err := free.CheckArgs(map[string]any{"note": "a\u202eb", "list": []any{"ok", "\u200b"}})
	require.NoError(t, err)
	require.Equal(t, "a\u202eb", out["note"], "text is never silently changed")
	require.Equal(t, []string{"/list/1", "/note"}, []string{warnings[0].Pointer, warnings[1].Pointer})
	require.Equal(t, tools.WarnInvisible, warnings[0].Code)
	require.Contains(t, warnings[1].Text, "U+202E")

	open := withInput(t, "{properties: {o: {type: object}}}")
	_, _, err = open.CheckArgs(map[string]any{"o": map[string]any{"a\u200b": 1}})
	require.True(t, fault.Is(err, fault.ForbiddenText), "a name that can't be seen")

	nfc := withInput(t, "{properties: {n: {type: string, x-nfc: true}}}")
	_, _, err = nfc.CheckArgs(map[string]any{"n": "e\u0301"})
	require.True(t, fault.Is(err, fault.ForbiddenText))
	_, _, err = nfc.CheckArgs(map[string]any{"n": "\u00e9"})
	require.NoError(t, err)
}

func TestCheckArgs_confusable(t *testing.T) {
	tool := withInput(t, "{properties: {mail: {type: string, format: email}, host: {type: string, format: hostname}, url: {type: string, format: uri}, id: {type: string, pattern: '.'}, note: {type: string}}}")
	for _, args := range []map[string]any{
		{"mail": "аnna@example.org"}, {"host": "exаmple.org"}, {"url": "https://exаmple.org/x"}, {"id": "pаy_1"},
	} {
		_, warnings, err := tool.CheckArgs(args)
		require.NoError(t, err, "%v", args)
		require.Len(t, warnings, 1, "%v", args)
		require.Equal(t, tools.WarnConfusable, warnings[0].Code)
	}
	_, warnings, err := tool.CheckArgs(map[string]any{"mail": "anna@example.org", "note": "аnna", "host": "example.org"})
	require.NoError(t, err)
	require.Empty(t, warnings, "free text may be in any script")
}

func TestCheckArgs_webAddresses(t *testing.T) {
	tool := withInput(t, "{properties: {url: {type: string, format: uri}}}")
	for _, good := range []string{"https://example.org", "http://example.org:8080/a/b?c=d#e", "HTTPS://EXAMPLE.ORG/", "https://93.184.215.14/", "https://[2606:2800:21f::1]/", "https://bücher.example/", "https://example.org./"} {
		_, _, err := tool.CheckArgs(map[string]any{"url": good})
		require.NoError(t, err, good)
	}
	for _, bad := range []string{
		"javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ftp://example.org/", "/relative", "//example.org/", "example.org",
		"http://good@evil/", "http://good:pw@evil/", "http://evil#@good/", "http://evil?@good/", `http://evil\@good/`, `http:\\evil`, "http://ev\til/",
		"http://evil /", " http://example.org", "http://", "http:///x", "http://exa_mple.org/", "http://-a.org/", "https://[fe80::1%25lo]/", "https://example.org:port/", "https://a..b/",
		"mailto:a@b.example", "https:example.org", "http://[::1", "http://%65vil/",
	} {
		_, _, err := tool.CheckArgs(map[string]any{"url": bad})
		require.True(t, fault.Is(err, fault.SchemaViolation) || fault.Is(err, fault.TargetForbidden), "%q: %v", bad, err)
	}
}

// Addresses that must not be handed to a system that might fetch them, in every
// spelling.
func TestCheckArgs_forbiddenTargets(t *testing.T) {
	tool := withInput(t, "{properties: {url: {type: string, format: uri}, host: {type: string, format: hostname}, own: {type: string, format: uri, x-allow-private: true}}}")
	for _, host := range []string{
		"127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "0x7f000001", "127.1", "169.254.169.254", "10.0.0.1", "100.64.0.1", "0.0.0.0", "0",
		"localhost", "LOCALHOST", "a.localhost", "localhost.", "127.0.0.1.", "１２７.0.0.1", "127。0。0。1",
		"[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[fd00:ec2::254]", "[fe80::1%25lo]", "[2002:7f00:1::]", "[2001:0:1::]", "[::127.0.0.1]", "[::]",
	} {
		_, _, err := tool.CheckArgs(map[string]any{"url": "http://" + host + "/x"})
		require.True(t, fault.Is(err, fault.TargetForbidden), "%s: %v", host, err)
		if !strings.HasPrefix(host, "[") {
			_, _, err = tool.CheckArgs(map[string]any{"host": host})
			require.True(t, fault.Is(err, fault.TargetForbidden), "%s: %v", host, err)
		}
	}
	_, _, err := tool.CheckArgs(map[string]any{"own": "http://10.0.0.1/"})
	require.NoError(t, err, "the manifest's author allows it")
}

func TestCheckArgs_mailAndHosts(t *testing.T) {
	tool := withInput(t, "{properties: {mail: {type: string, format: email}, host: {type: string, format: hostname}}}")
	for _, good := range []string{"a@example.org", "a.b+c@sub.example.org", "ä@bücher.example"} {
		_, _, err := tool.CheckArgs(map[string]any{"mail": good})
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"a", "a@", "@b", "a@b@c.example", "Anna <a@example.org>", "a@example.org,b@example.org", "a@[127.0.0.1]", "a b@example.org", "a@exa mple.org", "a@example..org", "a@-x.org", "a\nb@x.org", strings.Repeat("a", 65) + "@x.org"} {
		_, _, err := tool.CheckArgs(map[string]any{"mail": bad})
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"", "a b", "-a", "a-", "a..b", "a_b", "a/b", strings.Repeat("a", 64), "http://a", "a:1"} {
		_, _, err := tool.CheckArgs(map[string]any{"host": bad})
		require.Error(t, err, bad)
	}
}

func TestForbiddenAddress(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::10.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:ffff::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002::1",
		"2002:7f00:1::", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1",
	} {
		require.NotEmpty(t, tools.ForbiddenAddress(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.169.0.0", "223.255.255.255", "::ffff:8.8.8.8", "2001:4860:4860::8888", "2606:2800:21f::1", "2a00::1", "2003::1"} {
		require.Empty(t, tools.ForbiddenAddress(netip.MustParseAddr(a)), a)
	}
	require.NotEmpty(t, tools.ForbiddenAddress(netip.Addr{}))
}

func TestTool_Redact(t *testing.T) {
	tool := withInput(t, `{properties: {card: {type: string, x-sensitive: true}, who: {properties: {name: {type: string}, pin: {type: string, x-sensitive: true}}}, note: {type: string}}}`)
	require.Equal(t, []string{"/card", "/who/pin"}, tool.Sensitive)
	args := object(t, `{"card":"4111","who":{"name":"Anna","pin":"1234"},"note":"4111"}`)
	out := tool.Redact(args)
	require.Equal(t, object(t, `{"card":"4111","who":{"name":"Anna","pin":"1234"},"note":"4111"}`), args, "the arguments are not changed")
	require.Equal(t, "4111", out["note"])
	require.Regexp(t, `^redacted:[0-9a-f]{32}$`, out["card"])
	who := out["who"].(map[string]any)
	require.Equal(t, "Anna", who["name"])
	require.Regexp(t, `^redacted:[0-9a-f]{32}$`, who["pin"])
	require.Equal(t, out["card"], tool.Redact(object(t, `{"card":"4111"}`))["card"], "equal values have equal digests")
	require.NotEqual(t, out["card"], tool.Redact(object(t, `{"card":"4112"}`))["card"])
	require.Equal(t, object(t, `{"note":"x"}`), tool.Redact(object(t, `{"note":"x"}`)), "what is not there is not made up")

	bare, err := tools.Compile(parse(t, "tool: ask\naccess: read\nupstream: shop\nread: {get: /x}\ninput: {properties: {card: {type: string, x-sensitive: true}}}\n"),
		tools.CompileEnv{NewConnector: func(*tools.Manifest) (tools.Connector, error) { return nil, nil }})
	require.NoError(t, err)
	require.Equal(t, "redacted", bare.Redact(object(t, `{"card":"4111"}`))["card"], "without a key no digest is shown: it could be guessed")
}

// Typed numbers reach expressions in the type that the checker was told.
func TestExpressions_numberTypes(t *testing.T) {
	m := parse(t, `tool: ask
access: read
upstream: shop
input: {properties: {f: {type: number, default: 3}, n: {type: integer, default: 3}, list: {type: array, items: {type: number}, default: [1, 2.5]}, o: {type: object, additionalProperties: {type: number}, default: {x: 2}}, maybe: {type: [integer, "null"], default: null}}}
read: {get: /x, result: {half: "${args.f / 2.0}", whole: "${args.n / 2}", more: "${args.f > args.n}", sum: "${args.list[0] + args.list[1]}", o: "${args.o.x * 1.5}", none: "${args.maybe == null}", any: "${body.n + 1}"}}
`)
	got, err := m.ReadResult(callOf(t, m, `{}`), ok(t, `{"n":1}`))
	require.NoError(t, err)
	require.Equal(t, object(t, `{"half":1.5,"whole":1,"more":false,"sum":3.5,"o":3,"none":true,"any":2}`), got)
}
