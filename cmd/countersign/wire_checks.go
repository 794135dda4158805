package main

import (
	"context"
	"errors"
	"strings"

	"countersign/store/sqlstore"
	"countersign/tools/httptool"
)

// This file belongs to wire.go: what commands ask of a store or a connector
// without opening a gateway, and how a store's refusals read.

// ledgerFile is the ledger in the data folder.
const ledgerFile = "ledger.db"

// schemaVersion is the ledger's schema as this program writes it.
func schemaVersion() int64 { return sqlstore.SchemaVersion() }

// inspectLedger looks at a ledger that nobody has open, and changes nothing.
func inspectLedger(ctx context.Context, path string) (sqlstore.Inspection, error) {
	return sqlstore.Inspect(ctx, path)
}

// inUse reports that another process has the ledger open.
func inUse(err error) bool { return errors.Is(err, sqlstore.ErrLocked) }

// plain is an error of the store without its package's name, for people.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "sqlstore: ") }

// checkAllowed reads one entry of an upstream's allow list.
func checkAllowed(entry string) error {
	_, err := httptool.ParseAllowed(entry)
	return err
}
