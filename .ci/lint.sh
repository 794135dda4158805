#!/bin/sh
# Everything that can be said against the sources without running them. Goes on
# after a finding, so that one run tells them all; exits 1 when there was any.
# shellcheck disable=SC2317 # the checks are called by name
set -eu
cd "$(dirname "$0")/.."
.ci/packages.sh npm shellcheck
.ci/tools.sh
bin=$PWD/.ci/tmp/bin
export CGO_ENABLED=0
# The tests in a real browser are read too.
export GOFLAGS=-tags=browser

status=0
# check NAME COMMAND...: a command that fails is a finding.
check() {
	name=$1
	shift
	if "$@"; then
		echo "ok    $name"
	else
		echo "FAIL  $name"
		status=1
	fi
}

formatted() {
	bad=$("$bin/gofumpt" -l .) || return 1
	[ -z "$bad" ] || {
		echo "not formatted (run: make format):"
		echo "$bad"
		return 1
	}
}

# in_modules COMMAND...: in the root and in every nested module.
in_modules() {
	for mod in $(.ci/modules.sh); do
		(cd "$mod" && "$@") || return 1
	done
}

contract() {
	REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true NO_COLOR=1 \
		.ci/node.sh .ci/node_modules/@redocly/cli/bin/cli.js lint --config .ci/redocly.yaml openapi.yaml >.ci/tmp/redocly.log 2>&1 || {
		cat .ci/tmp/redocly.log
		return 1
	}
}

rules() {
	go test -count=1 -run '^TestHouse' . >.ci/tmp/rules.log 2>&1 || {
		cat .ci/tmp/rules.log
		return 1
	}
}

check gofumpt formatted
check "go vet" in_modules go vet ./...
check staticcheck in_modules "$bin/staticcheck" ./...
check "redocly lint openapi.yaml" contract
check shellcheck shellcheck -x .ci/run .ci/*.sh
# The rules of the house are Go tests: sizes, names, imports, clocks, skips, sums.
check "house rules" rules
exit $status
