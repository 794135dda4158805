package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"countersign/audit"
)

func receiptCommand(p *program) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "receipt OPERATION",
		Short: "Get the signed receipt of an operation",
		Long: `Get the signed receipt of an operation that has ended: who asked, what was shown,
who decided, what was sent, what is proven, and where it stands in the ledger. It is
a JWS (RFC 7515) in one line, and can be verified on any machine. Arguments are in
it as a digest only.`,
		Example: "  countersign receipt op_06f3k2m8q1v7x9z4c5b6n7m8q9 -o receipt.jws",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withLedger(cmd.Context(), func(a *admin) error {
				var got issued
				if err := a.call(cmd.Context(), http.MethodGet, "/receipts/"+escape(args[0]), nil, &got); err != nil {
					return err
				}
				if out == "" {
					_, err := fmt.Fprintln(p.stdout, got.Token)
					return err
				}
				if err := newFile(out, got.Token+"\n"); err != nil {
					return err
				}
				p.note("the receipt is in %s; keep the published keys with it (countersign keys published)", out)
				return p.answer(got.Receipt, func(w io.Writer) { receiptRows(w, got.Receipt) })
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write, which must not be there yet; else it goes to stdout")
	cmd.AddCommand(receiptVerifyCommand(p))
	return cmd
}

// newFile writes a file that is not there yet, for its owner only.
func newFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func receiptVerifyCommand(p *program) *cobra.Command {
	var jwks []string
	cmd := &cobra.Command{
		Use:   "verify FILE --jwks FILE",
		Short: "Check a receipt, on any machine",
		Long: `Check that a receipt is what one of the published keys signed, and show it. It needs
no gateway and no network. Exit status 1 when it is not.`,
		Example: "  countersign receipt verify receipt.jws --jwks jwks.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := readKeys(jwks)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			receipt, kid, err := audit.VerifyReceipt(keys, strings.TrimSpace(string(text)))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return p.answer(receipt, func(w io.Writer) {
				row(w, "signed by", kid)
				receiptRows(w, receipt)
			})
		},
	}
	cmd.Flags().StringArrayVar(&jwks, "jwks", nil, "file with the published keys; may be given again for older sets")
	mustHave(cmd, "jwks")
	return cmd
}

func receiptRows(w io.Writer, r audit.Receipt) {
	row(w, "ledger", safe(r.Ledger))
	row(w, "operation", safe(r.Operation))
	row(w, "state", string(r.State)+", since "+when(r.Final))
	row(w, "what", safe(r.Shown.Headline))
	row(w, "tool", safe(r.Tool)+" "+safe(r.Version))
	row(w, "key", fmt.Sprintf("%s, generation %d", safe(r.Key), r.Generation))
	row(w, "asked by", fmt.Sprintf("agent %s (%s) of %s, %s", safe(r.Asked.Agent.Name), safe(r.Asked.Agent.ID), safe(r.Asked.Agent.Owner), when(r.Asked.At)))
	row(w, "rule", safe(r.Shown.Rule))
	for _, d := range r.Decisions {
		row(w, "decided", fmt.Sprintf("%s by %s (%s), round %d, %s", d.Word, safe(d.Name), safe(d.Person), d.Round, when(d.At)))
	}
	row(w, "sent", fmt.Sprintf("%s, attempts %d", orDash(safe(r.Sent.Target)), len(r.Sent.Attempts)))
	row(w, "effect", orDash(safe(r.Proven.EffectID)))
	for _, e := range r.Proven.Evidence {
		row(w, "evidence", fmt.Sprintf("%s: %s, %s", safe(e.Kind), e.Verdict, when(e.At)))
	}
	covered := "no checkpoint covers it yet"
	if c := r.Chain.Checkpoint; c != nil {
		covered = fmt.Sprintf("covered by checkpoint %d of %s", c.N, when(c.At))
	}
	row(w, "chain", fmt.Sprintf("event %d, %s; %s", r.Chain.Seq, safe(r.Chain.Hash), covered))
	row(w, "issued", when(r.IssuedAt))
}
