package api_test

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/api"
	"countersign/approvals"
	"countersign/audit"
	"countersign/commit"
	"countersign/examples/shop"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/reconcile"
	"countersign/store/sqlstore"
	"countersign/tokens"
	"countersign/tools"
	"countersign/tools/httptool"
)

// rig is a whole gateway in one process: the API over real services, SQLite in a
// temporary folder, and the Acme shop as the outside world.
type rig struct {
	t       testing.TB
	clock   *clock
	shop    *shop.Shop
	outside *outside
	store   *faultyStore

	ledger    *ledger.Ledger
	keys      *tokens.KeySet
	signer    *tokens.Signer
	registry  *tools.Registry
	executor  *commit.Executor
	sweeper   *reconcile.Sweeper
	identity  *identity.Service
	sessions  *identity.Sessions
	config    api.Config
	api       *api.Server
	server    *httptest.Server
	log       *logged
	compile   func(m *tools.Manifest) *tools.Tool
	manifests []tools.Loaded

	// clerk and helper may use all tools, stray only one that is not there.
	clerk, helper, stray string // keys
	clerkID, helperID    string
	// ann is in finance and support, bob in finance, owner owns the agents.
	ann, bob, owner *http.Cookie
}

const tenant = "default"

// options change a rig before it starts.
type options struct {
	ratePerMinute, burst int
	bodyTimeout          time.Duration
	quota                int
	readBudget           time.Duration
	draining             chan struct{}
	// beside are handlers on the same host that are not the API's.
	beside map[string]http.Handler
}

// newRig starts a gateway.
func newRig(t testing.TB, change ...func(*options)) *rig {
	t.Helper()
	o := options{ratePerMinute: 1_000_000, burst: 1_000_000, readBudget: 5 * time.Second}
	for _, c := range change {
		c(&o)
	}
	r := &rig{t: t, clock: &clock{now: time.Date(2026, 11, 16, 10, 0, 0, 0, time.UTC)}, log: &logged{}}
	r.startShop()
	r.startServices(o)
	r.startAPI(o)
	r.people()
	return r
}

func (r *rig) startShop() {
	t := r.t
	var err error
	r.shop, err = shop.Open(shop.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	r.outside = &outside{inner: r.shop.Handler()}
	upstream := httptest.NewServer(r.outside)
	r.outside.url = upstream.URL
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
		require.NoError(t, r.shop.Close())
	})
}

func (r *rig) startServices(o options) {
	t, ctx := r.t, context.Background()
	dir := t.TempDir()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(dir, "ledger.db"), Now: r.clock.Now})
	require.NoError(t, err)
	r.store = &faultyStore{DB: db}
	r.ledger, err = ledger.Open(ctx, ledger.Config{Store: r.store, Now: r.clock.Now})
	require.NoError(t, err)
	r.keys, err = tokens.LoadOrCreate(filepath.Join(dir, "keys.json"), r.clock.Now(), tokens.KeyOptions{})
	require.NoError(t, err)
	r.signer, err = tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: r.keys, Now: r.clock.Now})
	require.NoError(t, err)
	r.identity = identity.New(identity.Config{
		Store: r.store, Now: r.clock.Now, Argon2idFunc: cheapHash,
		Revoke: func(ctx context.Context, tenant, agent string) error {
			_, _, err := r.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Revoked = append(g.Revoked, agent) })
			return err
		},
	})
	r.loadTools(o)
	person := approvals.Directory(r.store)
	r.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: r.ledger, Store: r.store, Registry: r.registry, Person: person, Owner: "test"})
	r.sweeper = reconcile.New(reconcile.Config{Ledger: r.ledger, Store: r.store, Owner: "test"})
	previews := preview.New(preview.Config{Ledger: r.ledger, Store: r.store, Registry: r.registry, Signer: r.signer, Quota: o.quota})
	commits := commit.New(commit.Config{Ledger: r.ledger, Registry: r.registry, Signer: r.signer, Executor: r.executor})
	r.sessions = identity.NewSessions(r.identity, identity.SessionsConfig{
		OnError: func(w http.ResponseWriter, q *http.Request, err error) { r.api.SessionError(w, q, err) },
	})
	r.config = api.Config{
		ReferenceScript: "/static/scalar.js",
		Ledger:          r.ledger, Registry: r.registry, Preview: previews, Commit: commits,
		Approvals: approvals.New(approvals.Config{Ledger: r.ledger, Person: person}),
		Identity:  r.identity, Sessions: r.sessions, Keys: r.keys,
		Ask: reconcile.NewReconciler(reconcile.ReconcilerConfig{
			Ledger: r.ledger, Store: r.store, Registry: r.registry, Executor: r.executor, Owner: "test",
		}).AskNow,
		Receipt: func(ctx context.Context, tenant, id string) (string, json.RawMessage, error) {
			receipts := audit.Receipts{Store: r.store, Ledger: r.ledger.ID(), Keys: r.keys, Now: r.clock.Now}
			token, receipt, err := receipts.Issue(ctx, r.ledger.Reader, tenant, id)
			if err != nil {
				return "", nil, err
			}
			text, err := json.Marshal(receipt)
			return token, text, err
		},
		Hosts: []string{"127.0.0.1"}, PublicURL: "https://gate.example",
		RatePerMinute: o.ratePerMinute, Burst: o.burst, BodyTimeout: o.bodyTimeout, Draining: o.draining,
		Now: r.clock.Now, Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	r.api, err = api.New(r.config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.executor.Drain(ctx))
		require.NoError(t, db.Close())
	})
}

// loadTools puts the shop's manifests and the test's own in force.
func (r *rig) loadTools(o options) {
	t := r.t
	allow, err := httptool.ParseAllowed("127.0.0.1")
	require.NoError(t, err)
	client, err := httptool.Open(httptool.Upstream{
		Name: "shop", URL: r.outside.url, Allow: []httptool.Allowed{allow}, Now: r.clock.Now,
		Sleep:  func(context.Context, time.Duration) error { return nil },
		Limits: httptool.Limits{ReadBudget: o.readBudget, GuardBudget: o.readBudget},
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	r.compile = func(m *tools.Manifest) *tools.Tool {
		tool, err := tools.Compile(m, tools.CompileEnv{
			UpstreamURL:  client.URL(),
			NewConnector: client.Connector, RedactKey: []byte("a key of the test, 32 bytes long"),
		})
		require.NoError(t, err)
		return tool
	}
	r.newRegistry()
	all := map[string]string{}
	for _, dir := range []string{"../examples/shop", "testdata/tools"} {
		files, err := filepath.Glob(dir + "/*.yaml")
		require.NoError(t, err)
		for _, f := range files {
			all[filepath.Base(f)] = f
		}
	}
	var paths []string
	for _, f := range all {
		paths = append(paths, f)
	}
	r.manifests, err = tools.Load(paths...)
	require.NoError(t, err)
	r.inForce(func(*tools.Tool) bool { return true })
}

func (r *rig) newRegistry() {
	r.registry = tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) { return nil, tools.ErrUpstreamGone })
}

// forgetTools starts the API on a registry that knows no tool, as after a restart
// without the upstream.
func (r *rig) forgetTools() {
	r.newRegistry()
	r.config.Registry = r.registry
	server, err := api.New(r.config)
	require.NoError(r.t, err)
	*r.api = *server
}

// inForce sets which tools are in force, as a reload does.
func (r *rig) inForce(keep func(*tools.Tool) bool) {
	var list []*tools.Tool
	for _, l := range r.manifests {
		if tool := r.compile(l.Manifest); keep(tool) {
			list = append(list, tool)
		}
	}
	require.NoError(r.t, r.registry.Set(list))
	_, _, err := r.ledger.ChangeGuard(context.Background(), tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools = r.registry.Versions() })
	require.NoError(r.t, err)
}

// policy puts the approval rules of another tool in force for a tool, as a policy
// file beside its manifest does: the tool's version stays.
func (r *rig) policy(tool, as string) {
	like, ok := r.registry.Get(as)
	require.True(r.t, ok)
	list := r.registry.List()
	for i, t := range list {
		if t.Name == tool {
			changed := *t
			changed.Approval = like.Approval
			list[i] = &changed
		}
	}
	require.NoError(r.t, r.registry.Set(list))
}

func (r *rig) startAPI(o options) {
	// Signing in is the page's; a test goes straight to the session.
	signIn := r.sessions.LoadAndSave(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		op, err := r.identity.OperatorNamed(q.Context(), tenant, q.URL.Query().Get("name"))
		require.NoError(r.t, err)
		require.NoError(r.t, r.sessions.SignIn(q.Context(), op))
		w.WriteHeader(http.StatusNoContent)
	}))
	all := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h, ok := o.beside[q.URL.Path]
		switch {
		case ok:
			h.ServeHTTP(w, q)
		case q.URL.Path == "/test/sign-in":
			signIn.ServeHTTP(w, q)
		default:
			r.api.ServeHTTP(w, q)
		}
	})
	r.server = httptest.NewUnstartedServer(nil)
	hardened := api.Hardened(all, slog.New(slog.DiscardHandler))
	if o.bodyTimeout > 0 {
		hardened.ReadHeaderTimeout = o.bodyTimeout
	}
	r.server.Config = hardened
	r.server.Start()
	r.t.Cleanup(r.server.Close)
}

func (r *rig) people() {
	t, ctx := r.t, context.Background()
	operator := func(name string, groups ...string) (identity.Operator, *http.Cookie) {
		_, code, err := r.identity.CreateOperator(ctx, tenant, name, groups)
		require.NoError(t, err)
		op, err := r.identity.CompleteSetup(ctx, code, "a long pass phrase of "+name+" 1")
		require.NoError(t, err)
		return op, r.signIn(name)
	}
	owner, cookie := operator("owner", "finance", "support")
	r.owner = cookie
	_, r.ann = operator("ann", "finance", "support")
	_, r.bob = operator("bob", "finance")
	agent := func(name string, granted ...string) (string, string) {
		a, key, err := r.identity.CreateAgent(ctx, tenant, name, owner.ID, granted)
		require.NoError(t, err)
		return a.ID, key
	}
	r.clerkID, r.clerk = agent("clerk", "*")
	r.helperID, r.helper = agent("helper", "*")
	_, r.stray = agent("stray", "list_orders")
}

// signIn gives the cookie of a new session.
func (r *rig) signIn(name string) *http.Cookie {
	res, err := http.Get(r.server.URL + "/test/sign-in?name=" + url.QueryEscape(name))
	require.NoError(r.t, err)
	defer res.Body.Close()
	require.Equal(r.t, http.StatusNoContent, res.StatusCode)
	require.Len(r.t, res.Cookies(), 1)
	return res.Cookies()[0]
}

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

// logged is what the gateway has logged so far.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// outside stands before the shop and can fail reads, which the shop itself never
// does.
type outside struct {
	inner http.Handler
	url   string

	mu     sync.Mutex
	broken func(http.ResponseWriter, *http.Request)
}

func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	broken := o.broken
	o.mu.Unlock()
	if broken != nil && r.Method == http.MethodGet {
		broken(w, r)
		return
	}
	o.inner.ServeHTTP(w, r)
}

// breakReads answers every read by f until it is called with nil.
func (o *outside) breakReads(f func(http.ResponseWriter, *http.Request)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = f
}

// asJSON writes a body.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// cheapHash stands for argon2id, whose price is not what is tested here.
func cheapHash(password, salt []byte, _, _ uint32, _ uint8, keyLen uint32) []byte {
	sum := sha512.Sum512(append(append([]byte(nil), salt...), password...))
	return sum[:keyLen]
}
