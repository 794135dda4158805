package ledger_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
)

// TestOpen_OutcomeThatNoRuleKnows: a requirement with a word that this program
// does not know denies (I20).
func TestOpen_OutcomeThatNoRuleKnows(t *testing.T) {
	ctx := context.Background()
	for _, word := range []string{"", "approve_twice"} {
		l, s := newForgetful(t)
		r := request(t, l, s, "k")
		r.Requirement.Outcome = word
		_, _, err := l.OpenOperation(ctx, r)
		require.True(t, fault.Is(err, fault.PolicyDenied), "%v", err)
		page, err := l.List(ctx, ledger.Filter{Tenant: "default"})
		require.NoError(t, err)
		require.Empty(t, page.Operations)
	}
}
