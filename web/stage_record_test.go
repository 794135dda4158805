package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// recordTools are the tools of the scenes of this file.
func recordTools() []*tools.Tool {
	courier := tooltest.FakeTool("book_courier", tooltest.WithLookup(tools.Eventual), tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(courier).Script(tooltest.LoseRequest())
	pack := tooltest.FakeTool("pack_parcel", tooltest.WithUndo("unpack_parcel"), tooltest.WithApproval(tooltest.Auto()))
	unpack := tooltest.FakeTool("unpack_parcel", tooltest.WithApproval(tooltest.Auto()))
	tooltest.FakeOf(unpack).Script(tooltest.Reject("The parcel is on the van already."), tooltest.LoseReply())
	points := tooltest.FakeTool("add_points", tooltest.KeyFrom(tools.KeyFromCaller), tooltest.WithApproval(tooltest.Auto()))
	return []*tools.Tool{headed(courier, "Book a courier for ord_1009, tomorrow before noon"), pack, unpack, points}
}

// calledAs asks under the caller's own key, as one tool call of a run.
func (r *rig) calledAs(agent identity.Agent, tool, key, call string, in map[string]any) ledger.Operation {
	r.t.Helper()
	p, err := r.previews.Preview(context.Background(), preview.Request{
		Agent: agent, Tool: tool, Args: in, IdempotencyKey: key, RequestID: "req_9pt2", Run: &ledger.Run{ID: "loyalty-2026-03", Step: "4", Call: call},
	})
	require.NoError(r.t, err)
	return r.spend(agent, tool, p.Token, 10*time.Second)
}

// duplicates: an agent asked for the same in two calls, and of another nothing is
// like it.
func (s *stage) duplicates(t *testing.T) {
	in := args("order_id", "ord_1002", "amount", 50)
	s.calledAs(s.agent, "add_points", "points-1", "call_77", in)
	s.clock.Add(40 * time.Second)
	again := s.calledAs(s.agent, "add_points", "points-1-retry", "call_78", in)
	require.Equal(t, ledger.Succeeded, again.State)
	s.page("forensics-supported", "mara", "/operations/"+again.ID+"/forensics", http.StatusOK)
	alone := s.ask(s.agent, "hold_order", args("order_id", "ord_1006"))
	s.page("forensics-alone", "mara", "/operations/"+alone.ID+"/forensics", http.StatusOK)
}

// undos: one failed, and of another nobody knows the end.
func (s *stage) undos(t *testing.T) {
	first := s.askIn(s.agent, "pack_parcel", args("order_id", "ord_1010"), &ledger.Run{ID: "returns-2026-03-02", Step: "1", Call: "c"})
	second := s.ask(s.agent, "pack_parcel", args("order_id", "ord_1011"))
	require.Equal(t, ledger.Failed, s.takeBack(t, first.ID).State)
	require.Equal(t, ledger.Unknown, s.takeBack(t, second.ID).State)
	s.page("undos", "mara", "/undos", http.StatusOK)
}

// doubts: what is for a person, and what the gateway asks about by itself.
func (s *stage) doubts(t *testing.T) {
	courier := s.unknown("book_courier", args("order_id", "ord_1009"))
	s.add("operation-being-asked", "mara", courier.ID)
	s.page("unknown", "mara", "/unknown", http.StatusOK)
	s.page("unknown-of-tool", "mara", "/unknown?tool=send_letter", http.StatusOK)
	s.page("unknown-asked", "mara", "/unknown?done=ask&about="+courier.ID, http.StatusOK)
	s.stories = append(s.stories, s.stories[len(s.stories)-3])
	opened := &s.stories[len(s.stories)-1]
	opened.name, opened.click = "unknown-open", ".doubt .resolve"
	s.clock.Add(3 * time.Minute)
}

// proofs: the audit trail of what has ended and of what has not, checkpoints, and
// anchors that keep up, lag and fail.
func (s *stage) proofs(t *testing.T, done, doubt string) {
	_, err := s.sealer.RunOnce(context.Background())
	require.NoError(t, err)
	for i := range 3 {
		s.clock.Add(time.Minute)
		s.ask(s.agent, "pack_parcel", args("order_id", fmt.Sprintf("ord_102%d", i)))
		_, err = s.sealer.RunOnce(context.Background())
		require.NoError(t, err)
	}
	s.page("trail", "mara", "/operations/"+done+"/audit", http.StatusOK)
	s.page("trail-open", "mara", "/operations/"+doubt+"/audit", http.StatusOK)
	works, failing := s.sealer.Anchors(), s.clock.Now().Add(-25*time.Minute)
	works[0].Name = "file /mnt/elsewhere/anchor.jsonl" // not this run's own folder
	s.audit.Anchors = func() []audit.AnchorState {
		return append(works,
			audit.AnchorState{Name: "url https://anchor.example/countersign", Anchored: 1, Failing: failing, Err: errors.New("it answered 503 Service Unavailable")},
			audit.AnchorState{Name: "syslog udp://logs.example:514", Anchored: 0})
	}
	s.page("audit", "mara", "/audit", http.StatusOK)
}
