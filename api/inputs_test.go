package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// input is one file of testdata/inputs: something that must not come in, or must
// come in unharmed, and what has to be answered. Each runs on every route that
// takes its kind of thing, and after each nothing has changed.
type input struct {
	name string
	// Kind is where it goes: body, args, key, header, query, path, raw.
	Kind   string
	Routes []string // only these, when there are any
	Status int
	Code   string
	// CodeOn are codes of single routes that differ.
	CodeOn map[string]string `yaml:"code_on"`
	// Warning must stand in a preview.
	Warning string

	// A body, or the bytes on a connection: as text, as base64, or made.
	Body   *string
	Base64 *string
	Repeat *struct {
		Prefix, Text, Suffix string
		Times                int
	}
	Chunked bool
	// HalfClose ends the sending side behind the bytes.
	HalfClose bool `yaml:"half_close"`
	// StatusAny: the HTTP layer may answer otherwise.
	StatusAny bool `yaml:"status_any"`

	Member  string // of args, as JSON
	Values  []string
	BodyKey *string `yaml:"body_key"`
	Headers map[string][]string
	Query   string
	Value   string // in the path
	Of      string // tool, operation or approval
}

func inputs(t testing.TB, kind string) []input {
	t.Helper()
	files, err := filepath.Glob("testdata/inputs/*.yaml")
	require.NoError(t, err)
	var found []input
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		var in input
		require.NoError(t, yaml.UnmarshalWithOptions(text, &in, yaml.Strict()), f)
		require.Contains(t, []string{"body", "args", "key", "header", "query", "path", "raw"}, in.Kind, f)
		in.name = strings.TrimSuffix(filepath.Base(f), ".yaml")
		if in.Kind == kind {
			found = append(found, in)
		}
	}
	require.NotEmpty(t, found)
	return found
}

func (in input) text(t testing.TB) string {
	switch {
	case in.Body != nil:
		return *in.Body
	case in.Base64 != nil:
		raw, err := base64.StdEncoding.DecodeString(*in.Base64)
		require.NoError(t, err)
		return string(raw)
	default:
		return in.Repeat.Prefix + strings.Repeat(in.Repeat.Text, in.Repeat.Times) + in.Repeat.Suffix
	}
}

// on reports whether the case runs on a route.
func (in input) on(route string) bool {
	return len(in.Routes) == 0 || slices.Contains(in.Routes, route)
}

func (in input) codeOn(route string) string {
	if code, ok := in.CodeOn[route]; ok {
		return code
	}
	return in.Code
}

// door is one route as its callers use it: whose it is, where, and a body that
// it would take.
type door struct {
	operation, method, path string
	body                    string
	person                  bool
}

const (
	noOperation = "op_00000000000000000000000000"
	noApproval  = "apr_00000000000000000000000000"
	someDigest  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// noBody is the body of a route that has nothing to be told, and may be left out.
const noBody = "{}"

// doors are all routes under /v1.
var doors = []door{
	{operation: "listTools", method: "GET", path: "/v1/tools"},
	{operation: "getTool", method: "GET", path: "/v1/tools/hold_order"},
	{operation: "callTool", method: "POST", path: "/v1/tools/get_order/call", body: `{"args":{"order_id":"ord_1001"}}`},
	{operation: "previewTool", method: "POST", path: "/v1/tools/hold_order/preview", body: `{"args":{"order_id":"ord_1001"}}`},
	{operation: "commitTool", method: "POST", path: "/v1/tools/hold_order/commit", body: `{"commit_token":"a.b.c"}`},
	{operation: "listOperations", method: "GET", path: "/v1/operations"},
	{operation: "exportOperations", method: "GET", path: "/v1/operations/export", person: true},
	{operation: "getOperation", method: "GET", path: "/v1/operations/" + noOperation},
	{operation: "cancelOperation", method: "POST", path: "/v1/operations/" + noOperation + "/cancel", body: `{"reason":"r"}`},
	{operation: "resolveOperation", method: "POST", path: "/v1/operations/" + noOperation + "/resolve", body: `{"outcome":"happened","effect_id":"e","reason":"r"}`, person: true},
	{operation: "previewUndo", method: "POST", path: "/v1/operations/" + noOperation + "/undo/preview", body: noBody},
	{operation: "commitUndo", method: "POST", path: "/v1/operations/" + noOperation + "/undo/commit", body: `{"commit_token":"a.b.c"}`},
	{operation: "askOperation", method: "POST", path: "/v1/operations/" + noOperation + "/ask", body: noBody, person: true},
	{operation: "listOperationEvents", method: "GET", path: "/v1/operations/" + noOperation + "/events"},
	{operation: "listOperationEvidence", method: "GET", path: "/v1/operations/" + noOperation + "/evidence", person: true},
	{operation: "getReceipt", method: "GET", path: "/v1/operations/" + noOperation + "/receipt"},
	{operation: "getForensics", method: "GET", path: "/v1/operations/" + noOperation + "/forensics", person: true},
	{operation: "listRuns", method: "GET", path: "/v1/runs"},
	{operation: "getRun", method: "GET", path: "/v1/runs/run_none"},
	{operation: "previewRunUndo", method: "POST", path: "/v1/runs/run_none/undo/preview", body: noBody},
	{operation: "commitRunUndo", method: "POST", path: "/v1/runs/run_none/undo/commit", body: `{"commit_token":"a.b.c"}`},
	{operation: "listApprovals", method: "GET", path: "/v1/approvals", person: true},
	{operation: "getApproval", method: "GET", path: "/v1/approvals/" + noApproval, person: true},
	{operation: "decideApproval", method: "POST", path: "/v1/approvals/" + noApproval + "/decision", body: `{"decision":"approve","shown_digest":"` + someDigest + `"}`, person: true},
	{operation: "listFreezes", method: "GET", path: "/v1/freezes", person: true},
	{operation: "freeze", method: "POST", path: "/v1/freezes", body: `{"reason":"r","level":"none","scope":{"tenant":true}}`, person: true},
	{operation: "liftFreeze", method: "POST", path: "/v1/freezes/lift", body: `{"reason":"r","scope":{"tenant":true}}`, person: true},
	{operation: "listFreezeHistory", method: "GET", path: "/v1/freezes/history", person: true},
	{operation: "reopenApproval", method: "POST", path: "/v1/approvals/" + noApproval + "/reopen", body: `{"reason":"r"}`, person: true},
}

func (d door) call() call { return call{method: d.method, path: d.path, body: d.body} }

// through makes the door's call with the credential that it takes.
func (r *rig) through(d door) call {
	c := d.call()
	if d.person {
		return c.as(r.ann)
	}
	c.key = r.clerk
	return c
}

// The doors are the contract's routes, all of them.
func TestDoors(t *testing.T) {
	known := map[string]string{}
	for path, item := range contractDoc().Paths.Map() {
		for method, op := range item.Operations() {
			if strings.HasPrefix(path, "/v1/") {
				known[op.OperationID] = method
			}
		}
	}
	mine := map[string]string{}
	for _, d := range doors {
		mine[d.operation] = d.method
	}
	require.Equal(t, known, mine)
}

// state is what no bad input may change.
type state struct {
	operations, requests, effects int
}

func (r *rig) state() state {
	page, err := r.ledger.List(context.Background(), ledger.Filter{Tenant: tenant, Limit: 200})
	require.NoError(r.t, err)
	return state{len(page.Operations), r.shop.RequestCount(), r.shop.EffectCount()}
}

// unchanged runs one case and wants everything to be as before and the server
// well.
func (r *rig) unchanged(t testing.TB, run func()) {
	t.Helper()
	before := r.state()
	run()
	require.Equal(t, before, r.state(), "something changed")
	res, err := http.Get(r.server.URL + "/healthz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
}

// under runs f as a subtest on the same rig.
func (r *rig) under(t *testing.T, name string, f func(r *rig)) {
	t.Run(name, func(t *testing.T) {
		sub := *r //nolint // the rig's services are shared; only the test differs
		sub.t = t
		f(&sub)
	})
}

func TestInputs_Body(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "body") {
		for _, d := range doors {
			if d.body == "" || !in.on(d.operation) || d.body == noBody && needsMember(in.text(t)) {
				continue
			}
			r.under(t, in.name+"/"+d.operation, func(r *rig) {
				r.unchanged(r.t, func() {
					c := r.through(d)
					c.body, c.chunked = filled(in.text(r.t), d.body), in.Chunked
					r.want(c, in.Status, in.codeOn(d.operation))
				})
			})
		}
	}
}

// needsMember reports that a case speaks of a member of the body, or is no body
// at all, which a route without members has no use for.
func needsMember(text string) bool {
	return text == "" || strings.Contains(text, "$first") || strings.Contains(text, "$FIRST") || strings.Contains(text, "$name")
}

// filled puts the door's own body, or parts of it, into a case's text.
func filled(text, valid string) string {
	if valid == noBody {
		return strings.ReplaceAll(text, "$valid", valid)
	}
	first := strings.TrimPrefix(valid[:len(valid)-1], "{")
	if i := strings.Index(first, `,"`); i > 0 {
		first = first[:i]
	}
	name, _, _ := strings.Cut(first[1:], `"`)
	return strings.NewReplacer(
		"$valid", valid,
		"$firstEscaped", fmt.Sprintf(`"\u%04x%s`, name[0], first[2:]),
		"$FIRST", strings.Replace(first, name, strings.ToUpper(name), 1),
		"$first", first,
		"$name", name,
	).Replace(text)
}

func TestInputs_Args(t *testing.T) {
	r := newRig(t)
	pad := strings.Repeat(`\n`, 5000) + "the point"
	for _, in := range inputs(t, "args") {
		member := strings.ReplaceAll(in.Member, "$pad", pad)
		r.under(t, in.name, func(r *rig) {
			r.unchanged(r.t, func() {
				if len(in.Routes) > 0 {
					r.want(post("/v1/tools/look_up/call", r.clerk, `{"args":{"order_id":"ord_1001",`+member+`}}`), in.Status, in.Code)
					return
				}
				a := r.want(post("/v1/tools/send_notice/preview", r.clerk, `{"args":{"case":"c-1","subject":"s",`+member+`}}`), in.Status, in.Code)
				if in.Status != 200 {
					// Pointers lead into the body that was sent.
					for _, p := range a.doc["pointers"].([]any) {
						require.True(r.t, strings.HasPrefix(p.(map[string]any)["pointer"].(string), "/args"), a.text)
					}
					return
				}
				requireWarning(r.t, a, in.Warning)
				// What came in is what is shown, letter for letter.
				var sent map[string]any
				d := json.NewDecoder(strings.NewReader("{" + member + "}"))
				d.UseNumber()
				require.NoError(r.t, d.Decode(&sent))
				for name, v := range sent {
					require.Equal(r.t, v, a.at("args", name))
				}
			})
		})
	}
}

func requireWarning(t testing.TB, a answer, code string) {
	t.Helper()
	var codes []string
	for _, w := range a.doc["warnings"].([]any) {
		codes = append(codes, w.(map[string]any)["code"].(string))
	}
	if code == "" {
		require.Empty(t, codes)
		return
	}
	require.Contains(t, codes, code)
}

func TestInputs_Key(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "key") {
		r.under(t, in.name, func(r *rig) {
			r.unchanged(r.t, func() {
				body := `{"args":{"order_id":"ord_1001"}}`
				if in.BodyKey != nil {
					body = `{"args":{"order_id":"ord_1001"},"idempotency_key":` + *in.BodyKey + `}`
				}
				c := post("/v1/tools/caller_hold/preview", r.clerk, body)
				if len(in.Values) > 0 {
					c = c.with("Idempotency-Key", in.Values...)
				}
				r.want(c, in.Status, in.Code)
			})
		})
	}
}

func TestInputs_Header(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "header") {
		for _, d := range doors {
			// Only what carries a body, or a credential, has these headers to get wrong.
			if d.body == "" && !strings.HasPrefix(in.name, "host") && !strings.HasPrefix(in.name, "authorization") || !in.on(d.operation) {
				continue
			}
			r.under(t, in.name+"/"+d.operation, func(r *rig) {
				r.unchanged(r.t, func() {
					c := r.through(d)
					for name, values := range in.Headers {
						for i, v := range values {
							values[i] = strings.NewReplacer(
								"$credential", "Bearer "+r.clerk, "$cut", "Bearer "+r.clerk[:len(r.clerk)-1],
								"$capitals", "Bearer "+strings.ToUpper(r.clerk), "$spaced", "Bearer  "+r.clerk,
							).Replace(v)
						}
						if name == "Authorization" {
							c.key = ""
						}
						c = c.with(name, values...)
					}
					r.want(c, in.Status, in.codeOn(d.operation))
				})
			})
		}
	}
}

func TestInputs_Query(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "query") {
		for _, d := range doors {
			if !in.on(d.operation) {
				continue
			}
			r.under(t, in.name+"/"+d.operation, func(r *rig) {
				r.unchanged(r.t, func() {
					c := r.through(d)
					c.path += "?" + in.Query
					r.want(c, in.Status, in.Code)
				})
			})
		}
	}
}

func TestInputs_Path(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "path") {
		for _, d := range doors {
			if !in.on(d.operation) {
				continue
			}
			r.under(t, in.name+"/"+d.operation, func(r *rig) {
				r.unchanged(r.t, func() {
					c := r.through(d)
					parts := strings.Split(c.path, "/")
					parts[3] = in.Value
					c.path = strings.Join(parts, "/")
					r.want(c, in.Status, in.Code)
				})
			})
		}
	}
}

// TestInputs_Raw writes bytes on a connection as no HTTP library would. What the
// HTTP layer refuses itself is answered in plain text; either way nothing of a
// second request inside the first is answered.
func TestInputs_Raw(t *testing.T) {
	r := newRig(t)
	for _, in := range inputs(t, "raw") {
		r.under(t, in.name, func(r *rig) {
			r.unchanged(r.t, func() {
				conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
				require.NoError(r.t, err)
				defer conn.Close()
				_, err = io.WriteString(conn, strings.ReplaceAll(in.text(r.t), "$key", r.clerk))
				require.NoError(r.t, err)
				if in.HalfClose {
					require.NoError(r.t, conn.(*net.TCPConn).CloseWrite())
				}
				from := bufio.NewReader(conn)
				res, err := http.ReadResponse(from, nil)
				if err != nil {
					return // a clean close says no as well
				}
				if in.Code != "" {
					req, err := http.NewRequest(http.MethodPost, r.server.URL+"/v1/tools/hold_order/preview", nil)
					require.NoError(r.t, err)
					if !strings.HasPrefix(in.text(r.t), "POST") {
						line, _, _ := strings.Cut(in.text(r.t), "\r\n")
						req.Method, req.URL.Path = strings.Fields(line)[0], strings.Fields(line)[1]
					}
					a := r.received(req, res)
					require.Equal(r.t, in.Status, a.StatusCode, a.text)
					require.Equal(r.t, in.Code, a.doc["code"], a.text)
				} else {
					rest, err := io.ReadAll(res.Body)
					require.NoError(r.t, err)
					if !in.StatusAny {
						require.Equal(r.t, in.Status, res.StatusCode, string(rest))
					}
				}
				if !strings.Contains(in.name, "smuggle") {
					return
				}
				// The connection ends; nothing answers what was hidden inside.
				rest, err := io.ReadAll(from)
				require.NoError(r.t, err)
				require.NotContains(r.t, string(rest), "HTTP/1.1")
				require.False(r.t, bytes.Contains(rest, []byte("smuggled")))
			})
		})
	}
}
