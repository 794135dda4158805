package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// demoFolder prepares a data folder whose ports are free on this machine.
func demoFolder(t *testing.T) (dir string, port int) {
	t.Helper()
	return t.TempDir(), freePort(t)
}

var numbered = regexp.MustCompile(`^[123] [^:]*:\s+(.*)$`)

// pasted takes the lines 1 to 3 from the demo's real output.
func pasted(t *testing.T, out string) string {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		if m := numbered.FindStringSubmatch(line); m != nil {
			lines = append(lines, m[1])
		}
	}
	require.Len(t, lines, 3, out)
	return strings.Join(lines, "\n") + "\n"
}

func effectLines(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "shop", "effects.jsonl"))
	require.NoError(t, err)
	return strings.Count(string(b), "\n")
}

// TestDemo_Lines takes the lines from the demo's output, runs them in dash and
// bash with an empty environment, twice, with a restart between, and reads the
// shop's log: one effect, and never a problem document.
func TestDemo_Lines(t *testing.T) {
	dir, port := demoFolder(t)
	for round := range 2 {
		p := start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
		p.await("Ctrl-C ends it.")
		script := pasted(t, p.out.String())
		for _, shell := range []string{"dash", "bash"} {
			for range 2 {
				cmd := exec.Command(shell, "-c", script)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
				require.NotContains(t, string(out), `"status":4`, shell)
				require.NotContains(t, string(out), "problem", shell)
				require.Contains(t, string(out), `"effect_id":"hold_88"`, "%s, round %d", shell, round)
			}
		}
		require.Equal(t, 1, effectLines(t, dir))
		if round == 0 {
			require.Contains(t, p.out.String(), "shop effects 1")
			// A second person, as line 6 says.
			require.Contains(t, p.out.String(), "operator create NAME --group finance -c data/demo.yaml")
			require.Contains(t, command(t, dir, "operator", "create", "ann", "--group", "finance", "-c", "data/demo.yaml"), "/setup#")
		}
		require.Contains(t, p.out.String(), "A refund of 120.00 EUR waits for you")
		p.stop()
	}
	info, err := os.Stat(filepath.Join(dir, "data", "demo.env"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestDemo_Ports: the gateway moves to the next free port and says so; the
// shop's port is chosen once, and a demo that can't have it says so and ends.
func TestDemo_Ports(t *testing.T) {
	dir, port := demoFolder(t)
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err)
	defer taken.Close()
	p := start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
	p.await("Ctrl-C ends it.")
	require.Contains(t, p.out.String(), fmt.Sprintf("Port %d is taken; the gateway is on ", port))
	first := regexp.MustCompile(`setup#\S+`).FindString(p.out.String())
	p.stop()

	env, err := os.ReadFile(filepath.Join(dir, "data", "demo.env"))
	require.NoError(t, err)
	shopPort := regexp.MustCompile(`SHOP_PORT=(\d+)`).FindStringSubmatch(string(env))[1]
	blocker, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", shopPort))
	require.NoError(t, err)
	p = start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
	<-p.exited
	require.NotZero(t, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.out.String(), "the shop's port "+shopPort+" is taken")
	require.NoError(t, blocker.Close())

	p = start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
	p.await("Ctrl-C ends it.")
	require.NotEqual(t, first, regexp.MustCompile(`setup#\S+`).FindString(p.out.String()), "each start prints a fresh link")
	same, err := os.ReadFile(filepath.Join(dir, "data", "demo.env"))
	require.NoError(t, err)
	require.Equal(t, string(env), string(same))

	second := start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
	<-second.exited
	require.NotZero(t, second.cmd.ProcessState.ExitCode(), "two demos never share a folder")
	require.Contains(t, second.out.String(), "stop it first")
	reset := start(t, dir, nil, "demo", "--reset", "--port", strconv.Itoa(port))
	<-reset.exited
	require.Contains(t, reset.out.String(), "stop it first")
	p.stop()

	// An outcome of the ledger that goes means nothing to the one that comes.
	spooled := filepath.Join(dir, "data", "spool", "op_gone.1.outcome")
	require.NoError(t, os.WriteFile(spooled, []byte("an outcome"), 0o600))
	p = start(t, dir, nil, "demo", "--reset", "--port", strconv.Itoa(port))
	p.await("Ctrl-C ends it.")
	require.NoFileExists(t, spooled)
	require.NoFileExists(t, spooled+".set-aside")
	p.stop()
}

// TestDemo_Reset removes what the demo keeps, and refuses a folder that is not
// the demo's.
func TestDemo_Reset(t *testing.T) {
	dir, port := demoFolder(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "ledger.db"), []byte("precious"), 0o600))
	p := start(t, dir, nil, "demo", "--reset", "--port", strconv.Itoa(port))
	<-p.exited
	require.Contains(t, p.out.String(), "nothing was removed")
	b, err := os.ReadFile(filepath.Join(dir, "data", "ledger.db"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))
}

// TestDemo_FiftyAtOnce: fifty commits of one token, and of fifty tokens of one
// key, while the shop holds its reply for 300 ms: one effect in the shop's log,
// every answer the same operation, exactly one of them not a replay.
func TestDemo_FiftyAtOnce(t *testing.T) {
	dir, port := demoFolder(t)
	p := start(t, dir, nil, "demo", "--port", strconv.Itoa(port))
	p.await("Ctrl-C ends it.")
	env, err := os.ReadFile(filepath.Join(dir, "data", "demo.env"))
	require.NoError(t, err)
	value := func(name string) string {
		return regexp.MustCompile(name + `=(\S+)`).FindStringSubmatch(string(env))[1]
	}
	agent := agentClient{url: fmt.Sprintf("http://localhost:%d", port), key: value("AGENT_KEY")}
	shop := agentClient{url: "http://127.0.0.1:" + value("SHOP_PORT"), key: value("SHOP_KEY")}
	shop.mustPost(t, "/switches", map[string]any{"slow_ms": 300})
	for i, c := range []struct {
		order  string
		tokens int
	}{{"ord_1003", 1}, {"ord_1004", 50}} {
		var tokens []string
		for range c.tokens {
			tokens = append(tokens, agent.preview(t, "hold_order", map[string]any{"order_id": c.order}))
		}
		answers := make([]answer, 50)
		errs := make([]error, 50)
		var wg sync.WaitGroup
		for n := range answers {
			wg.Go(func() {
				answers[n], errs[n] = agent.post(t.Context(), "/v1/tools/hold_order/commit", map[string]any{"commit_token": tokens[n%len(tokens)]})
			})
		}
		wg.Wait()
		first := 0
		for n, a := range answers {
			require.NoError(t, errs[n])
			require.Contains(t, []int{200, 202}, a.Status, a.Body)
			require.Equal(t, answers[0].Body["id"], a.Body["id"])
			if a.Body["replayed"] == false {
				first++
			}
		}
		require.Equal(t, 1, first)
		require.Equal(t, i+1, effectLines(t, dir))
	}
	p.stop()
}
