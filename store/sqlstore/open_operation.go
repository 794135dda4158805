package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// Open implements ledger.Store. Of several conditions that don't hold, the head
// is named first: an operation that exists is the answer, whatever else is
// wrong.
func (db *DB) Open(ctx context.Context, o ledger.Opening) error {
	rows, err := birthRows(o)
	if err != nil {
		return err
	}
	return db.write(ctx, func(t *tx) error {
		for i, n := range o.New {
			err := db.mayOpen(t, n, o.Epoch)
			var refused *ledger.Refused
			if i == 0 && errors.As(err, &refused) {
				// A repeat of an applied write is refused at its first operation:
				// that very operation stands in its way. Behind the first, the
				// write would find what it has just written itself.
				return applied(t, o.WriteID, refused)
			}
			if err != nil {
				return err
			}
			if err := bear(t, o.WriteID, n, rows.births[i]); err != nil {
				return err
			}
		}
		for i, m := range o.Moves {
			if err := moveBeside(t, o.WriteID, m, rows.moves[i]); err != nil {
				return err
			}
		}
		if o.CloseRun != nil {
			return closeRun(t, *o.CloseRun)
		}
		return nil
	})
}

// mayOpen refuses unless everything that was evaluated still holds.
func (db *DB) mayOpen(t *tx, n ledger.NewOperation, epoch int64) error {
	if err := checkHead(t, n); err != nil {
		return err
	}
	if err := checkEpoch(t, n.Operation.Tenant, epoch); err != nil {
		return err
	}
	if err := checkGoal(t, n); err != nil {
		return err
	}
	if err := checkRun(t, n); err != nil {
		return err
	}
	if err := db.checkPreview(t, n.Operation.Tenant, n.Preview); err != nil {
		return err
	}
	return db.checkTime(n.NotAfter)
}

// applied gives nil if the write id is found, else the refusal.
func applied(t *tx, writeID string, refused error) error {
	_, err := findWrite(t, writeID)
	if isNotFound(err) {
		return refused
	}
	return err
}

// birth is a new operation as it goes into the tables, encoded by the caller's
// goroutine: the writer's is the one that everybody waits for.
type birth struct{ doc, plan, event, evidence string }

// opening is an Opening as it goes into the tables.
type opening struct {
	births []birth
	moves  []moved
}

func birthRows(o ledger.Opening) (opening, error) {
	rows, err := births(o)
	if err != nil {
		return opening{}, err
	}
	moves, err := besides(o.Moves)
	return opening{births: rows, moves: moves}, err
}

func births(o ledger.Opening) ([]birth, error) {
	if len(o.New) == 0 || o.WriteID == "" {
		return nil, errors.New("sqlstore: an opening needs operations and a write id")
	}
	rows := make([]birth, len(o.New))
	for i, n := range o.New {
		if n.Operation.ID == "" || n.Operation.Tenant == "" || n.Operation.Version != 1 {
			return nil, fmt.Errorf("sqlstore: %q of tenant %q, version %d, can't be opened", n.Operation.ID, n.Operation.Tenant, n.Operation.Version)
		}
		if n.Operation.KeyDigest != ledger.KeyDigest(n.Operation.Key) {
			return nil, fmt.Errorf("sqlstore: %s carries the digest of another key", n.Operation.ID)
		}
		var errs [4]error
		rows[i].doc, errs[0] = encode(n.Operation)
		rows[i].plan, errs[1] = encode(newPlanDoc(n.Plan))
		rows[i].event, errs[2] = encode(n.Event)
		if n.Evidence != nil {
			rows[i].evidence, errs[3] = encode(n.Evidence)
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// checkHead refuses unless the newest generation under the key is the one that
// was evaluated, in the version that was evaluated, and the new one follows it.
func checkHead(t *tx, n ledger.NewOperation) error {
	op := n.Operation
	var head struct {
		id                  string
		generation, version int64
	}
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&head.id, &head.generation, &head.version) },
		`SELECT id, generation, version FROM operations
		WHERE slot = $1 AND tool = $2 AND tenant = $3 AND key = $4 ORDER BY generation DESC LIMIT 1`,
		slotRef(op.Tenant, op.KeyDigest), op.Tool, op.Tenant, op.Key)
	if err != nil {
		return err
	}
	was := n.Head.Operation
	if head.id != was.ID || head.version != was.Version || int64(op.Generation) != head.generation+1 {
		return &ledger.Refused{Why: ledger.HeadMoved}
	}
	return nil
}

func (db *DB) checkTime(notAfter time.Time) error {
	if !notAfter.IsZero() && db.now().After(notAfter) {
		return &ledger.Refused{Why: ledger.TooLate}
	}
	return nil
}

// bear writes one operation with everything born with it.
func bear(t *tx, writeID string, n ledger.NewOperation, b birth) error {
	op := n.Operation
	run := some(op.Run != nil, nil)
	if op.Run != nil {
		run = op.Run.ID
	}
	row, err := one(t, column[int64], `INSERT INTO operations
		(id, tenant, slot, tool, key, generation, agent, run, args, parent, goal, place,
			version, state, on_list, asked, dispatch_at, lease_at, expire_at, doubt_at, doubt, first_unknown, doc)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
		RETURNING n`,
		append([]any{
			op.ID, op.Tenant, slotRef(op.Tenant, op.KeyDigest), op.Tool, op.Key, op.Generation,
			op.Agent.ID, run, ref(op.Tenant, op.ArgsDigest), some(op.Parent != "", op.Parent), goalRef(op), placeRef(op),
		}, append(moving(op), b.doc)...)...)
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO manifests (version, text, upstream, upstream_url)
		VALUES ($1, $2, $3, $4) ON CONFLICT (version) DO NOTHING`,
		n.Manifest.Version, string(n.Manifest.Text), n.Manifest.Upstream, n.Manifest.UpstreamURL); err != nil {
		return err
	}
	if err := putPlan(t, row, op.Round, b.plan); err != nil {
		return err
	}
	if n.Evidence != nil {
		if err := putEvidence(t, row, op.Tenant, *n.Evidence, b.evidence); err != nil {
			return err
		}
	}
	if op.Run != nil && op.Parent == "" {
		if err := growRun(t, op, row); err != nil {
			return err
		}
	}
	return putEvent(t, row, op, writeID, b.event)
}

// moving gives the columns that a transition may change, in the order of the
// statements: version, state, on_list, asked, dispatch_at, lease_at, expire_at,
// doubt_at, doubt, first_unknown.
func moving(op ledger.Operation) []any {
	asked := op.State == ledger.Rejected && !op.Reopened
	return []any{
		op.Version, string(op.State), flag(op.OnList),
		some(asked, askedRef(op.Tenant, op.Tool, op.ArgsDigest, op.Agent.ID)),
		some(op.State == ledger.Pending, nanos(op.NotBefore)),
		some(op.State == ledger.Running, nanos(op.LeaseUntil)),
		some((op.State == ledger.AwaitingApproval || op.State == ledger.Pending) && !op.ExpiresAt.IsZero(), nanos(op.ExpiresAt)),
		some(op.State == ledger.Unknown && !op.OnList, nanos(op.AskAt)),
		string(op.Doubt),
		firstUnknown(op),
	}
}

// firstUnknown is since when an unknown operation was first in doubt. A row from
// before that was written down says when it came into this doubt.
func firstUnknown(op ledger.Operation) any {
	since := op.FirstUnknownAt
	if since.IsZero() {
		since = op.UnknownSince
	}
	return some(op.State == ledger.Unknown && !since.IsZero(), nanos(since))
}

func askedRef(tenant, tool, argsDigest, agent string) []byte {
	return ref(tenant, tool, argsDigest, agent)
}

func putPlan(t *tx, row int64, round int, doc string) error {
	_, err := t.exec(`INSERT INTO rounds (operation, round, doc) VALUES ($1, $2, $3)`, row, round, doc)
	return err
}

// putEvidence appends evidence once by its id. The first effect that is proven
// for an operation, and the second that is another, are counted by their place.
func putEvidence(t *tx, row int64, tenant string, e ledger.Evidence, doc string) error {
	var effect, place any
	if e.Verdict == tools.Succeeded && e.EffectID != "" {
		effect = e.EffectID
		var known, this int
		if err := t.each(func(rows *sql.Rows) error { return rows.Scan(&known, &this) },
			`SELECT count(place), count(CASE WHEN effect = $2 THEN 1 END) FROM evidence
			WHERE operation = $1 AND effect IS NOT NULL`, row, e.EffectID); err != nil {
			return err
		}
		place = some(this == 0 && known < 2, known+1)
	}
	_, err := t.exec(`INSERT INTO evidence (operation, id, tenant, effect, place, doc) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (operation, id) DO NOTHING`, row, e.ID, tenant, effect, place, doc)
	return err
}

func putEvent(t *tx, row int64, op ledger.Operation, writeID, doc string) error {
	_, err := t.exec(`INSERT INTO events (operation, version, tenant, write_ref, write_id, doc)
		VALUES ($1, $2, $3, $4, $5, $6)`, row, op.Version, op.Tenant, writeRef(writeID), writeID, doc)
	return err
}

// findWrite gives the operation that a write id touched.
func findWrite(q querier, writeID string) (ledger.Operation, error) {
	return one(q, document[ledger.Operation],
		`SELECT o.doc FROM events e JOIN operations o ON o.n = e.operation
		WHERE e.write_ref = $1 AND e.write_id = $2 ORDER BY e.seq LIMIT 1`,
		writeRef(writeID), writeID)
}

// ByWrite implements ledger.Store.
func (db *DB) ByWrite(ctx context.Context, writeID string) (ledger.Operation, error) {
	return findWrite(db.reader(ctx), writeID)
}

// Plan implements ledger.Store.
func (db *DB) Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error) {
	d, err := one(db.reader(ctx), document[planDoc],
		`SELECT r.doc FROM operations o JOIN rounds r ON r.operation = o.n
		WHERE o.id = $1 AND o.tenant = $2 AND r.round = $3`, operation, tenant, round)
	if err != nil {
		return tools.Plan{}, err
	}
	return d.plan(), nil
}

// Manifest implements ledger.Store.
func (db *DB) Manifest(ctx context.Context, version string) (ledger.Manifest, error) {
	return one(db.reader(ctx), func(rows *sql.Rows) (m ledger.Manifest, err error) {
		var text string
		err = rows.Scan(&m.Version, &text, &m.Upstream, &m.UpstreamURL)
		m.Text = []byte(text)
		return m, err
	}, `SELECT version, text, upstream, upstream_url FROM manifests WHERE version = $1`, version)
}
