#!/usr/bin/env bash
# Manages the databases of the memory server in a cluster, as sqld-users.sh does on one machine.
# Needs kubectl and openssl.
#
#   memory-users.sh keys        make the pair of keys and the Secret with what the server needs, once
#   memory-users.sh add USER    make a database for a user, and print their token
#   memory-users.sh token USER [DAYS] print another token; it is valid for DAYS (default: 90)
#   memory-users.sh remove USER remove a user's database with all that is in it; does not ask
#
# NAMESPACE is that of the server (default: oxydra). SQLD_KEYS/private.pem signs tokens; only the
# operator may have it, and no pod needs it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export SQLD_KEYS=${SQLD_KEYS:-$here/../compose/sqld-keys}
namespace=${NAMESPACE:-oxydra}

# The name of a database is that of a Service too.
check() {
  [[ ${1:-} =~ ^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || {
    echo "USER must begin with a letter and be made of lower-case letters, digits and hyphens, not: ${1:-}" >&2
    exit 2
  }
}

# One request to the admin port, which listens inside the pod only: METHOD PATH.
admin() {
  kubectl --namespace "$namespace" exec oxydra-memory-0 --container sqld -- bash -euc '
    exec 3<>/dev/tcp/127.0.0.1/9090
    printf "%s\r\n" "$1 /v1/namespaces/$2 HTTP/1.1" "Host: sqld" \
      "Authorization: Basic $LIBSQL_ADMIN_AUTH_KEY" "Content-Type: application/json" \
      "Content-Length: 2" "Connection: close" "" >&3
    printf "{}" >&3
    answer=$(cat <&3)
    [[ $answer == "HTTP/1.1 200 "* ]] || { echo "$answer" >&2; exit 1; }
  ' admin "$1" "$2"
}

case "${1:-}" in
keys)
  "$here/../compose/sqld-users.sh" keys
  kubectl --namespace "$namespace" create secret generic oxydra-memory \
    --from-file=public.pem="$SQLD_KEYS/public.pem" \
    --from-file=admin-key=<(openssl rand -hex 32 | tr -d '\n')
  ;;
add)
  check "${2:-}"
  admin POST "$2/create"
  "$here/../compose/sqld-users.sh" token "$2"
  ;;
remove)
  check "${2:-}"
  admin DELETE "$2"
  ;;
token)
  check "${2:-}"
  "$here/../compose/sqld-users.sh" token "$2" "${3:-90}"
  ;;
*)
  sed -n '2,11p' "$0" >&2
  exit 2
  ;;
esac
