package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/identity"
)

func doctorCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look whether everything is as it should be",
		Long: `Look whether everything is as it should be, with a gateway running or not: the
configuration, the data folder and who may read it, who holds the ledger and
whether it is durable, the anchors of a running gateway, the clock, the signing
keys, secrets, tools, upstreams (it connects and hangs up, and asks nothing), the
public address, certificates, disk.

It changes nothing. Each line says ok, warn or FAIL, and what to do about it. Exit
status 1 when a line says FAIL.`,
		Example: "  countersign doctor -c countersign.yaml --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &doctor{program: p}
			d.examine(cmd.Context())
			return d.report()
		},
	}
}

// Verdicts of a finding.
const (
	isOK   = "ok"
	isWarn = "warn"
	isFail = "FAIL"
)

// finding is one line of the doctor.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	ToDo   string `json:"todo,omitempty"`
}

// doctor examines one configuration.
type doctor struct {
	*program
	cfg  Config
	data string
	// running is the gateway that has the ledger; nil when none answers.
	running *status
	found   []finding
}

func (d *doctor) ok(check, format string, args ...any) {
	d.found = append(d.found, finding{check, isOK, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, todo, format string, args ...any) {
	d.found = append(d.found, finding{check, isWarn, fmt.Sprintf(format, args...), todo})
}

func (d *doctor) fail(check, todo, format string, args ...any) {
	d.found = append(d.found, finding{check, isFail, fmt.Sprintf(format, args...), todo})
}

// examine makes every check. Without a configuration there is nothing to check.
func (d *doctor) examine(ctx context.Context) {
	cfg, err := d.config()
	if err != nil {
		d.fail("configuration", "Correct what is named. docs/config.md describes each key.", "%v", err)
		return
	}
	d.cfg, d.data = cfg, cfg.path(cfg.Data)
	d.ok("configuration", "it can be read, and holds together")
	d.checkFolder()
	d.checkGateway(ctx)
	d.checkClock()
	d.checkKeys()
	d.checkSecrets()
	d.checkTools()
	d.checkUpstreams(ctx)
	d.checkCertificate()
	d.checkPublicURL(ctx)
	d.checkDisk()
}

func (d *doctor) report() error {
	err := d.answer(d.found, func(w io.Writer) {
		for _, f := range d.found {
			row(w, f.Status, f.Check, strings.ReplaceAll(f.Detail, "\n", "\n\t\t"))
			if f.ToDo != "" {
				row(w, "", "", "-> "+f.ToDo)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, f := range d.found {
		if f.Status == isFail {
			return exitError{exitFailure}
		}
	}
	return nil
}

// privateFiles are those in the data folder that nobody else may read.
var privateFiles = []string{ledgerFile, ledgerFile + "-wal", ledgerFile + "-shm", ledgerFile + ".lock", keyFile, "redact.key", adminSocket, "demo.env"}

// checkFolder looks at the data folder and the modes of what is in it.
func (d *doctor) checkFolder() {
	info, err := os.Stat(d.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.warn("data folder", "serve makes it; init makes it with keys.", "%s is not there yet", d.data)
		return
	case err != nil:
		d.fail("data folder", "Run the gateway and its commands as the user who owns the folder.", "%v", err)
		return
	case !info.IsDir():
		d.fail("data folder", "Name a folder under data.", "%s is not a folder", d.data)
		return
	case info.Mode().Perm()&0o077 != 0:
		d.fail("data folder", "chmod 700 "+d.data, "%s is open to others (mode %04o)", d.data, info.Mode().Perm())
	default:
		d.ok("data folder", "%s, private", d.data)
	}
	open := 0
	for _, name := range privateFiles {
		path := filepath.Join(d.data, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			continue // not there, or as it should be
		}
		open++
		d.fail("file modes", "chmod 600 "+path+". If somebody else may have read it, replace what is in it.", "%s is open to others (mode %04o)", path, info.Mode().Perm())
	}
	if open == 0 {
		d.ok("file modes", "ledger, keys and socket are private")
	}
	if path := filepath.Join(d.data, adminSocket); len(path) > maxSocketPath {
		d.fail("admin socket", "Choose a data folder with a shorter path.", "%s is %d bytes long, and a socket's path can be %d", path, len(path), maxSocketPath)
	}
}

// maxSocketPath is what the smallest of the common systems takes.
const maxSocketPath = 103

// checkGateway finds out who has the ledger, and whether it is durable.
func (d *doctor) checkGateway(ctx context.Context) {
	running, err := dialAdmin(ctx, d.cfg)
	if err != nil {
		d.fail("gateway", "Run the command as that user.", "%v", err)
		return
	}
	if running != nil {
		defer running.close()
		var s status
		if err := running.call(ctx, http.MethodGet, "/status", nil, &s); err != nil {
			d.fail("gateway", "Look at its log.", "one runs, and does not say how it is: %v", err)
			return
		}
		d.running = &s
		if s.Version == version() {
			d.ok("gateway", "running as process %d, version %s", s.PID, s.Version)
		} else {
			d.warn("gateway", "Restart it when you mean to run this version.", "running as process %d, version %s; this program is %s", s.PID, s.Version, version())
		}
		d.ok("ledger", "open in the gateway, schema version %d, checked at its start to be durable (write-ahead log, flush at each commit)", s.Schema)
		d.checkPeople(ctx, running)
		d.checkAnchors(s.Anchors)
		return
	}
	d.ok("gateway", "none runs on this data folder")
	d.checkLedger(ctx)
}

// checkPeople looks whether each agent has somebody who may approve for it. Only
// a running gateway is asked: to open the ledger here would change it.
func (d *doctor) checkPeople(ctx context.Context, gateway *admin) {
	var people []operatorAnswer
	var agents []agentAnswer
	err := errors.Join(gateway.call(ctx, http.MethodGet, "/operators", nil, &people), gateway.call(ctx, http.MethodGet, "/agents", nil, &agents))
	if err != nil {
		d.fail("operators", "Look at the gateway's log.", "they can't be listed: %v", err)
		return
	}
	var enabled []identity.Operator
	for _, o := range people {
		if o.DisabledAt.IsZero() {
			enabled = append(enabled, o.Operator)
		}
	}
	var alone []string
	for _, a := range agents {
		if a.RevokedAt.IsZero() && !someoneBeside(a.Owner, enabled) {
			alone = append(alone, a.Name)
		}
	}
	if len(alone) > 0 {
		d.warn("operators", "Make another: countersign operator create NAME --group GROUP. Whoever owns an agent can't approve for it.",
			"nobody can approve what %s asks: there is no operator beside its owner", strings.Join(alone, ", "))
		return
	}
	d.ok("operators", "%s; each agent has one beside its owner", count(len(enabled), "operator"))
}

// checkLedger looks at a ledger that nobody has open.
func (d *doctor) checkLedger(ctx context.Context) {
	path := filepath.Join(d.data, ledgerFile)
	found, err := inspectLedger(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok("ledger", "not there yet; the first start makes it, schema version %d", schemaVersion())
	case inUse(err):
		d.fail("ledger", "Wait if it is just starting or stopping; else end that process.", "%s, and no gateway answers on the admin socket", plain(err))
	case err != nil:
		d.fail("ledger", "Start the version that wrote it, or restore a backup.", "%s", plain(err))
	case found.JournalMode != "wal":
		d.fail("ledger", "After a restore: countersign recover --restored (docs/audit.md). Else start the gateway, which switches it back, and find out who changed it.",
			"%s is kept in journal mode %s: it is a backup that was put back, or somebody else has opened it", path, found.JournalMode)
	case found.SchemaVersion < schemaVersion():
		d.warn("ledger", "Make a backup, then start the gateway, or run countersign migrate.", "schema version %d; this program brings it to %d", found.SchemaVersion, schemaVersion())
	default:
		d.ok("ledger", "%s, schema version %d, write-ahead log; each start checks that commits are flushed", size(found.Bytes), found.SchemaVersion)
	}
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
}

// firstRelease is before any clock on which this program can run.
var firstRelease = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// checkClock compares the clock with what was written earlier: one that goes
// back makes expired tokens valid again and valid ones future.
func (d *doctor) checkClock() {
	const slack = 2 * time.Second // of file systems' time stamps
	const todo = "Set the clock, and keep it by NTP. Expiry, leases and the order of the record hang on it."
	now := d.now()
	if now.Before(firstRelease) {
		d.fail("clock", todo, "it says %s", when(now))
		return
	}
	if d.running != nil {
		if off := now.Sub(d.running.Now).Abs(); off > time.Minute {
			d.fail("clock", todo, "this program and the gateway are %s apart", off.Round(time.Second))
			return
		}
	}
	for _, name := range []string{ledgerFile, ledgerFile + "-wal", keyFile} {
		info, err := os.Stat(filepath.Join(d.data, name))
		if err == nil && info.ModTime().After(now.Add(slack)) {
			d.fail("clock", todo, "it says %s, and %s was written at %s", when(now), name, when(info.ModTime()))
			return
		}
	}
	d.ok("clock", "%s, not behind what was written last", when(now))
}
