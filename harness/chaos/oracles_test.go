package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
)

// judged is what the oracles found in one ledger, and how much they looked at.
type judged struct {
	operations, answers, effects, unknown int
	// duplicates are effects and requests that there must not be; lost is what was
	// acknowledged or done and does not stand in the ledger so; illegal is what the
	// state table does not allow; limbo is what nobody will bring to an end.
	duplicates, lost, illegal, limbo []string
}

func (j *judged) add(other judged) {
	j.operations += other.operations
	j.answers += other.answers
	j.effects += other.effects
	j.unknown += other.unknown
	j.duplicates = append(j.duplicates, other.duplicates...)
	j.lost = append(j.lost, other.lost...)
	j.illegal = append(j.illegal, other.illegal...)
	j.limbo = append(j.limbo, other.limbo...)
}

func (j *judged) String() string {
	return fmt.Sprintf("%d answers received, %d operations, %d effects, %d left to people; duplicates %d, lost acknowledgements %d, illegal transitions %d, in limbo %d",
		j.answers, j.operations, j.effects, j.unknown, len(j.duplicates), len(j.lost), len(j.illegal), len(j.limbo))
}

// requireNone fails the test with everything that was found.
func (j *judged) requireNone(t *testing.T) {
	t.Helper()
	require.Empty(t, j.duplicates, "duplicates")
	require.Empty(t, j.lost, "lost")
	require.Empty(t, j.illegal, "illegal")
	require.Empty(t, j.limbo, "in limbo")
}

func note(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}

// judge reads the store of a stopped gateway, and compares it with what agents
// were told and with what the outside system wrote down.
func judge(t *testing.T, g *gateway, c *crowd, o *outside) (j judged) {
	t.Helper()
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{Path: filepath.Join(g.dir, "data", "ledger.db"), Now: time.Now})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	effects, requests := o.happened(t)
	byID, references := map[string]ledger.Operation{}, map[string]bool{}
	had := map[string]map[ledger.State]bool{}
	for _, op := range operations(t, db) {
		byID[op.ID], references[op.UpstreamKey] = op, true
		j.outcome(op, effects[op.UpstreamKey], requests[op.UpstreamKey])
		had[op.ID] = j.chain(t, db, op)
	}
	j.operations = len(byID)
	for reference, ids := range effects {
		j.effects += len(ids)
		if !references[reference] {
			note(&j.lost, "no operation stands for the effects %v of %s", ids, reference)
		}
	}
	// I10: what was acknowledged is there, and was in that state.
	c.mu.Lock()
	defer c.mu.Unlock()
	j.answers = len(c.answers)
	for _, a := range c.answers {
		op, there := byID[a.Operation]
		switch {
		case !there:
			note(&j.lost, "%s was acknowledged as %s and is not there", a.Operation, a.State)
		case !had[op.ID][a.State]:
			note(&j.lost, "%s was acknowledged as %s, is %s, and was never so", a.Operation, a.State, op.State)
		case a.EffectID != "" && a.EffectID != op.EffectID:
			note(&j.lost, "%s was acknowledged with the effect %s and has %s", a.Operation, a.EffectID, op.EffectID)
		}
	}
	return j
}

// outcome compares where an operation stands with what happened.
func (j *judged) outcome(op ledger.Operation, effects []string, requests int) {
	// I3, I4: never two effects, and never two requests without an honoured key.
	if len(effects) > 1 {
		note(&j.duplicates, "%s (%s) has the effects %v", op.ID, op.Tool, effects)
	}
	if requests > 1 && !strings.HasSuffix(op.Tool, "keyed") {
		note(&j.duplicates, "%s (%s) was sent %d times", op.ID, op.Tool, requests)
	}
	switch op.State {
	case ledger.Succeeded:
		if !slices.Equal(effects, []string{op.EffectID}) {
			note(&j.lost, "%s succeeded with %s, and %v happened", op.ID, op.EffectID, effects)
		}
	case ledger.Failed:
		if len(effects) > 0 {
			note(&j.lost, "%s failed, and %v happened", op.ID, effects)
		}
	case ledger.Unknown:
		j.unknown++
		if !op.OnList {
			note(&j.limbo, "%s (%s) is unknown and on nobody's list", op.ID, op.Tool)
		}
	default:
		note(&j.limbo, "%s is %s after all faults ended", op.ID, op.State)
	}
}

// chain reads an operation's events: one for each version, each by the table, each
// behind the one before it, and the last tells where the row stands (I16). It
// gives the states that the operation had.
func (j *judged) chain(t *testing.T, db *sqlstore.DB, op ledger.Operation) map[ledger.State]bool {
	t.Helper()
	events, err := db.Events(context.Background(), op.Tenant, op.ID)
	require.NoError(t, err)
	if len(events) != int(op.Version) {
		note(&j.illegal, "%s is at version %d and has %d events", op.ID, op.Version, len(events))
	}
	prev, state, had := "", ledger.State(""), map[ledger.State]bool{}
	for i, e := range events {
		if !e.Intact(prev) {
			note(&j.illegal, "%s: event %d does not follow the one before", op.ID, i+1)
		}
		allowed := slices.Concat(ledger.Allowed(e.From, e.Verb, true, true), ledger.Allowed(e.From, e.Verb, true, false))
		if e.From != state || !slices.Contains(allowed, e.To) {
			note(&j.illegal, "%s: %s leads from %q, which was %q, to %q", op.ID, e.Verb, e.From, state, e.To)
		}
		prev, state = e.Hash, e.To
		had[state] = true
	}
	if op.State != state || op.Chain != prev {
		note(&j.illegal, "%s is %s, and its events end in %s", op.ID, op.State, state)
	}
	return had
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
