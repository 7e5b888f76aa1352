#!/usr/bin/env bash
# Manages the users of the memory server of sqld.yaml. Needs openssl and docker.
#
#   sqld-users.sh keys              make the pair of keys, once
#   sqld-users.sh add USER          make a database for a user, and print their token
#   sqld-users.sh token USER [DAYS] print another token; it is valid for DAYS (default: 90)
#   sqld-users.sh remove USER       remove a user's database with all that is in it; does not ask
#
# sqld-keys/private.pem signs tokens. Only the operator may have it; no container needs it.
set -euo pipefail
umask 022

keys=${SQLD_KEYS:-$(dirname "$0")/sqld-keys}
# How something is run beside the server: kubernetes/memory-users.sh has another way.
read -ra inside <<<"${SQLD_INSIDE:-docker exec ${SQLD_CONTAINER:-oxydra-sqld}}"

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

# The name of a database becomes a part of a host name, so not every user id can be one.
check() {
  [[ ${1:-} =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || {
    echo "USER must be made of lower-case letters, digits and hyphens, not: ${1:-}" >&2
    exit 2
  }
}

token() {
  local signed signature
  signed=$(printf '{"alg":"EdDSA","typ":"JWT"}' | base64url).$(printf \
    '{"p":{"rw":{"ns":["%s"]}},"exp":%d}' "$1" "$(($(date +%s) + $2 * 86400))" | base64url)
  printf %s "$signed" >"$scratch" # openssl signs files only
  signature=$(openssl pkeyutl -sign -rawin -inkey "$keys/private.pem" -in "$scratch" | base64url)
  printf '%s.%s\n' "$signed" "$signature"
}

# One request to the admin port: METHOD PATH. The port and its key are beside the server only.
admin() {
  "${inside[@]}" bash -euc '
    exec 3<>/dev/tcp/127.0.0.1/9090
    printf "%s\r\n" "$1 /v1/namespaces/$2 HTTP/1.1" "Host: sqld" \
      "Authorization: Basic ${LIBSQL_ADMIN_AUTH_KEY:-$(cat /tmp/admin-key)}" "Content-Type: application/json" \
      "Content-Length: 2" "Connection: close" "" >&3
    printf "{}" >&3
    answer=$(cat <&3)
    [[ $answer == "HTTP/1.1 200 "* ]] || { echo "$answer" >&2; exit 1; }
  ' admin "$1" "$2"
}

case "${1:-}" in
keys)
  [ ! -e "$keys/private.pem" ] || { echo "$keys/private.pem is there already" >&2; exit 1; }
  mkdir -p "$keys"
  (umask 077 && openssl genpkey -algorithm ed25519 -out "$keys/private.pem")
  openssl pkey -in "$keys/private.pem" -pubout -out "$keys/public.pem"
  chmod 644 "$keys/public.pem"
  ;;
add)
  check "${2:-}"
  admin POST "$2/create"
  token "$2" 90
  ;;
remove)
  check "${2:-}"
  admin DELETE "$2"
  ;;
token)
  check "${2:-}"
  token "$2" "${3:-90}"
  ;;
*)
  sed -n '2,9p' "$0" >&2
  exit 2
  ;;
esac
