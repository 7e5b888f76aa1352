#!/usr/bin/env bash
# Manages the memory servers behind the proxy of sqld.yaml, one for each user. Needs openssl and docker.
#
#   sqld-users.sh add USER          start a server for a user, and print their token; for one who
#                                   has a server, start it anew from the image and keep what it holds
#   sqld-users.sh token USER [DAYS] print another token; it is valid for DAYS (default: 90)
#   sqld-users.sh keys USER         make the user's pair of keys, if there is none
#   sqld-users.sh remove USER       remove a user's server with all that is in it; does not ask
#
# sqld-keys/USER/private.pem signs the user's tokens. Only the operator may have it; no container
# needs it. A new pair (remove that directory, then add) takes all tokens of the user back.
set -euo pipefail
umask 077

keys=${SQLD_KEYS:-$(dirname "$0")/sqld-keys}
image=${SQLD_IMAGE:-oxydra-sqld:0.24.1}
network=${SQLD_NETWORK:-oxydra-memory}

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

# The user becomes the end of a host name's first part, oxydra-memory-USER of at most 63 characters.
# None has a dot, so none has the name of a file of ours beside the users' keys.
check() {
  [[ ${1:-} =~ ^[a-z0-9]([a-z0-9-]{0,47}[a-z0-9])?$ ]] || {
    echo "USER must be at most 49 lower-case letters, digits and hyphens, not: ${1:-}" >&2
    exit 2
  }
}

make_keys() {
  mkdir -p "$keys/$1"
  [ -s "$keys/$1/private.pem" ] || openssl genpkey -algorithm ed25519 -out "$keys/$1/private.pem"
  openssl pkey -in "$keys/$1/private.pem" -pubout -out "$keys/$1/public.pem"
}

token() {
  local signed signature scratch
  scratch=$(mktemp) # openssl signs files only
  signed=$(printf '{"alg":"EdDSA","typ":"JWT"}' | base64url).$(printf \
    '{"p":{"rw":{"ns":["default"]}},"exp":%d}' "$(($(date +%s) + $2 * 86400))" | base64url)
  printf %s "$signed" >"$scratch"
  signature=$(openssl pkeyutl -sign -rawin -inkey "$keys/$1/private.pem" -in "$scratch" | base64url)
  rm -f "$scratch"
  printf '%s.%s\n' "$signed" "$signature"
}

# A uid that no other server has or had: what one has left behind is then nobody else's.
own_uid() {
  (
    flock 9
    if [ ! -s "$keys/$1/uid" ]; then
      next=$(cat "$keys/last.uid" 2>/dev/null || echo 1990000000)
      echo "$((next + 1))" >"$keys/last.uid"
      cp "$keys/last.uid" "$keys/$1/uid"
    fi
  ) 9>"$keys/uid.lock"
  cat "$keys/$1/uid"
}

start() {
  local name=oxydra-memory-$1 uid
  uid=$(own_uid "$1")
  docker rm --force "$name" >/dev/null 2>&1 || true
  docker volume create "$name" >/dev/null
  docker run --rm --network none --user 0:0 --cap-drop ALL --cap-add CHOWN --cap-add FOWNER \
    --cap-add DAC_OVERRIDE --volume "$name:/var/lib/sqld:nocopy" "$image" \
    sh -c 'chown -R "$0:$0" /var/lib/sqld && chmod 700 /var/lib/sqld' "$uid"
  docker run --detach --name "$name" --network "$network" --restart unless-stopped \
    --user "$uid:$uid" --init --read-only --cap-drop ALL --security-opt no-new-privileges:true \
    --tmpfs /tmp:mode=1777,nosuid,nodev --memory 512m --pids-limit 256 --stop-timeout 30 \
    --env SQLD_AUTH_JWT_KEY="$(cat "$keys/$1/public.pem")" --volume "$name:/var/lib/sqld:nocopy" \
    "$image" sqld --no-welcome --db-path=/var/lib/sqld --http-listen-addr=0.0.0.0:8080 >/dev/null
}

# Waits until the server answers to a token of the user's, and asks where its database is (a server
# with a database for each of several names would call it by another one) and what its SQL can do.
answers() {
  local said others reaching
  said=$(docker exec "oxydra-memory-$1" bash -c '
    ask=$(printf "%s" "{\"requests\":[{\"type\":\"execute\",\"stmt\":{\"sql\":" \
      "\"SELECT file FROM pragma_database_list UNION SELECT name FROM pragma_function_list" \
      " UNION SELECT name FROM pragma_module_list\"}}]}")
    for ((tried = 0; tried < 300; tried++)); do
      exec 3<>/dev/tcp/127.0.0.1/8080 && break
      sleep 0.1
    done 2>/dev/null
    printf "%s\r\n" "POST /v2/pipeline HTTP/1.1" "Host: memory" "Authorization: Bearer $1" \
      "Content-Type: application/json" "Content-Length: ${#ask}" "Connection: close" "" >&3
    printf "%s" "$ask" >&3
    cat <&3' answers "$2" 2>&1) && [[ $said == *'/dbs/default/data"'* ]] || {
    echo "the server of $1 does not answer as it should; it says:" >&2
    docker logs --tail 20 "oxydra-memory-$1" >&2
    exit 1
  }
  others=$(docker exec "oxydra-memory-$1" ls -q /var/lib/sqld/dbs | grep -vx default | xargs) || true
  [ -z "$others" ] || {
    docker rm --force "oxydra-memory-$1" >/dev/null
    echo "the volume oxydra-memory-$1 holds other databases ($others), which $1's token would open;" \
      "look at them: docker run --rm -it --user 0:0 -v oxydra-memory-$1:/data $image ls -lR /data/dbs" >&2
    exit 1
  }
  reaching=$(grep -oE '"(readfile|writefile|fsdir)"' <<<"$said" | sort -u | tr -d '"' | xargs)
  [ -z "$reaching" ] || echo "The SQL of this server reaches the files of its process ($reaching)," \
    "which are $1's alone. The runner asks for your word: memory.server_holds_one_user = true" >&2
}

case "${1:-}" in
keys)
  check "${2:-}"
  make_keys "$2"
  ;;
add)
  check "${2:-}"
  make_keys "$2"
  start "$2"
  made=$(token "$2" 90)
  answers "$2" "$made"
  echo "$made"
  ;;
remove)
  check "${2:-}"
  docker rm --force "oxydra-memory-$2" >/dev/null
  docker volume rm "oxydra-memory-$2" >/dev/null
  rm -rf "${keys:?}/$2"
  ;;
token)
  check "${2:-}"
  token "$2" "${3:-90}"
  ;;
*)
  sed -n '2,12p' "$0" >&2
  exit 2
  ;;
esac
