package commit_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/fault"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/httptool"
)

// shopRig is a rig over the tools of Acme shop and a real shop behind them.
func shopRig(t *testing.T) (*rig, *shop.Shop) {
	t.Helper()
	return shopRigOver(t, func(url string) string { return url })
}

// shopRigOver is shopRig with something between the gateway and the shop.
func shopRigOver(t *testing.T, between func(url string) string) (*rig, *shop.Shop) {
	t.Helper()
	s, err := shop.Open(shop.Config{Dir: t.TempDir(), Key: "shop-key-1234", ReadKey: "shop-read-1234"})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	url := between("http://" + ln.Addr().String())
	allowed, err := httptool.ParseAllowed(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	secret := func(text string) *httptool.Credential {
		return &httptool.Credential{Bearer: func() (string, error) { return text, nil }}
	}
	client, err := httptool.Open(httptool.Upstream{
		Name: "shop", URL: url, Allow: []httptool.Allowed{allowed},
		Auth: secret("shop-key-1234"), ReadAuth: secret("shop-read-1234"),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	loaded, err := tools.LoadFS(shop.Manifests)
	require.NoError(t, err)
	var list []*tools.Tool
	for _, l := range loaded {
		tool, err := tools.Compile(l.Manifest, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: client.Connector})
		require.NoError(t, err)
		list = append(list, tool)
	}
	r := newRigOf(t, nil, list...)
	r.clock.runs = true
	r.inForce()
	return r, s
}

// shopStep does one step of the run.
func (r *rig) shopStep(n int, tool string, in map[string]any) ledger.Operation {
	r.t.Helper()
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: in, Run: step(n)})
	require.NoError(r.t, err)
	return r.mustCommit(agent, tool, res.Token).Operation
}

func verbsOf(s *shop.Shop) []string {
	var out []string
	for _, e := range s.Effects() {
		out = append(out, string(e.Verb))
	}
	return out
}

func moveTo(street string) map[string]any {
	return map[string]any{
		"case": "c-1", "address_id": "adr_2002", "street": street, "city": "Utrecht", "postcode": "3511", "country": "NL",
	}
}

// TestShop_UndoStory: a hold is taken off, an address goes back, a refund is
// cancelled with a person's yes, and a letter stays: with the shop's own
// manifests against the shop itself.
func TestShop_UndoStory(t *testing.T) {
	r, s := shopRig(t)
	hold := r.do(agent, "hold_order", args("ord_1001")).Operation
	require.Equal(t, ledger.Succeeded, hold.State)
	res := r.undo(asAgent(agent), hold.ID)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.Equal(t, "release_hold", res.Operation.Tool)
	require.Equal(t, ledger.Compensated, r.op(hold.ID).State)
	again := r.undo2(asOperator(ann), hold.ID)
	require.Equal(t, res.Operation.ID, again.ID)

	refund := r.do(agent, "refund_payment", map[string]any{"case": "c-1", "payment_id": "pay_a1", "amount": json.Number("100")}).Operation
	r.approve(carl, refund)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(refund.ID).State)
	cancel := r.undo(asOperator(bob), refund.ID).Operation
	require.Equal(t, ledger.AwaitingApproval, cancel.State)
	_, err := r.decide(bob, cancel, "approve", "")
	requireCode(t, err, fault.SeparationOfDuties)
	r.approve(carl, cancel)
	r.work()
	require.Equal(t, ledger.Compensated, r.op(refund.ID).State)

	moved := r.do(agent, "change_address", moveTo("New Street 1")).Operation
	require.Equal(t, ledger.Succeeded, r.undo(asAgent(agent), moved.ID).Operation.State)
	require.Equal(t, []string{"hold", "release", "refund", "cancel", "change", "change"}, verbsOf(s))
}

// undo2 asks for an undo that stands already.
func (r *rig) undo2(who undoAsked, id string) ledger.Operation {
	r.t.Helper()
	res, err := r.previewUndo(who, id)
	require.NoError(r.t, err)
	require.Empty(r.t, res.Token)
	return *res.Operation
}

// TestShop_UndoOfARun: what the run did and how it is taken back, in the shop's
// own words.
func TestShop_UndoOfARun(t *testing.T) {
	r, s := shopRig(t)
	r.shopStep(1, "hold_order", args("ord_1001"))
	first := r.shopStep(2, "change_address", moveTo("New Street 1"))
	letter := r.shopStep(3, "send_letter", map[string]any{"case": "c-1", "to": "adr_2003", "subject": "Your order", "body": "It waits."})
	r.approve(ann, letter)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(letter.ID).State)
	r.shopStep(4, "hold_order", args("ord_1002"))

	plan, err := r.previewRun(asAgent(agent))
	require.NoError(t, err)
	var can []bool
	for _, item := range plan.Items {
		can = append(can, item.Possible)
	}
	require.Equal(t, []bool{true, false, true, true}, can)
	require.Contains(t, plan.Items[1].Because, "declares no undo")
	require.Contains(t, plan.Items[3].Preview.Plan.Headline, "Release hold")
	res, err := r.commitRun(asAgent(agent), plan.Token)
	require.NoError(t, err)
	r.work()
	require.Equal(t, []ledger.State{ledger.Compensated, ledger.Compensated, ledger.Compensated}, r.parents(res.Operations))
	require.Equal(t, first.ID, res.Operations[1].Parent)
	require.Equal(t, []string{"hold", "change", "send", "hold", "release", "change", "release"}, verbsOf(s))
}
