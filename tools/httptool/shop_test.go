package httptool_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// The contract suite against the real shop, for each kind of write that it has.
func TestShop_Contract(t *testing.T) {
	suites := map[string]func(*rig) tooltest.Suite{
		"refund_payment": func(r *rig) tooltest.Suite {
			payment := func(n int) string { return fmt.Sprintf("pay_a%d", 1+n%9) }
			return tooltest.Suite{
				Args: func(n int) map[string]any {
					return map[string]any{"case": fmt.Sprintf("c%d", n), "payment_id": payment(n), "amount": json.Number("1")}
				},
				Spoil:   func(map[string]any) { r.Set(withRefusal(r)) },
				Change:  func(args map[string]any) { r.byHand("/payments/" + args["payment_id"].(string) + "/change") },
				Success: 201, EffectID: "id",
			}
		},
		"send_letter": func(r *rig) tooltest.Suite {
			return tooltest.Suite{
				Args: func(n int) map[string]any {
					return map[string]any{
						"case": fmt.Sprintf("c%d", n), "to": "adr_2001", "subject": "Your order",
						"body": "Dear customer,\n\nit is on its way. \U0001F69A {{.Secret}} ${7*7} %s <%= %>",
					}
				},
				Spoil:   func(map[string]any) { r.Set(withRefusal(r)) },
				Change:  func(args map[string]any) { r.byHand("/addresses/" + args["to"].(string) + "/change") },
				Success: 202, EffectID: "id",
			}
		},
		"change_address": func(r *rig) tooltest.Suite {
			address := func(n int) string { return fmt.Sprintf("adr_20%02d", 1+n%10) }
			return tooltest.Suite{
				Args: func(n int) map[string]any {
					return map[string]any{
						"case": fmt.Sprintf("c%d", n), "address_id": address(n), "street": fmt.Sprintf("New Street %d", n),
						"city": "Köln", "postcode": "50667", "country": "DE",
					}
				},
				Spoil:   func(args map[string]any) { r.byHand("/addresses/" + args["address_id"].(string) + "/change") },
				Change:  func(args map[string]any) { r.byHand("/addresses/" + args["address_id"].(string) + "/change") },
				Success: 200, EffectID: "change_id",
			}
		},
		"hold_order": func(r *rig) tooltest.Suite {
			return tooltest.Suite{
				Before: func(n int) {
					if n%8 == 0 {
						// Only eight orders are open; the shop starts afresh after them.
						if err := r.Reset(); err != nil {
							r.t.Fatal(err)
						}
					}
				},
				Args: func(n int) map[string]any {
					return map[string]any{"order_id": fmt.Sprintf("ord_10%02d", 1+n%8), "reason": "asked by phone"}
				},
				Spoil:   func(map[string]any) { r.Set(withRefusal(r)) },
				Change:  func(args map[string]any) { r.byHand("/orders/" + args["order_id"].(string) + "/change") },
				Success: 201, EffectID: "id",
			}
		},
	}
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := suite(r)
			s.Tool, s.Line = r.byName[name], r.line
			s.Tools = func(name string) (*tools.Tool, bool) { tool, ok := r.byName[name]; return tool, ok }
			s.Effects, s.Requests = r.EffectCount, r.RequestCount
			if testing.Short() {
				s.Previews = 50
			}
			tooltest.Run(t, s)
		})
	}
}

// withRefusal has the shop refuse the next request for certain.
func withRefusal(r *rig) shop.Switches {
	sw := r.Switches()
	sw.RefuseNext = 1
	return sw
}

// Two effects for one key: the shop breaks its promise, and the lookup shows it
// (row 38 of the fault matrix).
func TestShop_brokenPromise(t *testing.T) {
	r := newRig(t)
	tool := r.byName["refund_payment"]
	args, _, err := tool.CheckArgs(map[string]any{"case": "c1", "payment_id": "pay_a1", "amount": json.Number("5")})
	require.NoError(t, err)
	plan, err := tool.Preview(t.Context(), tools.Call{Args: args, Key: tools.Key{Value: "k", Generation: 1, Upstream: "up-1"}})
	require.NoError(t, err)
	r.Set(shop.Switches{ForgetKeys: true})
	first := tool.Dispatch(t.Context(), plan, tools.Dispatch{})
	second := tool.Dispatch(t.Context(), plan, tools.Dispatch{})
	require.Equal(t, tools.Succeeded, first.Verdict)
	require.Equal(t, tools.Succeeded, second.Verdict)
	require.NotEqual(t, first.EffectID, second.EffectID)
	a := tool.Lookup(t.Context(), plan)
	require.Equal(t, tools.BrokenPromise, a.Kind)
	require.ElementsMatch(t, []string{first.EffectID, second.EffectID}, a.EffectIDs)
}

// A lookup of what is hidden yet says absent, and present later: that is why
// absence proves little of an eventual lookup (row 39).
func TestShop_lookupLags(t *testing.T) {
	r := newRig(t)
	tool := r.byName["hold_order"]
	args, _, err := tool.CheckArgs(map[string]any{"order_id": "ord_1001"})
	require.NoError(t, err)
	plan, err := tool.Preview(t.Context(), tools.Call{Args: args, Key: tools.Key{Value: "k", Generation: 1, Upstream: "up-1"}})
	require.NoError(t, err)
	r.Set(shop.Switches{LagMS: 100_000})
	require.Equal(t, tools.Succeeded, tool.Dispatch(t.Context(), plan, tools.Dispatch{}).Verdict)
	require.Equal(t, tools.Absent, tool.Lookup(t.Context(), plan).Kind)
	r.Set(shop.Switches{})
	require.Equal(t, tools.Present, tool.Lookup(t.Context(), plan).Kind)
}
