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
	var unreadable bool
	cmd := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run the gateway",
		Long: `Run the gateway: API, page and background work, until a signal. It starts only
when every secret that the configuration refers to is there, and when no anchor of
the audit contradicts the ledger (docs/audit.md).

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
			if unreadable {
				env.anchors = waiveUnreadable
			}
			if err := requireSecrets(cfg, env); err != nil {
				return err
			}
			g, err := openGateway(cmd.Context(), cfg, env)
			if err != nil {
				return errors.New(plain(err))
			}
			defer g.close()
			if err := g.loadTools(cmd.Context()); err != nil {
				return err
			}
			doors, err := g.listen()
			if err != nil {
				return err
			}
			env.log.Info("gateway started", "url", g.cfg.publicURL(), "listen", g.cfg.Listen, "version", version(), "tools", len(g.registry.List()), "ledger", g.ledger.ID())
			return g.serve(cmd.Context(), doors)
		},
	}
	cmd.Flags().BoolVar(&unreadable, "ignore-unreadable-anchors", false, "start although an anchor of the audit can't be read now: a ledger that was put back then goes unseen")
	return cmd
}

// door is one listener and for whom it is.
type door struct {
	ln net.Listener
	// agentsOnly: no page, and no session of an operator counts.
	agentsOnly bool
}

// listen opens the configured addresses: one for everybody, or one for agents
// and one for people. A port 0 becomes the free one that links then name.
func (g *gateway) listen() ([]door, error) {
	apart := g.cfg.PeopleListen != ""
	var doors []door
	for _, d := range []struct {
		key        string
		address    *string
		agentsOnly bool
	}{{"listen", &g.cfg.Listen, apart}, {"people_listen", &g.cfg.PeopleListen, false}} {
		if *d.address == "" {
			continue
		}
		ln, err := net.Listen("tcp", *d.address)
		if err != nil {
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%s: %s is taken; is another gateway (or the demo) running? Choose another %[1]s", d.key, *d.address)
			} else {
				err = fmt.Errorf("%s: %w", d.key, err)
			}
			for _, open := range doors {
				err = errors.Join(err, open.ln.Close())
			}
			return nil, err
		}
		if _, port, _ := net.SplitHostPort(*d.address); port == "0" {
			*d.address = ln.Addr().String()
		}
		doors = append(doors, door{ln: ln, agentsOnly: d.agentsOnly})
	}
	if err := g.listenMetrics(); err != nil {
		for _, open := range doors {
			err = errors.Join(err, open.ln.Close())
		}
		return nil, err
	}
	return doors, nil
}

// serve answers at the doors until ctx ends or something of the gateway's own
// fails, then drains.
func (g *gateway) serve(ctx context.Context, doors []door) error {
	everybody, agents, err := g.handlers()
	if err != nil {
		return err
	}
	var servers []*http.Server
	var listeners []net.Listener
	for _, d := range doors {
		handler := everybody
		if d.agentsOnly {
			handler = agents
		}
		// Each door has its own: agents that take all of theirs keep no person out.
		slots := make(chan struct{}, g.cfg.Limits.Connections)
		ln, err := g.secured(&boundedListener{Listener: d.ln, slots: slots})
		if err != nil {
			return err
		}
		servers, listeners = append(servers, api.Hardened(handler, g.log)), append(listeners, ln)
	}
	// The loops outlive the listeners: what was accepted is brought to its end.
	loops, endLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer endLoops()
	running, failed := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	running.Go(func() error {
		defer close(ended)
		return g.loops(loops)
	})
	running.Go(func() error { return g.reloadOnHangup(loops) })
	for i, srv := range servers {
		running.Go(func() error {
			if err := srv.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	<-failed.Done() // the end of ctx, or the first that failed
	g.stop(servers, func() {
		endLoops()
		<-ended // they start nothing more
	})
	return running.Wait()
}

// stop takes no new calls, and waits for what is already sent.
func (g *gateway) stop(servers []*http.Server, endLoops func()) {
	g.log.Info("stopping: no new calls, waiting for what is sent")
	close(g.draining)
	g.pages.Close()
	drain, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	for _, srv := range servers {
		if srv.Shutdown(drain) != nil {
			_ = srv.Close() // its calls had their time
		}
	}
	endLoops()
	if g.executor.Drain(drain) != nil {
		g.log.Warn("some calls have no answer yet; their operations will be unknown")
	}
	g.sealLast()
}

// secured puts TLS over a listener where the configuration has it.
func (g *gateway) secured(ln net.Listener) (net.Listener, error) {
	if g.cfg.TLS.Cert == "" {
		return ln, nil
	}
	// Better now than at each handshake.
	if _, err := g.certificate(nil); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: g.certificate, NextProtos: []string{"h2", "http/1.1"}}), nil
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

// boundedListener bounds the connections of one door that are open at once.
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
