package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"countersign"
)

// contractDoc is the contract, parsed by a reader that is not the server's own.
var contractDoc = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(countersign.OpenAPI)
	if err != nil {
		panic(err)
	}
	return doc
})

func TestContract_Valid(t *testing.T) {
	require.NoError(t, contractDoc().Validate(context.Background(), openapi3.EnableExamplesValidation()))
}

// Each operation has a summary, a description and examples of its body and of
// every answer.
func TestContract_Examples(t *testing.T) {
	for path, item := range contractDoc().Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			require.NotEmpty(t, op.Summary, at)
			require.NotEmpty(t, op.Description, at)
			if op.RequestBody != nil {
				require.NotEmpty(t, op.RequestBody.Value.Content.Get("application/json").Examples, at)
			}
			for status, answer := range op.Responses.Map() {
				require.Contains(t, answer.Value.Headers, "Request-Id", "%s %s", at, status)
				require.NotEmpty(t, answer.Value.Content, "%s %s", at, status)
				for kind, content := range answer.Value.Content {
					require.NotEmpty(t, content.Examples, "%s %s %s", at, status, kind)
				}
			}
		}
	}
}

// exampleProblems are the problem documents in the contract, by their name.
func exampleProblems(t *testing.T) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for name, example := range contractDoc().Components.Examples {
		text, err := json.Marshal(example.Value.Value)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(text, &doc))
		if _, ok := doc["code"].(string); ok && doc["title"] != nil {
			found[name] = doc
		}
	}
	return found
}

func declaredCodes() []string {
	var codes []string
	for _, v := range contractDoc().Components.Schemas["ProblemCode"].Value.Enum {
		codes = append(codes, v.(string))
	}
	slices.Sort(codes)
	return codes
}
