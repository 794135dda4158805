//go:build !(darwin || freebsd || linux || netbsd || openbsd)

package sqlstore

import (
	"errors"
	"io"
)

// lockFile refuses: without a lock that ends with its process, two gateways
// could open one file.
func lockFile(string) (io.Closer, error) {
	return nil, errors.New("sqlstore: a SQLite ledger is not supported on this operating system")
}
