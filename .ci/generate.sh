#!/bin/sh
# Makes the generated code again from openapi.yaml, by every api/oapi-codegen*.yaml.
#
#   .ci/generate.sh           writes the files that the configurations name
#   .ci/generate.sh --check   writes nothing; exits 1 and shows the difference when one is stale
set -eu
cd "$(dirname "$0")/.."
.ci/tools.sh go

status=0
for config in api/oapi-codegen*.yaml; do
	[ -f "$config" ] || continue
	target=$(sed -n 's/^output:[[:space:]]*//p' "$config" | tr -d "\"'")
	if [ -z "$target" ]; then
		echo "$config: names no output" >&2
		exit 1
	fi
	if [ "${1:-}" = --check ]; then
		# The configuration's output wins over -o, so this one names another.
		fresh=.ci/tmp/$(basename "$target")
		sed "s|^output:.*|output: $fresh|" "$config" >.ci/tmp/oapi-codegen.yaml
		.ci/tmp/bin/oapi-codegen -config .ci/tmp/oapi-codegen.yaml openapi.yaml
		if ! diff -u "$target" "$fresh"; then
			echo "$target is not what openapi.yaml and $config make (run: make generate)" >&2
			status=1
		fi
		rm -f "$fresh"
	else
		.ci/tmp/bin/oapi-codegen -config "$config" openapi.yaml
		echo "$target"
	fi
done
exit $status
