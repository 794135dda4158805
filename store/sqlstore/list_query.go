package sqlstore

import (
	"fmt"
	"slices"
	"strings"

	"countersign/ledger"
)

// listing builds the statement of a list. Every walk of it follows one index in
// the order of the list and stops at the limit: the filter that leaves the
// fewest rows picks the index, and the others are checked on the rows that it
// gives. Of several states each has a walk of its own, and they are merged.
func listing(f ledger.Filter, after int64, limit int) (string, []any) {
	f.States = slices.Compact(slices.Sorted(slices.Values(f.States)))
	q := listQuery{Filter: f, after: after, limit: limit}
	drive := q.driver()
	if drive != byState {
		return "SELECT n, doc" + q.walk(drive, f.States), q.args
	}
	if len(f.States) == 1 {
		return "SELECT n, doc" + q.walk(drive, f.States), q.args
	}
	var walks []string
	for i, s := range f.States {
		walks = append(walks, fmt.Sprintf("SELECT n FROM (SELECT n%s) AS w%d", q.walk(drive, []ledger.State{s}), i))
	}
	return "SELECT n, doc FROM operations WHERE n IN (" + strings.Join(walks, " UNION ALL ") + ")" + q.tail(), q.args
}

// filterBy is the filter that picks the index.
type filterBy int

const (
	byTenant filterBy = iota
	byKey
	byParent
	byGoal
	byPlace
	byRun
	byArgs
	byOnList
	byState
	byUndo
	byAgent
	byTool
)

type listQuery struct {
	ledger.Filter
	after int64
	limit int
	args  []any
}

// driver picks what leaves the fewest rows. Few operations are live at any
// time, so live states come before agent and tool, and final ones behind.
func (q *listQuery) driver() filterBy {
	live := !slices.ContainsFunc(q.States, ledger.State.Final)
	switch {
	case q.Key != "":
		return byKey
	case q.Parent != "":
		return byParent
	case q.Goal != nil:
		return byGoal
	case q.Place != nil:
		return byPlace
	case q.Run != "":
		return byRun
	case q.Args != "":
		return byArgs
	case q.OnList != nil && *q.OnList:
		return byOnList
	case len(q.States) > 0 && live:
		return byState
	case q.Undo != nil && *q.Undo:
		return byUndo
	case q.Agent != "":
		return byAgent
	case q.Tool != "":
		return byTool
	case len(q.States) > 0:
		return byState
	}
	return byTenant
}

// walk is FROM … LIMIT of one walk along the driver's index.
func (q *listQuery) walk(drive filterBy, states []ledger.State) string {
	var where []string
	is := func(d filterBy, column string, value any) {
		if drive == d {
			where = append(where, column+" = "+q.arg(value))
		} else {
			where = append(where, q.checked(column, value))
		}
	}
	if drive == byKey || drive == byArgs || drive == byGoal || drive == byPlace { // their indexes don't begin with the tenant
		where = append(where, q.checked("tenant", q.Tenant))
	} else {
		where = append(where, "tenant = "+q.arg(q.Tenant))
	}
	if q.Key != "" {
		where = append(where, "slot = "+q.arg(slotRef(q.Tenant, ledger.KeyDigest(q.Key))), q.checked("key", q.Key))
	}
	if q.Run != "" {
		is(byRun, "run", q.Run)
	}
	if q.Parent != "" {
		is(byParent, "parent", q.Parent)
	}
	if q.Undo != nil {
		if drive == byUndo {
			where = append(where, "parent IS NOT NULL") // as the index says it
		} else {
			where = append(where, "CASE WHEN parent IS NULL THEN 0 ELSE 1 END = "+q.arg(flag(*q.Undo)))
		}
	}
	if q.Goal != nil {
		is(byGoal, "goal", ref(q.Tenant, q.Goal.Group, q.Goal.Value))
	}
	if q.Place != nil {
		is(byPlace, "place", placeOf(q.Tenant, q.Agent, *q.Place))
	}
	if q.Args != "" {
		is(byArgs, "args", ref(q.Tenant, q.Args))
	}
	if q.OnList != nil {
		if drive == byOnList {
			where = append(where, "on_list = 1") // as the index says it
		} else {
			where = append(where, q.checked("on_list", flag(*q.OnList)))
		}
	}
	switch {
	case drive == byState:
		where = append(where, "state = "+q.arg(string(states[0])))
	case len(states) > 0:
		either := make([]string, len(states))
		for i, s := range states {
			either[i] = q.checked("state", string(s))
		}
		where = append(where, "("+strings.Join(either, " OR ")+")")
	}
	if q.Agent != "" {
		is(byAgent, "agent", q.Agent)
	}
	if q.Tool != "" {
		is(byTool, "tool", q.Tool)
	}
	beyond := "<"
	if q.OldestFirst {
		beyond = ">"
	}
	where = append(where, "n "+beyond+" "+q.arg(q.after))
	return " FROM operations WHERE " + strings.Join(where, " AND ") + q.tail()
}

func (q *listQuery) tail() string {
	order := "DESC"
	if q.OldestFirst {
		order = "ASC"
	}
	return " ORDER BY n " + order + " LIMIT " + q.arg(q.limit)
}

// checked compares in a form that no index fits, or a planner without
// statistics might walk the wrong one.
func (q *listQuery) checked(column string, value any) string {
	return "CASE WHEN " + column + " = " + q.arg(value) + " THEN 1 ELSE 0 END = 1"
}

func (q *listQuery) arg(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}
