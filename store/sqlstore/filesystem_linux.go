package sqlstore

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// networkFileSystems are those that the kernel names and on which flock, shared
// memory or fsync don't hold between machines. FUSE and 9P are not among them:
// they are mostly local (encrypted folders, containers).
var networkFileSystems = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xfe534d42: "SMB",
	0xff534d42: "CIFS",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
}

// checkFileSystem refuses a folder on a network file system.
func checkFileSystem(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("sqlstore: ask for the file system of %s: %w", dir, err)
	}
	return refuseNetwork(dir, uint32(s.Type)) //nolint:unconvert // the width of Type differs between architectures
}

func refuseNetwork(dir string, magic uint32) error {
	if name, ok := networkFileSystems[magic]; ok {
		return fmt.Errorf("sqlstore: %w: %s is on %s; use a local disk", ErrNetworkFileSystem, dir, name)
	}
	return nil
}
