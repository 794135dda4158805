package shop

import "embed"

// Manifests holds the tool manifests of this folder, one YAML file a tool. The
// upstream that they name is "shop"; its URL and keys are the gateway's config.
//
//go:embed *.yaml
var Manifests embed.FS
