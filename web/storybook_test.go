package web_test

import (
	"testing"
)

func TestRig(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "4711", "payment_id", "pay_a1", "amount", 12000))
	b := r.as("mara", "support", "finance")
	p := b.get("/approvals")
	t.Log(p.Status, p.Body)
	p = b.get("/operations/" + op.ID)
	t.Log(p.Status, p.Body)
}
