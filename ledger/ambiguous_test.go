package ledger_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

// forgetful is a real store whose answers get lost: for the next writes it
// applies or drops them as told, and says that it can't tell.
type forgetful struct {
	ledger.Store
	// script tells for each coming write whether it is applied before its answer
	// is lost. An empty script answers truly.
	script []bool
}

var errLost = errors.New("the connection was cut")

func (f *forgetful) write(apply func() error) error {
	if len(f.script) == 0 {
		return apply()
	}
	applied := f.script[0]
	f.script = f.script[1:]
	if applied {
		if err := apply(); err != nil {
			return err
		}
	}
	return &ledger.Ambiguous{Err: errLost}
}

func (f *forgetful) Open(ctx context.Context, o ledger.Opening) error {
	return f.write(func() error { return f.Store.Open(ctx, o) })
}

func (f *forgetful) Apply(ctx context.Context, t ledger.Transition) error {
	return f.write(func() error { return f.Store.Apply(ctx, t) })
}

func (f *forgetful) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	return f.write(func() error { return f.Store.AddEvidence(ctx, tenant, e) })
}

func (f *forgetful) ChangeGuard(ctx context.Context, c ledger.GuardChange) (marked []ledger.Operation, err error) {
	err = f.write(func() error {
		marked, err = f.Store.ChangeGuard(ctx, c)
		return err
	})
	return marked, err
}

func newForgetful(t *testing.T) (*ledger.Ledger, *forgetful) {
	t.Helper()
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := &forgetful{Store: db}
	l, err := ledger.Open(context.Background(), ledger.Config{Store: store})
	require.NoError(t, err)
	return l, store
}

// request opens a running operation under a key.
func request(t *testing.T, l *ledger.Ledger, s *forgetful, key string) ledger.OpenRequest {
	t.Helper()
	plan := tools.Plan{Encoding: 1, Tool: "hold_order", Key: tools.Key{Value: key, Generation: 1, Upstream: "u-" + key}, Args: map[string]any{}, Wire: []byte(`{}`)}
	p := ledger.Preview{
		ID: ledger.NewID("prv_"), Tenant: "default", Agent: "agt_1", Tool: "hold_order", ToolVersion: "v1", Key: key, Generation: 1,
		ArgsDigest: "sha256:a", PlanDigest: plan.Digest(), Plan: plan, CreatedAt: l.Now(), ExpiresAt: l.Now().Add(time.Minute),
	}
	require.NoError(t, s.PutPreview(context.Background(), p))
	return ledger.OpenRequest{
		Preview: p, Agent: tools.Agent{ID: "agt_1", Tenant: "default"}, TokenID: "jti", RequestID: "req",
		Requirement: ledger.Requirement{Outcome: tools.OutcomeAuto}, Manifest: ledger.Manifest{Version: "v1", Text: []byte("x")}, Timeout: time.Second,
	}
}

// TestAmbiguous_Open: an open whose answer was lost is found by its write id;
// one that never arrived is written again; one that stays unclear is never
// called opened (matrix row 13).
func TestAmbiguous_Open(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		script []bool
		unsure bool
	}{
		"applied, answer lost":        {script: []bool{true}},
		"never arrived":               {script: []bool{false}},
		"never arrived, then lost":    {script: []bool{false, true}},
		"the store can't tell at all": {script: []bool{false, false, false, false}, unsure: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newForgetful(t)
			r := request(t, l, s, "k")
			s.script = c.script
			op, opened, err := l.OpenOperation(ctx, r)
			page, lerr := l.List(ctx, ledger.Filter{Tenant: "default"})
			require.NoError(t, lerr)
			if c.unsure {
				require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
				require.False(t, opened)
				require.Empty(t, page.Operations)
				return
			}
			require.NoError(t, err)
			require.True(t, opened)
			require.Len(t, page.Operations, 1)
			require.Equal(t, op.ID, page.Operations[0].ID)
			events, err := l.Events(ctx, "default", op.ID)
			require.NoError(t, err)
			require.Len(t, events, 1)
		})
	}
}

// TestAmbiguous_Conclude: an outcome whose answer was lost is written once.
func TestAmbiguous_Conclude(t *testing.T) {
	ctx := context.Background()
	for name, script := range map[string][]bool{"applied": {true}, "never arrived": {false}, "both": {false, true}} {
		t.Run(name, func(t *testing.T) {
			l, s := newForgetful(t)
			op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
			require.NoError(t, err)
			s.script = script
			op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e1"})
			require.NoError(t, err)
			require.Equal(t, ledger.Succeeded, op.State)
			evidence, err := l.Evidence(ctx, "default", op.ID)
			require.NoError(t, err)
			require.Len(t, evidence, 1)
			events, err := l.Events(ctx, "default", op.ID)
			require.NoError(t, err)
			require.Len(t, events, 2)
		})
	}
}

// TestAmbiguous_Mark: a mark that the store never confirmed is no mark; the
// caller must not send.
func TestAmbiguous_Mark(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.NotSent})
	require.NoError(t, err)
	require.Equal(t, ledger.Pending, op.State)
	s.script = []bool{false, false, false, false}
	_, err = l.Mark(ctx, op, ledger.MarkRequest{Timeout: time.Second})
	require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
	cur, err := l.Operation(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Pending, cur.State)

	s.script = []bool{true}
	marked, err := l.Mark(ctx, op, ledger.MarkRequest{Timeout: time.Second})
	require.NoError(t, err, "a mark that is provably mine is mine")
	require.EqualValues(t, 2, marked.Fence)
	_, err = l.Mark(ctx, op, ledger.MarkRequest{Timeout: time.Second})
	var lost *ledger.Lost
	require.ErrorAs(t, err, &lost)
}

// TestAmbiguous_Evidence: evidence is never lost and never kept twice.
func TestAmbiguous_Evidence(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	op, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown})
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, op.State)
	s.script = []bool{true, false}
	op, err = l.AddEvidence(ctx, "default", ledger.Evidence{ID: "evd_1", Operation: op.ID, Attempt: 1, Kind: "response", Verdict: tools.Succeeded, EffectID: "e1", At: l.Now()})
	require.NoError(t, err)
	require.Equal(t, ledger.Succeeded, op.State)
	evidence, err := l.Evidence(ctx, "default", op.ID)
	require.NoError(t, err)
	require.Len(t, evidence, 2)
}

// TestAmbiguous_Freeze: a freeze whose answer was lost is in force once it is
// acknowledged, and stands once.
func TestAmbiguous_Freeze(t *testing.T) {
	ctx := context.Background()
	for name, script := range map[string][]bool{"applied": {true}, "never arrived": {false, false}} {
		t.Run(name, func(t *testing.T) {
			l, s := newForgetful(t)
			r := request(t, l, s, "k")
			s.script = script
			_, err := l.Freeze(ctx, ledger.Scope{Tenant: "default", Tool: ""}, ledger.FreezeNew, ledger.Gateway("test"), "stop")
			require.NoError(t, err)
			g, err := l.Guard(ctx, "default")
			require.NoError(t, err)
			require.Len(t, g.Freezes, 1)
			_, _, err = l.OpenOperation(ctx, r)
			require.ErrorIs(t, err, ledger.ErrMoved, "an open that evaluated the row before the freeze does not commit")
		})
	}
}

// TestEffects_TwoForOneOperation: a second effect id for one operation freezes
// the tool at once (I4).
func TestEffects_TwoForOneOperation(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	op, _, err := l.OpenOperation(ctx, request(t, l, s, "k"))
	require.NoError(t, err)
	_, err = l.Conclude(ctx, op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e1"})
	require.NoError(t, err)
	for _, id := range []string{"e1", "e2"} {
		_, err = l.AddEvidence(ctx, "default", ledger.Evidence{ID: "evd_" + id, Operation: op.ID, Attempt: 1, Kind: "lookup", Verdict: tools.Succeeded, EffectID: id, At: l.Now()})
		require.NoError(t, err)
		g, err := l.Guard(ctx, "default")
		require.NoError(t, err)
		_, frozen := g.Frozen("hold_order")
		require.Equal(t, id == "e2", frozen)
	}
}

// TestAmbiguous_LastAnswerIsLookedForToo: the write that made it at the last
// try is found, and the operation is sent.
func TestAmbiguous_LastAnswerIsLookedForToo(t *testing.T) {
	l, s := newForgetful(t)
	r := request(t, l, s, "k")
	s.script = []bool{false, false, false, true}
	op, opened, err := l.OpenOperation(context.Background(), r)
	require.NoError(t, err)
	require.True(t, opened)
	require.Equal(t, ledger.Running, op.State)
}

// gone is a store that can't be reached any more.
type gone struct{ ledger.Store }

func (gone) Open(context.Context, ledger.Opening) error { return errLost }

func (gone) ByWrite(context.Context, string) (ledger.Operation, error) {
	return ledger.Operation{}, errLost
}

// TestAmbiguous_ThenGone: a store that can't be reached after an answer was lost
// does not make the write undone; nobody is told that nothing was changed.
func TestAmbiguous_ThenGone(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	r := request(t, l, s, "k")
	truly := s.Store
	s.Store = leaving{truly, s}
	_, _, err := l.OpenOperation(ctx, r)
	require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
	s.Store = truly
	page, err := l.List(ctx, ledger.Filter{Tenant: "default"})
	require.NoError(t, err)
	require.Len(t, page.Operations, 1)
}

// leaving applies one write, loses its answer and is gone from then on.
type leaving struct {
	ledger.Store
	s *forgetful
}

func (l leaving) Open(ctx context.Context, o ledger.Opening) error {
	if err := l.Store.Open(ctx, o); err != nil {
		return err
	}
	l.s.Store = gone{l.Store}
	return &ledger.Ambiguous{Err: errLost}
}
