//go:build darwin || freebsd

package sqlstore

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkFileSystem refuses a folder on a file system that the kernel does not
// call local.
func checkFileSystem(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("sqlstore: ask for the file system of %s: %w", dir, err)
	}
	if uint64(s.Flags)&uint64(unix.MNT_LOCAL) == 0 {
		return fmt.Errorf("sqlstore: %w: %s is not on a local disk", ErrNetworkFileSystem, dir)
	}
	return nil
}
