package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"countersign/commit"
	"countersign/examples/shop"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
)

// The demo's names.
const (
	demoPort     = 8420
	demoShopPort = 8421
	demoOperator = "demo"
	demoAgent    = "demo-agent"
)

func demoCommand(p *program) *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a gateway in front of Acme shop, a small upstream to play with",
		Long: `Run a gateway with page and API on localhost, and Acme shop, a small upstream
with orders, payments and letters, in one process. It prints lines to paste.

The ledger and the shop's own log are kept in the data folder over restarts.
Not for production: keys and passwords lie in that folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.program, d.out = p, p.stdout
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.data, "data", "data", "folder for ledger, keys and the shop's log")
	cmd.Flags().IntVar(&d.port, "port", demoPort, "port of the gateway; the next free one when taken")
	cmd.Flags().BoolVar(&d.reset, "reset", false, "start over: remove what the demo keeps in the data folder")
	return cmd
}

// demo is one run of the demo.
type demo struct {
	*program
	out   io.Writer
	data  string
	port  int
	reset bool

	env  demoEnv
	shop *shop.Shop
	log  *slog.Logger
	g    *gateway
	live *liveLines
}

func (d *demo) run(ctx context.Context) error {
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return err
	}
	// The ledger's lock, not the socket, says whether somebody runs: a demo that
	// is just starting has the one and not yet the other.
	if _, err := inspectLedger(ctx, filepath.Join(d.data, ledgerFile)); inUse(err) {
		return fmt.Errorf("a gateway runs on %s; stop it first, or name another folder with --data", d.data)
	}
	if d.reset {
		if err := d.startOver(); err != nil {
			return err
		}
	}
	ln, moved, err := listenFrom(d.port)
	if err != nil {
		return err
	}
	defer ln.Close()
	if d.env, err = loadDemoEnv(filepath.Join(d.data, "demo.env")); err != nil {
		return err
	}
	shopLn, err := net.Listen("tcp", d.env.shopAddr())
	if err != nil {
		return fmt.Errorf("the shop's port %d is taken; it is fixed in %s, because the demo's tools are pinned to it. Free it, or start over with --reset", d.env.ShopPort, d.env.path)
	}
	defer shopLn.Close()
	return d.serve(ctx, ln, shopLn, moved)
}

// serve opens shop and gateway and runs both until a signal.
func (d *demo) serve(ctx context.Context, ln, shopLn net.Listener, moved bool) (err error) {
	port := ln.Addr().(*net.TCPAddr).Port
	cfg := d.config(port)
	d.log = d.logger(cfg)
	d.shop, err = shop.Open(shop.Config{Dir: filepath.Join(d.data, "shop"), Key: d.env.ShopKey, ReadKey: d.env.ShopReadKey, Logger: d.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.shop.Close()) }()
	d.live = &liveLines{out: d.out, now: d.now, effects: d.shop.EffectCount, colour: d.terminal}

	env := d.environment(cfg)
	env.log = d.log
	env.boundary = "drill"
	env.getenv = d.env.lookup(d.getenv)
	env.manifests = shop.Manifests
	env.shopURL = d.env.shopURL()
	env.onEvent = d.live.event
	env.onPreview = d.live.preview
	env.onCommit = d.live.commit
	if d.g, err = openGateway(ctx, cfg, env); err != nil {
		return err
	}
	defer d.g.close()
	if err := d.g.loadTools(ctx); err != nil {
		return err
	}

	if err := d.writeConfig(cfg.Listen); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.shop.Serve(shopLn) })
	group.Go(func() error {
		defer d.shop.Close() // ends Serve; closing twice is fine
		link, err := d.furnish(ctx)
		if err != nil {
			return err
		}
		waiting, err := d.g.approvals.Queue(ctx, tenant, "", 1)
		if err != nil {
			return err
		}
		d.print(port, moved, link, len(waiting.Operations) > 0)
		d.live.start()
		return d.g.serve(ctx, []door{{ln: ln}})
	})
	return group.Wait()
}

// config is the demo's configuration, as a file would say it.
func (d *demo) config(port int) Config {
	cfg := defaultConfig()
	cfg.Listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cfg.Data = d.data
	cfg.Log.Level = "warn"
	cfg.Upstreams = map[string]Upstream{"shop": {
		URL:      d.env.shopURL(),
		Auth:     &Auth{Bearer: "env:DEMO_SHOP_KEY"},
		ReadAuth: &Auth{Bearer: "env:DEMO_SHOP_READ_KEY"},
		Allow:    []string{d.env.shopAddr()},
	}}
	return cfg
}

// demoConfig, in the data folder, lets the other commands find the demo.
const demoConfig = "demo.yaml"

func (d *demo) writeConfig(listen string) error {
	text := "# The running demo, for commands such as: countersign operator create NAME -c data/demo.yaml\ndata: .\nlisten: " + listen + "\n"
	return os.WriteFile(filepath.Join(d.data, demoConfig), []byte(text), 0o600)
}

// furnish makes the demo's operator and agent, asks for one refund, and gives a
// fresh sign-in code.
func (d *demo) furnish(ctx context.Context) (code string, err error) {
	agent, err := d.g.identity.AdoptAgent(ctx, tenant, demoAgent, identity.BuiltinOwner, []string{identity.AllTools}, d.env.AgentKey)
	if err != nil {
		return "", err
	}
	op, code, err := d.g.identity.CreateOperator(ctx, tenant, demoOperator, []string{"finance", "support"})
	if fault.Is(err, fault.InvalidState) { // from an earlier start
		if op, err = d.g.identity.OperatorNamed(ctx, tenant, demoOperator); err == nil {
			code, err = d.g.identity.NewSetupLink(ctx, tenant, op.ID, 0)
		}
	}
	if err != nil {
		return "", err
	}
	return code, d.askForRefund(ctx, agent)
}

// askForRefund has one refund wait in the queue. Its key is fixed, so a restart
// adds none; when it was decided or has expired, what was said stands.
func (d *demo) askForRefund(ctx context.Context, agent identity.Agent) error {
	res, err := d.g.previews.Preview(ctx, preview.Request{
		Agent: agent, Tool: "refund_payment", RequestID: "demo",
		Args: map[string]any{"case": "demo-1", "payment_id": "pay_a1", "amount": json.Number("12000")},
	})
	switch {
	case fault.Is(err, fault.RejectedBefore), fault.Is(err, fault.ToolRefused):
		return nil
	case err != nil:
		return fmt.Errorf("asking for the demo's refund: %w", err)
	case res.Token == "":
		return nil
	}
	_, err = d.g.commits.Commit(ctx, commit.Request{Agent: agent, Tool: "refund_payment", Token: res.Token, RequestID: "demo"})
	return err
}

// startOver removes what the demo keeps, and nothing else.
func (d *demo) startOver() error {
	if _, err := os.Stat(filepath.Join(d.data, "demo.env")); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(d.data, "ledger.db")); err == nil {
			return fmt.Errorf("%s holds a ledger that is not the demo's; nothing was removed", d.data)
		}
		return nil
	}
	for _, name := range []string{
		ledgerFile, ledgerFile + "-wal", ledgerFile + "-shm", ledgerFile + ".lock", "signing-keys.json", "signing-keys.json.lock", "redact.key",
		adminSocket, "spool", "shop", demoConfig, "demo.env",
	} {
		if err := os.RemoveAll(filepath.Join(d.data, name)); err != nil {
			return err
		}
	}
	return nil
}

// listenFrom listens on the first free port from the wanted one on.
func listenFrom(port int) (ln net.Listener, moved bool, err error) {
	for p := port; p < port+100; p++ {
		if p == demoShopPort && port != demoShopPort {
			continue // the shop's
		}
		ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			return ln, p != port, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, false, err
		}
	}
	return nil, false, err
}

// describeOperation puts a state in the words of the demo's live lines.
func describeOperation(op ledger.Operation) string {
	text := op.ID + " " + string(op.State)
	if op.EffectID != "" {
		text += " (" + op.EffectID + ")"
	}
	return text
}

// effectsText counts predicted effects.
func effectsText(effects []tools.Effect) string {
	if len(effects) == 1 {
		return "1 effect predicted"
	}
	return fmt.Sprintf("%d effects predicted", len(effects))
}
