package pocketbase_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

func TestManifests_AreTheFiveTools(t *testing.T) {
	loaded, err := tools.Load("tools")
	require.NoError(t, err)
	undo := map[string]string{}
	for _, l := range loaded {
		spec := l.Manifest.Spec
		undo[spec.Name] = spec.UndoTool
		require.Equal(t, "tools/"+spec.Name+".yaml", l.File)
		require.Empty(t, spec.Warnings, spec.Name)
		if spec.Access == tools.Write {
			require.True(t, spec.Reversible, spec.Name)
			require.Equal(t, tools.Strong, spec.Consistency, spec.Name)
		}
	}
	require.Equal(t, map[string]string{
		"get_customer": "", "list_customers": "",
		"create_customer": "delete_customer", "change_customer": "change_customer", "delete_customer": "create_customer",
	}, undo)
}

func TestRead_ByFilter(t *testing.T) {
	b := newBench(t)
	b.server.add("C-1", "Ada", "team", 3)
	b.server.add("C-2", "Bo", "free", 1)
	b.server.add("C-3", "Cyn", "team", 9)
	read := func(tool, args string) (names []any) {
		answer, err := b.tools[tool].Read(context.Background(), b.call(tool, given(t, args), ""))
		require.NoError(t, err)
		for _, item := range answer.([]any) {
			names = append(names, item.(map[string]any)["name"])
		}
		return names
	}
	require.Equal(t, []any{"Bo"}, read("get_customer", `{"reference":"C-2"}`))
	require.Empty(t, read("get_customer", `{"reference":"C-20"}`))
	require.ElementsMatch(t, []any{"Ada", "Cyn"}, read("list_customers", `{"plan":"team"}`))
	require.Len(t, read("list_customers", `{"plan":"team","limit":1}`), 1)
}

func TestPreview_ShowsBeforeAndAfter(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "team", 3)["id"].(string)
	number := func(n int) json.Number { return json.Number(fmt.Sprint(n)) }
	for _, c := range []struct {
		tool, args, headline string
		effect               tools.Effect
	}{
		{
			"create_customer", `{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"free","seats":1}`,
			"Create customer C-2, Bo, with 1 seats on plan free",
			tools.Effect{
				Verb: "create", Target: "customer/C-2", Summary: "Create customer/C-2", Count: 1,
				After: map[string]any{"reference": "C-2", "name": "Bo", "email": "bo@example.com", "plan": "free", "seats": number(1)},
			},
		},
		{
			"change_customer", `{"case":"4711","id":"` + ada + `","seats":5,"plan":"business"}`,
			"Change customer C-1, Ada",
			tools.Effect{
				Verb: "change", Target: "customer/C-1", Summary: "Change customer/C-1", Count: 1,
				Before: map[string]any{"name": "Ada", "email": "ada@example.com", "plan": "team", "seats": number(3)},
				After:  map[string]any{"name": "Ada", "email": "ada@example.com", "plan": "business", "seats": number(5)},
			},
		},
		{
			"delete_customer", `{"id":"` + ada + `"}`,
			"Delete customer C-1, Ada",
			tools.Effect{
				Verb: "delete", Target: "customer/C-1", Summary: "Delete customer/C-1", Count: 1,
				Before: map[string]any{"reference": "C-1", "name": "Ada", "email": "ada@example.com", "plan": "team", "seats": number(3)},
			},
		},
	} {
		plan := b.plan(c.tool, c.args)
		require.Equal(t, c.headline, plan.Headline)
		if diff := cmp.Diff([]tools.Effect{c.effect}, plan.Effects); diff != "" {
			t.Errorf("%s: %s", c.tool, diff)
		}
		require.NotEmpty(t, plan.UndoText)
		require.True(t, plan.Reversible)
		require.Equal(t, "POST "+b.line.URL+"/api/batch", plan.Target)
		require.NotContains(t, string(plan.Wire), "Bearer")
	}
}

func TestPreview_Refuses(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "team", 3)["id"].(string)
	for _, c := range []struct{ tool, args, because string }{
		{"create_customer", `{"reference":"C-1","name":"Bo","email":"bo@example.com","plan":"free","seats":1}`, "There is a customer with this reference already."},
		{"change_customer", `{"case":"1","id":"nobodyhasthisid","seats":5}`, "There is no customer with this id."},
		{"change_customer", `{"case":"1","id":"` + ada + `","seats":3,"name":"Ada"}`, "The customer has these values already."},
		{"change_customer", `{"case":"1","id":"` + ada + `"}`, "The customer has these values already."},
		{"change_customer", `{"case":"1","id":"` + ada + `","seats":5,"only_updated":"2020-01-01 00:00:00.000Z"}`, "The customer was changed since."},
		{"delete_customer", `{"id":"nobodyhasthisid"}`, "There is no customer with this id."},
		{"delete_customer", `{"id":"` + ada + `","only_updated":"2020-01-01 00:00:00.000Z"}`, "The customer was changed since."},
	} {
		_, err := b.tools[c.tool].Preview(context.Background(), b.call(c.tool, given(t, c.args), ""))
		var refused *fault.Error
		require.True(t, errors.As(err, &refused), "%s %s: %v", c.tool, c.args, err)
		require.Equal(t, fault.ToolRefused, refused.Code)
		require.Equal(t, c.because, refused.Detail)
	}
	require.Empty(t, b.sent())
}

// What could break out of a filter or of a path never gets there.
func TestPreview_HostileValues(t *testing.T) {
	loaded, err := tools.Load("tools")
	require.NoError(t, err)
	check := map[string]func(map[string]any) error{}
	for _, l := range loaded {
		tool, err := tools.Compile(l.Manifest, tools.CompileEnv{
			UpstreamURL:  "http://pocketbase.invalid",
			NewConnector: func(*tools.Manifest) (tools.Connector, error) { return nil, nil },
		})
		require.NoError(t, err)
		check[tool.Name] = func(args map[string]any) error { _, _, err := tool.CheckArgs(args); return err }
	}
	for _, c := range []struct{ tool, args, pointer string }{
		{"get_customer", `{"reference":"C-1\" || id != \""}`, "/reference"},
		{"get_customer", `{"reference":"C-1' || '1'='1"}`, "/reference"},
		{"list_customers", `{"plan":"free\") || (\"a\"=\"a"}`, "/plan"},
		{"create_customer", `{"reference":"C-1\n","name":"Bo","email":"bo@example.com","plan":"free","seats":1}`, "/reference"},
		{"create_customer", `{"reference":"C-1","name":"Bo","email":"bo@example.com","plan":"free","seats":1,"id":"../_superusers/x"}`, "/id"},
		{"change_customer", `{"case":"1","id":"abc/../../../x1","seats":5}`, "/id"},
		{"change_customer", `{"case":"1","id":"ABCDEFGHIJKLMNO","seats":5}`, "/id"},
		{"delete_customer", `{"id":"abcdefghijklmn?"}`, "/id"},
	} {
		var refused *fault.Error
		require.True(t, errors.As(check[c.tool](given(t, c.args)), &refused), "%s %s", c.tool, c.args)
		require.Equal(t, c.pointer, refused.Pointers[0].Pointer, "%s %s", c.tool, c.args)
	}
}

// Previews, guards, lookups and reads change nothing: neither a record, nor does
// PocketBase's own log know of any request but GET.
func TestPreview_ChangesNothing(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "team", 3)["id"].(string)
	before := [][]map[string]any{b.server.customers(), b.server.requests()}
	for i := range 20 {
		for tool, args := range map[string]string{
			"create_customer": fmt.Sprintf(`{"reference":"C-%d","name":"Bo","email":"bo@example.com","plan":"free","seats":1}`, 100+i),
			"change_customer": fmt.Sprintf(`{"case":"%d","id":"%s","seats":5}`, i, ada),
			"delete_customer": fmt.Sprintf(`{"id":"%s"}`, ada),
		} {
			plan := b.plan(tool, args)
			require.Empty(t, b.guard(plan).Drift)
			require.Equal(t, tools.Absent, b.lookup(plan).Kind)
		}
	}
	require.Equal(t, before, [][]map[string]any{b.server.customers(), b.server.requests()})
	require.Empty(t, b.sent())
	require.Equal(t, []string{"POST " + customersPath}, b.server.writesInLog(), "only what was added by hand")
}

// writesInLog are the requests on the example's collections that may change
// something, as PocketBase itself logged them. It writes its log some seconds
// later, so the last request before is waited for.
func (s *server) writesInLog() []string {
	s.t.Helper()
	s.call("GET", customersPath+"?last=1", nil, 200)
	log := func(filter string) []any {
		query := url.Values{"perPage": {"500"}, "filter": {filter}}
		return s.call("GET", "/api/logs?"+query.Encode(), nil, 200)["items"].([]any)
	}
	require.Eventually(s.t, func() bool { return len(log(`data.url ~ "?last=1"`)) > 0 }, time.Minute, 100*time.Millisecond)
	writes := []string{}
	for _, item := range log(`data.type = "request" && data.method != "GET" && (data.url ~ "/records" || data.url ~ "/batch")`) {
		data := item.(map[string]any)["data"].(map[string]any)
		writes = append(writes, fmt.Sprint(data["method"], " ", data["url"]))
	}
	return writes
}
