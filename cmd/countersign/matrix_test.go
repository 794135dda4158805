package main_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// Rows of the fault matrix that need the real program.

// configure adds lines to the configuration.
func (d *deployment) configure(lines string) {
	d.t.Helper()
	path := filepath.Join(d.dir, "countersign.yaml")
	text, err := os.ReadFile(path)
	require.NoError(d.t, err)
	require.NoError(d.t, os.WriteFile(path, append(text, []byte(lines+"\n")...), 0o600))
}

// change runs SQL on the ledger's file, with no gateway on it.
func (d *deployment) change(text string, args ...any) {
	d.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(d.dir, "data", "ledger.db"))
	require.NoError(d.t, err)
	res, err := db.Exec(text, args...)
	require.NoError(d.t, err)
	n, err := res.RowsAffected()
	require.NoError(d.t, err)
	require.EqualValues(d.t, 1, n)
	require.NoError(d.t, db.Close())
}

// refused wants that the gateway does not start, and gives what it says.
func (d *deployment) refused() string {
	d.t.Helper()
	p := start(d.t, d.dir, nil, "serve")
	<-p.exited
	require.NotZero(d.t, p.cmd.ProcessState.ExitCode(), p.out.String())
	return p.out.String()
}

func (o *outside) counts() (requests, effects int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.requests, o.effects
}

// TestMatrix_Row08_AnothersToken: an agent commits with a token that was given to
// another: refused, on record as a security event, and the token is as good as before
// for whom it was given to.
func TestMatrix_Row08_AnothersToken(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	var made struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(command(t, d.dir, "agent", "create", "thief", "--owner", "ann", "--tools", "*", "--output", "json")), &made))
	p := d.serve()
	token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
	thief := agentClient{url: d.agent.url, key: made.Key}
	got := thief.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, http.StatusForbidden, got.Status)
	require.Equal(t, "token_subject_mismatch", got.Body["code"])
	require.NotContains(t, fmt.Sprint(got.Body), "a1")
	p.await("security: a commit token was used by an agent that it was not given to")
	require.NotContains(t, p.out.String(), token)
	requests, effects := o.counts()
	require.Zero(t, requests+effects)
	mine := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, "succeeded", mine.Body["state"], mine.Body)
	require.Equal(t, false, mine.Body["replayed"])
}

// TestMatrix_Row24_StartRefused: the ledger was written at a later time than the
// machine's clock shows, by more than a minute: the gateway does not start. By less:
// it goes on from there and says so. A recovery lets time begin anew.
func TestMatrix_Row24_StartRefused(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	p := d.serve()
	token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
	p.stop()
	setClock := func(ahead time.Duration) {
		d.change("UPDATE settings SET value = ? WHERE name = 'clock'", fmt.Sprint(time.Now().Add(ahead).UnixNano()))
	}
	setClock(10 * time.Minute)
	said := d.refused()
	require.Contains(t, said, "the clock is wrong")
	require.Contains(t, said, "recover --restored")
	setClock(30 * time.Second)
	p = d.serve()
	p.await("this machine's clock is behind the ledger's time")
	done := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, "succeeded", done.Body["state"], done.Body)
	p.stop()
	setClock(24 * time.Hour)
	require.Contains(t, d.refused(), "the clock is wrong")
	command(t, d.dir, "recover", "--restored", "--reason", "the clock once was a day ahead")
	p = d.serve()
	require.NotContains(t, p.out.String(), "clock")
}

// TestMatrix_Row42_StopDuringCalls: SIGTERM during a hundred calls: it takes no more,
// brings to their end those that are answered in time, and ends by itself. What has
// no answer by then is unknown, never failed; nothing was sent twice.
func TestMatrix_Row42_StopDuringCalls(t *testing.T) {
	t.Parallel()
	const calls, answered = 100, 60
	o := newOutside(t)
	d := deploy(t, o, strings.Replace(touchManifest, "timeout: 2s", "timeout: 12s", 1))
	p := d.serve()
	tokens := make([]string, calls)
	for i := range tokens {
		tokens[i] = d.agent.preview(t, "touch_thing", map[string]any{"id": fmt.Sprint("a", i)})
	}
	hold := make(chan struct{})
	o.mu.Lock()
	o.hold = hold
	o.mu.Unlock()
	for _, token := range tokens {
		go func() { // who waits is told, or cut off
			_, _ = d.agent.post(context.Background(), "/v1/tools/touch_thing/commit?wait=60", map[string]any{"commit_token": token})
		}()
	}
	for range calls {
		require.Equal(t, "effect", <-o.reached)
	}
	go func() {
		for range o.reached { // the replies
		}
	}()
	go func() {
		p.await("stopping")
		for range answered {
			hold <- struct{}{}
		}
	}()
	p.stop()
	close(hold)
	o.mu.Lock()
	o.hold = nil
	o.mu.Unlock()
	d.serve()
	ends := map[any]int{}
	for _, token := range tokens {
		ends[d.settled(token)["state"]]++
	}
	require.Equal(t, map[any]int{"succeeded": answered, "unknown": calls - answered}, ends)
	requests, effects := o.counts()
	require.Equal(t, calls, requests)
	require.Equal(t, calls, effects)
}

// TestMatrix_Row47_ConnectionsExhausted: two thousand sockets that say nothing, half a
// header, or half a body take all connections of the agents' door. People get in at
// theirs all the while, and time-outs free the agents'.
func TestMatrix_Row47_ConnectionsExhausted(t *testing.T) {
	t.Parallel()
	const sockets = 2000
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	people := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	d.configure("people_listen: " + people + "\nlimits: {connections: 700}")
	p := d.serve()
	address := strings.TrimPrefix(d.agent.url, "http://")
	for i := range sockets {
		conn, err := net.Dial("tcp", strings.Replace(address, "localhost", "127.0.0.1", 1))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the gateway closes most of them
		text := []string{"", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "POST /v1/tools/touch_thing/preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + d.agent.key + "\r\nContent-Length: 100\r\n\r\n{"}[i%3]
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
	}
	fresh := func() *http.Client {
		return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	}
	_, err := fresh().Get(d.agent.url + "/healthz")
	require.Error(t, err, "all of the agents' connections are taken")
	for range 20 {
		resp, err := fresh().Get("http://" + people + "/sign-in")
		require.NoError(t, err, "people get in")
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	require.Eventually(t, func() bool {
		resp, err := fresh().Get(d.agent.url + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close() // that it answers counts
		return resp.StatusCode == http.StatusOK
	}, 3*time.Minute, 100*time.Millisecond, "time-outs free them")
	token := d.agent.preview(t, "touch_thing", map[string]any{"id": "a1"})
	done := d.agent.mustPost(t, "/v1/tools/touch_thing/commit", map[string]any{"commit_token": token})
	require.Equal(t, "succeeded", done.Body["state"])
	p.stop()
}

// TestMatrix_Row49_LedgerOfANewerProgram: the ledger was upgraded by a newer program:
// this one starts nothing on it and changes nothing in it. That an older ledger is
// brought up to date is TestUpgrade_FromBeforeDoubts in store/sqlstore.
func TestMatrix_Row49_LedgerOfANewerProgram(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	d := deploy(t, o, touchManifest)
	d.serve().stop()
	d.change("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
	path := filepath.Join(d.dir, "data", "ledger.db")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, d.refused(), "newer version")
	bin, err := binary()
	require.NoError(t, err)
	cmd := exec.Command(bin, "agent", "list")
	cmd.Dir = d.dir
	out, err := cmd.CombinedOutput()
	require.Error(t, err, string(out))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}
