package commit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// away is a store that can't be written while it is away; refused receives for
// each write that it did not take.
type away struct {
	ledger.Store
	gone    atomic.Bool
	refused chan struct{}
}

func (a *away) write(do func() error) error {
	if !a.gone.Load() {
		return do()
	}
	select {
	case a.refused <- struct{}{}:
	default:
	}
	return errors.New("connection refused")
}

func (a *away) Apply(ctx context.Context, t ledger.Transition) error {
	return a.write(func() error { return a.Store.Apply(ctx, t) })
}

func (a *away) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	return a.write(func() error { return a.Store.AddEvidence(ctx, tenant, e) })
}

// withAway starts a rig anew whose store can go away.
func withAway(t *testing.T, tool *tools.Tool) (*rig, *away) {
	t.Helper()
	r, store := newRig(t, tool), &away{refused: make(chan struct{}, 1)}
	r.between = func(s ledger.Store) ledger.Store { store.Store = s; return store }
	r.restart()
	return r, store
}

// files are what the spool's folder holds.
func (r *rig) files() []string {
	entries, err := os.ReadDir(r.spoolDir())
	require.NoError(r.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// die ends the executor as a crash does, but for its file locks: what it holds in
// memory is lost.
func (r *rig) die() {
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.executor.Drain(stopped) // it gives up
	require.NoError(r.t, r.executor.Drain(context.Background()))
}

// spooled commits one call whose outcome the store does not take, and lets the
// process die with it.
func spooled(t *testing.T, tool *tools.Tool, steps ...tooltest.Step) (*rig, *away, ledger.Operation) {
	t.Helper()
	r, store := withAway(t, tool)
	r.endReconciling()
	tooltest.FakeOf(tool).Script(steps...)
	p := r.preview(agent, tool.Name, args("ord_1"))
	store.gone.Store(true)
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: tool.Name, Token: p.Token, RequestID: "req_1"})
	require.NoError(t, err)
	require.Equal(t, ledger.Running, res.Operation.State, "never done before it is stored")
	<-store.refused
	require.Eventually(t, func() bool { return len(r.files()) == 1 }, 10*time.Second, time.Millisecond)
	r.die()
	return r, store, res.Operation
}

// comeBack restarts with a store that is there, and replays the spool.
func (r *rig) comeBack(store *away) int {
	r.t.Helper()
	store.gone.Store(false)
	r.restart()
	r.endReconciling()
	n, err := r.executor.Replay(context.Background())
	require.NoError(r.t, err)
	return n
}

// TestMatrix_Row15_StoreAwayDuringFinish: the outcome is kept, the answer is
// never "done" before it is stored, nothing is sent again, and the outcome is
// written when the store is back.
func TestMatrix_Row15_StoreAwayDuringFinish(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r, store := withAway(t, hold)
	r.endReconciling()
	p := r.preview(agent, "hold_order", args("ord_1"))
	store.gone.Store(true)
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "hold_order", Token: p.Token, RequestID: "req_1"})
	require.NoError(t, err)
	require.Equal(t, ledger.Running, res.Operation.State)
	<-store.refused
	require.Eventually(t, func() bool { return len(r.files()) == 1 }, 10*time.Second, time.Millisecond)

	// For those who reach the store the lease ends meanwhile: a doubt, which the
	// outcome settles once it can be written.
	others, err := ledger.Open(t.Context(), ledger.Config{Store: r.db, Now: r.clock.Now})
	require.NoError(t, err)
	r.clock.Add(time.Minute)
	doubt, err := others.LoseLease(t.Context(), tenant, res.Operation.ID)
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, doubt.State)
	store.gone.Store(false)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(res.Operation.ID)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, "eff_1", got.EffectID)
	require.Empty(t, r.files(), "what the ledger has is not kept twice")
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
}

// TestSpool_SurvivesTheProcess: the process dies while the store is away; the next
// one tells the ledger what the outside system had answered, whatever it was, in
// whatever state the operation is by then.
func TestSpool_SurvivesTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		step    tooltest.Step
		elapsed time.Duration // past the lease, or not
		want    ledger.State
		verbs   []ledger.Verb
	}{
		"it happened, the lease holds": {step: tooltest.Succeed(), want: ledger.Succeeded, verbs: []ledger.Verb{"open", "finish"}},
		"it happened, the lease is lost": {
			step: tooltest.Succeed(), elapsed: time.Minute, want: ledger.Succeeded, verbs: []ledger.Verb{"open", "lose_lease", "resolve"},
		},
		"it was refused, the lease is lost": {
			step: tooltest.Reject("Shipped."), elapsed: time.Minute, want: ledger.Failed, verbs: []ledger.Verb{"open", "lose_lease", "resolve"},
		},
		"no answer": {step: tooltest.LoseReply(), want: ledger.Unknown, verbs: []ledger.Verb{"open", "finish"}},
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order")
			r, store, op := spooled(t, hold, c.step)
			store.gone.Store(false)
			r.restart()
			r.endReconciling()
			require.Equal(t, ledger.Running, r.op(op.ID).State)
			if c.elapsed > 0 {
				r.clock.Add(c.elapsed)
				_, err := r.sweeper.RunOnce(t.Context())
				require.NoError(t, err)
				require.Equal(t, ledger.Unknown, r.op(op.ID).State, "without the spool this is what is known")
			}
			n, err := r.executor.Replay(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, c.want, r.op(op.ID).State)
			require.Equal(t, c.verbs, r.verbs(op.ID))
			require.Empty(t, r.files())
			require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
		})
	}
}

// TestSpool_ResultKeepsItsNumbers: what is replayed is what was seen, to the last
// digit.
func TestSpool_ResultKeepsItsNumbers(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	step := tooltest.Succeed()
	step.Result = map[string]any{"amount": json.Number("9007199254740993"), "state": "held"}
	r, store, op := spooled(t, hold, step)
	require.Equal(t, 1, r.comeBack(store))
	require.Equal(t, step.Result, r.op(op.ID).Result)
}

// TestSpool_ToldTwice: the write whose answer was lost had been made; the replay
// finds it there and adds nothing.
func TestSpool_ToldTwice(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r, store, op := spooled(t, hold)
	name := r.files()[0]
	text, err := os.ReadFile(filepath.Join(r.spoolDir(), name))
	require.NoError(t, err)
	require.Equal(t, 1, r.comeBack(store))
	before, err := r.ledger.Evidence(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Len(t, before, 1)

	require.NoError(t, os.WriteFile(filepath.Join(r.spoolDir(), name), text, 0o600))
	n, err := r.executor.Replay(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	after, err := r.ledger.Evidence(t.Context(), tenant, op.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Empty(t, r.files())
}

// TestSpool_StoreStillAway: what can't be told waits, and nothing is lost.
func TestSpool_StoreStillAway(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r, store, op := spooled(t, hold)
	r.restart() // the store is still away
	r.endReconciling()
	n, err := r.executor.Replay(t.Context())
	require.Error(t, err)
	require.Zero(t, n)
	require.Len(t, r.files(), 1)
	store.gone.Store(false)
	n, err = r.executor.Replay(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
}

// TestSpool_UselessFilesAreSetAside: what can't be read, or names a dispatch that
// the ledger doesn't know, is never believed, never deleted, and said in the log;
// the others are told all the same.
func TestSpool_UselessFilesAreSetAside(t *testing.T) {
	flip := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) }
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"cut short":         func(b []byte) []byte { return b[:len(b)/2] },
		"one byte differs":  flip("eff_1", "eff_2"),
		"not ours":          func([]byte) []byte { return []byte("hello\n") },
		"other operation":   func(b []byte) []byte { return resealed(flip(`"operation":"op_`, `"operation":"op_x`)(b)) },
		"other attempt":     func(b []byte) []byte { return resealed(flip(`"attempt":1`, `"attempt":2`)(b)) },
		"other fence":       func(b []byte) []byte { return resealed(flip(`"fence":1`, `"fence":7`)(b)) },
		"other form":        func(b []byte) []byte { return resealed(flip(`"format":1`, `"format":2`)(b)) },
		"without a verdict": func(b []byte) []byte { return resealed(flip(`"verdict":"succeeded"`, `"verdict":""`)(b)) },
		"unknown member":    func(b []byte) []byte { return resealed(flip(`"format":1`, `"format":1,"more":1`)(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			hold := tooltest.FakeTool("hold_order")
			r, store, op := spooled(t, hold)
			file := filepath.Join(r.spoolDir(), r.files()[0])
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			spoiled := spoil(bytes.Clone(text))
			require.NotEqual(t, text, spoiled)
			require.NoError(t, os.WriteFile(file, spoiled, 0o600))
			var log lines
			r.log = slog.New(slog.NewTextHandler(&log, nil))
			require.Zero(t, r.comeBack(store))
			require.Equal(t, ledger.Running, r.op(op.ID).State, "nothing is believed")
			require.Equal(t, []string{filepath.Base(file) + ".set-aside"}, r.files())
			kept, err := os.ReadFile(file + ".set-aside")
			require.NoError(t, err)
			require.Equal(t, string(spoiled), string(kept))
			require.Contains(t, log.String(), "set aside")

			// It is not looked at again, and a good one beside it is told.
			require.NoError(t, os.WriteFile(file, text, 0o600))
			n, err := r.executor.Replay(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, ledger.Succeeded, r.op(op.ID).State)
		})
	}
}

// lines collects a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// resealed gives a changed file the digest that belongs to it.
func resealed(file []byte) []byte {
	_, text, _ := bytes.Cut(file, []byte("\n"))
	return commit.Sealed(bytes.TrimSuffix(text, []byte("\n")))
}

// TestSpool_NoRoom: where the spool can't be written either, memory holds the
// outcome and it is written when the store is back.
func TestSpool_NoRoom(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r, store := withAway(t, hold)
	var log lines
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.restart()
	// A file stands where the folder was: every write of the spool fails.
	require.NoError(t, os.Remove(r.spoolDir()))
	require.NoError(t, os.WriteFile(r.spoolDir(), nil, 0o600))
	p := r.preview(agent, "hold_order", args("ord_1"))
	store.gone.Store(true)
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "hold_order", Token: p.Token, RequestID: "req_1"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "held in memory") }, 10*time.Second, time.Millisecond)
	store.gone.Store(false)
	require.NoError(t, r.executor.Drain(t.Context()))
	require.Equal(t, ledger.Succeeded, r.op(res.Operation.ID).State)
}

// TestSpool_Private: nobody else reads it, and a half-written file counts for
// nothing.
func TestSpool_Private(t *testing.T) {
	hold := tooltest.FakeTool("hold_order")
	r, store, op := spooled(t, hold)
	dir, err := os.Stat(r.spoolDir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
	name := r.files()[0]
	require.Equal(t, op.ID+".1.outcome", name)
	file, err := os.Stat(filepath.Join(r.spoolDir(), name))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), file.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(r.spoolDir(), "op_9.1.outcome.part"), []byte("ha"), 0o600))
	require.Equal(t, 1, r.comeBack(store))
	require.Empty(t, r.files())
}

// TestMatrix_Row21_PausedAfterTheReply: a worker that stood still after the reply,
// past its lease: its evidence is taken, and settles what the lease had left
// unknown.
func TestMatrix_Row21_PausedAfterTheReply(t *testing.T) {
	hold := tooltest.FakeTool("hold_order", tooltest.WithLookup(tools.Eventual))
	r := newRig(t, hold)
	r.endReconciling()
	release := make(chan struct{})
	tooltest.FakeOf(hold).Script(tooltest.Held(release, tooltest.Succeed()))
	p := r.preview(agent, "hold_order", args("ord_1"))
	res, err := r.commits.Commit(t.Context(), commit.Request{Agent: agent, Tool: "hold_order", Token: p.Token, RequestID: "req_1"})
	require.NoError(t, err)
	<-tooltest.FakeOf(hold).Arrived()
	r.clock.Add(time.Minute)
	_, err = r.sweeper.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, ledger.Unknown, r.op(res.Operation.ID).State)
	close(release)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(res.Operation.ID)
	require.Equal(t, ledger.Succeeded, got.State)
	require.Equal(t, []ledger.Verb{"open", "lose_lease", "resolve"}, r.verbs(got.ID))
	require.Equal(t, ledger.DoubtElsewhere, got.Doubt, "late evidence, not the reconciler")
	require.Len(t, tooltest.FakeOf(hold).Requests(), 1)
}
