//go:build chaos && unix

package ledger

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// COUNTERSIGN_CRASH=after_finish:3 kills the process, without any farewell, when
// it comes to that point for the third time. COUNTERSIGN_PAUSE=… stops it there
// until somebody continues it.
var (
	crashAt, crashOn = pointOf("COUNTERSIGN_CRASH")
	pauseAt, pauseOn = pointOf("COUNTERSIGN_PAUSE")

	crashMu sync.Mutex
	passed  = map[string]int{}
)

func pointOf(variable string) (name string, n int) {
	name, count, _ := strings.Cut(os.Getenv(variable), ":")
	if n, _ = strconv.Atoi(count); n == 0 {
		n = 1
	}
	return name, n
}

// CrashPoint marks a place where the harness can make the process die or stand
// still.
func CrashPoint(name string) {
	if name != crashAt && name != pauseAt {
		return
	}
	crashMu.Lock()
	passed[name]++
	n := passed[name]
	crashMu.Unlock()
	self := os.Getpid()
	switch {
	case name == crashAt && n == crashOn:
		_ = syscall.Kill(self, syscall.SIGKILL)
		select {} // the signal comes
	case name == pauseAt && n == pauseOn:
		_ = syscall.Kill(self, syscall.SIGSTOP)
	}
}
