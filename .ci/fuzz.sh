#!/bin/sh
# Runs every fuzz target of the root module for a while, one after another.
#
#   .ci/fuzz.sh [TIME]   for each target; 30s when not said
set -eu
cd "$(dirname "$0")/.."
time=${1:-30s}
found=0
status=0
for file in $(find . -name '*_test.go' -not -path './.ci/*' -exec grep -l '^func Fuzz' {} + | LC_ALL=C sort); do
	# shellcheck disable=SC2013 # names have no spaces, and status must outlive the loop
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		found=1
		echo "== $target in $(dirname "$file"), $time"
		(cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .) || status=1
	done
done
[ $found -eq 1 ] || echo "no fuzz targets"
exit $status
