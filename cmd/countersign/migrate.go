package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"
)

func migrateCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the ledger's schema up to date",
		Long: `Bring the ledger's schema up to date, before a new version is started.

With SQLite nobody needs this: serve does the same by itself when it starts. The
command is for whoever wants to see the step alone, say after a backup. There is
no way down; a newer schema is refused by an older program.`,
		Example: "  countersign migrate -c countersign.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.migrate(cmd) },
	}
}

func (p *program) migrate(cmd *cobra.Command) error {
	ctx := cmd.Context()
	cfg, err := p.config()
	if err != nil {
		return err
	}
	var done struct {
		From    int64 `json:"from"` // 0: there was no ledger
		To      int64 `json:"to"`
		Running bool  `json:"running"` // a gateway has it open, so it is up to date
	}
	running, err := dialAdmin(ctx, cfg)
	if err != nil {
		return err
	}
	if running != nil {
		defer running.close()
		var s status
		if err := running.call(ctx, http.MethodGet, "/status", nil, &s); err != nil {
			return err
		}
		done.From, done.To, done.Running = s.Schema, s.Schema, true
	} else {
		found, err := inspectLedger(ctx, filepath.Join(cfg.path(cfg.Data), ledgerFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.New(plain(err))
		}
		a, err := openAdmin(ctx, cfg, p.quiet(cfg))
		if err != nil {
			return err
		}
		a.close()
		done.From, done.To = found.SchemaVersion, schemaVersion()
	}
	return p.answer(done, func(w io.Writer) {
		switch {
		case done.Running:
			row(w, fmt.Sprintf("up to date: the running gateway has the ledger open, schema version %d", done.To))
		case done.From == 0:
			row(w, fmt.Sprintf("a new ledger was made, schema version %d", done.To))
		case done.From == done.To:
			row(w, fmt.Sprintf("up to date already, schema version %d", done.To))
		default:
			row(w, fmt.Sprintf("schema version %d -> %d", done.From, done.To))
		}
	})
}
