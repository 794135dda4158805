#!/bin/sh
# Runs every fuzz target of the root module for a while, one after another; each
# uses all cores.
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
		found=$((found + 1))
		dir=$(dirname "$file")
		if out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" 2>&1); then
			# The last report of how much was tried.
			echo "   $target in $dir: $(echo "$out" | sed -n 's/.*\(execs: [0-9]*\).*/\1/p' | tail -n 1)"
		else
			echo "$out"
			status=1
		fi
	done
done
echo "   $found fuzz targets, $time each"
[ "$found" -gt 0 ] || status=1
exit $status
