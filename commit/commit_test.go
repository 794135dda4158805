package commit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/tooltest"
)

func TestCommit_OnceAndReplayed(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	p := r.preview(agent, "hold_order", args("ord_1"))
	require.Zero(t, r.count(), "a preview opens nothing")
	require.Empty(t, tooltest.FakeOf(hold).Requests())

	first := r.mustCommit(agent, "hold_order", p.Token)
	require.False(t, first.Replayed)
	require.Equal(t, ledger.Succeeded, first.Operation.State)
	require.NotEmpty(t, first.Operation.EffectID)
	for range 3 {
		again := r.mustCommit(agent, "hold_order", p.Token)
		require.True(t, again.Replayed)
		require.Equal(t, first.Operation.ID, again.Operation.ID)
		require.Equal(t, first.Operation.EffectID, again.Operation.EffectID)
	}
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
	require.Equal(t, []ledger.Verb{"open", "finish"}, r.verbs(first.Operation.ID))

	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1")})
	require.NoError(t, err)
	require.Empty(t, res.Token)
	require.Equal(t, first.Operation.ID, res.Operation.ID, "a new preview of the key gives the first result")
}

// TestCommit_Parallel: fifty commits of one token and fifty of one key while
// the upstream holds its reply (I2, fault matrix rows 3 and 7).
func TestCommit_Parallel(t *testing.T) {
	for name, oneToken := range map[string]bool{"one token": true, "one key": false} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order")
			r := newRig(t, hold)
			release := make(chan struct{})
			tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
			tokens := make([]string, 50)
			for i := range tokens {
				if i == 0 || !oneToken {
					tokens[i] = r.preview(agent, "hold_order", args("ord_1")).Token
				} else {
					tokens[i] = tokens[0]
				}
			}
			results := make([]commit.Result, len(tokens))
			var wg sync.WaitGroup
			for i, token := range tokens {
				wg.Go(func() {
					res, err := r.commit(agent, "hold_order", token)
					if err == nil {
						results[i] = res
					}
				})
			}
			<-tooltest.FakeOf(hold).Arrived()
			close(release)
			wg.Wait()
			fresh := 0
			for _, res := range results {
				require.Equal(t, results[0].Operation.ID, res.Operation.ID)
				require.NotEmpty(t, res.Operation.ID)
				if !res.Replayed {
					fresh++
				}
			}
			require.Equal(t, 1, fresh)
			require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
			require.Equal(t, 1, r.count())
		})
	}
}

// TestCommit_FiftyTokensOfARejectedKey: fifty previews of one key are one
// operation, also after a refusal; a new preview opens generation 2, also with
// other arguments.
func TestCommit_FiftyTokensOfARejectedKey(t *testing.T) {
	for name, opt := range map[string]tooltest.Option{"without keys": tooltest.WithTimeout(time.Second), "with keys": tooltest.HonoursKey(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order", opt)
			r := newRig(t, hold)
			fake := tooltest.FakeOf(hold).Script(tooltest.Reject("The order is shipped."))
			var tokens []string
			for range 50 {
				tokens = append(tokens, r.preview(agent, "hold_order", args("ord_1")).Token)
			}
			first := r.mustCommit(agent, "hold_order", tokens[0])
			require.Equal(t, ledger.Failed, first.Operation.State)
			require.Equal(t, "refused_upstream", first.Operation.Reason.Code)
			for _, token := range tokens[1:] {
				res := r.mustCommit(agent, "hold_order", token)
				require.True(t, res.Replayed)
				require.Equal(t, first.Operation.ID, res.Operation.ID)
			}
			require.Len(t, fake.Requests(), 1)

			next := r.preview(agent, "hold_order", args("ord_1", "note", "other"))
			require.Equal(t, 2, next.Preview.Generation)
			second := r.mustCommit(agent, "hold_order", next.Token)
			require.Equal(t, ledger.Succeeded, second.Operation.State)
			require.Equal(t, 2, second.Operation.Generation)
			require.NotEqual(t, first.Operation.UpstreamKey, second.Operation.UpstreamKey)
			require.Len(t, fake.Requests(), 2)
		})
	}
}

func TestCommit_AgainOf(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	first := r.do(agent, "hold_order", args("ord_1"))
	again := func(of string) (preview.Result, error) {
		return r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1"), AgainOf: of})
	}
	_, err := again("op_nobody")
	requireCode(t, err, fault.AgainOfInvalid)
	p, err := again(first.Operation.ID)
	require.NoError(t, err)
	require.Equal(t, 2, p.Preview.Generation)
	res := r.mustCommit(agent, "hold_order", p.Token)
	require.Equal(t, ledger.AwaitingApproval, res.Operation.State, "a wanted repeat always waits for a person")
	require.Equal(t, first.Operation.ID, res.Operation.AgainOf)
	r.approve(ann, res.Operation)
	r.work()
	require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
	require.Len(t, tooltest.FakeOf(hold).Effects(), 2)
	_, err = again(first.Operation.ID)
	requireCode(t, err, fault.AgainOfInvalid)
}

// TestCommit_KeyReused: the same key with other arguments, at preview and at commit,
// is refused and stores nothing (matrix row 6).
func TestCommit_KeyReused(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	early := r.preview(agent, "hold_order", args("ord_1", "note", "other"))
	first := r.do(agent, "hold_order", args("ord_1"))
	_, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("ord_1", "note", "b")})
	require.Equal(t, first.Operation.ID, requireCode(t, err, fault.IdempotencyKeyReused).Operation)
	_, err = r.commit(agent, "hold_order", early.Token)
	requireCode(t, err, fault.IdempotencyKeyReused)
	_, err = r.previews.Preview(context.Background(), preview.Request{Agent: other, Tool: "hold_order", Args: args("ord_1", "note", "b")})
	require.Empty(t, requireCode(t, err, fault.IdempotencyKeyReused).Operation, "another agent hears no detail")
	require.Equal(t, 1, r.count())

	// Another agent with a grant and equal args sees state and result.
	res, err := r.previews.Preview(context.Background(), preview.Request{Agent: other, Tool: "hold_order", Args: args("ord_1")})
	require.NoError(t, err)
	require.Equal(t, first.Operation.ID, res.Operation.ID)
}

// TestCommit_Order is the order of the checks at commit: each check is shown to
// come before those behind it by failing both.
func TestCommit_Order(t *testing.T) {
	ctx := context.Background()
	type world struct {
		*rig
		hold  *tools.Tool
		token string
	}
	commitAs := func(w world, a identity.Agent, tool string, in map[string]any) error {
		_, err := w.commits.Commit(ctx, commit.Request{Agent: a, Tool: tool, Token: w.token, Args: in})
		return err
	}
	expire := func(w world) { w.clock.Add(5 * time.Minute) }
	withdraw := func(w world) { require.NoError(t, w.registry.Set(nil)) }
	freeze := func(w world) {
		_, err := w.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: "hold_order"}, ledger.FreezeNew, ledger.Gateway("test"), "a test")
		require.NoError(t, err)
	}
	drift := func(w world) { tooltest.FakeOf(w.hold).SetWorld("status", "shipped") }
	takeKey := func(w world) {
		_, err := w.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "hold_order", Token: w.preview(agent, "hold_order", args("ord_1", "note", "x")).Token, Wait: time.Second})
		require.NoError(t, err)
	}
	spend := func(w world) {
		_, err := w.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "hold_order", Token: w.token, Wait: time.Second})
		require.NoError(t, err)
	}
	ungranted := agent
	ungranted.Tools = []string{"another_tool"}
	deny := func(w world) {
		w.hold.Approval = []tools.ApprovalRule{tooltest.Deny("not today")}
	}
	for name, c := range map[string]struct {
		before []func(world)
		agent  identity.Agent
		tool   string
		token  string
		args   map[string]any
		want   fault.Code // empty: answered with the operation
	}{
		"token shape before principal": {agent: other, token: "abc", want: fault.TokenInvalid},
		"principal before tool":        {agent: other, tool: "other_tool", want: fault.TokenSubjectMismatch},
		"principal before expiry":      {before: []func(world){expire}, agent: other, want: fault.TokenSubjectMismatch},
		"args before replay":           {before: []func(world){spend}, args: args("ord_9"), want: fault.ArgsMismatch},
		"args before expiry":           {before: []func(world){expire}, args: args("ord_9"), want: fault.ArgsMismatch},
		"tool before expiry":           {before: []func(world){expire}, tool: "other_tool", want: fault.ArgsMismatch},
		"equal args, defaults or not":  {before: []func(world){spend}, args: args("ord_1")},
		"replay before expiry":         {before: []func(world){spend, expire}},
		"replay before tool version":   {before: []func(world){spend, withdraw}},
		"replay before freeze":         {before: []func(world){spend, freeze}},
		"replay before policy":         {before: []func(world){spend, deny}},
		"expiry before grant":          {before: []func(world){expire}, agent: ungranted, want: fault.TokenExpired},
		"replay before grant":          {before: []func(world){spend}, agent: ungranted},
		"grant before tool version":    {before: []func(world){withdraw}, agent: ungranted, want: fault.ToolNotGranted},
		"key before policy":            {before: []func(world){takeKey, deny}, want: fault.IdempotencyKeyReused},
		"key before guards":            {before: []func(world){takeKey, drift}, want: fault.IdempotencyKeyReused},
		"expiry before tool version":   {before: []func(world){expire, withdraw}, want: fault.TokenExpired},
		"expiry before freeze":         {before: []func(world){freeze, expire}, want: fault.TokenExpired},
		"tool version before freeze":   {before: []func(world){freeze, withdraw}, want: fault.ToolChanged},
		"key before expiry":            {before: []func(world){takeKey, expire}, want: fault.IdempotencyKeyReused},
		"key before freeze":            {before: []func(world){takeKey, freeze}, want: fault.IdempotencyKeyReused},
		"freeze before policy":         {before: []func(world){freeze, deny}, want: fault.ToolFrozen},
		"freeze before guards":         {before: []func(world){freeze, drift}, want: fault.ToolFrozen},
		"policy before guards":         {before: []func(world){deny, drift}, want: fault.PolicyDenied},
		"drift":                        {before: []func(world){drift}, want: fault.PreviewStale},
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Strong))
			tooltest.FakeOf(hold).SetWorld("status", "open")
			w := world{rig: newRig(t, hold, tooltest.FakeTool("other_tool")), hold: hold}
			w.token = w.preview(agent, "hold_order", args("ord_1")).Token
			for _, do := range c.before {
				do(w)
			}
			if c.token != "" {
				w.token = c.token
			}
			if c.agent.ID == "" {
				c.agent = agent
			}
			if c.tool == "" {
				c.tool = "hold_order"
			}
			n := w.count()
			err := commitAs(w, c.agent, c.tool, c.args)
			require.Equal(t, n, w.count(), "a refused commit opens nothing")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			requireCode(t, err, c.want)
		})
	}
}

func TestCommit_Grant(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	_, err := r.previews.Preview(context.Background(), preview.Request{Agent: stray, Tool: "hold_order", Args: args("ord_1")})
	requireCode(t, err, fault.ToolNotGranted)
	p := r.preview(agent, "hold_order", args("ord_1"))
	less := agent
	less.Tools = []string{"another_tool"}
	_, err = r.commit(less, "hold_order", p.Token)
	requireCode(t, err, fault.ToolNotGranted)
	require.Zero(t, r.count())
}

// TestCommit_ReplayOutlivesTokenAndKey: the first result is given after expiry,
// after a rotation, and with a preview that was swept away (matrix row 41).
func TestCommit_ReplayOutlivesTokenAndKey(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	p := r.preview(agent, "hold_order", args("ord_1"))
	unused := r.preview(agent, "hold_order", args("ord_2"))
	first := r.mustCommit(agent, "hold_order", p.Token)
	r.clock.Add(3 * time.Hour)
	require.NoError(t, r.previews.RunOnce(context.Background()))
	for range 3 {
		_, err := r.keys.Rotate(r.clock.Now())
		require.NoError(t, err)
		r.clock.Add(time.Hour)
	}
	again := r.mustCommit(agent, "hold_order", p.Token)
	require.True(t, again.Replayed)
	require.Equal(t, first.Operation.ID, again.Operation.ID)
	_, err := r.commit(agent, "hold_order", unused.Token)
	requireCode(t, err, fault.TokenExpired)

	_, err = r.keys.EmergencyRevoke(r.clock.Now())
	require.NoError(t, err)
	_, err = r.commit(agent, "hold_order", p.Token)
	requireCode(t, err, fault.TokenInvalid)
}

func TestCommit_LedgerGenerationVoidsTokens(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	p := r.preview(agent, "hold_order", args("ord_1"))
	_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Generation++ })
	require.NoError(t, err)
	_, err = r.commit(agent, "hold_order", p.Token)
	requireCode(t, err, fault.TokenInvalid)
	require.Zero(t, r.count())
}

func TestCommit_AlreadyDoneIsAdopted(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r := newRig(t, hold)
	p := r.preview(agent, "hold_order", args("ord_1"))
	tooltest.FakeOf(hold).SetDone(&tools.Done{EffectID: "hold_7"})
	res := r.mustCommit(agent, "hold_order", p.Token)
	require.Equal(t, ledger.Succeeded, res.Operation.State)
	require.True(t, res.Operation.Adopted)
	require.Equal(t, "hold_7", res.Operation.EffectID)
	require.Empty(t, res.Operation.Attempts)
	require.Empty(t, tooltest.FakeOf(hold).Requests())
	require.Equal(t, []ledger.Verb{"adopt"}, r.verbs(res.Operation.ID))
}

func TestPreview_KeySources(t *testing.T) {
	r := newRig(t,
		tooltest.FakeTool("by_caller", tooltest.KeyFrom(tools.KeyFromCaller)),
		tooltest.FakeTool("by_run", tooltest.KeyFrom(tools.KeyFromRun)),
		tooltest.FakeTool("by_args"),
		tooltest.FakeTool("in_run", tooltest.NeedsRun()),
		tooltest.FakeTool("look", tooltest.ReadOnly()),
	)
	ask := func(tool, key string, run *ledger.Run) (preview.Result, error) {
		return r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: tool, Args: args("ord_1"), IdempotencyKey: key, Run: run})
	}
	whole := &ledger.Run{ID: "r1", Step: "1", Call: "a"}
	for name, c := range map[string]struct {
		tool, key string
		run       *ledger.Run
		want      fault.Code
	}{
		"caller without a key": {tool: "by_caller", want: fault.IdempotencyKeyNeeded},
		"caller's key":         {tool: "by_caller", key: "order-1"},
		"reserved":             {tool: "by_caller", key: "undo:op_1", want: fault.IdempotencyKeyInvalid},
		"space":                {tool: "by_caller", key: "a b", want: fault.IdempotencyKeyInvalid},
		"redis tag":            {tool: "by_caller", key: "{t}:k", want: fault.IdempotencyKeyInvalid},
		"run without a run":    {tool: "by_run", want: fault.RunNeeded},
		"run without a call":   {tool: "by_run", run: &ledger.Run{ID: "r1", Step: "1"}, want: fault.RunNeeded},
		"run":                  {tool: "by_run", run: whole},
		"template, other key":  {tool: "by_args", key: "mine", want: fault.IdempotencyKeyMismatch},
		"template, same key":   {tool: "by_args", key: "by_args/ord_1"},
		"needs a run":          {tool: "in_run", want: fault.RunNeeded},
		"a read tool":          {tool: "look", want: fault.ToolAccess},
		"no such tool":         {tool: "nope", want: fault.ToolNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := ask(c.tool, c.key, c.run)
			if c.want != "" {
				requireCode(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, res.Token)
		})
	}
	one, err := ask("by_run", "", whole)
	require.NoError(t, err)
	two, err := ask("by_run", "", &ledger.Run{ID: "r1", Step: "1", Call: "b"})
	require.NoError(t, err)
	require.NotEqual(t, one.Preview.Key, two.Preview.Key)
}

func TestPreview_PossibleDuplicateIsSaid(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("by_caller", tooltest.KeyFrom(tools.KeyFromCaller)))
	ask := func(key string) preview.Result {
		res, err := r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "by_caller", Args: args("ord_1"), IdempotencyKey: key})
		require.NoError(t, err)
		return res
	}
	first := ask("k1")
	require.Empty(t, first.Preview.Plan.Warnings)
	r.mustCommit(agent, "by_caller", first.Token)
	second := ask("k2")
	require.Len(t, second.Preview.Plan.Warnings, 1)
	require.Equal(t, "possible_duplicate", second.Preview.Plan.Warnings[0].Code)
}

func TestPreview_Quota(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	signer, err := tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: r.keys, Now: r.clock.Now})
	require.NoError(t, err)
	r.previews = preview.New(preview.Config{Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: signer, Quota: 2})
	r.preview(agent, "hold_order", args("ord_1"))
	r.preview(agent, "hold_order", args("ord_2"))
	_, err = r.previews.Preview(context.Background(), previewRequest("hold_order", "ord_3"))
	requireCode(t, err, fault.QuotaExhausted)
	r.preview(other, "hold_order", args("ord_3")) // another agent's quota is its own
	r.clock.Add(5 * time.Minute)
	r.preview(agent, "hold_order", args("ord_3"))
}
