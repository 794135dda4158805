package measure

import (
	"slices"
	"strconv"
	"time"

	"countersign/fault"
	"countersign/ledger"
)

// tokenCodes are the refusals of a commit that lie in its token.
var tokenCodes = []fault.Code{
	fault.TokenInvalid, fault.TokenExpired, fault.TokenSubjectMismatch, fault.ArgsMismatch,
}

// Previewed counts a preview that gave a token.
func (m *Metrics) Previewed(tool string) { m.previews.WithLabelValues(m.tool(tool)).Inc() }

// Committed counts a commit that was answered with an operation.
func (m *Metrics) Committed(op ledger.Operation, replayed bool) {
	m.commits.WithLabelValues(m.tool(op.Tool), string(op.State), strconv.FormatBool(replayed)).Inc()
}

// Refused counts a commit that was refused, when its token was the reason.
func (m *Metrics) Refused(err error) {
	if code := fault.Of(err).Code; slices.Contains(tokenCodes, code) {
		m.refusals.WithLabelValues(string(code)).Inc()
	}
}

// Answered counts and times an answer of the API. route is the operationId of
// the contract, empty for what is in none.
func (m *Metrics) Answered(route string, status int, code fault.Code, took time.Duration) {
	if route == "" {
		route = "none"
	}
	if code != "" {
		m.problems.WithLabelValues(route, string(code)).Inc()
	}
	m.requests.WithLabelValues(route, statusClass(status)).Observe(took.Seconds())
}

// statusClass is 2xx, 4xx and so on; "none" for a request that broke off.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
