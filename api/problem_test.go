package api_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/api"
	"countersign/fault"
)

// codes reads the codes where they are defined.
func codes(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("../fault/codes.go")
	require.NoError(t, err)
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^\t\w+\s+Code = "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return found
}

// The codes are the same in the package that defines them, in the contract, and
// in the table that gives each its status.
func TestProblem_Codes(t *testing.T) {
	require.NotEmpty(t, codes(t))
	require.Equal(t, codes(t), declaredCodes())
	var table []string
	for code := range api.ProblemRows() {
		table = append(table, string(code))
	}
	slices.Sort(table)
	require.Equal(t, codes(t), table)
}

// The examples in the contract say what the table says. A variant of an example
// has the code's name with something behind it.
func TestProblem_Examples(t *testing.T) {
	rows := api.ProblemRows()
	covered := map[string]bool{}
	for name, doc := range exampleProblems(t) {
		code := doc["code"].(string)
		require.True(t, strings.HasPrefix(name, code), name)
		covered[code] = true
		row := rows[fault.Code(code)]
		require.Equal(t, "urn:countersign:problem:"+code, doc["type"], name)
		require.Equal(t, row.Title, doc["title"], name)
		next := doc["next"].(map[string]any)
		switch name {
		case "too_long_malformed":
			require.EqualValues(t, 400, doc["status"], name)
		case "outcome_unclear_commit":
			require.Equal(t, "repeat_commit", next["action"], name)
		case "tool_access", "tool_access_write", "idempotency_key_reused": // of one tool; see TestAdvice
			require.EqualValues(t, row.Status, doc["status"], name)
		case "invalid_state": // the operation's own next
			require.Equal(t, doc["operation"].(map[string]any)["next"], next)
		default:
			require.EqualValues(t, row.Status, doc["status"], name)
			require.Equal(t, row.Action, next["action"], name)
			require.Equal(t, row.Text, next["text"], name)
			if row.After > 0 {
				require.EqualValues(t, row.After, next["after_seconds"], name)
			}
		}
		var pointers []any
		for _, p := range asList(doc["pointers"]) {
			pointers = append(pointers, p.(map[string]any)["pointer"])
		}
		require.Equal(t, pointers, asList(next["pointers"]), name)
	}
	// Methods have no place of their own in the contract.
	covered["method_not_allowed"] = true
	require.Equal(t, codes(t), slices.Sorted(maps.Keys(covered)))
}

func asList(v any) []any { list, _ := v.([]any); return list }

// Every text is a whole sentence that a person, or a model, can act on.
func TestProblem_Texts(t *testing.T) {
	for code, row := range api.ProblemRows() {
		require.NotEmpty(t, row.Title, code)
		require.False(t, strings.HasSuffix(row.Title, "."), "%s: a title is no sentence", code)
		require.True(t, strings.HasSuffix(row.Text, "."), "%s: %s", code, row.Text)
		require.Equal(t, row.Status >= 500 || row.Status == 408 || row.Status == 429, row.Action == "repeat", code)
		if row.Action == "repeat" {
			require.Positive(t, row.After, code)
		}
	}
}

// The page and the API share a host; each path is served by one of them.
func TestServes(t *testing.T) {
	for path := range contractDoc().Paths.Map() {
		require.True(t, api.Serves(path), path)
	}
	for _, path := range []string{"/", "/approvals", "/operations/op_1", "/static/x.js", "/documents", "/v1x", "/sign-in", "/openapi.yaml/x"} {
		require.False(t, api.Serves(path), path)
	}
}

func TestNew_Refuses(t *testing.T) {
	r := newRig(t)
	good := r.config
	for name, change := range map[string]func(*api.Config){
		"no ledger":    func(c *api.Config) { c.Ledger = nil },
		"no sessions":  func(c *api.Config) { c.Sessions = nil },
		"no script":    func(c *api.Config) { c.ReferenceScript = "" },
		"no url":       func(c *api.Config) { c.PublicURL = "" },
		"url path":     func(c *api.Config) { c.PublicURL = "https://gate.example/x" },
		"url scheme":   func(c *api.Config) { c.PublicURL = "ftp://gate.example" },
		"url garbage":  func(c *api.Config) { c.PublicURL = "::" },
		"url opaque":   func(c *api.Config) { c.PublicURL = "https:gate" },
		"negative":     func(c *api.Config) { c.Burst = -1 },
		"slow forever": func(c *api.Config) { c.RatePerMinute = -1 },
	} {
		c := good
		change(&c)
		_, err := api.New(c)
		require.Error(t, err, name)
	}
	_, err := api.New(good)
	require.NoError(t, err)
	require.NotEmpty(t, fmt.Sprint(good.PublicURL))
}
