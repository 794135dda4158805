package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	"countersign/tools/tooltest"
	"countersign/web"
)

const (
	tenant   = "default"
	password = "quiet harbour lantern"
)

// rig is a whole gateway in one process, on real SQLite, with the demo's shop and
// scripted tools behind it, and the pages in front.
type rig struct {
	t        testing.TB
	clock    *clock
	db       *sqlstore.DB
	file     string // the ledger\'s
	ledger   *ledger.Ledger
	identity *identity.Service
	registry *tools.Registry
	executor *commit.Executor
	previews *preview.Service
	commits  *commit.Service
	// reconciler runs in the background; sealer seals when a test says so.
	reconciler *reconcile.Reconciler
	sealer     *audit.Sealer
	audit      *web.Audit
	// endReconciling ends the background's work, for tests that ask by themselves.
	endReconciling func()
	keys           *tokens.KeySet
	approvals      *approvals.Service
	pages          *web.Pages
	shop           *shop.Shop
	shopURL        string
	server         *httptest.Server
	log            *syncBuffer

	agent  identity.Agent
	calls  atomic.Int64
	people map[string]identity.Operator
}

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// syncBuffer collects the log.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// seeded is a random source that gives the same ids and codes in every run.
type seeded struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (s *seeded) Read(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.r.Read(p) }

// numbered makes ids that count, so that pages are the same in every run.
func numbered() func(prefix string) string {
	var mu sync.Mutex
	n := 0
	return func(prefix string) string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("%s06f0%022d", prefix, n)
	}
}

// quickKDF stands for argon2id, whose price is no matter of pages.
func quickKDF(password, salt []byte, _, _ uint32, _ uint8, keyLen uint32) []byte {
	out := make([]byte, keyLen)
	for i, b := range append(append([]byte{}, password...), salt...) {
		out[i%len(out)] = out[i%len(out)]*31 + b
	}
	return out
}

// newRig starts a gateway. more are tools beside the shop's.
func newRig(t testing.TB, more ...*tools.Tool) *rig { return newRigWith(t, nil, more...) }

func newRigWith(t testing.TB, change func(*web.Config), more ...*tools.Tool) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}, log: &syncBuffer{}, people: map[string]identity.Operator{}}
	now := r.clock.Now
	var err error
	r.file = filepath.Join(t.TempDir(), "ledger.db")
	r.db, err = sqlstore.Open(ctx, sqlstore.Options{Path: r.file, Now: now})
	require.NoError(t, err)
	r.ledger, err = ledger.Open(ctx, ledger.Config{Store: r.db, Now: now, NewID: numbered()})
	require.NoError(t, err)
	r.keys, err = tokens.LoadOrCreate(filepath.Join(t.TempDir(), "keys.json"), now(), tokens.KeyOptions{})
	require.NoError(t, err)
	signer, err := tokens.New(tokens.Config{Issuer: r.ledger.ID(), Keys: r.keys, Now: now})
	require.NoError(t, err)
	r.identity = identity.New(identity.Config{
		Store: r.db, Now: now, Rand: &seeded{r: rand.NewChaCha8([32]byte{1})}, Argon2idFunc: quickKDF,
		Revoke: func(context.Context, string, string) error { return nil },
	})
	r.registry = tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) {
		return nil, fmt.Errorf("nothing is compiled here: %w", tools.ErrUpstreamGone)
	})
	for _, tool := range more {
		switch c := tool.Connector.(type) {
		case *tooltest.Fake:
			c.Now = now
		case headlined:
			c.Now = now
		case echoing:
			c.Now = now
		}
	}
	require.NoError(t, r.registry.Set(append(r.openShop(), more...)))
	_, _, err = r.ledger.ChangeGuard(ctx, tenant, ledger.Change{What: "test"}, func(g *ledger.Guard) { g.Tools = r.registry.Versions() })
	require.NoError(t, err)
	person := approvals.Directory(r.db)
	r.executor = commit.NewExecutor(commit.ExecutorConfig{Ledger: r.ledger, Store: r.db, Registry: r.registry, Person: person, Owner: "test"})
	r.reconciler = reconcile.NewReconciler(reconcile.ReconcilerConfig{Ledger: r.ledger, Store: r.db, Registry: r.registry, Executor: r.executor, Owner: "test"})
	background, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.reconciler.Run(background) }() // it ends with its context only
	r.endReconciling = func() { end(); <-ended }
	t.Cleanup(r.endReconciling)
	r.previews = preview.New(preview.Config{Ledger: r.ledger, Store: r.db, Registry: r.registry, Signer: signer})
	r.commits = commit.New(commit.Config{Ledger: r.ledger, Registry: r.registry, Signer: signer, Executor: r.executor})
	r.approvals = approvals.New(approvals.Config{Ledger: r.ledger, Person: person})
	r.sealer = audit.NewSealer(audit.SealerConfig{
		Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: now, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Anchors: []audit.Anchor{audit.NewFileAnchor(filepath.Join(t.TempDir(), "anchor.jsonl"))},
	})
	r.audit = &web.Audit{
		Source: r.db, Receipts: audit.Receipts{Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: now},
		Anchors: r.sealer.Anchors, Every: time.Minute,
	}
	r.serve(change)
	r.agent, _, err = r.identity.CreateAgent(ctx, tenant, "support-bot", identity.BuiltinOwner, []string{identity.AllTools})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.pages.Close()
		r.server.Close()
		drained, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.executor.Drain(drained) // a test that leaves a reply held has said what it wanted
		if r.db != nil {
			require.NoError(t, r.db.Close())
		}
	})
	return r
}

// serve puts the pages in front.
func (r *rig) serve(change func(*web.Config)) {
	var err error
	sessions := identity.NewSessions(r.identity, identity.SessionsConfig{
		Background: web.Background,
		OnError:    func(w http.ResponseWriter, req *http.Request, err error) { r.pages.SessionError(w, req, err) },
	})
	cfg := web.Config{
		Approvals: r.approvals, Ledger: r.ledger, Identity: r.identity, Sessions: sessions, Registry: r.registry, Previews: r.previews, Commits: r.commits,
		Ask: r.reconciler.AskNow, Audit: r.audit,
		Tenant: tenant, Version: "1.0.0", Now: r.clock.Now, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r.pages, err = web.New(cfg)
	require.NoError(r.t, err)
	r.server = httptest.NewServer(r.pages.Handler())
}

// openShop starts the demo's shop and compiles its tools.
func (r *rig) openShop() []*tools.Tool {
	t := r.t
	var err error
	r.shop, err = shop.Open(shop.Config{Dir: t.TempDir(), Key: "shop-key-1234", Now: r.clock.Now})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- r.shop.Serve(ln) }()
	r.shopURL = "http://" + ln.Addr().String()
	allowed, err := httptool.ParseAllowed(ln.Addr().String())
	require.NoError(t, err)
	client, err := httptool.Open(httptool.Upstream{
		Name: "shop", URL: r.shopURL, Allow: []httptool.Allowed{allowed}, Now: r.clock.Now,
		Auth: &httptool.Credential{Bearer: func() (string, error) { return "shop-key-1234", nil }},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		require.NoError(t, r.shop.Close())
		require.NoError(t, <-served)
	})
	loaded, err := tools.LoadFS(shop.Manifests)
	require.NoError(t, err)
	var list []*tools.Tool
	for _, l := range loaded {
		tool, err := tools.Compile(l.Manifest, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: client.Connector, RedactKey: []byte("key")})
		require.NoError(t, err)
		list = append(list, tool)
	}
	return list
}

// operator makes a person with the password, once.
func (r *rig) operator(name string, groups ...string) identity.Operator {
	r.t.Helper()
	if o, ok := r.people[name]; ok {
		return o
	}
	_, code, err := r.identity.CreateOperator(context.Background(), tenant, name, groups)
	require.NoError(r.t, err)
	o, err := r.identity.CompleteSetup(context.Background(), code, password)
	require.NoError(r.t, err)
	r.people[name] = o
	return o
}

// args are a call's arguments as the decoder gives them: pairs of name and value.
func args(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		if n, ok := v.(int); ok {
			v = json.Number(fmt.Sprint(n))
		}
		m[pairs[i].(string)] = v
	}
	return m
}

// ask previews and commits for an agent, as one more call of its run; it gives the
// operation as opened.
func (r *rig) ask(agent identity.Agent, tool string, in map[string]any) ledger.Operation {
	r.t.Helper()
	return r.askIn(agent, tool, in, &ledger.Run{ID: "run_support-0412", Step: "7", Call: fmt.Sprintf("call_%02x", 0x2f+r.calls.Add(1)-1)})
}

func (r *rig) askIn(agent identity.Agent, tool string, in map[string]any, run *ledger.Run) ledger.Operation {
	r.t.Helper()
	ctx := context.Background()
	p, err := r.previews.Preview(ctx, preview.Request{Agent: agent, Tool: tool, Args: in, Run: run, RequestID: "req_5k2m"})
	require.NoError(r.t, err)
	require.NotEmpty(r.t, p.Token)
	return r.spend(agent, tool, p.Token, 10*time.Second)
}

func (r *rig) spend(agent identity.Agent, tool, token string, wait time.Duration) ledger.Operation {
	r.t.Helper()
	c, err := r.commits.Commit(context.Background(), commit.Request{Agent: agent, Tool: tool, Token: token, RequestID: "req_5k2m", Wait: wait})
	require.NoError(r.t, err)
	return c.Operation
}

// byHand changes something in the shop behind everybody's back.
func (r *rig) byHand(path string) {
	r.t.Helper()
	resp, err := http.Post(r.shopURL+path, "application/json", strings.NewReader("{}"))
	require.NoError(r.t, err)
	defer resp.Body.Close()
	require.Less(r.t, resp.StatusCode, 300)
}

// withRefusal has the shop refuse the next request for certain.
func withRefusal(r *rig) shop.Switches {
	sw := r.shop.Switches()
	sw.RefuseNext = 1
	return sw
}

// decide takes a decision beside the page.
func (r *rig) decide(who identity.Operator, id, word, reason string) {
	r.t.Helper()
	ctx := context.Background()
	card, err := r.approvals.Card(ctx, approvals.PersonOf(who), tenant, id)
	require.NoError(r.t, err)
	_, err = r.approvals.Decide(ctx, who, id, approvals.Decision{Word: word, ShownDigest: card.ShownDigest, Reason: reason})
	require.NoError(r.t, err)
}

// work lets the executor take up what is pending, and waits for it.
func (r *rig) work() {
	r.t.Helper()
	r.clock.Add(11 * time.Second) // past soft claims
	_, err := r.executor.RunOnce(context.Background())
	require.NoError(r.t, err)
	require.NoError(r.t, r.executor.Drain(context.Background()))
}

func (r *rig) op(id string) ledger.Operation {
	r.t.Helper()
	op, err := r.ledger.Operation(context.Background(), tenant, id)
	require.NoError(r.t, err)
	return op
}

// browser is a person without scripts: it keeps cookies, follows nothing by
// itself, and sends what a browser's forms send.
type browser struct {
	t      testing.TB
	r      *rig
	client *http.Client
	// site is Sec-Fetch-Site of the forms.
	site string
}

// page is an answer, read whole.
type page struct {
	Status   int
	Header   http.Header
	Body     string
	Location string
}

func (r *rig) browser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(r.t, err)
	return &browser{t: r.t, r: r, site: "same-origin", client: &http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// as signs a person in by the form.
func (r *rig) as(name string, groups ...string) *browser {
	r.t.Helper()
	r.operator(name, groups...)
	b := r.browser()
	got := b.post("/sign-in", "name", name, "password", password)
	require.Equal(r.t, http.StatusSeeOther, got.Status, got.Body)
	return b
}

func (b *browser) do(req *http.Request) page {
	b.t.Helper()
	resp, err := b.client.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return page{Status: resp.StatusCode, Header: resp.Header, Body: string(body), Location: resp.Header.Get("Location")}
}

func (b *browser) get(path string) page {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, b.r.server.URL+path, nil)
	require.NoError(b.t, err)
	return b.do(req)
}

func (b *browser) post(path string, pairs ...string) page {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	req, err := http.NewRequest(http.MethodPost, b.r.server.URL+path, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", b.r.server.URL)
	req.Header.Set("Sec-Fetch-Site", b.site)
	return b.do(req)
}

// follow goes where a redirect leads.
func (b *browser) follow(p page) page {
	b.t.Helper()
	require.Equal(b.t, http.StatusSeeOther, p.Status, p.Body)
	return b.get(p.Location)
}

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }
