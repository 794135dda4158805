package ledger_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// docRow is one line of the table in docs/state-machine.md.
type docRow struct {
	from      []string
	verb      string
	to        []string
	condition string
}

// readTable parses the hand-written table.
func readTable(t *testing.T) []docRow {
	t.Helper()
	b, err := os.ReadFile("../docs/state-machine.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(b), "| from | verb | to | only while | by, and when |\n")
	require.True(t, found, "the page has its table")
	var rows []docRow
	for _, line := range strings.Split(after, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		require.Len(t, cells, 5, line)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, docRow{list(cells[0]), cells[1], list(cells[2]), cells[3]})
	}
	return rows
}

func list(cell string) []string {
	var out []string
	for _, s := range strings.Split(cell, ",") {
		s = strings.TrimSpace(s)
		if s == "–" {
			s = ""
		}
		out = append(out, s)
	}
	return out
}

// wanted is what the page says of one cell.
func wanted(rows []docRow, from, verb string, attempted, touched bool) []string {
	for _, r := range rows {
		if r.verb != verb || !slices.Contains(r.from, from) {
			continue
		}
		if r.condition == "untouched" && touched || r.condition == "attempted" && !attempted {
			return nil
		}
		if slices.Equal(r.to, []string{"same"}) {
			return []string{from}
		}
		return r.to
	}
	return nil
}

// TestStates_EveryCell walks every state × every verb × every history and
// compares the program with the page.
func TestStates_EveryCell(t *testing.T) {
	rows := readTable(t)
	require.Len(t, rows, len(ledger.Verbs), "one row for each verb")
	states := append([]ledger.State{""}, ledger.States...)
	for _, r := range rows {
		require.Contains(t, ledger.Verbs, ledger.Verb(r.verb))
		for _, s := range append(r.from, r.to...) {
			if s != "same" {
				require.Contains(t, states, ledger.State(s))
			}
		}
	}
	cells := 0
	for _, from := range states {
		for _, verb := range ledger.Verbs {
			for _, history := range []struct{ attempted, touched bool }{{false, false}, {true, false}, {true, true}} {
				var got []string
				for _, s := range ledger.Allowed(from, verb, history.attempted, history.touched) {
					got = append(got, string(s))
				}
				require.Equal(t, wanted(rows, string(from), string(verb), history.attempted, history.touched), got,
					"%q %s, attempted %v, touched %v", from, verb, history.attempted, history.touched)
				cells++
			}
		}
	}
	require.Equal(t, 12*22*3, cells)
}

// TestStates_Kinds: each state is exactly one of live, effective, void, and the
// page says the same.
func TestStates_Kinds(t *testing.T) {
	b, err := os.ReadFile("../docs/state-machine.md")
	require.NoError(t, err)
	for _, s := range ledger.States {
		kind := "live"
		switch {
		case s.Void():
			kind = "void"
		case s.Effective():
			kind = "effective"
		}
		require.Equal(t, s.Live(), kind == "live", s)
		require.Equal(t, s.Final(), kind != "live", s)
		require.False(t, s.Void() && s.Effective(), s)
		found := false
		for _, line := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(line, "| `"+string(s)+"` |") {
				found = strings.HasSuffix(line, "| "+kind+" |")
			}
		}
		require.True(t, found, "docs/state-machine.md lists %s as %s", s, kind)
	}
}
