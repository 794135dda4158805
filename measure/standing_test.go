package measure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/measure"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// A gateway that has seen nothing shows counts of zero, and no share and no age
// of anything (R148).
func TestStanding_NothingMeasured(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold", tooltest.WithLookup(tools.Strong)), tooltest.FakeTool("blind"))
	require.EqualValues(t, 1, r.value("store_up"))
	for _, name := range []string{
		"confirmed_effect_keys", "duplicate_effect_keys", "reconciliations_entered", "reconciliations_succeeded", "operations_on_list",
	} {
		require.Zero(t, r.value(name, "tenant", tenant), name)
	}
	for _, state := range ledger.States {
		require.Zero(t, r.value("operations", "tenant", tenant, "state", string(state)))
	}
	for _, name := range []string{
		"duplicate_effect_rate", "reconciliation_success_rate", "unknown_state_age_seconds", "approval_oldest_wait_seconds", "checkpoint_age_seconds",
	} {
		r.absent(name)
	}
	// What an alert watches the increase of is there before it counts.
	require.Zero(t, r.value("undo_failures_total", "tool", "hold"))
	require.Zero(t, r.value("lookups_total", "tool", "hold", "answer", "failed"))
	r.absent("lookups_total", "tool", "blind", "answer", "failed") // it can't be asked
	require.Zero(t, r.value("token_refusals_total", "code", "token_expired"))
}

// The three measures of doubt on a history of which each part is known
// (R142 to R144).
func TestStanding_Rates(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold"), tooltest.FakeTool("other"))
	doubtful := func(order string) ledger.Operation {
		r.fakes["hold"].Script(tooltest.LoseReply())
		op := r.do(ctx, "hold", order)
		require.Equal(t, ledger.Unknown, op.State)
		return op
	}
	plain := r.do(ctx, "hold", "o1")
	require.Equal(t, ledger.Succeeded, plain.State)
	r.fakes["hold"].Script(tooltest.Reject("closed"))
	require.Equal(t, ledger.Failed, r.do(ctx, "hold", "o0").State) // no effect: in no denominator

	byLookup, byPerson, stays, wrong := doubtful("o2"), doubtful("o3"), doubtful("o4"), doubtful("o5")
	r.pass(10 * time.Second)
	require.Equal(t, ledger.Succeeded, r.found(byLookup, tools.Succeeded, "eff_b").State)
	_, err := r.ledger.Resolve(ctx, tenant, byPerson.ID, ledger.Actor{Kind: "operator", ID: ann.ID}, ledger.Statement{Happened: true, EffectID: "eff_c", Reason: "seen in the books"})
	require.NoError(t, err)

	// Three keys have a confirmed effect, none two; one of four doubts was brought
	// to its end by the reconciler.
	require.EqualValues(t, 3, r.value("confirmed_effect_keys"))
	require.Zero(t, r.value("duplicate_effect_keys"))
	require.Zero(t, r.value("duplicate_effect_rate"), "none of three is a measured zero")
	require.EqualValues(t, 4, r.value("reconciliations_entered"))
	require.EqualValues(t, 1, r.value("reconciliations_succeeded"))
	require.InDelta(t, 0.25, r.value("reconciliation_success_rate"), 1e-9)
	require.EqualValues(t, 2, r.value("operations", "state", "unknown"))

	// A second effect id under one key is a duplicate, once; the tool is frozen.
	for range 2 {
		r.found(plain, tools.Succeeded, "eff_second")
	}
	require.EqualValues(t, 3, r.value("confirmed_effect_keys"))
	require.EqualValues(t, 1, r.value("duplicate_effect_keys"))
	require.InDelta(t, 1.0/3, r.value("duplicate_effect_rate"), 1e-9)
	require.EqualValues(t, 1, r.value("tool_frozen", "tool", "hold"))
	require.Zero(t, r.value("tool_frozen", "tool", "other"))
	require.EqualValues(t, 1, r.value("freezes_in_force", "scope", "tool", "level", "all"))
	require.Zero(t, r.value("freezes_in_force", "scope", "tenant", "level", "all"))

	// One that was thought failed and did happen after all ends its doubt again.
	r.found(wrong, tools.NoEffect, "")
	r.pass(80 * time.Second)
	r.found(wrong, tools.Succeeded, "eff_e")
	r.found(stays, tools.Succeeded, "eff_d")
	r.absent("unknown_state_age_seconds")

	// Each end of a doubt told its age, from the first time in unknown, and who
	// ended it.
	for settled, want := range map[string]struct {
		n   uint64
		sum float64
	}{"reconciled": {n: 4, sum: 10 + 10 + 90 + 90}, "elsewhere": {n: 1, sum: 10}} {
		s, ok := r.sampleOf("unknown_state_settled_age_seconds", "tool", "hold", "settled", settled)
		require.True(t, ok, settled)
		require.Equal(t, want.n, s.metric.Histogram.GetSampleCount(), settled)
		require.InDelta(t, want.sum, s.value(), 1e-9, settled)
	}
}

// The age counts from the first time in unknown (R143): a retry in between makes
// no doubt younger.
func TestStanding_AgeSinceTheFirstDoubt(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold"))
	r.fakes["hold"].Script(tooltest.LoseReply())
	op := r.do(ctx, "hold", "o1")
	r.pass(time.Minute)
	guard, err := r.ledger.Guard(ctx, tenant)
	require.NoError(t, err)
	op, err = r.ledger.Retry(ctx, op, ledger.RetryRequest{Epoch: guard.Epoch, Timeout: time.Second, NotAfter: r.Now().Add(time.Hour), Why: "test"})
	require.NoError(t, err)
	r.absent("unknown_state_age_seconds") // it is being sent again
	r.pass(time.Second)
	op, err = r.ledger.Conclude(ctx, op, tools.Outcome{Verdict: tools.Unknown, Because: "lost again"})
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, op.State)
	r.pass(30 * time.Second)
	require.EqualValues(t, 91, r.value("unknown_state_age_seconds", "tenant", tenant))
	require.EqualValues(t, 1, r.value("reconciliations_entered"), "one operation, however often it was in doubt")
	require.EqualValues(t, 1, r.value("transitions_total", "verb", "retry", "from", "unknown", "to", "running"))
}

// Freezes are told by their scope, and a freeze of everything holds each tool.
func TestStanding_Freezes(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold"), tooltest.FakeTool("other"))
	by := ledger.Actor{Kind: "operator", ID: ann.ID}
	_, err := r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeNew, by, "looking")
	require.NoError(t, err)
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Everything: true}, ledger.FreezeAll, by, "looking")
	require.NoError(t, err)
	for scope, want := range map[[2]string]float64{
		{"tool", "new"}: 0, {"tool", "all"}: 0, {"tenant", "new"}: 1, {"tenant", "all"}: 0, {"everything", "new"}: 0, {"everything", "all"}: 1,
	} {
		require.Equal(t, want, r.value("freezes_in_force", "scope", scope[0], "level", scope[1]), scope)
	}
	require.EqualValues(t, 1, r.value("tool_frozen", "tool", "hold"))
	require.EqualValues(t, 1, r.value("tool_frozen", "tool", "other"))
}

// The oldest that waits for people is told, and the newest checkpoint.
func TestStanding_Ages(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("pay", tooltest.WithApproval(tooltest.Approve("finance", 1))))
	r.do(ctx, "pay", "o1")
	r.pass(time.Minute)
	r.do(ctx, "pay", "o2")
	r.pass(time.Minute)
	require.EqualValues(t, 120, r.value("approval_oldest_wait_seconds", "tenant", tenant))
	require.EqualValues(t, 2, r.value("operations", "state", "awaiting_approval"))

	require.NoError(t, r.db.Seal(ctx, checkpoint(r)))
	r.pass(45 * time.Second)
	require.EqualValues(t, 45, r.value("checkpoint_age_seconds"))
	require.EqualValues(t, 1, r.value("checkpoints"))
}

func checkpoint(r *rig) ledger.Checkpoint {
	c := ledger.Checkpoint{N: 1, Ledger: r.ledger.ID(), At: r.Now(), Seq: 1}
	c.Hash = c.Digest()
	return c
}

// When the store is away that is what is said, and nothing that only it knows.
func TestStanding_StoreAway(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	r.do(context.Background(), "hold", "o1")
	require.EqualValues(t, 1, r.value("store_up"))
	require.NoError(t, r.db.Close())
	r.pass(time.Minute)
	require.Zero(t, r.value("store_up"))
	for _, name := range []string{
		"operations", "operations_on_list", "confirmed_effect_keys", "duplicate_effect_rate", "freezes_in_force", "tool_frozen", "reconciliations_entered", "checkpoints",
	} {
		r.absent(name, "tenant", tenant)
	}
	require.EqualValues(t, 1, r.value("commits_total", "tool", "hold"), "what this process counted is still told")
}

// counting counts readings of checkpoints, which stand for readings of the store,
// and fails while told to.
type counting struct {
	n    int
	fail bool
}

func (c *counting) read(context.Context) (ledger.Checkpoint, error) {
	c.n++
	if c.fail {
		return ledger.Checkpoint{}, errors.New("away")
	}
	return ledger.Checkpoint{}, nil
}

// What was read answers scrapes for some seconds; a failure is not kept.
func TestStanding_Kept(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	c := &counting{}
	m := measure.New(measure.Config{Registry: r.registry, Version: "v", Now: r.Now})
	m.Read(measure.Source{Reader: r.ledger.Reader, Tenants: []string{tenant}, Checkpoint: c.read})
	scrape := func() {
		_, err := m.Gather()
		require.NoError(t, err)
	}
	scrape()
	scrape()
	require.Equal(t, 1, c.n)
	r.pass(5 * time.Second)
	scrape()
	require.Equal(t, 2, c.n)
	c.fail = true
	r.pass(5 * time.Second)
	scrape()
	c.fail = false
	scrape()
	require.Equal(t, 4, c.n, "after a failure the next scrape asks again")
	r.pass(-time.Hour) // a clock that was set back
	scrape()
	require.Equal(t, 5, c.n)
}
