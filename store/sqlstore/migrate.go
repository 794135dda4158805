package sqlstore

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to the newest version that this program knows.
// There is no way down: restore a backup instead. A schema that is newer than
// the program is refused, for its rows may mean what the program can't tell.
func (db *DB) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("sqlstore: migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db.pool, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("sqlstore: migrations: %w", err)
	}
	found, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("sqlstore: read the schema's version: %w", err)
	}
	if found > known {
		return fmt.Errorf("sqlstore: %w: %s has schema version %d, this program knows %d; start the newer program", ErrNewerSchema, db.path, found, known)
	}
	if found == known {
		return nil
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("sqlstore: migrate from schema version %d to %d: %w", found, known, err)
	}
	db.log.Info("the ledger's schema was brought up to date", "from", found, "to", known)
	return nil
}
