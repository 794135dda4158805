package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

// call is one request of a test.
type call struct {
	method, path string
	key          string       // an agent's key
	session      *http.Cookie // or a person's session
	body         string
	chunked      bool // sent without saying how long it is
	header       http.Header
}

// answer is what came back, with its body parsed where it is JSON.
type answer struct {
	*http.Response
	text string
	doc  map[string]any
}

func get(path, key string) call { return call{method: http.MethodGet, path: path, key: key} }

func post(path, key, body string) call {
	return call{method: http.MethodPost, path: path, key: key, body: body}
}

// as makes it a person's call.
func (c call) as(session *http.Cookie) call {
	c.key, c.session = "", session
	return c
}

func (c call) with(name string, values ...string) call {
	c.header = c.header.Clone()
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header[http.CanonicalHeaderKey(name)] = values
	return c
}

// do sends a call and holds its answer to the contract.
func (r *rig) do(c call) answer {
	r.t.Helper()
	req, err := http.NewRequest(c.method, r.server.URL+c.path, strings.NewReader(c.body))
	require.NoError(r.t, err)
	switch {
	case c.body == "":
		req.Body, req.ContentLength = http.NoBody, 0
	case c.chunked:
		req.ContentLength = -1
	}
	if c.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.session != nil {
		req.AddCookie(c.session)
	}
	for name, values := range c.header {
		if name == "Host" {
			req.Host = values[0]
			continue
		}
		req.Header[name] = values
		if len(values) == 0 {
			req.Header.Del(name)
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	return r.received(req, res)
}

// received reads an answer, validates it and notes it.
func (r *rig) received(req *http.Request, res *http.Response) answer {
	r.t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	a := answer{Response: res, text: string(text)}
	if len(text) > 0 && strings.Contains(res.Header.Get("Content-Type"), "json") {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		require.NoError(r.t, d.Decode(&a.doc), a.text)
	}
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		require.Equal(r.t, want, res.Header.Get(name), name)
	}
	require.NotEmpty(r.t, res.Header.Get("Content-Security-Policy"))
	require.NotEmpty(r.t, res.Header.Get("Cache-Control"))
	validate(r.t, req, a)
	return a
}

// want is do with a status and a code; code is empty for what is no problem.
func (r *rig) want(c call, status int, code string) answer {
	r.t.Helper()
	a := r.do(c)
	got, _ := a.doc["code"].(string)
	require.Equal(r.t, fmt.Sprintf("%d %s", status, code), fmt.Sprintf("%d %s", a.StatusCode, got), "%s %s\n%s\n%s", c.method, c.path, cut(c.body), a.text)
	return a
}

func cut(s string) string {
	if len(s) > 400 {
		return s[:400] + "…"
	}
	return s
}

// at follows names into a document.
func (a answer) at(names ...string) any {
	var v any = a.doc
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	return v
}

func (a answer) str(names ...string) string { s, _ := a.at(names...).(string); return s }

// The contract as a router, and what was seen of it in this run.
var (
	contractRouter = sync.OnceValue(func() routers.Router {
		router, err := gorillamux.NewRouter(contractDoc())
		if err != nil {
			panic(err)
		}
		for _, kind := range []string{"text/html", "text/javascript", "text/css", "text/csv", "application/jsonl", "application/yaml"} {
			openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
		}
		openapi3filter.RegisterBodyDecoder("application/jwk-set+json", openapi3filter.JSONBodyDecoder)
		openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
		return router
	})
	seenLock sync.Mutex
	seen     = map[string]bool{}
)

// beside are the answers of addresses and methods that the contract does not
// have.
var beside = []string{"404 not_found", "404 tool_not_found", "404 operation_not_found", "404 run_not_found", "404 approval_not_found", "405 method_not_allowed", "421 host_not_allowed"}

// validate holds an answer to the contract.
func validate(t testing.TB, req *http.Request, a answer) {
	t.Helper()
	code, _ := a.doc["code"].(string)
	said := fmt.Sprintf("%d %s", a.StatusCode, code)
	// The router knows the contract's server only; that is every host here.
	asked := req.Clone(context.Background())
	if asked.Method == http.MethodHead {
		return
	}
	asked.Host = asked.URL.Host
	route, params, err := contractRouter().FindRoute(asked)
	if err != nil {
		require.Contains(t, beside, said, "%s %s", req.Method, req.URL)
		require.NoError(t, problemSchema().VisitJSON(plain(t, a.text)), a.text)
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route},
		Status:                 a.StatusCode, Header: a.Header, Body: io.NopCloser(strings.NewReader(a.text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	require.NoError(t, err, "%s %s: %s", req.Method, req.URL, a.text)
	if a.StatusCode >= 400 {
		require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
		require.Equal(t, json.Number(fmt.Sprint(a.StatusCode)), a.at("status"))
		require.Equal(t, a.Header.Get("Request-Id"), a.str("request_id"))
		require.Equal(t, "urn:countersign:problem:"+code, a.str("type"))
	}
	seenLock.Lock()
	defer seenLock.Unlock()
	seen[route.Operation.OperationID+" "+strings.TrimSpace(said)] = true
}

func problemSchema() *openapi3.Schema { return contractDoc().Components.Schemas["Problem"].Value }

func plain(t testing.TB, text string) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// declared is every (operation, status, code) of the contract: an operation's
// problem examples are named by their code.
func declared() []string {
	var all []string
	for _, item := range contractDoc().Paths.Map() {
		for _, op := range item.Operations() {
			for status, answer := range op.Responses.Map() {
				problem := answer.Value.Content["application/problem+json"]
				if problem == nil {
					all = append(all, op.OperationID+" "+status)
					continue
				}
				for code := range problem.Examples {
					all = append(all, op.OperationID+" "+status+" "+code)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// isDeclared reports whether the contract knows an answer.
func isDeclared(operation string, status int, code string) bool {
	return slices.Contains(declaredOnce(), fmt.Sprintf("%s %d%s", operation, status, code))
}

var declaredOnce = sync.OnceValue(declared)

// TestMain runs everything and then compares what the contract declares with
// what was seen. A part of the tests can't be judged like that.
func TestMain(m *testing.M) {
	status := m.Run()
	if status == 0 && wholeRun() {
		if err := compareSeen(); err != nil {
			fmt.Println(err)
			status = 1
		}
	}
	os.Exit(status)
}

// compareSeen tells what was declared and never seen, and the reverse.
func compareSeen() error {
	all := declared()
	var errs []error
	for _, d := range all {
		if !seen[d] {
			errs = append(errs, fmt.Errorf("declared in openapi.yaml and never seen: %s", d))
		}
	}
	for s := range seen {
		if !slices.Contains(all, s) {
			errs = append(errs, fmt.Errorf("seen and not declared in openapi.yaml: %s", s))
		}
	}
	return errors.Join(errs...)
}

// wholeRun reports that no test was left out, and that this is no fuzzing.
func wholeRun() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}
