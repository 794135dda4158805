package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"countersign/fault"
	"countersign/ledger"
)

// Watch is who looks on while requests are answered. Nothing in it changes an
// answer, and each field may be left out.
type Watch struct {
	// Tracer makes a span of each request, which continues the caller's trace
	// (W3C Trace Context), and one of its reply.
	Tracer trace.Tracer
	// Note writes what is to be said of an operation on the spans of a request
	// that was answered with it; Fields are the same for its log line.
	Note   func(trace.Span, ledger.Operation)
	Fields func(ledger.Operation) []slog.Attr
	// OnAnswer is called after each answer.
	OnAnswer func(Answered)
}

// Answered is one request after its answer.
type Answered struct {
	// Route is the operationId in the contract; empty outside /v1 and where no
	// route matched.
	Route  string
	Status int
	// Code is the problem's, when the answer was one.
	Code fault.Code
	Took time.Duration
}

func (w *Watch) complete() {
	if w.Tracer == nil {
		w.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if w.Note == nil {
		w.Note = func(trace.Span, ledger.Operation) {}
	}
	if w.Fields == nil {
		w.Fields = func(ledger.Operation) []slog.Attr { return nil }
	}
	if w.OnAnswer == nil {
		w.OnAnswer = func(Answered) {}
	}
}

// seen is one request as its spans tell it: the request itself, and the way of
// the reply back. A reply that nobody took stands out by its own span (R137).
type seen struct {
	s    *Server
	x    *exchange
	span trace.Span
	// replyAt is when the answer began, err the first write that failed.
	replyAt time.Time
	err     error
}

// see begins the span of a request. Requests that say nothing about an operation
// have none.
func (s *Server) see(r *http.Request, x *exchange) (*seen, *http.Request) {
	v := &seen{s: s, x: x, span: trace.SpanFromContext(context.Background())}
	ctx := r.Context()
	// Two parents are none: nobody knows which one the caller meant.
	if len(r.Header.Values("Traceparent")) == 1 {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		ctx, v.span = s.cfg.Watch.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(s.cfg.Now()),
			trace.WithAttributes(attribute.String("request_id", x.requestID), attribute.String("http.request.method", r.Method)))
	}
	return v, r.WithContext(ctx)
}

// writer lets a span that is recorded see the reply on its way.
func (v *seen) writer(w http.ResponseWriter) http.ResponseWriter {
	if !v.span.IsRecording() {
		return w
	}
	return &replying{ResponseWriter: w, v: v}
}

// end ends the spans of a request that was answered with status, or broke off
// (0).
func (v *seen) end(r *http.Request, status int) {
	if !v.span.IsRecording() {
		return
	}
	now := v.s.cfg.Now()
	code := attribute.Int("http.response.status_code", status)
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		v.span.SetName(r.Method + " " + c.RoutePattern())
		v.span.SetAttributes(attribute.String("http.route", c.RoutePattern()))
	}
	if v.x.code != "" {
		v.span.SetAttributes(attribute.String("problem_code", string(v.x.code)))
	}
	v.span.SetAttributes(code)
	if status == 0 || status >= http.StatusInternalServerError {
		v.span.SetStatus(codes.Error, string(v.x.code))
	}
	if v.replyAt.IsZero() {
		v.replyAt = now
	}
	_, reply := v.s.cfg.Watch.Tracer.Start(r.Context(), "reply.returned", trace.WithTimestamp(v.replyAt),
		trace.WithAttributes(attribute.String("request_id", v.x.requestID), code))
	if lost := v.lost(r, status); lost != nil {
		reply.SetStatus(codes.Error, lost.Error())
	}
	for _, span := range []trace.Span{reply, v.span} {
		if v.x.op != nil {
			v.s.cfg.Watch.Note(span, *v.x.op)
		} else {
			for _, a := range v.x.asked {
				span.SetAttributes(attribute.String(a.Key, a.Value.String()))
			}
		}
		span.End(trace.WithTimestamp(now))
	}
}

// asks notes what a call says of itself: the tool, if there is one of that name, its
// place in a run and its key, under the names that operations have them by. What
// two requests of one call have in common is seen also where neither opened
// anything (R138).
func (s *Server) asks(x *exchange, tool string, run *ledger.Run, key string) {
	if _, known := s.cfg.Registry.Get(tool); !known {
		return // a name that the caller made up
	}
	if run == nil {
		run = &ledger.Run{}
	}
	x.asked = []slog.Attr{
		slog.String("tool", tool), slog.String("run_id", run.ID), slog.String("tool_call_id", run.Call), slog.String("idempotency_key", key),
	}
}

// What became of a reply that did not get to the caller, as far as this end of
// the connection can tell.
var (
	errNoReply    = errors.New("the request broke off without a reply")
	errCallerGone = errors.New("the caller was gone before the reply")
	errCut        = errors.New("the reply could not be written whole")
)

func (v *seen) lost(r *http.Request, status int) error {
	switch {
	case v.err != nil:
		return errCut
	case r.Context().Err() != nil:
		return errCallerGone
	case status == 0:
		return errNoReply
	}
	return nil
}

// replying notes when an answer begins and whether it can be written.
type replying struct {
	http.ResponseWriter
	v *seen
}

// WriteHeader implements http.ResponseWriter.
func (w *replying) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *replying) Write(b []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(b)
	if err != nil && w.v.err == nil {
		w.v.err = err
	}
	return n, err
}

// Unwrap lets http.ResponseController through.
func (w *replying) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *replying) begin() {
	if w.v.replyAt.IsZero() {
		w.v.replyAt = w.v.s.cfg.Now()
	}
}
