package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMatrix_Row17_DiskFull: no file of the running gateway can grow any more. Calls
// are told so, nothing is dispatched; with room again the same commit goes through.
func TestMatrix_Row17_DiskFull(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	p := d.serve()
	token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
	wal, err := os.Stat(filepath.Join(d.dir, "data", "ledger.db-wal"))
	require.NoError(t, err)
	pid := p.cmd.Process.Pid
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(wal.Size()), Max: was.Max}, nil))
	full := []int{http.StatusInsufficientStorage, http.StatusServiceUnavailable}
	for range 3 {
		got := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
		require.Contains(t, full, got.Status, got.Body)
		got = d.agent.mustPost(t, "/v1/tools/touch_thing/preview", map[string]any{"args": map[string]any{"id": "a2"}})
		require.Contains(t, full, got.Status, got.Body)
	}
	requests, effects := o.counts()
	require.Zero(t, requests+effects, "nothing is dispatched without a mark")
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &was, nil))
	done := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, "succeeded", done.Body["state"], done.Body)
	again := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, true, again.Body["replayed"])
	_, effects = o.counts()
	require.Equal(t, 1, effects)
	p.stop()
}
