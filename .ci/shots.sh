#!/bin/sh
# Leaves pictures of every page of the operator's site in a folder. The browser
# tests take them when COUNTERSIGN_SHOTS names it.
#
#   .ci/shots.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
.ci/packages.sh chromium fonts-liberation npm
mkdir -p "$1"
COUNTERSIGN_SHOTS=$(cd "$1" && pwd)
export COUNTERSIGN_SHOTS
rm -f "$COUNTERSIGN_SHOTS"/*.png
.ci/tools.sh node
CGO_ENABLED=0 go test -tags browser -count=1 -run Shots ./web/...
ls "$COUNTERSIGN_SHOTS"/*.png
