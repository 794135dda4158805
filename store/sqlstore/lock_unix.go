//go:build darwin || freebsd || linux || netbsd || openbsd

package sqlstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile takes the exclusive lock that makes one process the owner of the
// file. The kernel drops it when the process ends, however it ends. The lock is
// on a file of its own, for closing any descriptor of the database would drop
// SQLite's locks on it.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: the lock file: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("sqlstore: %w: %s is open in another process%s; only one may have it, so stop that one first", ErrLocked, path, holder(f))
		return nil, errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: lock %s: %w", f.Name(), err), f.Close())
	}
	// The number is for people; the lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// holder says who wrote the lock file, if it can be read.
func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (number %d)", pid)
}
