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
users=$here/../compose/sqld-users.sh
export SQLD_KEYS=${SQLD_KEYS:-$here/../compose/sqld-keys}
namespace=${NAMESPACE:-oxydra}
export SQLD_INSIDE="kubectl --namespace $namespace exec oxydra-memory-0 --container sqld --"

case "${1:-}" in
keys)
  "$users" keys
  kubectl --namespace "$namespace" create secret generic oxydra-memory \
    --from-file=public.pem="$SQLD_KEYS/public.pem" \
    --from-file=admin-key=<(openssl rand -hex 32 | tr -d '\n')
  ;;
add | remove | token)
  # The name of a database is that of a Service too.
  [[ ${2:-} =~ ^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || {
    echo "USER must begin with a letter and be made of lower-case letters, digits and hyphens, not: ${2:-}" >&2
    exit 2
  }
  "$users" "$@"
  ;;
*)
  sed -n '2,11p' "$0" >&2
  exit 2
  ;;
esac
