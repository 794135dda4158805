package sqlstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/store/sqlstore"
)

func TestOpen_NetworkFileSystem(t *testing.T) {
	for _, magic := range []uint32{0x6969, 0x517b, 0xfe534d42, 0xff534d42, 0x00c36400} {
		err := sqlstore.RefuseNetwork("/mnt/share", magic)
		require.ErrorIs(t, err, sqlstore.ErrNetworkFileSystem)
		require.ErrorContains(t, err, "/mnt/share")
	}
	for _, magic := range []uint32{0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630, 0x2fc12fc1} { // ext, xfs, btrfs, tmpfs, overlay, zfs
		require.NoError(t, sqlstore.RefuseNetwork("/data", magic))
	}
}
