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
)

// small tables may be walked whole: settings has a handful of rows.
var small = []string{"settings"}

// sortsFew are statements that sort the rows of one operation.
var sortsFew = regexp.MustCompile(`FROM (evidence|decisions) `)

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
		if !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, verb) {
			continue // steers the transaction
		}
		seen++
		args := make([]any, strings.Count(text, "$"))
		args = args[:min(len(args), highest(text))]
		for _, step := range sqlstore.Explain(t, db, text, args...) {
			m := walksTable.FindStringSubmatch(step)
			if m != nil && !slices.Contains(small, m[1]) && m[1] != "CONSTANT" {
				t.Errorf("%s\nwalks a whole table: %s", text, step)
			}
			if strings.Contains(step, "TEMP B-TREE") && !sortsFew.MatchString(text) {
				t.Errorf("%s\nsorts what it finds: %s", text, step)
			}
		}
	}
	require.Greater(t, seen, 30, "the statements were not found")
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
