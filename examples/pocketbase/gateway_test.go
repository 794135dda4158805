package pocketbase_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

const tenant = "default"

var (
	clerk = identity.Agent{ID: "agt_clerk", Tenant: tenant, Name: "clerk", Owner: "opr_owner", Tools: []string{"*"}}
	ann   = identity.Operator{ID: "opr_ann", Tenant: tenant, Name: "ann", Groups: []string{"support"}}
)

// gateway is the services of a gateway in one process, on SQLite in a folder of
// its own, before the bench's PocketBase.
type gateway struct {
	*bench
	ledger    *ledger.Ledger
	executor  *commit.Executor
	previews  *preview.Service
	commits   *commit.Service
	approvals *approvals.Service
	sweeper   *reconcile.Sweeper
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{bench: newBench(t)}
	ctx, dir := context.Background(), t.TempDir()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(dir, "ledger.db"), Now: time.Now})
	require.NoError(t, err)
	g.ledger, err = ledger.Open(ctx, ledger.Config{Store: db, Now: time.Now})
	require.NoError(t, err)
	keys, err := tokens.LoadOrCreate(filepath.Join(dir, "keys.json"), time.Now(), tokens.KeyOptions{})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: g.ledger.ID(), Keys: keys, Now: time.Now})
	require.NoError(t, err)
	registry := tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) {
		return nil, errors.New("no other version was ever in force")
	})
	require.NoError(t, registry.Set(slices.Collect(maps.Values(g.tools))))
	_, _, err = g.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "test"}, func(row *ledger.Guard) { row.Tools = registry.Versions() })
	require.NoError(t, err)
	person := func(_ context.Context, _, id string) (policy.Person, error) {
		if id == ann.ID {
			return approvals.PersonOf(ann), nil
		}
		return policy.Person{ID: id, Disabled: true}, nil
	}
	g.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: g.ledger, Store: db, Registry: registry, Person: person, Owner: "test"})
	g.previews = preview.New(preview.Config{Ledger: g.ledger, Store: db, Registry: registry, Signer: signer})
	g.commits = commit.New(commit.Config{Ledger: g.ledger, Registry: registry, Signer: signer, Executor: g.executor})
	g.approvals = approvals.New(approvals.Config{Ledger: g.ledger, Person: person})
	g.sweeper = reconcile.New(reconcile.Config{Ledger: g.ledger, Store: db, Owner: "test"})
	reconciler := reconcile.NewReconciler(reconcile.ReconcilerConfig{Ledger: g.ledger, Store: db, Registry: registry, Executor: g.executor, Owner: "test"})
	background, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = reconciler.Run(background) }() // it ends with its context only
	t.Cleanup(func() {
		end()
		<-ended
		require.NoError(t, g.executor.Drain(ctx))
		require.NoError(t, db.Close())
	})
	return g
}

func (g *gateway) preview(tool, args string) preview.Result {
	g.t.Helper()
	res, err := g.previews.Preview(context.Background(), preview.Request{Agent: clerk, Tool: tool, Args: given(g.t, args), RequestID: "req_1"})
	require.NoError(g.t, err)
	return res
}

func (g *gateway) commit(tool, token string) (commit.Result, error) {
	return g.commits.Commit(context.Background(), commit.Request{Agent: clerk, Tool: tool, Token: token, RequestID: "req_2", Wait: 30 * time.Second})
}

func (g *gateway) mustCommit(tool, token string) commit.Result {
	g.t.Helper()
	res, err := g.commit(tool, token)
	require.NoError(g.t, err)
	return res
}

// turn lets everything that works in the background do one round.
func (g *gateway) turn() {
	g.t.Helper()
	ctx := context.Background()
	_, err := g.sweeper.RunOnce(ctx)
	require.NoError(g.t, err)
	_, err = g.executor.RunOnce(ctx)
	require.NoError(g.t, err)
	require.NoError(g.t, g.executor.Drain(ctx))
}

const bo = `{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"team","seats":2}`

// Preview, commit, and every kind of repeat: one record.
func TestGateway_OneRecord(t *testing.T) {
	g := newGateway(t)
	p := g.preview("create_customer", bo)
	require.NotEmpty(t, p.Token)
	require.Empty(t, g.server.customers(), "a preview creates nothing")

	first := g.mustCommit("create_customer", p.Token)
	require.False(t, first.Replayed)
	require.Equal(t, ledger.Succeeded, first.Operation.State)
	records := g.server.customers()
	require.Len(t, records, 1)
	require.Equal(t, records[0]["id"], first.Operation.EffectID)
	require.Equal(t, map[string]any{"reference": "C-2", "name": "Bo", "email": "bo@example.com", "plan": "team", "seats": 2.0}, values(records[0]))

	for range 3 {
		again := g.mustCommit("create_customer", p.Token)
		require.True(t, again.Replayed)
		require.Equal(t, first.Operation.ID, again.Operation.ID)
	}
	anew := g.preview("create_customer", bo)
	require.Empty(t, anew.Token, "the key is answered with its first result")
	require.Equal(t, first.Operation.ID, anew.Operation.ID)
	require.Equal(t, records, g.server.customers())
	require.Equal(t, []string{"POST /api/batch"}, g.sent())
}

// Twenty commits at once, of one token and of one key, while the request is held
// before PocketBase: one operation, one request, one record.
func TestGateway_OneRecordOfMany(t *testing.T) {
	g := newGateway(t)
	spend := make([]string, 20)
	for i := range spend {
		spend[i] = g.preview("create_customer", bo).Token
		if i%2 == 1 {
			spend[i] = spend[i-1]
		}
	}
	release := make(chan struct{})
	g.gate.beforeNextWrite(func() { <-release })
	results := make([]commit.Result, len(spend))
	errs := make([]error, len(spend))
	var all sync.WaitGroup
	for i, token := range spend {
		all.Go(func() {
			results[i], errs[i] = g.commits.Commit(context.Background(), commit.Request{Agent: clerk, Tool: "create_customer", Token: token})
		})
	}
	all.Wait()
	close(release)
	fresh := 0
	for i, res := range results {
		require.NoError(t, errs[i])
		require.Equal(t, results[0].Operation.ID, res.Operation.ID)
		if !res.Replayed {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	for _, token := range spend {
		require.Equal(t, ledger.Succeeded, g.mustCommit("create_customer", token).Operation.State)
	}
	require.Len(t, g.server.customers(), 1)
	require.Len(t, g.sent(), 1)
}

// A commit that reads its guards while another of the same token takes effect
// sees a changed world. The change is the operation's own: the answer is that
// operation, not that the preview is stale.
func TestGateway_OvertakenByItsOwnEffect(t *testing.T) {
	g := newGateway(t)
	p := g.preview("create_customer", bo)
	var winner commit.Result
	var err error
	g.gate.beforeNextRead(func() { winner, err = g.commit("create_customer", p.Token) })
	late := g.mustCommit("create_customer", p.Token)
	require.NoError(t, err)
	require.False(t, winner.Replayed)
	require.True(t, late.Replayed)
	require.Equal(t, winner.Operation.ID, late.Operation.ID)
	require.Len(t, g.server.customers(), 1)
}

// A preview that reads while an operation of its key takes effect is answered
// with that operation, not refused for what the operation itself has done.
func TestGateway_PreviewOvertakenByItsOwnEffect(t *testing.T) {
	g := newGateway(t)
	p := g.preview("create_customer", bo)
	var winner commit.Result
	var err error
	g.gate.beforeNextRead(func() { winner, err = g.commit("create_customer", p.Token) })
	late := g.preview("create_customer", bo)
	require.NoError(t, err)
	require.Empty(t, late.Token)
	require.Equal(t, winner.Operation.ID, late.Operation.ID)
}

// A lost reply is looked into at once: the record is there under our key, so it
// succeeded, and nothing is sent again.
func TestGateway_ReplyLost(t *testing.T) {
	g := newGateway(t)
	p := g.preview("create_customer", bo)
	g.line.Fail(loseReply)
	first := g.mustCommit("create_customer", p.Token).Operation
	require.Equal(t, ledger.Succeeded, first.State)
	require.Equal(t, ledger.DoubtReconciled, first.Doubt)
	require.Equal(t, g.server.customers()[0]["id"], first.EffectID)
	for range 3 {
		g.turn()
		again := g.mustCommit("create_customer", p.Token)
		require.True(t, again.Replayed)
		require.Equal(t, first.ID, again.Operation.ID)
	}
	require.Len(t, g.server.customers(), 1)
	require.Len(t, g.sent(), 1)
}

// What was previewed is what is there at dispatch, or nothing is sent.
func TestGateway_Drift(t *testing.T) {
	g := newGateway(t)
	ada := g.server.add("C-1", "Ada", "free", 3)["id"].(string)
	args := fmt.Sprintf(`{"case":"4711","id":%q,"seats":5}`, ada)
	p := g.preview("change_customer", args)
	g.server.change(ada, map[string]any{"seats": 4})
	_, err := g.commit("change_customer", p.Token)
	var stale *fault.Error
	require.True(t, errors.As(err, &stale), "%v", err)
	require.Equal(t, fault.PreviewStale, stale.Code)
	require.Empty(t, g.sent())

	res := g.mustCommit("change_customer", g.preview("change_customer", args).Token)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.Equal(t, 5.0, g.server.record(ada)["seats"])
}

// A definite rejection frees the key for the next generation.
func TestGateway_RejectedThenAgain(t *testing.T) {
	g := newGateway(t)
	batches := func(on bool) {
		g.server.call("PATCH", "/api/settings", map[string]any{"batch": map[string]any{"enabled": on}}, 200)
	}
	p := g.preview("create_customer", bo)
	batches(false)
	first := g.mustCommit("create_customer", p.Token)
	require.Equal(t, ledger.Failed, first.Operation.State)
	require.Empty(t, g.server.customers())
	batches(true)
	require.Equal(t, first.Operation.ID, g.mustCommit("create_customer", p.Token).Operation.ID, "the token stands for the first generation only")

	next := g.preview("create_customer", bo)
	require.Equal(t, 2, next.Preview.Generation)
	second := g.mustCommit("create_customer", next.Token)
	require.Equal(t, ledger.Succeeded, second.Operation.State)
	require.Len(t, g.server.customers(), 1)
	require.Len(t, g.sent(), 2)
}

// To delete a customer that pays, a person must say yes; then the gateway sends.
func TestGateway_DeleteNeedsAPerson(t *testing.T) {
	g := newGateway(t)
	ctx := context.Background()
	free := g.server.add("C-1", "Ada", "free", 3)["id"].(string)
	pays := g.server.add("C-3", "Cyn", "business", 9)["id"].(string)
	remove := func(id string) ledger.Operation {
		return g.mustCommit("delete_customer", g.preview("delete_customer", fmt.Sprintf(`{"id":%q}`, id)).Token).Operation
	}
	require.Equal(t, ledger.Succeeded, remove(free).State)
	waits := remove(pays)
	require.Equal(t, ledger.AwaitingApproval, waits.State)
	g.turn()
	require.Len(t, g.server.customers(), 1, "nothing is deleted while it waits")

	card, err := g.approvals.Card(ctx, approvals.PersonOf(ann), tenant, waits.ID)
	require.NoError(t, err)
	require.True(t, card.May, card.WhyNot)
	require.Equal(t, "Delete customer C-3, Cyn", card.Plan.Headline)
	_, err = g.approvals.Decide(ctx, ann, waits.ID, approvals.Decision{Word: "approve", ShownDigest: card.ShownDigest})
	require.NoError(t, err)
	g.turn()
	done, err := g.ledger.Operation(ctx, tenant, waits.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, done.State)
	require.Empty(t, g.server.customers())
}

// A cut before PocketBase has heard anything can't be told from a lost reply: that
// the record is not there proves nothing while the request could still arrive.
func TestGateway_RequestLost(t *testing.T) {
	g := newGateway(t)
	p := g.preview("create_customer", bo)
	g.line.Fail(tooltest.Fault{})
	res, err := g.commits.Commit(t.Context(), commit.Request{Agent: clerk, Tool: "create_customer", Token: p.Token, RequestID: "req_2"})
	require.NoError(t, err)
	require.NoError(t, g.executor.Drain(t.Context()))
	require.Eventually(t, func() bool {
		known, err := g.ledger.Evidence(t.Context(), tenant, res.Operation.ID)
		return err == nil && len(known) > 1 && known[1].Answer == tools.Absent
	}, 20*time.Second, 20*time.Millisecond, "it was asked")
	g.turn()
	op, err := g.ledger.Operation(t.Context(), tenant, res.Operation.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, op.State)
	require.Empty(t, g.server.customers())
	require.Len(t, g.sent(), 1)
}
