package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"countersign/api"
)

const (
	headerTimeout = 5 * time.Second
	// drainFor is how long a stop waits for what is already sent; what then
	// still runs is left to its lease, as unknown.
	drainFor = 25 * time.Second
)

func serveCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run the gateway",
		Long: `Run the gateway: API, page and background work, until a signal.

SIGHUP reads the tool manifests again. SIGTERM and SIGINT stop taking calls,
wait for what is already sent, and end; what is still without an answer by then
is recorded as unknown, never as failed.`,
		Example: "  countersign init && countersign serve -c countersign.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.config()
			if err != nil {
				return err
			}
			env := p.environment(cfg)
			g, err := openGateway(cmd.Context(), cfg, env)
			if err != nil {
				return errors.New(plain(err))
			}
			defer g.close()
			ln, err := net.Listen("tcp", cfg.Listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			if _, port, _ := net.SplitHostPort(cfg.Listen); port == "0" {
				g.cfg.Listen = ln.Addr().String() // links name the port that was free
			}
			env.log.Info("gateway started", "url", g.cfg.publicURL(), "listen", ln.Addr().String(), "version", version(), "tools", len(g.registry.List()), "ledger", g.ledger.ID())
			return g.serve(cmd.Context(), ln)
		},
	}
}

// serve answers on ln until ctx ends, then drains.
func (g *gateway) serve(ctx context.Context, ln net.Listener) error {
	handler, err := g.handler()
	if err != nil {
		return err
	}
	srv := api.Hardened(handler, g.log)
	ln = limitListener(ln, g.cfg.Limits.Connections)
	if g.cfg.TLS.Cert != "" {
		// Better now than at each handshake.
		if _, err := g.certificate(nil); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		ln = tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: g.certificate, NextProtos: []string{"h2", "http/1.1"}})
	}
	// The loops outlive the listener: what was accepted is brought to its end.
	loopCtx, endLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer endLoops()
	group := new(errgroup.Group)
	group.Go(func() error { return g.loops(loopCtx) })
	group.Go(func() error { return g.reloadOnHangup(loopCtx) })
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()

	select {
	case err = <-served:
	case <-ctx.Done():
		close(g.draining)
		g.pages.Close()
		g.log.Info("stopping: no new calls, waiting for what is sent")
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
		defer cancel()
		if srv.Shutdown(drain) != nil {
			err = srv.Close()
		}
		endLoops()
		if g.executor.Drain(drain) != nil {
			g.log.Warn("some calls have no answer yet; their operations will be unknown")
		}
	}
	endLoops()
	if werr := group.Wait(); werr != nil {
		err = errors.Join(err, werr)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// reloadOnHangup reads the manifests again at SIGHUP.
func (g *gateway) reloadOnHangup(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			if err := g.loadTools(ctx); err != nil {
				g.log.Error("the tools were not reloaded; the old ones stay in force", "error", err)
				continue
			}
			if _, err := g.keys.Reload(); err != nil {
				g.log.Error("the signing keys were not reloaded", "error", err)
			}
			g.log.Info("tools reloaded", "tools", len(g.registry.List()))
		}
	}
}

// certificate reads the files at each handshake, so that a renewed certificate
// needs no restart.
func (g *gateway) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(g.cfg.path(g.cfg.TLS.Cert), g.cfg.path(g.cfg.TLS.Key))
	return &c, err
}

// limitListener bounds the connections that are open at once.
func limitListener(ln net.Listener, n int) net.Listener {
	return &boundedListener{Listener: ln, slots: make(chan struct{}, n)}
}

type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundedConn{Conn: c, free: func() { <-l.slots }}, nil
}
