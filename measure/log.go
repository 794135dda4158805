package measure

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"countersign/ledger"
)

// Log writes one line for each transition, for ledger.Config.OnEvent. The line
// names the trace of the operation, so that the two are found from each other.
func Log(log *slog.Logger) func(ledger.Operation, ledger.Event) {
	return func(op ledger.Operation, ev ledger.Event) {
		level := slog.LevelInfo
		if ev.Verb == ledger.VerbContradict {
			level = slog.LevelWarn // a promise was broken; the tool is frozen
		}
		fields := transitionFields(op, ev)
		if at := spanContext(op.Trace); at.IsValid() {
			fields = append(fields, slog.String(FieldTraceID, at.TraceID().String()))
		}
		log.LogAttrs(context.Background(), level, "transition", fields...)
	}
}

// Each calls all of the functions that are there, in order: ledger.Config has
// room for one.
func Each(all ...func(ledger.Operation, ledger.Event)) func(ledger.Operation, ledger.Event) {
	return func(op ledger.Operation, ev ledger.Event) {
		for _, on := range all {
			if on != nil {
				on(op, ev)
			}
		}
	}
}

// LogHandler adds the trace of a line's context to the line.
func LogHandler(next slog.Handler) slog.Handler { return tracedLog{next} }

type tracedLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(FieldTraceID, at.TraceID().String()), slog.String(FieldSpanID, at.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.Handler.WithGroup(name)} }
