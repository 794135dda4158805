package measure

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"countersign/ledger"
	"countersign/tools"
)

// TraceConfig is what Traces are made of.
type TraceConfig struct {
	// Exporter takes the spans; nil turns tracing off. What a caller sent along as
	// traceparent is kept with the operation all the same.
	Exporter sdktrace.SpanExporter
	// Version is the program's, Instance names this gateway among others.
	Version, Instance string
	// Now is the ledger's clock.
	Now func() time.Time
}

// Traces make the spans of operations. They are safe for concurrent use.
type Traces struct {
	provider *sdktrace.TracerProvider // nil when off
	tracer   trace.Tracer
	now      func() time.Time
	// marks are the transitions that led to running, by operation, while it runs.
	marks sync.Map
}

// scope names this instrumentation in spans.
const scope = "countersign"

// NewTraces starts the background export of spans; Close ends it. The sampler
// and the batches follow the standard variables (OTEL_TRACES_SAMPLER,
// OTEL_BSP_…), and OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to what the
// spans say of their source.
func NewTraces(ctx context.Context, cfg TraceConfig) (*Traces, error) {
	t := &Traces{tracer: noop.NewTracerProvider().Tracer(scope), now: cfg.Now}
	if cfg.Exporter == nil {
		return t, nil
	}
	source, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "countersign"),
			attribute.String("service.version", cfg.Version),
			attribute.String("service.instance.id", cfg.Instance)),
		resource.WithFromEnv()) // last: it wins
	if err != nil {
		return nil, err
	}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(cfg.Exporter), sdktrace.WithResource(source))
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// Tracer makes spans of whatever continues a trace.
func (t *Traces) Tracer() trace.Tracer { return t.tracer }

// Close exports what is left, as long as ctx lasts.
func (t *Traces) Close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Flush exports what was ended so far.
func (t *Traces) Flush(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.ForceFlush(ctx)
}

// OnEvent makes a span of each transition, in the trace in which the operation
// was opened: whoever follows an agent's call sees what people, time and evidence
// did with it afterwards. For ledger.Config.OnEvent.
func (t *Traces) OnEvent(op ledger.Operation, ev ledger.Event) {
	if t.provider == nil {
		return
	}
	if ev.To == ledger.Running {
		t.marks.Store(op.ID, transition(ev))
	}
	_, span := t.tracer.Start(Continue(context.Background(), op), "operation."+string(ev.Verb),
		trace.WithTimestamp(ev.At), trace.WithAttributes(attributes(transitionFields(op, ev))...))
	if ev.To == ledger.Unknown {
		span.SetStatus(codes.Error, "the outcome is unknown")
	}
	span.End(trace.WithTimestamp(ev.At))
}

// Dispatching makes the span "tool.dispatch" of one attempt: from its mark to
// the tool's answer (R137). An attempt whose reply was lost ends in an error of
// this span; the reply to the agent is a span of its own. For
// commit.ExecutorConfig.Dispatching.
func (t *Traces) Dispatching(ctx context.Context, op ledger.Operation) (context.Context, func(tools.Outcome)) {
	ctx = Continue(ctx, op)
	if t.provider == nil || len(op.Attempts) == 0 {
		return ctx, func(tools.Outcome) {}
	}
	fields := attributes(Fields(op))
	if mark, ok := t.marks.LoadAndDelete(op.ID); ok {
		fields = append(fields, attribute.String(FieldStateTransition, mark.(string)))
	}
	ctx, span := t.tracer.Start(ctx, "tool.dispatch", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(op.Attempts[len(op.Attempts)-1].MarkedAt), trace.WithAttributes(fields...))
	return ctx, func(o tools.Outcome) {
		span.SetAttributes(attribute.String("verdict", string(o.Verdict)), attribute.String(FieldEffectID, clip(cmp.Or(o.EffectID, op.EffectID))))
		answered(span, o.Seen)
		if o.Verdict == tools.Unknown {
			span.SetStatus(codes.Error, "the outcome is unknown")
		}
		span.End(trace.WithTimestamp(t.now()))
	}
}

// Asking makes the span "tool.lookup" of one question about a doubt, in the
// operation's trace.
func (t *Traces) Asking(ctx context.Context, op ledger.Operation) (context.Context, func(tools.Answer)) {
	ctx, span := t.tracer.Start(Continue(ctx, op), "tool.lookup", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(t.now()), trace.WithAttributes(attributes(Fields(op))...))
	return ctx, func(a tools.Answer) {
		span.SetAttributes(attribute.String("answer", string(a.Kind)))
		answered(span, a.Seen)
		if a.Kind == tools.LookupFailed || a.Kind == tools.BrokenPromise {
			span.SetStatus(codes.Error, string(a.Kind))
		}
		span.End(trace.WithTimestamp(t.now()))
	}
}

// answered says what was seen of the upstream's answer, with the names under
// which its own logs have the request.
func answered(span trace.Span, x tools.Exchange) {
	if x.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", x.Status))
	}
	for name, value := range x.Headers {
		switch strings.ToLower(name) {
		case "request-id", "x-request-id", "x-correlation-id", "traceresponse":
			span.SetAttributes(attribute.String("upstream."+strings.ToLower(name), clip(value)))
		}
	}
}

// Traceparent is the W3C traceparent of a context; empty when it is in no trace.
// For commit.Config.Trace.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue puts a context into the trace in which the operation was opened. One
// that is in a trace already, and an operation without one, stay as they are.
func Continue(ctx context.Context, op ledger.Operation) context.Context {
	at := spanContext(op.Trace)
	if !at.IsValid() || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, at)
}

// spanContext reads a traceparent; invalid when there is none.
func spanContext(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

// Endpoint says where spans go: to the configured collector, else to that of the
// standard variables; empty when neither is set, or OTEL_SDK_DISABLED is true.
func Endpoint(configured string, getenv func(string) string) string {
	base := strings.TrimSuffix(cmp.Or(configured, getenv("OTEL_EXPORTER_OTLP_ENDPOINT")), "/")
	switch exact := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"):
		return ""
	case configured == "" && exact != "":
		return exact
	case base == "":
		return ""
	}
	return base + "/v1/traces"
}

// OTLP exports spans to the URL by OTLP over HTTP, as Endpoint gives it. Headers,
// certificates and time-outs follow the standard variables
// (OTEL_EXPORTER_OTLP_…). A collector that is away is told of once in the log,
// and once when it is back.
func OTLP(ctx context.Context, endpoint string, log *slog.Logger) (sdktrace.SpanExporter, error) {
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the endpoint for spans must be an http:// or https:// URL")
	}
	inner, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, err
	}
	return &telling{SpanExporter: inner, log: log}, nil
}

// telling logs that an exporter fails, and keeps the failure from the library's
// global handler.
type telling struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	down bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *telling) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil && !e.down:
		e.log.Warn("spans can't be exported; they are dropped", "error", err)
	case err == nil && e.down:
		e.log.Info("spans are exported again")
	}
	e.down = err != nil
	return nil
}
