package pocketbase_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"countersign/tools"
	"countersign/tools/tooltest"
)

// The contract suite that every connector and every manifest is run against, for
// each of the three writes.
func TestContract(t *testing.T) {
	suites := map[string]func(s *server) tooltest.Suite{
		"create_customer": func(s *server) tooltest.Suite {
			return tooltest.Suite{
				Args: func(n int) map[string]any {
					return map[string]any{
						"reference": fmt.Sprintf("C-%d", 1000+n), "name": "Bo \U0001F69A {{.Secret}} ${7*7} \"%s\" <b>", "email": "bo@example.com",
						"plan": "free", "seats": json.Number("2"),
					}
				},
				Spoil:  func(args map[string]any) { s.add(args["reference"].(string), "Eve", "free", 1) },
				Change: func(args map[string]any) { s.add(args["reference"].(string), "Eve", "free", 1) },
			}
		},
		"change_customer": func(s *server) tooltest.Suite {
			return tooltest.Suite{
				Before: s.numbered,
				Args: func(n int) map[string]any {
					return map[string]any{"case": fmt.Sprintf("c%d", n), "id": numberedID(n), "seats": json.Number("7")}
				},
				Spoil:  func(args map[string]any) { s.remove(args["id"].(string)) },
				Change: func(args map[string]any) { s.change(args["id"].(string), map[string]any{"name": "Eve"}) },
			}
		},
		"delete_customer": func(s *server) tooltest.Suite {
			return tooltest.Suite{
				Before: s.numbered,
				Args:   func(n int) map[string]any { return map[string]any{"id": numberedID(n)} },
				Spoil:  func(args map[string]any) { s.remove(args["id"].(string)) },
				Change: func(args map[string]any) { s.change(args["id"].(string), map[string]any{"name": "Eve"}) },
			}
		},
	}
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := suite(b.server)
			c.Line, c.Tool, c.Success = b.line, b.tools[name], http.StatusOK
			c.Tools = func(name string) (*tools.Tool, bool) { tool, ok := b.tools[name]; return tool, ok }
			if name != "create_customer" {
				c.Previews = 200 // a thousand of one tool are enough
			}
			// Each effect leaves one row with its key in the same transaction.
			c.Effects = func() int { return b.server.count("gateway_requests") }
			c.Requests = func() int { return int(b.gate.writes.Load()) }
			tooltest.Run(t, c)
		})
	}
}

// numbered adds the customer of the n-th intent by hand.
func (s *server) numbered(n int) {
	s.t.Helper()
	s.call("POST", customersPath, map[string]any{
		"id": numberedID(n), "reference": fmt.Sprintf("C-%d", 1000+n), "name": "Bo", "email": "bo@example.com", "plan": "free", "seats": 2,
	}, http.StatusOK)
}

func numberedID(n int) string { return fmt.Sprintf("customer%07d", n) }

// count is how many records a collection has.
func (s *server) count(collection string) int {
	s.t.Helper()
	return int(s.call("GET", "/api/collections/"+collection+"/records?perPage=1&fields=id", nil, http.StatusOK)["totalItems"].(float64))
}
