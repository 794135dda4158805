package api_test

import (
	"context"
	"io"
	"sync"
	"time"

	"countersign/identity"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

// faultyStore is the real store with its disk and its line cut by the test.
type faultyStore struct {
	*sqlstore.DB

	mu sync.Mutex
	// reads and writes fail with these; lost makes writes apply and their answer
	// be lost, for good.
	reads, writes error
	lost          bool
	// plans makes reads of plans fail.
	plans error
	// grants, when set, are what agents may use from now on.
	grants []string
	// listed changes what lists show; lists counts down to the one that fails.
	listed   func(ledger.Page) ledger.Page
	lists    int
	listFail error
	perPage  int
	// meanwhile runs before the next change of a guard row.
	meanwhile func()
	// looked counts reads of single operations.
	looked int
}

func (f *faultyStore) set(reads, writes error, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads, f.writes, f.lost = reads, writes, lost
}

func (f *faultyStore) looks() int { f.mu.Lock(); defer f.mu.Unlock(); return f.looked }

func (f *faultyStore) read() error { f.mu.Lock(); defer f.mu.Unlock(); return f.reads }

func (f *faultyStore) write(do func() error) error {
	f.mu.Lock()
	err, lost := f.writes, f.lost
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if lost {
		return &ledger.Ambiguous{Err: io.ErrUnexpectedEOF}
	}
	return do()
}

func (f *faultyStore) PutPreview(ctx context.Context, p ledger.Preview) error {
	return f.write(func() error { return f.DB.PutPreview(ctx, p) })
}

func (f *faultyStore) Open(ctx context.Context, o ledger.Opening) error {
	return f.write(func() error { return f.DB.Open(ctx, o) })
}

func (f *faultyStore) Apply(ctx context.Context, t ledger.Transition) error {
	return f.write(func() error { return f.DB.Apply(ctx, t) })
}

func (f *faultyStore) ChangeGuard(ctx context.Context, c ledger.GuardChange) (ops []ledger.Operation, err error) {
	f.mu.Lock()
	meanwhile := f.meanwhile
	f.meanwhile = nil
	f.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	err = f.write(func() error {
		ops, err = f.DB.ChangeGuard(ctx, c)
		return err
	})
	return ops, err
}

// before runs something just before the next change of a guard row.
func (f *faultyStore) before(do func()) { f.mu.Lock(); defer f.mu.Unlock(); f.meanwhile = do }

func (f *faultyStore) List(ctx context.Context, q ledger.Filter) (ledger.Page, error) {
	f.mu.Lock()
	listed := f.listed
	f.lists--
	fail := f.listFail
	broken := fail != nil && f.lists == 0
	if broken {
		f.listFail = nil
	}
	if f.perPage > 0 {
		q.Limit = f.perPage
	}
	f.mu.Unlock()
	if broken {
		return ledger.Page{}, fail
	}
	page, err := f.DB.List(ctx, q)
	if err == nil && listed != nil {
		page = listed(page)
	}
	return page, err
}

// breakList makes the n-th list from now on fail.
func (f *faultyStore) breakList(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists, f.listFail = n, err
}

// pages makes lists give n operations at a time.
func (f *faultyStore) pages(n int) { f.mu.Lock(); defer f.mu.Unlock(); f.perPage = n }

// eachOperation changes the operations in lists.
func (f *faultyStore) eachOperation(change func(*ledger.Operation)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = func(p ledger.Page) ledger.Page {
		for i := range p.Operations {
			change(&p.Operations[i])
		}
		return p
	}
}

func (f *faultyStore) Ping(ctx context.Context) error {
	if err := f.read(); err != nil {
		return err
	}
	return f.DB.Ping(ctx)
}

func (f *faultyStore) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	f.mu.Lock()
	f.looked++
	f.mu.Unlock()
	if err := f.read(); err != nil {
		return ledger.Operation{}, err
	}
	return f.DB.Operation(ctx, tenant, id)
}

func (f *faultyStore) Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error) {
	f.mu.Lock()
	err := f.plans
	f.mu.Unlock()
	if err != nil {
		return tools.Plan{}, err
	}
	return f.DB.Plan(ctx, tenant, operation, round)
}

func (f *faultyStore) losePlans(err error) { f.mu.Lock(); defer f.mu.Unlock(); f.plans = err }

func (f *faultyStore) AgentByKey(ctx context.Context, key string) (identity.Agent, error) {
	if err := f.read(); err != nil {
		return identity.Agent{}, err
	}
	a, err := f.DB.AgentByKey(ctx, key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grants != nil {
		a.Tools = f.grants
	}
	return a, err
}

func (f *faultyStore) grant(tools ...string) { f.mu.Lock(); defer f.mu.Unlock(); f.grants = tools }

func (f *faultyStore) Session(ctx context.Context, hash string, now time.Time) (identity.Session, error) {
	if err := f.read(); err != nil {
		return identity.Session{}, err
	}
	return f.DB.Session(ctx, hash, now)
}
