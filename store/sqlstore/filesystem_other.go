//go:build !(linux || darwin || freebsd)

package sqlstore

// checkFileSystem can't tell here.
func checkFileSystem(string) error { return nil }
