#!/bin/sh
# Builds and starts PocketBase as this example needs it, until Ctrl-C: a superuser, the collections, batches
# switched on, and the superuser's token in data/token, a fresh one at each start (it is good for a day).
#
#   start.sh [PORT]    8090 by default; the variable DATA names another folder than ./data
set -eu
cd "$(dirname "$0")"
url=http://127.0.0.1:${1:-8090}
email=admin@example.com
umask 077
mkdir -p "${DATA:-data}"
data=$(cd "${DATA:-data}" && pwd)

CGO_ENABLED=0 go build -C server -buildvcs=false -o "$data/pocketbase" .
[ -s "$data/password" ] || od -An -N12 -tx1 /dev/urandom | tr -d ' \n' >"$data/password"
"$data/pocketbase" superuser upsert "$email" "$(cat "$data/password")" --dir "$data/pb" --dev=false >/dev/null
"$data/pocketbase" serve --dir "$data/pb" --http "${url#http://}" --dev=false &
pid=$!
trap 'kill $pid 2>/dev/null || :; wait' EXIT
trap exit INT TERM
until curl -sf "$url/api/health" >/dev/null; do
	kill -0 $pid # it has ended, and said why
	sleep 0.1
done

# send METHOD PATH BODY: what PocketBase answers; a refusal ends the script.
send() {
	printf '%s' "$3" | curl -sSf -X "$1" "$url$2" -H "Authorization: Bearer $(cat "$data/token")" \
		-H 'Content-Type: application/json' --data-binary @-
}
: >"$data/token"
answer=$(send POST /api/collections/_superusers/auth-with-password "{\"identity\":\"$email\",\"password\":\"$(cat "$data/password")\"}")
printf '%s' "$answer" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p' | tr -d '\n' >"$data/token"
send PUT /api/collections/import "$(cat collections.json)"
send PATCH /api/settings '{"batch":{"enabled":true,"maxRequests":10,"timeout":3}}' >/dev/null
echo "Ready. Dashboard: $url/_/  user $email  password $(cat "$data/password")"
wait $pid
