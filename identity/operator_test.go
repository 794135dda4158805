package identity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

func TestCreateOperator(t *testing.T) {
	w := newWorld(t)
	o, code, err := w.CreateOperator(t.Context(), tenant, "ada", []string{"support", "finance", "support"})
	require.NoError(t, err)
	require.Regexp(t, `^per_[0-9a-z]{26}$`, o.ID)
	require.Regexp(t, `^[0-9a-z]{32}$`, code, "160 bits in base32")
	require.Equal(t, []string{"finance", "support"}, o.Groups)
	got, err := w.Operator(t.Context(), tenant, o.ID)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(o, got))
	w.clock.pass(time.Second)
	w.person("bea")
	list, err := w.ListOperators(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Empty(t, cmp.Diff(o, list[0]))

	shown, err := json.Marshal(list[1])
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(shown, &members))
	require.ElementsMatch(t, []string{"id", "tenant", "name", "groups", "created_at"}, keysOf(members))

	_, err = w.Operator(t.Context(), "other", o.ID)
	refused(t, fault.NotFound, err)
	_, err = w.OperatorNamed(t.Context(), tenant, "ADA")
	refused(t, fault.NotFound, err)
}

func TestCreateOperator_Refused(t *testing.T) {
	w := newWorld(t)
	gone := w.person("gone")
	require.NoError(t, w.DisableOperator(t.Context(), tenant, gone.ID))
	var many []string
	for n := range 257 {
		many = append(many, fmt.Sprintf("group-%d", n))
	}
	for what, c := range map[string]struct {
		name   string
		groups []string
		code   fault.Code
	}{
		"no name":          {"", nil, fault.SchemaViolation},
		"upper case":       {"Ada", nil, fault.SchemaViolation},
		"space":            {"ada ", nil, fault.SchemaViolation},
		"underscore":       {"per_1", nil, fault.SchemaViolation},
		"long":             {strings.Repeat("a", 64), nil, fault.SchemaViolation},
		"bad group":        {"ada", []string{"support", "Finance"}, fault.SchemaViolation},
		"empty group":      {"ada", []string{""}, fault.SchemaViolation},
		"many groups":      {"ada", many, fault.SchemaViolation},
		"name of one gone": {"gone", nil, fault.InvalidState},
	} {
		_, code, err := w.CreateOperator(t.Context(), tenant, c.name, c.groups)
		refused(t, c.code, err, what)
		require.Empty(t, code, what)
	}
	for n := range 2 {
		cfg := w.config()
		cfg.Rand = io.MultiReader(io.LimitReader(newRandom(), int64(16*n)), iotest.ErrReader(errors.New("broken")))
		_, _, err := identity.New(cfg).CreateOperator(t.Context(), tenant, "ada", nil)
		refused(t, fault.Internal, err)
	}
	list, err := w.ListOperators(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, list, 1, "nothing was made")
}

func TestSetup(t *testing.T) {
	w := newWorld(t)
	o, code, err := w.CreateOperator(t.Context(), tenant, "ada", nil)
	require.NoError(t, err)
	for range 3 {
		got, err := w.PeekSetup(t.Context(), code)
		require.NoError(t, err, "a look spends nothing")
		require.Equal(t, o.ID, got.ID)
	}
	got, err := w.CompleteSetup(t.Context(), " "+code+"\n", password)
	require.NoError(t, err)
	require.NotEmpty(t, got.Password)
	o.Password = got.Password
	require.Empty(t, cmp.Diff(o, got))
	require.NoError(t, w.signIn("ada", password, here))
}

// A code that is not good any more, or never was, is refused with one text, and
// nothing is computed for it.
func TestSetup_CodeOver(t *testing.T) {
	w := newWorld(t)
	o, first, err := w.CreateOperator(t.Context(), tenant, "ada", nil)
	require.NoError(t, err)
	over := func(what, code string) {
		t.Helper()
		_, peek := w.PeekSetup(t.Context(), code)
		var complete error
		require.Empty(t, w.kdf.since(func() { _, complete = w.CompleteSetup(t.Context(), code, password) }), what)
		text := refused(t, fault.Unauthenticated, peek, what).Detail
		require.Equal(t, text, refused(t, fault.Unauthenticated, complete, what).Detail)
	}
	link := func(ttl time.Duration) string {
		t.Helper()
		code, err := w.NewSetupLink(t.Context(), tenant, o.ID, ttl)
		require.NoError(t, err)
		return code
	}
	over("none", "")
	over("other case", strings.ToUpper(first))
	over("longer", first+"0")
	over("unknown", strings.Repeat("0", 32))

	w.clock.pass(identity.SetupTTL - 1)
	_, err = w.PeekSetup(t.Context(), first)
	require.NoError(t, err)
	w.clock.pass(1)
	over("expired", first)

	second := link(0)
	third := link(time.Hour)
	over("replaced", second)
	w.clock.pass(time.Hour - 1)
	_, err = w.CompleteSetup(t.Context(), third, password)
	require.NoError(t, err)
	over("used", third)

	fourth := link(0)
	require.NoError(t, w.DisableOperator(t.Context(), tenant, o.ID))
	over("disabled", fourth)
}

// The link runs out, or the operator is disabled, while the hash is computed:
// the store has the last word.
func TestSetup_OverMeanwhile(t *testing.T) {
	for what, meanwhile := range map[string]func(*world, identity.Operator){
		"expired": func(w *world, _ identity.Operator) { w.clock.pass(identity.SetupTTL) },
		"disabled": func(w *world, o identity.Operator) {
			require.NoError(w.t, w.DisableOperator(w.t.Context(), tenant, o.ID))
		},
		"replaced": func(w *world, o identity.Operator) {
			_, err := w.NewSetupLink(w.t.Context(), tenant, o.ID, 0)
			require.NoError(w.t, err)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			o, code, err := w.CreateOperator(t.Context(), tenant, "ada", nil)
			require.NoError(t, err)
			w.kdf.during = func() { meanwhile(w, o) }
			_, err = w.CompleteSetup(t.Context(), code, password)
			refused(t, fault.Unauthenticated, err)
			got, err := w.Operator(t.Context(), tenant, o.ID)
			require.NoError(t, err)
			require.Empty(t, got.Password)
		})
	}
}

// Many use one code at once: one wins, and its password is the one that counts.
func TestSetup_Parallel(t *testing.T) {
	w := newWorld(t)
	_, code, err := w.CreateOperator(t.Context(), tenant, "ada", nil)
	require.NoError(t, err)
	const racers = 32
	mine := func(n int) string { return fmt.Sprintf("password of racer %d", n) }
	var won, lost atomic.Int64
	winner := -1
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for n := range racers {
		wg.Go(func() {
			<-start
			_, err := w.CompleteSetup(t.Context(), code, mine(n))
			if err == nil {
				won.Add(1)
				mu.Lock()
				winner = n
				mu.Unlock()
			} else if fault.Is(err, fault.Unauthenticated) {
				lost.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	require.EqualValues(t, racers-1, lost.Load())
	require.NoError(t, w.signIn("ada", mine(winner), here))
	refused(t, fault.Unauthenticated, w.signIn("ada", mine((winner+1)%racers), here))
}

func TestNewSetupLink_Refused(t *testing.T) {
	w := newWorld(t)
	o := w.person("ada")
	link := func(tenant, id string, ttl time.Duration) error {
		code, err := w.NewSetupLink(t.Context(), tenant, id, ttl)
		require.Equal(t, err != nil, code == "")
		return err
	}
	require.NoError(t, link(tenant, o.ID, 7*24*time.Hour))
	refused(t, fault.SchemaViolation, link(tenant, o.ID, 7*24*time.Hour+1))
	refused(t, fault.SchemaViolation, link(tenant, o.ID, -1))
	refused(t, fault.NotFound, link(tenant, "per_0", 0))
	refused(t, fault.NotFound, link("other", o.ID, 0))
	require.NoError(t, w.DisableOperator(t.Context(), tenant, o.ID))
	refused(t, fault.InvalidState, link(tenant, o.ID, 0))
}

func TestDisableOperator(t *testing.T) {
	w := newWorld(t)
	o := w.person("ada")
	require.NoError(t, w.signIn("ada", password, here))
	refused(t, fault.NotFound, w.DisableOperator(t.Context(), tenant, "per_0"))
	refused(t, fault.NotFound, w.DisableOperator(t.Context(), "other", o.ID))
	require.NoError(t, w.DisableOperator(t.Context(), tenant, o.ID))
	at := w.clock.Now()
	refused(t, fault.Unauthenticated, w.signIn("ada", password, here))

	w.clock.pass(time.Hour)
	require.NoError(t, w.DisableOperator(t.Context(), tenant, o.ID))
	got, err := w.OperatorNamed(t.Context(), tenant, "ada")
	require.NoError(t, err)
	require.Equal(t, at, got.DisabledAt)
}

func TestService_StoreGone(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.db.Close())
	ctx := t.Context()
	for what, err := range map[string]error{
		"create agent":    third(w.CreateAgent(ctx, tenant, "bot", identity.BuiltinOwner, []string{"*"})),
		"agents":          second(w.ListAgents(ctx, tenant)),
		"agent":           second(w.Agent(ctx, tenant, "agt_0")),
		"agent named":     second(w.AgentNamed(ctx, tenant, "bot")),
		"revoke":          w.RevokeAgent(ctx, tenant, "agt_0"),
		"create operator": third(w.CreateOperator(ctx, tenant, "ada", nil)),
		"operators":       second(w.ListOperators(ctx, tenant)),
		"operator":        second(w.Operator(ctx, tenant, "per_0")),
		"operator named":  second(w.OperatorNamed(ctx, tenant, "ada")),
		"disable":         w.DisableOperator(ctx, tenant, "per_0"),
		"link":            second(w.NewSetupLink(ctx, tenant, "per_0", 0)),
		"peek":            second(w.PeekSetup(ctx, "code")),
		"complete":        second(w.CompleteSetup(ctx, "code", password)),
		"sweep":           w.Sweep(ctx),
	} {
		refused(t, fault.StoreUnavailable, err, what)
	}
}

// What a store answers, and what a caller sees of it.
func TestService_StoreFaults(t *testing.T) {
	w := newWorld(t)
	create := func(answer error) error {
		w.store.refuse = answer
		_, key, err := w.CreateAgent(t.Context(), tenant, "bot", identity.BuiltinOwner, []string{"*"})
		require.Empty(t, key)
		return err
	}
	for code, answer := range map[fault.Code]error{
		fault.DiskFull:         fmt.Errorf("%w: at /var/lib", identity.ErrDiskFull),
		fault.InvalidState:     identity.ErrExists,
		fault.StoreUnavailable: errors.New("at /var/lib"),
		fault.RateLimited:      fault.New(fault.RateLimited, "Later."),
	} {
		err := create(answer)
		require.NotContains(t, refused(t, code, err).Detail, "/var/lib")
		require.ErrorIs(t, err, answer, "the log has the cause")
	}
	require.ErrorIs(t, create(context.Canceled), context.Canceled)
}

func third[A, B any](_ A, _ B, err error) error { return err }

func TestNew_NeedsStoreAndRevoke(t *testing.T) {
	good := newWorld(t).config()
	for _, change := range []func(*identity.Config){
		func(c *identity.Config) { c.Store = nil },
		func(c *identity.Config) { c.Revoke = nil },
	} {
		cfg := good
		change(&cfg)
		require.Panics(t, func() { identity.New(cfg) })
	}
}
