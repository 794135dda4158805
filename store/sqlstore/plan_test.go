package sqlstore_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/store/sqlstore"
	"countersign/store/storetest"
	"countersign/tools"
)

// small tables may be walked whole: settings has a handful of rows, and names is
// what a statement makes itself, one row for each tenant.
var small = []string{"settings", "names"}

// sortsFew are statements that sort the rows of one operation.
var sortsFew = regexp.MustCompile(`FROM (evidence|decisions) `)

// readsLast is a statement that reads one row from the end of its table.
var readsLast = regexp.MustCompile(`^SELECT doc FROM checkpoints ORDER BY n DESC LIMIT 1$`)

var walksTable = regexp.MustCompile(`^SCAN (\w+)`)

// Every statement reaches its rows through an index, so that none grows slow
// with the ledger.
func TestStatements_UseIndexes(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	fill(t, db)
	seen := 0
	for _, text := range sqlstore.Statements(t, db) {
		verb, _, _ := strings.Cut(text, " ")
		if !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}, verb) {
			continue // steers the transaction
		}
		seen++
		args := make([]any, strings.Count(text, "$"))
		args = args[:min(len(args), highest(text))]
		for _, step := range sqlstore.Explain(t, db, text, args...) {
			m := walksTable.FindStringSubmatch(step)
			if m != nil && !slices.Contains(small, m[1]) && m[1] != "CONSTANT" && !readsLast.MatchString(text) {
				t.Errorf("%s\nwalks a whole table: %s", text, step)
			}
			if strings.Contains(step, "TEMP B-TREE") && !sortsFew.MatchString(text) {
				t.Errorf("%s\nsorts what it finds: %s", text, step)
			}
		}
	}
	require.Greater(t, seen, 50, "the statements were not found")
}

// A list that is put together for one call is not among the prepared statements.
func TestRuns_Plans(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	for agent, index := range map[string]string{"": "runs_newest (tenant=? AND newest<?)", "a": "runs_agent (tenant=? AND agent=? AND newest<?)"} {
		text, args := sqlstore.RunListing(ledger.RunFilter{Tenant: "acme", Agent: agent, Limit: 50})
		require.Equal(t, []string{"SEARCH runs USING INDEX " + index}, sqlstore.Explain(t, db, text, args...))
	}
}

// highest gives the highest placeholder of a statement.
func highest(text string) (n int) {
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(text, -1) {
		i := 0
		for _, d := range m[1] {
			i = 10*i + int(d-'0')
		}
		n = max(n, i)
	}
	return n
}

// Each list walks the index of its most telling filter, in the order of the
// list. Only the few generations of one key are sorted.
func TestList_Plans(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "ledger.db"), storetest.NewClock())
	defer db.Close() //nolint:errcheck // a test's own
	yes, no := true, false
	live := []ledger.State{ledger.Pending}
	ended := []ledger.State{ledger.Failed}
	for _, c := range []struct {
		name   string
		filter ledger.Filter
		index  string
		walks  int
	}{
		{"nothing", ledger.Filter{}, "operations_tenant", 1},
		{"live state", ledger.Filter{States: live}, "operations_state", 1},
		{"final state", ledger.Filter{States: ended}, "operations_state", 1},
		{"states", ledger.Filter{States: []ledger.State{ledger.Pending, ledger.Running, ledger.Unknown}}, "operations_state", 3},
		{"final states", ledger.Filter{States: []ledger.State{ledger.Succeeded, ledger.Failed}}, "operations_state", 2},
		{"tool", ledger.Filter{Tool: "t"}, "operations_tool", 1},
		{"agent", ledger.Filter{Agent: "a"}, "operations_agent", 1},
		{"agent and tool", ledger.Filter{Agent: "a", Tool: "t"}, "operations_agent", 1},
		{"agent and live state", ledger.Filter{Agent: "a", States: live}, "operations_state", 1},
		{"agent and final state", ledger.Filter{Agent: "a", States: ended}, "operations_agent", 1},
		{"tool and final state", ledger.Filter{Tool: "a", States: ended}, "operations_tool", 1},
		{"run", ledger.Filter{Run: "r"}, "operations_run", 1},
		{"run and all else", ledger.Filter{Run: "r", Agent: "a", Tool: "t", States: live, Args: "d", OnList: &yes}, "operations_run", 1},
		{"parent", ledger.Filter{Parent: "op"}, "operations_parent", 1},
		{"parent and all else", ledger.Filter{Parent: "op", Undo: &yes, Run: "r", Agent: "a", Tool: "t", States: live, Args: "d", OnList: &yes, Goal: &tools.Goal{}}, "operations_parent", 1},
		{"goal", ledger.Filter{Goal: &tools.Goal{}}, "operations_goal", 1},
		{"goal and states", ledger.Filter{Goal: &tools.Goal{}, States: ledger.PossibleEffect()}, "operations_goal", 1},
		{"place in a run", ledger.Filter{Agent: "a", Place: &ledger.Run{}, States: ledger.PossibleEffect()}, "operations_place", 1},
		{"undos", ledger.Filter{Undo: &yes}, "operations_undo", 1},
		{"undos of an agent", ledger.Filter{Undo: &yes, Agent: "a", Tool: "t", States: ended}, "operations_undo", 1},
		{"undos in a run", ledger.Filter{Undo: &yes, Run: "r", Agent: "a"}, "operations_run", 1},
		{"live undos", ledger.Filter{Undo: &yes, States: live}, "operations_state", 1},
		{"no undos", ledger.Filter{Undo: &no}, "operations_tenant", 1},
		{"args", ledger.Filter{Args: "d"}, "operations_args", 1},
		{"args and all else", ledger.Filter{Agent: "a", Tool: "t", States: live, Args: "d", OnList: &yes}, "operations_args", 1},
		{"on the list", ledger.Filter{OnList: &yes}, "operations_on_list", 1},
		{"on the list and all else", ledger.Filter{OnList: &yes, Agent: "a", Tool: "t", States: live}, "operations_on_list", 1},
		{"not on the list", ledger.Filter{OnList: &no}, "operations_tenant", 1},
		{"key", ledger.Filter{Key: "k"}, "sqlite_autoindex_operations_2", 1},
		{"key and all else", ledger.Filter{Key: "k", Run: "r", Agent: "a", Tool: "t", States: live, Args: "d", OnList: &yes}, "sqlite_autoindex_operations_2", 1},
	} {
		for _, oldest := range []bool{false, true} {
			f := c.filter
			f.Tenant, f.OldestFirst = "acme", oldest
			text, args := sqlstore.Listing(f)
			plan := strings.Join(sqlstore.Explain(t, db, text, args...), "\n")
			require.Equal(t, c.walks, strings.Count(plan, "USING INDEX "+c.index)+strings.Count(plan, "USING COVERING INDEX "+c.index), "%s\n%s\n%s", c.name, text, plan)
			require.NotContains(t, plan, "SCAN operations", c.name)
			if f.Key == "" && c.walks == 1 {
				require.NotContains(t, plan, "TEMP B-TREE", "%s\n%s", c.name, plan)
			}
			require.NotContains(t, text, "?", "placeholders are $1, $2, …")
		}
	}
}
