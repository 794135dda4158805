package powercut_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/harness/powercut"
	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/tools"
)

const (
	tenant = "acme"
	tool   = "refund"
)

// life is a ledger on a disk whose power is cut again and again.
type life struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	disk *powercut.Disk
	vfs  *powercut.VFS
	path string
	id   string // of the ledger, once it was acknowledged

	mu       sync.Mutex
	ids      int
	promised promises
}

// promises are what the store acknowledged.
type promises struct {
	// rows are operations by id, at the newest version that was acknowledged.
	rows map[string]ledger.Operation
	// moves counts every acknowledged move, with the hash of its event.
	moves     map[string]map[int64]string
	previews  map[string]bool
	evidence  map[string]string // by id: the operation's
	decisions map[string]string // by operation and person: the verb
	guards    map[int64]string  // by epoch: the hash
}

var now = time.Date(2026, 11, 5, 9, 30, 0, 123456789, time.UTC)

func clock() time.Time { return now }

func newLife(t *testing.T, seed uint64, options ...powercut.Option) *life {
	t.Helper()
	l := &life{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), disk: powercut.NewDisk(seed),
		path: filepath.Join(t.TempDir(), "ledger.db"),
		promised: promises{
			rows: map[string]ledger.Operation{}, moves: map[string]map[int64]string{}, previews: map[string]bool{},
			evidence: map[string]string{}, decisions: map[string]string{}, guards: map[int64]string{},
		},
	}
	var err error
	l.vfs, err = l.disk.Register(clock, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.vfs.Close()) })
	return l
}

// open opens the real store and a ledger on it.
func (l *life) open() (*sqlstore.DB, *ledger.Ledger, error) {
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{Path: l.path, Now: clock, VFS: l.vfs.Name()})
	if err != nil {
		return nil, nil, err
	}
	led, err := ledger.Open(context.Background(), ledger.Config{Store: db, Now: clock})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	if l.id == "" {
		l.id = led.ID()
	}
	return db, led, nil
}

// name makes a name that no other call of this life makes.
func (l *life) name(prefix string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids++
	return fmt.Sprintf("%s%06d", prefix, l.ids)
}

// load lets callers write until the power goes or each has done so much. An error
// while the power is on fails the test.
func (l *life) load(db *sqlstore.DB, led *ledger.Ledger, callers, rounds int) {
	l.t.Helper()
	failed := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for round := 0; round < rounds && failed[i] == nil; round++ {
				failed[i] = l.write(db, led, i, round)
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			require.True(l.t, l.disk.Off(), "seed %d: a write fails while the power is on: %v", l.seed, err)
		}
	}
}

// write is what one caller does once: an operation and its life, or a change of
// the guard row.
func (l *life) write(db *sqlstore.DB, led *ledger.Ledger, caller, round int) error {
	ctx := context.Background()
	if caller == 0 && round%3 == 0 {
		g, _, err := led.ChangeGuard(ctx, tenant, ledger.Change{What: "tools", By: ledger.Gateway("test")}, func(g *ledger.Guard) {
			g.Tools = map[string]string{tool: l.name("v")}
		})
		if err == nil {
			l.mu.Lock()
			l.promised.guards[g.Epoch] = g.Hash
			l.mu.Unlock()
		}
		return err
	}
	kind := (caller + round) % 5
	op, err := l.born(db, led, kind == 1 || kind == 2)
	if err != nil {
		return err
	}
	switch kind {
	case 0: // done
		return l.concluded(led, op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "re_" + op.ID, Result: map[string]any{"id": op.ID}})
	case 1: // somebody says yes; it is sent, and refused
		if op, err = l.decided(op, "per_ann", ledger.VerbApprove, func(d ledger.Decision) (ledger.Operation, error) {
			return led.Approve(ctx, op, d, true)
		}); err != nil {
			return err
		}
		if op, err = l.marked(led, op); err != nil {
			return err
		}
		return l.concluded(led, op, tools.Outcome{Verdict: tools.NoEffect, Because: "refused"})
	case 2: // somebody says no
		_, err = l.decided(op, "per_bob", ledger.VerbReject, func(d ledger.Decision) (ledger.Operation, error) {
			return led.Reject(ctx, op, d)
		})
		return err
	case 3: // in doubt, until evidence comes
		if err = l.concluded(led, op, tools.Outcome{Verdict: tools.Unknown, Because: "no answer"}); err != nil {
			return err
		}
		ev := ledger.Evidence{ID: l.name("evd_"), Operation: op.ID, Attempt: 1, Kind: "lookup", Verdict: tools.Succeeded, EffectID: "re_" + op.ID, By: ledger.Reconciler, At: now}
		op, err = led.AddEvidence(ctx, tenant, ev)
		l.promise(op, err, func() { l.promised.evidence[ev.ID] = op.ID })
		return err
	default: // left running
		return nil
	}
}

// born opens an operation, as often as the guard row moves under it.
func (l *life) born(db *sqlstore.DB, led *ledger.Ledger, asks bool) (ledger.Operation, error) {
	ctx := context.Background()
	key := l.name("key_")
	plan := tools.Plan{
		Encoding: 1, Tool: tool, ToolVersion: "v1", Target: "POST http://127.0.0.1/refunds", Headline: "Refund for " + key,
		Key: tools.Key{Value: key, Generation: 1, Upstream: "wire-" + key}, Args: map[string]any{"order": key}, Wire: []byte(`{"order":"` + key + `"}`),
		Effects: []tools.Effect{{Verb: "create", Target: "refund", After: map[string]any{"order": key}, Count: 1}},
	}
	p := ledger.Preview{
		ID: l.name("prv_"), Tenant: tenant, Agent: "agt_1", Tool: tool, ToolVersion: "v1", Key: key, Generation: 1,
		ArgsDigest: "sha256:" + key, PlanDigest: plan.Digest(), Plan: plan, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}
	if err := db.PutPreview(ctx, p); err != nil {
		return ledger.Operation{}, err
	}
	l.mu.Lock()
	l.promised.previews[p.ID] = true
	l.mu.Unlock()
	r := ledger.OpenRequest{
		Preview: p, Agent: tools.Agent{ID: "agt_1", Tenant: tenant}, TokenID: l.name("tok_"), RequestID: "req",
		Requirement: ledger.Requirement{Outcome: tools.OutcomeAuto}, Manifest: ledger.Manifest{Version: "v1", Text: []byte("tool: refund\n")}, Timeout: time.Second,
	}
	if asks {
		r.Requirement = ledger.Requirement{Outcome: tools.OutcomeApprove, Groups: map[string]int{tools.AnyGroup: 1}, Expiry: time.Hour}
	}
	for {
		g, err := led.Guard(ctx, tenant)
		if err != nil {
			return ledger.Operation{}, err
		}
		r.Epoch = g.Epoch
		op, _, err := led.OpenOperation(ctx, r)
		if errors.Is(err, ledger.ErrMoved) {
			continue
		}
		l.promise(op, err, nil)
		return op, err
	}
}

func (l *life) marked(led *ledger.Ledger, op ledger.Operation) (ledger.Operation, error) {
	for {
		g, err := led.Guard(context.Background(), tenant)
		if err != nil {
			return op, err
		}
		next, err := led.Mark(context.Background(), op, ledger.MarkRequest{Epoch: g.Epoch, Timeout: time.Second})
		if errors.Is(err, ledger.ErrMoved) {
			continue
		}
		l.promise(next, err, nil)
		return next, err
	}
}

func (l *life) concluded(led *ledger.Ledger, op ledger.Operation, o tools.Outcome) error {
	next, err := led.Conclude(context.Background(), op, o)
	l.promise(next, err, nil)
	return err
}

func (l *life) decided(op ledger.Operation, person string, verb ledger.Verb, do func(ledger.Decision) (ledger.Operation, error)) (ledger.Operation, error) {
	next, err := do(ledger.Decision{Operation: op.ID, Round: 1, Person: person, Name: person, Verb: verb, Digest: op.PlanDigest, At: now})
	l.promise(next, err, func() { l.promised.decisions[op.ID+" "+person] = string(verb) })
	return next, err
}

// promise notes an acknowledged move, and what came with it.
func (l *life) promise(op ledger.Operation, err error, also func()) {
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, there := l.promised.rows[op.ID]; !there || old.Version < op.Version {
		l.promised.rows[op.ID] = op
	}
	if l.promised.moves[op.ID] == nil {
		l.promised.moves[op.ID] = map[int64]string{}
	}
	l.promised.moves[op.ID][op.Version] = op.Chain
	if also != nil {
		also()
	}
}

// acknowledged counts what was promised.
func (l *life) acknowledged() int {
	n := len(l.promised.previews) + len(l.promised.evidence) + len(l.promised.decisions) + len(l.promised.guards)
	for _, m := range l.promised.moves {
		n += len(m)
	}
	return n
}
