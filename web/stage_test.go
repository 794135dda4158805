package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/commit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
	"countersign/web"
)

// story is one page in one situation.
type story struct {
	name string
	// by is who looks; nobody when empty.
	by string
	// path to get; or, with form, to post.
	path   string
	form   []string
	status int
	// rig is the gateway on which it plays.
	rig *rig
	// click opens something on the page, for its picture.
	click string
	// site is Sec-Fetch-Site when it is not the page's own.
	site string
}

// open fetches the story's page, without scripts.
func (s story) open(t *testing.T, as map[string]*browser) page {
	t.Helper()
	b := as[s.by]
	if b == nil {
		b = s.rig.browser()
	}
	if s.site != "" {
		b = &browser{t: b.t, r: b.r, client: b.client, site: s.site}
	}
	if s.form != nil {
		return b.post(s.path, s.form...)
	}
	return b.get(s.path)
}

// stage is a gateway in which a bit of everything has happened.
type stage struct {
	*rig
	as      map[string]*browser
	stories []story
}

// letterBody is the text of a long letter.
var letterBody = "Dear customer,\n\n" + strings.Repeat("thank you for your patience while we looked for the parcel that left our house on Monday. ", 12) +
	"\n\nIt has turned up at the depot in the harbour and reaches you this week.\n\nWith kind regards,\nAcme shop"

// newStage plays all scenes on one gateway, and the empty ones on another.
func newStage(t *testing.T) *stage {
	voucher := headed(tooltest.FakeTool("send_voucher", tooltest.KeyFrom(tools.KeyFromCaller), tooltest.Irreversible(),
		tooltest.WithApproval(tooltest.Approve("support", 1)), tooltest.WithEffects(func(args map[string]any) []tools.Effect {
			return []tools.Effect{{
				Verb: "send", Target: "voucher", Outside: 1, Money: &tools.Money{Amount: 2500, Currency: "EUR"},
				After: map[string]any{"order": args["order_id"], "worth": args["amount"], "note": args["note"]},
			}}
		})), "Send a voucher of 25.00 EUR to the customer of ord_1007")
	label := tooltest.FakeTool("print_label", tooltest.WithUndo("void_label"), tooltest.WithApproval(tooltest.Auto()))
	r := newRigWith(t, func(c *web.Config) {
		c.Demo, c.ShopURL, c.PublicURL = true, "http://localhost:8421", "http://localhost:8420"
	}, append(recordTools(), voucher, label)...)
	s := &stage{rig: r, as: map[string]*browser{}}
	r.operator("mara", "support", "finance")
	r.operator("tomas", "finance")
	r.operator("lena", "support", "finance")
	s.play(t, label)
	// Not before: a session that is not used ends while the scenes pass.
	for name := range r.people {
		s.as[name] = r.as(name)
	}
	s.doors(t)
	s.empty(t)
	s.hostile(t)
	return s
}

// headed gives a fake tool a headline as a manifest would.
func headed(t *tools.Tool, headline string) *tools.Tool {
	t.Connector = headlined{tooltest.FakeOf(t), headline}
	return t
}

// headlined is a fake connector with a headline of its own.
type headlined struct {
	*tooltest.Fake
	headline string
}

func (h headlined) Preview(ctx context.Context, call tools.Call) (tools.Plan, error) {
	p, err := h.Fake.Preview(ctx, call)
	p.Headline = h.headline
	return p, err
}

// add notes the page of an operation.
func (s *stage) add(name, by, id string) {
	s.stories = append(s.stories, story{name: name, by: by, path: "/operations/" + id, status: http.StatusOK, rig: s.rig})
}

func (s *stage) page(name, by, path string, status int, form ...string) {
	s.stories = append(s.stories, story{name: name, by: by, path: path, status: status, form: form, rig: s.rig})
}

func (s *stage) refund(caseID, payment string, amount int) ledger.Operation {
	return s.ask(s.agent, "refund_payment", args("case", caseID, "payment_id", payment, "amount", amount))
}

func (s *stage) play(t *testing.T, label *tools.Tool) {
	ctx := context.Background()
	mara, tomas := s.people["mara"], s.people["tomas"]

	// What ended.
	done := s.refund("4698", "pay_a4", 4575)
	s.decide(mara, done.ID, "approve", "Parcel came back, checked in the depot.")
	s.work()
	s.add("operation-done", "mara", done.ID)
	s.ask(s.agent, "hold_order", args("order_id", "ord_1001", "reason", "Customer asked by phone."))

	s.shop.Set(withRefusal(s.rig))
	failed := s.refund("4699", "pay_a6", 15990)
	s.decide(mara, failed.ID, "approve", "")
	s.work()
	s.add("operation-failed", "mara", failed.ID)

	rejected := s.refund("4702", "pay_a2", 8950)
	s.decide(s.people["lena"], rejected.ID, "reject", "The customer already got a replacement. Offer a voucher instead.")
	s.add("operation-rejected", "mara", rejected.ID)

	expired := s.refund("4703", "pay_a8", 3320)
	_, err := s.ledger.Expire(ctx, tenant, expired.ID, ledger.Gateway("expiry"), ledger.Reason{Code: "expired", Text: "Nobody decided in time; silence is not consent."})
	require.NoError(t, err)
	s.add("operation-expired", "mara", expired.ID)

	cancelled := s.refund("4704", "pay_a8", 1200)
	_, err = s.approvals.Cancel(ctx, mara, cancelled.ID, "Entered twice by mistake.")
	require.NoError(t, err)
	s.add("operation-cancelled", "mara", cancelled.ID)

	// What is in doubt.
	sw := s.shop.Switches()
	sw.CutNext = 1
	s.shop.Set(sw)
	doubt := s.ask(s.agent, "send_letter", args("case", "4688", "to", "adr_2003", "subject", "Your parcel", "body", letterBody))
	s.decide(mara, doubt.ID, "approve", "")
	s.work()
	require.Equal(t, ledger.Unknown, s.op(doubt.ID).State)
	s.add("operation-unknown", "mara", doubt.ID)
	s.page("operation-unknown-refused", "mara", "/operations/"+doubt.ID+"/resolve", http.StatusUnprocessableEntity, "happened", "yes", "effect_id", "", "reason", "The post office shows it as taken.")
	s.clock.Add(17 * time.Minute)

	// What waits, the oldest first.
	waiting := s.refund("4711", "pay_a1", 12000)
	s.add("operation-waiting", "mara", waiting.ID)
	for form, selector := range map[string]string{"approve": ".approve", "reject": ".reject", "sent": "#h-sent ~ details"} {
		s.add("operation-waiting-"+form, "mara", waiting.ID)
		s.stories[len(s.stories)-1].click = selector
	}
	s.page("operation-refused", "mara", "/operations/"+waiting.ID+"/decision", http.StatusUnprocessableEntity,
		"decision", "reject", "shown_digest", "", "reason", "")
	s.clock.Add(6 * time.Minute)
	two := s.refund("4715", "pay_a5", 61200)
	s.decide(tomas, two.ID, "approve", "Amount fits the invoice.")
	s.add("operation-one-of-two", "mara", two.ID)
	s.add("operation-decided", "tomas", two.ID)
	s.clock.Add(4 * time.Minute)
	letter := s.ask(s.agent, "send_letter", args("case", "4716", "to", "adr_2001", "subject", "Your parcel", "body", letterBody))
	s.add("operation-letter", "mara", letter.ID)

	own, _, err := s.identity.CreateAgent(ctx, tenant, "returns-bot", mara.ID, []string{identity.AllTools})
	require.NoError(t, err)
	mine := s.ask(own, "refund_payment", args("case", "4717", "payment_id", "pay_a7", "amount", 4900))
	s.add("operation-own-agent", "mara", mine.ID)

	var twins []ledger.Operation
	for _, key := range []string{"voucher-2026-03-01-a", "voucher-2026-03-01-b"} {
		twins = append(twins, s.keyed(s.agent, "send_voucher", key, args("order_id", "ord_1007", "amount", 2500, "note",
			"Customer is \u202etnatropmi\u202c, wr\u200bite to b\u0456lling@acme.example. <b>Approve this at once!</b>")))
	}
	s.add("operation-duplicate", "mara", twins[1].ID)

	moved := s.refund("4720", "pay_a3", 30000)
	s.decide(mara, moved.ID, "approve", "")
	s.byHand("/payments/pay_a3/change")
	s.work()
	s.add("operation-second-round", "lena", moved.ID)

	// What is under way; nothing waits for its end after this.
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	tooltest.FakeOf(label).Script(tooltest.Held(release, tooltest.Succeed()))
	running := s.commitNow(s.agent, "print_label", args("order_id", "ord_1004"))
	<-tooltest.FakeOf(label).Arrived()
	s.add("operation-running", "mara", running.ID)

	s.freezes(t)
	s.runs(t)
	s.duplicates(t)
	s.undos(t)
	s.doubts(t)
	s.proofs(t, done.ID, doubt.ID)
	s.page("approvals", "mara", "/approvals", http.StatusOK)
	s.page("ledger", "mara", "/operations", http.StatusOK)
	s.page("ledger-filtered", "mara", "/operations?state=awaiting_approval&tool=refund_payment", http.StatusOK)
	s.page("ledger-nothing", "mara", "/operations?state=compensated", http.StatusOK)
	s.page("tools", "mara", "/tools", http.StatusOK)
	s.page("tool-refund", "mara", "/tools/refund_payment", http.StatusOK)
	s.page("tool-letter", "mara", "/tools/send_letter", http.StatusOK)
	s.page("tool-read", "mara", "/tools/get_order", http.StatusOK)
	s.page("problem-not-found", "mara", "/operations/op_00000000000000000000000000", http.StatusNotFound)
	s.stories = append(s.stories, story{
		name: "problem-cross-site", by: "mara", path: "/operations/" + waiting.ID + "/decision",
		form: []string{"decision", "approve"}, site: "cross-site", status: http.StatusForbidden, rig: s.rig,
	})
}

// freezes: a tool with an unknown outcome is frozen, and another freeze was lifted.
func (s *stage) freezes(t *testing.T) {
	ctx := context.Background()
	by := ledger.Actor{Kind: "operator", ID: s.people["lena"].ID, Name: "lena"}
	lifted := ledger.Scope{Tenant: tenant, Tool: "release_hold"}
	_, err := s.ledger.Freeze(ctx, lifted, ledger.FreezeNew, by, "The warehouse moves tonight.")
	require.NoError(t, err)
	require.NoError(t, s.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: lifted, By: by, Reason: "The move is over."}))
	everything := ledger.Scope{Tenant: tenant, Everything: true}
	_, err = s.ledger.Freeze(ctx, everything, ledger.FreezeAll, by, "The data of this morning is wrong.")
	require.NoError(t, err)
	require.NoError(t, s.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: everything, By: by, Reason: "Loaded anew and compared.", Override: true}))
	_, err = s.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: "send_letter"}, ledger.FreezeAll, by, "A letter may have gone out twice; the post office is looking.")
	require.NoError(t, err)
	s.page("freezes", "mara", "/freezes", http.StatusOK)
	s.page("freezes-lift-refused", "mara", "/freezes/lift", http.StatusConflict, "scope", "send_letter", "reason", "It looks fine.")
}

// runs: what one run did, part of which can be taken back.
func (s *stage) runs(t *testing.T) {
	run := func(step string) *ledger.Run {
		return &ledger.Run{ID: "returns-2026-03-01", Step: step, Call: "call_" + step}
	}
	hold := s.askIn(s.agent, "hold_order", args("order_id", "ord_1005", "reason", "Customer wants to add an item."), run("1"))
	require.Equal(t, ledger.Succeeded, hold.State)
	s.askIn(s.agent, "change_address", args("case", "4731", "address_id", "adr_2005", "street", "Linden Square 3", "city", "Leipzig", "postcode", "04109", "country", "DE"), run("2"))
	undone := s.askIn(s.agent, "hold_order", args("order_id", "ord_1008"), &ledger.Run{ID: "mistake-7", Step: "1", Call: "c"})
	s.page("operation-can-be-undone", "mara", "/operations/"+hold.ID, http.StatusOK)
	s.page("operation-found-late-refused", "mara", "/operations/"+hold.ID+"/contradict", http.StatusUnprocessableEntity, "effect_id", "", "reason", "A second hold stands in the shop.")
	s.page("undo", "mara", "/operations/"+hold.ID+"/undo", http.StatusOK, "x", "")
	s.takeBack(t, undone.ID)
	s.add("operation-undone", "mara", undone.ID)
	at := "?id=returns-2026-03-01&agent=" + s.agent.ID
	s.page("runs", "mara", "/runs", http.StatusOK)
	s.page("run", "mara", "/run"+at, http.StatusOK)
	s.page("run-undo", "mara", "/run/undo"+at, http.StatusOK, "x", "")
}

// takeBack undoes an operation beside the page.
func (r *rig) takeBack(t *testing.T, id string) ledger.Operation {
	t.Helper()
	ctx := context.Background()
	lena := r.operator("lena", "support", "finance")
	by := ledger.Actor{Kind: "operator", ID: lena.ID, Name: lena.Name}
	p, err := r.previews.Undo(ctx, preview.UndoRequest{Tenant: tenant, Operation: id, By: by, RequestID: "req_1"})
	require.NoError(t, err)
	c, err := r.commits.Undo(ctx, commit.UndoCommit{Tenant: tenant, Operation: id, Token: p.Token, By: by, RequestID: "req_1", Wait: 10 * time.Second})
	require.NoError(t, err)
	return c.Operation
}

// doors are the pages before signing in.
func (s *stage) doors(t *testing.T) {
	_, code, err := s.identity.CreateOperator(context.Background(), tenant, "ines", []string{"support"})
	require.NoError(t, err)
	s.page("sign-in", "", "/sign-in", http.StatusOK)
	s.page("sign-in-refused", "", "/sign-in", http.StatusUnauthorized, "name", "mara", "password", "wrong horse")
	s.page("setup", "", "/setup", http.StatusOK)
	s.page("setup-refused", "", "/setup", http.StatusUnauthorized, "code", "0123456789")
	s.page("setup-password", "", "/setup", http.StatusOK, "code", code)
	s.page("problem-signed-out", "", "/nowhere", http.StatusNotFound)
}

// empty are the pages of a gateway on which nothing has happened, as a demo and
// in earnest.
func (s *stage) empty(t *testing.T) {
	demo := newRigWith(t, func(c *web.Config) {
		c.Demo, c.ShopURL, c.PublicURL = true, "http://localhost:8421", "http://localhost:8420"
	})
	fresh := newRig(t)
	fresh.audit.Anchors = func() []audit.AnchorState { return nil }
	s.page("freezes-refused", "mara", "/freezes", http.StatusUnprocessableEntity, "scope", "send_letter", "level", "all", "reason", "")
	s.as["demo"], s.as["fresh"] = demo.as("mara", "support"), fresh.as("mara", "support")
	s.stories = append(s.stories,
		story{name: "approvals-empty-demo", by: "demo", path: "/approvals", status: http.StatusOK, rig: demo},
		story{name: "approvals-empty", by: "fresh", path: "/approvals", status: http.StatusOK, rig: fresh},
		story{name: "freezes-empty", by: "fresh", path: "/freezes", status: http.StatusOK, rig: fresh},
		story{name: "runs-empty", by: "fresh", path: "/runs", status: http.StatusOK, rig: fresh},
		story{name: "unknown-empty", by: "fresh", path: "/unknown", status: http.StatusOK, rig: fresh},
		story{name: "undos-empty", by: "fresh", path: "/undos", status: http.StatusOK, rig: fresh},
		story{name: "audit-empty", by: "fresh", path: "/audit", status: http.StatusOK, rig: fresh},
		story{name: "ledger-empty", by: "fresh", path: "/operations", status: http.StatusOK, rig: fresh},
	)
}

// hostile is a gateway whose agent writes to deceive.
func (s *stage) hostile(t *testing.T) {
	r := newRig(t, echo(hostile["bidi"]+" "+hostile["homoglyphs"]+" "+hostile["marks"]))
	words := map[string]any{}
	for name, said := range hostile {
		words[name] = said
	}
	op := r.ask(r.agent, "echo_words", words)
	s.as["deceived"] = r.as("mara", "support")
	s.stories = append(s.stories,
		story{name: "operation-hostile", by: "deceived", path: "/operations/" + op.ID, status: http.StatusOK, rig: r},
		story{name: "approvals-hostile", by: "deceived", path: "/approvals", status: http.StatusOK, rig: r},
	)
}

// keyed asks under the caller's own key.
func (r *rig) keyed(agent identity.Agent, tool, key string, in map[string]any) ledger.Operation {
	r.t.Helper()
	ctx := context.Background()
	p, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: tool, Args: in, IdempotencyKey: key, RequestID: "req_7wq1"})
	require.NoError(r.t, err)
	return r.spend(agent, tool, p.Token, 0)
}

// commitNow commits without waiting for the outcome.
func (r *rig) commitNow(agent identity.Agent, tool string, in map[string]any) ledger.Operation {
	r.t.Helper()
	p, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: in, RequestID: "req_9zz3"})
	require.NoError(r.t, err)
	return r.spend(agent, tool, p.Token, 0)
}
