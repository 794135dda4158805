// Package countersign is the root of the module: what every part agrees on, and
// where to begin reading.
//
// What lives here: OpenAPI, the contract of the HTTP surface as it was built in,
// and Version.
//
// How it flows: openapi.yaml is written first; api's server types are generated
// from it, its tests hold every answer against it, and a running gateway serves
// these same bytes. Reading goes best from the words down: docs/architecture.md
// for the house, package ledger for the states, package tools for what a tool is,
// then preview and commit, the two phases; cmd/countersign wires them together.
//
// What does not live here: anything that runs. The package imports nothing of
// this module, so that every other one may import it.
package countersign

import _ "embed"

// OpenAPI is the document openapi.yaml (OpenAPI 3.1), byte for byte. Treat it as
// read-only.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Version names this build: a tag, a commit, or "dev" outside of `make build`,
// which sets it by -ldflags "-X countersign.Version=…". It is never changed at run
// time.
var Version = "dev"
