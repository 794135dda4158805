package main

import (
	"errors"

	"github.com/spf13/cobra"

	"countersign/tools"
)

func schemaCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "schema config|manifest",
		Short: "Print the JSON Schema of the configuration or of manifests",
		Long: `Print the JSON Schema (draft 2020-12) of the configuration file or of manifests.
Editors complete and check with it; a first line such as

  # yaml-language-server: $schema=countersign.schema.json

tells them where it is.`,
		Example:   "  countersign schema manifest > manifest.schema.json",
		ValidArgs: []string{"config", "manifest"},
		Args:      cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, ok := map[string][]byte{"config": configSchema, "manifest": tools.ManifestSchema}[args[0]]
			if !ok {
				return errors.New("there is a schema of config and one of manifest")
			}
			_, err := p.stdout.Write(text)
			return err
		},
	}
}
