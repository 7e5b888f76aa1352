#!/usr/bin/env bash
# Manages the keys of the memory servers in a cluster, as sqld-users.sh does on one machine. The
# chart makes a server for each of its users; it starts when its ConfigMap is there.
# Needs kubectl and openssl.
#
#   memory-users.sh add USER    make the user's key and its ConfigMap, and print a token
#   memory-users.sh token USER [DAYS] print another token; it is valid for DAYS (default: 90)
#   memory-users.sh remove USER remove key and volume with all that is in it; does not ask. First
#                               take the user out of the values, or the server waits for its volume
#
# NAMESPACE is that of the servers (default: oxydra). SQLD_KEYS/USER/private.pem signs tokens; only
# the operator may have it. What the cluster has, in memory-USER, is no secret.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
users=$here/../compose/sqld-users.sh
export SQLD_KEYS=${SQLD_KEYS:-$here/../compose/sqld-keys}
cluster=(kubectl --namespace "${NAMESPACE:-oxydra}")

case "${1:-}" in
add)
  "$users" keys "${2:-}"
  "${cluster[@]}" get configmap "memory-$2" >/dev/null 2>&1 ||
    "${cluster[@]}" create configmap "memory-$2" --from-file="$SQLD_KEYS/$2/public.pem" >/dev/null
  "$users" token "$2"
  ;;
remove)
  "$users" keys "${2:-}"
  "${cluster[@]}" delete configmap "memory-$2"
  "${cluster[@]}" delete pvc "data-memory-$2-0" --wait=false
  rm -r "${SQLD_KEYS:?}/$2"
  ;;
token)
  "$users" "$@"
  ;;
*)
  sed -n '2,14p' "$0" >&2
  exit 2
  ;;
esac
