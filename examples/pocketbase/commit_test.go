package pocketbase_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools"
	"countersign/tools/tooltest"
)

var (
	// loseRequest closes the connection before PocketBase has heard anything.
	loseRequest = tooltest.Fault{}
	// loseReply closes it when PocketBase has answered.
	loseReply = tooltest.Fault{Forward: true}
	// vagueReply is a refusal that says nothing, although PocketBase has done it:
	// what a hook that fails after the transaction looks like.
	vagueReply = tooltest.Fault{Forward: true, Answer: func(w io.Writer) {
		body := `{"data":{},"message":"Batch transaction failed.","status":400}`
		fmt.Fprintf(w, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}}
)

// writes are the three writes on one customer Ada, and what each leaves behind.
func writes(b *bench) map[string]struct {
	args string
	// done says whether the effect is there.
	done func() bool
} {
	ada := b.server.add("C-1", "Ada", "free", 3)["id"].(string)
	return map[string]struct {
		args string
		done func() bool
	}{
		"create_customer": {
			`{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"team","seats":2}`,
			func() bool { return len(b.server.customers()) == 2 },
		},
		"change_customer": {
			`{"case":"4711","id":"` + ada + `","seats":5}`,
			func() bool { return b.server.record(ada)["seats"] == 5.0 },
		},
		"delete_customer": {
			`{"id":"` + ada + `"}`,
			func() bool { return len(b.server.customers()) == 0 },
		},
	}
}

// eachWrite runs a test for each of the three writes on a server of its own.
func eachWrite(t *testing.T, test func(t *testing.T, b *bench, plan tools.Plan, done func() bool)) {
	for _, tool := range []string{"create_customer", "change_customer", "delete_customer"} {
		t.Run(tool, func(t *testing.T) {
			b := newBench(t)
			w := writes(b)[tool]
			plan := b.plan(tool, w.args)
			require.False(t, w.done())
			test(t, b, plan, w.done)
		})
	}
}

func TestCommit_Succeeds(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		require.Equal(t, tools.Absent, b.lookup(plan).Kind)
		require.Empty(t, b.guard(plan).Drift)
		out := b.send(plan)
		require.Equal(t, tools.Succeeded, out.Verdict, out.Because)
		require.True(t, done())
		require.Equal(t, []string{"POST /api/batch"}, b.sent())

		found := b.lookup(plan)
		require.Equal(t, tools.Present, found.Kind, found.Because)
		require.Equal(t, []string{out.EffectID}, found.EffectIDs, "the answer and the lookup name the same effect")
		rows := b.server.requests()
		require.Len(t, rows, 1)
		require.Equal(t, plan.Key.Upstream, rows[0]["key"])
		require.Equal(t, plan.Tool, rows[0]["tool"])
	})
}

func TestCommit_SendsOnlyWhatWasAskedFor(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "team", 3)
	plan := b.plan("change_customer", `{"case":"1","id":"`+ada["id"].(string)+`","seats":5}`)
	// Past the guard somebody changes another field: it is not overwritten.
	b.server.change(ada["id"].(string), map[string]any{"name": "Ada L."})
	require.Equal(t, tools.Succeeded, b.send(plan).Verdict)
	require.Equal(t, map[string]any{
		"reference": "C-1", "name": "Ada L.", "email": "ada@example.com", "plan": "team", "seats": 5.0,
	}, values(b.server.record(ada["id"].(string))))
}

// A lost reply is unknown; the lookup finds exactly that effect (fault matrix:
// the upstream takes the request and cuts the connection).
func TestCommit_ReplyLost(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		b.line.Fail(loseReply)
		out := b.send(plan)
		require.Equal(t, tools.Unknown, out.Verdict)
		require.Empty(t, out.EffectID)
		require.True(t, done(), "it happened all the same")
		require.Len(t, b.sent(), 1, "and is not sent again")

		found := b.lookup(plan)
		require.Equal(t, tools.Present, found.Kind, found.Because)
		require.Len(t, found.EffectIDs, 1)
		other := b.plan("create_customer", `{"reference":"C-9","name":"Cy","email":"cy@example.com","plan":"free","seats":1}`)
		require.Equal(t, tools.Absent, b.lookup(other).Kind, "another operation's lookup does not find it")
	})
}

func TestCommit_RequestLost(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		b.line.Fail(loseRequest)
		require.Equal(t, tools.Unknown, b.send(plan).Verdict, "it can't be told from a lost reply")
		require.False(t, done())
		require.Equal(t, tools.Absent, b.lookup(plan).Kind)
	})
}

// The unique key is the second guard: whoever sends a request twice, a proxy or
// a broken gateway, PocketBase takes it once. The second answer is not taken for
// a rejection, since the effect exists.
func TestCommit_SameRequestTwice(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		first := b.send(plan)
		require.Equal(t, tools.Succeeded, first.Verdict)
		state := [][]map[string]any{b.server.customers(), b.server.requests()}
		second := b.send(plan)
		require.Equal(t, tools.Unknown, second.Verdict, "never a rejection: %s", second.Because)
		require.Equal(t, 400, second.Seen.Status)
		require.Equal(t, state, [][]map[string]any{b.server.customers(), b.server.requests()})
		require.Equal(t, []string{first.EffectID}, b.lookup(plan).EffectIDs)
	})
}

// Two intents with one reference: the unique field refuses the second for
// certain, and nothing of it stays.
func TestCommit_UniqueReference(t *testing.T) {
	b := newBench(t)
	args := `{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"team","seats":2}`
	first, second := b.planAs("first", "create_customer", args), b.planAs("second", "create_customer", args)
	require.NotEqual(t, first.Key.Upstream, second.Key.Upstream)
	require.Equal(t, tools.Succeeded, b.send(first).Verdict)

	drift := b.guard(second).Drift
	require.Len(t, drift, 1, "the guard sees it before anything is sent")
	require.Equal(t, "reads.same.body.items.size()", drift[0].Field)

	out := b.send(second)
	require.Equal(t, tools.NoEffect, out.Verdict)
	require.Equal(t, "Failed to create record. reference: Value must be unique.", out.Because)
	require.Len(t, b.server.customers(), 1)
	require.Len(t, b.server.requests(), 1, "the row with the key is rolled back with the rest")
	require.Equal(t, tools.Absent, b.lookup(second).Kind)
}

func TestCommit_Rejected(t *testing.T) {
	all := []string{"create_customer", "change_customer", "delete_customer"}
	for name, c := range map[string]struct {
		tools   []string
		before  func(b *bench, ada string)
		because string
	}{
		"record is gone": {
			all[1:], func(b *bench, ada string) { b.server.remove(ada) },
			"The requested resource wasn't found.",
		},
		"value that the collection no longer takes": {
			all[1:2], func(b *bench, _ string) { b.server.limitSeats(4) },
			"Failed to update record. seats: Must be less than 4.000000.",
		},
		"batches are switched off": {
			all, func(b *bench, _ string) {
				b.server.call("PATCH", "/api/settings", map[string]any{"batch": map[string]any{"enabled": false}}, 200)
			},
			"Batch requests are not allowed.",
		},
		"token is worthless": {
			all, func(b *bench, _ string) { b.tools = compile(b.t, b.line.URL, worthless(b.t)) },
			"Only superusers can perform this action.",
		},
	} {
		for _, tool := range c.tools {
			t.Run(name+"/"+tool, func(t *testing.T) {
				b := newBench(t)
				w := writes(b)
				plan := b.plan(tool, w[tool].args)
				c.before(b, b.server.customers()[0]["id"].(string))
				state := b.server.customers()
				out := b.send(plan)
				require.Equal(t, tools.NoEffect, out.Verdict, out.Because)
				require.Equal(t, c.because, out.Because)
				require.Equal(t, state, b.server.customers())
				require.Empty(t, b.server.requests())
			})
		}
	}
}

// limitSeats changes the collection under the tools.
func (s *server) limitSeats(most int) {
	s.t.Helper()
	fields := s.call("GET", "/api/collections/customers", nil, 200)["fields"].([]any)
	for _, f := range fields {
		if f := f.(map[string]any); f["name"] == "seats" {
			f["max"] = most
		}
	}
	s.call("PATCH", "/api/collections/customers", map[string]any{"fields": fields}, 200)
}

// A 400 that does not name the refused request proves nothing: it may come from
// a hook that failed after the transaction.
func TestCommit_VagueRefusal(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		b.line.Fail(vagueReply)
		out := b.send(plan)
		require.Equal(t, tools.Unknown, out.Verdict)
		require.Equal(t, 400, out.Seen.Status)
		require.True(t, done())
		require.Equal(t, tools.Present, b.lookup(plan).Kind)
	})
}

// Without its right to read, the lookup gets no answer; it must not take that
// for "absent". So the collections have no rules: a list rule would answer a
// stranger with an empty list.
func TestLookup_WorthlessTokenIsNoAnswer(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, _ func() bool) {
		require.Equal(t, tools.Succeeded, b.send(plan).Verdict)
		b.tools = compile(t, b.line.URL, worthless(t))
		require.Equal(t, tools.LookupFailed, b.lookup(plan).Kind)
	})
}

func TestCollections_HaveNoRules(t *testing.T) {
	text, err := os.ReadFile("collections.json")
	require.NoError(t, err)
	var file struct{ Collections []map[string]any }
	require.NoError(t, json.Unmarshal(text, &file))
	require.Len(t, file.Collections, 2)
	for _, c := range file.Collections {
		for member := range c {
			require.NotContains(t, member, "Rule", c["name"])
		}
	}
}

// worthless is a token that PocketBase does not know: the caller is a stranger.
func worthless(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("worthless"), 0o600))
	return file
}

func TestGuard_Drift(t *testing.T) {
	for name, c := range map[string]struct {
		tool   string
		by     func(s *server, ada string)
		fields map[string]tools.Drift
	}{
		"change under a change": {
			"change_customer", func(s *server, ada string) { s.change(ada, map[string]any{"seats": 4}) },
			map[string]tools.Drift{"reads.customer.body.seats": {}, "reads.customer.body.updated": {}},
		},
		"change and back again": {
			"delete_customer", func(s *server, ada string) {
				s.change(ada, map[string]any{"seats": 4})
				s.change(ada, map[string]any{"seats": 3})
			},
			map[string]tools.Drift{"reads.customer.body.updated": {}},
		},
		"the same reference by hand": {
			"create_customer", func(s *server, _ string) { s.add("C-2", "Bo", "free", 1) },
			map[string]tools.Drift{"reads.same.body.items.size()": {}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ada := b.server.add("C-1", "Ada", "free", 3)["id"].(string)
			plan := b.plan(c.tool, map[string]string{
				"create_customer": `{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"team","seats":2}`,
				"change_customer": `{"case":"4711","id":"` + ada + `","seats":5}`,
				"delete_customer": `{"id":"` + ada + `"}`,
			}[c.tool])
			require.Empty(t, b.guard(plan).Drift)
			c.by(b.server, ada)
			found := map[string]tools.Drift{}
			for _, d := range b.guard(plan).Drift {
				require.NotEqual(t, d.Was, d.Now)
				found[d.Field] = tools.Drift{}
			}
			require.Equal(t, c.fields, found)
		})
	}
}
