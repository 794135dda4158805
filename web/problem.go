package web

import (
	"net/http"
	"strconv"
	"time"

	"countersign/fault"
)

// statuses are the codes that a page can meet. The API has the whole table; this
// one is for people, whose browsers only need to know that it did not work.
var statuses = map[fault.Code]int{
	fault.MalformedRequest:   http.StatusBadRequest,
	fault.ParameterInvalid:   http.StatusBadRequest,
	fault.Unauthenticated:    http.StatusUnauthorized,
	fault.NotAllowed:         http.StatusForbidden,
	fault.SeparationOfDuties: http.StatusForbidden,
	fault.CrossOrigin:        http.StatusForbidden,
	fault.NotFound:           http.StatusNotFound,
	fault.ToolNotFound:       http.StatusNotFound,
	fault.OperationNotFound:  http.StatusNotFound,
	fault.ApprovalNotFound:   http.StatusNotFound,
	fault.RunNotFound:        http.StatusNotFound,
	fault.FreezeNotFound:     http.StatusNotFound,
	fault.MethodNotAllowed:   http.StatusMethodNotAllowed,
	fault.InvalidState:       http.StatusConflict,
	fault.ApprovalChanged:    http.StatusConflict,
	fault.AlreadyDecided:     http.StatusConflict,
	fault.PreviewStale:       http.StatusConflict,
	fault.ToolChanged:        http.StatusConflict,
	fault.RejectedBefore:     http.StatusConflict,
	fault.RunClosed:          http.StatusConflict,
	fault.RunLive:            http.StatusConflict,
	fault.UnknownsOpen:       http.StatusConflict,
	fault.TokenExpired:       http.StatusGone,
	fault.TokenInvalid:       http.StatusUnauthorized,
	fault.PolicyDenied:       http.StatusForbidden,
	fault.ToolNotGranted:     http.StatusForbidden,
	fault.UndoImpossible:     http.StatusUnprocessableEntity,
	fault.ToolRefused:        http.StatusUnprocessableEntity,
	fault.UpstreamUnexpected: http.StatusBadGateway,
	fault.UpstreamTimeout:    http.StatusGatewayTimeout,
	fault.QuotaExhausted:     http.StatusTooManyRequests,
	fault.BodyTooLarge:       http.StatusRequestEntityTooLarge,
	fault.DecisionInvalid:    http.StatusUnprocessableEntity,
	fault.SchemaViolation:    http.StatusUnprocessableEntity,
	fault.TooLong:            http.StatusUnprocessableEntity,
	fault.ForbiddenText:      http.StatusUnprocessableEntity,
	fault.ToolFrozen:         http.StatusLocked,
	fault.RateLimited:        http.StatusTooManyRequests,
	fault.StoreUnavailable:   http.StatusServiceUnavailable,
	fault.OutcomeUnclear:     http.StatusServiceUnavailable,
	fault.DiskFull:           http.StatusInsufficientStorage,
}

func statusOf(code fault.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// headings say in a few words what is the matter.
var headings = map[int]string{
	http.StatusBadRequest:            "That could not be read",
	http.StatusUnauthorized:          "Sign in first",
	http.StatusForbidden:             "Not allowed",
	http.StatusNotFound:              "Nothing here",
	http.StatusMethodNotAllowed:      "That is not done here",
	http.StatusConflict:              "It has moved on",
	http.StatusGone:                  "Too late",
	http.StatusBadGateway:            "The outside system answers badly",
	http.StatusGatewayTimeout:        "The outside system does not answer",
	http.StatusRequestEntityTooLarge: "Too much text",
	http.StatusUnprocessableEntity:   "Something is missing",
	http.StatusLocked:                "Frozen",
	http.StatusTooManyRequests:       "Slow down a little",
	http.StatusServiceUnavailable:    "The ledger does not answer",
	http.StatusInsufficientStorage:   "The disk is full",
}

// problemPage tells what went wrong and where to go on.
type problemPage struct {
	frame
	Heading string
	Text    string
	Code    string
	Signed  bool
	SignIn  string
	// Operation is the one in the way, if any.
	Operation string
}

// problem answers with a page that says what is the matter. What is only our
// fault is logged, once, and shown without detail.
func (p *Pages) problem(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.Of(err)
	status := p.refused(w, r, f)
	if isLive(r) {
		// A page that refreshes itself keeps what it shows.
		w.WriteHeader(http.StatusNoContent)
		return
	}
	v := problemPage{frame: p.frame(r, "", headingOf(status)), Text: f.Detail, Code: string(f.Code), Operation: f.Operation}
	v.Heading = v.Title
	v.Signed = v.Person != ""
	v.SignIn = "/sign-in"
	if f.Code == fault.Unauthenticated && r.Method == http.MethodPost {
		v.SignIn = signInURL(formURL(r.URL.Path))
	}
	p.render(w, r, status, "problem", v)
}

// refused logs what is our fault, sets Retry-After, and gives the status.
func (p *Pages) refused(w http.ResponseWriter, r *http.Request, f *fault.Error) int {
	status := statusOf(f.Code)
	if status >= 500 {
		p.cfg.Logger.ErrorContext(r.Context(), "a page could not be served", "method", r.Method, "path", r.URL.Path, "code", f.Code, "error", f)
	}
	if f.RetryAfter > 0 {
		seconds := int64((f.RetryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return status
}

func headingOf(status int) string {
	if h, ok := headings[status]; ok {
		return h
	}
	return "Something broke"
}

// refusal is a fault as the message of a page that comes back.
func refusal(f *fault.Error) *notice {
	return &notice{Bad: true, Text: f.Detail}
}
