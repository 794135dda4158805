#!/bin/sh
# The long table of the fault harness. Each part runs alone and is judged alone: one
# that fails makes the whole fail, and the others still run.
#
#   .ci/chaos.sh [PART...]   schedules, pairs, kills, cuts, histories, planted; all when none is named
#   .ci/chaos.sh table       only prints the table of what was run last, part by part
#
# How much, by environment variables; *_FROM is the first seed:
#   SCHEDULES=1000000 SCHEDULES_FROM=1 CHUNK=50000   seeded schedules, a process for each chunk of seeds
#   PAIRS=                                           all pairs of faults in the scripts of this name; all twelve when empty
#   KILLS=10000       KILLS_FROM=1                   kills of the real program under load
#   POWERCUTS=10000   POWERCUTS_FROM=1               cuts of the power under the real store
#   HISTORIES=5000    HISTORIES_FROM=1               histories that are checked for linearizability
#   PLANTED=                                         planted bugs with this in their name; every one when empty
#
# .ci/tmp/chaos/ keeps for each part a line (PART.tsv), all that it said (PART.log), and
# the table (table.md).
# shellcheck disable=SC2317 # the parts are called by name
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
root=$PWD
out=$root/.ci/tmp/chaos
mkdir -p "$out"

every="schedules pairs kills cuts histories planted"
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
go=$(go env GOVERSION) cpus=$(getconf _NPROCESSORS_ONLN)

# run PART PACKAGE FLAGS...: one process of a package's tests, in its folder. What
# it says goes to the part's log.
run() {
	name=$1
	pkg=$2
	shift 2
	[ -x "$out/$name.test" ] || go test -vet=off -c -o "$out/$name.test" "./harness/$pkg" >>"$out/$name.log" 2>&1 || return 1
	(cd "harness/$pkg" && "$out/$name.test" -test.v -test.timeout 24h "$@") </dev/null >>"$out/$name.log" 2>&1
}

# said PART PATTERN: the sum of the number that \1 of a sed pattern finds in the log.
said() {
	sed -n "s/.*$2.*/\\1/p" "$out/$1.log" | awk '{ n += $1 } END { print n + 0 }'
}

# result PART WHAT COUNT SEEDS OPTIONS DUPLICATES LOST ILLEGAL AGAIN: the part's line.
result() {
	took=$(($(date +%s) - began))
	[ "$took" -gt 0 ] || took=1
	rate=$(awk -v n="$3" -v s="$took" 'BEGIN { r = n / s; printf (r < 10 ? "%.2f/s" : "%.0f/s"), r }')
	time=$(awk -v s="$took" 'BEGIN { printf "%d:%02d:%02d", s / 3600, s % 3600 / 60, s % 60 }')
	verdict=passed
	[ "$code" -eq 0 ] || verdict=FAILED
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$2" "$3" "$4" "$verdict" "$6" "$7" "$8" \
		"$time" "$rate" "$commit" "$5, $go, $cpus cores" "$(date -u +%Y-%m-%d)" "$9" >"$out/$1.tsv"
	printf '   %s: %s %s, seeds %s: %s in %s (%s); duplicates %s, lost %s, illegal %s\n' "$1" "$3" "$2" "$4" "$verdict" "$time" "$rate" "$6" "$7" "$8"
	echo "   again: $9"
}

# counts N: what a part found of a kind that ends it: nothing, or it failed and its
# log says what.
counts() {
	if [ "$code" -eq 0 ]; then echo 0; else echo "see log"; fi
}

schedules() {
	n=${SCHEDULES:-1000000} from=${SCHEDULES_FROM:-1} chunk=${CHUNK:-50000}
	at=$from end=$((from + n))
	while [ "$at" -lt "$end" ]; do
		size=$((end - at))
		[ "$size" -le "$chunk" ] || size=$chunk
		again="go test ./harness/sim -run '^TestSchedules\$' -sim.from $at -sim.seeds $size -timeout 24h -v"
		if run schedules sim -test.run '^TestSchedules$' -sim.seeds "$size" -sim.from "$at"; then
			echo "   seeds $at to $((at + size - 1)): passed"
		else
			code=1
			echo "   seeds $at to $((at + size - 1)): FAILED; again: $again"
		fi
		at=$((at + size))
	done
	zero=$(counts)
	result schedules "seeded schedules" "$n" "$from..$((end - 1))" "chunks of $chunk" "$zero" "$zero" "$zero" \
		"SCHEDULES=$n SCHEDULES_FROM=$from CHUNK=$chunk .ci/chaos.sh schedules"
}

pairs() {
	scripts=${PAIRS:-}
	run pairs sim -test.run "^TestSweepPairs\$/^$scripts" -sim.pairs || code=1
	zero=$(counts)
	result pairs "pairs of faults" "$(said pairs '[^0-9]\([0-9][0-9]*\) pairs')" "none" "every pair in ${scripts:-each of twelve scripts}" "$zero" "$zero" "$zero" \
		"${scripts:+PAIRS=$scripts }.ci/chaos.sh pairs"
}

kills() {
	n=${KILLS:-10000} from=${KILLS_FROM:-1}
	run kills chaos -test.run '^TestMatrix_Row10_' -chaos.kills "$n" -chaos.seed "$from" || code=1
	sum='kills: \([0-9]*\) (seeds .*'
	last=$(sed -n 's/.*kills: [0-9]* (seeds [0-9]* to \([0-9]*\)).*/\1/p' "$out/kills.log")
	# Each ledger has a line of its own; that of all begins with "kills:".
	found() { said kills "kills: .*$1 \\([0-9]*\\)"; }
	result kills "kills of the program" "$(said kills "$sum")" "$from..${last:-?}" "SQLite, SIGKILL under load, at named points, in pauses" \
		"$(found duplicates)" "$(found 'lost acknowledgements')" "$(found 'illegal transitions')" "KILLS=$n KILLS_FROM=$from .ci/chaos.sh kills"
}

cuts() {
	n=${POWERCUTS:-10000} from=${POWERCUTS_FROM:-1}
	run cuts powercut -test.run '^TestPowerCut' -powercut.cuts "$n" -powercut.seed "$from" || code=1
	last=$(sed -n 's/.*power cuts: [0-9]* (seeds [0-9]* to \([0-9]*\)).*/\1/p' "$out/cuts.log")
	found() { said cuts "power cuts: .*(seeds .*$1 \\([0-9]*\\)"; }
	result cuts "power cuts" "$(said cuts 'power cuts: \([0-9]*\) (seeds .*')" "$from..${last:-?}" "SQLite; the same fails without each kind of flush" \
		"-" "$(found 'lost acknowledgements')" "$(found damages)" "POWERCUTS=$n POWERCUTS_FROM=$from .ci/chaos.sh cuts"
}

histories() {
	n=${HISTORIES:-5000} from=${HISTORIES_FROM:-1} chunk=250
	at=$from end=$((from + n))
	while [ "$at" -lt "$end" ]; do
		size=$((end - at))
		[ "$size" -le "$chunk" ] || size=$chunk
		run histories history -test.run '^TestHistory_Linearizable$' -history.n "$size" -history.from "$at" || {
			code=1
			echo "   seeds $at to $((at + size - 1)): FAILED; again: go test ./harness/history -history.from $at -history.n $size -timeout 24h -v"
		}
		at=$((at + size))
	done
	zero=$(counts)
	result histories "checked histories" "$(said histories '[^0-9]\([0-9][0-9]*\) histories of')" "$from..$((end - 1))" "SQLite, 200 calls of 4 to 8 clients on two gateways" \
		"$zero" "$zero" "$(said histories ': \([0-9]*\) illegal')" "HISTORIES=$n HISTORIES_FROM=$from .ci/chaos.sh histories"
}

planted() {
	only=${PLANTED:-}
	run planted planted -test.run '^TestPlanted_EveryBugIsFound$' -planted.only "$only" || code=1
	found=$(sed -n 's/.*planted bugs: \([0-9]* of [0-9]*\) found.*/\1/p' "$out/planted.log")
	result planted "planted bugs, found" "${found:-0}" "-" "one guard out at a time" "-" "-" "-" \
		"${only:+PLANTED=$only }.ci/chaos.sh planted"
}

# table: what was run last of each part, for people.
table() {
	echo "| what | count | seeds | result | duplicates | lost | illegal | time | rate | commit | options | date | again |"
	echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
	for part in $every; do
		[ ! -f "$out/$part.tsv" ] || awk -F '\t' '{ line = "|"; for (i = 1; i < NF; i++) line = line " " $i " |"; print line " `" $NF "` |" }' "$out/$part.tsv"
	done
}

[ $# -gt 0 ] || {
	# shellcheck disable=SC2086 # a list of words
	set -- $every
}
for part in "$@"; do
	case " $every table " in
	*" $part "*) ;;
	*)
		echo "there is no part $part; there are: $every, table" >&2
		exit 2
		;;
	esac
done

status=0
for part in "$@"; do
	[ "$part" != table ] || continue
	echo "== $part"
	rm -f "$out/$part.tsv" "$out/$part.log" "$out/$part.test"
	began=$(date +%s) code=0
	"$part"
	rm -f "$out/$part.test"
	[ "$code" -eq 0 ] || {
		status=1
		echo "   the end of what it said, in $out/$part.log:"
		tail -n 40 "$out/$part.log" | sed 's/^/   /'
	}
done
echo
table | tee "$out/table.md"
exit $status
