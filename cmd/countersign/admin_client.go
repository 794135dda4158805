package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// admin is a connection to the admin door.
type admin struct {
	client *http.Client
	close  func()
	// running: a gateway answers; else this process holds the ledger itself.
	running bool
	// here is the ledger that this process holds; nil when a gateway answers.
	here *gateway
}

// openAdmin reaches the running gateway of a data folder, or opens the ledger
// here. A ledger that is held by a process without a door is one that starts or
// stops, or another command; it is waited for, a short while.
func openAdmin(ctx context.Context, cfg Config, env environment) (*admin, error) {
	for wait := 0; ; wait++ {
		a, err := dialAdmin(ctx, cfg)
		if a != nil || err != nil {
			return a, err
		}
		// Without its tools: a manifest that does not load must not keep anybody
		// from revoking an agent. Nor its upstreams.
		cfg.Upstreams = nil
		g, err := openGateway(ctx, cfg, env)
		if err == nil {
			return &admin{client: &http.Client{Transport: inProcess{g.adminHandler()}}, close: g.close, here: g}, nil
		}
		if !inUse(err) || wait == adminTries {
			return nil, errors.New(plain(err))
		}
		if wait == adminTries/10 {
			env.log.Warn("the ledger is in use by another process; waiting until that is done")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(adminPause):
		}
	}
}

// How often, and after which pauses, a ledger that is in use is tried again.
const (
	adminTries = 150
	adminPause = 100 * time.Millisecond
)

// dialAdmin reaches the running gateway of a data folder; nil when none runs.
func dialAdmin(ctx context.Context, cfg Config) (*admin, error) {
	path := filepath.Join(cfg.path(cfg.Data), adminSocket)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	conn, err := dial(ctx, "", "")
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("a gateway of another user has %s; run the command as that user", path)
	}
	if err != nil {
		return nil, nil // nobody listens
	}
	_ = conn.Close() // it was only asked whether somebody does
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	return &admin{client: client, close: client.CloseIdleConnections, running: true}, nil
}

// ask sends one request to the admin door of the configured gateway.
func (p *program) ask(ctx context.Context, method, path string, in, out any) error {
	cfg, err := p.config()
	if err != nil {
		return err
	}
	a, err := openAdmin(ctx, cfg, p.quiet(cfg))
	if err != nil {
		return err
	}
	defer a.close()
	return a.call(ctx, method, path, in, out)
}

// quiet is the environment of a command that opens the ledger for one answer.
func (p *program) quiet(cfg Config) environment {
	cfg.Log.Level = "warn"
	env := p.environment(cfg)
	// Nothing is sent for it, and nobody must be kept from revoking an agent by an
	// anchor that is away.
	env.anchors = waiveUnreadable
	return env
}

// inProcess answers requests by a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	w := &buffered{header: http.Header{}, status: http.StatusOK}
	defer func() {
		// As a server does: an answer that was broken off is no answer.
		if broken := recover(); broken == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if broken != nil {
			panic(broken)
		}
	}()
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	p.handler.ServeHTTP(w, served)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.header,
		Body: io.NopCloser(&w.body), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// buffered keeps an answer.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

// call sends one request and fills out from the answer.
func (a *admin) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, body)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var no refusal
		if err := json.NewDecoder(resp.Body).Decode(&no); err != nil || no.Detail == "" {
			return fmt.Errorf("the gateway answered %s", resp.Status)
		}
		return no
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// escape makes a name one segment of a path.
func escape(name string) string { return url.PathEscape(name) }
