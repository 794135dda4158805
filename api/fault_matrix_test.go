package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// wire is one HTTP request as bytes.
func (r *rig) wire(c call) []byte {
	r.t.Helper()
	req, err := http.NewRequest(c.method, r.server.URL+c.path, strings.NewReader(c.body))
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	var b bytes.Buffer
	require.NoError(r.t, req.Write(&b))
	return b.Bytes()
}

// line opens a connection to the gateway.
func (r *rig) line() *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	require.NoError(r.t, err)
	return conn.(*net.TCPConn)
}

// TestMatrix_Row43_AgentDisconnects: the agent's socket closes at each byte of its
// commit, and then at bytes of the answer, with and without a farewell. A request that
// did not arrive whole opens nothing; one that did goes on to its end, and the repeat
// finds it.
func TestMatrix_Row43_AgentDisconnects(t *testing.T) {
	r := newRig(t)
	token := r.preview("ord_1001").str("commit_token")
	commit := r.wire(r.spend("hold_order", r.clerk, token))
	before := r.state()
	for n := range len(commit) {
		conn := r.line()
		_, err := conn.Write(commit[:n])
		require.NoError(t, err)
		if n%2 == 0 {
			require.NoError(t, conn.SetLinger(0)) // a reset
		}
		require.NoError(t, conn.Close())
	}
	require.Equal(t, before, r.state(), "no part of a request opens anything")
	require.Zero(t, r.shop.RequestCount())

	for i, n := range []int{0, 0, 1, 12, 100, 400} {
		order := fmt.Sprintf("ord_100%d", i+1)
		token := r.preview(order).str("commit_token")
		r.shop.Set(shop.Switches{HoldMS: 50})
		conn := r.line()
		_, err := conn.Write(r.wire(r.spend("hold_order", r.clerk, token)))
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, conn.SetLinger(0))
		} else {
			require.Eventually(t, func() bool { return r.shop.RequestCount() == i+1 || r.shop.RequestCount() == i }, 10*time.Second, time.Millisecond)
		}
		_, err = io.ReadFull(conn, make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		var again answer
		require.Eventually(t, func() bool {
			again = r.do(r.spend("hold_order", r.clerk, token))
			return again.StatusCode == http.StatusOK
		}, 20*time.Second, 10*time.Millisecond)
		require.Equal(t, "succeeded", again.str("state"))
		require.Equal(t, i+1, r.shop.EffectCount(), "once each")
		require.Equal(t, i+1, r.shop.RequestCount())
	}
}

// TestMatrix_Row29and30_OnePersonCountsOnce: a person decides in two tabs, on two
// devices, many times at once: one decision. A second account in another spelling of
// the same name can't be had, and one account is one person, however it is signed in:
// two are needed, so nothing is sent.
func TestMatrix_Row29and30_OnePersonCountsOnce(t *testing.T) {
	r := newRig(t)
	big := r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"c-1","payment_id":"pay_a7","amount":60000}}`), 200, "")
	id := r.want(r.spend("refund_payment", r.clerk, big.str("commit_token")), 202, "").str("id") // two of finance
	for _, name := range []string{"bob", "Bob", "BOB", "ｂｏｂ", " bob", "bob\u200b", "b\u043eb"} {
		_, _, err := r.identity.CreateOperator(context.Background(), tenant, name, []string{"finance"})
		require.Error(t, err, "%q", name)
	}
	card := r.want(get("/v1/approvals/apr_"+strings.TrimPrefix(id, "op_"), "").as(r.bob), 200, "")
	body := asJSON(map[string]any{"decision": "approve", "shown_digest": card.str("shown_digest")})
	sessions := []*http.Cookie{r.bob, r.bob, r.signIn("bob"), r.signIn("bob")}
	answers := make(chan answer, 3*len(sessions))
	for range 3 {
		for _, s := range sessions {
			go func() {
				answers <- r.do(post("/v1/approvals/apr_"+strings.TrimPrefix(id, "op_")+"/decision", "", body).as(s))
			}()
		}
	}
	counted := 0
	for range cap(answers) {
		switch a := <-answers; a.StatusCode {
		case http.StatusOK, http.StatusAccepted:
			counted++
		default:
			require.Equal(t, http.StatusConflict, a.StatusCode, a.text)
			require.Equal(t, string(fault.AlreadyDecided), a.str("code"))
		}
	}
	require.Equal(t, 1, counted)
	decisions, err := r.ledger.Decisions(context.Background(), tenant, id)
	require.NoError(t, err)
	require.Len(t, decisions, 1)
	r.work()
	require.Equal(t, "awaiting_approval", r.do(get("/v1/operations/"+id, r.clerk)).str("state"))
	require.Zero(t, r.shop.EffectCount())
}

// TestMatrix_Row46_OneAgentFloods: two thousand operations of one agent wait for
// people. It may add none, and is told so with 429; another agent's are taken as
// before, what needs nobody is done, and people page through it all.
func TestMatrix_Row46_OneAgentFloods(t *testing.T) {
	r := newRig(t)
	r.flood(2_000)
	more := r.want(post("/v1/tools/refund_payment/preview", r.clerk, `{"args":{"case":"more","payment_id":"pay_a1","amount":100}}`), 429, "quota_exhausted")
	require.NotEmpty(t, more.Header.Get("Retry-After"))
	require.Equal(t, "repeat", more.str("next", "action"))

	theirs := r.want(post("/v1/tools/refund_payment/preview", r.helper, `{"args":{"case":"theirs","payment_id":"pay_a1","amount":100}}`), 200, "")
	waits := r.want(r.spend("refund_payment", r.helper, theirs.str("commit_token")), 202, "")
	r.hold("ord_1001") // needs nobody
	seen := map[any]bool{}
	for page, cursor := 0, ""; page < 5; page++ { // people begin where they like
		got := r.want(get("/v1/approvals?limit=100"+cursor, "").as(r.ann), 200, "")
		list, _ := got.at("approvals").([]any)
		require.Len(t, list, 100, "one page, however many wait")
		for _, a := range list {
			seen[a.(map[string]any)["id"]] = true
		}
		cursor = "&cursor=" + url.QueryEscape(got.str("next_cursor"))
	}
	require.Len(t, seen, 500, "each is another")
	r.decide(waits.str("id"), r.ann, "approve", "").ok(200)
	r.work()
	require.Equal(t, "succeeded", r.do(get("/v1/operations/"+waits.str("id"), r.helper)).str("state"))
}

// flood makes so many operations of the clerk wait, straight through the ledger.
func (r *rig) flood(n int) {
	r.t.Helper()
	tool, ok := r.registry.Get("refund_payment")
	require.True(r.t, ok)
	first := r.refund("first", 100)
	like, err := r.ledger.Operation(context.Background(), tenant, first)
	require.NoError(r.t, err)
	plan, err := r.ledger.Plan(context.Background(), tenant, first, 1)
	require.NoError(r.t, err)
	g, err := r.ledger.Guard(context.Background(), tenant)
	require.NoError(r.t, err)
	work := make(chan int)
	failed := make(chan error, n)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range work {
				failed <- r.waiting(like, plan, tool, g.Epoch, fmt.Sprint("flood/", i))
			}
		})
	}
	for i := range n - 1 {
		work <- i
	}
	close(work)
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(r.t, err)
	}
}

// waiting opens one more operation like another under a key.
func (r *rig) waiting(like ledger.Operation, plan tools.Plan, tool *tools.Tool, epoch int64, key string) error {
	ctx := context.Background()
	plan.Key = tools.Key{Value: key, Generation: 1, Upstream: r.ledger.UpstreamKey(tenant, tool.Name, key, 1)}
	p := ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: tenant, Agent: "flood", Tool: tool.Name, ToolVersion: tool.Version, Key: key, Generation: 1,
		ArgsDigest: like.ArgsDigest, PlanDigest: plan.Digest(), Plan: plan, Requirement: like.Requirement,
		CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(time.Hour),
	}
	if err := r.store.PutPreview(ctx, p); err != nil {
		return err
	}
	manifest, err := r.ledger.Manifest(ctx, tool.Version)
	if err != nil {
		return err
	}
	op, opened, err := r.ledger.OpenOperation(ctx, ledger.OpenRequest{
		Preview: p, Agent: like.Agent, Requirement: like.Requirement, Manifest: manifest, Epoch: epoch, RequestID: "req",
	})
	if err == nil && (!opened || op.State != ledger.AwaitingApproval) {
		err = errors.New("it was not opened")
	}
	return err
}
