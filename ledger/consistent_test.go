package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// waiting is an operation that people said yes to.
func (r *rig) waiting(key string) ledger.Operation {
	r.t.Helper()
	op := r.born(r.ask(key, asks))
	op, err := r.Approve(r.ctx, op, ledger.Decision{Operation: op.ID, Round: 1, Person: person.ID, Verb: ledger.VerbApprove, At: r.Now()}, true)
	require.NoError(r.t, err)
	require.Equal(r.t, ledger.Pending, op.State)
	return op
}

// TestConsistent_RowsThatClaimWhatIsNotProven: whoever asks for one, a row that
// claims a success without an effect is not written, in none of the three writes
// that could bring it about (I8).
func TestConsistent_RowsThatClaimWhatIsNotProven(t *testing.T) {
	t.Run("adopted without an effect id", func(t *testing.T) {
		r := newRig(t)
		op := r.waiting("k")
		_, err := r.Adopt(r.ctx, op, tools.Done{})
		require.True(t, fault.Is(err, fault.Internal), "%v", err)
		require.Equal(t, op, r.read(op))
		evidence, err := r.Evidence(r.ctx, tenant, op.ID)
		require.NoError(t, err)
		require.Empty(t, evidence)
	})
	t.Run("born done without an effect id", func(t *testing.T) {
		r := newRig(t)
		_, opened, err := r.OpenOperation(r.ctx, r.ask("k", func(q *ledger.OpenRequest) { q.Done = &tools.Done{} }))
		require.True(t, fault.Is(err, fault.Internal), "%v", err)
		require.False(t, opened)
		page, err := r.List(r.ctx, ledger.Filter{Tenant: tenant})
		require.NoError(t, err)
		require.Empty(t, page.Operations)
	})
	t.Run("taken back without an effect id", func(t *testing.T) {
		r := newRig(t)
		parent := r.done("k")
		damaged := parent
		damaged.EffectID = ""
		_, opened, err := r.OpenOperation(r.ctx, r.undo(parent, func(q *ledger.OpenRequest) { q.Parent = &damaged }))
		require.True(t, fault.Is(err, fault.Internal), "%v", err)
		require.False(t, opened)
		require.Equal(t, parent, r.read(parent))
	})
}

// TestMark_AfterAYesWasTakenBack: an approved operation whose yes was taken back
// gets no mark, whoever asks for it (I12).
func TestMark_AfterAYesWasTakenBack(t *testing.T) {
	r := newRig(t)
	op := r.waiting("k")
	op, err := r.Withdraw(r.ctx, op, ledger.Decision{Operation: op.ID, Round: 1, Person: person.ID, Verb: ledger.VerbWithdraw, At: r.Now()})
	require.NoError(t, err)
	require.True(t, op.Withdrawn)
	_, err = r.Mark(r.ctx, op, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
	require.True(t, fault.Is(err, fault.InvalidState), "%v", err)
	require.Equal(t, op, r.read(op))
}

// TestStand_AgainOfAnother: a wanted repeat is of what stands under its key, not of
// an operation elsewhere, and not where there is none.
func TestStand_AgainOfAnother(t *testing.T) {
	stands := ledger.Operation{ID: "op_1", State: ledger.Succeeded, ArgsDigest: "d", Generation: 1}
	for name, head := range map[string]ledger.Head{"another stands": {Operation: stands}, "none stands": {}} {
		_, err := ledger.Stand(head, "d", "op_2")
		require.True(t, fault.Is(err, fault.AgainOfInvalid), "%s: %v", name, err)
	}
	s, err := ledger.Stand(ledger.Head{Operation: stands}, "d", "op_1")
	require.NoError(t, err)
	require.Equal(t, ledger.Standing{Advice: ledger.AdviceOpen, Generation: 2, Asks: true}, s)
}

// TestConclude_UnsentIsBounded: what can't be sent is tried again a bounded number
// of times, and then has failed (I21).
func TestConclude_UnsentIsBounded(t *testing.T) {
	r := newRig(t)
	op := r.born(r.ask("k", nil))
	for n := 1; n < ledger.MaxUnsent; n++ {
		op = r.concluded(op, tools.Outcome{Verdict: tools.NotSent})
		require.Equal(t, ledger.Pending, op.State)
		next, err := r.Mark(r.ctx, op, ledger.MarkRequest{Epoch: r.epoch(), Timeout: time.Second})
		require.NoError(t, err)
		op = next
	}
	op = r.concluded(op, tools.Outcome{Verdict: tools.NotSent})
	require.Equal(t, ledger.Failed, op.State)
	require.Len(t, op.Attempts, ledger.MaxUnsent)
}
