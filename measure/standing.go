package measure

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"countersign/ledger"
	"countersign/tools"
)

// Source is where the figures come from that no single process knows.
type Source struct {
	Reader  ledger.Reader
	Tenants []string
	// Checkpoint gives the newest checkpoint of the ledger, zero when there is
	// none; nil where no checkpoints are made.
	Checkpoint func(context.Context) (ledger.Checkpoint, error)
	// KeepFor is how long what was read answers further scrapes; 0 means 5 s, less
	// than 0 not at all.
	KeepFor time.Duration
}

// readFor bounds the reading of the store for one scrape; Prometheus waits ten
// seconds unless told otherwise.
const readFor = 5 * time.Second

// Read adds the series that are read from the store when they are asked for.
func (m *Metrics) Read(s Source) {
	if s.KeepFor == 0 {
		s.KeepFor = 5 * time.Second
	}
	m.registry.MustRegister(&standing{m: m, src: s})
}

// standing is a collector of what stands in the store.
type standing struct {
	m   *Metrics
	src Source

	mu     sync.Mutex
	readAt time.Time
	last   *reading // nil unless the store answered at readAt
}

// reading is what the store said at one moment.
type reading struct {
	tenants    []tenantReading
	checkpoint ledger.Checkpoint
}

type tenantReading struct {
	name  string
	tally ledger.Tally
	guard ledger.Guard
	// waiting is when the oldest operation that waits for people was opened; zero
	// when none waits.
	waiting time.Time
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

var (
	storeUp         = desc("store_up", "1 when the ledger's store answered this scrape, else 0; without an answer the series that are read from it are absent.")
	operations      = desc("operations", "Operations by state.", "tenant", "state")
	onList          = desc("operations_on_list", "Unknown operations that only a person can move on.", "tenant")
	effects         = desc("confirmed_effect_keys", "Keys, each with its generation, that have a confirmed effect (R142, denominator).", "tenant")
	duplicates      = desc("duplicate_effect_keys", "Keys, each with its generation, that have more than one effect id (R142, numerator).", "tenant")
	duplicateRate   = desc("duplicate_effect_rate", "Duplicate keys by keys with a confirmed effect (R142); absent when there are none.", "tenant")
	unknownAge      = desc("unknown_state_age_seconds", "Now minus the first time in unknown, of the oldest operation that is unknown (R143); absent when none is.", "tenant")
	doubts          = desc("reconciliations_entered", "Operations that ever entered reconciliation (R144, denominator).", "tenant")
	reconciled      = desc("reconciliations_succeeded", "Operations that the reconciler brought from unknown to a final state (R144, numerator).", "tenant")
	reconciledRate  = desc("reconciliation_success_rate", "Reconciled operations by operations that entered reconciliation (R144); absent when there are none.", "tenant")
	oldestApproval  = desc("approval_oldest_wait_seconds", "Now minus the opening of the oldest operation that waits for people; absent when none waits.", "tenant")
	freezes         = desc("freezes_in_force", "Freezes in force, by scope (tool, tenant, everything) and level (new, all).", "tenant", "scope", "level")
	frozen          = desc("tool_frozen", "1 for a tool that a freeze of any scope holds, else 0.", "tenant", "tool")
	checkpointAge   = desc("checkpoint_age_seconds", "Now minus the newest checkpoint of the ledger; absent before the first.")
	checkpointsMade = desc("checkpoints", "Checkpoints of the ledger.")
)

// Describe implements prometheus.Collector.
func (s *standing) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		storeUp, operations, onList, effects, duplicates, duplicateRate, unknownAge, doubts, reconciled, reconciledRate,
		oldestApproval, freezes, frozen, checkpointAge, checkpointsMade,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *standing) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := s.m.cfg.Now()
	r := s.read(now)
	if r == nil {
		gauge(storeUp, 0)
		return
	}
	gauge(storeUp, 1)
	for _, t := range r.tenants {
		s.collectTenant(gauge, t, now)
	}
	if s.src.Checkpoint != nil {
		gauge(checkpointsMade, float64(r.checkpoint.N))
		if r.checkpoint.N > 0 {
			gauge(checkpointAge, now.Sub(r.checkpoint.At).Seconds())
		}
	}
}

func (s *standing) collectTenant(gauge func(*prometheus.Desc, float64, ...string), t tenantReading, now time.Time) {
	count := func(d *prometheus.Desc, n int64) { gauge(d, float64(n), t.name) }
	// share shows a rate only where there is something that it is a share of
	// (R148).
	share := func(d *prometheus.Desc, n, of int64) {
		if of > 0 {
			gauge(d, float64(n)/float64(of), t.name)
		}
	}
	since := func(d *prometheus.Desc, at time.Time) {
		if !at.IsZero() {
			gauge(d, now.Sub(at).Seconds(), t.name)
		}
	}
	for _, state := range ledger.States {
		gauge(operations, float64(t.tally.States[state]), t.name, string(state))
	}
	count(onList, t.tally.OnList)
	count(effects, t.tally.Effects)
	count(duplicates, t.tally.Duplicates)
	share(duplicateRate, t.tally.Duplicates, t.tally.Effects)
	since(unknownAge, t.tally.OldestUnknown)
	count(doubts, t.tally.Doubts)
	count(reconciled, t.tally.Reconciled)
	share(reconciledRate, t.tally.Reconciled, t.tally.Doubts)
	since(oldestApproval, t.waiting)
	for _, level := range []ledger.FreezeLevel{ledger.FreezeNew, ledger.FreezeAll} {
		for scope, n := range freezesByScope(t.guard, level) {
			gauge(freezes, float64(n), t.name, scope, string(level))
		}
	}
	for _, tool := range s.m.cfg.Registry.List() {
		held := 0.0
		if _, ok := t.guard.Frozen(tool.Name); ok {
			held = 1
		}
		gauge(frozen, held, t.name, tool.Name)
	}
}

// freezesByScope counts a tenant's freezes of one level, zeros included.
func freezesByScope(g ledger.Guard, level ledger.FreezeLevel) map[string]int {
	n := map[string]int{"tool": 0, "tenant": 0, "everything": 0}
	for _, f := range g.Freezes {
		switch {
		case f.Level != level:
		case f.Everything:
			n["everything"]++
		case f.Tool != "":
			n["tool"]++
		default:
			n["tenant"]++
		}
	}
	return n
}

// read gives what stands in the store, at most KeepFor old, or nil when the store
// does not answer. Scrapes that come together share one reading. A failure is
// not kept: the next scrape asks again.
func (s *standing) read(now time.Time) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.readAt); s.last != nil && age >= 0 && age < s.src.KeepFor {
		return s.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), readFor)
	defer cancel()
	r, err := s.ask(ctx)
	if err != nil {
		s.last = nil
		return nil
	}
	s.readAt, s.last = now, r
	return r
}

func (s *standing) ask(ctx context.Context) (*reading, error) {
	r := &reading{}
	for _, name := range s.src.Tenants {
		t := tenantReading{name: name}
		var err error
		if t.tally, err = s.src.Reader.Tally(ctx, name); err != nil {
			return nil, err
		}
		if t.guard, err = s.src.Reader.Guard(ctx, name); err != nil {
			return nil, err
		}
		page, err := s.src.Reader.List(ctx, ledger.Filter{Tenant: name, States: []ledger.State{ledger.AwaitingApproval}, OldestFirst: true, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(page.Operations) > 0 {
			t.waiting = page.Operations[0].CreatedAt
		}
		r.tenants = append(r.tenants, t)
	}
	if s.src.Checkpoint != nil {
		var err error
		if r.checkpoint, err = s.src.Checkpoint(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Gather gives all series as they are now.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.showZeros()
	return m.registry.Gather()
}

// showZeros makes the counters of each tool in force appear before they count
// the first time: an increase from nothing to one would not be seen by an alert.
func (m *Metrics) showZeros() {
	for _, t := range m.cfg.Registry.List() {
		m.undoFailures.WithLabelValues(t.Name)
		if t.Consistency != tools.Strong && t.Consistency != tools.Eventual {
			continue // it is never asked
		}
		for _, answer := range lookupAnswers {
			m.lookups.WithLabelValues(t.Name, string(answer))
		}
	}
}
