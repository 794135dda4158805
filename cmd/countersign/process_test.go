package main_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tools/tooltest"
)

// binary builds the program once for all tests of this package. It always lies
// at the same place, so that runs leave nothing behind.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "..", ".ci", "tmp", "test"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "countersign")
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-o", fresh, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
})

// process is one running program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *safeBuffer
	exited chan struct{}
}

// safeBuffer collects output while it is being read.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *safeBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// start starts the program in a folder with nothing in its environment but
// what is given.
func start(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the real program")
	}
	bin, err := binary()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(bin, args...), out: &safeBuffer{}, exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its status is read from ProcessState where it matters
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // already gone is fine
	<-p.exited
}

// stop asks it to end and waits.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.exited:
	case <-time.After(40 * time.Second):
		p.t.Fatalf("it did not end:\n%s", p.out)
	}
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), p.out.String())
}

// await waits until its output has the text.
func (p *process) await(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("it ended before it said %q:\n%s", text, p.out)
		default:
		}
		return strings.Contains(p.out.String(), text)
	}, 30*time.Second, 10*time.Millisecond, "waiting for %q", text)
}

// ready waits until the gateway answers.
func (p *process) ready(url string) {
	p.t.Helper()
	for range 600 {
		resp, err := http.Get(url + "/readyz")
		if err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-p.exited:
			p.t.Fatalf("it ended before it was ready:\n%s", p.out)
		case <-time.After(50 * time.Millisecond):
		}
	}
	p.t.Fatalf("it was never ready:\n%s", p.out)
}

// freePort finds a port that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := tooltest.FreePort()
	require.NoError(t, err)
	return port
}

// command runs the program to its end and gives its standard output.
func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the real program")
	}
	bin, err := binary()
	require.NoError(t, err)
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v\n%s\n%s", args, out, stderr.String())
	return string(out)
}

// agentClient is an agent that speaks plain HTTP.
type agentClient struct {
	url, key string
}

// answer is what a route said.
type answer struct {
	Status int
	Body   map[string]any
}

func (a agentClient) post(ctx context.Context, path string, body any) (answer, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(b))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	got := answer{Status: resp.StatusCode}
	return got, json.Unmarshal(text, &got.Body)
}

func (a agentClient) mustPost(t *testing.T, path string, body any) answer {
	t.Helper()
	got, err := a.post(context.Background(), path, body)
	require.NoError(t, err)
	return got
}

// preview previews and gives the token.
func (a agentClient) preview(t *testing.T, tool string, args map[string]any) string {
	t.Helper()
	got := a.mustPost(t, "/v1/tools/"+tool+"/preview", map[string]any{"args": args})
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	token, _ := got.Body["commit_token"].(string)
	require.NotEmpty(t, token, got.Body)
	return token
}

// selfSigned makes a certificate for localhost.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	b, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})
}
