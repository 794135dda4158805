package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// TestUnfreeze_EverythingMeetsNewTenants: a freeze of everything is lifted in all
// tenants at once, also in one that appears while it is being lifted.
func TestUnfreeze_EverythingMeetsNewTenants(t *testing.T) {
	everything := ledger.Scope{Everything: true}
	for at := range 12 {
		t.Run(fmt.Sprint("call ", at), func(t *testing.T) {
			r := newRig(t)
			r.touch("a", "b")
			_, err := r.Freeze(r.ctx, everything, ledger.FreezeAll, person, "stop")
			require.NoError(t, err)
			truly := r.store.Store
			n := 0
			r.store.Store = &interrupted{Store: truly, call: func() {
				if n++; n == at+1 {
					r.store.Store = truly
					r.touch("new")
				}
			}}
			require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: everything, By: person, Reason: "over"}))
			r.store.Store = truly
			r.touch("new")
			for _, name := range []string{"a", "b", "new"} {
				require.Empty(t, r.guard(name).Freezes, name)
				r.intact(name)
			}
		})
	}
}

// TestUnfreeze_EverythingLeavesOthers: what else stands in a tenant that appeared
// meanwhile stays.
func TestUnfreeze_EverythingLeavesOthers(t *testing.T) {
	everything := ledger.Scope{Everything: true}
	r := newRig(t)
	r.touch("a", "b")
	_, err := r.Freeze(r.ctx, everything, ledger.FreezeAll, person, "stop")
	require.NoError(t, err)
	truly := r.store.Store
	n := 0
	r.store.Store = &interrupted{Store: truly, call: func() {
		if n++; n == 6 {
			r.store.Store = truly
			r.touch("new")
			_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: "new"}, ledger.FreezeAll, person, "its own")
			require.NoError(t, err)
		}
	}}
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: everything, By: person, Reason: "over"}))
	require.GreaterOrEqual(t, n, 6)
	require.Len(t, r.guard("new").Freezes, 1)
	require.Equal(t, "its own", r.guard("new").Freezes[0].Reason)
}
