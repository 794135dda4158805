#!/bin/sh
# Installs what .ci/packages.txt names and this machine lacks: on Debian and its
# kin as root or with a sudo that asks nothing. Anywhere else it prints the exact
# command and exits 2.
#
#   .ci/packages.sh [PACKAGE...]   only these Debian packages; all when none is named
set -eu
cd "$(dirname "$0")/.."

# have PROBES: is one of the comma-separated commands or paths there?
have() {
	saved=$IFS
	IFS=,
	set -f
	# shellcheck disable=SC2086 # split at the commas
	set -- $1
	set +f
	IFS=$saved
	for probe in "$@"; do
		case $probe in
		/*) [ -e "$probe" ] && return 0 ;;
		*) command -v "$probe" >/dev/null 2>&1 && return 0 ;;
		esac
	done
	return 1
}

wanted=" $* "
debian=
brew=
tab=$(printf '\t')
while IFS=$tab read -r probes package cask; do
	case $probes in '' | '#'*) continue ;; esac
	case $wanted in '  ' | *" $package "*) ;; *) continue ;; esac
	if ! have "$probes"; then
		debian="$debian $package"
		brew="$brew${cask:+ $cask}"
	fi
done <.ci/packages.txt

[ -n "$debian" ] || exit 0

if [ "$(uname -s)" = Darwin ]; then
	echo "missing:$debian" >&2
	[ -z "$brew" ] || echo "install with:  brew install$brew" >&2
	case $debian in *" gcc"* | *" libc6-dev"*) echo "install with:  xcode-select --install" >&2 ;; esac
	exit 2
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "missing (Debian's names):$debian" >&2
	echo "install them with the package manager of this system, then try again" >&2
	exit 2
fi

if [ "$(id -u)" -eq 0 ]; then
	sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
	sudo="sudo -n"
else
	echo "missing:$debian" >&2
	echo "install with:  sudo apt-get update && sudo apt-get install --no-install-recommends$debian" >&2
	exit 2
fi

echo "installing:$debian"
log=.ci/tmp/packages.log
mkdir -p .ci/tmp
# shellcheck disable=SC2086 # lists of words
if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $debian; } >"$log" 2>&1 </dev/null; then
	tail -n 30 "$log" >&2
	echo "could not install:$debian" >&2
	exit 1
fi
