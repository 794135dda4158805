package chaos

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
)

// judged is what the oracles found, for the record.
type judged struct{ operations, answers, effects, unknown int }

// judge reads the store of a stopped gateway and compares it with what agents
// were told and what really happened.
func judge(t *testing.T, g *gateway, c *crowd, o *outside) judged {
	t.Helper()
	ctx := context.Background()
	db, err := sqlstore.Open(ctx, sqlstore.Options{Path: filepath.Join(g.dir, "data", "ledger.db"), Now: time.Now})
	require.NoError(t, err)
	defer db.Close()
	all := operations(t, db)
	effects, requests := o.log()

	byID, references := map[string]ledger.Operation{}, map[string]bool{}
	unknown := 0
	for _, op := range all {
		byID[op.ID], references[op.UpstreamKey] = op, true
		keyed := strings.HasSuffix(op.Tool, "keyed")
		found := effects[op.UpstreamKey]
		// I3, I4: never two effects, and never two requests without an honoured key.
		require.LessOrEqual(t, len(found), 1, "%s (%s) has the effects %v", op.ID, op.Tool, found)
		if !keyed {
			require.LessOrEqual(t, requests[op.UpstreamKey], 1, "%s (%s) was sent more than once", op.ID, op.Tool)
		}
		switch op.State {
		case ledger.Succeeded:
			require.Equal(t, []string{op.EffectID}, found, op.ID)
		case ledger.Failed:
			require.Empty(t, found, "%s failed and has an effect", op.ID)
		case ledger.Unknown:
			unknown++
			require.True(t, op.OnList || !strings.HasSuffix(op.Tool, "plain"), "%s is in limbo", op.ID)
		default:
			require.Fail(t, "in limbo", "%s is %s after all faults ended", op.ID, op.State)
		}
		chain(t, db, op)
	}
	for reference := range effects {
		require.True(t, references[reference], "an effect that no operation stands for")
	}
	// I10: what was acknowledged is there, in that state or one that follows.
	reach := reachable()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		op, ok := byID[a.Operation]
		require.True(t, ok, "%s was acknowledged as %s and is lost", a.Operation, a.State)
		require.True(t, a.State == op.State || reach[a.State][op.State], "%s was %s and is %s", a.Operation, a.State, op.State)
		if a.EffectID != "" {
			require.Equal(t, a.EffectID, op.EffectID, a.Operation)
		}
	}
	return judged{operations: len(all), answers: len(c.answers), effects: len(effects), unknown: unknown}
}

func operations(t *testing.T, db *sqlstore.DB) []ledger.Operation {
	t.Helper()
	var all []ledger.Operation
	for cursor := ""; ; {
		page, err := db.List(context.Background(), ledger.Filter{Tenant: "default", OldestFirst: true, Limit: 200, Cursor: cursor})
		require.NoError(t, err)
		all = append(all, page.Operations...)
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// chain reads an operation's events: one for each version, each by the table, each
// behind the one before it, and the last tells where the row stands (I16).
func chain(t *testing.T, db *sqlstore.DB, op ledger.Operation) {
	t.Helper()
	events, err := db.Events(context.Background(), op.Tenant, op.ID)
	require.NoError(t, err)
	require.Len(t, events, int(op.Version), "%s: one event for each transition", op.ID)
	prev, state := "", ledger.State("")
	for i, e := range events {
		require.True(t, e.Intact(prev), "%s: event %d", op.ID, i+1)
		require.Equal(t, state, e.From)
		legal := slices.Contains(ledger.Allowed(e.From, e.Verb, true, true), e.To) || slices.Contains(ledger.Allowed(e.From, e.Verb, true, false), e.To)
		require.True(t, legal, "%s: %s leads from %q to %q", op.ID, e.Verb, e.From, e.To)
		prev, state = e.Hash, e.To
	}
	require.Equal(t, op.State, state, op.ID)
	require.Equal(t, op.Chain, prev, op.ID)
}

// reachable says which states can follow which, by the table.
func reachable() map[ledger.State]map[ledger.State]bool {
	reach := map[ledger.State]map[ledger.State]bool{}
	for _, from := range ledger.States {
		reach[from] = map[ledger.State]bool{}
		for _, verb := range ledger.Verbs {
			for _, touched := range []bool{false, true} {
				for _, to := range ledger.Allowed(from, verb, true, touched) {
					reach[from][to] = true
				}
			}
		}
	}
	for range ledger.States { // to a fixed point
		for _, a := range ledger.States {
			for _, b := range ledger.States {
				for _, c := range ledger.States {
					if reach[a][b] && reach[b][c] {
						reach[a][c] = true
					}
				}
			}
		}
	}
	return reach
}

// liveOf counts the operations of a list that are not handed to people.
func liveOf(t *testing.T, text json.RawMessage) int {
	t.Helper()
	var page struct {
		Operations []struct {
			Next struct {
				Action string `json:"action"`
			} `json:"next"`
		} `json:"operations"`
	}
	require.NoError(t, json.Unmarshal(text, &page))
	n := 0
	for _, op := range page.Operations {
		if op.Next.Action != "wait_for_people" {
			n++
		}
	}
	return n
}
