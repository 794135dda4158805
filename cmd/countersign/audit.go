package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/audit"
	"countersign/tokens"
)

func auditCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "audit",
		Short: "Prove what the ledger says",
		Long: `Prove what the ledger says. The gateway signs a checkpoint over everything new,
every minute or 1000 events, and hands it to the anchors of the configuration. An
export can be verified on any machine, without the gateway: see docs/audit.md.`,
	}, auditExportCommand(p), auditVerifyCommand(p), auditSealCommand(p))
}

func auditExportCommand(p *program) *cobra.Command {
	var out, since string
	var plans bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write everything that can be proven to a file",
		Long: `Write everything that can be proven to a file: guard rows, events, checkpoints,
operations, decisions and evidence, one JSON object a line, as they stand at one
moment. A gateway may run meanwhile. Arguments of calls stand only in plans, which
are left out unless asked for, and then redacted.

A file that is there is not replaced. Without -o the export goes to stdout.`,
		Example: "  countersign audit export -o audit.jsonl && countersign audit verify audit.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wish := exportWish{Plans: plans}
			if since != "" {
				var err error
				if wish.Since, err = parseSince(since); err != nil {
					return err
				}
			}
			return p.export(cmd.Context(), wish, out)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write, readable by its owner only")
	cmd.Flags().StringVar(&since, "since", "", "begin at the checkpoint before this time: 2026-03-01, or 2026-03-01T12:00:00Z")
	cmd.Flags().BoolVar(&plans, "plans", false, "also the plans, with sensitive arguments redacted")
	return cmd
}

func parseSince(text string) (time.Time, error) {
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since is a day like 2026-03-01 or a time like 2026-03-01T12:00:00Z, not %q", text)
}

// export writes an export to a file that is not there yet, or to stdout.
func (p *program) export(ctx context.Context, wish exportWish, out string) error {
	if out == "" || out == "-" {
		return p.exportTo(ctx, wish, p.stdout)
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = p.exportTo(ctx, wish, f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(out) // what is not whole is no export
		return err
	}
	p.note("exported to %s", out)
	return nil
}

// exportTo asks the gateway that runs, or reads the ledger here.
func (p *program) exportTo(ctx context.Context, wish exportWish, w io.Writer) error {
	return p.withLedger(ctx, func(a *admin) error {
		if a.here != nil {
			return a.here.export(ctx, w, wish)
		}
		query := url.Values{"plans": {strconv.FormatBool(wish.Plans)}}
		if !wish.Since.IsZero() {
			query.Set("since", wish.Since.UTC().Format(time.RFC3339))
		}
		return a.stream(ctx, "/audit/export?"+query.Encode(), w)
	})
}

// withLedger reaches the gateway that runs, or opens the ledger here, also one that
// its anchors contradict: it is looked at, and nothing is sent.
func (p *program) withLedger(ctx context.Context, do func(*admin) error) error {
	cfg, err := p.config()
	if err != nil {
		return err
	}
	env := p.quiet(cfg)
	env.anchors = unchecked
	a, err := openAdmin(ctx, cfg, env)
	if err != nil {
		return err
	}
	defer a.close()
	return do(a)
}

// stream copies an answer of the admin door.
func (a *admin) stream(ctx context.Context, path string, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+path, nil)
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
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("the export broke off; the gateway's log says why: %w", err)
	}
	return nil
}

func auditVerifyCommand(p *program) *cobra.Command {
	var jwks []string
	var anchor string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check an export, on any machine",
		Long: `Check an export without the gateway and without a network: that no entry was
altered, removed, doubled or put in another order, that nothing was cut off, that
every move is one that the table of states allows, and who signed it.

Give --jwks with the keys that the gateway published (countersign keys published,
or /.well-known/jwks.json), from a place that you trust: else the keys are taken
from the export, which shows damage and not a forger. Give --anchor with what an
anchor has kept: only that shows a ledger that was put back or rewritten whole.

Exit status 0 when everything is as it was written, 1 when not. FILE - is stdin.`,
		Example: "  countersign audit verify audit.jsonl --jwks jwks.json --anchor anchor.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o := audit.VerifyOptions{}
			var err error
			if o.Keys, err = readKeys(jwks); err != nil {
				return err
			}
			if anchor != "" {
				if o.Anchor, err = readAnchor(anchor); err != nil {
					return err
				}
			}
			return p.verify(args[0], o)
		},
	}
	cmd.Flags().StringArrayVar(&jwks, "jwks", nil, "file with the published keys; may be given again for older sets")
	cmd.Flags().StringVar(&anchor, "anchor", "", "file of an anchor")
	return cmd
}

// readKeys reads key sets into one; nil when none is named.
func readKeys(files []string) (tokens.PublicKeys, error) {
	if len(files) == 0 {
		return nil, nil
	}
	all := tokens.PublicKeys{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set, err := tokens.ParseJWKS(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		maps.Copy(all, set)
	}
	return all, nil
}

func readAnchor(file string) ([]audit.Record, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := audit.ReadAnchor(f)
	if err == nil && len(records) == 0 {
		err = errors.New("there is no record in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return records, nil
}

func (p *program) verify(file string, o audit.VerifyOptions) error {
	in := p.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	report, err := audit.Verify(bufio.NewReader(in), o)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if report.Findings == nil {
		report.Findings = []audit.Finding{}
	}
	if err := p.answer(report, func(w io.Writer) { reportRows(w, report) }); err != nil {
		return err
	}
	if !report.OK {
		return exitError{exitFailure}
	}
	return nil
}

func reportRows(w io.Writer, r audit.Report) {
	row(w, "ledger", safe(r.Ledger))
	row(w, "exported", when(r.MadeAt))
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		row(w, kind+" lines", fmt.Sprint(r.Counts[kind]))
	}
	row(w, "sealed", fmt.Sprintf("checkpoint %d, up to event %d of %d", r.Sealed.N, r.Sealed.Seq, r.Newest))
	if r.Anchored != nil {
		row(w, "anchored", fmt.Sprintf("checkpoint %d, up to event %d", r.Anchored.N, r.Anchored.Seq))
	}
	if r.Covered > 0 {
		row(w, "keys", fmt.Sprintf("%d checkpoints of keys that are not published any more, covered by the hash of a later one", r.Covered))
	}
	for _, n := range r.Notes {
		row(w, "note", safe(n))
	}
	first, bad := r.First()
	if !bad {
		row(w, "verdict", "everything is as it was written")
		return
	}
	row(w, "verdict", "NOT as it was written")
	row(w, "first", safe(first.String()))
	for _, f := range r.Findings[1:] {
		row(w, "also", safe(f.String()))
	}
	if r.More > 0 {
		row(w, "also", fmt.Sprintf("%d more", r.More))
	}
}

func auditSealCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "seal",
		Short: "Make a checkpoint now and anchor it",
		Long: `Make a checkpoint now, over everything that none covers yet, and hand the anchors
what they lack. Exit status 1 when an anchor could not be reached.`,
		Example: "  countersign audit seal",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done sealed
			if err := p.ask(cmd.Context(), http.MethodPost, "/audit/seal", nil, &done); err != nil {
				return err
			}
			failing := slices.ContainsFunc(done.Anchors, func(a anchorState) bool { return a.Error != "" })
			err := p.answer(done, func(w io.Writer) {
				row(w, "checkpoint", fmt.Sprintf("%d, up to event %d, %s", done.Checkpoint.N, done.Checkpoint.Seq, when(done.Checkpoint.At)))
				row(w, "made now", strconv.Itoa(done.Made))
				for _, a := range done.Anchors {
					row(w, "anchor", strings.TrimSuffix(fmt.Sprintf("%s: up to %d; %s", a.Name, a.Anchored, safe(a.Error)), "; "))
				}
			})
			if err == nil && failing {
				err = exitError{exitFailure}
			}
			return err
		},
	}
}
