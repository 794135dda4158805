package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"countersign/tokens"
)

// keyFile holds the signing keys, in the data folder.
const keyFile = "signing-keys.json"

func keysCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "keys",
		Short: "The keys that sign commit tokens",
		Long: `The keys that sign commit tokens. The gateway makes them, keeps them in
data/signing-keys.json (0600), and publishes their public halves at
/.well-known/jwks.json.`,
	}, keysRotateCommand(p), keysListCommand(p), keysPublishedCommand(p))
}

func keysRotateCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Sign with a new key from now on",
		Long: `Sign with a new key from now on. Tokens of the old key stay good until they
expire, and are answered with the first result for as long as outcomes are kept
(tokens.retention). The old key's secret half is removed from the file.`,
		Example: "  countersign keys rotate && countersign keys list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var made struct {
				ID string `json:"kid"`
			}
			if err := p.ask(cmd.Context(), http.MethodPost, "/keys/rotate", nil, &made); err != nil {
				return err
			}
			return p.answer(made, func(w io.Writer) { row(w, "signing with", made.ID) })
		},
	}
}

func keysPublishedCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "published",
		Short: "Print the published keys",
		Long: `Print the published keys as a JWK set, retired ones included: what is also at
/.well-known/jwks.json. Keep it with receipts and exports; they are verified with
it, long after the keys are gone from here.`,
		Example: "  countersign keys published > jwks.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var set json.RawMessage
			if err := p.ask(cmd.Context(), http.MethodGet, "/keys/published", nil, &set); err != nil {
				return err
			}
			_, err := fmt.Fprintf(p.stdout, "%s\n", set)
			return err
		},
	}
}

func keysListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys and what each is good for",
		Long: `List the keys, the newest first. active: signs. previous: its tokens still open
operations, for 15 minutes at most. retired: its tokens are answered with the
first result, and open nothing.`,
		Example: "  countersign keys list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []tokens.KeyInfo
			if err := p.ask(cmd.Context(), http.MethodGet, "/keys", nil, &list); err != nil {
				return err
			}
			return p.answer(list, func(w io.Writer) {
				row(w, "KEY", "STATE", "CREATED", "STOPPED SIGNING", "VERIFIES UNTIL")
				for _, k := range list {
					row(w, k.ID, k.State, when(k.CreatedAt), when(k.RetiredAt), when(k.VerifiesUntil))
				}
			})
		},
	}
}
