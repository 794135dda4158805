#!/bin/sh
# Makes the browser assets under web/static/vendor again from their npm packages.
#
#   .ci/vendor.sh          fetch, build, compare; changes nothing, exits 1 on a difference
#   .ci/vendor.sh --write  the same, then put the files in place (a new version: change
#                          the lines below, run this, correct the tables in
#                          web/static/vendor/README.md and NOTICES.md)
#
# Needs npm. Every package is checked against the sha256 written here before
# anything of it is used.
set -eu
cd "$(dirname "$0")/.."

htmx=4.0.1
pico=2.1.1
scalar=1.72.1
lucide=1.62.0
icons="check x clock shield-alert alert-triangle rotate-ccw list wrench inbox circle-help
	user log-out copy snowflake search chevron-right"

out=web/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

digest() {
	if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

# fetch NAME VERSION SHA256: unpacks the package into $work/NAME, slashes made dashes.
fetch() {
	tarball=$(cd "$work" && npm pack --silent "$1@$2")
	got=$(digest <"$work/$tarball")
	if [ "$got" != "$3" ]; then
		echo "$1@$2: sha256 is $got, expected $3" >&2
		exit 1
	fi
	folder=$work/$(printf '%s' "$1" | tr -d @ | tr / -)
	mkdir "$folder"
	tar -xzf "$work/$tarball" -C "$folder" --strip-components 1
}

fetch htmx.org "$htmx" 5fba65616ca148a86d377e9771bcada7f35faee3558651feb929eea425e13b3c
fetch @picocss/pico "$pico" 4affbb56f49df6d5325610b06762156f1dcdbc6ef57cea5c136d7e8a00a8cd24
fetch @scalar/api-reference "$scalar" b86884e6251eed57234f1a62732a5e6303700a5b4d159192a5a5dd003b854378
fetch lucide-static "$lucide" 386f9080c440d6f5049cefe3456ae8357f7a0c7f76e59670cd1cb83bc7050a44
mkdir "$work/out"

# htmx and its server-sent events extension in one file, htmx first: loaded apart
# and deferred, htmx 4 sometimes starts before the extension has registered and
# the live connection never opens.
{
	echo "/* htmx.org $htmx, 0BSD: dist/htmx.min.js, then dist/ext/hx-sse.min.js. Load without defer. */"
	cat "$work/htmx.org/dist/htmx.min.js"
	echo
	cat "$work/htmx.org/dist/ext/hx-sse.min.js"
	echo
} >"$work/out/htmx-sse-$htmx.min.js"

cp "$work/picocss-pico/css/pico.min.css" "$work/out/pico-$pico.min.css"

gzip -9 -n -c "$work/scalar-api-reference/dist/browser/standalone.js" \
	>"$work/out/scalar-api-reference-$scalar.standalone.js.gz"

# The icons as one sprite. The pictures keep their package names as ids; colour
# comes from currentColor, so that they follow the text in both themes.
{
	echo "<!-- Icons of lucide-static $lucide, ISC and MIT: see NOTICES.md. Made by .ci/vendor.sh. -->"
	echo '<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0" aria-hidden="true">'
	for icon in $icons; do
		printf '<symbol id="%s" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">' "$icon"
		# What stands between the opening tag, which ends on a line of its own, and </svg>.
		sed -e '1,/^>$/d' -e '/^<\/svg>/d' -e 's/^ *//' "$work/lucide-static/icons/$icon.svg" | tr -d '\n'
		echo '</symbol>'
	done
	echo '</svg>'
} >"$work/out/icons.svg"

status=0
for file in "$work"/out/*; do
	name=$(basename "$file")
	# gzip's bytes differ between its versions: what is packed must be the same.
	case $name in
	*.gz) unpack="gzip -dc" ;;
	*) unpack="cat" ;;
	esac
	if [ -f "$out/$name" ] && [ "$($unpack <"$file" | digest)" = "$($unpack <"$out/$name" | digest)" ]; then
		echo "same     $name"
	elif [ "${1:-}" = --write ]; then
		cp "$file" "$out/$name"
		echo "written  $name  $(digest <"$out/$name")"
	else
		echo "DIFFERS  $name"
		status=1
	fi
done
exit $status
