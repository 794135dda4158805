package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// parcels are a tool and its undo, which does what it is told.
func parcels(steps ...tooltest.Step) []*tools.Tool {
	unpack := tooltest.FakeTool("unpack_parcel", tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(unpack).Script(steps...)
	return []*tools.Tool{tooltest.FakeTool("pack_parcel", tooltest.WithUndo("unpack_parcel"), tooltest.WithApproval(tooltest.Auto())), unpack}
}

// waitingUndos are the texts of the undos that wait for a person.
func (p page) waitingUndos(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, n := range find(p.tree(t), func(n *html.Node) bool { return n.Data == "article" }) {
		out = append(out, content(n))
	}
	return out
}

// An undo that failed waits for a person until another one takes the effect back.
func TestUndos_Failed(t *testing.T) {
	r := newRig(t, parcels(tooltest.Reject("The parcel is on the van already."))...)
	mara := r.as("mara", "support")
	require.Contains(t, mara.get("/undos").Body, "No undo waits for you")
	require.Contains(t, mara.get("/runs").Body, `href="/undos"`)
	op := r.ask(r.agent, "pack_parcel", args("order_id", "ord_1"))
	require.Equal(t, ledger.Failed, r.takeBack(t, op.ID).State)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)

	p := mara.get("/undos")
	wellMade(t, p)
	rows := p.waitingUndos(t)
	require.Len(t, rows, 1)
	for _, want := range []string{"pack_parcel “ord_1”", "Failed, no effect", "what it was to take back is still there", op.EffectID, "The parcel is on the van already.", "run_support-0412"} {
		require.Contains(t, rows[0], want)
	}
	look := mara.send(p.form(t, at(op.ID)+"/undo", ""))
	require.Equal(t, http.StatusOK, look.Status)
	done := mara.post(at(op.ID)+"/undo/commit", "commit_token", hiddenToken(t, look))
	require.Equal(t, http.StatusSeeOther, done.Status)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Equal(t, ledger.Compensated, r.op(op.ID).State)
	require.Empty(t, mara.get("/undos").waitingUndos(t))
}

// An undo in doubt waits once it is on the people's list, and what stands behind it
// in the undo of its run waits with it.
func TestUndos_InDoubtAndBehind(t *testing.T) {
	r := newRig(t, parcels(tooltest.LoseReply())...)
	mara := r.as("mara", "support")
	run := func(step string) *ledger.Run { return &ledger.Run{ID: "packing", Step: step, Call: "c"} }
	first := r.askIn(r.agent, "pack_parcel", args("order_id", "ord_1"), run("1"))
	second := r.askIn(r.agent, "pack_parcel", args("order_id", "ord_2"), run("2"))
	here := "?id=packing&agent=" + r.agent.ID
	plan := mara.post("/run/undo" + here)
	mara.follow(mara.post("/run/undo/commit"+here, "commit_token", hiddenToken(t, plan)))
	r.work()
	doubt := r.op(r.op(second.ID).Child)
	require.Equal(t, ledger.Unknown, doubt.State)
	r.handed(doubt.ID)

	rows := mara.get("/undos").waitingUndos(t)
	require.Len(t, rows, 2)
	all := rows[0] + rows[1]
	require.Contains(t, all, "Nobody knows whether the undo took place.")
	require.Contains(t, all, "Settle the doubt")
	require.Contains(t, all, "of the undo before it nobody knows whether it took place")
	require.Contains(t, all, doubt.ID)

	settled := mara.post(at(doubt.ID)+"/resolve", "happened", "yes", "effect_id", "back_1", "reason", "It stands on the shelf again.")
	require.Equal(t, http.StatusSeeOther, settled.Status)
	for range 3 {
		r.work()
	}
	require.Equal(t, ledger.Compensated, r.op(first.ID).State)
	require.Empty(t, mara.get("/undos").waitingUndos(t))
}

// What a person said no to was decided: the effect stays on purpose.
func TestUndos_CancelledIsDecided(t *testing.T) {
	unpack := tooltest.FakeTool("unpack_parcel", tooltest.WithApproval(tooltest.Approve("support", 1)))
	r := newRig(t, tooltest.FakeTool("pack_parcel", tooltest.WithUndo("unpack_parcel"), tooltest.WithApproval(tooltest.Auto())), unpack)
	mara := r.as("mara", "support")
	op := r.ask(r.agent, "pack_parcel", args("order_id", "ord_1"))
	undo := r.takeBack(t, op.ID)
	require.Equal(t, ledger.AwaitingApproval, undo.State)
	require.Empty(t, mara.get("/undos").waitingUndos(t), "it waits for approval, which is another list")
	r.decide(r.people["mara"], undo.ID, "reject", "It may stay packed.")
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
	require.Empty(t, mara.get("/undos").waitingUndos(t))

	again := r.browser()
	require.Equal(t, http.StatusSeeOther, again.get("/undos").Status)
	require.Equal(t, http.StatusBadRequest, mara.get("/undos?cursor=nonsense").Status)
}
