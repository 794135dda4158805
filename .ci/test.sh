#!/bin/sh
# Everything: installs what it needs, then lint, generated code, build, and all
# tests, the race detector on. What .ci/run and `make test` do.
#
# Stops at the first step that fails, but runs the tests of all modules even when
# those of one fail. The last line counts the tests of all.
# shellcheck disable=SC2317 # tests is called by name
set -eu
cd "$(dirname "$0")/.."
begin=$(date +%s)

command -v go >/dev/null 2>&1 || {
	echo "Go is missing: install the version that go.mod names, or a newer one" >&2
	exit 2
}

# step TITLE COMMAND...: a heading, the command, the time it took.
step() {
	title=$1
	shift
	start=$(date +%s)
	echo "== $title"
	code=0
	"$@" </dev/null || code=$?
	echo "   $title: $(($(date +%s) - start)) s"
	return $code
}

step "packages" .ci/packages.sh
step "tools" .ci/tools.sh
step "lint" .ci/lint.sh
step "generated code" .ci/generate.sh --check
step "build" make -s build

# tests CGO FOLDER PACKAGES FLAGS...: tests of one module. Lint has vetted every package.
# -count=1: a result of an earlier run is no test. The tests in a real browser have
# a build tag, so that a plain go test needs none.
tests() {
	cgo=$1
	mod=$2
	packages=$3
	shift 3
	CGO_ENABLED=$cgo .ci/tmp/bin/testsum -allow .ci/allowed-skips -sum .ci/tmp/totals -packages "$packages" \
		"$mod" -vet=off -tags browser -count=1 -timeout 20m "$@"
}

rm -f .ci/tmp/totals
failed=0
step "tests, race detector on" tests 1 . "$(go list ./... | grep -v '/harness')" -race || failed=1
# The harness is long and mostly one thing at a time; without the detector it meets
# ten times as many schedules.
export SIM_SEEDS=30000
step "harness" tests 0 . ./harness/... || failed=1
step "fuzzing, 15 s a target" .ci/fuzz.sh 15s || failed=1
# The other modules once, without the detector: what they link is mostly not ours.
for mod in $(.ci/modules.sh | grep -v '^\.$'); do
	step "tests of $mod" tests 0 "$mod" ./... || failed=1
done

echo "== $([ $failed -eq 0 ] && echo all good || echo FAILED): $(($(date +%s) - begin)) s in all"
cat .ci/tmp/totals || failed=1
exit $failed
