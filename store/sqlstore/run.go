package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"countersign/ledger"
	"countersign/tools"
)

// goalRef is a goal's key in the index, or NULL.
func goalRef(op ledger.Operation) any {
	if op.Goal == nil {
		return nil
	}
	return ref(op.Tenant, op.Goal.Group, op.Goal.Value)
}

// Goal implements ledger.Store.
func (db *DB) Goal(ctx context.Context, tenant string, goal tools.Goal) (ledger.Head, error) {
	op, err := one(db.reader(ctx), document[ledger.Operation],
		`SELECT doc FROM operations WHERE goal = $1 AND tenant = $2 ORDER BY n DESC LIMIT 1`,
		ref(tenant, goal.Group, goal.Value), tenant)
	if isNotFound(err) {
		return ledger.Head{}, nil
	}
	return ledger.Head{Operation: op}, err
}

// checkGoal refuses unless the newest holder of the operation's goal is the one
// that was evaluated, in the version that was evaluated.
func checkGoal(t *tx, n ledger.NewOperation) error {
	goal := goalRef(n.Operation)
	if goal == nil {
		return nil
	}
	var id string
	var version int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&id, &version) },
		`SELECT id, version FROM operations WHERE goal = $1 AND tenant = $2 ORDER BY n DESC LIMIT 1`,
		goal, n.Operation.Tenant)
	if err != nil {
		return err
	}
	if was := n.GoalHead.Operation; id != was.ID || version != was.Version {
		return &ledger.Refused{Why: ledger.GoalMoved}
	}
	return nil
}

// RunHead implements ledger.Store.
func (db *DB) RunHead(ctx context.Context, tenant, agent, run string) (ledger.RunHead, error) {
	h, err := runHead(db.reader(ctx), tenant, agent, run)
	if isNotFound(err) {
		return ledger.RunHead{Tenant: tenant, Agent: agent, ID: run}, nil
	}
	return h, err
}

func runHead(q querier, tenant, agent, run string) (ledger.RunHead, error) {
	return one(q, document[ledger.RunHead],
		`SELECT doc FROM runs WHERE tenant = $1 AND agent = $2 AND run = $3`, tenant, agent, run)
}

// placeRef is the key of an operation's place in a run in the index, or NULL.
func placeRef(op ledger.Operation) any {
	if !op.Run.Complete() || op.Parent != "" {
		return nil
	}
	return placeOf(op.Tenant, op.Agent.ID, *op.Run)
}

func placeOf(tenant, agent string, run ledger.Run) []byte {
	return ref(tenant, agent, run.ID, run.Step, run.Call)
}

// checkRun refuses what would be opened in a closed run, or where another call
// stands.
func checkRun(t *tx, n ledger.NewOperation) error {
	op := n.Operation
	if !n.OpenRun || op.Run == nil {
		return nil
	}
	h, err := runHead(t, op.Tenant, op.Agent.ID, op.Run.ID)
	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return err
	case h.Closed():
		return &ledger.Refused{Why: ledger.RunClosed}
	}
	return checkPlace(t, op)
}

func checkPlace(t *tx, op ledger.Operation) error {
	place := placeRef(op)
	if place == nil {
		return nil
	}
	taken := false
	err := t.each(func(rows *sql.Rows) error {
		var tenant, tool, key, state string
		if err := rows.Scan(&tenant, &tool, &key, &state); err != nil {
			return err
		}
		taken = taken || tenant == op.Tenant && (tool != op.Tool || key != op.Key) && !ledger.State(state).Void()
		return nil
	}, `SELECT tenant, tool, key, state FROM operations WHERE place = $1`, place)
	if err == nil && taken {
		return &ledger.Refused{Why: ledger.PlaceTaken}
	}
	return err
}

// growRun counts a new operation in its run.
func growRun(t *tx, op ledger.Operation, row int64) error {
	h, err := runHead(t, op.Tenant, op.Agent.ID, op.Run.ID)
	if err != nil && !isNotFound(err) {
		return err
	}
	h.Tenant, h.Agent, h.ID = op.Tenant, op.Agent.ID, op.Run.ID
	h.Operations++
	h.Newest = op.CreatedAt
	return putRun(t, h, row)
}

// closeRun closes a run that stands as it was evaluated.
func closeRun(t *tx, want ledger.RunHead) error {
	h, err := runHead(t, want.Tenant, want.Agent, want.ID)
	switch {
	case isNotFound(err):
		return &ledger.Refused{Why: ledger.RunMoved}
	case err != nil:
		return err
	case h.Closed():
		return &ledger.Refused{Why: ledger.RunClosed}
	case h.Operations != want.Operations:
		return &ledger.Refused{Why: ledger.RunMoved}
	}
	h.ClosedAt, h.ClosedBy, h.Closing = want.ClosedAt, want.ClosedBy, want.Closing
	return putRun(t, h, 0)
}

// putRun writes a run's head; newest 0 leaves its place in the list.
func putRun(t *tx, h ledger.RunHead, newest int64) error {
	doc, err := encode(h)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO runs (tenant, agent, run, newest, doc) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (tenant, agent, run) DO UPDATE SET
			newest = CASE WHEN excluded.newest > 0 THEN excluded.newest ELSE runs.newest END, doc = excluded.doc`,
		h.Tenant, h.Agent, h.ID, newest, doc)
	return err
}

// Runs implements ledger.Store.
func (db *DB) Runs(ctx context.Context, f ledger.RunFilter) (ledger.RunPage, error) {
	if f.Tenant == "" {
		return ledger.RunPage{}, errors.New("sqlstore: a list needs a tenant")
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	f.Limit = min(f.Limit, maxPage)
	place := ledger.Filter{Cursor: f.Cursor}
	after, err := readCursor(place)
	if err != nil {
		return ledger.RunPage{}, err
	}
	text, args := runListing(f, after)
	type listed struct {
		newest int64
		head   ledger.RunHead
	}
	found, err := all(db.readerOnce(ctx), func(rows *sql.Rows) (l listed, err error) {
		var doc string
		if err = rows.Scan(&l.newest, &doc); err == nil {
			err = decode(doc, &l.head)
		}
		return l, err
	}, text, args...)
	if err != nil {
		return ledger.RunPage{}, err
	}
	var page ledger.RunPage
	if len(found) > f.Limit {
		found = found[:f.Limit]
		page.Next = writeCursor(place, found[f.Limit-1].newest)
	}
	for _, l := range found {
		page.Runs = append(page.Runs, l.head)
	}
	return page, nil
}

// runListing builds the statement of a page of runs and one more.
func runListing(f ledger.RunFilter, after int64) (string, []any) {
	text, args := `SELECT newest, doc FROM runs WHERE tenant = $1 AND newest < $2`, []any{f.Tenant, after}
	if f.Agent != "" {
		text += ` AND agent = $3`
		args = append(args, f.Agent)
	}
	return text + ` ORDER BY newest DESC LIMIT ` + strconv.Itoa(f.Limit+1), args
}
