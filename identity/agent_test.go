package identity_test

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

// newRandom is a source that gives the same bytes in each run.
func newRandom() io.Reader { return rand.NewChaCha8([32]byte{1}) }

func TestCreateAgent(t *testing.T) {
	w := newWorld(t)
	owner := w.person("ada")
	a, key, err := w.CreateAgent(t.Context(), tenant, "support-bot", owner.ID, []string{"refund_payment", "hold_order", "hold_order"})
	require.NoError(t, err)
	require.Regexp(t, wholeKey, key)
	require.Regexp(t, `^agt_[0-9a-z]{26}$`, a.ID)
	require.Equal(t, []string{"hold_order", "refund_payment"}, a.Tools)
	require.Equal(t, w.clock.Now(), a.CreatedAt)

	got, err := w.AuthenticateAgent(t.Context(), key)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(a, got))
	got, err = w.Agent(t.Context(), tenant, a.ID)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(a, got))
	list, err := w.ListAgents(t.Context(), tenant)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]identity.Agent{a}, list))

	// What lists and logs show holds no part of the secret or its hash.
	shown, err := json.Marshal(a)
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(shown, &members))
	require.ElementsMatch(t, []string{"id", "tenant", "name", "owner", "tools", "key_id", "created_at"}, keysOf(members))

	_, second, err := w.CreateAgent(t.Context(), tenant, "other-bot", owner.ID, []string{identity.AllTools})
	require.NoError(t, err)
	require.NotEqual(t, key, second)
}

func keysOf(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func TestCreateAgent_Refused(t *testing.T) {
	w := newWorld(t)
	gone := w.person("gone")
	require.NoError(t, w.DisableOperator(t.Context(), tenant, gone.ID))
	w.program("taken")
	all := []string{identity.AllTools}
	for what, c := range map[string]struct {
		name, owner string
		tools       []string
		code        fault.Code
	}{
		"no name":             {"", identity.BuiltinOwner, all, fault.SchemaViolation},
		"upper case":          {"Bot", identity.BuiltinOwner, all, fault.SchemaViolation},
		"hyphen first":        {"-bot", identity.BuiltinOwner, all, fault.SchemaViolation},
		"accent":              {"bøt", identity.BuiltinOwner, all, fault.SchemaViolation},
		"line end":            {"bot\n", identity.BuiltinOwner, all, fault.SchemaViolation},
		"64 letters":          {strings.Repeat("b", 64), identity.BuiltinOwner, all, fault.SchemaViolation},
		"name taken":          {"taken", identity.BuiltinOwner, all, fault.InvalidState},
		"no owner":            {"bot", "", all, fault.SchemaViolation},
		"owner unknown":       {"bot", "per_0", all, fault.SchemaViolation},
		"owner by name":       {"bot", "gone", all, fault.SchemaViolation},
		"owner disabled":      {"bot", gone.ID, all, fault.SchemaViolation},
		"other built-in":      {"bot", "builtin:root", all, fault.SchemaViolation},
		"no tools":            {"bot", identity.BuiltinOwner, nil, fault.SchemaViolation},
		"all and one":         {"bot", identity.BuiltinOwner, []string{"*", "hold_order"}, fault.SchemaViolation},
		"pattern":             {"bot", identity.BuiltinOwner, []string{"hold_*"}, fault.SchemaViolation},
		"upper-case tool":     {"bot", identity.BuiltinOwner, []string{"Hold"}, fault.SchemaViolation},
		"empty tool":          {"bot", identity.BuiltinOwner, []string{""}, fault.SchemaViolation},
		"more than 256 tools": {"bot", identity.BuiltinOwner, manyTools(257), fault.SchemaViolation},
	} {
		_, key, err := w.CreateAgent(t.Context(), tenant, c.name, c.owner, c.tools)
		f := refused(t, c.code, err, what)
		require.Empty(t, key, what)
		if c.code == fault.SchemaViolation {
			require.Len(t, f.Pointers, 1, what)
		}
	}
	list, err := w.ListAgents(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, list, 1, "nothing was made")

	_, _, err = w.CreateAgent(t.Context(), tenant, strings.Repeat("b", 63), identity.BuiltinOwner, manyTools(256))
	require.NoError(t, err)
	// The owner answers in their own tenant only.
	here := w.person("ada")
	_, _, err = w.CreateAgent(t.Context(), "other", "bot", here.ID, all)
	refused(t, fault.SchemaViolation, err)
}

func manyTools(n int) (tools []string) {
	for i := range n {
		tools = append(tools, "tool_"+strings.Repeat("a", i%20)+string(rune('a'+i/20)))
	}
	return tools
}

func TestCreateAgent_NoRandomness(t *testing.T) {
	w := newWorld(t)
	for n := range 4 {
		cfg := w.config()
		// Key id, secret, salt, id: each may be what fails.
		lens := []int64{7, 20, 16, 16}
		var before int64
		for _, l := range lens[:n] {
			before += l
		}
		cfg.Rand = io.MultiReader(io.LimitReader(newRandom(), before), iotest.ErrReader(errors.New("broken")))
		_, _, err := identity.New(cfg).CreateAgent(t.Context(), tenant, "bot", identity.BuiltinOwner, []string{"*"})
		refused(t, fault.Internal, err)
	}
	list, err := w.ListAgents(t.Context(), tenant)
	require.NoError(t, err)
	require.Empty(t, list)
}

// S13, S8: one text for every refusal, and for every well-formed key the same
// work, whether or not it is known.
func TestAuthenticateAgent_Refused(t *testing.T) {
	w := newWorld(t)
	var digests atomic.Int64
	_, good := w.program("bot")
	gone, revoked := w.program("gone")
	require.NoError(t, w.RevokeAgent(t.Context(), tenant, gone.ID))
	unknown, err := identity.NewAgentKey(newRandom())
	require.NoError(t, err)
	id, _, _ := identity.ParseAgentKey(good)
	_, secret, _ := identity.ParseAgentKey(unknown)
	wrong := identity.KeyPrefix + id + secret
	wrong += identity.Checksum(wrong)

	w.CountDigests(&digests)
	work := func(key string) (reads, hashes int64, err error) {
		r, d := w.store.keyReads.Load(), digests.Load()
		_, err = w.AuthenticateAgent(t.Context(), key)
		return w.store.keyReads.Load() - r, digests.Load() - d, err
	}
	reads, hashes, err := work(good)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, []int64{reads, hashes})
	var text string
	for what, key := range map[string]string{"unknown": unknown, "wrong secret": wrong, "revoked": revoked} {
		reads, hashes, err := work(key)
		f := refused(t, fault.Unauthenticated, err, what)
		require.Equal(t, []int64{1, 1}, []int64{reads, hashes}, what)
		text = f.Detail
	}
	for what, key := range map[string]string{
		"empty": "", "no key": "Bearer", "upper case": strings.ToUpper(good), "space": good + " ", "two": good + good,
		"checksum": good[:len(good)-7] + "0000000", "long": strings.Repeat("a", 1<<16),
	} {
		reads, hashes, err := work(key)
		require.Equal(t, text, refused(t, fault.Unauthenticated, err, what).Detail)
		require.Equal(t, []int64{0, 0}, []int64{reads, hashes}, what)
	}
}

func TestAuthenticateAgent_StoreGone(t *testing.T) {
	w := newWorld(t)
	_, key := w.program("bot")
	require.NoError(t, w.db.Close())
	_, err := w.AuthenticateAgent(t.Context(), key)
	refused(t, fault.StoreUnavailable, err)
}

// S18: the guard row first, then the key, which fails from the next call.
func TestRevokeAgent(t *testing.T) {
	w := newWorld(t)
	a, key := w.program("bot")
	var told []string
	broken := errors.New("no ledger")
	w.revoke = func(tenant, agent string) error {
		told = append(told, tenant+"/"+agent)
		_, err := w.AuthenticateAgent(t.Context(), key)
		require.NoError(t, err, "the guard row is changed first")
		return broken
	}
	require.ErrorIs(t, w.RevokeAgent(t.Context(), tenant, a.ID), broken)
	_, err := w.AuthenticateAgent(t.Context(), key)
	require.NoError(t, err, "half a revocation is none")

	broken = nil
	require.NoError(t, w.RevokeAgent(t.Context(), tenant, a.ID))
	_, err = w.AuthenticateAgent(t.Context(), key)
	refused(t, fault.Unauthenticated, err)
	require.Equal(t, []string{tenant + "/" + a.ID, tenant + "/" + a.ID}, told)

	// Again: the guard is told again, the time stays.
	at := w.clock.Now()
	w.clock.pass(time.Hour)
	w.revoke = func(tenant, agent string) error { told = append(told, agent); return nil }
	require.NoError(t, w.RevokeAgent(t.Context(), tenant, a.ID))
	require.Len(t, told, 3)
	got, err := w.Agent(t.Context(), tenant, a.ID)
	require.NoError(t, err)
	require.Equal(t, at, got.RevokedAt)

	refused(t, fault.NotFound, w.RevokeAgent(t.Context(), tenant, "agt_0"))
	refused(t, fault.NotFound, w.RevokeAgent(t.Context(), "other", a.ID))
	require.Len(t, told, 3, "nobody is revoked who is not there")
}

func TestAgentNamed(t *testing.T) {
	w := newWorld(t)
	old, _ := w.program("bot")
	_, err := w.AgentNamed(t.Context(), "other", "bot")
	refused(t, fault.NotFound, err)
	require.NoError(t, w.RevokeAgent(t.Context(), tenant, old.ID))
	_, err = w.AgentNamed(t.Context(), tenant, "bot")
	refused(t, fault.NotFound, err)
	a, _ := w.program("bot")
	got, err := w.AgentNamed(t.Context(), tenant, "bot")
	require.NoError(t, err)
	require.Equal(t, a.ID, got.ID)
}

func TestAdoptAgent(t *testing.T) {
	w := newWorld(t)
	key, err := identity.NewAgentKey(newRandom())
	require.NoError(t, err)
	adopt := func(name, owner string, tools []string, key string) (identity.Agent, error) {
		return w.AdoptAgent(t.Context(), tenant, name, owner, tools, key)
	}
	tools := []string{"refund_payment", "hold_order"}
	a, err := adopt("demo", identity.BuiltinOwner, tools, key)
	require.NoError(t, err)
	got, err := w.AuthenticateAgent(t.Context(), key)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(a, got))

	w.clock.pass(time.Hour)
	again, err := adopt("demo", identity.BuiltinOwner, tools, key)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(a, again), "adopted once")

	owner := w.person("ada")
	other, err := identity.NewAgentKey(rand.NewChaCha8([32]byte{2}))
	require.NoError(t, err)
	id, _, _ := identity.ParseAgentKey(key)
	_, secret, _ := identity.ParseAgentKey(other)
	sameID := identity.KeyPrefix + id + secret
	sameID += identity.Checksum(sameID)
	for what, err := range map[string]error{
		"no key":       second(adopt("new", identity.BuiltinOwner, tools, "secret")),
		"bad checksum": second(adopt("new", identity.BuiltinOwner, tools, key[:len(key)-1]+"x")),
		"bad name":     second(adopt("New", identity.BuiltinOwner, tools, other)),
	} {
		require.NotContains(t, refused(t, fault.SchemaViolation, err, what).Error(), key[:20], what)
	}
	for what, err := range map[string]error{
		"name with another key":  second(adopt("demo", identity.BuiltinOwner, tools, other)),
		"another secret":         second(adopt("new", identity.BuiltinOwner, tools, sameID)),
		"key with another name":  second(adopt("new", identity.BuiltinOwner, tools, key)),
		"key with another owner": second(adopt("demo", owner.ID, tools, key)),
		"key with other tools":   second(adopt("demo", identity.BuiltinOwner, []string{"*"}, key)),
		"key in another tenant":  second(w.AdoptAgent(t.Context(), "other", "demo", identity.BuiltinOwner, tools, key)),
	} {
		refused(t, fault.InvalidState, err, what)
	}
	require.NoError(t, w.RevokeAgent(t.Context(), tenant, a.ID))
	_, err = adopt("demo", identity.BuiltinOwner, tools, key)
	refused(t, fault.InvalidState, err, "a revoked key does not come back")
	list, err := w.ListAgents(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func second[T any](_ T, err error) error { return err }

// S14: deny by default.
func TestAgent_May(t *testing.T) {
	for _, c := range []struct {
		tools []string
		tool  string
		may   bool
	}{
		{nil, "hold_order", false},
		{[]string{"hold_order"}, "hold_order", true},
		{[]string{"hold_order"}, "hold_orde", false},
		{[]string{"hold_order"}, "HOLD_ORDER", false},
		{[]string{"hold_order"}, "", false},
		{[]string{"refund_payment", "hold_order"}, "hold_order", true},
		{[]string{"*"}, "hold_order", true},
		{[]string{"*", "refund_payment"}, "hold_order", false},
	} {
		require.Equal(t, c.may, identity.Agent{Tools: c.tools}.May(c.tool), "%v", c)
	}
}
