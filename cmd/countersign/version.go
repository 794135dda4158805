package main

import (
	"io"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"countersign/strictjson"
)

func versionCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is, and of what it is made",
		Long: `Say which version this is: of the program, of the Go that built it, of the
ledger's schema, and of the canonical JSON behind every digest.`,
		Example: "  countersign version --output json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version   string `json:"version"`
				Go        string `json:"go"`
				Platform  string `json:"platform"`
				Schema    int64  `json:"schema_version"`
				Canonical string `json:"canonical_json"`
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, schemaVersion(), strictjson.CanonicalVersion}
			return p.answer(v, func(w io.Writer) {
				row(w, "countersign", v.Version)
				row(w, "go", v.Go+" "+v.Platform)
				row(w, "ledger schema", strconv.FormatInt(v.Schema, 10))
				row(w, "canonical JSON", v.Canonical)
			})
		},
	}
}
