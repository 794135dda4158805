package tools_test

import (
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"countersign/strictjson"
)

func number(text string) json.Number { return json.Number(text) }

// generic reads YAML as a JSON value, by another way than the package does.
func generic(t testing.TB, text string) any {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	v, err := strictjson.Parse(j, strictjson.ReplyLimits)
	require.NoError(t, err)
	return v
}

// value reads a JSON value.
func value(t testing.TB, text string) any {
	t.Helper()
	v, err := strictjson.Parse([]byte(text), strictjson.ReplyLimits)
	require.NoError(t, err)
	return v
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	return value(t, text).(map[string]any)
}

// everything is a manifest that uses every key there is.
const everything = `tool: ship_parcels
description: Ships the parcels of an order.
headline: "Ship ${string(size(reads.order.body.parcels))} parcels of order ${args.order_id}"
access: write
reversible: true
upstream: shop
key: "ship/${args.order_id}/${args.express}"
input:
  required: [order_id]
  properties:
    order_id: {type: string, pattern: "^ord_[0-9]+$"}
    express: {type: boolean, default: false}
    price: {type: number, default: 0}
    note: {type: string, maxLength: 200}
    pin: {type: string, x-sensitive: true}
    to:
      type: object
      required: [city]
      properties:
        city: {type: string}
        street: {type: string}
preview:
  reads:
    order:
      get: "/orders/${args.order_id}"
      query: {fields: [id, parcels], note: "${args.?note}"}
      headers: {X-Agent: "${agent.id}"}
      status: [200, 203]
      schema:
        required: [status, parcels, version]
        properties:
          status: {type: string}
          version: {type: integer}
          parcels:
            type: array
            items: {required: [id, cents], properties: {id: {type: string}, cents: {type: integer}, customs: {type: boolean, default: false}}}
    rates: {post: /rates/search, effect_free: true, json: {order: "${args.order_id}", express: "${args.express}"}}
  refuse:
    - {when: reads.order.body.status != "paid", because: "The order is ${reads.order.body.status}."}
    - {when: 'args.?pin.orValue("") == "0000"', because: "Choose another PIN."}
  effects:
    - each: reads.order.body.parcels
      as: parcel
      verb: ship
      target: "parcel/${parcel.id}"
      before: {shipped: false, to: null}
      after: {shipped: true, to: "${args.?to.?city}"}
      summary: "Parcel ${parcel.id} leaves the house."
      money: {amount: "${parcel.cents}", currency: "${reads.rates.body.currency}"}
      count: 1
      outside: "${args.express ? 1 : 0}"
    - verb: close
      target: "order/${args.order_id}"
      before: "${{'status': reads.order.body.status}}"
      after: {status: shipped}
  basis: [reads.order.body.status, reads.order.body.version, reads.rates.body.currency]
commit:
  put: "/orders/${args.order_id}/shipment"
  query: {dry: false}
  headers: {X-Pin: '${args.?pin.orValue("none")}', Content-Type: application/merge-patch+json}
  json:
    parcels: "${reads.order.body.parcels.map(p, p.id)}"
    note: "${args.?note}"
    price: "${args.price}"
    literal: "$${not an expression}"
    mixed: "order ${args.order_id}, express ${args.express}"
    key: "${key.upstream}"
    by: ["${agent.name}", "${args.?to.?city}"]
  honours_key: {retention: 7d}
  succeeded:
    status: [200, 201]
    when: body.state == "shipped"
    schema: {required: [state, id], properties: {state: {type: string}, id: {type: integer}}}
    effect_id: "${body.id}"
    result: {state: "${body.state}", count: "${size(reads.order.body.parcels)}"}
  rejected:
    - {status: [404, 422], because: "${body.message}"}
    - {status: [200], when: 'body.state == "refused"', because: "Refused."}
    - {status: [409], definite: true, reason: "The API checks this before any change.", because: "Already shipped."}
lookup:
  get: "/orders/${args.order_id}/shipments"
  query: {key: "${key.upstream}"}
  answers: [200, 404]
  found: 'status == 404 ? [] : body.items.map(s, s.id)'
  not_yet: 'headers["x-lag"] == "yes"'
  consistency: strong
already_done:
  get: "/orders/${args.order_id}/shipments"
  found: 'body.items.map(s, s.id)'
undo:
  tool: recall_parcels
  args: {shipment: "${effect_id}", count: "${result.count}", first: "${effects[0].target}"}
  while: result.state == "shipped" && effects.count() > 0
  text: The parcels are called back while they are on the road.
approval:
  - {name: express, when: args.express && agent.owner != "opr_1", approve: {logistics: 1, finance: 1}}
  - {when: effects.outside() > 5, deny: "Too many at once."}
  - {auto: true}
approval_expires: 30m
approval_max_age: 20m
timeout: 30s
needs_run: true
goal: {group: order_out, value: "${args.order_id}"}
`
