package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"countersign/api"
	"countersign/commit"
	"countersign/fault"
	"countersign/ledger"
	"countersign/measure"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/httptool"
)

// This file belongs to wire.go: what is counted, traced and told in the log.

// openMeasures makes the counters and the spans before anything is there to be
// watched.
func (g *gateway) openMeasures(ctx context.Context) (err error) {
	g.metrics = measure.New(measure.Config{Registry: g.registry, Version: version(), Now: g.env.now})
	traces := measure.TraceConfig{Version: version(), Instance: instance(), Now: g.env.now}
	if endpoint := measure.Endpoint(g.cfg.Telemetry.OTLPEndpoint, g.env.getenv); endpoint != "" {
		if traces.Exporter, err = measure.OTLP(ctx, endpoint, g.log); err != nil {
			return fmt.Errorf("telemetry: %w", err)
		}
	}
	g.traces, err = measure.NewTraces(ctx, traces)
	return err
}

// instance names this process among others in spans.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// readMeasures adds the figures that only the store knows.
func (g *gateway) readMeasures() {
	g.metrics.Read(measure.Source{Reader: g.ledger.Reader, Tenants: g.cfg.Tenants, Checkpoint: g.db.LastCheckpoint})
}

// closeMeasures sends the last spans, if the collector takes them soon.
func (g *gateway) closeMeasures() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if g.traces != nil && g.traces.Close(ctx) != nil {
		g.log.Warn("the last spans were not exported")
	}
}

// onEvent is everybody who watches transitions.
func (g *gateway) onEvent() func(ledger.Operation, ledger.Event) {
	return measure.Each(g.metrics.OnEvent, g.traces.OnEvent, measure.Log(g.log), g.env.onEvent, g.followUndo)
}

// followUndo sends the undo that waited for one whose doubt was just settled.
func (g *gateway) followUndo(op ledger.Operation, ev ledger.Event) {
	if ev.Verb == ledger.VerbResolve && op.Next != "" && op.State == ledger.Succeeded {
		g.executor.Follow(context.Background(), op)
	}
}

func (g *gateway) onPreview(r preview.Request, res preview.Result) {
	g.metrics.Previewed(r.Tool)
	if g.env.onPreview != nil {
		g.env.onPreview(r, res)
	}
}

func (g *gateway) onCommit(r commit.Request, res commit.Result) {
	g.metrics.Committed(res.Operation, res.Replayed)
	if g.env.onCommit != nil {
		g.env.onCommit(r, res)
	}
}

func (g *gateway) onRefusal(r commit.Request, err error) {
	g.metrics.Refused(err)
	// Whoever holds another's token got it where they should not have (I2).
	if fault.Is(err, fault.TokenSubjectMismatch) {
		g.log.Warn("security: a commit token was used by an agent that it was not given to",
			"agent", r.Agent.ID, "tenant", r.Agent.Tenant, "tool", r.Tool, "request_id", r.RequestID)
	}
}

// watch is who sees the API's requests.
func (g *gateway) watch() api.Watch {
	return api.Watch{
		Tracer: g.traces.Tracer(), Note: measure.Note, Fields: measure.Standing,
		OnAnswer: func(a api.Answered) { g.metrics.Answered(a.Route, a.Status, a.Code, a.Took) },
	}
}

// measured puts a stop-watch around the connectors of an upstream.
func (g *gateway) measured(client *httptool.Client) func(*tools.Manifest) (tools.Connector, error) {
	return func(m *tools.Manifest) (tools.Connector, error) {
		inner, err := client.Connector(m)
		if err != nil {
			return nil, err
		}
		return g.metrics.Connector(m.Spec.Name, inner), nil
	}
}

// listenMetrics opens the door of the metrics, where there is one.
func (g *gateway) listenMetrics() (err error) {
	if g.cfg.MetricsListen == "" {
		return nil
	}
	if g.metricsAt, err = net.Listen("tcp", g.cfg.MetricsListen); err != nil {
		return fmt.Errorf("metrics_listen: %w", err)
	}
	g.cfg.MetricsListen = g.metricsAt.Addr().String()
	g.log.Info("metrics are served", "url", "http://"+g.cfg.MetricsListen+"/metrics")
	return nil
}

// serveMetrics answers scrapes until ctx ends. Like the loops it outlives the
// other doors: a stop is measured too.
func (g *gateway) serveMetrics(ctx context.Context) error {
	if g.metricsAt == nil {
		return nil
	}
	srv := api.Hardened(g.metrics.Handler(g.log), g.log)
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(g.metricsAt); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics_listen: %w", err)
	}
	return nil
}
