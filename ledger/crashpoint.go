//go:build !chaos

package ledger

// CrashPoint marks a place where the harness can make the process die or stand
// still. Only a program built with the tag chaos has any.
func CrashPoint(string) {}
