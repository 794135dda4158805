package commit_test

import (
	"context"
	"sync"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// sited is a real store with a hand before each of its calls: an error stands for a
// call that was certainly not made. Nil lets everything pass.
type sited struct {
	ledger.Store

	mu  sync.Mutex
	fix func(call string) error
}

func (s *sited) set(fix func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fix = fix
}

func (s *sited) before(call string) error {
	s.mu.Lock()
	fix := s.fix
	s.mu.Unlock()
	if fix == nil {
		return nil
	}
	return fix(call)
}

// sitedCall makes one call, unless the hand says otherwise.
func sitedCall[T any](s *sited, call string, do func() (T, error)) (T, error) {
	if err := s.before(call); err != nil {
		var zero T
		return zero, err
	}
	return do()
}

func (s *sited) made(call string, do func() error) error {
	if err := s.before(call); err != nil {
		return err
	}
	return do()
}

func (s *sited) PutPreview(ctx context.Context, p ledger.Preview) error {
	return s.made("PutPreview", func() error { return s.Store.PutPreview(ctx, p) })
}

func (s *sited) Preview(ctx context.Context, tenant, id string) (ledger.Preview, error) {
	return sitedCall(s, "Preview", func() (ledger.Preview, error) { return s.Store.Preview(ctx, tenant, id) })
}

func (s *sited) CountPreviews(ctx context.Context, tenant, agent string, now time.Time) (int, error) {
	return sitedCall(s, "CountPreviews", func() (int, error) { return s.Store.CountPreviews(ctx, tenant, agent, now) })
}

func (s *sited) Head(ctx context.Context, tenant, tool, key string) (ledger.Head, error) {
	return sitedCall(s, "Head", func() (ledger.Head, error) { return s.Store.Head(ctx, tenant, tool, key) })
}

func (s *sited) Generation(ctx context.Context, tenant, tool, digest string, n int) (ledger.Operation, error) {
	return sitedCall(s, "Generation", func() (ledger.Operation, error) { return s.Store.Generation(ctx, tenant, tool, digest, n) })
}

func (s *sited) RejectedAsk(ctx context.Context, tenant, tool, args, agent string) (ledger.Operation, error) {
	return sitedCall(s, "RejectedAsk", func() (ledger.Operation, error) { return s.Store.RejectedAsk(ctx, tenant, tool, args, agent) })
}

func (s *sited) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	return sitedCall(s, "Guard", func() (ledger.Guard, error) { return s.Store.Guard(ctx, tenant) })
}

func (s *sited) ChangeGuard(ctx context.Context, c ledger.GuardChange) ([]ledger.Operation, error) {
	return sitedCall(s, "ChangeGuard", func() ([]ledger.Operation, error) { return s.Store.ChangeGuard(ctx, c) })
}

func (s *sited) Open(ctx context.Context, o ledger.Opening) error {
	return s.made("Open", func() error { return s.Store.Open(ctx, o) })
}

func (s *sited) Apply(ctx context.Context, t ledger.Transition) error {
	return s.made("Apply."+string(t.Event.Verb), func() error { return s.Store.Apply(ctx, t) })
}

func (s *sited) AddEvidence(ctx context.Context, tenant string, e ledger.Evidence) error {
	return s.made("AddEvidence", func() error { return s.Store.AddEvidence(ctx, tenant, e) })
}

func (s *sited) ByWrite(ctx context.Context, id string) (ledger.Operation, error) {
	return sitedCall(s, "ByWrite", func() (ledger.Operation, error) { return s.Store.ByWrite(ctx, id) })
}

func (s *sited) Due(ctx context.Context, d ledger.DueQuery) ([]ledger.Operation, error) {
	return sitedCall(s, "Due."+string(d.Kind), func() ([]ledger.Operation, error) { return s.Store.Due(ctx, d) })
}

func (s *sited) Defer(ctx context.Context, kind ledger.DueKind, op ledger.Operation, until time.Time) error {
	return s.made("Defer", func() error { return s.Store.Defer(ctx, kind, op, until) })
}

func (s *sited) Operation(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	return sitedCall(s, "Operation", func() (ledger.Operation, error) { return s.Store.Operation(ctx, tenant, id) })
}

func (s *sited) Plan(ctx context.Context, tenant, op string, round int) (tools.Plan, error) {
	return sitedCall(s, "Plan", func() (tools.Plan, error) { return s.Store.Plan(ctx, tenant, op, round) })
}

func (s *sited) Decisions(ctx context.Context, tenant, op string) ([]ledger.Decision, error) {
	return sitedCall(s, "Decisions", func() ([]ledger.Decision, error) { return s.Store.Decisions(ctx, tenant, op) })
}

func (s *sited) Evidence(ctx context.Context, tenant, op string) ([]ledger.Evidence, error) {
	return sitedCall(s, "Evidence", func() ([]ledger.Evidence, error) { return s.Store.Evidence(ctx, tenant, op) })
}

func (s *sited) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	return sitedCall(s, "List", func() (ledger.Page, error) { return s.Store.List(ctx, f) })
}

func (s *sited) Manifest(ctx context.Context, version string) (ledger.Manifest, error) {
	return sitedCall(s, "Manifest", func() (ledger.Manifest, error) { return s.Store.Manifest(ctx, version) })
}
