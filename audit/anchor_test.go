package audit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/ledger"
)

// chainOf makes records of checkpoints that follow each other.
func chainOf(n int) []audit.Record {
	var all []audit.Record
	last := ledger.Checkpoint{}
	for i := range n {
		c := ledger.Checkpoint{N: last.N + 1, Ledger: "led_1", At: time.Date(2026, 11, 5, 9, i, 0, 0, time.UTC), After: last.Seq, Seq: last.Seq + 1, Prev: last.Hash}
		c.Hash = c.Digest()
		all, last = append(all, audit.Record{Checkpoint: c}), c
	}
	return all
}

func TestFileAnchor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	a := audit.NewFileAnchor(path)
	ctx := t.Context()
	_, there, err := a.Last(ctx)
	require.NoError(t, err)
	require.False(t, there)
	chain := chainOf(300)
	for _, r := range chain {
		require.NoError(t, a.Append(ctx, r))
		require.NoError(t, a.Append(ctx, r), "again is nothing")
	}
	last, there, err := a.Last(ctx)
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, chain[299], last)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.Greater(t, info.Size(), int64(64<<10), "more than one block is read from the end")

	// Nothing is put behind it that does not follow, but a recovery.
	fork := chainOf(3)[2]
	require.ErrorIs(t, a.Append(ctx, fork), audit.ErrForked)
	fork.Recovery = "a.b.c"
	require.NoError(t, a.Append(ctx, fork))
	last, _, err = a.Last(ctx)
	require.NoError(t, err)
	require.Equal(t, fork, last)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	list, err := audit.ReadAnchor(f)
	require.NoError(t, err)
	require.Equal(t, append(chain, fork), list)
}

// A crash in the middle of a line loses nothing: the record is written again.
func TestFileAnchor_TornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	a, ctx, chain := audit.NewFileAnchor(path), t.Context(), chainOf(3)
	require.NoError(t, a.Append(ctx, chain[0]))
	require.NoError(t, a.Append(ctx, chain[1]))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	begin := strings.IndexByte(string(whole), '\n') + 1
	for cut := begin; cut < len(whole); cut += 7 {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		last, there, err := a.Last(ctx)
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, chain[0], last)
		require.NoError(t, a.Append(ctx, chain[1]))
		require.NoError(t, a.Append(ctx, chain[2]))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		list, err := audit.ReadAnchor(strings.NewReader(string(text)))
		require.NoError(t, err)
		require.Equal(t, chain, list)
	}
	// What else is broken is not passed over in silence.
	for _, bad := range []string{"x\n", "{}\n", `{"checkpoint":{"n":3},"more":1}` + "\n"} {
		require.NoError(t, os.WriteFile(path, append(append([]byte{}, whole...), bad...), 0o600))
		_, _, err := a.Last(ctx)
		require.Error(t, err)
		_, err = audit.ReadAnchor(strings.NewReader(string(whole) + bad))
		require.Error(t, err)
	}
	_, _, err = audit.NewFileAnchor(filepath.Join(t.TempDir(), "not", "mounted")).Last(ctx)
	require.Error(t, err, "a folder that is gone is not an empty anchor")
}

func TestSyslogAnchor(t *testing.T) {
	record := chainOf(1)[0]
	message := func(network string, listen func(address string) (string, func() string)) string {
		address, receive := listen(filepath.Join(t.TempDir(), "s"))
		a, err := audit.NewSyslogAnchor(network + "://" + address)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.NoError(t, a.Append(ctx, record))
		_, _, err = a.Last(ctx)
		require.ErrorIs(t, err, audit.ErrWriteOnly)
		return receive()
	}
	packets := func(network string) func(string) (string, func() string) {
		return func(address string) (string, func() string) {
			if network == "udp" {
				address = "127.0.0.1:0"
			}
			conn, err := net.ListenPacket(network, address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return conn.LocalAddr().String(), func() string {
				b := make([]byte, 64<<10)
				n, _, err := conn.ReadFrom(b)
				require.NoError(t, err)
				return string(b[:n])
			}
		}
	}
	stream := func(string) (string, func() string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		return ln.Addr().String(), func() string {
			conn, err := ln.Accept()
			require.NoError(t, err)
			defer conn.Close()
			r := bufio.NewReader(conn)
			size, err := r.ReadString(' ')
			require.NoError(t, err)
			n, err := strconv.Atoi(strings.TrimSpace(size))
			require.NoError(t, err)
			b := make([]byte, n)
			_, err = io.ReadFull(r, b)
			require.NoError(t, err)
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Empty(t, rest, "octet counting")
			return string(b)
		}
	}
	for network, listen := range map[string]func(string) (string, func() string){"udp": packets("udp"), "unixgram": packets("unixgram"), "tcp": stream} {
		got := message(network, listen)
		require.Regexp(t, `^<109>1 2026-11-05T09:00:00Z \S+ countersign [0-9]+ checkpoint \[checkpoint@32473 ledger="led_1" n="1" seq="1" hash="[0-9a-f]{64}"\] \{`, got, network)
		list, err := audit.ReadAnchor(strings.NewReader(got[strings.Index(got, "] {")+2:]))
		require.NoError(t, err)
		require.Equal(t, []audit.Record{record}, list)
	}
	for _, bad := range []string{"", "syslog.example:514", "http://x:1", "udp://x", "udp://u@x:1", "tcp://x:1/y", "unixgram://x/y", "unixgram:///", "udp://x:1?y"} {
		_, err := audit.NewSyslogAnchor(bad)
		require.Error(t, err, bad)
	}
}

// shelf is a server that keeps records as docs/audit.md asks.
type shelf struct {
	records []json.RawMessage
	status  int
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer s3cret":
		w.WriteHeader(http.StatusUnauthorized)
	case s.status != 0:
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(s.status)
	case r.Method == http.MethodPost:
		b, _ := io.ReadAll(r.Body) // a test's own
		s.records = append(s.records, b)
		w.WriteHeader(http.StatusCreated)
	case len(s.records) == 0:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write(s.records[len(s.records)-1])
	}
}

func TestURLAnchor(t *testing.T) {
	s := &shelf{}
	srv := httptest.NewServer(s)
	defer srv.Close()
	token, fail := "s3cret", error(nil)
	a, err := audit.NewURLAnchor(srv.URL+"/anchor?key=hush", func() (string, error) { return token, fail })
	require.NoError(t, err)
	require.NotContains(t, a.Name(), "hush")
	ctx, chain := t.Context(), chainOf(2)
	_, there, err := a.Last(ctx)
	require.NoError(t, err)
	require.False(t, there)
	for _, r := range chain {
		require.NoError(t, a.Append(ctx, r))
		last, there, err := a.Last(ctx)
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, r, last)
	}
	for _, s.status = range []int{301, 307, 401, 405, 500, 503} {
		_, _, err = a.Last(ctx)
		require.ErrorContains(t, err, fmt.Sprint(s.status), "unreadable, not empty")
		require.ErrorContains(t, a.Append(ctx, chain[0]), fmt.Sprint(s.status))
	}
	s.status = http.StatusConflict
	require.ErrorIs(t, a.Append(ctx, chain[0]), audit.ErrForked)
	s.status, token = 0, "wrong"
	require.ErrorContains(t, a.Append(ctx, chain[0]), "401")
	fail = errors.New("the environment has no X")
	require.ErrorIs(t, a.Append(ctx, chain[0]), fail)
	s.records, fail, token = append(s.records, json.RawMessage(`{"checkpoint":{}}`)), nil, "s3cret"
	_, _, err = a.Last(ctx)
	require.Error(t, err)
	srv.Close()
	_, _, err = a.Last(ctx)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hush")

	for _, bad := range []string{"", "x", "http://anchor.example", "https://u:p@anchor.example", "ftp://127.0.0.1", "https://", "https://a/#f"} {
		_, err := audit.NewURLAnchor(bad, nil)
		require.Error(t, err, bad)
	}
}

// How each way in which an anchor stands to the ledger is met at the start.
func TestRefusal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "anchor.jsonl")
	r := newRig(t, audit.NewFileAnchor(path))
	compare := func(a audit.Anchor) audit.Comparison {
		t.Helper()
		return must(audit.Compare(r.ctx, r.db, r.ledger.ID(), []audit.Anchor{a}))[0]
	}
	require.Equal(t, audit.Empty, compare(r.anchors[0]).Standing)
	r.ask("k", false)
	r.seal()
	require.Equal(t, audit.Agrees, compare(r.anchors[0]).Standing)
	r.ask("k2", false)
	r.closed(func() { r.anchors = nil })
	r.seal()
	fine := compare(audit.NewFileAnchor(path))
	require.Equal(t, audit.Agrees, fine.Standing, "an anchor that is behind")

	foreign := filepath.Join(dir, "foreign.jsonl")
	require.NoError(t, audit.NewFileAnchor(foreign).Append(r.ctx, chainOf(1)[0]))
	other := compare(audit.NewFileAnchor(foreign))
	require.Equal(t, audit.Foreign, other.Standing)
	syslog, err := audit.NewSyslogAnchor("udp://127.0.0.1:9")
	require.NoError(t, err)
	require.Equal(t, audit.WriteOnly, compare(syslog).Standing)
	gone := compare(audit.NewFileAnchor(filepath.Join(dir, "no", "such")))
	require.Equal(t, audit.Unreadable, gone.Standing)
	spoilt := filepath.Join(dir, "spoilt.jsonl")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(spoilt, []byte(strings.Replace(string(text), `"seq":1`, `"seq":9`, 1)), 0o600))
	require.Equal(t, audit.Unreadable, compare(audit.NewFileAnchor(spoilt)).Standing, "an anchor that was changed")

	require.NoError(t, audit.Refusal([]audit.Comparison{fine, compare(syslog)}, false))
	require.ErrorContains(t, audit.Refusal([]audit.Comparison{fine, other}, true), "belongs to another ledger")
	require.ErrorContains(t, audit.Refusal([]audit.Comparison{fine, gone}, false), "can't be read")
	require.NoError(t, audit.Refusal([]audit.Comparison{fine, gone}, true))
	require.NotContains(t, audit.Refusal([]audit.Comparison{gone}, false).Error(), "--restored")
}
