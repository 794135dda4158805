package identity_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

func TestSignIn(t *testing.T) {
	w := newWorld(t)
	o := w.person("ada", "support")
	for _, name := range []string{"ada", "ADA", " Ada\t", "ada\n", "\u00a0ada"} {
		got, err := w.SignIn(t.Context(), identity.Credentials{Tenant: tenant, Name: name, Password: password, Address: here})
		require.NoError(t, err, "%q", name)
		require.Empty(t, cmp.Diff(o, got))
	}
}

// S27: every refusal has one text and one price, which is also the price of a
// success.
func TestSignIn_Refused(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	_, _, err := w.CreateOperator(t.Context(), tenant, "fresh", nil)
	require.NoError(t, err)
	gone := w.person("gone")
	require.NoError(t, w.DisableOperator(t.Context(), tenant, gone.ID))

	work := func(c identity.Credentials) (price []string, err error) {
		reads := w.store.nameReads.Load()
		price = w.kdf.since(func() { _, err = w.SignIn(t.Context(), c) })
		return append(price, fmt.Sprintf("reads=%d", w.store.nameReads.Load()-reads)), err
	}
	want, err := work(identity.Credentials{Tenant: tenant, Name: "ada", Password: password, Address: here})
	require.NoError(t, err)
	require.Equal(t, []string{"t=3 m=65536 p=4 salt=16 tag=32", "reads=1"}, want)
	var text string
	for what, c := range map[string]identity.Credentials{
		"wrong password":      {Tenant: tenant, Name: "ada", Password: password + "x"},
		"no password":         {Tenant: tenant, Name: "ada"},
		"other case":          {Tenant: tenant, Name: "ada", Password: strings.ToUpper(password)},
		"space at the end":    {Tenant: tenant, Name: "ada", Password: password + " "},
		"impossible password": {Tenant: tenant, Name: "ada", Password: "\xff" + password},
		"endless password":    {Tenant: tenant, Name: "ada", Password: strings.Repeat(password, 100)},
		"unknown name":        {Tenant: tenant, Name: "bea", Password: password},
		"no name":             {Tenant: tenant, Password: password},
		"no such name":        {Tenant: tenant, Name: "ada'; --", Password: password},
		"name with NUL":       {Tenant: tenant, Name: "ada\x00", Password: password},
		"letter like a":       {Tenant: tenant, Name: "аda", Password: password},
		"before the set-up":   {Tenant: tenant, Name: "fresh", Password: password},
		"empty, no set-up":    {Tenant: tenant, Name: "fresh"},
		"disabled":            {Tenant: tenant, Name: "gone", Password: password},
		"other tenant":        {Tenant: "other", Name: "ada", Password: password},
	} {
		w.clock.pass(identity.NameEvery)
		c.Address = here
		price, err := work(c)
		f := refused(t, fault.Unauthenticated, err, what)
		require.Equal(t, want, price, what)
		if text == "" {
			text = f.Detail
		}
		require.Equal(t, text, f.Detail, what)
		require.Zero(t, f.RetryAfter, what)
	}
}

func TestSignIn_StoreGone(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	require.NoError(t, w.db.Close())
	// No password was judged, so no try is lost.
	for range identity.PairBurst + 1 {
		refused(t, fault.StoreUnavailable, w.signIn("ada", password, here))
	}
}

// aged is the password under parameters of another day.
func (w *world) aged(o identity.Operator) {
	w.t.Helper()
	salt := []byte("0123456789abcdef")
	b64 := base64.RawStdEncoding.EncodeToString
	stored := fmt.Sprintf("$argon2id$v=19$m=19456,t=2,p=1$%s$%s", b64(salt), b64(w.kdf.IDKey([]byte(password), salt, 2, 19456, 1, 32)))
	require.NoError(w.t, w.db.ReplacePassword(w.t.Context(), tenant, o.ID, o.Password, stored))
}

func TestSignIn_UpgradesOldHash(t *testing.T) {
	w := newWorld(t)
	w.aged(w.person("ada"))
	refused(t, fault.Unauthenticated, w.signIn("ada", password+"x", here))
	o, err := w.SignIn(t.Context(), identity.Credentials{Tenant: tenant, Name: "ada", Password: password, Address: here})
	require.NoError(t, err)
	require.Contains(t, o.Password, "$m=65536,t=3,p=4$")
	stored, err := w.OperatorNamed(t.Context(), tenant, "ada")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(o, stored))
	require.Len(t, w.kdf.since(func() { require.NoError(t, w.signIn("ada", password, here)) }), 1, "once is enough")
}

// What happens between reading the old hash and storing the new one counts.
func TestSignIn_UpgradeLosesRace(t *testing.T) {
	for what, c := range map[string]struct {
		meanwhile func(*world, identity.Operator)
		ok        bool
	}{
		"another sign-in upgraded": {func(w *world, o identity.Operator) { require.NoError(w.t, w.signIn("ada", password, here)) }, true},
		"disabled": {func(w *world, o identity.Operator) {
			require.NoError(w.t, w.DisableOperator(w.t.Context(), tenant, o.ID))
		}, false},
		"another password": {func(w *world, o identity.Operator) {
			code, err := w.NewSetupLink(w.t.Context(), tenant, o.ID, 0)
			require.NoError(w.t, err)
			_, err = w.CompleteSetup(w.t.Context(), code, "another password than before")
			require.NoError(w.t, err)
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			o := w.person("ada")
			w.aged(o)
			w.store.afterNameRead = func() {
				w.store.afterNameRead = nil
				c.meanwhile(w, o)
			}
			if err := w.signIn("ada", password, here); !c.ok {
				refused(t, fault.Unauthenticated, err)
				return
			}
			got, err := w.OperatorNamed(t.Context(), tenant, "ada")
			require.NoError(t, err)
			require.Contains(t, got.Password, "$m=65536,t=3,p=4$")
		})
	}
}

// S20: few computations at a time, few that wait, and who leaves frees the place.
func TestSignIn_Crowd(t *testing.T) {
	w := newWorld(t)
	w.person("ada")
	gate := make(chan struct{})
	var running, most atomic.Int64
	w.kdf.during = func() {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-gate
		running.Add(-1)
	}
	var crowd sync.WaitGroup
	const places = identity.KDFParallel + identity.KDFWaiting
	enter := func(n int, ctx context.Context, answer func(error)) {
		crowd.Go(func() {
			_, err := w.SignIn(ctx, identity.Credentials{Tenant: tenant, Name: fmt.Sprintf("guess-%d", n), Address: address(n)})
			answer(err)
		})
	}
	var judged atomic.Int64
	for n := range places - 1 {
		enter(n, t.Context(), func(err error) {
			if fault.Is(err, fault.Unauthenticated) {
				judged.Add(1)
			}
		})
	}
	waitFor(func() bool { return w.Waiting() == places-1 && running.Load() == identity.KDFParallel })

	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	enter(places, leaving, func(err error) { left <- err })
	waitFor(func() bool { return w.Waiting() == places })
	for range identity.PairBurst + 1 {
		f := refused(t, fault.RateLimited, w.signIn("ada", password, here), "the queue is full")
		require.Positive(t, f.RetryAfter)
	}
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	waitFor(func() bool { return w.Waiting() == places-1 })

	close(gate)
	crowd.Wait()
	require.EqualValues(t, places-1, judged.Load())
	require.EqualValues(t, identity.KDFParallel, most.Load())
	require.Zero(t, w.Waiting())
	require.NoError(t, w.signIn("ada", password, here), "the crowd cost nobody a try")
}

// waitFor gives way until something that is sure to happen has happened.
func waitFor(happened func() bool) {
	for !happened() {
		runtime.Gosched()
	}
}
