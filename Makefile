# Go and make are all that build, run and quick need. `make` alone tells the targets.
# Written for GNU make 3.81, the make of macOS.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME = 30s
# Pictures of every page go here.
SHOTS = $(CURDIR)/.ci/tmp/shots

.DEFAULT_GOAL := help
.PHONY: help build run quick test lint format generate verify fuzz chaos shots clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | while read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

build: ## build bin/countersign, one static file
	@printf 'building bin/countersign (first time some minutes, then seconds) ... '
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X countersign.Version=$(VERSION)' -o bin/countersign ./cmd/countersign
	@echo done

run: build ## build, then start the demo on localhost; Ctrl-C ends it, ./data keeps its ledger
	@exec bin/countersign demo $(ARGS)

quick: ## under a minute, for daily use: vet, and the tests that need no server
	@CGO_ENABLED=0 go vet ./...
	@CGO_ENABLED=0 go test -short ./...

test: ## everything, as CI does; installs what it needs, or says how
	@.ci/test.sh

lint: ## all that can be said against the sources without running them
	@.ci/lint.sh

format: ## gofumpt over all Go files
	@.ci/tools.sh go
	@.ci/tmp/bin/gofumpt -l -w .

generate: ## make the generated code again from openapi.yaml
	@.ci/generate.sh

verify: ## fail if the generated code is not what generate would write
	@.ci/generate.sh --check

fuzz: ## every fuzz target for FUZZTIME each
	@.ci/fuzz.sh $(FUZZTIME)

chaos: ## the long table of the fault harness, hours; PARTS="kills cuts" runs some, KILLS=300 fewer
	@.ci/chaos.sh $(PARTS)

shots: ## pictures of every page, both themes and widths, into SHOTS (needs Chromium)
	@.ci/shots.sh "$(SHOTS)"

clean: ## remove what was built; ./data stays
	rm -rf bin .ci/tmp
