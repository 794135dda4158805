package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/approvals/policy"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

func spec(rules ...tools.ApprovalRule) *tools.Spec {
	return &tools.Spec{Version: "v1", Approval: rules, ApprovalExpiry: time.Hour, ApprovalMaxAge: 10 * time.Minute}
}

func euros(n int64) tools.Plan {
	return tools.Plan{Effects: []tools.Effect{{Money: &tools.Money{Amount: n, Currency: "EUR"}}}}
}

func TestEvaluate(t *testing.T) {
	broken := tools.ApprovalRule{Outcome: tools.OutcomeAuto, Match: func(map[string]any, []tools.Effect, tools.Agent) (bool, error) {
		return false, errors.New("no such field")
	}}
	for name, c := range map[string]struct {
		rules   []tools.ApprovalRule
		amount  int64
		outcome string
		groups  map[string]int
	}{
		"first match speaks":        {rules: []tools.ApprovalRule{tooltest.ApproveAbove(500, "finance", 2), tooltest.Approve("support", 1)}, amount: 501, outcome: "approve", groups: map[string]int{"finance": 2}},
		"the limit itself is below": {rules: []tools.ApprovalRule{tooltest.ApproveAbove(500, "finance", 2), tooltest.Approve("support", 1)}, amount: 500, outcome: "approve", groups: map[string]int{"support": 1}},
		"auto":                      {rules: []tools.ApprovalRule{tooltest.Auto()}, outcome: "auto"},
		"deny":                      {rules: []tools.ApprovalRule{tooltest.Deny("never")}, outcome: "deny"},
		"no rule at all denies":     {outcome: "deny"},
		"no match denies":           {rules: []tools.ApprovalRule{tooltest.ApproveAbove(500, "finance", 2)}, amount: 1, outcome: "deny"},
		"an error denies":           {rules: []tools.ApprovalRule{broken, tooltest.Auto()}, outcome: "deny"},
		"nobody to ask denies":      {rules: []tools.ApprovalRule{{Outcome: tools.OutcomeApprove, Match: tooltest.Auto().Match}}, outcome: "deny"},
		"a quorum of none denies":   {rules: []tools.ApprovalRule{tooltest.Approve("support", 0)}, outcome: "deny"},
		"an unknown word denies":    {rules: []tools.ApprovalRule{{Outcome: "maybe", Match: tooltest.Auto().Match}}, outcome: "deny"},
	} {
		t.Run(name, func(t *testing.T) {
			req := policy.Evaluate(spec(c.rules...), euros(c.amount))
			require.Equal(t, c.outcome, req.Outcome)
			require.Equal(t, c.groups, req.Groups)
			require.NotEmpty(t, req.Rule)
			require.Equal(t, time.Hour, req.Expiry)
		})
	}
}

var groupNames = []string{"finance", "support", "legal", tools.AnyGroup}

func genGroups() *rapid.Generator[map[string]int] {
	return rapid.MapOfN(rapid.SampledFrom(groupNames), rapid.IntRange(1, 3), 1, 3)
}

func genPeople() *rapid.Generator[[]policy.Person] {
	return rapid.Custom(func(t *rapid.T) []policy.Person {
		n := rapid.IntRange(0, 6).Draw(t, "people")
		out := make([]policy.Person, n)
		for i := range out {
			out[i] = policy.Person{
				ID:     fmt.Sprintf("per_%d", rapid.IntRange(0, 5).Draw(t, "id")),
				Groups: rapid.SliceOfNDistinct(rapid.SampledFrom(groupNames[:3]), 0, 3, rapid.ID[string]).Draw(t, "groups"),
			}
		}
		return out
	})
}

// seats tries every assignment; the slow truth that Full is held against.
func seats(groups map[string]int, people []policy.Person) bool {
	if len(groups) == 0 {
		return true
	}
	for g, n := range groups {
		for i, p := range people {
			if g != tools.AnyGroup && !slices.Contains(p.Groups, g) {
				continue
			}
			rest := map[string]int{}
			for k, v := range groups {
				rest[k] = v
			}
			if rest[g] = n - 1; rest[g] == 0 {
				delete(rest, g)
			}
			others := append(slices.Clone(people[:i]), people[i+1:]...)
			if seats(rest, others) {
				return true
			}
		}
		return false
	}
	return true
}

// TestFull_MatchesEveryAssignment: a person counts once, for one place, and the
// order of yeses never decides.
func TestFull_MatchesEveryAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, people := genGroups().Draw(t, "groups"), genPeople().Draw(t, "yes")
		var distinct []policy.Person
		for _, p := range people {
			if !slices.ContainsFunc(distinct, func(o policy.Person) bool { return o.ID == p.ID }) {
				distinct = append(distinct, p)
			}
		}
		want := seats(groups, distinct)
		require.Equal(t, want, policy.Full(groups, people))
		slices.Reverse(distinct)
		require.Equal(t, want, policy.Full(groups, distinct))
	})
}

func TestFull_NobodyIsNoQuorum(t *testing.T) {
	require.False(t, policy.Full(nil, []policy.Person{{ID: "a"}}))
	require.False(t, policy.Full(map[string]int{"finance": 0}, []policy.Person{{ID: "a"}}))
}

func genRequirement() *rapid.Generator[ledger.Requirement] {
	return rapid.Custom(func(t *rapid.T) ledger.Requirement {
		r := ledger.Requirement{
			Outcome: rapid.SampledFrom([]string{"auto", "approve", "deny"}).Draw(t, "outcome"),
			Expiry:  time.Duration(rapid.IntRange(1, 5).Draw(t, "expiry")) * time.Minute,
			MaxAge:  time.Duration(rapid.IntRange(1, 5).Draw(t, "age")) * time.Minute,
		}
		if r.Asks() {
			r.Groups = genGroups().Draw(t, "groups")
		}
		return r
	})
}

func TestStricter_IsAsStrictAsBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRequirement().Draw(t, "a"), genRequirement().Draw(t, "b")
		both := policy.Stricter(a, b)
		require.True(t, policy.AsStrict(both, a))
		require.True(t, policy.AsStrict(both, b))
		require.Equal(t, min(a.Expiry, b.Expiry), both.Expiry)
		require.Equal(t, min(a.MaxAge, b.MaxAge), both.MaxAge)
		other := policy.Stricter(b, a)
		require.Equal(t, both.Outcome, other.Outcome)
		require.Equal(t, both.Groups, other.Groups)
	})
}

func TestEligible(t *testing.T) {
	op := ledger.Operation{
		Agent:       tools.Agent{ID: "agt_1", Owner: "per_owner"},
		Requirement: ledger.Requirement{Outcome: "approve", Groups: map[string]int{"finance": 1}},
	}
	for name, c := range map[string]struct {
		p  policy.Person
		ok bool
	}{
		"in the group":            {p: policy.Person{ID: "per_a", Groups: []string{"finance"}}, ok: true},
		"in another":              {p: policy.Person{ID: "per_a", Groups: []string{"support"}}},
		"in none":                 {p: policy.Person{ID: "per_a"}},
		"disabled":                {p: policy.Person{ID: "per_a", Groups: []string{"finance"}, Disabled: true}},
		"the agent's owner":       {p: policy.Person{ID: "per_owner", Groups: []string{"finance"}}},
		"the agent itself":        {p: policy.Person{ID: "agt_1", Groups: []string{"finance"}}},
		"a group of another case": {p: policy.Person{ID: "per_a", Groups: []string{"Finance"}}},
	} {
		t.Run(name, func(t *testing.T) {
			ok, why := policy.Eligible(op, c.p)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.ok, why == "")
		})
	}
	op.Requirement.Groups = map[string]int{tools.AnyGroup: 1}
	ok, _ := policy.Eligible(op, policy.Person{ID: "per_a"})
	require.True(t, ok)
	op.Requirement.Groups = nil
	ok, _ = policy.Eligible(op, policy.Person{ID: "per_a", Groups: []string{"finance"}})
	require.False(t, ok, "an empty approver set has no approvers")
}

// TestShownDigest_EachField: one field changed alone is another digest (S33).
func TestShownDigest_EachField(t *testing.T) {
	op := ledger.Operation{
		ID: "op_1", Tenant: "default", Tool: "refund_payment", ToolVersion: "v1", Generation: 1, Round: 1,
		ArgsDigest: "sha256:a", Reversible: false, ExpiresAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Requirement: ledger.Requirement{Outcome: "approve", Groups: map[string]int{"finance": 2}, Digest: "sha256:p"},
	}
	plan := tools.Plan{Tool: "refund_payment", Target: "POST http://shop/refunds", Args: map[string]any{"amount": "1"}, Headline: "Refund", Wire: []byte(`{"body":"x"}`)}
	base := policy.ShownDigest(op, plan)
	require.Equal(t, base, policy.ShownDigest(op, plan))
	seen := map[string]string{base: "nothing"}
	changed := func(name string, o ledger.Operation, p tools.Plan) {
		d := policy.ShownDigest(o, p)
		require.NotContains(t, seen, d, "%s gives the digest of %s", name, seen[d])
		seen[d] = name
	}
	for name, f := range map[string]func(*ledger.Operation){
		"id": func(o *ledger.Operation) { o.ID = "op_2" }, "tenant": func(o *ledger.Operation) { o.Tenant = "t" },
		"tool": func(o *ledger.Operation) { o.Tool = "x" }, "version": func(o *ledger.Operation) { o.ToolVersion = "v2" },
		"generation": func(o *ledger.Operation) { o.Generation = 2 }, "round": func(o *ledger.Operation) { o.Round = 3 },
		"args": func(o *ledger.Operation) { o.ArgsDigest = "sha256:b" }, "class": func(o *ledger.Operation) { o.Reversible = true },
		"expiry":  func(o *ledger.Operation) { o.ExpiresAt = o.ExpiresAt.Add(time.Nanosecond) },
		"policy":  func(o *ledger.Operation) { o.Requirement.Digest = "sha256:q" },
		"quorum":  func(o *ledger.Operation) { o.Requirement.Groups = map[string]int{"finance": 1} },
		"group":   func(o *ledger.Operation) { o.Requirement.Groups = map[string]int{"support": 2} },
		"outcome": func(o *ledger.Operation) { o.Requirement.Outcome = "auto" },
	} {
		o := op
		f(&o)
		changed(name, o, plan)
	}
	for name, f := range map[string]func(*tools.Plan){
		"target": func(p *tools.Plan) { p.Target = "POST http://evil/refunds" }, "headline": func(p *tools.Plan) { p.Headline = "Hold" },
		"plan args": func(p *tools.Plan) { p.Args = map[string]any{"amount": "2"} }, "wire": func(p *tools.Plan) { p.Wire = []byte(`{"body":"y"}`) },
		"effects": func(p *tools.Plan) { p.Effects = []tools.Effect{{Verb: "refund"}} }, "basis": func(p *tools.Plan) { p.Basis = []tools.BasisField{{Field: "f"}} },
		"agent": func(p *tools.Plan) { p.Agent.ID = "agt_9" }, "key": func(p *tools.Plan) { p.Key.Upstream = "u" },
	} {
		p := plan
		f(&p)
		changed(name, op, p)
	}
}

func TestYeses(t *testing.T) {
	op := ledger.Operation{Round: 2, Requirement: ledger.Requirement{Groups: map[string]int{"finance": 1}}}
	say := func(person string, verb ledger.Verb, round int, digest string) ledger.Decision {
		return ledger.Decision{Person: person, Verb: verb, Round: round, Digest: digest}
	}
	yes := policy.Yeses(op, []ledger.Decision{
		say("old_round", ledger.VerbApprove, 1, "d"), say("other_digest", ledger.VerbApprove, 2, "e"),
		say("stands", ledger.VerbApprove, 2, "d"), say("took_back", ledger.VerbApprove, 2, "d"),
		say("took_back", ledger.VerbWithdraw, 2, "d"), say("no", ledger.VerbReject, 2, "d"),
	}, "d")
	require.Len(t, yes, 1)
	require.Equal(t, "stands", yes[0].Person)

	people, err := policy.EligibleYeses(context.Background(), func(_ context.Context, _, id string) (policy.Person, error) {
		return policy.Person{ID: id, Groups: []string{"sales"}}, nil
	}, op, []ledger.Decision{say("moved", ledger.VerbApprove, 2, "d")}, "d")
	require.NoError(t, err)
	require.Empty(t, people, "a yes of somebody who left the group no longer counts")
}

// TestStricter_WordThatNoRuleKnows: an outcome that this program does not know is
// stricter than every other (I20).
func TestStricter_WordThatNoRuleKnows(t *testing.T) {
	unknown := ledger.Requirement{Outcome: "approve_twice"}
	for _, word := range []string{"auto", "approve"} {
		r := ledger.Requirement{Outcome: word, Groups: map[string]int{"any": 1}}
		require.Equal(t, "approve_twice", policy.Stricter(r, unknown).Outcome)
		require.Equal(t, "approve_twice", policy.Stricter(unknown, r).Outcome)
		require.False(t, policy.AsStrict(r, unknown))
	}
}
