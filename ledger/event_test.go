package ledger_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

// TestEvents_TextOfAnyBytes: a reason that is not UTF-8 does not break the
// chain when it is read back.
func TestEvents_TextOfAnyBytes(t *testing.T) {
	ctx := context.Background()
	l, s := newForgetful(t)
	r := request(t, l, s, "k")
	r.Requirement = ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{"any": 1}, Expiry: 1 << 40}
	op, _, err := l.OpenOperation(ctx, r)
	require.NoError(t, err)
	_, err = l.Reject(ctx, op, ledger.Decision{Operation: op.ID, Round: 1, Person: "per_1", Name: "b\xffb", Verb: ledger.VerbReject, Reason: "no\xff\xfe", At: l.Now()})
	require.NoError(t, err)
	events, err := l.Events(ctx, "default", op.ID)
	require.NoError(t, err)
	prev := ""
	for _, e := range events {
		require.True(t, e.Intact(prev), "%+v", e)
		prev = e.Hash
	}
}
