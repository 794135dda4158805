// Package measure counts, times and traces what the gateway does, and changes
// none of it.
//
// What lives here: Metrics (the Prometheus series and their registry), the
// reading of the ledger's tally at a scrape, Traces (OpenTelemetry spans of
// transitions, dispatches and lookups), Log (one line a transition), and the
// names of the trace fields that lines and spans share.
//
// How it flows: the program hands hooks of this package to the parts: the
// ledger's OnEvent, the services' OnPreview, OnCommit and OnRefusal, the API's
// Watch, the executor's Dispatching, and a shell around each connector. What they
// see becomes counters, lines and spans of this process. What must be right
// whichever process did it, and whenever it was started, is read from the store
// when somebody asks at /metrics. A share of nothing is not shown (R148).
//
// What does not live here: thresholds and alerts (examples/monitoring; R145),
// the log itself (cmd), audit events (ledger). No series has a label that an
// agent can choose.
package measure

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"countersign/tools"
)

// Config is what Metrics are made of.
type Config struct {
	// Registry names the tools: the only names that are labels.
	Registry *tools.Registry
	// Version is the program's.
	Version string
	// Now is the ledger's clock.
	Now func() time.Time
}

// Metrics holds the series of one gateway. It is safe for concurrent use.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry

	transitions  *prometheus.CounterVec
	undoFailures *prometheus.CounterVec
	approvalWait *prometheus.HistogramVec
	settledAge   *prometheus.HistogramVec

	previews  *prometheus.CounterVec
	commits   *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	problems  *prometheus.CounterVec
	requests  *prometheus.HistogramVec
	reads     *prometheus.HistogramVec
	dispatch  *prometheus.HistogramVec
	lookups   *prometheus.CounterVec
	lookupFor *prometheus.HistogramVec
}

// Bounds of the histograms, in seconds: of an answer, of people, of a doubt.
var (
	answerBounds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	peopleBounds = []float64{10, 60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600}
	doubtBounds  = []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
)

// New returns Metrics on a registry of their own, with the collectors of the
// process and the Go runtime.
func New(cfg Config) *Metrics {
	m := &Metrics{
		cfg: cfg, registry: prometheus.NewRegistry(),
		transitions:  counter("transitions_total", "Transitions of operations that this process made.", "tool", "verb", "from", "to"),
		undoFailures: counter("undo_failures_total", "Undos that ended without taking the effect back.", "tool"),
		approvalWait: histogram("approval_wait_seconds", "From opening an operation to the full quorum or the rejection.", peopleBounds, "tool", "outcome"),
		settledAge:   histogram("unknown_state_settled_age_seconds", "Age of a doubt when it ended: since the first time in unknown (R143).", doubtBounds, "tool", "settled"),
		previews:     counter("previews_total", "Previews that gave a commit token.", "tool"),
		commits:      counter("commits_total", "Commits that were answered with an operation, by its state in that answer.", "tool", "state", "replayed"),
		refusals:     counter("token_refusals_total", "Commits that were refused for their token.", "code"),
		problems:     counter("problems_total", "Answers of the API that were problem documents.", "route", "code"),
		requests:     histogram("request_duration_seconds", "Answers of the API.", answerBounds, "route", "status"),
		reads:        histogram("upstream_read_duration_seconds", "Effect-free questions to an upstream: read, preview and guard.", answerBounds, "tool", "call", "result"),
		dispatch:     histogram("dispatch_duration_seconds", "Sending one attempt until the upstream answered or did not.", answerBounds, "tool", "verdict"),
		lookups:      counter("lookups_total", "Questions to an upstream whether a doubtful effect exists.", "tool", "answer"),
		lookupFor:    histogram("lookup_duration_seconds", "How long such a question took.", answerBounds, "tool"),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: namespace + "build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.transitions, m.undoFailures, m.approvalWait, m.settledAge, m.previews, m.commits, m.refusals, m.problems,
		m.requests, m.reads, m.dispatch, m.lookups, m.lookupFor, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, code := range tokenCodes {
		m.refusals.WithLabelValues(string(code))
	}
	return m
}

const namespace = "countersign_"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
}

func histogram(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namespace + name, Help: help, Buckets: bounds}, labels)
}

// tool is a tool's label: its name while the tool is in force, else "withdrawn".
func (m *Metrics) tool(name string) string {
	if _, ok := m.cfg.Registry.Get(name); ok {
		return name
	}
	return "withdrawn"
}
