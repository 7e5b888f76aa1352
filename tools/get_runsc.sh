#!/usr/bin/env bash
# Install gVisor's runsc as an OCI runtime of Docker, as root on Debian or another Linux on x86-64:
#
#     sudo tools/get_runsc.sh
#
# The program is one static binary out of Debian's package, unpacked to /opt/runsc without
# installing the package. It is registered as `runsc` in /etc/docker/daemon.json, which keeps what
# it has, and a running engine reads that again. Does nothing where both are done already.
set -euo pipefail

VERSION=0.0~20240729.0-4+b7
SHA256=3c25a5130dfac2f71237d5baad56ac86a255de87a0400f11b36a555156dc325a
PACKAGE=https://deb.debian.org/debian/pool/main/g/golang-gvisor-gvisor/runsc_${VERSION}_amd64.deb
# systrap needs no virtualisation; guests' sockets are files of the host; guests have no network
# besides their own loopback interface.
ARGUMENTS=(--platform=systrap --host-uds=all --network=none)

place=/opt/runsc
config=/etc/docker/daemon.json

exec >&2 </dev/null
if [ "$(cat "$place/version" 2>/dev/null || true)" != "$VERSION" ]; then
  for command in curl dpkg-deb; do
    command -v "$command" >/dev/null || { echo "runsc needs $command to be downloaded"; exit 1; }
  done
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  curl --fail --silent --show-error --location --retry 5 --output "$scratch/runsc.deb" "$PACKAGE"
  echo "$SHA256  $scratch/runsc.deb" | sha256sum --check --quiet
  dpkg-deb --extract "$scratch/runsc.deb" "$scratch"
  mkdir -p "$place"
  install -m 755 "$scratch/usr/bin/runsc" "$place/runsc"
  echo "$VERSION" >"$place/version"
  "$place/runsc" --version
fi

before=$(cat "$config" 2>/dev/null || true)
mkdir -p "${config%/*}"
"$place/runsc" install -config_file "$config" -- "${ARGUMENTS[@]}" >/dev/null 2>&1 ||
  { echo "runsc cannot be registered in $config: is that valid JSON?"; exit 1; }
if [ "$before" != "$(cat "$config")" ] && [ -e /var/run/docker.pid ]; then
  kill -HUP "$(cat /var/run/docker.pid)"
fi
