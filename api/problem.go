package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"countersign/fault"
)

// problemType names the type of a problem (RFC 9457): a name, not an address,
// and the same in every deployment.
const problemType = "urn:countersign:problem:"

// refuse writes an error as a problem document. It is the only place that does.
// What is no *fault.Error, or has a code that the contract does not know, is
// internal: logged with its cause and shown without detail (S78).
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := fault.Of(err)
	p, known := problems[e.Code]
	if !known || e.Code == fault.Internal {
		e = fault.Wrap(err, fault.Internal, "Something went wrong inside the gateway.")
		p = problems[fault.Internal]
	}
	if e.Malformed {
		p.status = http.StatusBadRequest
	}
	s.logProblem(r, p.status, e)
	of(r.Context()).code = e.Code

	doc := Problem{
		Type: problemType + string(e.Code), Title: p.title, Status: p.status, Code: ProblemCode(e.Code),
		Detail: e.Detail, RequestID: of(r.Context()).requestID,
		Next: Next{Action: p.action, AfterSeconds: p.after, Text: p.text},
	}
	for _, at := range e.Pointers {
		doc.Pointers = append(doc.Pointers, Pointer{Pointer: at.Pointer, Detail: at.Detail})
		doc.Next.Pointers = append(doc.Next.Pointers, at.Pointer)
	}
	var better *advised
	if errors.As(err, &better) {
		better.on(&doc.Next)
	}
	if e.RetryAfter > 0 {
		doc.Next.AfterSeconds = seconds(e.RetryAfter)
	}
	if rt := of(r.Context()).route; rt != nil && commits[rt.operation] && e.Code == fault.OutcomeUnclear {
		doc.Next.Action = NextActionRepeatCommit
	}
	if e.Operation != "" {
		s.enclose(r.Context(), &doc, e)
	}

	h := w.Header()
	if doc.Next.AfterSeconds > 0 && p.status != http.StatusInternalServerError {
		h.Set("Retry-After", strconv.Itoa(doc.Next.AfterSeconds))
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="countersign"`)
	}
	h.Set("Content-Type", "application/problem+json")
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(doc); err != nil {
		s.cfg.Log.Error("a problem could not be written", "request_id", doc.RequestID, "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(p.status)
	_, _ = text.WriteTo(w) // a caller who left is not told
}

// commits are the operationIds of the routes whose repeat has a word of its own.
var commits = map[string]bool{"commitTool": true, "commitUndo": true, "commitRunUndo": true}

// enclose puts the operation in the way into the problem, when the caller may
// see it. Where its state is what refused, its next step is the problem's.
func (s *Server) enclose(ctx context.Context, doc *Problem, e *fault.Error) {
	who := of(ctx).who
	if who == (principal{}) {
		return
	}
	op, err := s.cfg.Ledger.Operation(ctx, who.tenant(), e.Operation)
	if err != nil || !visible(op, who) {
		return
	}
	if doc.Operation, err = s.operation(ctx, op); err != nil {
		doc.Operation = Operation{}
		return
	}
	if e.Code == fault.InvalidState {
		doc.Next = doc.Operation.Next
	}
}

// logProblem logs what the gateway itself is to blame for, once, with its
// cause. What a caller did wrong is only of interest to the caller.
func (s *Server) logProblem(r *http.Request, status int, e *fault.Error) {
	level := slog.LevelDebug
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		level = slog.LevelError
	}
	s.cfg.Log.LogAttrs(r.Context(), level, "problem", slog.String("request_id", of(r.Context()).requestID),
		slog.String("code", string(e.Code)), slog.Any("error", e))
}

// refuseParameter answers what generated binding could not read: a path
// parameter that is not well encoded is an id that nothing has.
func (s *Server) refuseParameter(w http.ResponseWriter, r *http.Request, err error) {
	var format *InvalidParamFormatError
	if errors.As(err, &format) && strings.Contains(of(r.Context()).route.path, "{"+format.ParamName+"}") {
		err = noSuch(r.URL.Path)
	} else {
		err = fault.Wrap(err, fault.ParameterInvalid, "A parameter can't be read.")
	}
	s.refuse(w, r, err)
}

// seconds rounds up, for "not before".
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
