package chaos

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// TestOracles_FindWhatIsWrong: a ledger of which all is well, and then one thing
// after the other is not.
func TestOracles_FindWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.o.heal()
	w.g.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, kind := range kinds {
		w.c.pursue(ctx, kind, "x")
	}
	w.g.stop()
	well := judge(t, w.g, w.c, w.o)
	well.requireNone(t)
	require.Equal(t, len(kinds), well.operations)
	require.Equal(t, len(kinds), well.effects)
	require.Equal(t, len(kinds), well.answers)

	effects, _ := w.o.happened(t)
	reference := ""
	for reference = range effects {
		break
	}
	was := w.c.answers
	for name, wrong := range map[string]received{
		"nothing stands for it":         {Operation: "op_none", State: ledger.Succeeded},
		"a state that it never had":     {Operation: was[0].Operation, State: ledger.Failed},
		"an effect that is not its own": {Operation: was[0].Operation, State: ledger.Succeeded, EffectID: "eff_other"},
	} {
		w.c.answers = append(was, wrong)
		require.Len(t, judge(t, w.g, w.c, w.o).lost, 1, name)
	}
	w.c.answers = was

	require.NoError(t, w.o.write(entry{Kind: "plain", Reference: "cs_nobody", Effect: "eff_x"}))
	require.Len(t, judge(t, w.g, w.c, w.o).lost, 1, "an effect that no operation stands for")
	require.NoError(t, w.o.write(entry{Kind: "plain", Reference: reference, Effect: "eff_y"}))
	require.NotEmpty(t, judge(t, w.g, w.c, w.o).duplicates, "a second effect")

	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(w.g.dir, "data", "ledger.db")}).EscapedPath())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE operations SET doc = json_set(doc, '$.state', 'unknown'), state = 'unknown' WHERE id = ?", was[0].Operation)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	j := judge(t, w.g, w.c, w.o)
	require.Len(t, j.illegal, 1, "a state that no event tells of")
	require.Len(t, j.limbo, 1, "a doubt on nobody's list")
}
