package measure_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/commit"
	"countersign/fault"
	"countersign/identity"
	"countersign/tools/tooltest"
)

// Previews and commits are counted, repeats apart, and refusals only where the
// token was the reason.
func TestCalls_Commits(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold"))
	token := r.token("hold", "o1", nil)
	first, again := r.commit(ctx, "hold", token), r.commit(ctx, "hold", token)
	require.Equal(t, first.ID, again.ID)
	require.EqualValues(t, 1, r.value("previews_total", "tool", "hold"))
	require.EqualValues(t, 1, r.value("commits_total", "tool", "hold", "state", "succeeded", "replayed", "false"))
	require.EqualValues(t, 1, r.value("commits_total", "tool", "hold", "state", "succeeded", "replayed", "true"))

	refuse := func(who identity.Agent, tool, token string, args map[string]any, code fault.Code) {
		t.Helper()
		_, err := r.commits.Commit(ctx, commit.Request{Agent: who, Tool: tool, Token: token, Args: args})
		require.True(t, fault.Is(err, code), "%v", err)
	}
	late := r.token("hold", "o2", nil)
	r.pass(time.Hour)
	refuse(agent, "hold", late, nil, fault.TokenExpired)
	refuse(agent, "hold", late+"x", nil, fault.TokenInvalid)
	refuse(agent, "other", late, nil, fault.ArgsMismatch)
	refuse(identity.Agent{ID: "agt_other", Tenant: tenant}, "hold", late, nil, fault.TokenSubjectMismatch)
	for _, code := range []fault.Code{fault.TokenExpired, fault.TokenInvalid, fault.ArgsMismatch, fault.TokenSubjectMismatch} {
		require.EqualValues(t, 1, r.value("token_refusals_total", "code", string(code)), code)
	}
	r.metrics.Refused(fault.New(fault.ToolFrozen, "frozen"))
	require.Len(t, r.gather()["countersign_token_refusals_total"], 4, "a freeze is not the token's fault")
}

// Answers of the API are timed by route and class, problems counted by code.
func TestCalls_Answers(t *testing.T) {
	r := newRig(t)
	r.metrics.Answered("commitTool", 200, "", 2*time.Second)
	r.metrics.Answered("commitTool", 422, fault.ArgsMismatch, time.Second)
	r.metrics.Answered("", 404, fault.NotFound, time.Second)
	r.metrics.Answered("commitTool", 0, "", time.Second)
	require.EqualValues(t, 1, r.value("problems_total", "route", "commitTool", "code", "args_mismatch"))
	require.EqualValues(t, 1, r.value("problems_total", "route", "none", "code", "not_found"))
	require.Len(t, r.gather()["countersign_problems_total"], 2)
	require.InDelta(t, 2, r.value("request_duration_seconds", "route", "commitTool", "status", "2xx"), 1e-9)
	require.InDelta(t, 1, r.value("request_duration_seconds", "route", "commitTool", "status", "none"), 1e-9)
}

// The door of the metrics answers GET /metrics in Prometheus' text form, and
// nothing else.
func TestHandler(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold"))
	r.do(context.Background(), "hold", "o1")
	srv := httptest.NewServer(r.metrics.Handler(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	get := func(path string) (int, string, string) {
		resp, err := http.Get(srv.URL + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
	}
	status, kind, body := get("/metrics")
	require.Equal(t, http.StatusOK, status)
	require.True(t, strings.HasPrefix(kind, "text/plain"), kind)
	for _, line := range []string{
		`countersign_build_info{go_version="go1.`, `countersign_operations{state="succeeded",tenant="default"} 1`,
		`countersign_duplicate_effect_rate{tenant="default"} 0`, "countersign_store_up 1", "go_goroutines ", "process_start_time_seconds ",
	} {
		require.Contains(t, body, line)
	}
	require.NotContains(t, body, "countersign_reconciliation_success_rate", "nothing was in doubt (R148)")
	status, _, _ = get("/")
	require.Equal(t, http.StatusNotFound, status)
	resp, err := http.Post(srv.URL+"/metrics", "text/plain", nil)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}
