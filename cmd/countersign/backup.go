package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"
)

func backupCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the ledger while it is in use",
		Long: `Copy the ledger, as it stands at one moment, to a new file (0600), while a gateway
runs or not. The copy is flushed and checked before it gets its name. A file that
is there is not replaced.

It is the ledger alone. The signing keys are not needed to restore it: they are
replaced then. Keep redact.key and the configuration with it.

To restore: stop the gateway, put the file in the place of data/ledger.db (without
ledger.db-wal and ledger.db-shm), and run countersign recover --restored. Every
operation that was opened after the backup is missing then: see docs/audit.md.`,
		Example: "  countersign backup /backup/ledger-$(date +%F).db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return p.withLedger(cmd.Context(), func(a *admin) error {
				var made backedUp
				if err := a.call(cmd.Context(), http.MethodPost, "/backup", map[string]string{"file": path}, &made); err != nil {
					return err
				}
				return p.answer(made, func(w io.Writer) {
					row(w, "backup", made.File)
					row(w, "ledger", made.Ledger)
					row(w, "checkpoint", fmt.Sprintf("%d, up to event %d", made.Sealed.N, made.Sealed.Seq))
				})
			})
		},
	}
}
