package powercut_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"countersign/ledger"
	"countersign/store/sqlstore"
)

// findings are what is wrong with a ledger after a cut.
type findings struct {
	// lost was acknowledged and is not there; broken is there and not whole.
	lost, broken []string
}

func (f *findings) lose(format string, args ...any) {
	f.lost = append(f.lost, fmt.Sprintf(format, args...))
}

func (f *findings) breakOn(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

func (f *findings) none() bool { return len(f.lost)+len(f.broken) == 0 }

func (f *findings) String() string {
	few := func(list []string) string { return strings.Join(list[:min(len(list), 5)], "; ") }
	return fmt.Sprintf("%d lost (%s), %d broken (%s)", len(f.lost), few(f.lost), len(f.broken), few(f.broken))
}

// inspect opens the ledger again and compares it with what was promised. The
// store stays open for whoever goes on with it; nil when it can't be opened.
func (l *life) inspect() (*sqlstore.DB, *ledger.Ledger, *findings) {
	f := &findings{}
	db, led, err := l.open()
	if err != nil {
		f.breakOn("the ledger does not open: %v", err)
		for id := range l.promised.rows {
			f.lose("%s", id)
		}
		return nil, nil, f
	}
	if l.id != led.ID() {
		f.lose("the ledger's id %s", l.id)
	}
	l.inspectFile(f)
	l.inspectRows(db, f)
	l.inspectGuards(db, f)
	l.inspectRest(db, f)
	return db, led, f
}

// inspectFile asks SQLite itself.
func (l *life) inspectFile(f *findings) {
	pool, err := sql.Open("sqlite", "file:"+l.path+"?vfs="+l.vfs.Name()+"&_pragma=query_only(1)")
	if err != nil {
		f.breakOn("%v", err)
		return
	}
	defer pool.Close() //nolint:errcheck // only read
	for _, check := range []string{"integrity_check", "foreign_key_check"} {
		rows, err := pool.QueryContext(context.Background(), "SELECT * FROM pragma_"+check)
		if err != nil {
			f.breakOn("%s: %v", check, err)
			continue
		}
		for rows.Next() {
			said := "a key that points nowhere"
			if check == "integrity_check" {
				if err := rows.Scan(&said); err != nil {
					f.breakOn("%s: %v", check, err)
				}
			}
			if said != "ok" {
				f.breakOn("%s: %s", check, said)
			}
		}
		if err := rows.Close(); err != nil {
			f.breakOn("%s: %v", check, err)
		}
	}
}

// inspectRows reads every operation with its events: one for each version, in an
// intact chain, in one sequence without gaps.
func (l *life) inspectRows(db *sqlstore.DB, f *findings) {
	ctx := context.Background()
	events, err := db.AllEventsAfter(ctx, 0, 1<<20)
	if err != nil {
		f.breakOn("events: %v", err)
	}
	chains := map[string][]ledger.Event{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			f.breakOn("event %d has number %d", i+1, e.Seq)
		}
		chain := chains[e.Operation]
		prev := ""
		if len(chain) > 0 {
			prev = chain[len(chain)-1].Hash
		}
		if !e.Intact(prev) || e.Version != int64(len(chain)+1) {
			f.breakOn("event %d of %s (version %d) does not follow", len(chain)+1, e.Operation, e.Version)
		}
		chains[e.Operation] = append(chain, e)
	}
	rows := map[string]ledger.Operation{}
	for filter := (ledger.Filter{Tenant: tenant, Limit: 200}); ; {
		page, err := db.List(ctx, filter)
		if err != nil {
			f.breakOn("list: %v", err)
			break
		}
		for _, op := range page.Operations {
			rows[op.ID] = op
			chain := chains[op.ID]
			if len(chain) != int(op.Version) || len(chain) > 0 && (chain[len(chain)-1].Hash != op.Chain || chain[len(chain)-1].To != op.State) {
				f.breakOn("%s stands at version %d (%s) and has %d events", op.ID, op.Version, op.State, len(chain))
			}
		}
		if filter.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	for id := range chains {
		if _, there := rows[id]; !there {
			f.breakOn("%s has events and no row", id)
		}
	}
	for id, moves := range l.promised.moves {
		for version, hash := range moves {
			if chain := chains[id]; int64(len(chain)) < version || chain[version-1].Hash != hash || rows[id].Version < version {
				f.lose("%s version %d", id, version)
			}
		}
	}
}

// inspectGuards reads the tenant's guard rows.
func (l *life) inspectGuards(db *sqlstore.DB, f *findings) {
	rows, err := db.GuardHistory(context.Background(), tenant, 0, 1<<20)
	if err != nil {
		f.breakOn("guard rows: %v", err)
	}
	prev, hashes := "", map[int64]string{}
	for i, g := range rows {
		if !g.Intact(prev) || g.Epoch != int64(i+1) {
			f.breakOn("guard row %d does not follow", g.Epoch)
		}
		prev = g.Hash
		hashes[g.Epoch] = g.Hash
	}
	for epoch, hash := range l.promised.guards {
		if hashes[epoch] != hash {
			f.lose("guard row %d", epoch)
		}
	}
}

// inspectRest looks for previews, evidence, decisions and plans.
func (l *life) inspectRest(db *sqlstore.DB, f *findings) {
	ctx := context.Background()
	for id := range l.promised.previews {
		if _, err := db.Preview(ctx, tenant, id); err != nil {
			f.lose("preview %s", id)
		}
	}
	for id, op := range l.promised.evidence {
		list, _ := db.Evidence(ctx, tenant, op)
		found := false
		for _, e := range list {
			found = found || e.ID == id
		}
		if !found {
			f.lose("evidence %s of %s", id, op)
		}
	}
	for id, verb := range l.promised.decisions {
		op, person, _ := strings.Cut(id, " ")
		list, _ := db.Decisions(ctx, tenant, op)
		if len(list) != 1 || list[0].Person != person || string(list[0].Verb) != verb {
			f.lose("the decision on %s", op)
		}
	}
	for id := range l.promised.rows {
		if p, err := db.Plan(ctx, tenant, id, 1); err != nil || p.Tool != tool {
			f.lose("the plan of %s", id)
		}
	}
}
