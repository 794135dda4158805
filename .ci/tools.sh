#!/bin/sh
# Builds and installs the tools of the build, at the versions pinned here, into
# .ci/tmp/bin and .ci/node_modules. Quick when nothing has changed.
#
#   .ci/tools.sh [go] [node]   both when none is named
set -eu
cd "$(dirname "$0")"

go_tools() {
	mkdir -p tmp/bin
	# The tools are for this machine, whatever the caller builds for.
	(cd tools && env -u GOOS -u GOARCH CGO_ENABLED=0 go build -buildvcs=false -o ../tmp/bin/ tool ./cmd/...)
}

# npm, whose ever it is, only fetches: what it fetched runs on the Node of .ci/node.sh.
node_tools() {
	if cmp -s package-lock.json node_modules/.installed; then
		return
	fi
	command -v npm >/dev/null 2>&1 || {
		echo "npm is missing; make test installs it, or says how" >&2
		exit 2
	}
	npm ci --silent </dev/null
	cp package-lock.json node_modules/.installed
}

case "${*:-go node}" in *go*) go_tools ;; esac
case "${*:-go node}" in *node*) node_tools ;; esac
