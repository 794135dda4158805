//go:build darwin || freebsd || linux

package main

import "golang.org/x/sys/unix"

// freeSpace is how many bytes an ordinary user may still write beside path.
func freeSpace(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
