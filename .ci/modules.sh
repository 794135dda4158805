#!/bin/sh
# Prints the folders of this repository's Go modules, the root first, one a line.
set -eu
cd "$(dirname "$0")/.."
find . -name node_modules -prune -o -path ./.ci/tmp -prune -o -path ./data -prune -o -path ./.git -prune -o \
	-name go.mod -print | sed 's|/go\.mod$||' | LC_ALL=C sort
