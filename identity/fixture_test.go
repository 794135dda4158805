package identity_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
	"countersign/store/sqlstore"
)

const (
	tenant   = "default"
	password = "correct pony battery staple"
)

var here = netip.MustParseAddr("192.0.2.1")

// world is a Service on a real store, with a clock that stands still and a
// cheap stand-in for argon2id.
type world struct {
	*identity.Service
	t     testing.TB
	dir   string
	db    *sqlstore.DB
	store *watchedStore
	kdf   *countedKDF
	clock *clock
	// revoke is the guard hook; nil does nothing.
	revoke func(tenant, agent string) error
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir(), kdf: &countedKDF{}, clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
	db, err := sqlstore.Open(t.Context(), sqlstore.Options{Path: filepath.Join(w.dir, "ledger.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	w.db, w.store = db, &watchedStore{DB: db}
	w.Service = identity.New(w.config())
	return w
}

func (w *world) config() identity.Config {
	return identity.Config{
		Store: w.store, Now: w.clock.Now, Argon2idFunc: w.kdf.IDKey,
		Revoke: func(_ context.Context, tenant, agent string) error {
			if w.revoke == nil {
				return nil
			}
			return w.revoke(tenant, agent)
		},
	}
}

// person makes an operator with the password.
func (w *world) person(name string, groups ...string) identity.Operator {
	w.t.Helper()
	_, code, err := w.CreateOperator(w.t.Context(), tenant, name, groups)
	require.NoError(w.t, err)
	o, err := w.CompleteSetup(w.t.Context(), code, password)
	require.NoError(w.t, err)
	return o
}

// program makes an agent for all tools.
func (w *world) program(name string) (identity.Agent, string) {
	w.t.Helper()
	a, key, err := w.CreateAgent(w.t.Context(), tenant, name, identity.BuiltinOwner, []string{identity.AllTools})
	require.NoError(w.t, err)
	return a, key
}

func (w *world) signIn(name, password string, from netip.Addr) error {
	w.t.Helper()
	_, err := w.SignIn(w.t.Context(), identity.Credentials{Tenant: tenant, Name: name, Password: password, Address: from})
	return err
}

// refused checks the code of a refusal and gives it.
func refused(t testing.TB, code fault.Code, err error, what ...any) *fault.Error {
	t.Helper()
	require.Error(t, err, what...)
	f := fault.Of(err)
	require.Equal(t, code, f.Code, "%v %v", err, what)
	return f
}

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// countedKDF stands in for argon2.IDKey: every input counts, nothing is slow.
type countedKDF struct {
	calls atomic.Int64
	// during runs inside each computation; nil does nothing.
	during func()
	mu     sync.Mutex
	costs  []string
}

func (k *countedKDF) IDKey(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte {
	k.calls.Add(1)
	cost := fmt.Sprintf("t=%d m=%d p=%d salt=%d tag=%d", time, memory, threads, len(salt), keyLen)
	k.mu.Lock()
	k.costs = append(k.costs, cost)
	k.mu.Unlock()
	if k.during != nil {
		k.during()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", password, salt, cost))
	return sum[:keyLen]
}

// since gives the costs of the computations that f made.
func (k *countedKDF) since(f func()) []string {
	k.mu.Lock()
	before := len(k.costs)
	k.mu.Unlock()
	f()
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{}, k.costs[before:]...)
}

// watchedStore is the real store; it counts some calls, and lets a test act
// between a read and what follows.
type watchedStore struct {
	*sqlstore.DB
	keyReads, nameReads, extensions atomic.Int64
	// afterNameRead runs after the row was read; nil does nothing.
	afterNameRead func()
	// refuse is the answer to CreateAgent, if any.
	refuse error
}

func (s *watchedStore) CreateAgent(ctx context.Context, a identity.Agent) error {
	if s.refuse != nil {
		return s.refuse
	}
	return s.DB.CreateAgent(ctx, a)
}

func (s *watchedStore) AgentByKey(ctx context.Context, keyID string) (identity.Agent, error) {
	s.keyReads.Add(1)
	return s.DB.AgentByKey(ctx, keyID)
}

func (s *watchedStore) OperatorByName(ctx context.Context, tenant, name string) (identity.Operator, error) {
	s.nameReads.Add(1)
	o, err := s.DB.OperatorByName(ctx, tenant, name)
	if s.afterNameRead != nil {
		s.afterNameRead()
	}
	return o, err
}

func (s *watchedStore) ExtendSession(ctx context.Context, tokenHash string, until time.Time) error {
	s.extensions.Add(1)
	return s.DB.ExtendSession(ctx, tokenHash, until)
}
