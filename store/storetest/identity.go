package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/identity"
)

// RunIdentity is the contract of identity.Store as tests. open gives an empty
// store that lives as long as the test.
func RunIdentity(t *testing.T, open func(t *testing.T) identity.Store) {
	for _, c := range []struct {
		name string
		test func(*identitySuite)
	}{
		{"agents/kept whole", agentsKeptWhole},
		{"agents/unique", agentsUnique},
		{"agents/revoked", agentsRevoked},
		{"agents/64 of one name", agentsRace},
		{"operators/kept whole", operatorsKeptWhole},
		{"operators/unique", operatorsUnique},
		{"operators/password replaced", passwordReplaced},
		{"operators/disabled", operatorsDisabled},
		{"links/live and over", linksLiveAndOver},
		{"links/the newest counts", linksNewestCounts},
		{"links/used once", linksUsedOnce},
		{"links/64 use one", linksRace},
		{"links/used while disabled", linksUsedWhileDisabled},
		{"sessions/kept and over", sessionsKeptAndOver},
		{"sessions/not brought back", sessionsNotBroughtBack},
		{"sweep", sweep},
		{"cancelled", cancelledWrites},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&identitySuite{T: t, ctx: t.Context(), store: open(t)})
		})
	}
}

// identitySuite is one test with its store.
type identitySuite struct {
	*testing.T
	ctx   context.Context //nolint:containedctx // lives as long as one test
	store identity.Store
}

// noon has nanoseconds, so that a store which drops them is found out.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func agent(n int) identity.Agent {
	return identity.Agent{
		ID: fmt.Sprintf("agt_%d", n), Tenant: "default", Name: fmt.Sprintf("agent-%d", n), Owner: "per_1",
		Tools: []string{"hold_order", "refund_payment"}, KeyID: fmt.Sprintf("key%d", n),
		KeySalt: []byte{0, 1, byte(n)}, KeyHash: []byte{255, 0, byte(n)},
		CreatedAt: noon.Add(time.Duration(n) * time.Second),
	}
}

func operator(n int) identity.Operator {
	return identity.Operator{
		ID: fmt.Sprintf("per_%d", n), Tenant: "default", Name: fmt.Sprintf("operator-%d", n),
		Groups: []string{"finance", "support"}, CreatedAt: noon.Add(time.Duration(n) * time.Second),
	}
}

func link(o identity.Operator, code string, expires time.Time) identity.SetupLink {
	return identity.SetupLink{CodeHash: []byte(code), Tenant: o.Tenant, Operator: o.ID, ExpiresAt: expires}
}

// elsewhere is the same thing under other unique words, in another tenant.
func elsewhere(a identity.Agent) identity.Agent {
	a.ID, a.KeyID, a.Tenant = a.ID+"x", a.KeyID+"x", "other"
	return a
}

func (s *identitySuite) same(want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("not what was stored (-want +got):\n%s", diff)
	}
}

func (s *identitySuite) createAgent(n int) identity.Agent {
	s.Helper()
	a := agent(n)
	require.NoError(s, s.store.CreateAgent(s.ctx, a))
	return a
}

// createOperator gives the operator a link with the code "code-n" that expires
// an hour after noon.
func (s *identitySuite) createOperator(n int) identity.Operator {
	s.Helper()
	o := operator(n)
	require.NoError(s, s.store.CreateOperator(s.ctx, o, link(o, fmt.Sprintf("code-%d", n), noon.Add(time.Hour))))
	return o
}

func (s *identitySuite) operator(o identity.Operator) identity.Operator {
	s.Helper()
	got, err := s.store.Operator(s.ctx, o.Tenant, o.ID)
	require.NoError(s, err)
	return got
}

func (s *identitySuite) linkAt(code string, now time.Time) error {
	_, err := s.store.SetupLink(s.ctx, []byte(code), now)
	return err
}

func agentsKeptWhole(s *identitySuite) {
	list, err := s.store.Agents(s.ctx, "default")
	require.NoError(s, err)
	require.Empty(s, list)

	second, first := s.createAgent(2), s.createAgent(1)
	other := elsewhere(first)
	require.NoError(s, s.store.CreateAgent(s.ctx, other))

	got, err := s.store.Agent(s.ctx, "default", first.ID)
	require.NoError(s, err)
	s.same(first, got)
	got, err = s.store.AgentByKey(s.ctx, other.KeyID)
	require.NoError(s, err)
	s.same(other, got)
	list, err = s.store.Agents(s.ctx, "default")
	require.NoError(s, err)
	s.same([]identity.Agent{first, second}, list)

	_, err = s.store.Agent(s.ctx, "other", first.ID)
	require.ErrorIs(s, err, identity.ErrNotFound)
	_, err = s.store.Agent(s.ctx, "default", "agt_0")
	require.ErrorIs(s, err, identity.ErrNotFound)
	_, err = s.store.AgentByKey(s.ctx, "key0")
	require.ErrorIs(s, err, identity.ErrNotFound)
}

func agentsUnique(s *identitySuite) {
	first := s.createAgent(1)
	for what, change := range map[string]func(*identity.Agent){
		"name":                      func(a *identity.Agent) { a.Name = first.Name },
		"id":                        func(a *identity.Agent) { a.ID = first.ID },
		"key id":                    func(a *identity.Agent) { a.KeyID = first.KeyID },
		"key id, in another tenant": func(a *identity.Agent) { a.KeyID, a.Tenant = first.KeyID, "other" },
	} {
		a := agent(2)
		change(&a)
		require.ErrorIs(s, s.store.CreateAgent(s.ctx, a), identity.ErrExists, what)
	}
	list, err := s.store.Agents(s.ctx, "default")
	require.NoError(s, err)
	s.same([]identity.Agent{first}, list)
}

func agentsRevoked(s *identitySuite) {
	first := s.createAgent(1)
	require.ErrorIs(s, s.store.RevokeAgent(s.ctx, "other", first.ID, noon), identity.ErrNotFound)
	require.ErrorIs(s, s.store.RevokeAgent(s.ctx, "default", "agt_0", noon), identity.ErrNotFound)
	require.NoError(s, s.store.RevokeAgent(s.ctx, "default", first.ID, noon))
	require.NoError(s, s.store.RevokeAgent(s.ctx, "default", first.ID, noon.Add(time.Hour)))

	first.RevokedAt = noon
	got, err := s.store.AgentByKey(s.ctx, first.KeyID)
	require.NoError(s, err)
	s.same(first, got)

	// Its name is free again, and revoking another of that name is no conflict.
	second := agent(2)
	second.Name = first.Name
	require.NoError(s, s.store.CreateAgent(s.ctx, second))
	require.NoError(s, s.store.RevokeAgent(s.ctx, "default", second.ID, noon))
}

func agentsRace(s *identitySuite) {
	won := race(64, func(n int) error {
		a := agent(n)
		a.Name = "wanted"
		return s.store.CreateAgent(s.ctx, a)
	}, func(err error) {
		require.ErrorIs(s, err, identity.ErrExists)
	})
	require.Len(s, won, 1)
	list, err := s.store.Agents(s.ctx, "default")
	require.NoError(s, err)
	require.Len(s, list, 1)
	require.Equal(s, agent(won[0]).ID, list[0].ID)
}

// race runs f for 1 to n at the same time, hands each error to lost, and gives
// the numbers that got none.
func race(n int, f func(int) error, lost func(error)) (won []int) {
	errs := make([]error, n+1)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := 1; i <= n; i++ {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	for i := 1; i <= n; i++ {
		if errs[i] == nil {
			won = append(won, i)
		} else {
			lost(errs[i])
		}
	}
	return won
}

func operatorsKeptWhole(s *identitySuite) {
	list, err := s.store.Operators(s.ctx, "default")
	require.NoError(s, err)
	require.Empty(s, list)

	second, first := s.createOperator(2), s.createOperator(1)
	s.same(first, s.operator(first))
	got, err := s.store.OperatorByName(s.ctx, "default", second.Name)
	require.NoError(s, err)
	s.same(second, got)
	list, err = s.store.Operators(s.ctx, "default")
	require.NoError(s, err)
	s.same([]identity.Operator{first, second}, list)

	_, err = s.store.Operator(s.ctx, "other", first.ID)
	require.ErrorIs(s, err, identity.ErrNotFound)
	for _, name := range []string{"operator-3", "Operator-1", " operator-1", ""} {
		_, err = s.store.OperatorByName(s.ctx, "default", name)
		require.ErrorIs(s, err, identity.ErrNotFound, name)
	}
	_, err = s.store.OperatorByName(s.ctx, "other", first.Name)
	require.ErrorIs(s, err, identity.ErrNotFound)
}

func operatorsUnique(s *identitySuite) {
	first := s.createOperator(1)
	require.NoError(s, s.store.DisableOperator(s.ctx, "default", first.ID, noon))
	second := operator(2)
	second.Name = first.Name
	err := s.store.CreateOperator(s.ctx, second, link(second, "lost", noon.Add(time.Hour)))
	require.ErrorIs(s, err, identity.ErrExists, "the name of a disabled operator")
	require.ErrorIs(s, s.linkAt("lost", noon), identity.ErrNotFound, "operator and link are one write")

	second.Tenant = "other"
	require.NoError(s, s.store.CreateOperator(s.ctx, second, link(second, "found", noon.Add(time.Hour))))
	require.NoError(s, s.linkAt("found", noon))
}

func passwordReplaced(s *identitySuite) {
	o := s.createOperator(1)
	replace := func(tenant, old, password string) error {
		return s.store.ReplacePassword(s.ctx, tenant, o.ID, old, password)
	}
	require.NoError(s, replace("default", "", "one"))
	require.ErrorIs(s, replace("default", "", "two"), identity.ErrNotFound)
	require.ErrorIs(s, replace("other", "one", "two"), identity.ErrNotFound)
	require.Equal(s, "one", s.operator(o).Password)

	require.NoError(s, s.store.DisableOperator(s.ctx, "default", o.ID, noon))
	require.ErrorIs(s, replace("default", "one", "two"), identity.ErrNotFound)
	o.Password, o.DisabledAt = "one", noon
	s.same(o, s.operator(o))
}

func operatorsDisabled(s *identitySuite) {
	o, untouched := s.createOperator(1), s.createOperator(2)
	require.ErrorIs(s, s.store.DisableOperator(s.ctx, "other", o.ID, noon), identity.ErrNotFound)
	require.ErrorIs(s, s.store.DisableOperator(s.ctx, "default", "per_0", noon), identity.ErrNotFound)
	require.NoError(s, s.linkAt("code-1", noon))

	require.NoError(s, s.store.DisableOperator(s.ctx, "default", o.ID, noon))
	require.NoError(s, s.store.DisableOperator(s.ctx, "default", o.ID, noon.Add(time.Hour)))
	o.DisabledAt = noon
	s.same(o, s.operator(o))
	require.ErrorIs(s, s.linkAt("code-1", noon), identity.ErrNotFound)
	_, err := s.store.UseSetupLink(s.ctx, []byte("code-1"), noon, "set")
	require.ErrorIs(s, err, identity.ErrNotFound)
	err = s.store.PutSetupLink(s.ctx, link(o, "again", noon.Add(time.Hour)))
	require.ErrorIs(s, err, identity.ErrNotFound)
	require.ErrorIs(s, s.linkAt("again", noon), identity.ErrNotFound)

	s.same(untouched, s.operator(untouched))
	require.NoError(s, s.linkAt("code-2", noon))
}

func linksLiveAndOver(s *identitySuite) {
	o := s.createOperator(1)
	end := noon.Add(time.Hour)
	got, err := s.store.SetupLink(s.ctx, []byte("code-1"), end.Add(-time.Nanosecond))
	require.NoError(s, err)
	s.same(link(o, "code-1", end), got)
	require.ErrorIs(s, s.linkAt("code-1", end), identity.ErrNotFound)
	require.ErrorIs(s, s.linkAt("code-2", noon), identity.ErrNotFound)

	_, err = s.store.UseSetupLink(s.ctx, []byte("code-1"), end, "set")
	require.ErrorIs(s, err, identity.ErrNotFound)
	require.Empty(s, s.operator(o).Password)
	_, err = s.store.UseSetupLink(s.ctx, []byte("code-1"), end.Add(-time.Nanosecond), "set")
	require.NoError(s, err)
}

func linksNewestCounts(s *identitySuite) {
	o, other := s.createOperator(1), s.createOperator(2)
	require.NoError(s, s.store.PutSetupLink(s.ctx, link(o, "newer", noon.Add(time.Minute))))
	require.ErrorIs(s, s.linkAt("code-1", noon), identity.ErrNotFound)
	require.NoError(s, s.linkAt("newer", noon))
	require.ErrorIs(s, s.linkAt("newer", noon.Add(time.Minute)), identity.ErrNotFound, "the new link has its own expiry")
	require.NoError(s, s.linkAt("code-2", noon), "the link of another operator")

	foreign := link(other, "foreign", noon.Add(time.Hour))
	foreign.Tenant = "other"
	require.ErrorIs(s, s.store.PutSetupLink(s.ctx, foreign), identity.ErrNotFound)
	require.NoError(s, s.linkAt("code-2", noon))
}

func linksUsedOnce(s *identitySuite) {
	o, other := s.createOperator(1), s.createOperator(2)
	got, err := s.store.UseSetupLink(s.ctx, []byte("code-1"), noon, "set")
	require.NoError(s, err)
	o.Password = "set"
	s.same(o, got)
	s.same(o, s.operator(o))
	s.same(other, s.operator(other))

	_, err = s.store.UseSetupLink(s.ctx, []byte("code-1"), noon, "again")
	require.ErrorIs(s, err, identity.ErrNotFound)
	require.ErrorIs(s, s.linkAt("code-1", noon), identity.ErrNotFound)
	s.same(o, s.operator(o))

	// A further link sets another password.
	require.NoError(s, s.store.PutSetupLink(s.ctx, link(o, "further", noon.Add(time.Hour))))
	got, err = s.store.UseSetupLink(s.ctx, []byte("further"), noon, "another")
	require.NoError(s, err)
	require.Equal(s, "another", got.Password)
}

func linksRace(s *identitySuite) {
	o := s.createOperator(1)
	won := race(64, func(n int) error {
		_, err := s.store.UseSetupLink(s.ctx, []byte("code-1"), noon, fmt.Sprint(n))
		return err
	}, func(err error) {
		require.ErrorIs(s, err, identity.ErrNotFound)
	})
	require.Len(s, won, 1)
	require.Equal(s, fmt.Sprint(won[0]), s.operator(o).Password)
}

func linksUsedWhileDisabled(s *identitySuite) {
	for n := 1; n <= 16; n++ {
		o := s.createOperator(n)
		code := []byte(fmt.Sprintf("code-%d", n))
		var used identity.Operator
		won := race(2, func(i int) error {
			if i == 1 {
				return s.store.DisableOperator(s.ctx, "default", o.ID, noon)
			}
			var err error
			used, err = s.store.UseSetupLink(s.ctx, code, noon, "set")
			return err
		}, func(err error) {
			require.ErrorIs(s, err, identity.ErrNotFound)
		})
		// Whichever was first, nobody was told of a password set after the end.
		require.Contains(s, won, 1)
		require.True(s, used.DisabledAt.IsZero())
		got := s.operator(o)
		require.Equal(s, used.Password, got.Password)
		require.Equal(s, noon, got.DisabledAt)
	}
}

func session(hash string) identity.Session {
	return identity.Session{
		TokenHash: hash, Data: []byte{0, 255, 'x'},
		IdleUntil: noon.Add(15 * time.Minute), ExpiresAt: noon.Add(8 * time.Hour),
	}
}

func (s *identitySuite) sessionAt(hash string, now time.Time) error {
	_, err := s.store.Session(s.ctx, hash, now)
	return err
}

func sessionsKeptAndOver(s *identitySuite) {
	one := session("one")
	require.NoError(s, s.store.CreateSession(s.ctx, one))
	again := one
	again.Data = []byte("overwritten")
	require.ErrorIs(s, s.store.CreateSession(s.ctx, again), identity.ErrExists)
	got, err := s.store.Session(s.ctx, "one", one.IdleUntil.Add(-time.Nanosecond))
	require.NoError(s, err)
	s.same(one, got)
	require.ErrorIs(s, s.sessionAt("one", one.IdleUntil), identity.ErrNotFound)
	require.ErrorIs(s, s.sessionAt("two", noon), identity.ErrNotFound)

	require.NoError(s, s.store.ExtendSession(s.ctx, "one", noon.Add(30*time.Minute)))
	require.NoError(s, s.sessionAt("one", one.IdleUntil))
	// Not even a caller that extends too far gets beyond the end.
	require.NoError(s, s.store.ExtendSession(s.ctx, "one", one.ExpiresAt.Add(time.Hour)))
	require.NoError(s, s.sessionAt("one", one.ExpiresAt.Add(-time.Nanosecond)))
	require.ErrorIs(s, s.sessionAt("one", one.ExpiresAt), identity.ErrNotFound)
}

func sessionsNotBroughtBack(s *identitySuite) {
	require.NoError(s, s.store.CreateSession(s.ctx, session("one")))
	require.NoError(s, s.store.CreateSession(s.ctx, session("two")))
	require.NoError(s, s.store.DeleteSession(s.ctx, "one"))
	require.NoError(s, s.store.DeleteSession(s.ctx, "one"))
	require.ErrorIs(s, s.store.ExtendSession(s.ctx, "one", noon.Add(time.Hour)), identity.ErrNotFound)
	require.ErrorIs(s, s.sessionAt("one", noon), identity.ErrNotFound)
	require.NoError(s, s.sessionAt("two", noon))
}

func sweep(s *identitySuite) {
	first, second := s.createOperator(1), s.createOperator(2)
	require.NoError(s, s.store.PutSetupLink(s.ctx, link(second, "longer", noon.Add(2*time.Hour))))
	idle, ended, live := session("idle"), session("ended"), session("live")
	ended.IdleUntil, ended.ExpiresAt = noon.Add(2*time.Hour), noon.Add(time.Hour)
	live.IdleUntil = noon.Add(2 * time.Hour)
	for _, each := range []identity.Session{idle, ended, live} {
		require.NoError(s, s.store.CreateSession(s.ctx, each))
	}
	// Asked for a moment at which all were live, so that a miss means deleted.
	require.NoError(s, s.store.SweepIdentity(s.ctx, noon))
	for _, hash := range []string{"idle", "ended", "live"} {
		require.NoError(s, s.sessionAt(hash, noon), hash)
	}
	require.NoError(s, s.store.SweepIdentity(s.ctx, noon.Add(time.Hour)))
	require.ErrorIs(s, s.sessionAt("idle", noon), identity.ErrNotFound)
	require.ErrorIs(s, s.sessionAt("ended", noon), identity.ErrNotFound)
	require.NoError(s, s.sessionAt("live", noon))
	require.ErrorIs(s, s.linkAt("code-1", noon), identity.ErrNotFound)
	require.NoError(s, s.linkAt("longer", noon))
	s.same(first, s.operator(first))
}

func cancelledWrites(s *identitySuite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	o := operator(1)
	for what, err := range map[string]error{
		"agent":    s.store.CreateAgent(ctx, agent(1)),
		"operator": s.store.CreateOperator(ctx, o, link(o, "code-1", noon.Add(time.Hour))),
		"session":  s.store.CreateSession(ctx, session("one")),
	} {
		require.ErrorIs(s, err, context.Canceled, what)
	}
	_, err := s.store.Agent(s.ctx, "default", agent(1).ID)
	require.ErrorIs(s, err, identity.ErrNotFound)
	_, err = s.store.Operator(s.ctx, "default", o.ID)
	require.ErrorIs(s, err, identity.ErrNotFound)
	require.ErrorIs(s, s.sessionAt("one", noon), identity.ErrNotFound)
	if _, err := s.store.Agents(ctx, "default"); !errors.Is(err, context.Canceled) {
		s.Fatalf("a read with a cancelled context: %v", err)
	}
}
