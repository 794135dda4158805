package measure

import (
	"log/slog"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"countersign/ledger"
)

// The names of the trace fields, the same in log lines and in spans (R133). The
// key, the effect and the transition stand in every line and span of a
// transition, also while they are empty (R134).
const (
	FieldOperation        = "operation"
	FieldTool             = "tool"
	FieldRequestID        = "request_id"
	FieldRunID            = "run_id"
	FieldToolCallID       = "tool_call_id"
	FieldIdempotencyKey   = "idempotency_key"
	FieldGeneration       = "generation"
	FieldEffectID         = "effect_id"
	FieldState            = "state"
	FieldStateTransition  = "state_transition"
	FieldAttempt          = "attempt"
	FieldRetryCount       = "retry_count"
	FieldEvidenceBoundary = "evidence_boundary"
	FieldActor            = "actor"
	FieldReason           = "reason"
	FieldParent           = "undo_of"
	FieldTraceID          = "trace_id"
	FieldSpanID           = "span_id"
)

// Fields are what log lines and spans say of an operation. They hold names and
// ids, never arguments, results, tokens or what an upstream said.
func Fields(op ledger.Operation) []slog.Attr {
	return append([]slog.Attr{slog.String(FieldRequestID, clip(op.RequestID))}, Standing(op)...)
}

// Standing is Fields without the request that opened the operation: for what is
// said of a later request.
func Standing(op ledger.Operation) []slog.Attr {
	run := ledger.Run{}
	if op.Run != nil {
		run = *op.Run
	}
	fields := []slog.Attr{
		slog.String(FieldOperation, op.ID),
		slog.String(FieldTool, op.Tool),
		slog.String(FieldRunID, clip(run.ID)),
		slog.String(FieldToolCallID, clip(run.Call)),
		slog.String(FieldIdempotencyKey, clip(op.Key)),
		slog.Int(FieldGeneration, op.Generation),
		slog.String(FieldEffectID, clip(op.EffectID)),
		slog.String(FieldState, string(op.State)),
		slog.Int(FieldAttempt, len(op.Attempts)),
		slog.Int(FieldRetryCount, op.Retries()),
		slog.String(FieldEvidenceBoundary, op.EvidenceBoundary),
	}
	if op.Parent != "" {
		fields = append(fields, slog.String(FieldParent, op.Parent))
	}
	return fields
}

// transitionFields are Fields with the move itself: as the event tells it, for
// the row may have moved on.
func transitionFields(op ledger.Operation, ev ledger.Event) []slog.Attr {
	fields := append(Fields(op),
		slog.String(FieldStateTransition, transition(ev)),
		slog.String(FieldActor, ev.Actor.Kind+" "+clip(ev.Actor.ID)))
	if ev.Reason != nil {
		// The code only: the text may be the upstream's own.
		fields = append(fields, slog.String(FieldReason, ev.Reason.Code))
	}
	return fields
}

// transition puts a move as "pending>running by dispatch"; an operation is born
// out of "none".
func transition(ev ledger.Event) string {
	from := string(ev.From)
	if from == "" {
		from = "none"
	}
	return from + ">" + string(ev.To) + " by " + string(ev.Verb)
}

// Note writes what is to be said of an operation on the span of a later request,
// and links the trace in which the operation was opened.
func Note(span trace.Span, op ledger.Operation) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attributes(Standing(op))...)
	opened := spanContext(op.Trace)
	if opened.IsValid() && opened.TraceID() != span.SpanContext().TraceID() {
		span.AddLink(trace.Link{SpanContext: opened})
	}
}

// attributes are fields as spans have them.
func attributes(fields []slog.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(fields)+2)
	for _, f := range fields {
		if f.Value.Kind() == slog.KindInt64 {
			out = append(out, attribute.Int64(f.Key, f.Value.Int64()))
			continue
		}
		out = append(out, attribute.String(f.Key, f.Value.String()))
		switch f.Key { // the names of OpenTelemetry for calls of tools
		case FieldTool:
			out = append(out, attribute.String("gen_ai.tool.name", f.Value.String()))
		case FieldToolCallID:
			if call := f.Value.String(); call != "" {
				out = append(out, attribute.String("gen_ai.tool.call.id", call))
			}
		}
	}
	return out
}

// maxField bounds a text that an agent or an upstream chose.
const maxField = 256

// clip shortens a text to maxField bytes, between characters.
func clip(s string) string {
	if len(s) <= maxField {
		return s
	}
	end := maxField
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
