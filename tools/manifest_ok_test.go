package tools_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/strictjson"
	"countersign/tools"
)

// base is a manifest with every common part.
func base(t testing.TB, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/base.yaml")
	require.NoError(t, err)
	s := string(text)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, s, replace[i])
		s = strings.Replace(s, replace[i], replace[i+1], 1)
	}
	return s
}

func parse(t testing.TB, text string) *tools.Manifest {
	t.Helper()
	m, err := tools.ParseManifest([]byte(text))
	require.NoError(t, err)
	return m
}

// smallest is what the README shows: the least that a write tool says.
const smallest = `tool: hold_order
access: write
upstream: shop
key: "hold/${args.order_id}"
input:
  required: [order_id]
  properties:
    order_id: {type: string}
preview:
  reads: {order: {get: "/orders/${args.order_id}"}}
  effects:
    - verb: hold
      target: "order/${args.order_id}"
      before: {status: "${reads.order.body.status}"}
      after: {status: held}
commit:
  post: "/orders/${args.order_id}/holds"
  succeeded: {status: [201], effect_id: "${body.id}"}
`

func TestParseManifest_smallest(t *testing.T) {
	require.LessOrEqual(t, strings.Count(smallest, "\n"), 20)
	spec := parse(t, smallest).Spec
	require.Equal(t, "hold_order", spec.Name)
	require.Equal(t, tools.Write, spec.Access)
	require.Equal(t, "shop", spec.Upstream)
	require.False(t, spec.Reversible)
	require.Equal(t, tools.KeyTemplate, spec.KeySource)
	require.False(t, spec.HonoursKey)
	require.Equal(t, tools.NoLookup, spec.Consistency)
	require.Equal(t, 10*time.Second, spec.Timeout)
	require.Equal(t, time.Hour, spec.ApprovalExpiry)
	require.Equal(t, 10*time.Minute, spec.ApprovalMaxAge)
	require.Len(t, spec.Approval, 1)
	require.Equal(t, tools.OutcomeApprove, spec.Approval[0].Outcome)
	require.Equal(t, map[string]int{tools.AnyGroup: 1}, spec.Approval[0].Groups)
	require.Equal(t, tools.DefaultRule, spec.Approval[0].Name)
	require.Len(t, spec.Lacks, 3)
	require.Len(t, spec.Warnings, 2, "no basis, no rejection: %v", spec.Warnings)
	require.JSONEq(t, `{"type":"object","required":["order_id"],"properties":{"order_id":{"type":"string"}},"additionalProperties":false}`, string(spec.InputSchema))
}

func TestParseManifest_spec(t *testing.T) {
	m := parse(t, base(t))
	spec := m.Spec
	require.True(t, spec.HonoursKey)
	require.Equal(t, 24*time.Hour, spec.KeyRetention)
	require.Equal(t, tools.Eventual, spec.Consistency)
	require.Equal(t, "cancel_refund", spec.UndoTool)
	require.Empty(t, spec.Lacks)
	require.Empty(t, spec.Warnings)
	require.Equal(t, base(t), string(spec.Manifest))
	require.Len(t, spec.Approval, 2)
	require.Equal(t, `effects.money("EUR") > 50000`, spec.Approval[0].When)
	require.Equal(t, map[string]int{"finance": 2}, spec.Approval[0].Groups)
	require.Empty(t, spec.Approval[1].When)

	timed := parse(t, base(t, "reversible: false", "reversible: false\ntimeout: 90s\napproval_expires: 2d\napproval_max_age: 1h30m\nneeds_run: true")).Spec
	require.Equal(t, 90*time.Second, timed.Timeout)
	require.Equal(t, 48*time.Hour, timed.ApprovalExpiry)
	require.Equal(t, 90*time.Minute, timed.ApprovalMaxAge)
	require.True(t, timed.NeedsRun)
	require.Equal(t, tools.DuplicatesWarn, timed.Duplicates)
	asking := parse(t, base(t, "reversible: false", "reversible: false\nduplicates: approve")).Spec
	require.Equal(t, tools.DuplicatesApprove, asking.Duplicates)

	short := parse(t, base(t, "reversible: false", "reversible: false\napproval_expires: 5m")).Spec
	require.Equal(t, 5*time.Minute, short.ApprovalMaxAge, "a yes is never younger than its round")
}

// The default rule follows what the tool can do (design: goals and repeats).
func TestParseManifest_defaultApproval(t *testing.T) {
	const (
		key    = "  honours_key: {header: Idempotency-Key, retention: 24h}\n"
		lookup = "lookup: {get: /refunds, query: {key: \"${key.upstream}\"}, found: \"body.items.map(r, r.id)\"}\n"
		rules  = "approval: [{when: effects.money(\"EUR\") > 50000, approve: {finance: 2}}, {approve: {support: 1}}]\n"
	)
	for name, tt := range map[string]struct {
		change []string
		want   string
	}{
		"irreversible":                      {[]string{rules, ""}, tools.OutcomeApprove},
		"irreversible, no key":              {[]string{rules, "", key, ""}, tools.OutcomeApprove},
		"reversible, key and lookup":        {[]string{rules, "", "reversible: false", "reversible: true"}, tools.OutcomeAuto},
		"reversible, key":                   {[]string{rules, "", "reversible: false", "reversible: true", lookup, ""}, tools.OutcomeAuto},
		"reversible, lookup":                {[]string{rules, "", "reversible: false", "reversible: true", key, ""}, tools.OutcomeAuto},
		"reversible, neither":               {[]string{rules, "", "reversible: false", "reversible: true", key, "", lookup, ""}, tools.OutcomeApprove},
		"rules that do not always hold":     {[]string{", {approve: {support: 1}}]", "]"}, tools.OutcomeApprove},
		"rules that do not, and reversible": {[]string{", {approve: {support: 1}}]", "]", "reversible: false", "reversible: true"}, tools.OutcomeAuto},
	} {
		t.Run(name, func(t *testing.T) {
			rules := parse(t, base(t, tt.change...)).Spec.Approval
			last := rules[len(rules)-1]
			require.Equal(t, tools.DefaultRule, last.Name)
			require.Equal(t, tt.want, last.Outcome)
			holds, err := last.Match(nil, nil, tools.Agent{})
			require.NoError(t, err)
			require.True(t, holds)
		})
	}
}

func TestParseManifest_approvalForms(t *testing.T) {
	rules := parse(t, base(t, "approval: [{when: effects.money(\"EUR\") > 50000, approve: {finance: 2}}, {approve: {support: 1}}]", `approval:
  - {name: too much, when: 'effects.money("EUR") > 1000000', deny: "Done by hand."}
  - {when: args.amount < 100, auto: true}
  - {approve: {finance: 1, security: 2}}`)).Spec.Approval
	require.Len(t, rules, 3)
	require.Equal(t, "too much", rules[0].Name)
	require.Equal(t, tools.OutcomeDeny, rules[0].Outcome)
	require.Equal(t, "Done by hand.", rules[0].Reason)
	require.Equal(t, tools.OutcomeAuto, rules[1].Outcome)
	require.Equal(t, "rule 2", rules[1].Name)
	require.Equal(t, map[string]int{"finance": 1, "security": 2}, rules[2].Groups)
}

// A rule over money is an error on another currency, and an error denies.
func TestApprovalRule_Match(t *testing.T) {
	rule := parse(t, base(t)).Spec.Approval[0]
	effect := func(amount int64, currency string) tools.Effect {
		return tools.Effect{Verb: "refund", Money: &tools.Money{Amount: amount, Currency: currency}, Count: 1}
	}
	match := func(effects ...tools.Effect) (bool, error) {
		return rule.Match(map[string]any{"amount": number("1")}, effects, tools.Agent{})
	}
	for want, effects := range map[bool][]tools.Effect{
		false: {effect(50000, "EUR")},
		true:  {effect(25001, "EUR"), effect(25000, "EUR"), {Verb: "note"}},
	} {
		got, err := match(effects...)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := match(effect(1, "USD"))
	require.ErrorContains(t, err, "USD")
	_, err = match(effect(1<<62, "EUR"), effect(1<<62, "EUR"))
	require.ErrorContains(t, err, "too large")
	got, err := match()
	require.NoError(t, err)
	require.False(t, got)

	sums := parse(t, base(t, `effects.money("EUR") > 50000`, `effects.count() > 2 || effects.outside() > 0`)).Spec.Approval[0]
	got, err = sums.Match(nil, []tools.Effect{{Count: 2}, {Count: 1}}, tools.Agent{})
	require.NoError(t, err)
	require.True(t, got)
	got, err = sums.Match(nil, []tools.Effect{{Count: 2}, {Outside: 1}}, tools.Agent{})
	require.NoError(t, err)
	require.True(t, got)
	got, err = sums.Match(nil, []tools.Effect{{Count: 2}}, tools.Agent{})
	require.NoError(t, err)
	require.False(t, got)
}

// The version covers the meaning of the manifest and the address, nothing else.
func TestVersion(t *testing.T) {
	digest := func(text string) string { return parse(t, text).Digest }
	one := digest(base(t))
	require.Equal(t, one, digest("# a comment\n"+base(t)), "comments don't count")
	require.Equal(t, one, digest(base(t, "access: write\nreversible: false\n", "reversible: false\naccess: write\n")), "order of keys doesn't count")
	require.Equal(t, one, digest(base(t, "amount: {type: integer, minimum: 1}", "amount:\n      type: integer\n      minimum: 1")), "spelling doesn't count")
	for _, change := range [][]string{
		{"reversible: false", "reversible: false\ntimeout: 10s"},
		{"status: [422]", "status: [422, 404]"},
		{"args.amount > reads", "args.amount >= reads"},
		{"minimum: 1", "minimum: 2"},
	} {
		require.NotEqual(t, one, digest(base(t, change...)), change)
	}
	require.NotEqual(t, tools.Version(one, "http://a"), tools.Version(one, "http://b"))
	require.Equal(t, tools.Version(one, "http://a"), tools.Version(one, "http://a"))
}

// A manifest that loads fits the published schema, also the parts of it that
// ParseManifest words itself; and editors find words for every key.
func TestManifestSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	require.NoError(t, c.AddResource("urn:countersign:manifest", strings.NewReader(string(tools.ManifestSchema))))
	schema, err := c.Compile("urn:countersign:manifest")
	require.NoError(t, err)

	texts := map[string]string{"base": base(t), "smallest": smallest, "everything": everything}
	names, err := fs.Glob(shop.Manifests, "*.yaml")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(shop.Manifests, name)
		require.NoError(t, err)
		texts[name] = string(text)
	}
	for name, text := range texts {
		require.NoError(t, schema.Validate(generic(t, text)), name)
		parse(t, text)
	}
	for _, name := range []string{"no_key", "no_preview", "no_commit", "reversible_without_undo", "read_tool_with_key", "two_methods", "rule_with_two_outcomes", "unknown_key"} {
		text, err := os.ReadFile("testdata/broken/" + name + ".yaml")
		require.NoError(t, err)
		require.Error(t, schema.Validate(generic(t, string(text))), name)
	}

	doc, err := strictjson.Parse(tools.ManifestSchema, strictjson.ReplyLimits)
	require.NoError(t, err)
	described(t, doc, "")
}

// described checks that every property of the schema has a description and an
// example, itself or where it refers to.
func described(t *testing.T, v any, at string) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name, p := range properties {
			if p, ok := p.(map[string]any); ok && p["$ref"] == nil && !strings.Contains(at, "/allOf/") {
				require.NotEmpty(t, p["description"], at+"/"+name)
				if p["type"] != "object" || p["properties"] == nil {
					require.NotEmpty(t, p["examples"], at+"/"+name)
				}
			}
		}
		for name, sub := range v {
			if name == "examples" {
				continue
			}
			described(t, sub, at+"/"+name)
		}
	case []any:
		for _, sub := range v {
			described(t, sub, at+"/item")
		}
	}
}

// How long a request may be under way is declared beside the lookup, which means
// nothing without it: a minute by default.
func TestParseManifest_maxInFlight(t *testing.T) {
	require.Zero(t, parse(t, smallest).Spec.MaxInFlight, "without a lookup nobody waits for it")
	lookup := smallest + "lookup: {get: /holds, query: {reference: \"${key.upstream}\"}, found: \"body.items.map(h, h.id)\"%s}\n"
	require.Equal(t, time.Minute, parse(t, strings.Replace(lookup, "%s", "", 1)).Spec.MaxInFlight)
	long := parse(t, strings.Replace(lookup, "%s", ", max_in_flight: 1h30m", 1))
	require.Equal(t, 90*time.Minute, long.Spec.MaxInFlight)
	require.NotEqual(t, parse(t, strings.Replace(lookup, "%s", "", 1)).Digest, long.Digest, "what it promises is part of the version")
	for _, wrong := range []string{"0s", "soon", "-1m", "5"} {
		_, err := tools.ParseManifest([]byte(strings.Replace(lookup, "%s", ", max_in_flight: "+wrong, 1)))
		require.ErrorContains(t, err, "max_in_flight", wrong)
	}
}
