#!/bin/sh
# Runs a script on the Node that package-lock.json pins, never on the
# distribution's. Where npm has no such Node (macOS) it takes the installed one,
# if that is new enough.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for node in "$here"/node_modules/node-linux-*/bin/node; do
	[ -x "$node" ] && exec "$node" "$@"
done
if [ "$(uname -s)" != Linux ] && command -v node >/dev/null 2>&1; then
	major=$(node -p 'process.versions.node.split(".")[0]')
	if [ "$major" -ge 24 ]; then
		exec node "$@"
	fi
fi
echo "the pinned Node is missing: run .ci/tools.sh node (elsewhere than on Linux: install Node 24 or newer)" >&2
exit 2
