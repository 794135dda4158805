//go:build !darwin && !freebsd && !linux

package main

import "errors"

// freeSpace is not measured on this system.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
