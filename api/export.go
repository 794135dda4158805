package api

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"countersign/ledger"
)

// exportPage is how many operations are read at once.
const exportPage = 200

func (h handlers) ExportOperations(ctx context.Context, r ExportOperationsRequestObject) (ExportOperationsResponseObject, error) {
	f := ledger.Filter{Tenant: of(ctx).who.tenant(), Tool: r.Params.Tool, OldestFirst: true, Limit: exportPage}
	for _, state := range r.Params.State {
		f.States = append(f.States, ledger.State(state))
	}
	// The first page is read before the answer begins, so that a ledger that can't
	// be read is still told as one.
	first, err := h.cfg.Ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	e := &export{server: h.Server, ctx: ctx, filter: f, first: first}
	if r.Params.Format == ExportOperationsParamsFormatJsonl {
		e.kind, e.file, e.form = "application/jsonl", "operations.jsonl", e.lines
	} else {
		e.kind, e.file, e.form = "text/csv; charset=utf-8", "operations.csv", e.table
	}
	return e, nil
}

// export is a file of operations that is written as it is read.
type export struct {
	server     *Server
	ctx        context.Context //nolint:containedctx // it lives as long as the answer
	filter     ledger.Filter
	first      ledger.Page
	kind, file string
	form       func(io.Writer) error
}

// VisitExportOperationsResponse implements ExportOperationsResponseObject. Once
// it has begun, what can't be read breaks the connection: a file that only seems
// whole would hide operations.
func (e *export) VisitExportOperationsResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", e.kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+e.file+`"`)
	w.WriteHeader(http.StatusOK)
	if err := e.form(w); err != nil {
		if e.ctx.Err() == nil {
			e.server.cfg.Log.Error("an export broke off", "request_id", of(e.ctx).requestID, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// each gives every operation of the export, page by page.
func (e *export) each(give func(ledger.Operation) error) error {
	for page := e.first; ; {
		_ = of(e.ctx).control.SetWriteDeadline(e.server.sockets.Now().Add(writeTimeout))
		for _, op := range page.Operations {
			if err := give(op); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		// What was read is on its way before more is: a big file does not wait.
		_ = of(e.ctx).control.Flush()
		e.filter.Cursor = page.Next
		var err error
		if page, err = e.server.cfg.Ledger.List(e.ctx, e.filter); err != nil {
			return err
		}
	}
}

// lines writes one JSON object a line.
func (e *export) lines(w io.Writer) error {
	to, who := json.NewEncoder(w), of(e.ctx).who
	return e.each(func(op ledger.Operation) error { return to.Encode(e.server.summary(op, who, nil)) })
}

// exportColumns are the first line of the table.
var exportColumns = []string{
	"id", "tool", "state", "headline", "agent", "idempotency_key", "generation", "effect_id", "reason_code", "reason", "attempts",
	"unknown_since", "needs_person", "created_at", "updated_at", "request_id", "evidence_boundary",
}

// table writes RFC 4180.
func (e *export) table(w io.Writer) error {
	to := csv.NewWriter(w)
	to.UseCRLF = true
	if err := to.Write(exportColumns); err != nil {
		return err
	}
	err := e.each(func(op ledger.Operation) error {
		var why ledger.Reason
		if op.Reason != nil {
			why = *op.Reason
		}
		row := []string{
			op.ID, op.Tool, string(op.State), op.Headline, op.Agent.Name, op.Key, strconv.Itoa(op.Generation), op.EffectID, why.Code, why.Text,
			strconv.Itoa(len(op.Attempts)), moment(op.UnknownSince), strconv.FormatBool(op.OnList), moment(op.CreatedAt), moment(op.UpdatedAt),
			op.RequestID, op.EvidenceBoundary,
		}
		for i, cell := range row {
			row[i] = noFormula(cell)
		}
		return to.Write(row)
	})
	to.Flush()
	if err != nil {
		return err
	}
	return to.Error()
}

// noFormula keeps a spreadsheet from running a text: what agents and outside
// systems write stands in these cells.
func noFormula(cell string) string {
	const begins = "=+-@\t\r\n＝＋－＠"
	if strings.IndexAny(cell, begins) == 0 {
		return "'" + cell
	}
	return cell
}

// moment is a time in a cell, empty when there is none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
