package sqlstore

import (
	"context"
	"time"

	"countersign/ledger"
)

// PutPreview implements ledger.Store. A preview never changes: the same id a
// second time leaves the first as it is.
func (db *DB) PutPreview(ctx context.Context, p ledger.Preview) error {
	doc, err := encode(newPreviewDoc(p))
	if err != nil {
		return err
	}
	return db.write(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO previews (tenant, id, agent, expires_at, doc)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, id) DO NOTHING`,
			p.Tenant, p.ID, p.Agent, nanos(p.ExpiresAt), doc)
		return err
	})
}

// Preview implements ledger.Store.
func (db *DB) Preview(ctx context.Context, tenant, id string) (ledger.Preview, error) {
	d, err := one(db.reader(ctx), document[previewDoc],
		`SELECT doc FROM previews WHERE tenant = $1 AND id = $2`, tenant, id)
	if err != nil {
		return ledger.Preview{}, err
	}
	return d.preview(), nil
}

// CountPreviews implements ledger.Store.
func (db *DB) CountPreviews(ctx context.Context, tenant, agent string, now time.Time) (int, error) {
	return one(db.reader(ctx), column[int],
		`SELECT count(*) FROM previews WHERE tenant = $1 AND agent = $2 AND expires_at > $3`,
		tenant, agent, nanos(now))
}

// SweepPreviews implements ledger.Store. It deletes in small bites, so that
// other writes get between.
func (db *DB) SweepPreviews(ctx context.Context, before time.Time) error {
	const bite = 500
	for {
		var deleted int64
		err := db.write(ctx, func(t *tx) (err error) {
			deleted, err = t.exec(`DELETE FROM previews WHERE (tenant, id) IN
				(SELECT tenant, id FROM previews WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`,
				nanos(before), bite)
			return err
		})
		if err != nil || deleted < bite {
			return err
		}
	}
}

// checkPreview refuses unless the preview is there and alive at the time of the
// write.
func (db *DB) checkPreview(t *tx, tenant, id string) error {
	expires, err := one(t, column[int64],
		`SELECT expires_at FROM previews WHERE tenant = $1 AND id = $2`, tenant, id)
	switch {
	case isNotFound(err):
		return &ledger.Refused{Why: ledger.PreviewGone}
	case err != nil:
		return err
	case nanos(db.now()) >= expires:
		return &ledger.Refused{Why: ledger.PreviewExpired}
	}
	return nil
}
