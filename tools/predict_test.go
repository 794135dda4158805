package tools_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

var anna = tools.Agent{ID: "agt_1", Name: "Anna's agent", Owner: "opr_2", Tenant: "default"}

// callOf checks arguments and gives them a key.
func callOf(t testing.TB, m *tools.Manifest, args string) tools.Call {
	t.Helper()
	tool := bound(t, m)
	checked, _, err := tool.CheckArgs(object(t, args))
	require.NoError(t, err)
	return tools.Call{Args: checked, Agent: anna, Key: tools.Key{Value: "k", Generation: 1, Upstream: "0e6f6a1e-0000-5000-8000-000000000001"}}
}

// bound compiles a manifest for an upstream that is never asked.
func bound(t testing.TB, m *tools.Manifest) *tools.Tool {
	t.Helper()
	tool, err := tools.Compile(m, tools.CompileEnv{
		UpstreamURL:  "https://shop.example",
		NewConnector: func(*tools.Manifest) (tools.Connector, error) { return nil, nil },
		RedactKey:    []byte("a key of the test"),
	})
	require.NoError(t, err)
	return tool
}

func ok(t testing.TB, body string) tools.Reply {
	return tools.Reply{Status: 200, Headers: map[string]string{}, Body: value(t, body)}
}

const (
	shipOrder = `{"status":"paid","version":3,"parcels":[{"id":"p1","cents":700},{"id":"p2","cents":550}]}`
	shipRates = `{"currency":"EUR"}`
	shipArgs  = `{"order_id":"ord_1","express":true,"price":12.5,"to":{"city":"Graz"}}`
)

func shipReplies(t testing.TB) map[string]tools.Reply {
	return map[string]tools.Reply{"order": ok(t, shipOrder), "rates": ok(t, shipRates)}
}

func TestManifest_Plan(t *testing.T) {
	m := parse(t, everything)
	call := callOf(t, m, shipArgs)
	plan, req, err := m.Plan(call, shipReplies(t))
	require.NoError(t, err)
	require.Equal(t, "Ship 2 parcels of order ord_1", plan.Headline)
	require.True(t, plan.Reversible)
	require.Equal(t, "The parcels are called back while they are on the road.", plan.UndoText)
	require.Equal(t, &tools.Goal{Group: "order_out", Value: "ord_1"}, plan.Goal)
	require.Equal(t, []tools.Effect{
		{
			Verb: "ship", Target: "parcel/p1", Before: map[string]any{"shipped": false, "to": nil}, After: map[string]any{"shipped": true, "to": "Graz"},
			Summary: "Parcel p1 leaves the house.", Money: &tools.Money{Amount: 700, Currency: "EUR"}, Count: 1, Outside: 1,
		},
		{
			Verb: "ship", Target: "parcel/p2", Before: map[string]any{"shipped": false, "to": nil}, After: map[string]any{"shipped": true, "to": "Graz"},
			Summary: "Parcel p2 leaves the house.", Money: &tools.Money{Amount: 550, Currency: "EUR"}, Count: 1, Outside: 1,
		},
		{
			Verb: "close", Target: "order/ord_1", Before: map[string]any{"status": "paid"}, After: map[string]any{"status": "shipped"},
			Summary: "Close order/ord_1", Count: 1,
		},
	}, plan.Effects)
	require.Equal(t, []tools.BasisField{
		{Field: "reads.order.body.status", Value: "paid"},
		{Field: "reads.order.body.version", Value: number("3")},
		{Field: "reads.rates.body.currency", Value: "EUR"},
	}, plan.Basis)
	require.Contains(t, plan.Reads, "order", "succeeded.result reads it")
	require.NotContains(t, plan.Reads, "rates", "nothing reads it after preview")

	require.Equal(t, "PUT", req.Method)
	require.Equal(t, "/orders/ord_1/shipment?dry=false", req.Path)
	require.False(t, req.EffectFree)
	require.Equal(t, []tools.HeaderField{{Name: "X-Pin", Value: "none"}, {Name: "Content-Type", Value: "application/merge-patch+json"}}, req.Header)
	require.JSONEq(t, `{
		"parcels": ["p1", "p2"], "price": 12.5, "literal": "${not an expression}",
		"mixed": "order ord_1, express true", "key": "0e6f6a1e-0000-5000-8000-000000000001",
		"by": ["Anna's agent", "Graz"]
	}`, string(req.Body), "an absent note and an absent element are left out, types are kept")
}

func TestManifest_Reads(t *testing.T) {
	m := parse(t, everything)
	call := callOf(t, m, `{"order_id":"ord_1","note":"a&b=c"}`)
	reads, err := m.Reads(call.Args, call.Agent)
	require.NoError(t, err)
	require.Equal(t, []tools.NamedRequest{
		{Name: "order", Request: tools.Request{
			Method: "GET", Path: "/orders/ord_1?fields=id&fields=parcels&note=a%26b%3Dc", EffectFree: true,
			Header: []tools.HeaderField{{Name: "X-Agent", Value: "agt_1"}},
		}},
		{Name: "rates", Request: tools.Request{
			Method: "POST", Path: "/rates/search", EffectFree: true, Body: []byte(`{"express":false,"order":"ord_1"}`),
			Header: []tools.HeaderField{{Name: "Content-Type", Value: "application/json"}},
		}},
	}, reads)
	one, err := m.Reads(call.Args, call.Agent, "rates")
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, []string{"order", "rates"}, m.BasisReads())
}

func TestManifest_Plan_refuses(t *testing.T) {
	m := parse(t, everything)
	for name, tt := range map[string]struct {
		args  string
		order string
		rates string
		code  fault.Code
		want  string
	}{
		"refused":                 {shipArgs, strings.Replace(shipOrder, "paid", "open", 1), shipRates, fault.ToolRefused, "The order is open."},
		"refused on a secret":     {`{"order_id":"ord_1","pin":"0000"}`, shipOrder, shipRates, fault.ToolRefused, "Choose another PIN."},
		"a field is missing":      {shipArgs, shipOrder, `{}`, fault.UpstreamUnexpected, "/preview/effects/0/money/currency"},
		"no ISO currency":         {shipArgs, shipOrder, `{"currency":"euro"}`, fault.UpstreamUnexpected, ""},
		"a header with a newline": {`{"order_id":"ord_1","pin":"1\r\nX-Evil: 1"}`, shipOrder, shipRates, fault.ForbiddenText, "X-Pin"},
		"a header in UTF-8":       {`{"order_id":"ord_1","pin":"é"}`, shipOrder, shipRates, fault.ForbiddenText, "X-Pin"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := m.Plan(callOf(t, m, tt.args), map[string]tools.Reply{"order": ok(t, tt.order), "rates": ok(t, tt.rates)})
			require.True(t, fault.Is(err, tt.code), "%v", err)
			require.Contains(t, fault.Of(err).Detail, tt.want)
			require.NotContains(t, fault.Of(err).Detail, "0000")
		})
	}
}

// A read that is not as declared fails the preview: nothing is opened.
func TestManifest_AcceptRead(t *testing.T) {
	m := parse(t, everything)
	good := ok(t, shipOrder)
	require.NoError(t, m.AcceptRead("order", good))
	good.Status = 203
	require.NoError(t, m.AcceptRead("order", good))
	for name, bad := range map[string]tools.Reply{
		"status":     {Status: 404, Body: good.Body},
		"unreadable": {Status: 200, Unreadable: "it is text/html, not JSON."},
		"incomplete": {Status: 200, Body: good.Body, Incomplete: "it is longer than the limit."},
		"form":       {Status: 200, Body: value(t, `{"status":"paid","version":"3","parcels":[]}`)},
		"no body":    {Status: 200},
	} {
		err := m.AcceptRead("order", bad)
		require.True(t, fault.Is(err, fault.UpstreamUnexpected), name)
		require.Equal(t, name == "status", errors.Is(err, tools.ErrNoObject), name)
	}
	require.ErrorIs(t, m.AcceptRead("order", tools.Reply{Status: 410}), tools.ErrNoObject)
	require.NotErrorIs(t, m.AcceptRead("order", tools.Reply{Status: 403}), tools.ErrNoObject)
	fixed := parse(t, strings.Replace(everything, `get: "/orders/${args.order_id}"
      query: {fields: [id, parcels], note: "${args.?note}"}`, "get: /orders", 1))
	require.NotErrorIs(t, fixed.AcceptRead("order", tools.Reply{Status: 404}), tools.ErrNoObject, "no argument is wrong there")
	require.True(t, fault.Is(m.AcceptRead("rates", tools.Reply{Status: 201}), fault.UpstreamUnexpected), "the default is 200")
}

func effectManifest(effect string) string {
	return strings.Replace(smallest, `    - verb: hold
      target: "order/${args.order_id}"
      before: {status: "${reads.order.body.status}"}
      after: {status: held}
`, effect, 1)
}

func TestManifest_Plan_effects(t *testing.T) {
	for name, tt := range map[string]struct {
		effect string
		body   string
		code   fault.Code
		check  func(*testing.T, []tools.Effect)
	}{
		"created when before is null": {
			"    - {verb: put, target: x, before: \"${reads.order.body.old}\", after: \"${reads.order.body.new}\"}\n", `{"old":null,"new":{"a":1}}`, "",
			func(t *testing.T, e []tools.Effect) {
				require.Nil(t, e[0].Before)
				require.Equal(t, map[string]any{"a": number("1")}, e[0].After)
			},
		},
		"names differ": {"    - {verb: put, target: x, before: \"${reads.order.body.old}\", after: \"${reads.order.body.new}\"}\n", `{"old":{"b":1},"new":{"a":1}}`, fault.UpstreamUnexpected, nil},
		"both null":    {"    - {verb: put, target: x, before: \"${reads.order.body.old}\", after: \"${reads.order.body.new}\"}\n", `{"old":null,"new":null}`, fault.UpstreamUnexpected, nil},
		"not flat":     {"    - {verb: put, target: x, after: \"${reads.order.body.new}\"}\n", `{"new":{"a":{"b":1}}}`, fault.UpstreamUnexpected, nil},
		"no object":    {"    - {verb: put, target: x, after: \"${reads.order.body.new}\"}\n", `{"new":[1]}`, fault.UpstreamUnexpected, nil},
		"empty object": {"    - {verb: put, target: x, after: \"${reads.order.body.new}\"}\n", `{"new":{}}`, fault.UpstreamUnexpected, nil},
		"list of texts is flat": {"    - {verb: put, target: x, after: {tags: \"${reads.order.body.tags}\"}}\n", `{"tags":["a","b"]}`, "", func(t *testing.T, e []tools.Effect) {
			require.Equal(t, map[string]any{"tags": []any{"a", "b"}}, e[0].After)
		}},
		"each of nothing": {"    - {each: reads.order.body.items, as: i, verb: put, target: \"${i.id}\", after: {a: 1}}\n", `{"items":[]}`, fault.ToolRefused, nil},
		"each of what is no list": {
			"    - {each: reads.order.body.items, as: i, verb: put, target: \"${i.id}\", after: {a: 1}}\n", `{"items":{"a":1}}`, fault.UpstreamUnexpected, nil,
		},
		"each as a template": {
			"    - {each: \"${reads.order.body.items}\", as: i, verb: put, target: \"${i}\", after: {a: \"${i}\"}}\n", `{"items":["x","y"]}`, "",
			func(t *testing.T, e []tools.Effect) {
				require.Len(t, e, 2)
				require.Equal(t, "Put y", e[1].Summary)
			},
		},
		"too many": {
			"    - {each: reads.order.body.items, as: i, verb: put, target: x, after: {a: 1}}\n",
			`{"items":[` + strings.TrimSuffix(strings.Repeat("1,", 1001), ",") + `]}`, fault.UpstreamUnexpected, nil,
		},
		"count that is none": {"    - {verb: put, target: x, after: {a: 1}, count: \"${reads.order.body.n}\"}\n", `{"n":"5"}`, fault.UpstreamUnexpected, nil},
		"negative count":     {"    - {verb: put, target: x, after: {a: 1}, count: \"${reads.order.body.n}\"}\n", `{"n":-1}`, fault.UpstreamUnexpected, nil},
		"count":              {"    - {verb: put, target: x, after: {a: 1}, count: \"${reads.order.body.n}\", outside: 3}\n", `{"n":5}`, "", func(t *testing.T, e []tools.Effect) { require.Equal(t, []int{5, 3}, []int{e[0].Count, e[0].Outside}) }},
		"fraction of money":  {"    - {verb: put, target: x, after: {a: 1}, money: {amount: \"${reads.order.body.n}\", currency: EUR}}\n", `{"n":1.5}`, fault.UpstreamUnexpected, nil},
		"unsafe number":      {"    - {verb: put, target: x, after: {a: \"${reads.order.body.n * reads.order.body.n}\"}}\n", `{"n":1000000000}`, fault.UpstreamUnexpected, nil},
		"overflow":           {"    - {verb: put, target: x, after: {a: \"${reads.order.body.n * reads.order.body.n * reads.order.body.n}\"}}\n", `{"n":9007199254740991}`, fault.UpstreamUnexpected, nil},
		"not a number":       {"    - {verb: put, target: x, after: {a: \"${double(reads.order.body.n) / 0.0}\"}}\n", `{"n":0}`, fault.UpstreamUnexpected, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := parse(t, effectManifest(tt.effect))
			plan, _, err := m.Plan(callOf(t, m, `{"order_id":"o"}`), map[string]tools.Reply{"order": ok(t, tt.body)})
			if tt.code != "" {
				require.True(t, fault.Is(err, tt.code), "%v", err)
				return
			}
			require.NoError(t, err)
			tt.check(t, plan.Effects)
		})
	}
}

// An expression that costs too much stops; it is not a way to burn the gateway.
func TestManifest_Plan_costLimit(t *testing.T) {
	m := parse(t, effectManifest("    - {verb: put, target: x, after: {n: \"${size(reads.order.body.l.map(a, reads.order.body.l.map(b, reads.order.body.l.map(c, c))))}\"}}\n"))
	list := strings.TrimSuffix(strings.Repeat("1,", 500), ",")
	_, _, err := m.Plan(callOf(t, m, `{"order_id":"o"}`), map[string]tools.Reply{"order": ok(t, `{"l":[`+list+`]}`)})
	require.True(t, fault.Is(err, fault.UpstreamUnexpected), "%v", err)
	require.ErrorContains(t, err, "cost limit")
}

func TestManifest_Drift(t *testing.T) {
	m := parse(t, everything)
	plan, _, err := m.Plan(callOf(t, m, shipArgs), shipReplies(t))
	require.NoError(t, err)
	drift, err := m.Drift(plan, shipReplies(t))
	require.NoError(t, err)
	require.Empty(t, drift)

	moved := shipReplies(t)
	moved["order"] = ok(t, strings.Replace(shipOrder, `"version":3`, `"version":4`, 1))
	drift, err = m.Drift(plan, moved)
	require.NoError(t, err)
	require.Equal(t, []tools.Drift{{Field: "reads.order.body.version", Was: number("3"), Now: number("4")}}, drift)

	moved["order"] = ok(t, strings.Replace(shipOrder, `"version":3`, `"version":3.0`, 1))
	drift, err = m.Drift(plan, moved)
	require.NoError(t, err)
	require.Empty(t, drift, "3.0 is 3")

	delete(moved, "rates")
	_, err = m.Drift(plan, moved)
	require.True(t, fault.Is(err, fault.UpstreamUnexpected))
}

func TestManifest_headlineDefault(t *testing.T) {
	m := parse(t, smallest)
	plan, _, err := m.Plan(callOf(t, m, `{"order_id":"ord_1"}`), map[string]tools.Reply{"order": ok(t, `{"status":"open"}`)})
	require.NoError(t, err)
	require.Equal(t, "Hold order/ord_1", plan.Headline)
	require.Empty(t, plan.UndoText)

	undone := parse(t, base(t))
	plan, _, err = undone.Plan(callOf(t, undone, `{"case":"c","payment_id":"pay_1","amount":5}`),
		map[string]tools.Reply{"payment": ok(t, `{"refundable":5,"refunded":0,"currency":"EUR"}`)})
	require.NoError(t, err)
	require.Equal(t, "Refund 0.05 EUR", plan.Headline)
	require.Equal(t, `Taken back by cancel_refund, while result.state == "pending".`, plan.UndoText)
}
