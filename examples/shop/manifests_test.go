package shop_test

import (
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// manifest is the part of a tool manifest that names addresses of the shop.
// What a manifest may say is checked by the package that runs it; here it only
// must fit this shop.
type manifest struct {
	Tool     string
	Headline string
	Access   string
	Upstream string
	Read     route
	Preview  struct{ Reads map[string]route }
	Commit   struct {
		Post, Put string
		JSON      map[string]any
		Succeeded struct{ Status []int }
	}
	Lookup route
	Undo   struct {
		Tool string
		Args map[string]string
	}
	Input struct {
		Required   []string
		Properties map[string]map[string]any
	}
}

type route struct {
	Get   string
	Query map[string]string
}

// loadManifests reads the embedded manifests by tool name.
func loadManifests(t *testing.T) map[string]manifest {
	t.Helper()
	names, err := fs.Glob(shop.Manifests, "*.yaml")
	require.NoError(t, err)
	out := map[string]manifest{}
	for _, name := range names {
		text, err := fs.ReadFile(shop.Manifests, name)
		require.NoError(t, err)
		var m manifest
		require.NoError(t, yaml.Unmarshal(text, &m), name)
		require.Equal(t, strings.TrimSuffix(name, ".yaml"), m.Tool)
		require.Equal(t, "shop", m.Upstream, name)
		comments := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "# ") {
				break
			}
			comments++
		}
		require.True(t, comments >= 1 && comments <= 3, "%s says in one to three lines what it shows", name)
		out[m.Tool] = m
	}
	return out
}

func TestManifests_AreTheEightTools(t *testing.T) {
	tools := loadManifests(t)
	access := map[string]string{}
	for name, m := range tools {
		access[name] = m.Access
	}
	require.Equal(t, map[string]string{
		"get_order": "read", "list_orders": "read",
		"hold_order": "write", "release_hold": "write", "refund_payment": "write", "cancel_refund": "write",
		"send_letter": "write", "change_address": "write",
	}, access)
	for name, m := range tools {
		if m.Undo.Tool == "" {
			continue
		}
		undo, ok := tools[m.Undo.Tool]
		require.True(t, ok, "%s is undone by %s", name, m.Undo.Tool)
		for _, arg := range undo.Input.Required {
			require.Contains(t, m.Undo.Args, arg, name)
		}
		for arg := range m.Undo.Args {
			require.Contains(t, undo.Input.Properties, arg, name)
		}
	}
}

// Every address that a manifest names is one that the shop serves, and a commit
// that is sent as the manifest says gets the status that it calls success.
func TestManifests_FitTheShop(t *testing.T) {
	values := strings.NewReplacer(
		"${args.order_id}", "ord_1001", "${args.hold_id}", "hold_88", "${args.payment_id}", "pay_a1",
		"${args.refund_id}", "re_12", "${args.address_id}", "adr_2001", "${args.to}", "adr_2001",
		"${args.status}", "open", "${args.limit}", "20", "${key.upstream}", "the-key",
	)
	sample := map[string]any{
		"${args.amount}": 100, "${reads.address.body.version}": 1, "${args.country}": "DE", "${args.postcode}": "20095",
	}
	s := start(t, shop.Config{})
	get := func(tool string, r route) {
		t.Helper()
		query := url.Values{}
		for name, value := range r.Query {
			query.Set(name, values.Replace(value))
		}
		path := values.Replace(r.Get)
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		require.NotContains(t, path, "${", tool)
		status, body := s.call("GET", path, "")
		require.Equal(t, 200, status, "%s: GET %s: %s", tool, path, body)
	}
	tools := loadManifests(t)
	for _, tool := range []string{
		"get_order", "list_orders", "hold_order", "release_hold", "refund_payment", "cancel_refund", "send_letter", "change_address",
	} {
		m := tools[tool]
		if m.Access == "read" {
			get(tool, m.Read)
			continue
		}
		for _, r := range m.Preview.Reads {
			get(tool, r)
		}
		body := map[string]any{}
		for name, value := range m.Commit.JSON {
			text, _ := value.(string)
			if v, ok := sample[text]; ok {
				body[name] = v
				continue
			}
			body[name] = values.Replace(text)
		}
		method, path := "POST", m.Commit.Post
		if m.Commit.Put != "" {
			method, path = "PUT", m.Commit.Put
		}
		status, answer := s.call(method, values.Replace(path), string(mustJSON(t, body)))
		require.Equal(t, m.Commit.Succeeded.Status, []int{status}, "%s: %s", tool, answer)
		if m.Lookup.Get != "" {
			get(tool, m.Lookup)
		}
	}
	require.Equal(t, 6, s.EffectCount())
}
