package measure_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// Planted secrets are in no line, no series and no span (S10, S75): the commit
// token, a sensitive argument, what the upstream answers, what people write, and
// the text of errors. The key and the ids are there (R134).
func TestSecrets(t *testing.T) {
	ctx := called(traceparent)
	const secret = "IBAN-planted-secret"
	r := newRig(t, tooltest.FakeTool("hold", tooltest.WithSensitive("note")),
		tooltest.FakeTool("pay", tooltest.WithSensitive("note"), tooltest.WithApproval(tooltest.Approve("finance", 1))))
	r.fakes["hold"].Script(
		tooltest.Step{Verdict: tools.Succeeded, Status: 201, Result: map[string]any{"iban": secret}, Because: secret},
		tooltest.Step{Verdict: tools.Unknown, Status: 502, Because: secret},
		tooltest.Step{Verdict: tools.NoEffect, Status: 422, Because: secret},
	)
	note := map[string]any{"note": secret, "amount": number(5)}
	var tokens []string
	var keys []string
	for i := range 3 {
		token := r.token("hold", fmt.Sprintf("o%d", i), note)
		tokens = append(tokens, token)
		keys = append(keys, r.commit(ctx, "hold", token).Key)
	}
	token := r.token("pay", "p1", note)
	tokens = append(tokens, token)
	op := r.commit(ctx, "pay", token)
	r.decide(op, "reject", secret)

	doubt, err := r.ledger.List(ctx, ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.Unknown}})
	require.NoError(t, err)
	require.Len(t, doubt.Operations, 1)
	_, err = r.ledger.Resolve(ctx, tenant, doubt.Operations[0].ID, ledger.Actor{Kind: "operator", ID: ann.ID, Name: secret}, ledger.Statement{Reason: secret})
	require.NoError(t, err)
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant, Tool: "hold"}, ledger.FreezeAll, ledger.Actor{Kind: "operator", ID: ann.ID}, secret)
	require.NoError(t, err)
	r.fakes["hold"].FailPreview(fault.Wrap(errors.New(secret), fault.UpstreamUnexpected, "%s", secret))
	tool, _ := r.registry.Get("hold")
	_, err = tool.Preview(ctx, tools.Call{Args: note})
	require.Error(t, err)
	_, err = r.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "pay", Token: secret, Args: note})
	require.Error(t, err)

	families, err := r.metrics.Gather()
	require.NoError(t, err)
	series := ""
	for _, f := range families {
		series += f.String() + "\n"
	}
	spans := text(t, r.flush())
	for where, all := range map[string]string{"lines": r.lines.String(), "series": series, "spans": spans} {
		require.NotEmpty(t, all, where)
		require.NotContains(t, all, secret, where)
		for _, token := range tokens {
			require.NotContains(t, all, token, where)
		}
	}
	for _, key := range keys {
		require.Contains(t, r.lines.String(), key)
		require.Contains(t, spans, key)
		require.NotContains(t, series, key, "keys are no labels")
	}
}
